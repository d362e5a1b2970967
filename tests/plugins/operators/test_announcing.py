"""The announcement of changed partitions as asset events, and the trigger that calls for it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.sdk import Asset, Context
from airflow.sdk.exceptions import AirflowSkipException
from airflow.sdk.execution_time.context import OutletEventAccessors
from airflow.sdk.observability import stats
from sqlalchemy import update

from calve_airflow.assets import Change, change_asset, dropped_asset, table_asset
from calve_airflow.operators import announcing
from calve_airflow.operators.announcing import (
    AnnounceChangesOperator,
    ClaimChangesOperator,
    FindOutcomesOperator,
    FinishAnnouncementsOperator,
    ReportOutcomeOperator,
)
from calve_airflow.triggers.changes import PartitionChangesTrigger
from catalog import Catalog, NewPartition
from catalog.operations.records import OperationKind, OperationState
from catalog.storage.schema import OperationRow

TABLE = "demo.flights"


def context(run_id: str = "run") -> Context:
    task = SimpleNamespace(outlets=[])
    run = SimpleNamespace(dag_id="announce_changes", run_id=run_id)
    ti = SimpleNamespace(task=task)
    return cast("Context", {"ti": ti, "dag_run": run, "outlet_events": OutletEventAccessors(), "params": {}})


def announce(number: int, run_id: str = "run") -> dict[Asset, set[str]]:
    """Announce a batch, and return the events, as Airflow registers them."""
    own = context(run_id)
    AnnounceChangesOperator(task_id="announce", number=number).execute(own)
    values = cast("dict[str, Any]", own)
    return {outlet: values["outlet_events"][outlet].partition_keys for outlet in values["ti"].task.outlets}


def claim(run_id: str = "run") -> list[int]:
    return ClaimChangesOperator(task_id="claim").execute(context(run_id))


def test_each_change_is_an_event_of_one_run(catalog: Catalog) -> None:
    catalog.drop_partitions(TABLE, "month = 1")
    added, dropped = claim()
    with pytest.raises(AirflowSkipException, match="no partition has changed"):
        claim("other")
    assert announce(added) == {table_asset(TABLE): {"carrier=AA/month=foo"}}
    assert announce(dropped) == {dropped_asset(TABLE): {"carrier=AA/month=1"}}
    for run, number in (("other", added), ("run", 12345)):
        with pytest.raises(AirflowSkipException, match="were announced"):
            announce(number, run)
    assert claim() == [added, dropped], "a retry claims the same"
    assert FinishAnnouncementsOperator(task_id="finish").execute(context()) == 2
    with pytest.raises(AirflowSkipException, match="were announced"):
        announce(added)


def test_runs_announce_everything_within_the_limit_of_mapped_tasks(
    empty_catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcing, "map_limit", lambda: 2)
    tables = [f"demo.t{number}" for number in range(5)]
    for table in tables:
        empty_catalog.create_table(table, columns=[("v", "int")], partition_keys=[("k", "int")])
        empty_catalog.add_partitions(table, [NewPartition(("1",))])
    events: list[Asset] = []
    for run_id in ("first", "second", "third"):
        events += [asset for number in claim(run_id) for asset in announce(number, run_id)]
        FinishAnnouncementsOperator(task_id="finish").execute(context(run_id))
    assert sorted(asset.name for asset in events) == tables
    with pytest.raises(AirflowSkipException, match="no partition has changed"):
        claim("fourth")


def test_names_that_look_like_templates_are_announced_as_they_are(empty_catalog: Catalog) -> None:
    empty_catalog.create_table("demo.t", columns=[("v", "int")], partition_keys=[("k", "string")])
    empty_catalog.add_partitions("demo.t", [NewPartition(("{{ ds }}",))])
    [number] = claim()
    [keys] = announce(number).values()
    assert keys == {"k=%7B%7B ds }}"}


def test_the_assets_of_a_table_differ() -> None:
    assert (dropped_asset(TABLE).name, dropped_asset(TABLE).uri) == (
        "demo.flights (dropped)",
        "x-calve://demo/flights/dropped",
    )


def test_the_trigger_fires_once_for_each_change_and_survives_an_outage(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    from catalog.errors import CatalogUnavailableError
    from catalog.partitions.announcing import Announcements

    pending, polls = Announcements.pending, 0

    def failing_first(self: Announcements) -> int | None:
        nonlocal polls
        polls += 1
        if polls == 1:
            raise CatalogUnavailableError("the server is down")
        return pending(self)

    monkeypatch.setattr(Announcements, "pending", failing_first)
    fired: list[Any] = []

    async def follow() -> None:
        async for event in PartitionChangesTrigger(poll_seconds=0.02).run():
            fired.append(event.payload)

    async def scenario() -> None:
        following = asyncio.create_task(follow())
        for count in (1, 2):
            while len(fired) < count:
                await asyncio.sleep(0.01)
            seen = polls
            while polls < seen + 5:
                await asyncio.sleep(0.01)
            catalog.drop_partitions(TABLE, "carrier = 'AA' and month = 1")
        following.cancel()

    asyncio.run(asyncio.wait_for(scenario(), 60))
    assert len(fired) == 2
    assert fired[0]["number"] < fired[1]["number"]


def test_a_trigger_is_made_again_from_its_arguments() -> None:
    path, arguments = PartitionChangesTrigger(3).serialize()
    assert (path, arguments) == ("calve_airflow.triggers.changes.PartitionChangesTrigger", {"poll_seconds": 3})


LOADED = {"rows_loaded": 7, "files_written": 2, "bytes_written": 90}


def end(catalog: Catalog, name: str, kind: OperationKind, step: str, report: dict[str, Any]) -> None:
    """End an operation as a statement does, so long ago that no task reports it any more."""
    catalog.operations.begin(name, kind, TABLE)
    with catalog.operations.attempt(name, step) as attempt:
        catalog.operations.finish_job(name, step, attempt, report)
    with catalog.storage.write() as connection:
        for state in (OperationState.COMMITTED, OperationState.CLEANED):
            catalog.operations.advance(connection, name, state)
        times = {"created_at_ms": OperationRow.created_at_ms - 90_000}
        times["heartbeat_at_ms"] = OperationRow.heartbeat_at_ms - 70_000
        connection.execute(update(OperationRow).where(OperationRow.id == name).values(times))


@pytest.mark.parametrize(
    ("kind", "step", "report", "change", "counts", "metrics"),
    [
        ("append_rows", "load", LOADED, Change.LOADED, {"rows": 7, "files": 2, "bytes": 90}, {"loads", "rows_loaded"}),
        (
            "append_rows",
            "insert",
            {"rows": 4, "files": 1, "bytes": 9, "partitions_added": 1, "partitions_extended": 0},
            Change.LOADED,
            {"rows": 4, "files": 1, "bytes": 9, "partitions_added": 1, "partitions_extended": 0},
            {"loads", "rows_loaded", "partitions_added"},
        ),
        ("rebalance", "commit", {"rows_moved": 5}, Change.REBALANCED, {"rows_moved": 5}, {"rebalances", "rows_moved"}),
        (
            "migrate",
            "flip",
            {"rows": 3, "target": TABLE},
            Change.MIGRATED,
            {"rows": 3},
            {"migrations", "rows_migrated"},
        ),
        ("revert", "revert", {}, Change.REVERTED, {}, {"reverts"}),
    ],
)
def test_what_no_task_has_made_is_reported_like_what_a_task_makes(
    catalog: Catalog,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    step: str,
    report: dict[str, Any],
    change: Change,
    counts: dict[str, int],
    metrics: set[str],
) -> None:
    sent: dict[str, Any] = {}
    monkeypatch.setattr(stats, "incr", lambda name, number, tags: sent.update({name: (number, tags)}))
    monkeypatch.setattr(stats, "timing", lambda name, time, tags: sent.update({name: time}))
    with pytest.raises(AirflowSkipException, match="without a report"):
        FindOutcomesOperator(task_id="find").execute(context())
    end(catalog, "told", OperationKind(kind), step, report)
    assert FindOutcomesOperator(task_id="find").execute(context()) == ["told"]
    own, task = context(), ReportOutcomeOperator(task_id="report", operation="told")
    assert task.execute(own) == change
    events = cast("dict[str, Any]", own)["outlet_events"]
    assert events[change_asset(TABLE, change)].extra == {"operation": "told", **counts}
    assert [dataset.table for dataset in task.lineage.outputs] == [TABLE]
    duration = next(value for name, value in sent.items() if name.endswith("_duration"))
    assert timedelta(seconds=15) < duration < timedelta(seconds=25)
    assert {name.removeprefix("calve.") for name in sent if not name.endswith("_duration")} == metrics
    with pytest.raises(AirflowSkipException, match="was reported"):
        task.execute(context())
    with pytest.raises(AirflowSkipException, match="without a report"):
        FindOutcomesOperator(task_id="find").execute(context())
