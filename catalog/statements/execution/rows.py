"""Execution of statements that read or write rows, with the engine."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from catalog.datafiles.compacting import files_to_compact
from catalog.errors import (
    ExpressionError,
    InvalidPartitionSpecError,
    InvalidTableError,
    InvalidValueError,
    PartitionNotFoundError,
    UnsupportedChangeError,
)
from catalog.expressions import parse_expression
from catalog.model import PARTITION_ID, Column, Table
from catalog.partitions.specs import PartitionSpec, spec_values
from catalog.rebalancing.planning import target_file_bytes
from catalog.statements import model as m
from catalog.statements.cells import CellError, cell_text
from catalog.statements.context import Context
from catalog.statements.results import StatementResult
from catalog.statements.terms import Literal
from catalog.tables.checks import refuse_view, require_readable_format
from catalog.tables.spark_schema import column_defaults

_CONDITION = "SELECT 1 WHERE "


def select(context: Context, statement: m.Select) -> StatementResult:
    """Run a SELECT."""
    return context.engine_for(statement, statement.query).select(statement.query, context.database)


def explain_select(context: Context, statement: m.ExplainSelect) -> StatementResult:
    """Run EXPLAIN SELECT."""
    return context.engine_for(statement, statement.query).explain(statement.query, context.database)


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
        report = context.engine_for(statement, statement.query).insert_query(
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
    _require_partitions(table, "INSERT OVERWRITE")
    return statement.values


def delete_rows(context: Context, statement: m.DeleteRows) -> StatementResult:
    """Run DELETE: by the catalog alone if partitions or statistics of files decide it; otherwise with the engine."""
    table = _writable(context, statement)
    _require_partitions(table, "DELETE")
    return _delete(context, statement, table, statement.where)


def _delete(context: Context, statement: m.Statement, table: Table, where: str | None) -> StatementResult:
    if table.scheme is None and not table.is_iceberg and _is_on_keys(table, where):
        return _delete_partitions(context, table, where)
    with context.operation() as operation:
        report: Mapping[str, Any] | None = None
        if table.scheme is not None and _is_on_keys(table, where):
            report = context.catalog.committer.delete_files(
                operation.id, table.full_name, where, requested_by=operation.requested_by
            )
        if report is None:
            engine = context.engine_for(statement, where or "true", "where", _CONDITION)
            report = engine.delete_rows(operation, table, where or "true", context.database)
    return _changed(table, report, "deleted")


def update_rows(context: Context, statement: m.UpdateRows) -> StatementResult:
    """Run UPDATE."""
    table = _writable(context, statement)
    _require_partitions(table, "UPDATE")
    with context.operation() as operation:
        where = statement.where or "true"
        engine = context.engine_for(statement, where, "where", _CONDITION)
        report = engine.update_rows(operation, table, statement.assignments, where, context.database)
    return _changed(table, report, "updated")


def merge_rows(context: Context, statement: m.MergeRows) -> StatementResult:
    """Run MERGE."""
    table = _writable(context, statement)
    _require_partitions(table, "MERGE")
    with context.operation() as operation:
        engine = context.engine_for(statement, statement.source, "source", "SELECT * FROM ")
        report = engine.merge_rows(operation, table, statement, context.database)
    if table.scheme is None and not table.is_iceberg:
        return _changed(table, report, "merged")
    names = ("rows_inserted", "rows_updated", "rows_deleted")
    inserted, updated, deleted = counts = [report[name] for name in names]
    text = f"{inserted:,} row(s) inserted, {updated:,} updated, {deleted:,} deleted"
    return StatementResult(names, [counts], text=text)


def forget_rows(context: Context, statement: m.ForgetRows) -> StatementResult:
    """Run CALL calve.system.forget."""
    table = _writable(context, statement)
    with context.operation() as operation:
        report = context.engine.forget(operation, table, statement.where, at_once=statement.at_once)
    columns = ("rows_deleted", "partitions_changed", "files_deleted", "files_searched", "files_left", "rows_left")
    return StatementResult(columns, [[report[name] for name in columns]], text="\n".join(_forgotten(table, report)))


def _forgotten(table: Table, report: Mapping[str, Any]) -> Iterator[str]:
    """Yield what was forgotten, and where such rows are left, in lines."""
    yield (
        f"{report['rows_deleted']:,} row(s) of {report['partitions_changed']:,} partition(s) of {table.full_name} "
        f"deleted, and {report['files_deleted']:,} file(s) that no partition or snapshot has"
    )
    if not report["files_left"]:
        yield f"proven: none of the {report['files_searched']:,} file(s) in the folders of the table has such a row"
        return
    yield (
        f"{report['files_left']:,} of {report['files_searched']:,} file(s) in the folders of the table are left, with "
        f"{report['rows_left']:,} such row(s):"
    )
    for reason, count, shown in report["left"]:
        yield f"  {count:,} {reason}: {', '.join(shown)}{' and more' if count > len(shown) else ''}"


def truncate_table(context: Context, statement: m.TruncateTable) -> StatementResult:
    """Run TRUNCATE TABLE; without the engine, unless other engines have written files that are in no partition yet."""
    table = _writable(context, statement)
    _require_partitions(table, "TRUNCATE")
    if table.is_iceberg:
        spec_values(table, statement.values)
        with context.operation() as operation:
            return _changed(table, context.engine.truncate(operation, table, statement.values), "deleted")
    if table.scheme is None:
        return _delete_partitions(context, table, spec=statement.values)
    partition_id = _partition_id(table, statement.values)
    return _delete(context, statement, table, None if partition_id is None else f"{PARTITION_ID} = {partition_id}")


def compact_table(context: Context, statement: m.CompactTable) -> StatementResult:
    """Run ALTER TABLE … COMPACT."""
    table = _writable(context, statement)
    _require_partitions(table, "COMPACT")
    if table.is_iceberg:
        spec_values(table, statement.values)
        with context.operation() as operation:
            report = context.engine.compact_iceberg(operation, table, statement.values)
        return _compacted(None, report["partitions_replaced"], report["files_before"], report["files"])
    if table.scheme is not None:
        return _compact_scheme(context, table, _partition_id(table, statement.values))
    values = statement.values
    partitions = list(
        context.catalog.partitions_of(table.full_name, values)
        if values
        else context.catalog.get_partitions(table.full_name)
    )
    many = [partition for partition in partitions if partition.file_count is None or partition.file_count > 1]
    if not many:
        return _compacted(f"{len(partitions):,} partition(s) have one file each; nothing to compact")
    with context.operation() as operation:
        report = context.engine.compact(operation, table, many)
    return _compacted(None, report["partitions_replaced"], report["files_before"], report["files"])


def _compact_scheme(context: Context, table: Table, partition_id: int | None) -> StatementResult:
    chosen = None if partition_id is None else [partition_id]
    scan = context.catalog.scan_files(table.full_name)
    if not files_to_compact(scan.files, target_file_bytes(table), chosen):
        return _compacted("no partition would have fewer files; nothing to compact")
    with context.operation() as operation:
        report = context.engine.compact_scheme(operation, table, chosen)
    return _compacted(None, report["partitions_replaced"], report["files_before"], report["files"])


def _compacted(text: str | None, count: int = 0, before: int = 0, after: int = 0) -> StatementResult:
    text = text or f"{before:,} file(s) of {count:,} partition(s) became {after:,}"
    return StatementResult(("partitions", "files_before", "files"), [[count, before, after]], text=text)


def _partition_id(table: Table, values: Mapping[str, str | None]) -> int | None:
    """Return the partition in PARTITION (_partition_id = …) of a table with a scheme; None without PARTITION.

    Raises:
        InvalidPartitionSpecError: It has other names.
        PartitionNotFoundError: The table has no such partition.
    """
    if not values:
        return None
    text = values.get(PARTITION_ID)
    if len(values) > 1 or text is None or not text.isdecimal():
        raise InvalidPartitionSpecError(
            f"table {table.full_name} has no partition keys; name its partition by the number in SHOW PARTITIONS: "
            f"PARTITION ({PARTITION_ID} = 1)"
        )
    assert table.scheme is not None
    if int(text) not in table.scheme.ids:
        raise PartitionNotFoundError(
            f"table {table.full_name} has no partition {text}; SHOW PARTITIONS lists its partitions"
        )
    return int(text)


def _is_on_keys(table: Table, where: str | None) -> bool:
    """Return whether a condition is one of the catalog's, on partition keys, or columns of tables with a scheme."""
    try:
        parse_expression(where, table.filter_view)
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


def _changed(table: Table, report: Mapping[str, Any], done: str) -> StatementResult:
    if table.scheme is not None or table.is_iceberg:
        counts = [report["rows"], report["files_removed"], report["files_written"]]
        text = f"{counts[0]:,} row(s) {done}: {counts[2]:,} new file(s) in place of {counts[1]:,}"
        return StatementResult(("rows", "files_removed", "files_written"), [counts], text=text)
    replaced, removed = report["partitions_replaced"], report["partitions_removed"]
    text = f"{replaced + removed:,} partition(s) changed; {removed:,} of them have no rows left and were removed"
    return StatementResult(("partitions_replaced", "partitions_removed"), [[replaced, removed]], text=text)


def _require_partitions(table: Table, statement: str) -> None:
    if table.scheme is None and not table.is_iceberg and not table.partition_keys:
        raise UnsupportedChangeError(
            f"{statement} replaces partitions, and table {table.full_name} has no partition keys; create a table "
            "that has, or write the rows to a new table"
        )


def load_data(context: Context, statement: m.LoadData) -> StatementResult:
    """Run LOAD DATA INPATH."""
    table = _writable(context, statement)
    if statement.overwrite:
        _require_partitions(table, "OVERWRITE")
    overwritten: Mapping[str, str | None] | None = {} if statement.overwrite else None
    with context.operation() as operation:
        report = context.engine.load_data(operation, table, statement.path, statement.options, overwritten=overwritten)
    return _added(report)


def _writable(context: Context, statement: m.TableStatement) -> Table:
    table = context.catalog.get_table(context.name(statement.table))
    refuse_view(table, "has no rows of its own to add to")
    if table.is_iceberg:
        from catalog.iceberg.live_columns import with_live_columns

        return with_live_columns(table)
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
        UnsupportedChangeError: A column that gets no value has a default of Spark.
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
    _refuse_defaults(table, known.keys() - fixed - set(statement.columns))
    return [known[name] for name in statement.columns]


def _refuse_defaults(table: Table, missing: Collection[str]) -> None:
    for name, default in column_defaults(table.properties).items():
        if name in missing:
            raise UnsupportedChangeError(
                f"table {table.full_name}: column {name} gets no value, and has the default {default} of Spark, which "
                "Calve does not apply; name the column, and give its value"
            )


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
