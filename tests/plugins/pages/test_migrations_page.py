"""The board of migrations, and the page of a table's migration."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import httpx
import pytest

from catalog import Catalog
from catalog.partitions.changing import set_quarantined
from catalog.statements.model import RevertTable
from catalog.statements.parser import parse_statement
from catalog.statements.terms import TableReference
from tests.support.browser import serious_problems
from tests.support.iceberg_tables import append, make_orders
from tests.support.pages_samples import WAREHOUSE_TABLES
from tests.support.pages_server import PagesServer

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

BOARD = "/calve/migrations?database=warehouse"


def column(page: Page, state: str) -> Locator:
    return page.locator(f"section[data-state='{state}']")


def total(page: Page, state: str) -> int:
    return int(column(page, state).locator(".total").inner_text())


@pytest.mark.long
def test_a_warehouse_is_looked_at_and_two_tables_are_refused_with_reasons(open_page: Callable[..., Page]) -> None:
    page = open_page(BOARD)
    assert (total(page, "not looked at"), total(page, "Iceberg"), total(page, "reverted")) == (WAREHOUSE_TABLES, 1, 1)
    assert (total(page, "staged"), total(page, "verified")) == (1, 1)
    page.get_by_role("button", name="Look at all").click()
    column(page, "ready").locator("li").first.wait_for()
    column(page, "not looked at").locator("li").first.wait_for(state="detached")
    assert (total(page, "ready"), total(page, "refused")) == (WAREHOUSE_TABLES - 2, 2)
    reasons = column(page, "refused").locator(".reason").all_inner_texts()
    assert sorted(reason.partition(":")[0] for reason in reasons) == [
        "TransactionalTableError",
        "UnsupportedFormatError",
    ]
    assert column(page, "refused").get_by_role("checkbox").count() == 0
    assert serious_problems(page) == []


@pytest.mark.long
def test_refused_tables_are_looked_at_again(open_page: Callable[..., Page], pages_catalog: Catalog) -> None:
    pages_catalog.create_database("mended")
    try:
        make_orders(pages_catalog, "mended.orders")
        table = pages_catalog.get_table("mended.orders")
        ids = [partition.id for partition in pages_catalog.get_partitions("mended.orders")][:1]
        with pages_catalog.storage.write() as connection:
            set_quarantined(connection, table, ids, True)
        page = open_page("/calve/migrations?database=mended")
        page.get_by_role("button", name="Look at it").click()
        reason = column(page, "refused").locator(".reason").inner_text()
        assert reason.startswith("QuarantinedPartitionError")
        pages_catalog.release_partitions("mended.orders")
        page.get_by_role("button", name="Look again").click()
        column(page, "ready").locator("li").wait_for()
        assert total(page, "refused") == 0
    finally:
        pages_catalog.drop_database("mended", cascade=True)


@pytest.mark.long
def test_ticked_tables_are_in_the_form_of_the_dag(open_page: Callable[..., Page]) -> None:
    page = open_page(BOARD)
    chosen = ["warehouse.sales_00", "warehouse.sales_01"]
    for name in chosen:
        page.get_by_label(f"Choose {name}").check()
    # 40 and 55 files: 10 s to start for each, and the footers.
    assert page.locator(".ticked [role=status]").inner_text() == "2 tables: 95 files, 11.0 MiB, about 20 s"
    with page.expect_navigation():
        page.get_by_role("button", name="Migrate…").click()
    assert page.get_by_label("Tables").input_value().split("\n") == chosen
    assert page.get_by_label("Dry run").first.is_checked()


@pytest.mark.long
def test_all_tables_that_are_ready_are_ticked_at_once(open_page: Callable[..., Page]) -> None:
    page = open_page("/calve/migrations?database=checked")
    assert page.get_by_label("Choose all").count() == 0
    page.get_by_label("Database").select_option("warehouse")
    page.get_by_role("button", name="Look at all").or_(page.get_by_label("Choose all")).first.wait_for()
    if total(page, "not looked at"):
        page.get_by_role("button", name="Look at all").click()
    page.get_by_label("Choose all").check()
    assert page.locator(".ticked [role=status]").inner_text().startswith(f"{WAREHOUSE_TABLES - 2} tables: ")
    page.get_by_label("Choose all").uncheck()
    assert page.locator(".ticked").is_hidden()


@pytest.mark.long
def test_one_ticked_table_is_a_list_of_one(open_page: Callable[..., Page]) -> None:
    page = open_page("/calve/run/migrate_hive_to_iceberg?tables=warehouse.sales_00")
    assert page.get_by_label("Tables").input_value().split("\n") == ["warehouse.sales_00"]


@pytest.mark.long
def test_tables_are_filtered_by_name_and_state(open_page: Callable[..., Page]) -> None:
    page = open_page(BOARD)
    page.get_by_label("Table", exact=True).fill("sales_1")
    page.get_by_role("link", name="sales_00").wait_for(state="detached")
    page.get_by_label("State").select_option("Iceberg")
    page.get_by_text("No table is Iceberg.").wait_for()
    page.get_by_label("Table", exact=True).fill("")
    page.get_by_role("link", name="migrated").wait_for()
    page.get_by_label("Table", exact=True).fill("nothing like that")
    page.get_by_text("No Hive table has “nothing like that” in its name in warehouse.").wait_for()


@pytest.mark.long
def test_a_tables_page_shows_its_check_and_opens_the_form(open_page: Callable[..., Page]) -> None:
    page = open_page("/calve/tables/warehouse.sales_02")
    page.get_by_role("link", name="what a migration to Iceberg would do").click()
    page.get_by_role("button", name=re.compile("Look")).click()
    page.get_by_text("Nothing in the catalog prevents the migration.").wait_for()
    columns = page.get_by_role("region", name="Columns before and after")
    assert columns.locator("tr", has_text="timestamp").locator("td").all_inner_texts()[:3] == [
        "at",
        "timestamp",
        "timestamptz",
    ]
    with page.expect_navigation():
        page.get_by_role("link", name="Migrate…").click()
    assert page.get_by_label("Tables").input_value().split("\n") == ["warehouse.sales_02"]
    assert not page.get_by_label("Dry run").first.is_checked()


def reverted_by(page: Page, link: str) -> RevertTable:
    """Return the statement in the form that a link opens."""
    page.get_by_role("link", name=link).click()
    statement = page.get_by_label("Statement").input_value()
    parsed = parse_statement(statement)
    assert isinstance(parsed, RevertTable), statement
    return parsed


def test_a_migrated_table_shows_both_sides_and_can_be_reverted(
    open_page: Callable[..., Page], pages_catalog: Catalog
) -> None:
    page = open_page("/calve/migrations/warehouse.migrated")
    counted = page.get_by_role("region", name="Rows that Hive and Iceberg read").locator("tbody tr").first
    assert counted.locator("td").all_inner_texts() == ["country=nl/year=2024", "2", "2", "PASSED"]
    page.get_by_text("a revert loses nothing").wait_for()
    assert page.get_by_role("region", name="Snapshots").locator("tbody tr").count() == 1
    assert reverted_by(page, "Revert…") == RevertTable(table=TableReference("warehouse", "migrated"))
    # Another engine writes to the table: a revert would lose its rows.
    append(pages_catalog.storage.url.render_as_string(hide_password=False), [8, 9], "warehouse.migrated")
    page.goto(f"{page.url.partition('/calve')[0]}/calve/migrations/warehouse.migrated")
    page.get_by_text("2 row(s) in 1 file(s) added").wait_for()
    lossy = RevertTable(table=TableReference("warehouse", "migrated"), lose_data=True)
    assert reverted_by(page, "Revert, and lose what Iceberg has written…") == lossy


def test_only_those_who_may_start_the_dag_can_look(
    pages_server: PagesServer, tokens: dict[str, str], open_page: Callable[..., Page]
) -> None:
    for path in ("/calve/migrations/look", "/calve/migrations/warehouse.sales_03/look"):
        headers = {"Authorization": f"Bearer {tokens['viewer']}"}
        refused = httpx.post(f"{pages_server.url}{path}", headers=headers)
        assert refused.status_code == 403
        assert "migrate_hive_to_iceberg" in refused.text
        anonymous = httpx.post(f"{pages_server.url}{path}", headers={"Origin": pages_server.url})
        assert anonymous.status_code == 401
    page = open_page("/calve/migrations/warehouse.sales_03", "viewer")
    assert page.get_by_role("button", name=re.compile("Look")).is_disabled()
