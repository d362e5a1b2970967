"""Results of quality checks, and the release of partitions that passed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import delete, func, insert, select

from catalog.loading.quality_lists import (
    PROBLEMS,
    CheckedPartition,
    QualityState,
    QualitySummary,
    list_checked,
    summarise,
)
from catalog.model.partition_names import unpack_values
from catalog.operations.journal import Operations
from catalog.partitions.quarantine import lock_to_release, release_partitions
from catalog.settings.quality_rules import FailedCheck, PartitionCheck
from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.clock import read_clock_ms
from catalog.storage.schema import PartitionCheckRow, PartitionRow
from catalog.tables.definitions import Definitions


class QualityResults:
    """The latest quality check of each partition."""

    def __init__(self, storage: Storage, definitions: Definitions, operations: Operations) -> None:
        """Set the storage, the definitions in it, and the journal."""
        self._storage = storage
        self._definitions = definitions
        self._operations = operations

    def record(
        self,
        operation_id: str,
        step: str,
        attempt: int,
        checks: Iterable[PartitionCheck],
        report: Mapping[str, Any],
    ) -> int:
        """Record checks and the job's report in one transaction, and release the quarantined partitions that passed.

        Returns:
            The number of partitions that became visible.

        Raises:
            FencedError: The attempt is fenced.
        """
        with self._storage.write() as connection:
            operation = self._operations.guard(connection, operation_id, step, attempt)
            table = lock_to_release(connection, self._definitions, operation.table)
            passed: list[int] = []
            checked_at_ms = read_clock_ms(connection)
            for batch in batched(checks):
                ids = [check.partition_id for check in batch]
                existing = set(
                    connection.scalars(select(PartitionRow.id).where(among(connection, PartitionRow.id, ids)))
                )
                connection.execute(
                    delete(PartitionCheckRow).where(among(connection, PartitionCheckRow.partition_id, ids))
                )
                rows = [
                    {
                        "partition_id": check.partition_id,
                        "operation_number": operation.number,
                        "passed": check.passed,
                        "failures": [asdict(failure) for failure in check.failures],
                        "checked_at_ms": checked_at_ms,
                    }
                    for check in batch
                    if check.partition_id in existing
                ]
                if rows:
                    connection.execute(insert(PartitionCheckRow), rows)
                passed += [check.partition_id for check in batch if check.passed]
            released = release_partitions(connection, self._definitions, table, passed, operation.number)
            result = {**report, "released": released}
            self._operations.finish_job(operation_id, step, attempt, result, connection=connection)
        return released

    def get(self, partition_id: int) -> PartitionCheck | None:
        """Return a partition's latest check; None if it was never checked."""
        query = select(PartitionCheckRow.__table__).where(PartitionCheckRow.partition_id == partition_id)
        with self._storage.read() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            return None
        return PartitionCheck(partition_id, tuple(FailedCheck(**failure) for failure in row.failures))

    def get_many(self, partition_ids: Sequence[int]) -> dict[int, PartitionCheck]:
        """Return the latest checks of partitions by their ids; those that were never checked are missing."""
        checks: dict[int, PartitionCheck] = {}
        with self._storage.read() as connection:
            for batch in batched(partition_ids):
                is_chosen = among(connection, PartitionCheckRow.partition_id, batch)
                for row in connection.execute(select(PartitionCheckRow.__table__).where(is_chosen)):
                    failures = tuple(FailedCheck(**failure) for failure in row.failures)
                    checks[row.partition_id] = PartitionCheck(row.partition_id, failures)
        return checks

    def list(
        self,
        states: Collection[QualityState] = PROBLEMS,
        *,
        table_ids: Sequence[int] | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[CheckedPartition]:
        """Return partitions with their latest checks, the newest partitions first.

        Args:
            states: Only partitions in one of these states.
            table_ids: Only partitions of these tables (`Table.id`); None for all.
            before: Only partitions with an id below this one, for the next page.
        """
        with self._storage.read() as connection:
            return list_checked(connection, states, table_ids, before, limit)

    def summaries(self) -> dict[int, QualitySummary]:
        """Return counts of the latest checks of each table that has any, or quarantined partitions, by `Table.id`.

        Reads the checks of all partitions, in two statements.
        """
        with self._storage.read() as connection:
            return summarise(connection)

    def group_row_counts(self, table: str, keys: Sequence[str]) -> dict[tuple[str | None, ...], int]:
        """Return row counts of a table's partitions, grouped by some of its keys.

        Includes quarantined partitions; an unknown row count counts as 0.
        """
        with self._storage.read() as connection:
            definition = self._definitions.get_hive_table(table, connection)
            positions = [definition.key_names.index(key) for key in keys]
            pieces = [func.split_part(PartitionRow.packed_values, "/", position + 1) for position in positions]
            query = (
                select(*pieces, func.sum(func.coalesce(PartitionRow.row_count, 0)))
                .where(PartitionRow.table_id == definition.id)
                .group_by(*pieces)
            )
            groups = connection.execute(query)
            return {tuple(unpack_values("/".join(values))): int(rows) for *values, rows in groups}
