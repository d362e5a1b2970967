"""Filters are explained, in a browser."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.plugins.pages.conftest import COUNTRIES, DAYS, DELAYS
from tests.support.pages_server import PagesServer

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

PATH = "/calve/tables/shop.orders/explain"
BOX = "Filter of partitions"


def figure(page: Page, name: str) -> Locator:
    return page.locator(".figure", has_text=name).locator("dd").first


@pytest.fixture
def page(open_page: Callable[..., Page]) -> Page:
    return open_page(PATH)


def test_the_plan_follows_what_is_typed(page: Page) -> None:
    assert figure(page, "Index").inner_text() == "none"
    assert figure(page, "Items read").inner_text() == str(len(COUNTRIES) * DAYS - 1)
    page.get_by_label(BOX).fill("day = '2024-01-05' and country in ('DE', 'FR')")
    page.get_by_text("answered by the index").wait_for()
    assert figure(page, "Index").inner_text() == "by_day"
    assert figure(page, "Items read").inner_text() == "2"
    assert page.get_by_role("img", name="2 ranges of the index by_day").locator(".read").count() == 2
    rows = page.get_by_role("region", name="Partitions").locator("tbody tr").all_inner_texts()
    assert [row.split("\t")[:3] for row in rows] == [["DE", "2024-01-05", "104"], ["FR", "2024-01-05", "104"]]
    assert "where=day" in page.url
    page.reload()
    assert figure(page, "Items read").inner_text() == "2"


def test_an_error_is_shown_at_its_place(page: Page) -> None:
    box = page.get_by_label(BOX)
    box.fill("country = 'DE' and dya > '2024'")
    page.get_by_role("alert").wait_for()
    assert page.locator(".place mark").inner_text() == "dya"
    assert "'dya' is not a partition key" in page.get_by_role("alert").inner_text()
    box.fill("country =")
    page.get_by_text("the end cannot be read").wait_for()
    box.fill("<b>x</b>")
    page.locator(".place", has_text="<b>x</b>").wait_for()


@pytest.mark.long
@pytest.mark.parametrize("where", ["day > '2024-01-10'", "country = 'DE' and day = '2024-01-10'"])
def test_labels_of_the_key_space_are_below_it(open_page: Callable[..., Page], where: str) -> None:
    page = open_page(f"{PATH}?{httpx.QueryParams(where=where)}", width=400)
    bar = page.locator(".space").bounding_box()
    assert bar is not None
    labels = [label for label in page.locator(".ticks span").all() if label.is_visible()]
    for box in [label.bounding_box() for label in labels]:
        assert box is not None
        assert bar["x"] - 1 <= box["x"]
        assert box["x"] + box["width"] <= bar["x"] + bar["width"] + 1
    assert len(labels) > 1


def options(page: Page) -> list[str]:
    listed = page.get_by_role("option")
    listed.first.wait_for()
    return [str(option.get_attribute("data-text")) for option in listed.all()]


@pytest.mark.long
def test_keys_operators_and_values_are_completed_by_keyboard(page: Page) -> None:
    box = page.get_by_label(BOX)
    box.press_sequentially("co")
    assert options(page) == ["country"]
    box.press("ArrowDown")
    assert box.get_attribute("aria-activedescendant") == "completion-0"
    box.press("Enter")
    assert box.input_value() == "country "
    assert options(page)[:3] == ["=", "in (", "between"]
    box.press("ArrowDown")
    box.press("ArrowDown")
    box.press("Tab")
    assert box.input_value() == "country in ("
    page.get_by_role("option", name="'DE'").wait_for()
    assert options(page) == ["'DE'", "'FR'", "'US'"]
    box.press_sequentially("'F")
    page.get_by_role("option", name="'DE'").wait_for(state="detached")
    page.get_by_role("option", name="'FR'").click()
    assert box.input_value() == "country in ('FR' "
    box.press_sequentially(") a")
    assert options(page) == ["and"]
    box.press("Escape")
    assert page.get_by_role("option").count() == 0
    box.fill("country in ('FR') and day >= '2024-01-0")
    page.get_by_role("option", name="'2024-01-03'").wait_for()
    assert options(page)[:2] == ["'2024-01-01'", "'2024-01-02'"]


@pytest.mark.long
def test_a_better_index_is_offered_to_those_who_may_build_it(open_page: Callable[..., Page]) -> None:
    query = httpx.QueryParams(where="country = 'DE' and day >= '2024-01-11'")
    page = open_page(f"{PATH}?{query}", "user")
    days = DAYS - 10
    page.get_by_text(f"it would read {days} items instead of {days * len(COUNTRIES) - 1}").wait_for()
    button = page.get_by_role("link", name="Build by_country_day…")
    fields = parse_qs(urlsplit(button.get_attribute("href") or "").query)
    assert fields["table"] == ["shop.orders"]
    assert json.loads(fields["keys"][0]) == ["country", "day"]
    button.click()
    assert page.get_by_label("Name of the index").input_value() == "by_country_day"
    assert open_page(f"{PATH}?{query}", "viewer").get_by_role("link", name="Build by_country_day…").count() == 0
    nothing = open_page(f"{PATH}?where=day='2024-01-05'")
    assert nothing.get_by_text("would be better").count() == 0


@pytest.mark.parametrize(
    ("table", "text"), [(DELAYS, "has a partition scheme"), ("shop.customers", "no partition keys")]
)
def test_tables_without_partition_keys_say_so(
    pages_server: PagesServer, tokens: dict[str, str], table: str, text: str
) -> None:
    headers = {"Authorization": f"Bearer {tokens['viewer']}"}
    with httpx.Client(base_url=pages_server.url, headers=headers) as client:
        answer = client.get(f"/calve/tables/{table}/explain")
        assert answer.status_code == 200
        assert text in answer.text
        assert client.get("/calve/tables/shop.nothing/explain").status_code == 404
        assert client.get(f"/calve/tables/{table}/explain/values?key=id").json() == []
