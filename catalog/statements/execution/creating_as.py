"""Execution of CREATE TABLE … AS SELECT.

The rows are collected in a table `<name>__creating`, whose folder is already that of the new table, and one transaction
gives it its name: readers see no table, or the table with all rows. An error drops it with its files. What a killed
process leaves is dropped by the next statement that creates the table, or continued if it has the same operation's id.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from catalog.errors import (
    CatalogError,
    CommitOutcomeUnknownError,
    FencedError,
    InvalidTableError,
    LocationNotEmptyError,
    OperationReusedError,
    TableAlreadyExistsError,
)
from catalog.model import ICEBERG, Column, Table, TableKind
from catalog.operations.records import OperationKind, OperationState
from catalog.settings.places import require_location
from catalog.statements import model as m
from catalog.statements.context import Context, pointing_at
from catalog.statements.engine import NewOperation
from catalog.statements.execution.tables import create, find, has_scheme
from catalog.statements.results import DONE, StatementResult
from catalog.statements.terms import TableReference
from catalog.tables.own_properties import CREATED_AS
from catalog.types.column_types import hive_column_type

_SUFFIX = "__creating"
_DISCARD = "discard"


def create_table_as(context: Context, statement: m.CreateTableAs) -> StatementResult:
    """Run CREATE TABLE … AS SELECT."""
    context.make_default_database(statement.table.database)
    if statement.location is not None:
        # Before the SELECT is analysed, which starts the engine.
        with pointing_at(statement, "location"):
            require_location(statement.location)
    with context.operation() as operation:
        if not _is_done(context, operation, statement) and find(context, statement.table) is not None:
            if statement.if_not_exists:
                return DONE
            name = context.name(statement.table)
            raise TableAlreadyExistsError(f"table {name} exists; choose another name, or drop it first")
        selected = context.engine_for(statement, statement.query).columns_of(statement.query, context.database)
        rows = _create(context, operation, _defined(statement, selected), selected)
    return StatementResult(
        ("rows",), [[rows]], text=f"{rows:,} row(s) in the new table {context.name(statement.table)}"
    )


def _is_done(context: Context, operation: NewOperation, statement: m.CreateTableAs) -> bool:
    """Return whether an earlier try of the statement has created its table."""
    known = context.catalog.operations.find(operation.id)
    return known is not None and known.is_committed and known.table == context.name(statement.table)


def _defined(statement: m.CreateTableAs, selected: Sequence[Column]) -> m.CreateTableAs:
    """Return the statement with the columns and the partition keys of the table.

    Raises:
        InvalidTableError: PARTITIONED BY names a column that the SELECT does not have.
    """
    if not (has_scheme(statement) or (statement.format or "").lower() == ICEBERG):
        selected = [replace(column, type=hive_column_type(column.type)) for column in selected]
    known = {column.name: column for column in selected}
    typed = {key.name: key for key in statement.partition_keys}
    names = list(typed) or statement.key_names
    for name in names:
        if name not in known:
            error = InvalidTableError(
                f"partition key {name} is not among the columns of the SELECT ({', '.join(known)}); select it, or give "
                "a column this name with AS"
            )
            error.position = statement.places.get("partition_keys", statement.places.get("key_names"))
            raise error
    columns = tuple(column for column in selected if column.name not in names)
    return replace(statement, columns=columns, partition_keys=tuple(typed.get(name, known[name]) for name in names))


def _create(context: Context, operation: NewOperation, statement: m.CreateTableAs, selected: Sequence[Column]) -> int:
    """Create the table with its rows; return their number."""
    catalog, name = context.catalog, context.name(statement.table)
    collecting = TableReference(statement.table.database, f"{statement.table.name}{_SUFFIX}")
    journaled = catalog.operations.find(operation.id)
    try:
        with catalog.operations.failing(operation.id):
            if journaled is not None and journaled.is_committed:
                table = catalog.get_table(journaled.table)
            else:
                table = _begin(context, operation, replace(statement, table=collecting))
            columns = [column.name for column in selected]
            report = context.engine.insert_query(operation, table, statement.query, context.database, columns=columns)
            if table.full_name != name:
                catalog.alter_table(table.full_name, rename_to=statement.table.name)
    except (FencedError, OperationReusedError, CommitOutcomeUnknownError):
        # The table is another attempt's or request's, or has all rows and lacks only its name.
        raise
    except BaseException:
        # What cannot be dropped now is dropped by the next statement.
        with suppress(CatalogError):
            if catalog.operations.find(operation.id) is not None:
                _discard(context, operation, collecting)
        raise
    return int(report["rows"])


def _begin(context: Context, operation: NewOperation, statement: m.CreateTableAs) -> Table:
    """Reserve the name of the table in which rows are collected, and create it; one that was left is dropped.

    Raises:
        OperationConflictError: Another operation creates the table.
        TableAlreadyExistsError: A table of somebody else has that name.
        LocationNotEmptyError: Its folder has files.
    """
    _discard(context, operation, statement.table)
    kind = OperationKind.LOAD_ROWS if has_scheme(statement) else OperationKind.APPEND_ROWS
    name = context.name(statement.table)
    context.catalog.operations.begin(operation.id, kind, name, is_exclusive=True, requested_by=operation.requested_by)
    with pointing_at(statement, "query"):
        create(context, statement, folder_name=statement.table.name.removesuffix(_SUFFIX))
    table = context.catalog.get_table(name)
    is_on_store = statement.location is not None and "://" in table.location
    if table.kind is TableKind.EXTERNAL and not is_on_store:
        raise LocationNotEmptyError(
            f"{table.location} has files, with which the rows of the new table would be mixed; delete them, or name "
            "another folder with LOCATION"
        )
    return table


def _discard(context: Context, operation: NewOperation, table: TableReference) -> None:
    """Drop the table in which rows were collected, if it is left, with its files.

    Raises:
        OperationConflictError: Another operation creates the table.
        TableAlreadyExistsError: A table of somebody else has the name.
    """
    left = find(context, table)
    if left is None:
        return
    if CREATED_AS not in left.properties:
        raise TableAlreadyExistsError(
            f"table {left.full_name} exists, and CREATE TABLE … AS SELECT needs its name for a time; rename it, or "
            "choose another name for the new table"
        )
    operations, own = context.catalog.operations, f"{operation.id}/discard"
    # An earlier try of the statement may have been killed, and would hold the table.
    if operations.find(operation.id) is not None:
        operations.fail(operation.id, "DISCARDED", "its rows are selected again")
    operations.begin(own, OperationKind.APPEND_ROWS, left.full_name, is_exclusive=True)
    with operations.attempt(own, _DISCARD) as attempt:
        context.catalog.loading.discard_staging(left, (own, _DISCARD, attempt))
        with context.catalog.storage.write() as connection:
            operations.finish_job(own, _DISCARD, attempt, {}, connection=connection)
            operations.advance(connection, own, OperationState.CLEANED)
    context.catalog.drop_table(left.full_name, purge=True)
