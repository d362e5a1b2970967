"""The objects of the catalog as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
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
"""Name of the virtual column, for filters and SELECT, with a row's partition id in a table with a partition scheme."""


class FileFormat(StrEnum):
    """Formats of data files; the catalog only records those that are not readable, for tables that came from Hive."""

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
        """Return whether files of this format can be read and written."""
        return self in READABLE_FORMATS


ICEBERG = "iceberg"
"""The format of tables of partition values that are stored as Iceberg; their data files are Parquet."""

GRACE = timedelta(hours=24)
"""The time that replaced files are kept by default, which limits how long readers may run."""

MAXIMUM_INDEXES = 3
"""Maximum number of indexes per table, without FAILED ones. Source: AWS Glue, partition indexes."""

READABLE_FORMATS = (FileFormat.PARQUET, FileFormat.ORC, FileFormat.AVRO, FileFormat.CSV)


class TableKind(StrEnum):
    """The owner of a table's files; a view has none."""

    MANAGED = "managed"
    """The files are deleted with the table when it is dropped with `purge`."""
    EXTERNAL = "external"
    """The files belong to another system and are never deleted with the table."""
    VIEW = "view"


class TableType(StrEnum):
    """Where a table's files are recorded: in the catalog's partitions, or in Iceberg's metadata.

    An Iceberg table keeps its Hive definition, partitions and indexes unchanged, so that it can be reverted.
    """

    HIVE = "HIVE"
    ICEBERG = "ICEBERG"


class IndexState(StrEnum):
    """States of a partition index, named like Glue's `PartitionIndexStatus`."""

    CREATING = "CREATING"
    ACTIVE = "ACTIVE"
    DELETING = "DELETING"
    FAILED = "FAILED"


MAINTAINED_INDEX_STATES = (IndexState.CREATING, IndexState.ACTIVE)
"""States in which each added partition gets an item, so its values must be valid."""


ENCRYPTED_PROPERTY = "has_encrypted_data"
"""The partition property that is `true` if the partition's data is encrypted. Source: AWS Glue."""


def is_encrypted(properties: Mapping[str, str] | None) -> bool:
    """Return whether a partition's properties mark its data as encrypted, ignoring case."""
    return any(
        name.lower() == ENCRYPTED_PROPERTY and value.strip().lower() == "true"
        for name, value in (properties or {}).items()
    )


class PartitionState(StrEnum):
    """Visibility of a partition to readers."""

    VISIBLE = "VISIBLE"
    QUARANTINED = "QUARANTINED"


class OnInvalid(StrEnum):
    """How to treat a batch that has partitions refused by an index."""

    REFUSE = "refuse"
    SKIP = "skip"


class LoadMode(StrEnum):
    """The effect of a load on the partitions of a table.

    It adds new ones (NEW), adds rows to existing ones, too (APPEND), replaces these (REPLACE), or merges its rows into
    these by keys (MERGE).
    """

    NEW = "new"
    APPEND = "append"
    REPLACE = "replace"
    MERGE = "merge"

    @classmethod
    def of(cls, text: str, table: Table) -> LoadMode:
        """Return a mode by its name; without a name, the default of the table, which depends on its format.

        Raises:
            ValueError: There is no mode of this name.
        """
        return cls(text or (cls.APPEND if table.has_file_rows else cls.NEW))


class RepairMode(StrEnum):
    """The changes that a repair makes, named as in Hive's MSCK."""

    ADD = "add"
    DROP = "drop"
    SYNC = "sync"


@dataclass(frozen=True)
class Column:
    """A column: its name in lower case, its type as Hive writes it, and a comment.

    Attributes:
        id: Its id in the table (`catalog.tables.columns`); 0 for a column that belongs to no table yet.
        file_names: Its names in data files, the name in new files last; empty when that is only `name`.
        part_ids: The ids of the fields inside a nested type, by their paths (`catalog.iceberg.types.part_names`).
    """

    name: str
    type: str
    comment: str | None = None
    id: int = field(default=0, compare=False)
    file_names: tuple[str, ...] = field(default=(), compare=False)
    part_ids: tuple[tuple[str, int], ...] = field(default=(), compare=False)

    @property
    def stored_names(self) -> tuple[str, ...]:
        """The column's names in data files, the name in new files last."""
        return self.file_names or (self.name,)

    @property
    def stored_name(self) -> str:
        """The column's name in new data files."""
        return self.stored_names[-1]


@dataclass(frozen=True)
class Buckets:
    """Hive's distribution of each partition's rows over files; recorded, but not used.

    Attributes:
        columns: The columns whose hash selects the bucket.
    """

    columns: tuple[str, ...]
    count: int


@dataclass(frozen=True)
class Database:
    """A namespace of tables.

    Attributes:
        location: Folder of tables that have no location of their own.
    """

    name: str
    location: str
    description: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """A table and the layout of its files; or a view, which has no partitions, files or location.

    Attributes:
        columns: The columns in the data files, in order; the partition column of a scheme is the last.
        partition_keys: The partition keys, in the order of the path.
        location: Folder of the data files, without a trailing slash.
        scheme: The placement of rows by one of the columns; None for one partition per value of the partition keys, as
            in Hive, and for unpartitioned tables.
        version: Changes with each change of the table or its indexes.
        description: The purpose of the table.
        view_text: The statement of a view; None for tables.
        buckets: None for a table without buckets.
        table_type: ICEBERG when Iceberg's metadata define the table; the other attributes then describe the former Hive
            table.
        metadata_location: The metadata file of an Iceberg table when it was read; None for other tables.
        published_location: The metadata file with which other engines read a table whose files the catalog records,
            when it was read; None for other tables, and for those that `calve init` has still to publish. The catalog's
            file rows mirror its current snapshot.
        live_location: The metadata file of a published table in the Iceberg catalog when it was read; it differs from
            `published_location` if other engines have committed since (`catalog.datafiles.intake`).
        delete_file_count: The number of delete files in the current snapshot of a published table; these are of other
            engines.
        dropped_columns: Former columns, which data files may still contain.
        last_column_id: The highest column id ever assigned in the table.
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
    published_location: str | None = field(default=None, compare=False)
    live_location: str | None = field(default=None, compare=False)
    delete_file_count: int = field(default=0, compare=False)
    dropped_columns: tuple[Column, ...] = field(default=(), compare=False)
    last_column_id: int = field(default=0, compare=False)

    @property
    def full_name(self) -> str:
        """`database.name`."""
        return str(TableName(self.database, self.name))

    @property
    def engine_location(self) -> str | None:
        """The metadata file to read a published table with, if the catalog's file rows do not suffice.

        Other engines have committed what Calve has not taken in or cannot follow, or have written delete files.
        """
        if self.live_location != self.published_location:
            return self.live_location
        return self.published_location if self.delete_file_count else None

    @property
    def is_view(self) -> bool:
        """Return whether this is a view."""
        return self.kind is TableKind.VIEW

    @property
    def is_iceberg(self) -> bool:
        """Return whether this is an Iceberg table."""
        return self.table_type is TableType.ICEBERG

    @property
    def is_published(self) -> bool:
        """Return whether Iceberg's metadata repeat what the catalog records, so that other engines read the table."""
        return self.published_location is not None

    @property
    def is_stored_as_iceberg(self) -> bool:
        """Return whether this is a table of partition values whose files are in snapshots, and not in folders."""
        return self.is_published and self.scheme is None

    @property
    def has_file_rows(self) -> bool:
        """Return whether the catalog has a row for each data file, so that readers list no folder."""
        return self.is_published or self.scheme is not None

    @cached_property
    def in_files(self) -> Table:
        """The table as its data files have it: in a table stored as Iceberg, they have the partition keys, too."""
        if not self.is_stored_as_iceberg:
            return self
        return replace(self, columns=(*self.columns, *self.partition_keys), partition_keys=())

    @property
    def key_names(self) -> tuple[str, ...]:
        """Names of the partition keys, in order."""
        return tuple(key.name for key in self.partition_keys)

    @cached_property
    def key_types(self) -> tuple[KeyType, ...]:
        """Types of the partition keys, in order."""
        from catalog.types.key_types import parse_key_type

        return tuple(parse_key_type(key.type) for key in self.partition_keys)

    @property
    def placing_columns(self) -> tuple[str, ...]:
        """Names of the columns by which a row belongs to a partition: the partition keys, or a scheme's column."""
        return self.key_names if self.scheme is None else (self.scheme.column,)

    def key_position(self, name: str) -> int | None:
        """Return the position of a partition key, ignoring case; None when there is no such key."""
        return self._key_positions.get(name.lower())

    @property
    def filter_word(self) -> str:
        """The term for columns that a filter may name, for messages."""
        return "partition key"

    @cached_property
    def pruning_columns(self) -> frozenset[str]:
        """The columns by whose values partitions or files are pruned."""
        if self.scheme is None:
            return frozenset(self.key_names)
        return frozenset((self.scheme.column, *self.scheme.sort_columns, PARTITION_ID))

    @cached_property
    def filter_view(self) -> Table:
        """The table as filters see it: its partition keys are the columns that a filter may name.

        Those are the partition keys; in a table with a partition scheme, all columns with comparable values, and
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
        """Return the default location of a partition, by its Hive-style path."""
        return f"{self.location}/{path}"

    def partition_name(self, packed_values: str) -> str:
        """Return the Hive-style path of a partition, given its values as the catalog stores them."""
        return partition_path(self.key_names, given_values(packed_values))

    def partition_location(self, packed_values: str, location: str | None) -> str:
        """Return the location of a partition, given its values and its own location as the catalog stores them.

        Args:
            location: None for the default location.
        """
        return location or self.default_partition_location(self.partition_name(packed_values))

    @cached_property
    def _key_positions(self) -> dict[str, int]:
        return {key.name: position for position, key in enumerate(self.partition_keys)}


class _FilterView(Table):
    """A table whose keys may have any comparable type."""

    @property
    def filter_word(self) -> str:
        """The term for columns that a filter may name, for messages."""
        return "column with comparable values"

    @cached_property
    def key_types(self) -> tuple[KeyType, ...]:
        from catalog.types.column_types import parse_column_type

        return tuple(parsed for key in self.partition_keys if (parsed := parse_column_type(key.type)) is not None)


@dataclass(frozen=True, slots=True)
class NewPartition:
    """A partition to add.

    Attributes:
        values: One string per partition key, in order. None is Hive's null (`__HIVE_DEFAULT_PARTITION__`). In a shorter
            sequence, the values of the last keys are missing.
        location: Folder of its files; None for the Hive-style folder below the table's location.
        row_count, file_count, size_bytes: None when unknown.
        format: The format of its files, when it differs from the table's.
    """

    values: Sequence[str | None]
    location: str | None = None
    file_count: int | None = None
    row_count: int | None = None
    size_bytes: int | None = None
    properties: Mapping[str, str] | None = None
    format: FileFormat | None = None


@dataclass(frozen=True, slots=True)
class SetAsideFile:
    """A source file that a load has set aside, because it cannot be loaded.

    Attributes:
        size_bytes, modified_at_ms: Of the file when it was read; it is tried again when they differ.
        reason: What is wrong with it, with one row as an example.
        bad_row_count: Number of its rows that cannot be loaded; None if it cannot be read at all.
        operation_id: The load; None if the journal no longer has it.
        set_aside_at_ms, table: When, and for which table; None until the catalog has recorded it.
    """

    path: str
    size_bytes: int
    modified_at_ms: int
    reason: str
    bad_row_count: int | None = None
    operation_id: str | None = None
    set_aside_at_ms: int | None = None
    table: str | None = None


class Partition(NamedTuple):
    """A partition of a table.

    Attributes:
        values: One string per partition key, in order, as given. None is null or a missing value. The id in a scheme.
        location: Folder of its files.
        format: The format of its files, when it differs from the table's.
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
        """Return the partition's name as Hive shows it, `k=v/k2=v2`; of a partition scheme, `_partition_id=3`."""
        return partition_path(table.key_names if table.scheme is None else (PARTITION_ID,), self.values)

    def as_dict(self, table: Table) -> dict[str, str]:
        """Return key name → value, with null as `__HIVE_DEFAULT_PARTITION__`."""
        return {
            name: NULL_VALUE if value is None else value
            for name, value in zip(table.key_names, self.values, strict=True)
        }


@dataclass(frozen=True)
class AddResult:
    """The result of `add_partitions`.

    Attributes:
        added: Number of new partitions.
        existing: Number of given partitions that existed before (only with `if_not_exists`).
        refused: The partitions that an index refuses (only when invalid partitions are skipped).
    """

    added: int
    existing: int
    refused: tuple[RefusedPartition, ...] = ()


@dataclass(frozen=True)
class OffendingPartition:
    """A partition that caused an index build to fail."""

    values: tuple[str | None, ...]
    location: str
    problem: str


@dataclass(frozen=True)
class PartitionIndex:
    """A named, ordered list of partition keys of one table.

    Attributes:
        failure_code: Reason of a failed build; None unless FAILED.
        failure_detail: The reason as text.
        offending: The first invalid partitions, at most 100.
        failed_at_ms: Time of the failure; None unless FAILED.
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
