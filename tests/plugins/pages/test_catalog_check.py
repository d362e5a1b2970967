"""The overview shows what the last check of the catalog has found."""

from __future__ import annotations

import urllib.request

import pytest

from catalog.maintenance.findings import CatalogReport, Finding, FindingKind
from tests.support.pages_server import PagesServer

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]  # Airflow's own

LOST = Finding(FindingKind.MISSING_FILES, "shop.orders", 3, ("a.parquet", "b.parquet"), "Restore them from a backup")
HINT = Finding(FindingKind.SMALL_FILES, "shop.orders", 1, ("day=1",), "ALTER TABLE shop.orders COMPACT")


def shown(server: PagesServer, token: str) -> str:
    request = urllib.request.Request(f"{server.url}/calve/", headers={"Cookie": f"_token={token}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read().decode()
    return str(text[text.index('<section id="check">') :].partition("</section>")[0])


def test_the_overview_shows_the_last_check(pages_server: PagesServer, tokens: dict[str, str]) -> None:
    token = tokens["admin"]
    assert "has checked the catalog yet" in shown(pages_server, token)
    for findings, texts in (
        ((LOST, HINT), ("missing files", "a.parquet, b.parquet …", "Restore them from a backup", "1 hint")),
        ((HINT,), ("No read fails or is wrong.", "ALTER TABLE shop.orders COMPACT")),
        ((), ("4 tables checked: nothing was found.",)),
    ):
        run = pages_server.start_run("admin", "catalog_maintenance", {})
        report = CatalogReport(4, findings).as_json()
        pages_server.end_task("catalog_maintenance", run, "check_catalog", report)
        part = shown(pages_server, token)
        assert [text for text in texts if text not in part] == [], part
        assert f"run_id={run}" in part.replace("%3A", ":").replace("%2B", "+")
