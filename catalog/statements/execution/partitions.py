"""Execution of statements that list and explain partitions, and that add, change and drop value partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from catalog.errors import PartitionNotFoundError, UnsupportedChangeError
from catalog.files.folders import make_folders
from catalog.model import NewPartition, Partition, RepairMode, Table
from catalog.partitions.specs import spec_filter, spec_values, whole_values
from catalog.schemes.model import SchemeType
from catalog.statements import model as m
from catalog.statements.context import Context
from catalog.statements.results import DONE, Cell, StatementResult
from catalog.statements.terms import KeyCondition
from catalog.types.key_types import KeyType, KeyValue
from catalog.types.memo import Memo

_COLUMNS = ("partition", "row_count", "size_bytes", "file_count")


def show_partitions(context: Context, statement: m.ShowPartitions) -> StatementResult:
    """Run SHOW PARTITIONS, in the logical order of a scheme or in the order of partition values."""
    table = context.catalog.get_table(context.name(statement.table), is_strict=True)
    rows = _of_scheme(context, table, statement) if table.scheme else _of_values(context, table, statement)
    return StatementResult(_COLUMNS, rows, brief_columns=1)


def _of_scheme(context: Context, table: Table, statement: m.ShowPartitions) -> list[list[Cell]]:
    if statement.values:
        raise _no_keys(table, "write WHERE with a condition on its columns")
    partitions = context.catalog.scheme_partitions(table.full_name, statement.where)
    rows: list[list[Cell]] = [
        [partition.text, partition.row_count, partition.size_bytes, partition.file_count] for partition in partitions
    ]
    if table.scheme is None or table.scheme.type is not SchemeType.HASH or statement.where is not None:
        return rows
    # All hash partitions share one line.
    count = len(table.scheme.ids)
    totals: list[Cell] = [
        sum(partition.row_count for partition in partitions[:count]),
        sum(partition.size_bytes for partition in partitions[:count]),
        sum(partition.file_count for partition in partitions[:count]),
    ]
    return [*([line, *totals] for line in table.scheme.lines()), *rows[count:]]


def _of_values(context: Context, table: Table, statement: m.ShowPartitions) -> list[list[Cell]]:
    values = spec_values(table, statement.values)
    condition = spec_filter(table, values) if statement.where is None else statement.where
    partitions: Iterable[Partition] = context.catalog.get_partitions(table.full_name, condition)
    if statement.values:
        keys = [_sort_key(key_type) for key_type in table.key_types]
        partitions = [
            partition
            for partition in partitions
            if all(keys[number](partition.values[number]) == keys[number](text) for number, text in values.items())
        ]
    return [
        [partition.name(table), partition.row_count, partition.size_bytes, partition.file_count]
        for partition in _in_order(table, partitions)
    ]


def _in_order(table: Table, partitions: Iterable[Partition]) -> list[Partition]:
    known = [Memo(_sort_key(key_type)) for key_type in table.key_types]
    return sorted(
        partitions, key=lambda partition: tuple(memo[text] for memo, text in zip(known, partition.values, strict=True))
    )


def _sort_key(key_type: KeyType) -> Callable[[str | None], tuple[int, KeyValue]]:
    """Return a sort key for partition values: nulls first, and strings that are not values of the type last."""

    def key(text: str | None) -> tuple[int, KeyValue]:
        if text is None:
            return 0, 0
        value = key_type.comparable(text)
        return (2, text) if value is None else (1, value)

    return key


def _no_keys(table: Table, advice: str) -> UnsupportedChangeError:
    return UnsupportedChangeError(f"table {table.full_name} has a partition scheme, not partition keys; {advice}")


def explain_partitions(context: Context, statement: m.ExplainPartitions) -> StatementResult:
    """Run EXPLAIN PARTITIONS."""
    explanation = context.catalog.explain_partitions(context.name(statement.table), statement.where)
    return StatementResult(("plan",), [[explanation.as_json()]], text=str(explanation))


# --- partitions of values ---------------------------------------------------------------------------------------------


def add_partitions(context: Context, statement: m.AddValuePartitions) -> StatementResult:
    """Run ADD PARTITION (k='v', …); make the folders, without which some engines cannot read the table."""
    table = _of_keys(context, statement, "ADD PARTITION ('…') takes bounds or groups")
    new = [
        NewPartition(whole_values(table, partition.values), partition.location) for partition in statement.partitions
    ]
    context.catalog.add_partitions(table.full_name, new, if_not_exists=statement.if_not_exists)
    added = context.catalog.batch_get_partitions(table.full_name, [partition.values for partition in new]).partitions
    make_folders(partition.location for partition in added)
    return DONE


def drop_partitions(context: Context, statement: m.DropValuePartitions) -> StatementResult:
    """Run DROP PARTITION (k='v', …), which deletes files only with PURGE."""
    table = _of_keys(context, statement, "DROP PARTITION (id) takes partition ids")
    conditions = [_condition(table, key_conditions) for key_conditions in statement.partitions]
    if not statement.if_exists:
        for condition in conditions:
            if not list(context.catalog.get_partitions(table.full_name, condition)):
                raise PartitionNotFoundError(f"table {table.full_name} has no partition with {condition}")
    condition = condition_of(table, statement)
    if statement.purge:
        purge = context.catalog.purge_partitions(table.full_name, condition, confirmation=context.confirmation)
        return StatementResult(
            ("dropped", "purged", "kept", "files_deleted", "bytes_deleted"),
            [[purge.dropped, purge.purged, purge.kept, purge.others.deleted, purge.others.deleted_bytes]],
            text=str(purge),
        )
    context.catalog.drop_partitions(table.full_name, condition)
    return DONE


def condition_of(table: Table, statement: m.DropValuePartitions) -> str:
    """Return the filter for the partitions of DROP PARTITION (…)."""
    return " or ".join(f"({_condition(table, conditions)})" for conditions in statement.partitions)


def _condition(table: Table, conditions: Sequence[KeyCondition]) -> str:
    """Return the filter for the partitions of one PARTITION (…)."""
    spec_values(table, {condition.key: None for condition in conditions})
    return " and ".join(f"`{condition.key}` {_compared(condition)}" for condition in conditions)


def _compared(condition: KeyCondition) -> str:
    if condition.literal.text is None:
        return "is null" if condition.operator == "=" else "is not null"
    text = condition.literal.text.replace("\\", "\\\\").replace("'", "''")
    return f"{condition.operator} '{text}'"


def set_location(context: Context, statement: m.SetPartitionLocation) -> StatementResult:
    """Run PARTITION (…) SET LOCATION."""
    table = _of_keys(context, statement, "its partitions have no locations of their own")
    context.catalog.alter_partition(table.full_name, statement.values, location=statement.location)
    return DONE


def set_format(context: Context, statement: m.SetPartitionFormat) -> StatementResult:
    """Run PARTITION (…) SET FILEFORMAT."""
    table = _of_keys(context, statement, "its files are Parquet")
    context.catalog.alter_partition(table.full_name, statement.values, format=statement.format)
    return DONE


def set_properties(context: Context, statement: m.SetPartitionProperties) -> StatementResult:
    """Run PARTITION (…) SET PROPERTIES."""
    table = _of_keys(context, statement, "its partitions have no properties")
    context.catalog.alter_partition(table.full_name, statement.values, properties=statement.properties)
    return DONE


def rename(context: Context, statement: m.RenamePartition) -> StatementResult:
    """Run PARTITION (…) RENAME TO PARTITION (…)."""
    table = _of_keys(context, statement, "the values of its rows name its partitions")
    context.catalog.alter_partition(table.full_name, statement.values, rename_to=statement.new_values)
    return DONE


def repair_table(context: Context, statement: m.RepairTable) -> StatementResult:
    """Run MSCK REPAIR TABLE."""
    with context.operation() as operation:
        report = context.catalog.repair_table(
            context.name(statement.table),
            mode=RepairMode(statement.mode),
            operation_id=operation.id,
            requested_by=operation.requested_by,
        )
    columns = ("partitions_added", "partitions_dropped", "folders_unfit", "unfit")
    lines = [f"{report.added:,} partition(s) added, {report.dropped:,} dropped"]
    lines += [f"not a partition: {reason}" for reason in report.unfit]
    lines += [f"{report.unfit_count:,} folder(s) are not partitions"] if report.unfit_count else []
    row: list[Cell] = [report.added, report.dropped, report.unfit_count, list(report.unfit)]
    return StatementResult(columns, [row], text="\n".join(lines))


def _of_keys(context: Context, statement: m.TableStatement, advice: str) -> Table:
    table = context.catalog.get_table(context.name(statement.table))
    if table.scheme is not None:
        raise _no_keys(table, advice)
    return table
