"""Counts of partitions that are hidden from readers."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, func, select

from catalog.operations.records import Operation
from catalog.storage.schema import DatabaseRow, PartitionRow, TableRow


def count_hidden(connection: Connection, operations: Iterable[Operation]) -> dict[str, int]:
    """Return, by operation id, how many partitions failed the load's quality check and are still quarantined.

    Operations without such partitions are missing. Reads the partitions only of loads with failed checks.
    """
    row, counts = PartitionRow, dict[str, int]()
    for operation in operations:
        steps = [step for step in operation.report.values() if isinstance(step, dict)]
        if operation.table_id is None or not any(step.get("failed") for step in steps):
            continue
        of_load = row.table_id == operation.table_id, row.operation_number == operation.number
        if hidden := connection.scalar(select(func.count()).where(*of_load, row.is_quarantined)):
            counts[operation.id] = hidden
    return counts


def count_by_table(connection: Connection) -> dict[str, int]:
    """Return, by full table name, how many partitions are quarantined; tables without such are missing."""
    query = (
        select(DatabaseRow.name, TableRow.name, func.count())
        .select_from(PartitionRow)
        .join(TableRow, TableRow.id == PartitionRow.table_id)
        .join(DatabaseRow, DatabaseRow.id == TableRow.database_id)
        .where(PartitionRow.is_quarantined)
        .group_by(DatabaseRow.name, TableRow.name)
    )
    return {f"{database}.{table}": count for database, table, count in connection.execute(query)}
