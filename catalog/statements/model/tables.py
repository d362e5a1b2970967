"""Statements about tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from catalog.model import Buckets, Column, IndexDefinition
from catalog.statements.model.base import Statement, TableStatement
from catalog.statements.terms import TableReference


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
