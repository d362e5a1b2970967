"""What the catalog keeps, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from catalog.errors import RefusedPartition
from catalog.model.identifiers import TableName
from catalog.model.partition_names import NULL_VALUE, given_values, partition_path

if TYPE_CHECKING:
    from catalog.schemes.model import Scheme
    from catalog.types.key_types import KeyType

PARTITION_ID = "_partition_id"
"""What a filter and a SELECT call the partition of a row of a table with a partition scheme."""


class FileFormat(StrEnum):
    """The format of data files; those that are not readable are recorded only, for tables that came from Hive."""

    PARQUET = "parquet"
    ORC = "orc"
    AVRO = "avro"
    CSV = "csv"
    TEXTFILE = "textfile"
    SEQUENCEFILE = "sequencefile"
    RCFILE = "rcfile"
    JSONFILE = "jsonfile"

    @property
    def is_readable(self) -> bool:
        """Say whether files of this format can be read and written."""
        return self in READABLE_FORMATS


READABLE_FORMATS = (FileFormat.PARQUET, FileFormat.ORC, FileFormat.AVRO, FileFormat.CSV)


class TableKind(StrEnum):
    """Whose a table's files are, or that it has none."""

    MANAGED = "managed"
    """The files go with the table, when it is dropped with `purge`."""
    EXTERNAL = "external"
    """The files are somebody else's, and stay."""
    VIEW = "view"


class TableType(StrEnum):
    """Who keeps a table's files: the catalog's partitions, or Iceberg's metadata.

    An Iceberg table keeps its Hive definition, partitions and indexes, untouched, for the way back.
    """

    HIVE = "HIVE"
    ICEBERG = "ICEBERG"


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
    """A column: its name, lower case, its type as Hive writes it, and what it means.

    Attributes:
        id: What it is known by in its table (`catalog.tables.columns`); 0 for a column that is in no table yet.
        file_names: The names that data files have it under, that of new files last; empty when that is its name.
    """

    name: str
    type: str
    comment: str | None = None
    id: int = field(default=0, compare=False)
    file_names: tuple[str, ...] = field(default=(), compare=False)

    @property
    def stored_names(self) -> tuple[str, ...]:
        """The names that data files have it under, that of new files last."""
        return self.file_names or (self.name,)

    @property
    def stored_name(self) -> str:
        """The name that new data files have it under."""
        return self.stored_names[-1]


@dataclass(frozen=True)
class Buckets:
    """How Hive spread the rows of each partition over files: recorded as it is, and not used.

    Attributes:
        columns: The columns whose hash names the bucket.
    """

    columns: tuple[str, ...]
    count: int


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
    """A table and how its files are laid out; or a view, which has neither partitions, files nor a location.

    Attributes:
        columns: The columns inside the data files, in order; the partition column of a scheme is the last.
        partition_keys: The partition keys, in the order of the path.
        location: Folder of the data files, without a slash at the end.
        scheme: How the rows are placed by one of the columns; None for one partition for each value of the partition
            keys, as in Hive, and for tables without partitions.
        version: Another one after each change of the table or of its indexes.
        description: What the table is for.
        view_text: The statement of a view; None for tables.
        buckets: None for a table without.
        table_type: ICEBERG when Iceberg's metadata says what is in it; the rest says what it was as a Hive table.
        metadata_location: The metadata file of an Iceberg table, as it was read; None for others.
        dropped_columns: Columns that the table had, which data files may still have.
        last_column_id: The highest id that a column of the table has ever had.
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
    scheme: Scheme | None = None
    kind: TableKind = TableKind.MANAGED
    description: str | None = None
    view_text: str | None = None
    buckets: Buckets | None = None
    table_type: TableType = TableType.HIVE
    metadata_location: str | None = field(default=None, compare=False)
    dropped_columns: tuple[Column, ...] = field(default=(), compare=False)
    last_column_id: int = field(default=0, compare=False)

    @property
    def full_name(self) -> str:
        """`database.name`."""
        return str(TableName(self.database, self.name))

    @property
    def is_view(self) -> bool:
        """Say whether it is a view."""
        return self.kind is TableKind.VIEW

    @property
    def is_iceberg(self) -> bool:
        """Say whether it is an Iceberg table now."""
        return self.table_type is TableType.ICEBERG

    @property
    def key_names(self) -> tuple[str, ...]:
        """Names of the partition keys, in order."""
        return tuple(key.name for key in self.partition_keys)

    @cached_property
    def key_types(self) -> tuple[KeyType, ...]:
        """Types of the partition keys, in order."""
        from catalog.types.key_types import parse_key_type

        return tuple(parse_key_type(key.type) for key in self.partition_keys)

    def key_position(self, name: str) -> int | None:
        """Return the position of a partition key, without regard to case; None when there is no such key."""
        return self._key_positions.get(name.lower())

    @property
    def filter_word(self) -> str:
        """What the columns are called that a filter may name."""
        return "partition key"

    @cached_property
    def pruning_columns(self) -> frozenset[str]:
        """The columns whose values tell which partitions or files are needed."""
        if self.scheme is None:
            return frozenset(self.key_names)
        return frozenset((self.scheme.column, *self.scheme.sort_columns, PARTITION_ID))

    @cached_property
    def filter_view(self) -> Table:
        """The table as filters see it: the columns that they may name as its partition keys.

        Those are the partition keys; and of a table with a partition scheme all columns whose values compare, and
        `_partition_id`.
        """
        if self.scheme is None:
            return self
        from catalog.types.column_types import parse_column_type

        columns = (column for column in self.columns if parse_column_type(column.type) is not None)
        return _FilterView(
            self.database,
            self.name,
            (),
            (*columns, Column(PARTITION_ID, "int")),
            self.format,
            self.location,
        )

    def default_partition_location(self, path: str) -> str:
        """Return where a partition of this Hive-style path lies unless it says otherwise."""
        return f"{self.location}/{path}"

    def partition_name(self, packed_values: str) -> str:
        """Return the Hive-style path of a partition, given by its values as the catalog keeps them."""
        return partition_path(self.key_names, given_values(packed_values))

    def partition_location(self, packed_values: str, location: str | None) -> str:
        """Return the location of a partition, given by its values and its own location as the catalog keeps them.

        Args:
            location: None for the default location.
        """
        return location or self.default_partition_location(self.partition_name(packed_values))

    @cached_property
    def _key_positions(self) -> dict[str, int]:
        return {key.name: position for position, key in enumerate(self.partition_keys)}


class _FilterView(Table):
    """A table whose keys may have every type that compares."""

    @property
    def filter_word(self) -> str:
        """What the columns are called that a filter may name."""
        return "column whose values compare"

    @cached_property
    def key_types(self) -> tuple[KeyType, ...]:
        from catalog.types.column_types import parse_column_type

        return tuple(found for key in self.partition_keys if (found := parse_column_type(key.type)) is not None)


@dataclass(frozen=True, slots=True)
class NewPartition:
    """A partition to add.

    Attributes:
        values: One text for each partition key, in order. None is Hive's null (`__HIVE_DEFAULT_PARTITION__`).
            A shorter sequence lacks the values of the last keys.
        location: Folder of its files; None for the Hive-style folder below the table's location.
        row_count, file_count, size_bytes: None when they are not known.
        format: The format of its files, when it is not the table's.
    """

    values: Sequence[str | None]
    location: str | None = None
    file_count: int | None = None
    row_count: int | None = None
    size_bytes: int | None = None
    properties: Mapping[str, str] | None = None
    format: FileFormat | None = None


class Partition(NamedTuple):
    """A partition of a table.

    Attributes:
        values: One text for each partition key, in order, as it was given. None is null, or a value it lacks.
        location: Folder of its files.
        format: The format of its files, when it is not the table's.
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
    format: FileFormat | None = None

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
