"""What the catalog keeps, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from catalog.errors import RefusedPartition
from catalog.identifiers import TableName
from catalog.partition_names import NULL_VALUE, partition_path

if TYPE_CHECKING:
    from catalog.key_types import KeyType


class FileFormat(StrEnum):
    """The format of a table's data files."""

    PARQUET = "parquet"
    ORC = "orc"
    AVRO = "avro"
    CSV = "csv"


class IndexState(StrEnum):
    """Where a partition index stands; the spelling of Glue's `PartitionIndexStatus`."""

    CREATING = "CREATING"
    ACTIVE = "ACTIVE"
    DELETING = "DELETING"
    FAILED = "FAILED"


MAINTAINED_INDEX_STATES = (IndexState.CREATING, IndexState.ACTIVE)
"""The states in which each added partition gets an item, and must fit."""


ENCRYPTED_PROPERTY = "has_encrypted_data"
"""The partition property that says `true` when the partition's data is encrypted. Source: AWS Glue."""


def is_encrypted(properties: Mapping[str, str] | None) -> bool:
    """Say whether a partition's properties call its data encrypted, without regard to case."""
    return any(
        name.lower() == ENCRYPTED_PROPERTY and value.strip().lower() == "true"
        for name, value in (properties or {}).items()
    )


class PartitionState(StrEnum):
    """Whether readers see a partition."""

    VISIBLE = "VISIBLE"
    QUARANTINED = "QUARANTINED"


class OnInvalid(StrEnum):
    """What happens to a batch with partitions that an index does not admit."""

    REFUSE = "refuse"
    SKIP = "skip"


@dataclass(frozen=True)
class Column:
    """A column: its name, lower case, its type as Hive writes it, and what it means."""

    name: str
    type: str
    comment: str | None = None


@dataclass(frozen=True)
class Database:
    """A namespace of tables.

    Attributes:
        location: Folder for tables without a location of their own.
    """

    name: str
    location: str
    description: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """A table and how its files are laid out.

    Attributes:
        columns: The columns inside the data files, in order.
        partition_keys: The partition keys, in the order of the path.
        location: Folder of the data files, without a slash at the end.
        version: Another one after each change of the table or of its indexes.
    """

    database: str
    name: str
    columns: tuple[Column, ...]
    partition_keys: tuple[Column, ...]
    format: FileFormat
    location: str
    properties: Mapping[str, str] = field(default_factory=dict)
    id: int = 0
    version: int = field(default=0, compare=False)

    @property
    def full_name(self) -> str:
        """`database.name`."""
        return str(TableName(self.database, self.name))

    @property
    def key_names(self) -> tuple[str, ...]:
        """Names of the partition keys, in order."""
        return tuple(key.name for key in self.partition_keys)

    @cached_property
    def key_types(self) -> tuple[KeyType, ...]:
        """Types of the partition keys, in order."""
        from catalog.key_types import parse_key_type

        return tuple(parse_key_type(key.type) for key in self.partition_keys)

    def key_position(self, name: str) -> int | None:
        """Return the position of a partition key, without regard to case; None when there is no such key."""
        return self._key_positions.get(name.lower())

    def default_partition_location(self, path: str) -> str:
        """Return where a partition of this Hive-style path lies unless it says otherwise."""
        return f"{self.location}/{path}"

    @cached_property
    def _key_positions(self) -> dict[str, int]:
        return {key.name: position for position, key in enumerate(self.partition_keys)}


@dataclass(frozen=True, slots=True)
class NewPartition:
    """A partition to add.

    Attributes:
        values: One text for each partition key, in order. None is Hive's null (`__HIVE_DEFAULT_PARTITION__`).
            A shorter sequence lacks the values of the last keys.
        location: Folder of its files; None for the Hive-style folder below the table's location.
        row_count, file_count, size_bytes: None when they are not known.
    """

    values: Sequence[str | None]
    location: str | None = None
    file_count: int | None = None
    row_count: int | None = None
    size_bytes: int | None = None
    properties: Mapping[str, str] | None = None


class Partition(NamedTuple):
    """A partition of a table.

    Attributes:
        values: One text for each partition key, in order, as it was given. None is null, or a value it lacks.
        location: Folder of its files.
    """

    id: int
    values: tuple[str | None, ...]
    location: str
    file_count: int | None
    row_count: int | None
    size_bytes: int | None
    properties: Mapping[str, str]
    state: PartitionState
    created_at_ms: int

    def name(self, table: Table) -> str:
        """Return the partition's name as Hive shows it, `k=v/k2=v2`."""
        return partition_path(table.key_names, self.values)

    def as_dict(self, table: Table) -> dict[str, str]:
        """Return key name → value, null as `__HIVE_DEFAULT_PARTITION__`."""
        return {
            name: NULL_VALUE if value is None else value
            for name, value in zip(table.key_names, self.values, strict=True)
        }


@dataclass(frozen=True)
class AddResult:
    """What `add_partitions` did.

    Attributes:
        added: How many partitions are new.
        existing: How many of the given ones were there before (only with `if_not_exists`).
        refused: The ones that an index does not admit (only when the valid ones were asked for).
    """

    added: int
    existing: int
    refused: tuple[RefusedPartition, ...] = ()


@dataclass(frozen=True)
class OffendingPartition:
    """A partition that made an index build fail."""

    values: tuple[str | None, ...]
    location: str
    problem: str


@dataclass(frozen=True)
class PartitionIndex:
    """A named, ordered list of partition keys of one table.

    Attributes:
        failure_code: Why the build failed; None unless FAILED.
        failure_detail: The same in words.
        offending: The first partitions that do not fit, at most 100.
        failed_at_ms: When it became FAILED; None unless it is.
    """

    name: str
    keys: tuple[str, ...]
    state: IndexState
    failure_code: str | None = None
    failure_detail: str | None = None
    offending: tuple[OffendingPartition, ...] = ()
    id: int = 0
    failed_at_ms: int | None = None


@dataclass(frozen=True)
class IndexDefinition:
    """A partition index to create: its name and its keys, in order."""

    name: str
    keys: tuple[str, ...]
