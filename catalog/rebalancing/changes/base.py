"""Interface of all partition changes, and helpers for their statements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self, TypeAlias

from catalog.schemes.lists import ListScheme
from catalog.schemes.model import Change, Scheme
from catalog.schemes.ranges import RangeScheme
from catalog.schemes.texts import format_group

Form: TypeAlias = Mapping[str, Any]
"""The fields of `RebalanceRequest`, with their types."""


@dataclass(frozen=True)
class PartitionChange(ABC):
    """A change of a table's partitions.

    Attributes:
        kind: Its name in requests and in the journal.
        form_fields: The fields of `RebalanceRequest` that it takes; errors of no particular field name the first.
        applies_deletes: It also rewrites the files of which other engines have deleted rows in delete files.
    """

    kind: ClassVar[str]
    form_fields: ClassVar[tuple[str, ...]]
    applies_deletes: ClassVar[bool] = False

    @classmethod
    def from_form(cls, form: Form) -> Self:
        """Return the change that a form describes.

        Raises:
            WrongFieldError: A field does not fit this kind of change.
        """
        return cls(**{name: form[name] for name in cls.form_fields})

    def as_form(self) -> dict[str, Any]:
        """Return the fields of the form that describes the change."""
        return {name: _plain(getattr(self, name)) for name in self.form_fields}

    @abstractmethod
    def of(self, scheme: Scheme) -> Change:
        """Return the scheme after the change.

        Raises:
            PartitionNotFoundError, InvalidSchemeError: The change does not fit the scheme; subclasses say why.
        """

    @abstractmethod
    def reverse(self, before: Scheme, after: Scheme) -> PartitionChange | None:
        """Return the change that restores the earlier scheme, except for partition ids; None if there is none."""

    def statement(self, table: str) -> str:
        """Return the statement that makes the change.

        Args:
            table: `database.name`.
        """
        return f"ALTER TABLE {table} {self}"

    @abstractmethod
    def __str__(self) -> str:
        """Return the clause of the statement after ALTER TABLE and the table's name."""

    def as_json(self) -> dict[str, Any]:
        """Return JSON values, which `change_from_json` reads."""
        return {"change": self.kind, **{field.name: _plain(getattr(self, field.name)) for field in fields(self)}}


def item_of(scheme: Scheme, partition_id: int) -> str:
    """Return a partition as an item of ADD and SPLIT: its upper bound, or its group of values."""
    if isinstance(scheme, ListScheme):
        return item_of_values(dict(scheme.groups)[partition_id])
    assert isinstance(scheme, RangeScheme)
    return dict(scheme.bounds)[partition_id]


def item_of_values(values: Sequence[str]) -> str:
    """Return a group of values as an item of ADD and SPLIT."""
    return values[0] if len(values) == 1 and not values[0].startswith("(") else _group(values)


def quoted(items: Sequence[str]) -> str:
    """Return bounds or groups as string literals of a statement."""
    escaped = (item.replace("\\", "\\\\").replace("'", "''") for item in items)
    return ", ".join(f"'{item}'" for item in escaped)


def _group(values: Sequence[str]) -> str:
    group = format_group(values)
    return group if len(values) > 1 else f"({group})"


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
