"""Execution of statements that read or write rows, with the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from catalog.errors import (
    ExpressionError,
    InvalidPartitionSpecError,
    InvalidTableError,
    InvalidValueError,
    UnsupportedChangeError,
)
from catalog.expressions import parse_expression
from catalog.model import Column, Table
from catalog.partitions.specs import PartitionSpec, spec_values
from catalog.statements import model as m
from catalog.statements.cells import CellError, cell_text
from catalog.statements.context import Context
from catalog.statements.results import StatementResult
from catalog.statements.terms import Literal
from catalog.tables.checks import refuse_iceberg, refuse_view, require_readable_format


def select(context: Context, statement: m.Select) -> StatementResult:
    """Run a SELECT."""
    return context.engine.select(statement.query, context.database)


def explain_select(context: Context, statement: m.ExplainSelect) -> StatementResult:
    """Run EXPLAIN SELECT."""
    return context.engine.explain(statement.query, context.database)


def insert_values(context: Context, statement: m.InsertValues) -> StatementResult:
    """Run INSERT INTO or INSERT OVERWRITE … VALUES; check all rows before the engine starts."""
    table = _writable(context, statement)
    rows = _rows(context.text, table, statement)
    with context.operation() as operation:
        return _added(context.engine.insert_values(operation, table, rows, overwritten=_overwritten(table, statement)))


def insert_query(context: Context, statement: m.InsertQuery) -> StatementResult:
    """Run INSERT INTO or INSERT OVERWRITE … SELECT."""
    table = _writable(context, statement)
    _given_columns(table, statement)
    with context.operation() as operation:
        report = context.engine.insert_query(
            operation,
            table,
            statement.query,
            context.database,
            columns=statement.columns,
            values=statement.values,
            overwritten=_overwritten(table, statement),
        )
    return _added(report)


def _overwritten(table: Table, statement: m.InsertStatement) -> Mapping[str, str | None] | None:
    """Return the values of the partitions that an INSERT replaces, empty for those of its rows; None to add rows."""
    if not statement.overwrite:
        return None
    _refuse_schemes(table, "INSERT OVERWRITE")
    return statement.values


def delete_rows(context: Context, statement: m.DeleteRows) -> StatementResult:
    """Run DELETE: by the catalog alone if the condition is on partition keys, and otherwise with the engine."""
    table = _writable(context, statement)
    _refuse_schemes(table, "DELETE")
    if _is_on_keys(table, statement.where):
        return _delete_partitions(context, table, statement.where)
    assert statement.where is not None
    with context.operation() as operation:
        return _changed(context.engine.delete_rows(operation, table, statement.where))


def update_rows(context: Context, statement: m.UpdateRows) -> StatementResult:
    """Run UPDATE."""
    table = _writable(context, statement)
    _refuse_schemes(table, "UPDATE")
    with context.operation() as operation:
        report = context.engine.update_rows(operation, table, statement.assignments, statement.where or "true")
    return _changed(report)


def truncate_table(context: Context, statement: m.TruncateTable) -> StatementResult:
    """Run TRUNCATE TABLE, without the engine."""
    table = _writable(context, statement)
    _refuse_schemes(table, "TRUNCATE")
    return _delete_partitions(context, table, spec=statement.values)


def compact_table(context: Context, statement: m.CompactTable) -> StatementResult:
    """Run ALTER TABLE … COMPACT."""
    table = _writable(context, statement)
    _refuse_schemes(table, "COMPACT")
    values = statement.values
    partitions = list(
        context.catalog.partitions_of(table.full_name, values)
        if values
        else context.catalog.get_partitions(table.full_name)
    )
    many = [partition for partition in partitions if partition.file_count is None or partition.file_count > 1]
    if not many:
        text = f"{len(partitions):,} partition(s) have one file each; nothing to compact"
        return StatementResult(("partitions", "files_before", "files"), [[0, 0, 0]], text=text)
    with context.operation() as operation:
        report = context.engine.compact(operation, table, many)
    count, before, after = report["partitions_replaced"], report["files_before"], report["files"]
    text = f"{before:,} file(s) of {count:,} partition(s) became {after:,}"
    return StatementResult(("partitions", "files_before", "files"), [[count, before, after]], text=text)


def _is_on_keys(table: Table, where: str | None) -> bool:
    """Return whether a condition is one of the catalog's, on partition keys alone."""
    try:
        parse_expression(where, table)
    except ExpressionError:
        return False
    return True


def _delete_partitions(
    context: Context, table: Table, where: str | None = None, *, spec: PartitionSpec | None = None
) -> StatementResult:
    with context.operation() as operation:
        count = context.catalog.delete_partitions(
            operation.id, table.full_name, where, spec=spec, requested_by=operation.requested_by
        )
    return StatementResult(("partitions_removed",), [[count]], text=f"{count:,} partition(s) removed with their rows")


def _changed(report: Mapping[str, Any]) -> StatementResult:
    replaced, removed = report["partitions_replaced"], report["partitions_removed"]
    text = f"{replaced + removed:,} partition(s) changed; {removed:,} of them have no rows left and were removed"
    return StatementResult(("partitions_replaced", "partitions_removed"), [[replaced, removed]], text=text)


def _refuse_schemes(table: Table, statement: str) -> None:
    if table.scheme is not None:
        raise UnsupportedChangeError(
            f"{statement} is not supported for tables with a partition scheme, and {table.full_name} has one; other "
            "engines can change its rows through Iceberg's catalog, or drop partitions WITH DATA"
        )
    if not table.partition_keys:
        raise UnsupportedChangeError(
            f"{statement} replaces partitions, and table {table.full_name} has no partition keys; create a table "
            "that has, or write the rows to a new table"
        )


def load_data(context: Context, statement: m.LoadData) -> StatementResult:
    """Run LOAD DATA INPATH."""
    table = _writable(context, statement)
    if statement.overwrite:
        _refuse_schemes(table, "OVERWRITE")
    overwritten: Mapping[str, str | None] | None = {} if statement.overwrite else None
    with context.operation() as operation:
        report = context.engine.load_data(operation, table, statement.path, statement.options, overwritten=overwritten)
    return _added(report)


def _writable(context: Context, statement: m.TableStatement) -> Table:
    table = context.catalog.get_table(context.name(statement.table))
    refuse_view(table, "has no rows of its own to add to")
    refuse_iceberg(table)
    require_readable_format(table)
    return table


def _added(report: Mapping[str, Any]) -> StatementResult:
    rows, warning = report["rows"], report.get("warning")
    text = f"{rows:,} row(s) added"
    if warning is None:
        return StatementResult(("rows",), [[rows]], text=text)
    return StatementResult(("rows", "warning"), [[rows, warning]], text=f"{text}\nwarning: {warning}")


def _given_columns(table: Table, statement: m.InsertStatement) -> list[Column]:
    """Return the columns that get values from an INSERT, in its order.

    Raises:
        InvalidPartitionSpecError: PARTITION contains a name that is not a partition key.
        InvalidTableError: A column does not exist, is named twice, or has its value in PARTITION.
    """
    if statement.values and table.scheme is not None:
        raise InvalidPartitionSpecError(
            f"table {table.full_name} has no partition keys; give values for its partition column "
            f"{table.scheme.column} like for other columns"
        )
    fixed = {table.key_names[position] for position in spec_values(table, statement.values)}
    known = {column.name: column for column in (*table.columns, *table.partition_keys)}
    if not statement.columns:
        return [column for name, column in known.items() if name not in fixed]
    for number, name in enumerate(statement.columns):
        if name not in known:
            raise InvalidTableError(f"table {table.full_name} has no column {name}; its columns are {', '.join(known)}")
        if name in fixed or name in statement.columns[:number]:
            raise InvalidTableError(f"table {table.full_name}: column {name} is given twice")
    return [known[name] for name in statement.columns]


def _rows(text: str, table: Table, statement: m.InsertValues) -> list[list[str | None]]:
    """Return the rows as strings for all columns of the table, the partition keys last."""
    given = _given_columns(table, statement)
    fixed = {table.key_names[position]: value for position, value in spec_values(table, statement.values).items()}
    places = {column.name: number for number, column in enumerate(given)}
    order = [places.get(column.name) for column in (*table.columns, *table.partition_keys)]
    constants = [fixed.get(column.name) for column in (*table.columns, *table.partition_keys)]
    rows = []
    for number, row in enumerate(statement.rows, 1):
        cells = _cells(text, number, row, given)
        rows.append(
            [constant if place is None else cells[place] for place, constant in zip(order, constants, strict=True)]
        )
    return rows


def _cells(text: str, number: int, row: Sequence[Literal], columns: Sequence[Column]) -> list[str | None]:
    if len(row) != len(columns):
        raise InvalidValueError(
            f"row {number} has {len(row)} values for {len(columns)} columns ({', '.join(c.name for c in columns)})",
            text,
            row[0].position,
        )
    cells = []
    for literal, column in zip(row, columns, strict=True):
        try:
            cells.append(cell_text(column.type, literal))
        except CellError as error:
            raise InvalidValueError(
                f"row {number}, column {column.name} of type {column.type}: {error}", text, literal.position
            ) from None
    return cells
