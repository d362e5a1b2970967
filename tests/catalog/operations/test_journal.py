"""Operations and their jobs: idempotence, exclusivity, takeover and fencing; on each database."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from catalog import Catalog
from catalog.errors import (
    ConflictError,
    FencedError,
    OperationConflictError,
    OperationNotFoundError,
    OperationReusedError,
)
from catalog.operations.journal import Operations
from catalog.operations.records import LEASE_MS, SILENT_LEASE_MS, JobState, Operation, OperationKind, OperationState

pytestmark = pytest.mark.smoke

TABLE = "demo.t"


@pytest.fixture
def operations(catalog: Catalog) -> Operations:
    """The operations of a fresh catalog."""
    return catalog.operations


def begin(operations: Operations, name: str, table: str = TABLE, *, is_exclusive: bool = True) -> Operation:
    return operations.begin(name, OperationKind.ADD_PARTITIONS, table, {"source": name}, is_exclusive=is_exclusive)


def advance(catalog: Catalog, name: str, state: OperationState) -> None:
    with catalog.storage.write() as connection:
        catalog.operations.advance(connection, name, state)


def age(catalog: Catalog, name: str, milliseconds: int) -> None:
    """Age the heartbeat of an operation."""
    with catalog.storage.write() as connection:
        connection.exec_driver_sql(
            f"UPDATE calve_operation SET heartbeat_at_ms = heartbeat_at_ms - {milliseconds} WHERE id = '{name}'"
        )


def test_an_operation_is_journaled_as_it_was_asked_for(operations: Operations) -> None:
    begun = operations.begin(
        "run-1", OperationKind.BUILD_INDEX, "Demo.T", {"index": "i"}, is_exclusive=True, requested_by="ana"
    )
    assert begun == operations.get("run-1") == operations.find("run-1") == operations.find_by_number(begun.number)
    assert (begun.kind, begun.table, begun.state) == (OperationKind.BUILD_INDEX, TABLE, OperationState.PLANNED)
    assert (begun.request, begun.report, begun.requested_by) == ({"index": "i"}, {}, "ana")
    assert not begun.is_committed


def test_beginning_again_continues_the_same_operation(operations: Operations) -> None:
    first = begin(operations, "run-1")
    assert begin(operations, "run-1").number == first.number
    operations.start_job("run-1", "write")
    again = begin(operations, "run-1")
    assert (again.number, again.state) == (first.number, OperationState.RUNNING)
    assert len(operations.list()) == 1


@pytest.mark.parametrize("state", list(OperationState))
def test_an_id_is_not_used_for_another_request(catalog: Catalog, state: OperationState) -> None:
    operations = catalog.operations
    request = {"statement": "SHOW DATABASES"}
    operations.begin("run-1", OperationKind.RUN_STATEMENT, TABLE, request, is_fixed=True)
    if state is OperationState.FAILED:
        operations.fail("run-1", "KILLED", "killed")
    elif state is not OperationState.PLANNED:
        for step in (OperationState.RUNNING, OperationState.COMMITTED, OperationState.CLEANED):
            advance(catalog, "run-1", step)
            if step is state:
                break
    before = operations.get("run-1")
    for kind, table, other in (
        (OperationKind.VERIFY_INDEX, TABLE, request),
        (OperationKind.RUN_STATEMENT, "demo.u", request),
        (OperationKind.RUN_STATEMENT, TABLE, {"statement": "SHOW TABLES"}),
    ):
        with pytest.raises(
            OperationReusedError, match=r"run-1 was started for another request, run_statement of .*demo\.t"
        ):
            operations.begin("run-1", kind, table, other, is_fixed=True)
    assert operations.get("run-1") == before
    assert operations.begin("run-1", OperationKind.RUN_STATEMENT, TABLE, request, is_fixed=True).number == before.number


def test_the_latest_operations_come_first(operations: Operations) -> None:
    for name, table in (("a", "demo.t"), ("b", "demo.u"), ("c", "demo.t")):
        begin(operations, name, table, is_exclusive=False)
    assert [operation.id for operation in operations.list()] == ["c", "b", "a"]
    assert [operation.id for operation in operations.list("DEMO.T", limit=1)] == ["c"]
    assert operations.find("d") is None
    with pytest.raises(OperationNotFoundError, match="no operation d"):
        operations.get("d")


# --- exclusivity ----------------------------------------------------------------------------------------------------


def test_two_exclusive_operations_do_not_work_on_one_table(operations: Operations) -> None:
    begin(operations, "run-1", "demo.t")
    with pytest.raises(OperationConflictError, match="run-1") as refused:
        begin(operations, "run-2", "DEMO.T")
    assert refused.value.retryable
    assert operations.find("run-2") is None
    begin(operations, "run-3", "demo.u")
    begin(operations, "run-4", "demo.t", is_exclusive=False)


@pytest.mark.parametrize(
    "end",
    [
        lambda catalog: catalog.operations.fail("run-1", "CANCELLED", "by hand"),
        lambda catalog: advance(catalog, "run-1", OperationState.COMMITTED),
        lambda catalog: advance(catalog, "run-1", OperationState.CLEANED),
    ],
)
def test_a_table_is_free_when_its_operation_has_ended(catalog: Catalog, end: Callable[[Catalog], None]) -> None:
    begin(catalog.operations, "run-1")
    catalog.operations.start_job("run-1", "write")
    end(catalog)
    assert begin(catalog.operations, "run-2").state is OperationState.PLANNED


def test_an_abandoned_operation_fails_when_the_next_begins(catalog: Catalog) -> None:
    operations = catalog.operations
    begin(operations, "run-1")
    attempt = operations.start_job("run-1", "write")
    operations.heartbeat("run-1", "write", attempt)
    age(catalog, "run-1", LEASE_MS - 5_000)
    with pytest.raises(OperationConflictError):
        begin(operations, "run-2")
    age(catalog, "run-1", 5_000)
    begin(operations, "run-2")

    abandoned = operations.get("run-1")
    assert (abandoned.state, abandoned.failure_code) == (OperationState.FAILED, "ABANDONED")
    with pytest.raises(FencedError):
        operations.heartbeat("run-1", "write", attempt)


def test_an_attempt_without_a_heartbeat_keeps_its_table_for_a_day(catalog: Catalog) -> None:
    operations = catalog.operations
    begin(operations, "run-1")
    operations.start_job("run-1", "write")
    age(catalog, "run-1", SILENT_LEASE_MS - 5_000)
    with pytest.raises(OperationConflictError, match="run-1"):
        begin(operations, "run-2")
    age(catalog, "run-1", 5_000)
    begin(operations, "run-2")
    assert operations.get("run-1").failure_code == "ABANDONED"


@pytest.mark.parametrize("touch", ["heartbeat", "begin", "start_job"])
def test_whoever_touches_an_operation_keeps_its_table(catalog: Catalog, touch: str) -> None:
    operations = catalog.operations
    begin(operations, "run-1")
    attempt = operations.start_job("run-1", "write")
    age(catalog, "run-1", LEASE_MS + 1)
    if touch == "heartbeat":
        operations.heartbeat("run-1", "write", attempt)
    elif touch == "begin":
        begin(operations, "run-1")
    else:
        operations.start_job("run-1", "write")
    with pytest.raises(OperationConflictError, match="run-1"):
        begin(operations, "run-2")


def test_an_operation_that_was_cancelled_cannot_go_on_beside_the_one_in_its_place(catalog: Catalog) -> None:
    operations = catalog.operations
    begin(operations, "run-1")
    operations.start_job("run-1", "write")
    age(catalog, "run-1", SILENT_LEASE_MS + 1)
    begin(operations, "run-2")
    operations.start_job("run-2", "write")

    for go_on in (lambda: operations.start_job("run-1", "write"), lambda: begin(operations, "run-1")):
        with pytest.raises(OperationConflictError, match="run-2"):
            go_on()
    advance(catalog, "run-2", OperationState.COMMITTED)
    assert begin(operations, "run-1").state is OperationState.PLANNED
    assert operations.start_job("run-1", "write") == 2


# --- states ---------------------------------------------------------------------------------------------------------


def test_the_states_of_an_operation_follow_its_work(catalog: Catalog) -> None:
    operations = catalog.operations
    begin(operations, "run-1")
    operations.start_job("run-1", "write")
    assert operations.get("run-1").state is OperationState.RUNNING
    for state in (OperationState.COMMITTED, OperationState.COMMITTED, OperationState.CLEANED):
        advance(catalog, "run-1", state)
        assert operations.get("run-1").state is state
        assert operations.get("run-1").is_committed


@pytest.mark.parametrize(
    ("reached", "wanted"),
    [
        ([], OperationState.COMMITTED),
        ([OperationState.RUNNING, OperationState.COMMITTED], OperationState.RUNNING),
        ([OperationState.RUNNING, OperationState.COMMITTED], OperationState.FAILED),
        ([OperationState.RUNNING, OperationState.CLEANED], OperationState.PLANNED),
        ([OperationState.RUNNING, OperationState.FAILED], OperationState.COMMITTED),
    ],
)
def test_other_changes_of_state_are_refused(
    catalog: Catalog, reached: list[OperationState], wanted: OperationState
) -> None:
    begin(catalog.operations, "run-1")
    for state in reached:
        advance(catalog, "run-1", state)
    with pytest.raises(ConflictError, match=f"cannot become {wanted}"):
        advance(catalog, "run-1", wanted)
    assert catalog.operations.get("run-1").state is (reached or [OperationState.PLANNED])[-1]


def test_a_failed_operation_keeps_its_reason_until_it_is_begun_again(operations: Operations) -> None:
    begin(operations, "run-1")
    operations.fail("run-1", "SOURCE", "line 7: \0")
    failed = operations.get("run-1")
    assert (failed.state, failed.failure_code) == (OperationState.FAILED, "SOURCE")
    assert failed.failure_detail == r"line 7: \x00"
    operations.fail("run-1", "OTHER", "later")
    assert operations.get("run-1").failure_code == "SOURCE"
    again = begin(operations, "run-1")
    assert (again.state, again.failure_code, again.failure_detail) == (OperationState.PLANNED, None, None)


def test_a_committed_operation_can_no_longer_fail(catalog: Catalog) -> None:
    begin(catalog.operations, "run-1")
    catalog.operations.start_job("run-1", "write")
    advance(catalog, "run-1", OperationState.COMMITTED)
    catalog.operations.fail("run-1", "LATE", "too late")
    assert catalog.operations.get("run-1").state is OperationState.COMMITTED
    assert begin(catalog.operations, "run-1").state is OperationState.COMMITTED


# --- jobs -----------------------------------------------------------------------------------------------------------


def test_only_the_latest_attempt_gets_its_request(operations: Operations) -> None:
    begin(operations, "run-1")
    request = {"table": "demo.flights", "keys": [["z", "int"], ["a", "int"]], "b": 1, "a": 2}
    first = operations.start_job("run-1", "write", request=request)
    assert json.loads(operations.job_request("run-1", "write", first)) == {**request, "attempt": first}
    second = operations.start_job("run-1", "write")
    for attempt, reason in ((first, f"the latest attempt is {second}"), (second, "it was started without one")):
        with pytest.raises(FencedError, match=rf"attempt {attempt} at step write of operation run-1 .*: {reason}"):
            operations.job_request("run-1", "write", attempt)
    with pytest.raises(FencedError, match=r"step read of operation run-1 .*: it was never started"):
        operations.job_request("run-1", "read", 1)
    with pytest.raises(OperationNotFoundError):
        operations.job_request("run-2", "write", 1)


def test_a_job_reports_through_its_row(operations: Operations) -> None:
    begin(operations, "run-1")
    assert operations.get_job("run-1", "write") is None
    attempt = operations.start_job("run-1", "write", log_path="/logs/1")
    started = operations.get_job("run-1", "write")
    assert started is not None
    assert (started.attempt, started.state, started.log_path, started.is_alive) == (
        *(attempt, JobState.SUBMITTED, "/logs/1", True),
    )

    operations.heartbeat("run-1", "write", attempt, done=3, total=7, note="partitions")
    operations.heartbeat("run-1", "write", attempt, done=4)
    operation = operations.get("run-1")
    assert (operation.progress_done, operation.progress_total, operation.progress_note) == (4, 7, "partitions")
    running = operations.get_job("run-1", "write")
    assert running is not None
    assert running.state is JobState.RUNNING

    operations.finish_job("run-1", "write", attempt, {"rows": 12})
    finished = operations.get_job("run-1", "write")
    assert finished is not None
    assert (finished.state, finished.result, finished.is_alive) == (JobState.SUCCEEDED, {"rows": 12}, False)
    assert operations.get("run-1").report == {"write": {"rows": 12}}


def test_a_failed_job_tells_why_and_the_next_attempt_starts_afresh(operations: Operations) -> None:
    begin(operations, "run-1")
    operations.heartbeat("run-1", "write", operations.start_job("run-1", "write"), done=3, total=7)
    operations.fail_job("run-1", "write", 1, "SourceFileError", "line 7: \0, \ud800")
    failed = operations.get_job("run-1", "write")
    assert failed is not None
    assert (failed.state, failed.error_class) == (JobState.FAILED, "SourceFileError")
    # What no database can store is told by its number.
    assert failed.error_message == r"line 7: \x00, \ud800"
    assert operations.get("run-1").state is OperationState.RUNNING

    assert operations.start_job("run-1", "write") == 2
    started = operations.get_job("run-1", "write")
    assert started is not None
    assert (started.state, started.error_class, started.error_message) == (JobState.SUBMITTED, None, None)
    assert operations.get("run-1").progress_done == 0


def test_each_step_counts_its_own_attempts(operations: Operations) -> None:
    begin(operations, "run-1")
    assert [operations.start_job("run-1", step) for step in ("validate", "write", "write")] == [1, 1, 2]


def fence_by_a_new_attempt(operations: Operations) -> None:
    operations.start_job("run-1", "write")


def fence_by_failing_the_job(operations: Operations) -> None:
    operations.fail_job("run-1", "write", 1, "KILLED", "by hand")


def fence_by_failing_the_operation(operations: Operations) -> None:
    operations.fail("run-1", "CANCELLED", "by hand")


def fence_by_failing_and_beginning_again(operations: Operations) -> None:
    operations.fail("run-1", "CANCELLED", "by hand")
    begin(operations, "run-1")
    operations.start_job("run-1", "validate")


def fence_by_another_request(operations: Operations) -> None:
    operations.begin("run-1", OperationKind.ADD_PARTITIONS, TABLE, {"source": "elsewhere"}, is_exclusive=True)


@pytest.mark.parametrize(
    "fence",
    [
        fence_by_a_new_attempt,
        fence_by_failing_the_job,
        fence_by_failing_the_operation,
        fence_by_failing_and_beginning_again,
        fence_by_another_request,
    ],
)
def test_a_fenced_attempt_can_neither_report_nor_commit(catalog: Catalog, fence: Callable[[Operations], None]) -> None:
    operations = catalog.operations
    begin(operations, "run-1")
    attempt = operations.start_job("run-1", "write")
    operations.heartbeat("run-1", "write", attempt, done=1)
    fence(operations)
    before = operations.get_job("run-1", "write"), operations.get("run-1")

    with pytest.raises(FencedError, match=rf"attempt {attempt} at step write of operation run-1"):
        operations.heartbeat("run-1", "write", attempt, done=9)
    with pytest.raises(FencedError):
        operations.finish_job("run-1", "write", attempt, {"rows": 1})
    for hold in (True, False):
        with pytest.raises(FencedError), catalog.storage.write() as connection:
            operations.guard(connection, "run-1", "write", attempt, hold=hold)
    operations.fail_job("run-1", "write", attempt, "LATE", "too late")
    assert (operations.get_job("run-1", "write"), operations.get("run-1")) == before


def test_an_attempt_that_has_ended_cannot_commit_again(catalog: Catalog) -> None:
    begin(catalog.operations, "run-1")
    attempt = catalog.operations.start_job("run-1", "write")
    catalog.operations.finish_job("run-1", "write", attempt, {"rows": 1})
    with pytest.raises(FencedError):
        catalog.operations.finish_job("run-1", "write", attempt, {"rows": 2})
    assert catalog.operations.get("run-1").report == {"write": {"rows": 1}}


def test_an_error_takes_a_guarded_commit_back_with_its_report(catalog: Catalog) -> None:
    operations = catalog.operations
    begin(operations, "run-1")
    attempt = operations.start_job("run-1", "write")

    def commit_and_stumble() -> None:
        with catalog.storage.write() as connection:
            operations.finish_job("run-1", "write", attempt, {"rows": 1}, connection=connection)
            operations.advance(connection, "run-1", OperationState.COMMITTED)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        commit_and_stumble()
    assert operations.get("run-1").state is OperationState.RUNNING
    assert operations.get("run-1").report == {}
    operations.heartbeat("run-1", "write", attempt)


def test_the_jobs_of_many_steps_are_read_together(operations: Operations) -> None:
    for name in ("run-1", "run-2"):
        operations.begin(name, OperationKind.VERIFY_INDEX, TABLE)
        operations.start_job(name, "verify", log_path=f"/jobs/{name}/log")
    operations.finish_job("run-1", "verify", 1, {"is_exact": True})
    operations.start_job("run-2", "other")
    jobs = operations.get_jobs([("run-1", "verify"), ("run-2", "verify"), ("run-1", "other"), ("run-3", "verify")])
    assert jobs == {
        ("run-1", "verify"): operations.get_job("run-1", "verify"),
        ("run-2", "verify"): operations.get_job("run-2", "verify"),
    }
    assert operations.get_jobs([]) == {}


def test_the_steps_of_an_operation_are_read_in_their_order(operations: Operations) -> None:
    begin(operations, "run-1")
    with pytest.raises(OperationNotFoundError):
        operations.jobs_of("run-2")
    assert operations.jobs_of("run-1") == []
    for step in ("write", "check"):
        operations.finish_job("run-1", step, operations.start_job("run-1", step), {"step": step})
    written, checked = operations.jobs_of("run-1")
    assert [written.step, checked.step] == ["write", "check"]
    assert written.started_at_ms is not None
    assert checked.started_at_ms is not None
    assert written.started_at_ms <= written.heartbeat_at_ms <= checked.started_at_ms <= checked.heartbeat_at_ms


def test_loads_that_only_check_files_are_no_failures_to_attend_to(operations: Operations) -> None:
    for name, is_dry in (("dry", True), ("wet", False)):
        request = {"settings": {"request": {"dry_run": is_dry}}}
        operations.begin(name, OperationKind.ADD_PARTITIONS, TABLE, request)
        operations.fail(name, "RUN_FAILED", "a file has a bad line")
    operations.begin("other", OperationKind.BUILD_INDEX, TABLE, {"index": "i"})
    assert [found.id for found in operations.list(with_dry_runs=False)] == ["other", "wet"]
    assert [found.id for found in operations.list()] == ["other", "wet", "dry"]


def test_failures_after_which_the_same_has_ended_again_are_overcome(catalog: Catalog, operations: Operations) -> None:
    def end(name: str, table: str, kind: OperationKind, *, succeeds: bool) -> None:
        operations.begin(name, kind, table)
        if succeeds:
            for state in (OperationState.RUNNING, OperationState.COMMITTED):
                advance(catalog, name, state)
        else:
            operations.fail(name, "RUN_FAILED", "a file has a bad line")

    load, build = OperationKind.ADD_PARTITIONS, OperationKind.BUILD_INDEX
    end("overcome", "shop.a", load, succeeds=False)
    end("of another kind", "shop.a", build, succeeds=False)
    end("of another table", "shop.b", load, succeeds=False)
    end("succeeded", "shop.a", load, succeeds=True)
    end("first after it", "shop.a", load, succeeds=False)
    end("last", "shop.a", load, succeeds=False)
    operations.begin("dry", load, "shop.a", {"settings": {"request": {"dry_run": True}}})
    operations.fail("dry", "RUN_FAILED", "a file has a bad line")
    failed = operations.list(states=[OperationState.FAILED], with_overcome=False, with_dry_runs=False)
    assert [operation.id for operation in failed] == ["last", "of another table", "of another kind"]
    assert [found.id for found in operations.list(with_overcome=False, kinds=[load], table="shop.a")] == [
        "dry",
        "last",
        "succeeded",
    ]


def test_the_operations_of_a_run_are_found_by_its_id(operations: Operations) -> None:
    ids = ["dag/run", "dag/run/shop.a", "dag/run/shop.b", "dag/run2", "dag/run2/shop.a", "Dag/run/shop.a", "dag_x/run"]
    for number, name in enumerate(ids):
        begin(operations, name, f"demo.t{number}")

    def found(within: str) -> set[str]:
        return {operation.id for operation in operations.list(within=within)}

    assert found("dag/run") == {"dag/run", "dag/run/shop.a", "dag/run/shop.b"}
    assert found("dag") == {name for name in ids if name.startswith("dag/")}
    assert found("dag/run%") == set()


def test_the_page_of_a_job_is_that_of_its_spark_application(operations: Operations) -> None:
    begin(operations, "run-1")
    attempt = operations.start_job("run-1", "write")
    operations.heartbeat("run-1", "write", attempt, spark_application="local-1", spark_ui="http://host:4040")
    operations.heartbeat("run-1", "write", attempt)
    (job,) = operations.jobs_of("run-1")
    assert job.spark_page(None) == "http://host:4040"
    assert job.spark_page("http://history") == "http://history/history/local-1"
    operations.finish_job("run-1", "write", attempt, {})
    (job,) = operations.jobs_of("run-1")
    assert (job.spark_page(None), job.spark_page("http://history")) == (None, "http://history/history/local-1")
    operations.start_job("run-1", "write")
    assert operations.jobs_of("run-1")[0].spark_page("http://history") is None
