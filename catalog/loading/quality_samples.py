"""Samples of rows that failed a quality check, of rules that allow to show them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from sqlalchemy import Connection, delete, insert, select

from catalog.model import Table
from catalog.settings.quality_rules import FailedSample, PartitionCheck
from catalog.storage.bulk import among, batched
from catalog.storage.schema import FailedSampleRow, PartitionRow


def replace_samples(
    connection: Connection, checks: Iterable[PartitionCheck], existing: Collection[int], checked_at_ms: int
) -> None:
    """Keep the samples of checks in place of the earlier ones of their partitions, in the caller's transaction.

    Args:
        checks: At most one batch.
        existing: The ids of the partitions that exist.
        checked_at_ms: Milliseconds since 1970 UTC.
    """
    row, checks = FailedSampleRow, list(checks)
    ids = [check.partition_id for check in checks]
    connection.execute(delete(row).where(among(connection, row.partition_id, ids)))
    rows = [
        {
            "partition_id": check.partition_id,
            "position": position,
            "check_name": sample.check,
            "columns": list(sample.columns),
            "rows": [list(values) for values in sample.rows],
            "checked_at_ms": checked_at_ms,
        }
        for check in checks
        if check.partition_id in existing
        for position, sample in enumerate(check.samples)
    ]
    if rows:
        connection.execute(insert(row), rows)


def read_samples(connection: Connection, partition_ids: Sequence[int]) -> dict[int, tuple[FailedSample, ...]]:
    """Return the samples of partitions by their ids; those without samples are missing."""
    row, found = FailedSampleRow, defaultdict[int, list[FailedSample]](list)
    for batch in batched(partition_ids):
        query = select(row.partition_id, row.check_name, row.columns, row.rows).order_by(row.partition_id, row.position)
        for number, check, columns, rows in connection.execute(query.where(among(connection, row.partition_id, batch))):
            found[number].append(FailedSample(check, tuple(columns), tuple(map(tuple, rows))))
    return {number: tuple(samples) for number, samples in found.items()}


def remove_samples(connection: Connection, table: Table) -> None:
    """Remove all samples of a table, in the caller's transaction."""
    row = FailedSampleRow
    # Few partitions have samples, and many belong to a large table.
    of_table = select(PartitionRow.table_id).where(PartitionRow.id == row.partition_id).scalar_subquery()
    connection.execute(delete(row).where(of_table == table.id))


def expire_samples(connection: Connection, before_ms: int) -> None:
    """Remove the samples of checks before a time, in the caller's transaction."""
    connection.execute(delete(FailedSampleRow).where(FailedSampleRow.checked_at_ms < before_ms))
