"""Databases, tables, partitions and functions in the common form of Hive Metastore and Glue, without loss.

A protocol's own fields, which the other does not have, are in `extra`, by names that the front door chooses; their
values are JSON. Times are seconds since 1970 UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from catalog.model import Column
from catalog.model.identifiers import TableName


@dataclass(frozen=True)
class HiveDatabase:
    """A database as a metastore describes it.

    Attributes:
        location: Folder of tables that have no location of their own; None for the default below the warehouse.
        owner_type: `USER`, `ROLE` or `GROUP`.
        created_at: None for the time at which it is created.
    """

    name: str
    location: str | None = None
    description: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    owner: str | None = None
    owner_type: str | None = None
    created_at: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HiveSkew:
    """Values of columns that are frequent, and the folders of their rows."""

    columns: tuple[str, ...] = ()
    values: tuple[tuple[str, ...], ...] = ()
    locations: tuple[tuple[tuple[str, ...], str], ...] = ()


@dataclass(frozen=True, slots=True)
class HiveStorage:
    """How files are read and written; None and empty for missing values. Many partitions share one such object.

    Attributes:
        input_format, output_format, serde: Names of Java classes.
        columns: Of a partition, the columns of its files; None if they are those of its table. None in a table's.
        sort_columns: Name of a column → 1 for ascending, 0 for descending.
        parameters: Those of the storage descriptor; `serde_parameters` are those of the SerDe.
    """

    input_format: str | None = None
    serde: str | None = None
    serde_parameters: Mapping[str, str] = field(default_factory=dict)
    output_format: str | None = None
    serde_name: str | None = None
    columns: tuple[Column, ...] | None = None
    is_compressed: bool = False
    bucket_columns: tuple[str, ...] = ()
    bucket_count: int = 0
    sort_columns: tuple[tuple[str, int], ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    skew: HiveSkew | None = None
    is_stored_as_subdirectories: bool | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class HiveTable:
    """A table or view as a metastore describes it.

    Attributes:
        table_type: `MANAGED_TABLE`, `EXTERNAL_TABLE`, `VIRTUAL_VIEW` …; None in Glue if the client that created it set
            none.
        location: As the metastore writes it; None if it has none, or for the default of a new table.
        view_text: The statement of a view, with qualified names if the metastore has them.
        original_view_text: The statement as its author wrote it.
        retention: A number that Calve only keeps.
        created_at: None for the time at which it is created.
        id: Of a table in Calve, which no later table of the same name has; None elsewhere.
    """

    name: TableName
    table_type: str | None
    columns: tuple[Column, ...]
    partition_keys: tuple[Column, ...]
    storage: HiveStorage
    location: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    description: str | None = None
    view_text: str | None = None
    original_view_text: str | None = None
    owner: str | None = None
    owner_type: str | None = None
    retention: int = 0
    created_at: int | None = None
    accessed_at: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)
    id: int | None = field(default=None, compare=False)


class HivePartition(NamedTuple):
    """A partition as a metastore describes it.

    Attributes:
        values: One string per partition key; `__HIVE_DEFAULT_PARTITION__` for null.
        location: None for the default folder below the table's.
        created_at: None for the time at which it is added.
    """

    values: tuple[str, ...]
    storage: HiveStorage
    parameters: Mapping[str, str] = {}
    location: str | None = None
    created_at: int | None = None
    accessed_at: int = 0


@dataclass(frozen=True, kw_only=True)
class HiveStatistics:
    """The statistics of one column of a table or partition; None for what is not known.

    Attributes:
        type: The column's type, as the client spells it.
        kind: `boolean`, `long`, `double`, `string`, `binary`, `decimal`, `date` or `timestamp`.
        low, high: Whole numbers of `long`, `date` (days since 1970) and `timestamp` (seconds since 1970 UTC), numbers
            of `double`, and strings of `decimal`.
        analysed_at: None for the time at which they are stored.
    """

    column: str
    type: str
    kind: str
    nulls: int | None = None
    distinct: int | None = None
    low: int | float | str | None = None
    high: int | float | str | None = None
    maximum_length: int | None = None
    average_length: float | None = None
    trues: int | None = None
    falses: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    analysed_at: int | None = None


@dataclass(frozen=True, kw_only=True)
class HiveFunction:
    """A function that engines register in a metastore; Calve calls none.

    Attributes:
        kind: `JAVA`, as in the protocols.
        resources: Kind (`JAR`, `FILE`, `ARCHIVE`) and URI of what the function needs.
    """

    database: str
    name: str
    class_name: str | None = None
    owner: str | None = None
    owner_type: str | None = None
    kind: str | None = None
    resources: tuple[tuple[str, str], ...] = ()
    created_at: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
