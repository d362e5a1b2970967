"""Links from Airflow's own pages of tasks to Calve's pages, and back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx
import pytest

from catalog import Catalog
from catalog.operations.records import OperationKind
from tests.support.pages_server import PagesServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

LOAD = "add_partitions"
FORM = {"table": "shop.orders", "source": "/nowhere", "keys": ["country string", "day date"]}


@pytest.fixture(scope="module")
def run_id(pages_server: PagesServer, pages_catalog: Catalog) -> str:
    """A run that loads a table, with its operation."""
    run_id = pages_server.start_run("admin", LOAD, FORM)
    pages_catalog.operations.begin(f"{LOAD}/{run_id}", OperationKind.ADD_PARTITIONS, "shop.orders")
    return run_id


def links_of(server: PagesServer, token: str, dag_id: str, run_id: str, task_id: str) -> dict[str, Any]:
    path = f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}/taskInstances/{task_id}/links"
    answer = httpx.get(f"{server.url}{path}", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 200, answer.text
    links: dict[str, Any] = answer.json()["extra_links"]
    return links


@pytest.mark.parametrize(
    ("task_id", "table"), [("discover", None), ("check_quality", "shop.orders"), ("write", None), ("announce", None)]
)
def test_each_task_links_to_its_operation_and_a_check_to_its_verdicts(
    pages_server: PagesServer, tokens: dict[str, str], run_id: str, task_id: str, table: str | None
) -> None:
    links = links_of(pages_server, tokens["viewer"], LOAD, run_id, task_id)
    operation = f"/plugin/calve/calve/operation?dag_id={LOAD}&run_id={quote(run_id, safe='')}"
    assert links["Calve operation"] == operation
    assert links["Calve quality"] == (table and f"/plugin/calve/calve/quality?table={table}")
    assert links.get("Spark application") is None


def test_runs_are_found_by_addresses_with_a_plain_plus(
    pages_server: PagesServer, tokens: dict[str, str], run_id: str
) -> None:
    assert "+" in run_id
    headers = {"Authorization": f"Bearer {tokens['viewer']}"}
    answer = httpx.get(f"{pages_server.url}/calve/operation?dag_id={LOAD}&run_id={run_id}", headers=headers)
    assert "Add partitions: shop.orders" in answer.text


@pytest.mark.long
def test_links_lead_from_a_task_to_its_operation_and_back(
    browser: Browser, pages_server: PagesServer, tokens: dict[str, str], run_id: str
) -> None:
    # Not `open_page`: Airflow's own page of a task asks for things that are not there.
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.add_cookies([{"name": "_token", "value": tokens["viewer"], "url": pages_server.url}])
    page = context.new_page()
    page.goto(f"{pages_server.url}/dags/{LOAD}/runs/{quote(run_id, safe='')}/tasks/discover/details")
    page.get_by_role("link", name="Calve operation").click()
    frame = page.frame_locator("iframe")
    frame.get_by_role("heading", name="Add partitions: shop.orders").wait_for()
    frame.get_by_role("link", name="discover", exact=True).click()
    page.wait_for_url(re.compile(r"/dags/add_partitions/runs/.*/tasks/discover"))
    context.close()


@pytest.mark.long
@pytest.mark.first_case
@pytest.mark.parametrize(
    ("place", "heading"),
    [
        ("", "Operations"),
        ("/tasks/discover", "Operations"),
        ("/runs/{run_id}", "Add partitions: shop.orders"),
        ("/runs/{run_id}/tasks/discover", "Add partitions: shop.orders"),
    ],
    ids=["dag", "task", "run", "task of a run"],
)
def test_dags_runs_and_tasks_have_a_tab_with_their_operations(
    browser: Browser, pages_server: PagesServer, tokens: dict[str, str], run_id: str, place: str, heading: str
) -> None:
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.add_cookies([{"name": "_token", "value": tokens["viewer"], "url": pages_server.url}])
    page = context.new_page()
    page.goto(f"{pages_server.url}/dags/{LOAD}{place.format(run_id=quote(run_id, safe=''))}")
    page.locator("a[href*='/plugin/calve-']", has_text="Calve").click()
    frame = page.frame_locator("iframe")
    frame.get_by_role("heading", name=heading, exact=True).wait_for()
    if heading == "Operations":
        frame.get_by_text(f"Of runs of {LOAD}.").wait_for()
    context.close()


def test_a_run_of_another_dag_has_no_operation(pages_server: PagesServer, tokens: dict[str, str]) -> None:
    run_id = pages_server.start_run("admin", "verify_partition_indexes", {})
    headers = {"Authorization": f"Bearer {tokens['viewer']}"}
    address = (
        f"{pages_server.url}/calve/operation?{httpx.QueryParams(dag_id='verify_partition_indexes', run_id=run_id)}"
    )
    assert "no operation of Calve belongs to it so far" in httpx.get(address, headers=headers).text
    pages_server.end_run("verify_partition_indexes", run_id)
    assert "No operation of Calve belongs to this run" in httpx.get(address, headers=headers).text
