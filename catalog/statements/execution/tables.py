"""Execution of statements that create, change and drop tables and views."""

from __future__ import annotations

from catalog.errors import (
    CatalogError,
    InvalidSchemeError,
    InvalidTableError,
    NotATableError,
    NotFoundError,
    PropertyNotFoundError,
    TableAlreadyExistsError,
)
from catalog.files.folders import make_folders
from catalog.model import ICEBERG, Column, FileFormat, Table, TableKind
from catalog.statements import model as m
from catalog.statements.context import Context, pointing_at
from catalog.statements.results import DONE, StatementResult
from catalog.statements.terms import TableReference
from catalog.tables.normalising import parse_format
from catalog.tables.own_files import PurgedFiles
from catalog.tables.schemes import SCHEME_PROPERTIES, scheme_from_properties

_STORAGE_HANDLERS = ("carbondata", "org.apache.carbondata.format")
_DESCRIPTION = "comment"
"""The property with which Hive and Spark set a table's description."""


def create_table(context: Context, statement: m.CreateTable) -> StatementResult:
    """Run CREATE TABLE."""
    context.make_default_database(statement.table.database)
    try:
        create(context, statement)
    except TableAlreadyExistsError:
        if not statement.if_not_exists:
            raise
    return DONE


def create(context: Context, statement: m.CreateTable, *, folder_name: str | None = None) -> None:
    """Create a table and its folder, without which engines cannot read it.

    Args:
        folder_name: The name of its folder in that of the database; by default the table's.

    Raises:
        TableAlreadyExistsError: It exists.
        StorageError: The folder cannot be created.
    """
    if statement.stored_by is not None:
        table = _create_table_of_scheme(context, statement, folder_name)
    else:
        table = _create_table_of_values(context, statement, folder_name)
    try:
        make_folders([table.location])
    except CatalogError:
        context.catalog.drop_table(table.full_name, unused_id=table.id)
        raise


def _create_table_of_values(context: Context, statement: m.CreateTable, folder_name: str | None) -> Table:
    name = context.name(statement.table)
    names = map(str.upper, statement.properties)
    if given := sorted(name for name in names if name in SCHEME_PROPERTIES[:-1]):
        raise InvalidSchemeError(
            f"{', '.join(given)} is only for tables with a partition scheme; write STORED BY 'carbondata' instead of "
            "STORED AS, which creates one partition for each value"
        )
    table_format = (statement.format or FileFormat.PARQUET).lower()
    if table_format != ICEBERG:
        with pointing_at(statement, "format"):
            table_format = parse_format(table_format)
    if statement.delimiters and table_format != FileFormat.TEXTFILE:
        raise InvalidTableError(f"table {name}: only the format TEXTFILE supports delimiters; remove ROW FORMAT")
    return context.catalog.create_table(
        name,
        columns=statement.columns,
        partition_keys=statement.partition_keys,
        format=table_format,
        location=statement.location,
        properties={**statement.delimiters, **statement.properties},
        indexes=statement.indexes,
        description=statement.comment,
        is_external=statement.is_external,
        buckets=statement.buckets,
        folder_name=folder_name,
    )


def has_scheme(statement: m.CreateTable) -> bool:
    """Return whether a table will have a partition scheme."""
    has_properties = any(name.upper() in SCHEME_PROPERTIES for name in statement.properties)
    return statement.stored_by is not None and bool(statement.partition_keys or has_properties)


def _create_table_of_scheme(context: Context, statement: m.CreateTable, folder_name: str | None) -> Table:
    name = context.name(statement.table)
    with pointing_at(statement, "stored_by"):
        _check_handler(name, statement.stored_by or "")
    if statement.delimiters:
        raise InvalidTableError(f"table {name}: its files are Parquet, which has no delimiters; remove ROW FORMAT")
    scheme, columns = None, statement.columns
    if has_scheme(statement):
        column = _partition_column(name, statement)
        scheme, columns = scheme_from_properties(column, statement.properties), (*columns, column)
    return context.catalog.create_table(
        name,
        columns=columns,
        location=statement.location,
        properties={key: text for key, text in statement.properties.items() if key.upper() not in SCHEME_PROPERTIES},
        indexes=statement.indexes,
        description=statement.comment,
        is_external=statement.is_external,
        buckets=statement.buckets,
        scheme=scheme,
        folder_name=folder_name,
    )


def _check_handler(name: str, stored_by: str) -> None:
    if stored_by.lower() not in _STORAGE_HANDLERS:
        raise InvalidTableError(
            f"table {name}: STORED BY {stored_by!r} is not supported; write STORED BY {_STORAGE_HANDLERS[0]!r} for a "
            "partition scheme, or STORED AS for a file format"
        )


def _partition_column(name: str, statement: m.CreateTable) -> Column:
    if len(statement.partition_keys) != 1:
        raise InvalidSchemeError(
            f"table {name} is STORED BY {statement.stored_by!r} and has {len(statement.partition_keys)} partition "
            "columns, but a partition scheme needs exactly one: PARTITIONED BY (column type)"
        )
    return statement.partition_keys[0]


def create_view(context: Context, statement: m.CreateView) -> StatementResult:
    """Run CREATE VIEW."""
    context.make_default_database(statement.table.database)
    name = context.name(statement.table)
    if statement.or_replace and find(context, statement.table) is not None:
        _drop(context, statement, must_be_view=True)
    context.catalog.create_view(
        name,
        statement.query,
        columns=[Column(column, _UNKNOWN, comment) for column, comment in statement.columns],
        description=statement.comment,
        properties=statement.properties,
        if_not_exists=statement.if_not_exists,
    )
    return DONE


_UNKNOWN = "unknown"
"""The type of a view's column, which only Spark can determine."""


def drop_table(context: Context, statement: m.DropTable) -> StatementResult:
    """Run DROP TABLE."""
    table = find(context, statement.table)
    if not statement.if_exists or table is not None:
        purged = _drop(context, statement, must_be_view=False, purge=statement.purge)
        if statement.purge and table is not None:
            return _purge_result(table, purged)
    return DONE


def _purge_result(table: Table, purged: PurgedFiles) -> StatementResult:
    if table.is_only_iceberg:
        left = f". Left {purged.count:,} file(s) outside of its folder" if purged.count else ""
        text = f"Dropped {table.full_name} and deleted {purged.deleted:,} file(s) that its metadata name{left}"
    elif table.kind is TableKind.EXTERNAL:
        text = f"Dropped {table.full_name}. Its files stay, because it is an external table: {table.location}"
    else:
        left = f". Left {purged}" if purged.count else ""
        text = f"Dropped {table.full_name} and deleted {purged.deletion}{left}"
    columns = ("files_deleted", "bytes_deleted", "files_left")
    return StatementResult(columns, [[purged.deleted, purged.deleted_bytes, purged.count]], text=text)


def drop_view(context: Context, statement: m.DropView) -> StatementResult:
    """Run DROP VIEW."""
    if not statement.if_exists or find(context, statement.table) is not None:
        _drop(context, statement, must_be_view=True)
    return DONE


def _drop(context: Context, statement: m.TableStatement, *, must_be_view: bool, purge: bool = False) -> PurgedFiles:
    table = context.catalog.get_table(context.name(statement.table))
    if table.is_view and not must_be_view:
        raise NotATableError(f"{table.full_name} is a view; use DROP VIEW")
    if must_be_view and not table.is_view:
        raise InvalidTableError(f"{table.full_name} is a table, not a view; use DROP TABLE")
    return context.catalog.drop_table(table.full_name, purge=purge, confirmation=context.confirmation)


def find(context: Context, table: TableReference) -> Table | None:
    """Return a table; None if it does not exist."""
    try:
        return context.catalog.get_table(context.name(table))
    except NotFoundError:
        return None


def set_properties(context: Context, statement: m.SetProperties) -> StatementResult:
    """Run ALTER TABLE … SET TBLPROPERTIES."""
    table = context.catalog.get_table(context.name(statement.table))
    _refuse_scheme_properties(table, statement.properties)
    changes: dict[str, str | None] = dict(statement.properties)
    context.catalog.alter_table(table.full_name, description=changes.pop(_DESCRIPTION, None), properties=changes)
    return DONE


def unset_properties(context: Context, statement: m.UnsetProperties) -> StatementResult:
    """Run ALTER TABLE … UNSET TBLPROPERTIES."""
    table = context.catalog.get_table(context.name(statement.table))
    _refuse_scheme_properties(table, statement.names)
    known = {*table.properties, *([_DESCRIPTION] if table.description else [])}
    if not statement.if_exists and (missing := [name for name in statement.names if name not in known]):
        raise PropertyNotFoundError(
            f"table {table.full_name} has no property {missing[0]!r}; its properties are "
            f"{', '.join(sorted(known)) or 'none'}"
        )
    context.catalog.alter_table(
        table.full_name,
        description="" if _DESCRIPTION in statement.names else None,
        properties={name: None for name in statement.names if name != _DESCRIPTION},
    )
    return DONE


def _refuse_scheme_properties(table: Table, names: object) -> None:
    assert isinstance(names, dict | tuple)
    if table.scheme is not None and (given := [name for name in names if name.upper() in SCHEME_PROPERTIES]):
        raise InvalidSchemeError(
            f"property {given[0]} of table {table.full_name} cannot be changed; to change its partitions, use ALTER "
            "TABLE … ADD, SPLIT, DROP or MERGE PARTITION, or SET PARTITION_NUM"
        )


def add_columns(context: Context, statement: m.AddColumns) -> StatementResult:
    """Run ALTER TABLE … ADD COLUMNS."""
    context.catalog.alter_table(context.name(statement.table), add_columns=statement.columns)
    return DONE


def change_column(context: Context, statement: m.ChangeColumn) -> StatementResult:
    """Run ALTER TABLE … CHANGE COLUMN; without COMMENT, the comment stays."""
    table = context.catalog.get_table(context.name(statement.table))
    known = {column.name: column for column in (*table.columns, *table.partition_keys)}
    before = known.get(statement.name)
    old_type, old_comment = (statement.type or _UNKNOWN, None) if before is None else (before.type, before.comment)
    column = Column(statement.new_name, statement.type or old_type, statement.comment or old_comment)
    context.catalog.alter_table(table.full_name, change_columns={statement.name: column})
    return DONE


def drop_columns(context: Context, statement: m.DropColumns) -> StatementResult:
    """Run ALTER TABLE … DROP COLUMNS."""
    context.catalog.alter_table(context.name(statement.table), drop_columns=statement.names)
    return DONE


def rename_table(context: Context, statement: m.RenameTable) -> StatementResult:
    """Run ALTER TABLE … RENAME TO."""
    table = context.catalog.get_table(context.name(statement.table))
    new = statement.new_table
    if new.database not in (None, table.database):
        raise InvalidTableError(
            f"table {table.full_name} cannot move to another database; name it {table.database}.{new.name}"
        )
    context.catalog.alter_table(table.full_name, rename_to=new.name)
    return DONE


def set_location(context: Context, statement: m.SetLocation) -> StatementResult:
    """Run ALTER TABLE … SET LOCATION."""
    context.catalog.alter_table(context.name(statement.table), location=statement.location)
    return DONE
