"""Requests to change a table's partitions, from forms and from the DAG `rebalance_advisor`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, Self

from catalog import errors as e
from catalog.rebalancing.changes import CHANGES, PartitionChange

_ARGUMENTS = ("items", "partition_ids", "with_data", "count")
_OF_PARTITION_IDS = (e.PartitionNotFoundError, e.DefaultPartitionError, e.PartitionsNotNeighboursError)
_OF_ITEMS = (
    e.BoundsNotAscendingError,
    e.BoundOutsideRangeError,
    e.DuplicateListValueError,
    e.ListGroupMismatchError,
    e.SchemeValueError,
)


@dataclass(frozen=True, kw_only=True)
class RebalanceRequest:
    """A request to the DAG `rebalance_partitions`.

    Attributes:
        table: `database.table`.
        operation: One of `CHANGES`.
        items: Upper bounds or groups, for `add` and `split`.
        partition_ids: Exactly one for `split`, several for `drop` and `merge`.
        with_data: Whether `drop` also deletes the rows.
        count: The number of hash partitions, for `set_partition_num`.
        dry_run: Only plan.
    """

    table: str
    operation: str
    items: tuple[str, ...] = ()
    partition_ids: tuple[int, ...] = ()
    with_data: bool = False
    count: int | None = None
    dry_run: bool = True

    @classmethod
    def from_form(cls, form: Mapping[str, Any]) -> Self:
        """Return the request of a form's fields; fields that are None are ignored.

        Raises:
            WrongFieldError: A field is missing, unknown, of another type, or not supported by the operation.
        """
        given = {name: value for name, value in form.items() if value is not None}
        if isinstance(ids := given.get("partition_ids"), list):
            # Airflow's page submits the lines of the form as strings.
            given["partition_ids"] = [
                int(partition_id) if _is_digits(partition_id) else partition_id for partition_id in ids
            ]
        if unknown := sorted(given.keys() - {field.name for field in fields(cls)}):
            raise e.WrongFieldError(unknown[0], f"unknown field; the fields are {', '.join(_names(cls))}")
        for name in ("table", "operation"):
            if not isinstance(given.get(name), str) or not given[name].strip():
                raise e.WrongFieldError(name, f"is {given.get(name)!r}, expected {_EXPECTED[name]}")
        if given["operation"] not in CHANGES:
            raise e.WrongFieldError("operation", f"is {given['operation']!r}, expected {_EXPECTED['operation']}")
        for name, fits in _FITS.items():
            if name in given and not fits(given[name]):
                raise e.WrongFieldError(name, f"is {given[name]!r}, expected {_EXPECTED[name]}")
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list | tuple) else value for name, value in given.items()
        }
        request = cls(**values)
        request._check()
        # Evaluated here, so that a field that does not fit the change is an error of the form.
        _ = request.change
        return request

    @classmethod
    def of(cls, table: str, change: PartitionChange, *, dry_run: bool = True) -> Self:
        """Return the request for a change."""
        return cls.from_form({"table": table, "operation": change.kind, **change.as_form(), "dry_run": dry_run})

    def as_form(self) -> dict[str, Any]:
        """Return the fields of the form; empty fields are None."""
        form = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return {name: None if value == [] else value for name, value in form.items()}

    def _check(self) -> None:
        """Check that the form has exactly the fields that the operation needs.

        Raises:
            WrongFieldError: A field is missing, or the operation does not support it.
        """
        supported = CHANGES[self.operation].form_fields
        for name in _ARGUMENTS:
            value = getattr(self, name)
            is_given = value is not None and value is not False and value != ()
            if is_given and name not in supported:
                taken = f"only {' and '.join(supported)}" if supported else "none of these fields"
                raise e.WrongFieldError(name, f"is {_shown(value)}, but {self.operation} takes {taken}")
            if not is_given and name in supported and name != "with_data":
                raise e.WrongFieldError(name, f"is empty; {self.operation} needs {_EXPECTED[name]}")

    @cached_property
    def change(self) -> PartitionChange:
        """The requested change."""
        return CHANGES[self.operation].from_form({name: getattr(self, name) for name in _ARGUMENTS})

    def field_of(self, error: e.CatalogError, *, has_scheme: bool = True) -> str:
        """Return the field that caused an error in planning the request.

        Args:
            has_scheme: Whether the table has a partition scheme.
        """
        is_of_table = isinstance(error, e.NotFoundError | e.InvalidIdentifierError | e.NotATableError)
        if not has_scheme or (is_of_table and not isinstance(error, e.PartitionNotFoundError)):
            return "table"
        if isinstance(error, e.UnsupportedChangeError):
            return "operation"
        if isinstance(error, _OF_PARTITION_IDS):
            return "partition_ids"
        return "items" if isinstance(error, _OF_ITEMS) else next(iter(CHANGES[self.operation].form_fields), "operation")


def _names(request: type[RebalanceRequest]) -> Sequence[str]:
    return [field.name for field in fields(request)]


def _shown(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _is_digits(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10


def _is_list_of(kind: type) -> Callable[[object], bool]:
    return lambda value: (
        isinstance(value, list | tuple)
        and all(isinstance(item, kind) and not isinstance(item, bool) and item != "" for item in value)
    )


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


_FITS: Mapping[str, Callable[[object], bool]] = {
    "items": _is_list_of(str),
    "partition_ids": _is_list_of(int),
    "with_data": _is_bool,
    "count": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "dry_run": _is_bool,
}

_EXPECTED: Mapping[str, str] = {
    "table": "a table, written as database.table",
    "operation": f"one of {', '.join(CHANGES)}",
    "items": "a list of strings, each a bound, a value or a group such as (Mars, Venus)",
    "partition_ids": "a list of partition ids, such as [3, 4]",
    "with_data": "true or false",
    "count": "a whole number, such as 9",
    "dry_run": "true or false",
}
