"""Statements as values, independent of their notation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from catalog.model import Buckets, Column, IndexDefinition
from catalog.statements.merges import MergeAction, MergeCase
from catalog.statements.terms import KeyCondition, Literal, PartitionValues, TableReference


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A statement.

    Attributes:
        places: Name of a field, or of a property in upper case → its position in the statement's text.
    """

    places: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class TableStatement(Statement):
    """A statement about one table."""

    table: TableReference


# --- databases ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CreateDatabase(Statement):
    """CREATE DATABASE."""

    name: str
    if_not_exists: bool = False
    comment: str | None = None
    location: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DropDatabase(Statement):
    """DROP DATABASE; CASCADE drops its tables, too."""

    name: str
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True, kw_only=True)
class UseDatabase(Statement):
    """USE: sets the session's database for table names without one."""

    name: str


@dataclass(frozen=True, kw_only=True)
class ShowDatabases(Statement):
    """SHOW DATABASES, all or those that match a pattern (`catalog.tables.patterns.hive_pattern`)."""

    pattern: str | None = None


@dataclass(frozen=True, kw_only=True)
class DescribeDatabase(Statement):
    """DESCRIBE DATABASE."""

    name: str


# --- tables ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ShowTables(Statement):
    """SHOW TABLES, all or those that match a pattern; without a database, the session's database applies."""

    database: str | None = None
    pattern: str | None = None


@dataclass(frozen=True, kw_only=True)
class ShowColumns(TableStatement):
    """SHOW COLUMNS."""


@dataclass(frozen=True, kw_only=True)
class DescribeTable(TableStatement):
    """DESCRIBE."""

    is_formatted: bool = False


@dataclass(frozen=True, kw_only=True)
class ShowCreateTable(TableStatement):
    """SHOW CREATE TABLE."""


@dataclass(frozen=True, kw_only=True)
class CreateTable(TableStatement):
    """CREATE TABLE.

    Attributes:
        stored_by: The name in STORED BY, as it was written; None without this clause.
        format: The name in STORED AS in upper case, or the format of a Hive class; None without either.
        delimiters: The settings of ROW FORMAT DELIMITED, by the names of Hive's properties.
    """

    columns: tuple[Column, ...] = ()
    partition_keys: tuple[Column, ...] = ()
    indexes: tuple[IndexDefinition, ...] = ()
    if_not_exists: bool = False
    is_external: bool = False
    comment: str | None = None
    location: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    buckets: Buckets | None = None
    stored_by: str | None = None
    format: str | None = None
    delimiters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CreateTableAs(CreateTable):
    """CREATE TABLE … AS SELECT.

    Attributes:
        query: The SELECT as it was written, which gives the columns.
        key_names: The partition keys, if they are named without types.
    """

    query: str
    key_names: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CreateView(TableStatement):
    """CREATE VIEW.

    Attributes:
        columns: (name, comment) pairs; empty to use the names of the query.
        query: The SELECT as it was written.
    """

    query: str
    columns: tuple[tuple[str, str | None], ...] = ()
    if_not_exists: bool = False
    or_replace: bool = False
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DropTable(TableStatement):
    """DROP TABLE; PURGE deletes the files too."""

    if_exists: bool = False
    purge: bool = False


@dataclass(frozen=True, kw_only=True)
class DropView(TableStatement):
    """DROP VIEW."""

    if_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class SetProperties(TableStatement):
    """ALTER TABLE … SET TBLPROPERTIES."""

    properties: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class UnsetProperties(TableStatement):
    """ALTER TABLE … UNSET TBLPROPERTIES."""

    names: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class AddColumns(TableStatement):
    """ALTER TABLE … ADD COLUMNS."""

    columns: tuple[Column, ...]


@dataclass(frozen=True, kw_only=True)
class ChangeColumn(TableStatement):
    """ALTER TABLE … CHANGE COLUMN, and RENAME COLUMN, which has no type."""

    name: str
    new_name: str
    type: str | None = None
    comment: str | None = None


@dataclass(frozen=True, kw_only=True)
class DropColumns(TableStatement):
    """ALTER TABLE … DROP COLUMNS."""

    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RenameTable(TableStatement):
    """ALTER TABLE … RENAME TO."""

    new_table: TableReference


@dataclass(frozen=True, kw_only=True)
class SetLocation(TableStatement):
    """ALTER TABLE … SET LOCATION."""

    location: str


# --- partitions of schemes ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class AddSchemePartitions(TableStatement):
    """ALTER TABLE … ADD PARTITION ('…', …): bounds, values or groups."""

    items: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SplitPartition(TableStatement):
    """ALTER TABLE … SPLIT PARTITION (id) INTO ('…', …)."""

    partition_id: int
    items: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class DropSchemePartitions(TableStatement):
    """ALTER TABLE … DROP PARTITION (id, …) [WITH DATA]."""

    partition_ids: tuple[int, ...]
    with_data: bool = False


@dataclass(frozen=True, kw_only=True)
class MergePartitions(TableStatement):
    """ALTER TABLE … MERGE PARTITION (id, …)."""

    partition_ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class SetPartitionNumber(TableStatement):
    """ALTER TABLE … SET PARTITION_NUM n."""

    count: int


@dataclass(frozen=True, kw_only=True)
class PlaceFiles(TableStatement):
    """CALL calve.system.place('…')."""


# --- partitions of values -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartitionToAdd:
    """A partition of ADD PARTITION."""

    values: PartitionValues
    location: str | None = None


@dataclass(frozen=True, kw_only=True)
class AddValuePartitions(TableStatement):
    """ALTER TABLE … ADD [IF NOT EXISTS] PARTITION (k='v', …) [LOCATION '…'] …."""

    partitions: tuple[PartitionToAdd, ...]
    if_not_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class DropValuePartitions(TableStatement):
    """ALTER TABLE … DROP [IF EXISTS] PARTITION (k='v', …), …; each with the conditions on its partitions."""

    partitions: tuple[tuple[KeyCondition, ...], ...]
    if_exists: bool = False
    purge: bool = False


@dataclass(frozen=True, kw_only=True)
class PartitionStatement(TableStatement):
    """A statement about one partition."""

    values: PartitionValues


@dataclass(frozen=True, kw_only=True)
class SetPartitionLocation(PartitionStatement):
    """ALTER TABLE … PARTITION (…) SET LOCATION."""

    location: str


@dataclass(frozen=True, kw_only=True)
class SetPartitionFormat(PartitionStatement):
    """ALTER TABLE … PARTITION (…) SET FILEFORMAT."""

    format: str


@dataclass(frozen=True, kw_only=True)
class SetPartitionProperties(PartitionStatement):
    """ALTER TABLE … PARTITION (…) SET PROPERTIES."""

    properties: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class RenamePartition(PartitionStatement):
    """ALTER TABLE … PARTITION (…) RENAME TO PARTITION (…)."""

    new_values: PartitionValues


@dataclass(frozen=True, kw_only=True)
class ShowPartitions(TableStatement):
    """SHOW PARTITIONS.

    Attributes:
        values: Values of some keys, in Hive's notation; empty for all partitions.
        where: The filter as it was written; None for all.
    """

    values: PartitionValues = field(default_factory=dict)
    where: str | None = None


@dataclass(frozen=True, kw_only=True)
class ExplainPartitions(TableStatement):
    """EXPLAIN PARTITIONS."""

    where: str | None = None


@dataclass(frozen=True, kw_only=True)
class RepairTable(TableStatement):
    """MSCK REPAIR TABLE.

    Attributes:
        mode: `add` partitions whose folders exist, `drop` those whose folders do not exist, or `sync` for both.
    """

    mode: str = "add"


# --- partition indexes ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CreateIndex(TableStatement):
    """CREATE PARTITION INDEX, or Hive's CREATE INDEX, whose columns may be others than partition keys."""

    index: str
    keys: tuple[str, ...]
    is_of_hive: bool = False


@dataclass(frozen=True, kw_only=True)
class DropIndex(TableStatement):
    """DROP PARTITION INDEX."""

    index: str
    if_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class ShowIndexes(TableStatement):
    """SHOW PARTITION INDEXES."""


# --- between Hive and Iceberg -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class MigrationStatement(TableStatement):
    """A statement that migrates the files of a Hive table to Iceberg.

    Attributes:
        options: Fields of `catalog.migration.requests.MigrationRequest`, as they were written.
        verify: Compare both sides before the flip.
        verified_partitions: The number of partitions to compare before the flip; None for all.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    verify: bool = True
    verified_partitions: int | None = None


@dataclass(frozen=True, kw_only=True)
class MigrateTable(MigrationStatement):
    """CALL iceberg.system.migrate."""


@dataclass(frozen=True, kw_only=True)
class SnapshotTable(MigrationStatement):
    """CALL iceberg.system.snapshot.

    Attributes:
        target: The new Iceberg table; by default in the Hive table's database.
    """

    target: TableReference


@dataclass(frozen=True, kw_only=True)
class AddFilesFromTable(MigrationStatement):
    """ALTER TABLE … EXECUTE add_files_from_table, on the Iceberg table.

    Attributes:
        source: The Hive table.
        partitions: Values of some of its keys; None for all partitions.
    """

    source: TableReference
    partitions: PartitionValues | None = None


@dataclass(frozen=True, kw_only=True)
class RevertTable(TableStatement):
    """CALL iceberg.system.revert.

    Attributes:
        lose_data: Revert even if Iceberg commits have written data since.
    """

    lose_data: bool = False


@dataclass(frozen=True, kw_only=True)
class RollBackToSnapshot(TableStatement):
    """CALL calve.system.rollback_to_snapshot."""

    snapshot_id: int


@dataclass(frozen=True, kw_only=True)
class RollBackToTimestamp(TableStatement):
    """CALL calve.system.rollback_to_timestamp.

    Attributes:
        at: With a time zone.
    """

    at: datetime


# --- rows -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ForgetRows(TableStatement):
    """CALL calve.system.forget.

    Attributes:
        where: The condition of the rows.
        at_once: Delete the files that had the rows now, although running readers may need them.
    """

    where: str
    at_once: bool = False


@dataclass(frozen=True, kw_only=True)
class InsertStatement(TableStatement):
    """An INSERT INTO or INSERT OVERWRITE.

    Attributes:
        columns: The columns that get values, in order; empty for all.
        values: Constant values of partition keys.
        overwrite: Replace the partitions with these values; without values, those that the rows belong to.
    """

    overwrite: bool = False
    columns: tuple[str, ...] = ()
    values: PartitionValues = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class InsertValues(InsertStatement):
    """INSERT INTO … VALUES."""

    rows: Sequence[tuple[Literal, ...]]


@dataclass(frozen=True, kw_only=True)
class InsertQuery(InsertStatement):
    """INSERT INTO … SELECT."""

    query: str


@dataclass(frozen=True, kw_only=True)
class DeleteRows(TableStatement):
    """DELETE FROM.

    Attributes:
        where: The condition as it was written; None for all rows.
    """

    where: str | None = None


@dataclass(frozen=True, kw_only=True)
class UpdateRows(TableStatement):
    """UPDATE.

    Attributes:
        assignments: Column → expression of the new value, as it was written.
        where: The condition as it was written; None for all rows.
    """

    assignments: Mapping[str, str]
    where: str | None = None


@dataclass(frozen=True)
class MergeClause:
    """A WHEN clause of MERGE.

    Attributes:
        condition: After AND; None without it.
        values: Column → expression of its value; None for `*`, the columns of the same names. A list of expressions
            has one for each column, in their order. Empty for DELETE.
    """

    case: MergeCase
    action: MergeAction
    condition: str | None = None
    values: Mapping[str, str] | Sequence[str] | None = ()


@dataclass(frozen=True, kw_only=True)
class MergeRows(TableStatement):
    """MERGE INTO.

    Attributes:
        alias: The name of the target in expressions.
        source: A table or a query in parentheses, as it was written.
        source_alias: The name of the source in expressions.
        condition: The condition after ON.
        clauses: The first whose condition is met applies to a row.
    """

    alias: str
    source: str
    source_alias: str
    condition: str
    clauses: Sequence[MergeClause]


@dataclass(frozen=True, kw_only=True)
class TruncateTable(TableStatement):
    """TRUNCATE TABLE.

    Attributes:
        values: Values of some keys; empty for all partitions.
    """

    values: PartitionValues = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CompactTable(TableStatement):
    """ALTER TABLE … [PARTITION (…)] COMPACT.

    Attributes:
        values: Values of some keys; empty for all partitions.
    """

    values: PartitionValues = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LoadData(TableStatement):
    """LOAD DATA INPATH.

    Attributes:
        options: Options, with names in upper case.
        overwrite: Replace the partitions that the rows belong to.
    """

    path: str
    overwrite: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Select(Statement):
    """A SELECT, as it was written."""

    query: str


@dataclass(frozen=True, kw_only=True)
class ExplainSelect(Statement):
    """EXPLAIN SELECT; the SELECT as it was written."""

    query: str
