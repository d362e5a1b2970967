"""Databases, tables and their columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from catalog.model.identifiers import TableName
from catalog.model.partition_names import given_values, partition_path

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
    OTHER = "other"
    """Any other format of a metastore's table."""

    @property
    def is_readable(self) -> bool:
        """Return whether files of this format can be read and written."""
        return self in READABLE_FORMATS


ICEBERG = "iceberg"
"""The format of tables of partition values that are stored as Iceberg; their data files are Parquet."""

GRACE = timedelta(hours=24)
"""The time that replaced files are kept by default, which limits how long readers may run."""

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
        details: As in `Table`.
    """

    name: str
    location: str
    description: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, Any] | None = field(default=None, compare=False)


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
        created_at_ms: The time of its creation, in milliseconds since 1970 UTC.
        details: What a metastore's protocol says of it besides (`catalog.doors.entries`); None for tables that came
            through no such protocol.
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
    created_at_ms: int = field(default=0, compare=False)
    details: Mapping[str, Any] | None = field(default=None, compare=False)

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
    def needs_packages(self) -> bool:
        """Return whether Spark reads the files with packages besides its own jars: that of Iceberg, or of Avro."""
        return self.is_iceberg or self.engine_location is not None or self.format is FileFormat.AVRO

    @property
    def is_view(self) -> bool:
        """Return whether this is a view."""
        return self.kind is TableKind.VIEW

    @property
    def is_iceberg(self) -> bool:
        """Return whether this is an Iceberg table."""
        return self.table_type is TableType.ICEBERG

    @property
    def is_only_iceberg(self) -> bool:
        """Return whether an engine, and not Calve, made this Iceberg table: the catalog has only its pointer."""
        return self.is_iceberg and self.id == 0

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
        from catalog.types.key_types import recorded_key_type

        return tuple(recorded_key_type(key.type) for key in self.partition_keys)

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
