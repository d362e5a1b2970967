"""A walk through Calve's pages in a browser, over a running Airflow: each step shows it, and the catalog has it.

Two people do it: ann asks for what is done, and ben approves it. `CALVE_SCREENSHOTS` names a folder for pictures.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from catalog import Catalog, IndexState
from catalog.loading.quality_lists import QualityState
from catalog.operations.records import OperationKind, OperationState
from standalone.state import read_passwords
from tests.end_to_end.conftest import PEOPLE, SPLIT_ON_THE_WALK, WALKED, Run
from tests.support.browser import running_browser
from tests.support.delays import make_delays, read_delays, row_counts
from tests.support.walking import (
    BAD,
    DAMAGED,
    STORES,
    TEXTS,
    WAREHOUSE,
    Person,
    figure,
    make_warehouse,
    people,
    shows,
    write_orders,
)

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from standalone.stack import Stack

pytestmark = [
    *(pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)),
    pytest.mark.parametrize("stack", ["postgresql-shared"], indirect=True),
]

FILTER = "country = 'DE' and day >= '2024-05-02'"
"""For which an index on the days looks up so many values that another one is better."""
INDEX = "by_country_day"
BAD_PARTITION = f"country={BAD[0]}/day={BAD[1]}"
REASON = "the shop has taken the order back"


@dataclass(frozen=True)
class Walk:
    """What all steps use."""

    stack: Stack
    catalog: Catalog
    ann: Person
    ben: Person

    def run_of(self, operation_id: str) -> Run:
        """Return the run that an operation belongs to."""
        dag_id, _, run_id = operation_id.partition("/")
        return Run(self.stack.api, dag_id, run_id)


@pytest.fixture(scope="module")
def tables(stack: Stack, catalog: Catalog, start_dag: Callable[..., Run]) -> None:
    """The tables that the walk is about; a bad day of the orders is quarantined."""
    write_orders(stack.home / "landing" / "walk")
    load = start_dag(f"add_partitions.{WALKED}", {"dry_run": False})
    make_delays(catalog, SPLIT_ON_THE_WALK)
    make_warehouse(catalog)
    load.wait()


@pytest.fixture(scope="module")
def walk(stack: Stack, catalog: Catalog, tables: None) -> Iterator[Walk]:
    """Two people who are logged in, and what they look at."""
    passwords = read_passwords(stack.home)
    with running_browser() as browser, people(browser, stack.url, {name: passwords[name] for name in PEOPLE}) as opened:
        yield Walk(stack, catalog, *(opened[name] for name in PEOPLE))


def test_the_walk(walk: Walk) -> None:
    from_the_overview_to_a_table(walk)
    from_a_filter_to_the_index_that_answers_it(walk)
    from_a_split_point_to_an_approved_change(walk)
    from_a_board_to_a_warehouse_of_iceberg(walk)
    from_iceberg_back_to_hive(walk)
    from_quarantine_to_readers(walk)


def from_the_overview_to_a_table(walk: Walk) -> None:
    page, catalog = walk.ann.page, walk.catalog
    # Inside of Airflow's own page, from its navigation.
    page.goto("/")
    page.get_by_role("link", name="Calve").click()
    inside = page.frame_locator("iframe")
    inside.get_by_role("heading", name="Overview").wait_for()
    walk.ann.look("airflow")
    page.goto("/calve/")
    held = page.locator("li[data-state=QUARANTINED]", has_text=WALKED)
    assert held.inner_text() == f"1 partition of {WALKED} is quarantined"
    walk.ann.look("overview")
    page.get_by_role("link", name="Tables", exact=True).first.click()
    row = page.get_by_role("row", name=WALKED)
    counted = catalog.table_sizes()[catalog.get_table(WALKED).id]
    assert row.locator("td.number").all_inner_texts()[:3] == [
        str(counted.partitions),
        str(counted.files),
        str(counted.rows),
    ]
    walk.ann.look("tables")
    row.get_by_role("link", name=WALKED).click()
    page.get_by_role("heading", name=WALKED, exact=True).wait_for()
    assert index_row(page, "by_day").inner_text().split()[:3] == ["by_day", "day,", "country"]
    walk.ann.look("table")


def index_row(page: Page, name: str) -> Locator:
    return page.get_by_role("region", name="Partition indexes").get_by_role("row", name=re.compile(rf"^{name}\b"))


def from_a_filter_to_the_index_that_answers_it(walk: Walk) -> None:
    page, catalog = walk.ann.page, walk.catalog
    before = catalog.explain_partitions(WALKED, FILTER)
    assert before.index == "by_day"
    page.get_by_role("link", name="Explain").click()
    page.get_by_label("Filter of partitions").press_sequentially(FILTER)
    page.get_by_text(f"instead of {before.items_read}").wait_for()
    page.keyboard.press("Escape")
    # One of the partitions is quarantined.
    assert before.partitions_found == before.partitions_fetched - 1
    page.get_by_text("the others are quarantined").wait_for()
    walk.ann.look("explain")
    page.get_by_role("link", name=f"Build {INDEX}…").click()
    assert page.get_by_label("Name of the index").input_value() == INDEX
    walk.ann.look("build-form")
    operation_id = walk.ann.start()
    page.get_by_role("link", name=WALKED).click()
    row = index_row(page, INDEX)
    row.wait_for()
    walk.ann.look("building")
    # The page asks again by itself.
    row.get_by_text("ACTIVE").wait_for()
    walk.ann.look("built")
    assert catalog.get_partition_index(WALKED, INDEX).state is IndexState.ACTIVE
    walk.run_of(operation_id).wait()
    assert catalog.operations.get(operation_id).requested_by == "ann"
    page.get_by_role("link", name="Explain").click()
    page.get_by_label("Filter of partitions").fill(FILTER)
    after = catalog.explain_partitions(WALKED, FILTER)
    assert (after.index, after.partitions_found) == (INDEX, before.partitions_found)
    shows(figure(page, "Index"), INDEX)
    shows(figure(page, "Items read"), str(after.items_read))
    assert page.get_by_text("would be better").count() == 0
    walk.ann.look("explained")


def from_a_split_point_to_an_approved_change(walk: Walk) -> None:
    page, catalog = walk.ann.page, walk.catalog
    before, rows = row_counts(catalog, SPLIT_ON_THE_WALK), read_delays(catalog, SPLIT_ON_THE_WALK)
    page.goto(f"/calve/tables/{SPLIT_ON_THE_WALK}")
    page.get_by_role("link", name="Change partitions").click()
    page.get_by_label("Choose partition 2").check()
    page.get_by_label("Split point 1", exact=True).fill("15")
    page.locator("#plan .code", has_text="SPLIT PARTITION (2) INTO ('15', '30')").wait_for()
    shows(figure(page, "Rows moved"), str(before[2]))
    page.get_by_text("the run waits for the approval of another person").wait_for()
    walk.ann.look("studio")
    page.get_by_role("link", name="Request this change…").click()
    operation_id = walk.ann.start()
    question = page.get_by_role("link", name=f"Change the partitions of {SPLIT_ON_THE_WALK}?")
    question.wait_for()
    tasks = page.locator("ul.tasks li").all_inner_texts()
    assert tasks[:3] == ["plan success", "approve awaiting_input", "rewrite not scheduled"]
    walk.ann.look("waiting")
    question.click()
    own = page.locator("article.question", has_text=SPLIT_ON_THE_WALK)
    assert "another person must approve it" in own.inner_text()
    assert own.get_by_role("button", name="Approve").is_disabled()
    walk.ann.look("own-approval")
    assert catalog.operations.find(operation_id) is None
    approved_by_another(walk)
    page.get_by_text("Nothing waits for an approval.").wait_for()
    page.goto(f"/calve/operation?{urlencode({'id': operation_id})}")
    # The page asks again by itself.
    page.get_by_text(re.compile("^(COMMITTED|SUCCEEDED)$")).first.wait_for()
    walk.ann.look("split")
    walk.run_of(operation_id).wait()
    assert row_counts(catalog, SPLIT_ON_THE_WALK) == {0: 100, 1: 200, 4: 150, 5: 150, 3: 300}
    assert read_delays(catalog, SPLIT_ON_THE_WALK) == rows
    report = catalog.operations.get(operation_id).report["commit"]
    assert report["approved_by"] == "ben"
    page.goto(f"/calve/tables/{SPLIT_ON_THE_WALK}/studio")
    shown = page.get_by_role("region", name="Partitions").locator("tr[data-id='4'] td").all_inner_texts()
    assert [shown[1], shown[2], shown[3]] == ["4", "0 <= delay < 15", "150"]


def approved_by_another(walk: Walk) -> None:
    page = walk.ben.page
    page.goto("/calve/approvals")
    asked = page.locator("article.question", has_text=SPLIT_ON_THE_WALK)
    assert "Asked by ann" in asked.inner_text()
    assert "partition 2, 0 <= delay < 30: 300 of 300 rows" in asked.inner_text()
    walk.ben.look("approval")
    asked.get_by_role("button", name="Approve").click()
    asked.wait_for(state="detached")
    row = page.get_by_role("region", name="Answered questions").locator("tbody tr").first
    assert row.locator("td").all_inner_texts()[1:4] == ["Approve", "ann", "ben"]
    walk.ben.look("answered")


def from_a_board_to_a_warehouse_of_iceberg(walk: Walk) -> None:
    page, catalog = walk.ann.page, walk.catalog
    board = f"/calve/migrations?database={WAREHOUSE}"
    page.goto(board)
    assert total(page, "not looked at") == len(STORES) + 2
    walk.ann.look("board")
    page.get_by_role("button", name="Look at all").click()
    column(page, "not looked at").locator("li").first.wait_for(state="detached")
    # Only its footers tell that a table is damaged.
    assert (total(page, "ready"), total(page, "refused")) == (len(STORES) + 1, 1)
    assert "UnsupportedFormatError" in column(page, "refused").inner_text()
    page.get_by_label("Choose all").check()
    walk.ann.look("board-ticked")
    page.get_by_role("button", name="Migrate…").click()
    page.get_by_label("Dry run").first.uncheck()
    walk.ann.look("migrate-form")
    operation_id = walk.ann.start()
    # One after the other; the page asks again by itself.
    page.get_by_text(re.compile(r"This run has \d+ operations.")).wait_for()
    walk.ann.look("migrating")
    walk.run_of(operation_id).wait("failed")
    page.goto(board)
    assert (total(page, "Iceberg"), total(page, "refused"), total(page, "ready")) == (len(STORES), 2, 0)
    damaged, texts = sorted(column(page, "refused").locator("li").all_inner_texts())
    assert "empty.parquet" in damaged
    assert "empty.parquet" not in texts
    walk.ann.look("board-migrated")
    assert {name for name in [*STORES, DAMAGED, TEXTS] if catalog.get_table(name).is_iceberg} == set(STORES)
    for name in STORES:
        operation = catalog.operations.get(f"{operation_id}/{name}")
        assert (operation.state, operation.requested_by) == (OperationState.COMMITTED, "ann")
        assert (operation.report["flip"]["rows"], operation.report["verify"]["partitions"]) == (20, 2)


def column(page: Page, state: str) -> Locator:
    return page.locator(f"section[data-state='{state}']")


def total(page: Page, state: str) -> int:
    return int(column(page, state).locator(".total").inner_text())


def from_iceberg_back_to_hive(walk: Walk) -> None:
    page, catalog = walk.ann.page, walk.catalog
    name = STORES[3]
    column(page, "Iceberg").get_by_role("link", name=name.partition(".")[2]).click()
    page.get_by_text("a revert loses nothing").wait_for()
    counted = page.get_by_role("region", name="Rows that Hive and Iceberg read").locator("tbody tr")
    assert [row.split("\t") for row in counted.all_inner_texts()] == [
        [f"month={month}", "10", "10", "PASSED"] for month in (1, 2)
    ]
    walk.ann.look("migrated")
    page.get_by_role("link", name="Revert…").click()
    walk.run_of(walk.ann.start()).wait()
    page.goto(f"/calve/migrations?database={WAREHOUSE}")
    assert (total(page, "Iceberg"), total(page, "reverted")) == (len(STORES) - 1, 1)
    walk.ann.look("reverted")
    assert not catalog.get_table(name).is_iceberg
    assert [partition.row_count for partition in catalog.get_partitions(name)] == [10, 10]


def from_quarantine_to_readers(walk: Walk) -> None:
    page, catalog = walk.ann.page, walk.catalog
    (held,) = quarantined(catalog)
    where = f"country = '{BAD[0]}' and day = '{BAD[1]}'"
    assert (held.values, list(catalog.get_partitions(WALKED, where))) == (BAD, [])
    page.goto("/calve/quality?state=quarantined")
    assert "rows with amount below 0: 1, expected 0" in page.get_by_role("row", name=BAD_PARTITION).inner_text()
    page.get_by_label(f"Choose {BAD_PARTITION} of {WALKED}").check()
    page.get_by_role("button", name="Release…").click()
    dialog = page.get_by_role("dialog", name="Release quarantined partitions")
    dialog.get_by_label("Reason").fill(REASON)
    walk.ann.look("release")
    dialog.get_by_role("button", name="Release").click()
    page.get_by_text(f"Released 1 partition of {WALKED}.").wait_for()
    summary = page.get_by_role("region", name="Tables and their checks").get_by_role("row", name=WALKED)
    # Released and quarantined.
    shows(summary.locator("td:nth-child(4)"), "1")
    shows(summary.locator("td:nth-child(5)"), "0")
    walk.ann.look("released")
    assert quarantined(catalog) == []
    assert [partition.row_count for partition in catalog.get_partitions(WALKED, where)] == [5]
    (operation,) = catalog.operations.list(WALKED, kinds=[OperationKind.RELEASE_PARTITIONS])
    assert (operation.request["reason"], operation.requested_by) == (REASON, "ann")


def quarantined(catalog: Catalog) -> list[Any]:
    table = catalog.get_table(WALKED)
    return list(catalog.quality.list_partitions([QualityState.QUARANTINED], table_ids=[table.id]))
