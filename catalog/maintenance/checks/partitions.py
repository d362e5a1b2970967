"""Checks of the rows of partitions, by the database: against their values, the file rows, and their statistics."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Select, and_, func, or_, select

from catalog.maintenance.findings import SHOWN, Finding, FindingKind, found
from catalog.model import Table
from catalog.partitions.renewing import miskeyed_partitions, stale_partitions, totals_of_files
from catalog.partitions.snapshots import UNPARTITIONED
from catalog.partitions.statistics import WHOLE_TABLE
from catalog.schemes.model import UNPLACED
from catalog.storage import Storage
from catalog.storage.schema import ColumnStatisticsRow, DataFileRow, PartitionRow

_PAGE = 10_000


def compare_with_file_rows(storage: Storage, table: Table) -> Iterator[Finding]:
    """Yield the differences between the file rows of a table and its partitions, or those of its scheme."""
    remedy = f"`calve check {table.full_name} --repair` renews the partitions from the snapshot"
    with storage.read() as connection:
        if table.scheme is not None or not table.partition_keys:
            yield from _of_unknown_ids(connection, table, remedy)
            return
        total, row = totals_of_files(table), PartitionRow
        is_its = and_(row.id == total.c.partition_id, row.table_id == table.id)
        lost = select(total.c.partition_id).outerjoin(row, is_its).where(or_(row.id.is_(None), row.is_quarantined))
        count, ids = _counted(connection, lost)
        names = [f"partition id {number}" for number in ids]
        yield from found(FindingKind.MISSING_PARTITIONS, table, names, remedy, count)
        count, packed = _counted(connection, stale_partitions(table, row.packed_values))
        yield from found(FindingKind.STALE_COUNTS, table, list(map(table.partition_name, packed)), remedy, count)


def _of_unknown_ids(connection: Connection, table: Table, remedy: str) -> Iterator[Finding]:
    """Yield the ids of file rows that are of no partition of a scheme, or of the only one of a table without keys."""
    row = DataFileRow
    used = set(connection.scalars(select(row.partition_id).where(row.table_id == table.id).distinct()))
    unknown = sorted(used - ({UNPARTITIONED} if table.scheme is None else {UNPLACED, *table.scheme.ids}))
    yield from found(FindingKind.MISSING_PARTITIONS, table, [f"partition id {number}" for number in unknown], remedy)


def _counted(connection: Connection, query: Select[Any]) -> tuple[int, Sequence[Any]]:
    """Return the number of rows of a query, and the first of its column."""
    count = connection.scalar(select(func.count()).select_from(query.subquery())) or 0
    return count, connection.scalars(query.limit(SHOWN)).all() if count else ()


def compare_identities(storage: Storage, table: Table) -> Iterator[Finding]:
    """Yield the partitions that are stored under the identity of other values, so that look-ups by value miss them."""
    count, names = 0, list[str]()
    with storage.read() as connection:
        for _, _, packed in miskeyed_partitions(connection, table):
            count += 1
            names += [table.partition_name(packed)] * (count <= SHOWN)
    remedy = f"`calve check {table.full_name} --repair` stores them under their values"
    yield from found(FindingKind.MISKEYED_PARTITIONS, table, names, remedy, count)


def compare_statistics(storage: Storage, table: Table) -> Iterator[Finding]:
    """Yield the column statistics of partitions that do not exist, and those with more nulls than there are rows."""
    row, partition = ColumnStatisticsRow, PartitionRow
    query = (
        select(row.partition_id, row.column_name, row.statistics, partition.packed_values, partition.row_count)
        .outerjoin(partition, and_(partition.id == row.partition_id, partition.table_id == row.table_id))
        .where(row.table_id == table.id, row.partition_id != WHOLE_TABLE)
        .order_by(row.partition_id, row.column_name)
    )
    count, places = 0, list[str]()
    with storage.read() as connection:
        for number, column, statistics, packed, rows in connection.execute(
            query, execution_options={"yield_per": _PAGE}
        ):
            if (problem := _problem_of(statistics, packed, rows)) is not None:
                place = f"partition id {number}" if packed is None else table.partition_name(packed)
                count += 1
                places += [f"{column} of {place}: {problem}"] * (count <= SHOWN)
    remedy = (
        f"ANALYZE TABLE {table.full_name} PARTITION (…) COMPUTE STATISTICS FOR COLUMNS … by the engine that has stored "
        "them"
    )
    yield from found(FindingKind.WRONG_STATISTICS, table, places, remedy, count)


def _problem_of(statistics: Any, packed: str | None, row_count: int | None) -> str | None:
    if packed is None:
        return "the partition does not exist"
    stored = json.loads(statistics) if isinstance(statistics, str) else statistics
    nulls = stored.get("nulls") if isinstance(stored, dict) else None
    if isinstance(nulls, int) and row_count is not None and nulls > row_count:
        return f"{nulls:,} null(s) in {row_count:,} row(s)"
    return None
