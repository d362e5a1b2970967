"""Operations and approvals, in a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import unquote

import httpx
import pytest

from calve_airflow.pages.markdown import as_markup
from calve_airflow.pages.plans import change_of, progress_of, shown
from calve_airflow.submitting.job_process import JobProcess
from catalog import Catalog, NewPartition
from catalog.operations.dry_runs import keep_plan
from catalog.operations.records import OperationKind, OperationState
from catalog.rebalancing.requests import RebalanceRequest
from catalog.settings.compaction_rules import CompactionRules
from tests.plugins.pages.conftest import DELAYS
from tests.support.delays import make_delays
from tests.support.pages_server import PagesServer

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

DAG, VERIFY = "rebalance_partitions", "verify_partition_indexes"
TABLE = DELAYS
WRITE = "rewrite_partitions"
LOG = "wrote <b>every</b> file"
SPLIT = {"table": TABLE, "operation": "split", "partition_ids": [2], "items": ["15", "30"], "dry_run": False}


@pytest.fixture(scope="module")
def running(pages_catalog: Catalog, pages_server: PagesServer) -> Iterator[str]:
    """An operation of a run in Airflow, with a step that is running."""
    operation_id = f"{DAG}/{pages_server.start_run('op', DAG, SPLIT)}"
    change = RebalanceRequest.from_form(SPLIT).change
    plan = pages_catalog.rebalancing.plan(TABLE, change)
    pages_catalog.rebalancing.begin(operation_id, TABLE, change, fingerprint=plan.fingerprint, requested_by="op")
    process = JobProcess.in_new_folder(pages_server.folder / "jobs" / "operation", "write-")
    process.log_path.write_text(f"{LOG}\n")
    attempt = pages_catalog.operations.start_job(
        operation_id, WRITE, request={"table": TABLE}, log_path=str(process.log_path)
    )
    with pages_catalog.storage.write() as connection:
        connection.exec_driver_sql(f"UPDATE calve_job SET started_at_ms = started_at_ms - 10000 WHERE step = '{WRITE}'")
    pages_catalog.operations.heartbeat(operation_id, WRITE, attempt, done=100, total=300, note="rows")
    yield operation_id
    pages_catalog.operations.fail(operation_id, "CANCELLED", "the tests have ended")


def path_of(operation_id: str) -> str:
    return f"/calve/operation?{httpx.QueryParams(id=operation_id)}"


@pytest.mark.long
def test_a_running_operation_tells_its_progress_plan_steps_and_log(
    open_page: Callable[..., Page], running: str, pages_catalog: Catalog
) -> None:
    page = open_page(path_of(running))
    page.get_by_text(
        re.compile(r"Rewrite partitions: 100 of 300 rows, 33 %, (9.9|10) a second, about 20 s left")
    ).wait_for()
    planned = page.get_by_role("region", name="Partitions before and after")
    assert "2: 0 <= delay < 30" in planned.inner_text()
    assert "300 rows" in planned.inner_text()
    assert "→ 4: 0 <= delay < 15, 5: 15 <= delay < 30" in planned.inner_text()
    assert WRITE.replace("_", " ") in page.get_by_role("region", name="Steps").inner_text()
    assert page.locator("#log pre").inner_text().strip() == LOG
    pages_catalog.operations.heartbeat(running, WRITE, 1, done=150)
    page.get_by_text("150 of 300 rows").wait_for()
    link = page.get_by_role("link", name="commit", exact=True)
    assert unquote(link.get_attribute("href") or "") == f"/dags/{DAG}/runs/{running.partition('/')[2]}/tasks/commit"


@pytest.mark.long
def test_tasks_of_a_run_are_in_the_order_of_the_dag(open_page: Callable[..., Page], running: str) -> None:
    tasks = open_page(path_of(running)).locator("ul.tasks li a").all_inner_texts()
    assert tasks == ["plan", "approve", "rewrite", "verify", "commit", "summarise"]


@pytest.mark.long
def test_an_operation_is_found_by_its_run(open_page: Callable[..., Page], running: str) -> None:
    run_id = running.partition("/")[2]
    page = open_page(f"/calve/operation?{httpx.QueryParams(dag_id=DAG, run_id=run_id)}")
    page.get_by_role("heading", name=f"Rebalance: {TABLE}").wait_for()
    page.goto(page.url.replace(f"dag_id={DAG}", "dag_id=elsewhere"))
    page.get_by_text("There is no operation of this id").wait_for()


def test_a_run_that_failed_early_tells_why(open_page: Callable[..., Page], pages_server: PagesServer) -> None:
    run_id, reason = pages_server.start_run("op", DAG, SPLIT), "items is empty: <give> one split point"
    pages_server.fail_task(DAG, run_id, "plan", reason)
    pages_server.end_run(DAG, run_id, "failed")
    page = open_page(f"/calve/operation?{httpx.QueryParams(dag_id=DAG, run_id=run_id)}")
    page.get_by_text("The run failed before an operation of Calve began").wait_for()
    failed = page.locator("ul.tasks li", has_text="plan")
    assert failed.locator(".problem").inner_text() == reason
    assert page.locator("ul.tasks .problem").count() == 1


def test_only_tables_that_exist_are_links(open_page: Callable[..., Page], pages_catalog: Catalog) -> None:
    tables = ("shop.customers", "shop.nowhere", "default.(statements)")
    for table in tables:
        pages_catalog.operations.begin(f"run_statement/links/{table}", OperationKind.RUN_STATEMENT, table)
    page = open_page("/calve/operations?dag_id=run_statement/links")
    page.get_by_role("cell", name="default.(statements)", exact=True).wait_for()
    for table in tables:
        is_link = table == tables[0]
        assert page.get_by_role("link", name=table, exact=True).count() == is_link
    for table in tables[1:]:
        single = open_page(path_of(f"run_statement/links/{table}"))
        single.get_by_role("heading", name=f"Run statement: {table}").wait_for()
        assert single.get_by_role("link", name=table, exact=True).count() == 0


@pytest.mark.long
def test_several_operations_of_a_run_are_listed(open_page: Callable[..., Page], pages_catalog: Catalog) -> None:
    tables = ("shop.customers", "shop.orders")
    for table in tables:
        pages_catalog.operations.begin(f"import_tables/several/{table}", OperationKind.IMPORT_TABLE, table)
    page = open_page("/calve/operation?dag_id=import_tables&run_id=several")
    page.get_by_text("This run has 2 operations.").wait_for()
    page.get_by_role("link", name=f"import_tables/several/{tables[0]}").click()
    page.get_by_role("heading", name=f"Import table: {tables[0]}").wait_for()
    page = open_page("/calve/operations?dag_id=import_tables")
    assert page.get_by_role("link", name="import_tables/several/").count() == 2


@pytest.mark.long
def test_operations_are_filtered_as_one_types(open_page: Callable[..., Page], pages_catalog: Catalog) -> None:
    for table in ("shop.customers", "shop.orders"):
        pages_catalog.operations.begin(f"import_tables/filtered/{table}", OperationKind.IMPORT_TABLE, table)
    page = open_page("/calve/operations")
    page.get_by_label("Table").fill("Customer")
    page.get_by_role("link", name="import_tables/filtered/shop.orders").wait_for(state="detached")
    assert page.get_by_role("link", name="import_tables/filtered/shop.customers").is_visible()
    page.get_by_label("State").select_option("COMMITTED")
    page.get_by_text("None.").wait_for()
    dry_run = "import_tables/filtered/dry"
    keep_plan(pages_catalog.operations, dry_run, OperationKind.IMPORT_TABLE, "shop.customers", {})
    page.get_by_label("State").select_option("")
    page.get_by_role("link", name=dry_run).wait_for()
    page.get_by_label("State").select_option("FAILED")
    page.get_by_role("link", name=dry_run).wait_for(state="detached")


def test_logs_are_for_those_who_may_read_them_and_below_the_folder_of_jobs(
    pages_server: PagesServer, tokens: dict[str, str], pages_catalog: Catalog
) -> None:
    secret = pages_server.folder / "passwords.json"
    pages_catalog.operations.begin("log/secret", OperationKind.VERIFY_INDEX, "shop.orders")
    pages_catalog.operations.start_job("log/secret", "read", log_path=str(secret))
    headers = {"Authorization": f"Bearer {tokens['admin']}"}
    answer = httpx.get(f"{pages_server.url}/calve/operation/log?id=log/secret&step=read", headers=headers)
    assert answer.status_code == 200
    assert "does not see the log" in answer.text
    assert secret.read_text() not in answer.text
    missing = httpx.get(f"{pages_server.url}/calve/operation/log?id=log/secret&step=none", headers=headers)
    assert "has not started" in missing.text


def test_only_those_who_may_stop_runs_cancel_operations(
    open_page: Callable[..., Page], pages_server: PagesServer, tokens: dict[str, str], pages_catalog: Catalog
) -> None:
    operation_id = f"{VERIFY}/{pages_server.start_run('op', VERIFY, {})}"
    pages_catalog.operations.begin(operation_id, OperationKind.VERIFY_INDEX, "shop.orders", requested_by="op")
    refused = httpx.post(
        f"{pages_server.url}/calve/operation/cancel?{httpx.QueryParams(id=operation_id)}",
        headers={"Authorization": f"Bearer {tokens['viewer']}"},
    )
    assert refused.status_code == 403
    assert open_page(path_of(operation_id), "viewer").get_by_role("button", name="Cancel…").count() == 0
    page = open_page(path_of(operation_id), "op")
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_role("button", name="Let it go on").click()
    assert page.get_by_role("dialog").count() == 0
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_role("button", name="Cancel the operation").click()
    page.get_by_text("cancelled by op in Airflow's UI").wait_for()
    cancelled = pages_catalog.operations.get(operation_id)
    assert (cancelled.state, cancelled.failure_code) == (OperationState.FAILED, "CANCELLED")
    # The page may have looked between the end of the operation and that of the run.
    page.get_by_text("of verify_partition_indexes: failed").wait_for()


QUESTION = """**op** requests

`ALTER TABLE shop.delays DROP PARTITION (2) WITH DATA`

**300 rows** would be deleted permanently:

- partition 2, `0 <= delay < 30`: 300 rows, 2.5 KiB

<img src=x onerror="document.title = 'attacked'">
"""


@pytest.fixture
def question(pages_server: PagesServer) -> str:
    """A question about a deletion that the user `op` wants; its run."""
    run_id = pages_server.start_run("op", DAG, {**SPLIT, "operation": "drop", "with_data": True})
    pages_server.ask(DAG, run_id, "Delete 300 rows of shop.delays?", QUESTION)
    return run_id


@pytest.mark.parametrize("answer", ["Approve", "Reject"])
def test_another_person_answers_a_question(
    open_page: Callable[..., Page], pages_server: PagesServer, tokens: dict[str, str], question: str, answer: str
) -> None:
    page = open_page("/calve/approvals", "admin")
    asked = page.locator(f"[data-run='{question}']")
    assert "partition 2, 0 <= delay < 30: 300 rows, 2.5 KiB" in asked.inner_text()
    assert "Asked by op" in asked.inner_text()
    assert page.title().startswith("Approvals")
    asked.get_by_role("button", name=answer).click()
    asked.wait_for(state="detached")
    row = page.get_by_role("region", name="Answered questions").locator("tbody tr").first
    assert [cell.split("\n")[0] for cell in row.locator("td").all_inner_texts()[:4]] == [
        "Delete 300 rows of shop.delays?",
        answer,
        "op",
        "admin",
    ]
    detail = httpx.get(
        f"{pages_server.url}/api/v2/dags/{DAG}/dagRuns/{question}/taskInstances/approve/-1/hitlDetails",
        headers={"Authorization": f"Bearer {tokens['admin']}"},
    ).json()
    assert (detail["chosen_options"], detail["responded_by_user"]["name"]) == ([answer], "admin")


@pytest.mark.long
def test_a_question_is_shown_when_the_worker_has_left_the_task(
    open_page: Callable[..., Page], pages_server: PagesServer
) -> None:
    run_id = pages_server.start_run("op", DAG, {**SPLIT, "operation": "drop", "with_data": True})
    pages_server.ask(DAG, run_id, "Delete these rows?", QUESTION, seconds_ago=-1)
    page = open_page("/calve/approvals")
    asked = page.locator(f"[data-run='{run_id}']")
    assert asked.count() == 0
    page.wait_for_timeout(5_000)
    page.reload()
    assert asked.count() == 1
    asked.get_by_role("button", name="Reject").click()
    asked.wait_for(state="detached")


def test_the_requester_and_viewers_cannot_approve(open_page: Callable[..., Page], question: str) -> None:
    own = open_page("/calve/approvals", "op").locator(f"[data-run='{question}']")
    assert "another person must approve it" in own.inner_text()
    assert own.get_by_role("button", name="Approve").is_disabled()
    assert own.get_by_role("button", name="Reject").is_enabled()
    seen = open_page("/calve/approvals", "viewer").locator(f"[data-run='{question}']")
    assert "300 rows" in seen.inner_text()
    assert seen.get_by_role("button", name="Approve").is_disabled()
    assert seen.get_by_role("button", name="Reject").is_disabled()


def test_an_approval_by_the_requester_is_shown_as_refused(
    pages_server: PagesServer, tokens: dict[str, str], question: str
) -> None:
    path = f"/api/v2/dags/{DAG}/dagRuns/{question}/taskInstances/approve/-1/hitlDetails"
    with httpx.Client(base_url=pages_server.url, headers={"Authorization": f"Bearer {tokens['op']}"}) as client:
        client.patch(path, json={"chosen_options": ["Approve"], "params_input": {}}).raise_for_status()
        for page in ("/calve/approvals", path_of(f"{DAG}/{question}")):
            assert "Approve (refused)" not in client.get(page).text
        pages_server.fail_task(DAG, question, "approve")
        for page in ("/calve/approvals", path_of(f"{DAG}/{question}")):
            assert "Approve (refused)" in client.get(page).text


@pytest.mark.parametrize(
    "text",
    ["<script>alert(1)</script>", "a <b>b</b>", "![x](https://elsewhere.example/x.png)", "[x](javascript:alert(1))"],
)
def test_questions_have_no_html_images_or_scripts(text: str) -> None:
    shown_as = str(as_markup(text))
    assert re.findall(r"<(script|b|img)\b", shown_as) == []
    assert 'href="javascript:' not in shown_as
    assert as_markup(None) == ""


def test_a_change_is_shown_before_and_after(catalog: Catalog) -> None:
    table = "demo.merged"
    make_delays(catalog, table)
    change = RebalanceRequest.from_form(
        {"table": table, "operation": "merge", "partition_ids": [1, 2], "dry_run": False}
    )
    catalog.rebalancing.change_catalog("merged", table, change.change)
    made = change_of(catalog, catalog.operations.get("merged"))
    assert made is not None
    assert made.is_made
    rows = [(part.before and part.before["rows"], part.after and part.after["rows"]) for part in made.parts]
    assert rows == [(200, None), (300, None), (None, 500)]
    assert made.largest == 500


@pytest.mark.long
def test_the_plan_of_a_dry_run_is_shown_and_leads_to_the_same_form(
    open_page: Callable[..., Page], pages_server: PagesServer, pages_catalog: Catalog
) -> None:
    form = {**SPLIT, "dry_run": True}
    run_id = pages_server.start_run("op", DAG, form)
    request = RebalanceRequest.from_form(form)
    plan = pages_catalog.rebalancing.plan_request(request)
    keep_plan(
        pages_catalog.operations, f"{DAG}/{run_id}", OperationKind.REBALANCE, TABLE, plan.as_json(), requested_by="op"
    )
    pages_server.end_run(DAG, run_id)
    page = open_page(f"/calve/operation?{httpx.QueryParams(dag_id=DAG, run_id=run_id)}", "op")
    page.get_by_role("heading", name="Plan of the dry run").wait_for()
    planned = page.get_by_role("region", name="Partitions before and after").inner_text()
    assert "2: 0 <= delay < 30" in planned
    assert "4: 0 <= delay < 15" in planned
    assert page.locator(".state").first.inner_text() == "DRY RUN"
    page.get_by_role("link", name="Open the same form without dry run").click()
    assert page.get_by_label("Bounds or groups").input_value() == "15\n30"
    assert not page.get_by_label("Dry run").is_checked()
    assert open_page("/calve/").get_by_text(run_id).count() == 0


def test_the_plan_of_a_compaction_has_files_before_and_after(catalog: Catalog) -> None:
    catalog.create_table("demo.small", columns=[("v", "int")], partition_keys=[("k", "int")])
    catalog.add_partitions("demo.small", [NewPartition(("1",), file_count=9, size_bytes=90)])
    plan = catalog.maintenance.plan_compaction("demo.small", CompactionRules(min_age=timedelta(0)))
    keep_plan(catalog.operations, "dry", OperationKind.COMPACT_PARTITIONS, "demo.small", plan.as_json())
    change = change_of(catalog, catalog.operations.get("dry"))
    assert change is not None
    (part,) = change.parts
    assert (part.name, part.before, part.after) == ("k=1", {"bytes": 90, "files": 9}, {"bytes": 90, "files": 1})
    assert (change.is_dry_run, change.measure, change.largest) == (True, "files", 9)


@pytest.mark.long
def test_the_page_of_a_run_has_its_questions_with_what_they_would_delete(
    open_page: Callable[..., Page], question: str
) -> None:
    page = open_page(path_of(f"{DAG}/{question}"), "viewer")
    page.get_by_text("Waits for an approval: Delete 300 rows of shop.delays?").wait_for()
    assert "partition 2, 0 <= delay < 30: 300 rows, 2.5 KiB" in page.locator(".question").inner_text()


def test_an_operation_without_a_running_step_has_no_progress(pages_catalog: Catalog) -> None:
    begun = pages_catalog.operations.begin("quiet", OperationKind.BUILD_INDEX, "shop.customers")
    assert progress_of(begun, ()) is None
    attempt = pages_catalog.operations.start_job("quiet", "build")
    (job,) = pages_catalog.operations.jobs_of("quiet")
    progress = progress_of(pages_catalog.operations.get("quiet"), [job])
    assert progress is not None
    assert (progress.per_second, progress.seconds_left, progress.percentage) == (None, None, None)
    pages_catalog.operations.finish_job("quiet", "build", attempt, {})
    assert progress_of(pages_catalog.operations.get("quiet"), pages_catalog.operations.jobs_of("quiet")) is None


def test_passwords_and_rows_of_statements_are_not_shown(pages_catalog: Catalog) -> None:
    request = {"statement": "ADD OPTIONS ('password' = 'p4ss''w')", "s3.secret-key": "p4ss", "table": "t"}
    operation = pages_catalog.operations.begin("hidden", OperationKind.RUN_STATEMENT, "shop.customers", request)
    assert "p4ss" not in json.dumps(shown(operation, operation.request))
    assert shown(operation, {"rows": [["p4ss"], ["x"]], "table": "t"}) == {"rows": "2", "table": "t"}
