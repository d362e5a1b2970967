"""Lists and counts of the latest quality checks."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from catalog import Catalog
from catalog.errors import InvalidRequestError
from catalog.loading.quality_lists import QualityState, QualitySummary
from catalog.model import TableType
from catalog.operations.records import OperationKind
from catalog.storage.schema import OperationRow, TableRow
from tests.support.pages_samples import FAILURES, make_checked_table

NAME = "checked.events"
STATES = {
    "2024-05-04": QualityState.FAILED,
    "2024-05-11": QualityState.QUARANTINED,
    "2024-05-21": QualityState.QUARANTINED,
    "2024-05-31": QualityState.UNCHECKED,
}


def test_each_partition_is_in_one_state(catalog: Catalog) -> None:
    make_checked_table(catalog)
    listed = catalog.quality.list_partitions(list(QualityState), limit=100)
    assert len(listed) == 31
    states = {checked.values[0]: checked.state for checked in listed}
    assert {day: state for day, state in states.items() if state is not QualityState.PASSED} == STATES
    for state in QualityState:
        days = {checked.values[0] for checked in catalog.quality.list_partitions([state], limit=100)}
        assert days == {day for day, found in states.items() if found is state}


def test_problems_are_listed_with_their_failures_the_newest_first(catalog: Catalog) -> None:
    make_checked_table(catalog)
    listed = catalog.quality.list_partitions()
    assert [checked.values for checked in listed] == [("2024-05-21",), ("2024-05-11",), ("2024-05-04",)]
    assert [checked.failures for checked in listed] == [FAILURES, FAILURES, FAILURES[:1]]
    assert {checked.operation_id for checked in listed} == {"add_partitions/sample"}
    (newest,) = catalog.quality.list_partitions(limit=1)
    assert [checked.id for checked in catalog.quality.list_partitions(before=newest.id)] == [
        checked.id for checked in listed[1:]
    ]


def test_lists_are_those_of_the_chosen_tables(catalog: Catalog) -> None:
    make_checked_table(catalog)
    table = catalog.get_table(NAME)
    assert len(catalog.quality.list_partitions(table_ids=[table.id])) == 3
    assert catalog.quality.list_partitions(table_ids=[table.id + 1]) == []
    assert catalog.quality.list_partitions(table_ids=[]) == []


def test_summaries_count_checks_and_quarantined_partitions(catalog: Catalog) -> None:
    make_checked_table(catalog)
    table = catalog.get_table(NAME)
    (summary,) = catalog.quality.summaries().values()
    assert (summary.passed, summary.failed, summary.quarantined) == (27, 3, 2)
    assert summary.checked_at_ms is not None
    with catalog.storage.write() as connection:
        from sqlalchemy import delete

        from catalog.storage.schema import PartitionCheckRow

        connection.execute(delete(PartitionCheckRow))
    assert catalog.quality.summaries() == {table.id: QualitySummary(quarantined=2)}


def test_partitions_that_a_migration_has_kept_are_no_problems(catalog: Catalog) -> None:
    make_checked_table(catalog)
    with catalog.storage.write() as connection:
        connection.execute(update(TableRow).values(table_type=TableType.ICEBERG))
    assert catalog.quality.list_partitions(list(QualityState)) == []
    assert catalog.quality.summaries() == {}


def test_some_of_the_quarantined_partitions_are_released(catalog: Catalog) -> None:
    make_checked_table(catalog)
    newest, older = catalog.quality.list_partitions([QualityState.QUARANTINED])
    visible = catalog.quality.list_partitions([QualityState.PASSED], limit=1)
    ids = {newest.id, visible[0].id, 10**9}
    assert catalog.release_partitions(NAME, ids=ids, reason="checked by hand", requested_by="ann") == 1
    assert [checked.id for checked in catalog.quality.list_partitions([QualityState.QUARANTINED])] == [older.id]
    (released,) = catalog.quality.list_partitions([QualityState.RELEASED])
    assert (released.id, released.released_by, released.release_reason) == (newest.id, "ann", "checked by hand")
    assert released.failures == FAILURES
    # Without a reason, its latest check is the verdict.
    assert catalog.release_partitions(NAME, ids=[older.id]) == 1
    failed = [checked.id for checked in catalog.quality.list_partitions([QualityState.FAILED])]
    assert (older.id in failed, newest.id in failed) == (True, False)
    (summary,) = catalog.quality.summaries().values()
    assert (summary.passed, summary.failed, summary.quarantined, summary.released) == (27, 2, 0, 1)
    assert newest.id not in {failure.check.partition_id for failure in catalog.quality.failed_partitions(NAME)}
    (operation,) = catalog.operations.list(NAME, kinds=[OperationKind.RELEASE_PARTITIONS])
    assert (operation.request["reason"], operation.requested_by) == ("checked by hand", "ann")
    assert catalog.release_partitions(NAME, ids=[], reason="x") == 0


def test_reasons_that_databases_cannot_store_hide_no_list(catalog: Catalog) -> None:
    make_checked_table(catalog)
    newest, _ = catalog.quality.list_partitions([QualityState.QUARANTINED])
    for reason in ("a\0b", "a\ud800b"):
        with pytest.raises(InvalidRequestError, match="which databases cannot store"):
            catalog.release_partitions(NAME, ids=[newest.id], reason=reason)
    catalog.release_partitions(NAME, ids=[newest.id], reason="fine")
    # As releases of earlier versions are stored.
    with catalog.storage.write() as connection:
        connection.execute(update(OperationRow).values(request={"reason": "a\0b"}))
    (released,) = catalog.quality.list_partitions([QualityState.RELEASED])
    assert released.release_reason == "a\0b"
