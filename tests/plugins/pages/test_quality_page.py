"""The page of quality: verdicts, and the release of quarantined partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import httpx
import pytest

from catalog import Catalog
from catalog.loading.quality_lists import QualityState
from catalog.operations.records import OperationKind
from tests.support.browser import serious_problems
from tests.support.pages_server import PagesServer

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

NAME = "checked.events"


@pytest.mark.long
def test_partitions_that_failed_are_listed_with_what_was_found(open_page: Callable[..., Page]) -> None:
    page = open_page("/calve/quality")
    row = page.get_by_role("row", name="day=2024-05-04")
    assert row.locator("td").nth(3).inner_text() == "FAILED"
    assert "column amount: minimum: -4, expected at least 0" in row.inner_text()
    assert row.get_by_role("checkbox").count() == 0
    summary = page.get_by_role("region", name="Tables and their checks").get_by_role("row", name=NAME)
    summary.wait_for()
    assert summary.locator("td").nth(2).inner_text() == "3"


def test_failing_rows_are_for_those_who_may_load_the_table(open_page: Callable[..., Page]) -> None:
    page = open_page("/calve/quality", "user")
    page.get_by_text("2 failing rows").click()
    rows = page.get_by_role("region", name="Failing rows of day=2024-05-04: column amount: minimum")
    assert [row.inner_text().split() for row in rows.get_by_role("row").all()] == [
        ["id", "amount"],
        ["17", "-4"],
        ["<b>18</b>", "null"],
    ]
    assert serious_problems(page) == []
    page = open_page("/calve/quality", "viewer")
    page.get_by_text(f"Failing rows of {NAME} are shown to those who may start its loads.").wait_for()
    assert page.get_by_text("failing rows", exact=False).count() == 1
    assert "<b>18</b>" not in page.content()
    assert "&lt;b&gt;18" not in page.content()


@pytest.mark.long
def test_verdicts_are_filtered_by_table_and_state(open_page: Callable[..., Page]) -> None:
    page = open_page("/calve/quality")
    page.get_by_label("Partitions", exact=True).and_(page.locator("select")).select_option("passed")
    page.get_by_role("row", name="day=2024-05-01").wait_for()
    assert page.get_by_role("row", name="day=2024-05-04").count() == 0
    page.get_by_label("Table", exact=True).fill("nothing like that")
    page.get_by_text("No partition of these tables is in the state “passed”.").wait_for()


def test_a_quarantined_partition_is_released_with_a_reason(
    open_page: Callable[..., Page], pages_catalog: Catalog
) -> None:
    page = open_page("/calve/quality?state=quarantined")
    page.get_by_label(f"Choose day=2024-05-21 of {NAME}").check()
    page.get_by_role("button", name="Release…").click()
    dialog = page.get_by_role("dialog", name="Release quarantined partitions")
    assert dialog.locator(".names").inner_text() == f"{NAME} day=2024-05-21"
    assert serious_problems(page) == []
    # The browser asks for a reason before anything is sent.
    dialog.get_by_role("button", name="Release").click()
    assert dialog.is_visible()
    assert len(pages_catalog.quality.list_partitions([QualityState.QUARANTINED])) == 2
    dialog.get_by_label("Reason").fill("the customer has confirmed the amounts")
    dialog.get_by_role("button", name="Release").click()
    page.get_by_text(f"Released 1 partition of {NAME}.").wait_for()
    # The table below is counted again.
    summary = page.get_by_role("region", name="Tables and their checks").get_by_role("row", name=NAME)
    summary.locator("td:nth-child(4)", has_text="1").wait_for()
    assert page.get_by_role("row", name="day=2024-05-21").count() == 0
    assert page.get_by_role("row", name="day=2024-05-11").count() == 1
    (operation,) = pages_catalog.operations.list(NAME, kinds=[OperationKind.RELEASE_PARTITIONS])
    assert operation.request == {"reason": "the customer has confirmed the amounts", "partitions": 1}
    assert operation.requested_by == "admin"
    released = open_page("/calve/quality?state=released").get_by_role("row", name="day=2024-05-21")
    assert released.locator("td").nth(3).inner_text().split("\n") == [
        "RELEASED",
        "by admin: the customer has confirmed the amounts",
    ]
    assert [checked.values for checked in pages_catalog.quality.list_partitions([QualityState.QUARANTINED])] == [
        ("2024-05-11",)
    ]


def test_releases_without_a_reason_or_the_right_are_refused(
    pages_server: PagesServer, tokens: dict[str, str], pages_catalog: Catalog, open_page: Callable[..., Page]
) -> None:
    held = pages_catalog.quality.list_partitions([QualityState.QUARANTINED])
    fields = {"partition": f"{NAME}:{held[0].id}", "reason": "because"}

    def posted(role: str, **changes: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {tokens[role]}"}
        return httpx.post(f"{pages_server.url}/calve/quality/release", headers=headers, data={**fields, **changes})

    assert posted("viewer").status_code == 403
    assert "the DAG add_partitions" in posted("viewer").text
    missing = [{"reason": "  "}, {"partition": ""}, {"partition": "checked.events"}, {"partition": "x:1x"}]
    too_long = [{"reason": "r" * 501}, {"partition": f"{NAME}:{'9' * 5000}"}, {"partition": f"{NAME}:{'9' * 30}"}]
    for changes in (*missing, *too_long):
        refused = posted("admin", **changes)
        assert refused.status_code == 422, changes
        assert "Traceback" not in refused.text
    gone = posted("admin", partition="checked.gone:1")
    assert "checked.gone" in gone.text
    # A table's own DAG decides, however its name is written.
    assert "Released 0 partitions of checked.events" in posted("admin", partition="CHECKED.Events:1000000").text
    assert posted("admin", partition="a.b.c:1").status_code == 400
    assert pages_catalog.quality.list_partitions([QualityState.QUARANTINED]) == held
    page = open_page("/calve/quality", "viewer")
    assert page.get_by_role("checkbox").count() == 0
    assert page.get_by_text("You may not release them").is_visible()
