"""The page on which partitions of a scheme are split, merged, dropped and added."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import httpx
import pytest

from catalog import Catalog
from tests.support.browser import serious_problems
from tests.support.pages_server import PagesServer

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

VISITS = "/calve/tables/demo.visits/studio"


def figure(page: Page, title: str) -> Locator:
    return page.locator("#plan .figure", has_text=title).locator("dd").first


def statement(page: Page) -> Locator:
    return page.locator("#plan .code")


def drag(page: Page, handle: Locator, steps: int) -> None:
    """Drag the handle of a split point by a number of points."""
    box = handle.bounding_box()
    assert box is not None
    last = int(handle.get_attribute("max") or 0)
    width = (box["width"] - 16) / last
    x, y = box["x"] + 8 + int(handle.input_value()) * width, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + steps * width / 2, y)
    page.mouse.move(x + steps * width, y)
    page.mouse.up()


def test_a_split_point_is_dragged_and_its_dry_run_is_beside_it(
    open_page: Callable[..., Page], pages_catalog: Catalog
) -> None:
    before = pages_catalog.get_table("demo.visits").scheme
    page = open_page(VISITS)
    page.get_by_label("Choose partition 3").check()
    point = page.get_by_label("Split point 1", exact=True)
    # A file begins there, so no row has to move.
    point.wait_for()
    assert point.input_value() == "2024-02-21"
    statement(page).get_by_text("SPLIT PARTITION (3) INTO ('2024-02-21', '2024-03-01')").wait_for()
    assert (figure(page, "Rows moved").inner_text(), figure(page, "Files reassigned").inner_text()) == ("0", "3")

    drag(page, page.get_by_label("Split point 1, on the strip"), -6)
    statement(page).get_by_text("INTO ('2024-02-15', '2024-03-01')").wait_for()
    assert point.input_value() == "2024-02-15"
    assert figure(page, "Rows moved").inner_text() == "6,000"
    assert (
        page.get_by_role("list", name="Parts")
        .locator("li")
        .first.inner_text()
        .startswith("2024-02-01 <= day < 2024-02-15")
    )
    assert pages_catalog.get_table("demo.visits").scheme == before


@pytest.mark.long
def test_the_page_of_a_table_leads_to_the_changes_of_its_partitions(open_page: Callable[..., Page]) -> None:
    page = open_page("/calve/tables/demo.visits/partitions")
    page.get_by_role("row", name="2024-02-01 <= day").get_by_role("link", name="Drop").click()
    statement(page).get_by_text("DROP PARTITION (3)").wait_for()
    assert page.get_by_label("Choose partition 3").is_checked()
    page.go_back()
    page.get_by_role("link", name="Split, merge, drop or add partitions").click()
    page.get_by_role("heading", name="Partitions of demo.visits").wait_for()


@pytest.mark.long
def test_split_points_are_moved_by_keys_typed_added_and_requested(open_page: Callable[..., Page]) -> None:
    page = open_page(f"{VISITS}?partition_ids=2")
    handle = page.get_by_label("Split point 1, on the strip")
    handle.wait_for()
    handle.focus()
    page.keyboard.press("ArrowLeft")
    statement(page).get_by_text("INTO ('2024-01-20', '2024-02-01')").wait_for()
    assert handle.get_attribute("aria-valuetext") == "2024-01-20"
    page.get_by_role("button", name="Another split point").click()
    page.get_by_label("Split point 2", exact=True).fill("2024-01-05")
    # Points are put in order.
    statement(page).get_by_text("INTO ('2024-01-05', '2024-01-20', '2024-02-01')").wait_for()
    with page.expect_navigation():
        page.get_by_role("link", name="Request this change…").click()
    assert page.get_by_label("Table").input_value() == "demo.visits"
    assert page.get_by_label("Operation").locator("option:checked").inner_text() == "split"
    assert page.get_by_label("Partition ids").input_value() == "2"
    assert page.get_by_label("Bounds or groups").input_value() == "2024-01-05\n2024-01-20\n2024-02-01"
    assert not page.get_by_label("Dry run").is_checked()


@pytest.mark.long
def test_what_does_not_fit_is_told_in_words(open_page: Callable[..., Page]) -> None:
    page = open_page(f"{VISITS}?partition_ids=2")
    page.get_by_label("Split point 1", exact=True).fill("2025-01-01")
    problem = page.locator("#plan .problem")
    problem.get_by_text(re.compile(r"^SPLIT PARTITION: bound .* is not greater")).wait_for()
    page.get_by_label("Split point 1", exact=True).fill("yesterday")
    problem.get_by_text("is not a date").wait_for()
    page.get_by_label("Merge").check()
    page.get_by_label("Partition ids").fill("2, 4")
    problem.get_by_text("partition 3 of day lies between").wait_for()
    page.get_by_label("Partition ids").fill("2, x")
    problem.get_by_text("partition_ids: is [2, 'x']").wait_for()


@pytest.mark.long
def test_partitions_are_merged_dropped_and_added(open_page: Callable[..., Page]) -> None:
    page = open_page(VISITS)
    page.get_by_label("Merge").check()
    page.get_by_label("Choose partition 2").check()
    page.get_by_label("Choose partition 3").check()
    statement(page).get_by_text("MERGE PARTITION (2, 3)").wait_for()
    page.get_by_label("Drop").check()
    statement(page).get_by_text("DROP PARTITION (2, 3)").wait_for()
    page.get_by_label("Delete their rows, too").check()
    page.get_by_text("38,000 rows would be deleted").wait_for()
    page.get_by_label("Add").check()
    page.get_by_label("New upper bound 1", exact=True).fill("2024-05-01")
    statement(page).get_by_text("ADD PARTITION ('2024-05-01')").wait_for()


@pytest.mark.long
def test_values_of_a_list_are_grouped(open_page: Callable[..., Page]) -> None:
    page = open_page("/calve/tables/demo.devices/studio?partition_ids=3")
    page.get_by_label("watch").fill("1")
    statement(page).get_by_text("SPLIT PARTITION (3) INTO ('(tv, watch)', 'car')").wait_for()


@pytest.mark.long
def test_hash_partitions_get_another_number(open_page: Callable[..., Page]) -> None:
    page = open_page("/calve/tables/demo.hits/studio")
    page.get_by_role("spinbutton", name="Number of partitions").fill("8")
    statement(page).get_by_text("SET PARTITION_NUM 8").wait_for()
    page.get_by_role("spinbutton", name="Number of partitions").fill("0")
    page.locator("#plan .problem", has_text="the number of hash partitions is 0; use 1 to").wait_for()
    assert page.get_by_role("checkbox").count() == 0
    page.get_by_role("link", name="bytes").click()
    page.locator("#bars [aria-current]", has_text="bytes").wait_for()


def test_tables_without_a_scheme_have_no_studio(pages_server: PagesServer, tokens: dict[str, str]) -> None:
    headers = {"Authorization": f"Bearer {tokens['viewer']}"}
    answer = httpx.get(f"{pages_server.url}/calve/tables/shop.orders/studio", headers=headers)
    assert answer.status_code == 400
    assert "has no partition scheme" in answer.text
    missing = httpx.get(f"{pages_server.url}/calve/tables/shop.nothing/studio/plan", headers=headers)
    assert missing.status_code == 404


@pytest.mark.long
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_plan_of_a_split_is_accessible_and_fits_narrow_screens(open_page: Callable[..., Page], dark: bool) -> None:
    page = open_page(f"{VISITS}?partition_ids=2", width=400, dark=dark)
    page.get_by_role("link", name="Request this change…").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert serious_problems(page) == []
