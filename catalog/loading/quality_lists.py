"""Lists and counts of quality checks, bounded for pages, from the latest check of each partition."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, and_, case, func, or_, select, union

from catalog.model import TableType
from catalog.model.partition_names import given_values
from catalog.settings.quality_rules import FailedCheck
from catalog.storage.bulk import among
from catalog.storage.schema import OperationRow, PartitionCheckRow, PartitionRow, TableRow


class QualityState(StrEnum):
    """The verdict of the latest check of a partition, and whether readers see the partition.

    RELEASED is one that failed, and that a person has released with a reason.
    """

    QUARANTINED = "quarantined"
    FAILED = "failed"
    RELEASED = "released"
    PASSED = "passed"
    UNCHECKED = "unchecked"


PROBLEMS = (QualityState.QUARANTINED, QualityState.FAILED)
"""The states that a person may have to do something about."""


_MIGRATED = select(TableRow.id).where(TableRow.table_type == TableType.ICEBERG)
"""Tables that are Iceberg tables since their migration; the catalog keeps their partitions for a revert."""


@dataclass(frozen=True)
class CheckedPartition:
    """A partition with its latest check.

    Attributes:
        id: The partition's id.
        values: Its values, one for each partition key.
        failures: The checks that it failed; empty if it passed or was never checked.
        checked_at_ms: When, in milliseconds since 1970 UTC; None if it was never checked.
        operation_id: The operation that checked it; None if the journal no longer has it.
        released_by: Who released it; None if nobody did, if nobody is known, or if the journal no longer has it.
        release_reason: Why, under the same conditions.
    """

    id: int
    table_id: int
    values: tuple[str | None, ...]
    row_count: int | None
    state: QualityState
    failures: tuple[FailedCheck, ...]
    checked_at_ms: int | None
    operation_id: str | None
    released_by: str | None = None
    release_reason: str | None = None


@dataclass(frozen=True)
class QualitySummary:
    """The latest checks of a table's partitions.

    Attributes:
        passed, failed: The numbers of partitions by their latest check, quarantined or not.
        released: The number of those that failed and that a person has released, which are not in `failed`.
        quarantined: The number of quarantined partitions.
        checked_at_ms: The time of the latest check; None if none was made.
    """

    passed: int = 0
    failed: int = 0
    quarantined: int = 0
    checked_at_ms: int | None = None
    released: int = 0


def list_checked(
    connection: Connection,
    states: Collection[QualityState],
    table_ids: Sequence[int] | None,
    before: int | None,
    limit: int,
) -> list[CheckedPartition]:
    """Return the newest partitions in some states; see `QualityResults.list`."""
    partition, check, release = PartitionRow, PartitionCheckRow, OperationRow.__table__.alias()
    query = (
        select(
            partition.id,
            partition.table_id,
            partition.packed_values,
            partition.row_count,
            partition.is_quarantined,
            check.passed,
            check.failures,
            check.checked_at_ms,
            OperationRow.id.label("operation_id"),
            check.release_number,
            release.c.requested_by.label("released_by"),
            # As a whole: databases that extract a field refuse all rows if one has a string that they cannot store.
            release.c.request.label("release"),
        )
        .outerjoin(check, check.partition_id == partition.id)
        .outerjoin(OperationRow, OperationRow.number == check.operation_number)
        .outerjoin(release, release.c.number == check.release_number)
        .where(_is_in(states), partition.table_id.not_in(_MIGRATED))
        .order_by(partition.id.desc())
        .limit(limit)
    )
    if set(states) <= set(PROBLEMS):
        # These are few: they are found first, without a join of all partitions with their checks.
        query = query.where(partition.id.in_(_problems()))
    if table_ids is not None:
        query = query.where(among(connection, partition.table_id, table_ids))
    if before is not None:
        query = query.where(partition.id < before)
    return list(_checked(connection.execute(query)))


def _problems() -> Any:
    partition, check = PartitionRow, PartitionCheckRow
    return union(select(partition.id).where(partition.is_quarantined), select(check.partition_id).where(~check.passed))


def _is_in(states: Collection[QualityState]) -> Any:
    partition, check = PartitionRow, PartitionCheckRow
    is_visible = ~partition.is_quarantined
    conditions = {
        QualityState.QUARANTINED: partition.is_quarantined,
        QualityState.FAILED: and_(is_visible, ~check.passed, check.release_number.is_(None)),
        QualityState.RELEASED: and_(is_visible, ~check.passed, check.release_number.is_not(None)),
        QualityState.PASSED: and_(is_visible, check.passed),
        QualityState.UNCHECKED: and_(is_visible, check.partition_id.is_(None)),
    }
    return or_(*(conditions[state] for state in QualityState if state in states))


def _checked(rows: Any) -> Iterator[CheckedPartition]:
    for row in rows:
        if row.is_quarantined:
            state = QualityState.QUARANTINED
        elif row.passed is None:
            state = QualityState.UNCHECKED
        elif row.passed:
            state = QualityState.PASSED
        else:
            state = QualityState.FAILED if row.release_number is None else QualityState.RELEASED
        failures = tuple(FailedCheck(**failure) for failure in row.failures or ())
        yield CheckedPartition(
            row.id,
            row.table_id,
            tuple(given_values(row.packed_values)),
            row.row_count,
            state,
            failures,
            row.checked_at_ms,
            row.operation_id,
            row.released_by,
            (row.release or {}).get("reason"),
        )


def summarise(connection: Connection) -> dict[int, QualitySummary]:
    """Return the counts of all tables with a checked or quarantined partition; see `QualityResults.summaries`."""
    partition, check = PartitionRow, PartitionCheckRow
    is_failed = and_(~check.passed, check.release_number.is_(None))
    of_checks = (
        select(
            partition.table_id,
            func.sum(case((check.passed, 1), else_=0)),
            func.sum(case((is_failed, 1), else_=0)),
            func.max(check.checked_at_ms),
            func.count(check.release_number),
        )
        .join(check, check.partition_id == partition.id)
        .where(partition.table_id.not_in(_MIGRATED))
        .group_by(partition.table_id)
    )
    held = select(partition.table_id, func.count()).where(partition.is_quarantined)
    held = held.where(partition.table_id.not_in(_MIGRATED))
    quarantined = {table_id: int(number) for table_id, number in connection.execute(held.group_by(partition.table_id))}
    summaries = {
        table_id: QualitySummary(int(passed), int(failed), quarantined.get(table_id, 0), at_ms, released)
        for table_id, passed, failed, at_ms, released in connection.execute(of_checks)
    }
    unchecked = {table_id: QualitySummary(quarantined=count) for table_id, count in quarantined.items()}
    return unchecked | summaries
