"""The regular maintenance, and its summary."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException
from sqlalchemy import update

from calve_airflow.operators.approval import Question
from calve_airflow.operators.maintenance import (
    CHECK,
    CLEAR,
    EXPIRE,
    VACUUM,
    CheckCatalogOperator,
    ClearFailedBuildsOperator,
    ExpireOperationsOperator,
    SummariseMaintenanceOperator,
    VacuumOperator,
    maintenance_question,
)
from calve_airflow.submitting.job_process import JobProcess
from catalog import Catalog
from catalog.errors import FilesNotDeletedError
from catalog.indexes import building
from catalog.operations.records import LEASE_MS, OperationKind
from catalog.settings.environment import jobs_folder
from catalog.storage.schema import ApprovalRow, OperationRow, TableRow
from tests.support.written_files import Load, data_files, hashed_table, known, on_disk


class Pushed(dict[str, Any]):
    """The XComs of a task."""

    def xcom_push(self, key: str, value: Any) -> None:
        self[key] = value


def context(**form: Any) -> Context:
    fields = {"dry_run": False, "grace_hours": 24, "retention_days": 90, **form}
    run = SimpleNamespace(triggering_user_name="asker", dag_id="catalog_maintenance", run_id="run")
    return cast(Context, {"dag_run": run, "params": fields, "ti": Pushed()})


def approve(**form: Any) -> Question | None:
    """Return the approval question of a run with this form, and approve it."""
    with Catalog.open() as catalog:
        asked = maintenance_question(catalog, context(**form))
        catalog.approvals.record("catalog_maintenance/run", asked.keys if asked else [], "boss")
        return asked


def vacuum(dry_run: bool, grace_hours: float) -> dict[str, Any]:
    """Return the XCom of a vacuum, also of one that fails."""
    given = context()
    try:
        return VacuumOperator(task_id=VACUUM, grace_hours=grace_hours, is_dry_run=dry_run).execute(given)
    except FilesNotDeletedError:
        (report,) = cast(Pushed, given["ti"]).values()
        return cast(dict[str, Any], report)


def expire(dry_run: bool, retention_days: float) -> dict[str, Any]:
    operator = ExpireOperationsOperator(task_id=EXPIRE, retention_days=retention_days, is_dry_run=dry_run)
    return operator.execute(context())


def test_job_logs_are_kept_as_long_as_operations(catalog: Catalog) -> None:
    processes = [JobProcess.in_new_folder(jobs_folder() / "operation", "step-") for _ in range(2)]
    for process, days in zip(processes, (89, 91), strict=True):
        process.log_path.touch()
        age_seconds = timedelta(days=days).total_seconds()
        os.utime(process.log_path, (time.time() - age_seconds,) * 2)
    expire(True, 90)
    assert all(process.is_visible for process in processes)
    expire(False, 90)
    assert [process.is_visible for process in processes] == [True, False]


def run(*, dry_run: bool = False, grace_hours: float = 0) -> dict[str, Any]:
    """Run the tasks, and return their results."""
    approve(dry_run=dry_run, grace_hours=grace_hours)
    return {
        VACUUM: vacuum(dry_run, grace_hours),
        EXPIRE: expire(dry_run, 90),
        CLEAR: ClearFailedBuildsOperator(task_id=CLEAR, is_dry_run=dry_run).execute(context()),
        CHECK: CheckCatalogOperator(task_id=CHECK).execute(context()),
    }


def summarise(planned: dict[str, Any]) -> tuple[list[dict[str, Any]], str | None]:
    """Return the rows of the summary, and its error."""
    pushed = Pushed()
    operator = SummariseMaintenanceOperator(task_id="summarise", operation_id="run", planned=planned)
    failure = None
    try:
        operator.execute(cast(Context, {"ti": SimpleNamespace(xcom_push=pushed.xcom_push)}))
    except AirflowFailException as error:
        failure = str(error)
    (rows,) = pushed.values()
    return rows, failure


@pytest.fixture
def littered(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """A catalog with obsolete files and records of each kind."""
    table = hashed_table(catalog)
    Load(catalog, table, "one").run()
    Load(catalog, table, "two").run(retired=data_files(catalog, table))
    Load(catalog, table, "dead").begin().write()
    catalog.operations.begin("latest", OperationKind.VERIFY_INDEX, "demo.flights")
    catalog.operations.heartbeat("dead", "load", catalog.operations.start_job("dead", "load"))
    with catalog.storage.write() as connection:
        connection.execute(
            update(OperationRow)
            .where(OperationRow.id == "dead")
            .values(heartbeat_at_ms=OperationRow.heartbeat_at_ms - LEASE_MS)
        )
    with monkeypatch.context() as patch:
        patch.setattr(building, "clear_ended", lambda *_: None)
        catalog.create_partition_index("demo.flights", "by_month", ["month"])
        catalog.build_partition_index("demo.flights", "by_month")
    return catalog


def test_a_short_grace_time_asks_with_the_files_and_operations_that_would_go(littered: Catalog) -> None:
    report = littered.vacuum(grace=timedelta(0), dry_run=True)
    files = report.total.retired_files + report.total.orphan_files + report.total.metadata_files
    asked = approve(grace_hours=0, retention_days=0)
    assert asked is not None
    assert files > 0
    assert f"**{files:,} files**" in asked.body
    assert [line for line in asked.body.splitlines() if line.startswith("- `demo.")]
    removed = littered.maintenance.expire_operations(older_than=timedelta(0), dry_run=True).removed
    assert f"**{removed:,} operations** would be deleted" in asked.body


def test_what_is_cleared_away_is_said_table_by_table(littered: Catalog) -> None:
    would, _ = summarise(run(dry_run=True))
    returned = run()
    rows, failure = summarise(returned)
    assert failure is None
    said = [(row["task"], row["table"], row["outcome"]) for row in rows]
    (vacuumed, abandoned, cleared) = said
    assert vacuumed[:2] == ("vacuum", "demo.h")
    assert vacuumed[2].startswith("deleted: ")
    assert abandoned == ("expire_operations", None, "ended, because it is abandoned: dead")
    assert cleared == ("clear_failed_builds", "demo.flights", "leftovers of partition index by_month")
    assert [row["outcome"].replace("would be ", "") for row in would] == [row["outcome"] for row in rows]
    table = littered.get_table("demo.h")
    assert on_disk(table.location) == known(littered, table)


def test_there_may_be_nothing_to_do(catalog: Catalog) -> None:
    assert summarise(run(grace_hours=24)) == ([], None)


def test_what_cannot_be_deleted_fails_the_run_with_its_reason(catalog: Catalog) -> None:
    hashed_table(catalog, "demo.far")
    with catalog.storage.write() as connection:
        connection.execute(update(TableRow).values(location="nowhere://host/t"))
    rows, failure = summarise(run())
    assert failure is not None
    assert failure.startswith("3 of 3 failed: demo.far: ")
    assert "nowhere://host/t could not be vacuumed" in failure
    assert rows[0]["outcome"] in failure


def test_a_vacuum_that_cannot_reach_files_fails_and_is_retried(catalog: Catalog) -> None:
    hashed_table(catalog, "demo.far")
    with catalog.storage.write() as connection:
        connection.execute(update(TableRow).values(location="nowhere://host/t"))
    task = VacuumOperator(task_id=VACUUM, grace_hours=24, is_dry_run=False)
    with pytest.raises(FilesNotDeletedError, match=r"nowhere://host/t could not be vacuumed") as error:
        task.execute(context())
    assert not isinstance(error.value, AirflowFailException)


@pytest.mark.parametrize("task", [VACUUM, CHECK])
def test_a_task_that_failed_fails_the_run(catalog: Catalog, task: str) -> None:
    _, failure = summarise({**run(), task: None})
    assert failure == f"1 of 1 failed: {task} failed; see its log"


def test_findings_are_returned_and_do_not_fail_the_run(catalog: Catalog) -> None:
    results = run()
    assert {finding["kind"] for finding in results[CHECK]["findings"]} == {
        "PARTITION_WITHOUT_FOLDER",
        "UNKNOWN_COUNTS",
    }
    assert summarise(results) == ([], None)


def test_a_vacuum_without_the_usual_grace_waits_for_a_person(littered: Catalog) -> None:
    assert approve(dry_run=True, grace_hours=0) is None
    assert approve() is None
    before = on_disk(littered.get_table("demo.h").location)
    for _ in range(2):
        with pytest.raises(AirflowFailException, match="is not approved"):
            vacuum(False, 0)
        asked = approve(grace_hours=1)
        assert asked is not None
        assert asked.subject == "Delete replaced files after 1 hours?"
    assert on_disk(littered.get_table("demo.h").location) == before


def test_an_approval_does_not_count_for_what_came_after_it(littered: Catalog) -> None:
    littered.operations.begin("ended", OperationKind.VERIFY_INDEX, "demo.flights")
    littered.operations.fail("ended", "TEST", "ended")
    approve(grace_hours=0, retention_days=0)
    with littered.storage.write() as connection:
        connection.execute(update(ApprovalRow).values(approved_at_ms=ApprovalRow.approved_at_ms - 60_000))
    before = on_disk(littered.get_table("demo.h").location)
    vacuum(False, 0)
    assert on_disk(littered.get_table("demo.h").location) == before
    assert expire(False, 0)["removed"] == 0
    approve(grace_hours=0, retention_days=0)
    vacuum(False, 0)
    assert on_disk(littered.get_table("demo.h").location) != before
    assert expire(False, 0)["removed"] > 0


def test_a_journal_kept_shorter_than_usual_waits_for_a_person(catalog: Catalog) -> None:
    catalog.operations.begin("ended", OperationKind.VERIFY_INDEX, "demo.flights")
    catalog.operations.fail("ended", "TEST", "ended")
    for _ in range(2):
        with pytest.raises(AirflowFailException, match="is not approved"):
            expire(False, 0)
        approve(retention_days=1)
    assert catalog.operations.find("ended") is not None
    asked = approve(retention_days=0)
    assert asked is not None
    assert asked.subject == "Delete ended operations after 0 days?"
    assert expire(False, 0)["removed"] == 1


@pytest.mark.usefixtures("empty_catalog")
def test_a_template_that_gave_a_string_is_refused() -> None:
    """Which is true in Python, whatever it says: the run would delete nothing, and succeed."""
    arguments: dict[str, Any] = {"is_dry_run": "False"}
    for task in (
        VacuumOperator(task_id=VACUUM, grace_hours=24, **arguments),
        ExpireOperationsOperator(task_id=EXPIRE, retention_days=90, **arguments),
        ClearFailedBuildsOperator(task_id=CLEAR, **arguments),
    ):
        with pytest.raises(AirflowFailException, match=r"is_dry_run.*'False' is neither true nor false"):
            task.execute(context())
