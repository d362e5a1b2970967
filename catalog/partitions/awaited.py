"""Partitions that somebody waits for: how they are named, and their state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Any, TypeAlias

from catalog.errors import InvalidPartitionSpecError
from catalog.model import Table
from catalog.model.partition_names import parse_partition_path, partition_path
from catalog.partitions.specs import whole_values
from catalog.tables.checks import refuse_iceberg, refuse_view
from catalog.types.key_types import DateType

PartitionName: TypeAlias = "str | Mapping[str, Any] | Sequence[Any]"
"""A partition: `k=v/k2=v2`, all keys → values, or the values in the order of the keys."""


class QualityDemand(StrEnum):
    """The verdict of the latest quality check that a partition has to have."""

    REQUIRED = "required"
    IF_CHECKED = "if_checked"
    IGNORED = "ignored"


@dataclass(frozen=True)
class AwaitedPartitions:
    """Partitions of one table that somebody waits for, as `PartitionWaits.question` returns them.

    Attributes:
        table: `database.name`.
        names: As in paths, `k=v/k2=v2`; empty with an expression.
        expression: A filter; None with names.
        at_least: The number of partitions that have to match the expression.
    """

    table: str
    names: tuple[str, ...] = ()
    expression: str | None = None
    at_least: int = 1
    quality: QualityDemand = QualityDemand.IF_CHECKED

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> AwaitedPartitions:
        """Return the question of the fields from `as_json`."""
        return cls(**{**fields, "names": tuple(fields["names"]), "quality": QualityDemand(fields["quality"])})

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {**asdict(self), "names": list(self.names), "quality": self.quality.value}


@dataclass(frozen=True)
class AwaitedState:
    """The state of awaited partitions, as numbers of partitions.

    Attributes:
        expected: All of them; with an expression, those that match, or `at_least` if these are more.
        ready: Those that exist, are visible, and passed their quality check as far as it is demanded.
        missing: Those that do not exist.
        hidden: Those that are quarantined.
        failed: The visible ones whose latest quality check failed, and that no person has released since.
        unchecked: The visible ones without the quality check that is demanded.
    """

    expected: int
    ready: int = 0
    missing: int = 0
    hidden: int = 0
    failed: int = 0
    unchecked: int = 0

    @property
    def is_ready(self) -> bool:
        """Return whether the wait is over."""
        return self.ready >= self.expected

    def __str__(self) -> str:
        """Return a sentence without a full stop."""
        left = (
            (self.missing, "missing"),
            (self.hidden, "quarantined"),
            (self.failed, "failed the quality check"),
            (self.unchecked, "not checked yet"),
        )
        reasons = ", ".join(f"{count:,} {reason}" for count, reason in left if count)
        return f"{self.ready:,} of {self.expected:,} partition(s) ready" + (f": {reasons}" if reasons else "")


def with_partitions(table: Table) -> Table:
    """Return a table whose partitions may be waited for.

    Raises:
        NotATableError, IcebergTableError: It is a view, or an Iceberg table.
        InvalidPartitionSpecError: It has no partition keys.
    """
    refuse_view(table, "has no partitions to wait for")
    refuse_iceberg(table)
    if not table.partition_keys:
        reason = "has no partition keys" if table.scheme is None else "has a partition scheme, whose partitions exist"
        raise InvalidPartitionSpecError(
            f"table {table.full_name} {reason}, so there is no partition to wait for; wait for the operation that "
            "changes it"
        )
    return table


def name_of(table: Table, partition: PartitionName) -> str:
    """Return the name of a partition as in paths, with the table's names of its keys."""
    return partition_path(table.key_names, values_of(table, partition))


def values_of(table: Table, partition: PartitionName) -> tuple[str | None, ...]:
    """Return the values of a partition.

    Raises:
        InvalidPartitionSpecError: It does not name a value for each key of the table.
    """
    keys = ", ".join(table.key_names)
    if isinstance(partition, str):
        pairs = parse_partition_path(partition)
        if len(pairs) != len(partition.split("/")) or len(dict(pairs)) != len(pairs):
            example = "/".join(f"{key}=…" for key in table.key_names)
            raise InvalidPartitionSpecError(
                f"partition {partition!r} of {table.full_name} is not written as {example}; name each key once"
            )
        return whole_values(table, dict(pairs))
    if isinstance(partition, Mapping):
        return whole_values(table, {str(key): _text(table, str(key), value) for key, value in partition.items()})
    if not isinstance(partition, Sequence) or len(partition) != len(table.partition_keys):
        raise InvalidPartitionSpecError(
            f"partition {partition!r} of {table.full_name} needs a value for each of its keys ({keys}), in this order"
        )
    return whole_values(table, [_text(table, *pair) for pair in zip(table.key_names, partition, strict=True)])


def _text(table: Table, key: str, value: Any) -> str | None:
    if isinstance(value, datetime):
        # Airflow's dates are times with a zone, which paths never have.
        value = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        types = dict(zip(table.key_names, table.key_types, strict=True))
        value = value.date() if isinstance(types.get(key.lower()), DateType) else value
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, date) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(value)
    raise InvalidPartitionSpecError(
        f"the partition value {value!r} for {table.full_name} is a {type(value).__name__}; write it as in the path"
    )
