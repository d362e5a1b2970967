"""The checks of a table with their trend, and the pages of Data Docs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import httpx
import pytest

from catalog import Catalog
from catalog.loading.quality_pages import QualityPages
from catalog.operations.records import OperationKind
from tests.support.pages_server import PagesServer

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

TABLE = "shop.customers"
STYLE = "body { color: rgb(1, 2, 3) }"


@pytest.fixture(scope="module")
def pages(pages_catalog: Catalog, pages_server: PagesServer) -> QualityPages:
    """Two checks of a table, of which the second has failed and has a page."""
    pages = QualityPages(str(pages_server.home / "quality"))
    pages.add_assets("0a", {"style.css": STYLE.encode()})
    html = '<link rel="stylesheet" href="../assets/0a/style.css"><p>counted</p>'
    for number, failed in enumerate([0, 1]):
        run = f"add_partitions/checked-{number}"
        operation = pages_catalog.operations.begin(run, OperationKind.ADD_PARTITIONS, TABLE)
        page = pages.write(TABLE, operation.number, run, html) if failed else None
        report = {"checked": 4, "failed": failed, "failures": ["day=1: row_count: 0, expected 1"][:failed]}
        with pages_catalog.operations.attempt(run, "quality") as attempt:
            pages_catalog.quality.record(run, "quality", attempt, [], {**report, "docs_path": page, "row_count": 10})
    return pages


@pytest.mark.long
def test_checks_are_listed_with_their_trend_and_report(open_page: Callable[..., Page], pages: QualityPages) -> None:
    page = open_page(f"/calve/tables/{TABLE}/quality")
    assert page.locator(".trend .words").all_inner_texts() == ["4 of 4 passed", "3 of 4 passed"]
    assert page.get_by_text("day=1: row_count: 0, expected 1").is_visible()
    page.get_by_role("link", name="Data Docs").click()
    report = page.frame_locator("iframe.report")
    report.get_by_text("counted").wait_for()
    colour = report.locator("body").evaluate("body => getComputedStyle(body).color")
    assert colour == "rgb(1, 2, 3)"


def test_only_pages_are_served_and_to_users_who_are_logged_in(
    pages_server: PagesServer, tokens: dict[str, str], pages: QualityPages
) -> None:
    headers = {"Authorization": f"Bearer {tokens['viewer']}"}
    with httpx.Client(base_url=pages_server.url, headers=headers) as client:
        style = client.get("/calve/quality/pages/assets/0a/style.css")
        assert (style.status_code, style.text) == (200, STYLE)
        policy = style.headers["content-security-policy"]
        assert ("default-src 'none'" in policy, "script-src" in policy) == (True, False)
        assert (policy.startswith("sandbox"), "allow-scripts" in policy) == (True, False)
        assert style.headers["cache-control"] == "no-store"
        for path in ("../airflow.cfg", "%2e%2e/airflow.cfg", "shop.customers/none.html", "assets/0a/complete/../../x"):
            assert client.get(f"/calve/quality/pages/{path}").status_code in (401, 404)
        # A client normalises dots, unless they are written as %2e or %2f.
        for path in ("assets/0a/..%2f..%2f..%2fpasswords.json", "assets/0a/%2e%2e/%2e%2e/%2e%2e/airflow.cfg"):
            assert client.get(f"/calve/quality/pages/{path}").status_code == 404
        del client.headers["Authorization"]
        assert client.get("/calve/quality/pages/assets/0a/style.css").status_code == 401
