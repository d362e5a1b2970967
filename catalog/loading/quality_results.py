"""Results of quality checks, their history, and the release of partitions that passed.

The history has a row for each checked operation: the newest `HISTORY` of a table, for `CALVE_QUALITY_DAYS` days. The
latest check of each partition stays as long as the partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, delete, func, insert, select

from catalog.loading.late_tables import LateTable, late_tables
from catalog.loading.quality_lists import (
    PROBLEMS,
    CheckedPartition,
    QualityState,
    QualitySummary,
    list_checked,
    summarise,
)
from catalog.loading.quality_samples import expire_samples, read_samples, remove_samples, replace_samples
from catalog.model.partition_names import unpack_values
from catalog.operations.journal import Operations
from catalog.operations.records import Operation
from catalog.partitions.quarantine import lock_to_release, release_partitions
from catalog.settings.learning_rules import LearningRule
from catalog.settings.quality_rules import FailedCheck, FailedSample, PartitionCheck
from catalog.storage import Storage
from catalog.storage.bulk import BATCH, among, batched
from catalog.storage.clock import read_clock_ms
from catalog.storage.schema import DatabaseRow, PartitionCheckRow, PartitionRow, QualityCheckRow, TableRow
from catalog.storage.values import ValueEncoder
from catalog.tables.definitions import Definitions

HISTORY = 1_000
"""The number of checks that the history has of a table."""


@dataclass(frozen=True)
class QualityCheck:
    """The check of the partitions of one operation.

    Attributes:
        table: `database.table`.
        checked_at_ms: Milliseconds since 1970 UTC.
        checked, passed, failed: Numbers of partitions.
        released: Partitions that the check has made visible.
        row_count: The rows of the checked partitions; None if unknown.
        failures: The first failures, each with the partition, the check, and the observed and the expected value.
        page: Path or URI of the page of Data Docs; None if none was written. It may have been removed.
    """

    table: str
    operation_number: int
    operation_id: str
    checked_at_ms: int
    checked: int
    passed: int
    failed: int
    released: int
    row_count: int | None
    failures: tuple[str, ...]
    page: str | None


@dataclass(frozen=True)
class FailedPartition:
    """A partition whose latest check failed.

    Attributes:
        partition: Its name, `k=v/k2=v2`.
        is_quarantined: No reader sees it.
        check: The failures, and what was counted.
    """

    partition: str
    is_quarantined: bool
    operation_number: int
    checked_at_ms: int
    check: PartitionCheck


class QualityResults:
    """The latest quality check of each partition, and the history of checks of each table."""

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
                        "measures": dict(check.measures),
                    }
                    for check in batch
                    if check.partition_id in existing
                ]
                if rows:
                    connection.execute(insert(PartitionCheckRow), rows)
                replace_samples(connection, batch, existing, checked_at_ms)
                passed += [check.partition_id for check in batch if check.passed]
            released = release_partitions(connection, self._definitions, table, passed, operation.number)
            result = {**report, "released": released}
            if report.get("checked"):
                _add_to_history(connection, table.id, operation, result, checked_at_ms)
            self._operations.finish_job(operation_id, step, attempt, result, connection=connection)
        return released

    def get(self, partition_id: int) -> PartitionCheck | None:
        """Return a partition's latest check; None if it was never checked."""
        query = select(PartitionCheckRow.__table__).where(PartitionCheckRow.partition_id == partition_id)
        with self._storage.read() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            return None
        return _partition_check(row)

    def get_many(self, partition_ids: Sequence[int]) -> dict[int, PartitionCheck]:
        """Return the latest checks of partitions by their ids; those that were never checked are missing."""
        checks: dict[int, PartitionCheck] = {}
        with self._storage.read() as connection:
            for batch in batched(partition_ids):
                is_chosen = among(connection, PartitionCheckRow.partition_id, batch)
                for row in connection.execute(select(PartitionCheckRow.__table__).where(is_chosen)):
                    checks[row.partition_id] = _partition_check(row)
        return checks

    def list_partitions(
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

    # --- history ------------------------------------------------------------------------------------------------

    def history(
        self, table: str, *, limit: int = 100, before_ms: int | None = None, only_failed: bool = False
    ) -> list[QualityCheck]:
        """Return the checks of a table, newest first.

        Args:
            limit: The maximum number.
            before_ms: Only checks before this time, for the next page of a list.
            only_failed: Only checks in which a partition failed.

        Raises:
            TableNotFoundError: The table does not exist.
        """
        row = QualityCheckRow
        query = _checks(row.table_id == TableRow.id).where(TableRow.id == self._definitions.get_table(table).id)
        if before_ms is not None:
            query = query.where(row.checked_at_ms < before_ms)
        if only_failed:
            query = query.where(row.failed > 0)
        return self._read(query.order_by(row.checked_at_ms.desc(), row.operation_number.desc()).limit(limit))

    def latest(
        self, *, limit: int = 100, after: str | None = None, name_contains: str = "", only_failed: bool = False
    ) -> list[QualityCheck]:
        """Return the newest check of each table that has one, sorted by the name of the table.

        Args:
            limit: The maximum number.
            after: Only tables after this name, for the next page of a list.
            name_contains: Only tables with this string in `database.table`.
            only_failed: Only checks in which a partition failed.
        """
        row, other = QualityCheckRow.__table__, QualityCheckRow.__table__.alias()
        newest = (
            select(other.c.operation_number)
            .where(other.c.table_id == TableRow.id)
            .order_by(other.c.checked_at_ms.desc(), other.c.operation_number.desc())
            .limit(1)
            .scalar_subquery()
        )
        name = DatabaseRow.name + "." + TableRow.name
        # By the subquery alone, so that it is evaluated for each table and not for each check.
        query = _checks(row.c.operation_number == newest)
        if after is not None:
            query = query.where(name > after.lower())
        if name_contains:
            query = query.where(name.contains(name_contains.lower(), autoescape=True))
        if only_failed:
            query = query.where(row.c.failed > 0)
        return self._read(query.order_by(name).limit(limit))

    def failed_partitions(self, table: str, *, limit: int = 100, before: int | None = None) -> list[FailedPartition]:
        """Return the partitions of a table whose latest check failed, and that no person has released since.

        Those that were added last come first.

        Args:
            limit: The maximum number.
            before: Only partitions with a smaller id, for the next page of a list.

        Raises:
            TableNotFoundError: The table does not exist.
        """
        definition = self._definitions.get_table(table)
        check, row = PartitionCheckRow, PartitionRow
        query = (
            select(check.__table__, row.packed_values, row.is_quarantined)
            .join(row, row.id == check.partition_id)
            .where(~check.passed, check.release_number.is_(None), row.table_id == definition.id)
            .order_by(check.partition_id.desc())
            .limit(limit)
        )
        if before is not None:
            query = query.where(check.partition_id < before)
        with self._storage.read() as connection:
            return [
                FailedPartition(
                    definition.partition_name(found.packed_values),
                    found.is_quarantined,
                    found.operation_number,
                    found.checked_at_ms,
                    _partition_check(found),
                )
                for found in connection.execute(query)
            ]

    def measured_partitions(
        self, table: str, *, limit: int = 100, without_operation: int | None = None
    ) -> list[tuple[Sequence[str | None], PartitionCheck]]:
        """Return the values and the latest checks of the visible partitions that were added last, newest first.

        Args:
            limit: The maximum number.
            without_operation: Leave out the partitions whose latest check belongs to this operation.

        Raises:
            TableNotFoundError: The table does not exist.
        """
        definition = self._definitions.get_table(table)
        check, row = PartitionCheckRow, PartitionRow
        query = (
            select(check.__table__, row.packed_values)
            .join(row, row.id == check.partition_id)
            .where(row.table_id == definition.id, ~row.is_quarantined, check.measures.is_not(None))
            .order_by(row.id.desc())
            .limit(limit)
        )
        if without_operation is not None:
            query = query.where(check.operation_number != without_operation)
        with self._storage.read() as connection:
            return [
                (unpack_values(found.packed_values), _partition_check(found)) for found in connection.execute(query)
            ]

    def samples(self, partition_ids: Sequence[int]) -> dict[int, tuple[FailedSample, ...]]:
        """Return the failing rows of partitions by their ids, of rules that allow to show them.

        They are values of the data, so show them only to those who may read the table.
        """
        with self._storage.read() as connection:
            return read_samples(connection, partition_ids)

    def remove_samples(self, table: str) -> None:
        """Remove all failing rows of a table, for instance because rows of it are deleted for good.

        Raises:
            TableNotFoundError: The table does not exist.
        """
        with self._storage.write() as connection:
            remove_samples(connection, self._definitions.get_table(table, connection))

    def late_tables(self, rules: Mapping[str, LearningRule]) -> list[LateTable]:
        """Return the tables for which nothing has arrived for longer than usual, by the times of their checks.

        Args:
            rules: Table → its rule (`catalog.settings.own_rules.freshness_rules`); others are not looked at.
        """
        return late_tables(self._storage, self._definitions, rules)

    def expire(self, before_ms: int, *, is_dry_run: bool = False) -> int:
        """Remove the checks before a time from the history, and samples of failing rows; return the checks' number."""
        is_old = QualityCheckRow.checked_at_ms < before_ms
        if is_dry_run:
            with self._storage.read() as connection:
                return connection.scalar(select(func.count()).select_from(QualityCheckRow).where(is_old)) or 0
        with self._storage.write() as connection:
            expire_samples(connection, before_ms)
        removed = 0
        while True:
            with self._storage.write() as connection:
                numbers = connection.scalars(select(QualityCheckRow.operation_number).where(is_old).limit(BATCH)).all()
                _forget(connection, numbers)
            removed += len(numbers)
            if len(numbers) < BATCH:
                return removed

    def _read(self, query: Select[Any]) -> list[QualityCheck]:
        with self._storage.read() as connection:
            return [
                QualityCheck(**{**found, "failures": tuple(found["failures"])})
                for found in connection.execute(query).mappings()
            ]

    # --- usual values -------------------------------------------------------------------------------------------

    def group_row_counts(self, table: str, keys: Sequence[str]) -> dict[bytes, int]:
        """Return row counts of a table's partitions, grouped by the values of some of its keys (`ValueEncoder.group`).

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
            encoder, counts = ValueEncoder(definition), Counter[bytes]()
            for *packed, rows in connection.execute(query):
                counts[encoder.group(positions, unpack_values("/".join(packed)))] += int(rows)
            return counts


def _partition_check(row: Row[Any]) -> PartitionCheck:
    failures = tuple(FailedCheck(**failure) for failure in row.failures)
    return PartitionCheck(row.partition_id, failures, row.measures or {})


def _checks(of_table: ColumnElement[bool]) -> Select[Any]:
    """Return the query of the history, with the names of the tables that exist.

    Args:
        of_table: The condition that joins checks and tables.
    """
    row = QualityCheckRow.__table__
    columns = [column for column in row.columns if column.name != "table_id"]
    return (
        select((DatabaseRow.name + "." + TableRow.name).label("table"), *columns)
        .select_from(TableRow)
        .join(row, of_table)
        .join(DatabaseRow, DatabaseRow.id == TableRow.database_id)
    )


def _add_to_history(
    connection: Connection, table_id: int, operation: Operation, report: Mapping[str, Any], checked_at_ms: int
) -> None:
    """Add the check of an operation to the history, in place of an earlier one of it, and remove the oldest check."""
    row = QualityCheckRow
    _forget(connection, [operation.number])
    counts = {name: report[name] for name in ("checked", "failed", "released")}
    connection.execute(
        insert(row),
        {
            "operation_number": operation.number,
            "operation_id": operation.id,
            "table_id": table_id,
            "checked_at_ms": checked_at_ms,
            **counts,
            "passed": report["checked"] - report["failed"],
            "row_count": report.get("row_count"),
            "failures": list(report.get("failures", ())),
            "page": report.get("docs_path"),
        },
    )
    newest_first = row.checked_at_ms.desc(), row.operation_number.desc()
    surplus = select(row.operation_number).where(row.table_id == table_id).order_by(*newest_first).offset(HISTORY)
    _forget(connection, connection.scalars(surplus).all())


def _forget(connection: Connection, numbers: Sequence[int]) -> None:
    if numbers:
        is_chosen = among(connection, QualityCheckRow.operation_number, numbers)
        connection.execute(delete(QualityCheckRow).where(is_chosen))
