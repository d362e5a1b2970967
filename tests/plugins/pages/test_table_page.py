"""The pages of tables of all kinds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from sqlalchemy import update

from catalog import Catalog, NewPartition
from catalog.storage.schema import PartitionRow, TableRow
from tests.support.browser import serious_problems
from tests.support.effort import sampled
from tests.support.pages_server import ROLES, PagesServer
from tests.support.table_kinds import KINDS, make_tables

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.long]

ORDERS = "/calve/tables/shop.orders"
TABS = {
    "Hive": ("", "/partitions", "/picture", "/files", "/operations"),
    "HASH scheme": ("", "/partitions", "/files", "/operations"),
    "RANGE scheme": ("", "/partitions", "/files", "/operations"),
    "LIST scheme": ("", "/partitions", "/files", "/operations"),
    "Iceberg": ("", "/files", "/operations"),
    "view": ("", "/operations"),
}
"""The tabs that tables of each kind have at least."""

SCHEMES = ("shop.hashed", "shop.ranged", "shop.listed")

LISTED = """tables:
  shop.orders:
    source: /data/landing/{{ ds }}/*.csv
    keys: {country: string, day: date}
    schedule: "@daily"
  shop.parts:
    source: /data/parts
    keys: {year: int, month: int, day: int}
"""


@pytest.fixture(scope="module")
def pages_catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    """A catalog with a table of each kind."""
    folder = tmp_path_factory.mktemp("kinds")
    with Catalog.initialise(f"sqlite:///{folder}/catalog.db", warehouse=str(folder / "lake")) as catalog:
        make_tables(catalog)
        yield catalog


@pytest.fixture(scope="module")
def pages_server(pages_catalog: Catalog, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PagesServer]:
    """The API server over these tables, two of which have an entry in the YAML list."""
    folder = tmp_path_factory.mktemp("kinds-server")
    Path(folder, "tables.yaml").write_text(LISTED)
    url = pages_catalog.storage.url.render_as_string(hide_password=False)
    with PagesServer(folder, url, {"CALVE_TABLES": str(folder / "tables.yaml")}) as server:
        yield server


@pytest.fixture(scope="module")
def tokens(pages_server: PagesServer) -> dict[str, str]:
    """A token of a user of each role."""
    return {role: pages_server.token(role) for role in ROLES}


@pytest.fixture
def get(pages_server: PagesServer, tokens: dict[str, str]) -> Iterator[Callable[..., httpx.Response]]:
    """A function that gets a page."""
    with httpx.Client(base_url=pages_server.url, timeout=30) as client:

        def page(path: str, user: str = "viewer", **headers: str) -> httpx.Response:
            return client.get(path, headers={"Authorization": f"Bearer {tokens[user]}", **headers})

        yield page


def cells(text: str) -> list[str]:
    """Return the texts of the first cells of a page's table rows."""
    return [re.sub(r"<[^>]+>", "", cell).strip() for cell in re.findall(r"<tr[^>]*>\s*<td[^>]*>(.*?)</td>", text, re.S)]


def test_tables_of_each_kind_show_what_they_have(get: Callable[..., httpx.Response]) -> None:
    for name, kind in KINDS.items():
        first = get(f"/calve/tables/{name}")
        assert f"<dd>{kind}</dd>" in first.text, name
        tabs = set(re.findall(rf'href="/calve/tables/{name}(/\w+)?"', first.text))
        assert tabs >= set(TABS[kind]) - {"/partitions", "/picture"}, name
        for tab in tabs:
            page = get(f"/calve/tables/{name}{tab}")
            assert page.status_code == 200, (name, tab, page.text)
            for part in re.findall(r'hx-get="([^"]+)" hx-trigger="load"', page.text):
                found = get(part.replace("&amp;", "&"), **{"hx-request": "true"})
                assert (found.status_code, "problem" in found.text) == (200, False), (name, part, found.text)
        for tab in {"/partitions", "/picture", "/files"} - tabs:
            missing = get(f"/calve/tables/{name}{tab}")
            assert missing.status_code == 404, (name, tab)
            assert name in missing.text


def test_each_page_says_that_counts_include_rows_in_delete_files(
    get: Callable[..., httpx.Response], pages_catalog: Catalog
) -> None:
    def set_delete_files(number: int) -> None:
        with pages_catalog.storage.write() as connection:
            of_tables = update(TableRow).where(TableRow.name.in_(("hashed", "stored")))
            connection.execute(of_tables.values(delete_file_count=number))

    tabs = {"hashed": ("", "/partitions", "/studio", "/files"), "stored": ("", "/partitions", "/picture", "/explain")}
    pages = [f"/calve/tables/shop.{name}{tab}" for name, found in tabs.items() for tab in found]
    told = "Row counts include the rows that are deleted in 2 delete files; readers do not see these rows."
    set_delete_files(2)
    assert [page for page in pages if told not in get(page).text] == []
    set_delete_files(0)
    assert [page for page in pages if "Row counts include" in get(page).text] == []


def test_the_overview_leaves_out_the_former_partitions_of_iceberg_tables(
    get: Callable[..., httpx.Response], pages_catalog: Catalog
) -> None:
    migrated = pages_catalog.get_table("shop.migrated").id
    with pages_catalog.storage.write() as connection:
        counts = {"file_count": 200, "row_count": 5, "size_bytes": 200}
        connection.execute(update(PartitionRow).where(PartitionRow.table_id == migrated).values(**counts))
    page = get("/calve/").text
    assert "without 2 Iceberg tables" in page
    assert "/calve/tables/shop.migrated/files" not in page


def test_buttons_open_forms_that_fit_the_table(get: Callable[..., httpx.Response]) -> None:
    def forms(name: str) -> dict[str, list[dict[str, str]]]:
        found: dict[str, list[dict[str, str]]] = {}
        for address in re.findall(r'href="/calve/run/([^"]+)"', get(f"/calve/tables/{name}").text):
            parts = urlsplit(address.replace("&amp;", "&"))
            found.setdefault(parts.path, []).append({key: values[0] for key, values in parse_qs(parts.query).items()})
        return found

    orders = forms("shop.orders")
    assert orders["add_partitions.shop.orders"] == [{"table": "shop.orders"}]
    assert {"table": "shop.orders", "index": "by_country", "keys": '["country"]'} in orders["build_partition_index"]
    assert orders["migrate_hive_to_iceberg"] == [{"tables": '["shop.orders"]', "dry_run": "true"}]
    statements = [form["statement"] for form in orders["run_statement"]]
    assert "DROP PARTITION INDEX `by_country` ON `shop`.`orders`" in statements
    for name, changes in (("hashed", {"set_partition_num"}), ("ranged", {"add", "split", "merge", "drop"})):
        assert [form["operation"] for form in forms(f"shop.{name}")["rebalance_partitions"]] == ["place"]
        studio = re.findall(r'href="/calve/tables/shop\.\w+/studio\?([^"]+)"', get(f"/calve/tables/shop.{name}").text)
        assert {parse_qs(query.replace("&amp;", "&"))["operation"][0] for query in studio} == changes
    assert forms("shop.stores")["add_partitions"] == [{"table": "shop.stores"}]
    assert set(forms("shop.migrated")) == {"add_partitions", "run_statement", "maintain_iceberg"}
    assert set(forms("shop.recent")) == {"run_statement"}


def test_indexes_show_progress_and_the_values_that_they_refuse(get: Callable[..., httpx.Response]) -> None:
    page = get(ORDERS).text
    assert 'data-state="CREATING"' in page
    assert "0 of 779 partitions" in page
    assert "<strong>DE / soon</strong>: key day: &#39;soon&#39; is no date" in page
    part = get(ORDERS, **{"hx-request": "true"}).text
    assert "<html" not in part
    assert "0 of 779 partitions" in part


def test_partitions_are_filtered_sorted_and_paged(get: Callable[..., httpx.Response]) -> None:
    path = f"{ORDERS}/partitions"
    assert cells(get(f"{path}?sort=country&order=asc").text)[:2] == ["DE", "DE"]
    assert cells(get(f"{path}?sort=country&order=desc").text)[0] == "US"
    largest = get(f"{path}?sort=rows").text
    assert "2023-11-30" in largest[largest.index("<tbody>") :][:400]
    filtered = get(f"{path}?where=country = 'FR' and day > '2024-02-01'&sort=day&order=asc").text
    assert set(cells(filtered)) == {"FR"}
    assert "2024-02-02" in filtered
    assert "page 1 of 8" in get(path).text
    assert len(cells(get(f"{path}?page=8").text)) == 79
    bad = get(f"{path}?only=bad").text
    assert len(cells(bad)) == 2
    assert bad.count('data-state="QUARANTINED">quarantined') == 2
    assert bad.count('data-state="FAILED">failed') == 2
    for wrong, message in (("x = 1", "&#39;x&#39; is not a partition key"), ("country =", "position")):
        refused = get(f"{path}?where={wrong}")
        assert refused.status_code == 200
        assert message in refused.text
        assert "<h1>shop.orders</h1>" in refused.text
    assert "cannot be sorted by" in get(f"{path}?sort=colour").text
    assert "No partition matches." in get(f"{path}?where=country = 'XX'").text
    assert "There are no partitions yet" in get("/calve/tables/shop.empty/partitions").text


def test_a_partition_shows_its_checks_and_its_files(get: Callable[..., httpx.Response], pages_catalog: Catalog) -> None:
    first = pages_catalog.get_partition("shop.orders", ("DE", "2023-10-01"))
    page = get(f"{ORDERS}/partition?id={first.id}")
    assert "country=DE/day=2023-10-01" in page.text
    assert "DROP+PARTITION+%28%60country%60%3D%27DE%27" in page.text
    listed = get(f"{ORDERS}/files/list?id={first.id}").text
    assert cells(listed) == ["part-0.parquet"]
    held = next(iter(pages_catalog.get_partitions("shop.orders", "country = 'FR' and day = '2024-03-01'", state=None)))
    assert "rows: 3, expected at least 100" in get(f"{ORDERS}/partition?id={held.id}").text
    assert get(f"{ORDERS}/partition?id=999999").status_code == 404
    assert len(cells(get("/calve/tables/shop.ranged/files/list?id=0").text)) == 3
    assert len(cells(get("/calve/tables/shop.ranged/files/list").text)) == 9


def picture(get: Callable[..., httpx.Response], name: str, query: str = "") -> dict[str, Any]:
    answer = get(f"/calve/tables/{name}/picture/data{query}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_pictures_have_days_or_groups(get: Callable[..., httpx.Response]) -> None:
    parts = picture(get, "shop.parts")
    assert parts["keys"] == ["year", "month", "day"]
    assert [day[0] for day in parts["days"] if day[2]] == ["2023-12-11", "2023-12-12", "2024-01-17"]
    stores = picture(get, "shop.stores")
    assert (stores["levels"], len(stores["groups"]), stores["has_more"]) == (2, 60, False)
    inside = picture(get, "shop.stores", f"?inside={json.dumps(['north'])}")
    assert (inside["levels"], len(inside["groups"]), inside["keys"]) == (1, 20, ["region", "store"])
    escaped = picture(get, "shop.stores", "?inside=" + json.dumps(["o'west\\"]))
    assert len(escaped["groups"]) == 19
    assert picture(get, "shop.stores", "?inside=[null]")["groups"][0][0] == ["59"]
    filtered = picture(get, "shop.orders", "?where=country = 'DE'")
    assert filtered["series"] == 1
    for wrong in ("?inside=x", '?inside=["a","b","c"]', "?inside=[1]"):
        assert get(f"/calve/tables/shop.stores/picture/data{wrong}").status_code == 422
    assert get(f"{ORDERS}/picture/data?where=x = 1").status_code == 400


@pytest.mark.long
def test_large_tables_are_shown_level_by_level(get: Callable[..., httpx.Response]) -> None:
    first = picture(get, "shop.many")
    assert (first["levels"], first["has_more"], len(first["groups"])) == (1, True, 6)
    second = picture(get, "shop.many", '?inside=["3"]')
    assert (second["levels"], second["has_more"], len(second["groups"])) == (1, False, 1000)


def test_gaps_are_seen_and_a_range_is_picked_with_mouse_and_keys(open_page: Callable[..., Page]) -> None:
    page = open_page(f"{ORDERS}/picture")
    whole = page.locator("button.day[data-state=missing]")
    whole.first.wait_for()
    assert [square.get_attribute("aria-label") for square in whole.all()] == [
        f"2023-12-{day}: no partition, 4 missing" for day in (30, 31)
    ]
    assert page.locator("button.day[data-lacking]").count() > 0
    assert page.locator("button.day[data-bad]").count() == 2
    start, end = (page.locator(f"button.day[aria-label^='2023-12-{day}']") for day in (29, 31))
    start.hover()
    page.mouse.down()
    end.hover()
    page.mouse.up()
    picked = page.locator(".picked")
    assert picked.locator("h3").inner_text() == "2023-12-29 to 2023-12-31"
    assert "8 missing" in picked.get_by_role("status").inner_text()
    assert page.locator("button.day[aria-pressed=true]").count() == 3
    end.press("Home")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("2023-10-01")
    for key in ("Enter", "Shift+ArrowDown", "Shift+ArrowRight"):
        page.keyboard.press(key)
    assert picked.locator("h3").inner_text() == "2023-10-01 to 2023-10-09"
    page.get_by_label("To").fill("2023-10-03")
    assert picked.locator("h3").inner_text() == "2023-10-01 to 2023-10-03"
    page.get_by_role("link", name="Show the partitions").click()
    page.wait_for_url("**/partitions?**")
    assert page.get_by_label("Filter").input_value() == "`day` between '2023-10-01' and '2023-10-03'"
    assert 10 <= page.locator("#partitions tbody tr").count() <= 12


def test_passwords_in_sources_are_not_shown(pages_server: PagesServer, get: Callable[..., httpx.Response]) -> None:
    listed = Path(pages_server.folder, "tables.yaml")
    listed.write_text(LISTED.replace("/data/parts", "s3://AKIA:p4ss@bucket/parts"))
    path = "/calve/tables/shop.parts/missing?first=2023-12-01&last=2023-12-31"
    try:
        text = get(path, "admin", **{"hx-request": "true"}).text
    finally:
        listed.write_text(LISTED)
    assert ("s3://***" in text, "p4ss" in text, "source=" in text) == (True, False, False)


@pytest.mark.long
def test_placeholders_such_as_9999_12_31_make_no_gaps(open_page: Callable[..., Page], pages_catalog: Catalog) -> None:
    name = "shop.placeholders"
    pages_catalog.create_table(name, columns=[("id", "bigint")], partition_keys=[("day", "date")])
    days = ["0001-01-01", "2024-01-30", "2024-01-31", "2024-02-02", "9999-12-31"]
    pages_catalog.add_partitions(name, [NewPartition((day,)) for day in days])
    try:
        page = open_page(f"/calve/tables/{name}/picture")
        page.locator("button.day").first.wait_for()
        assert page.locator(".year h3").all_inner_texts() == ["9999", "2024", "0001"]
        assert page.locator("button.day").count() == 6
        missing = page.locator("button.day[data-state=missing]")
        assert missing.get_attribute("aria-label") == "2024-02-01: no partition, 1 missing"
    finally:
        pages_catalog.drop_table(name)


def test_what_is_missing_is_loaded_by_a_backfill_or_by_days(
    open_page: Callable[..., Page], pages_server: PagesServer, tokens: dict[str, str]
) -> None:
    path = f"{ORDERS}/missing?first=2023-12-28&last=2024-01-01"
    viewer = open_page(path, "viewer")
    viewer.get_by_role("button", name="Backfill").wait_for()
    assert viewer.get_by_role("button", name="Backfill").is_disabled()
    page = open_page(path)
    page.get_by_role("region", name="Missing partitions").wait_for()
    assert page.get_by_role("region", name="Missing partitions").locator("tbody tr").count() >= 8
    page.get_by_role("link", name="Load 2023-12-30").click()
    assert page.get_by_text("The run is the one of 2023-12-30.").is_visible()
    assert page.get_by_label("Table", exact=True).input_value() == "shop.orders"
    with page.expect_navigation():
        page.get_by_role("button", name="Start").click()
    page.goto(f"{pages_server.url}{path}")
    page.get_by_role("button", name="Backfill").click()
    page.get_by_text("The backfill has begun").wait_for()
    dag, headers = "add_partitions.shop.orders", {"Authorization": f"Bearer {tokens['admin']}"}
    with httpx.Client(base_url=f"{pages_server.url}/api/v2", headers=headers) as client:
        (backfill,) = client.get("/backfills", params={"dag_id": dag}).json()["backfills"]
        assert (backfill["from_date"][:10], backfill["max_active_runs"]) == ("2023-12-30", 1)
        runs = client.get(f"/dags/{dag}/dagRuns").json()["dag_runs"]
    manual = [run for run in runs if run["run_type"] == "manual"]
    assert [run["logical_date"][:10] for run in manual] == ["2023-12-30"]
    assert {run["logical_date"][:10] for run in runs} >= {"2023-12-30", "2023-12-31"}


def test_failed_partitions_are_loaded_again_and_replaced(get: Callable[..., httpx.Response]) -> None:
    part = {"hx-request": "true"}
    page = get(f"{ORDERS}/missing?first=2024-03-01&last=2024-03-02", **part).text
    assert "Load again what failed" in page
    address = re.search(r'href="(/calve/run/[^"]+logical_date=2024-03-01[^"]*reload[^"]*)"', page)
    assert address is not None
    assert "mode=replace" in address[1]
    other = get("/calve/tables/shop.parts/missing?first=2023-12-01&last=2023-12-31", **part).text
    assert "source=%2Fdata%2Fparts" in other
    assert cells(other) == ["2023", "2023"]
    empty = get("/calve/tables/shop.parts/missing?first=2023-11-01&last=2023-11-02", **part).text
    assert "Nothing is missing, and nothing failed." in empty
    assert "is no day; write it as 2024-05-01" in get(f"{ORDERS}/missing?first=soon&last=2024-03-02", **part).text


@pytest.mark.long
def test_groups_lead_to_their_partitions(open_page: Callable[..., Page]) -> None:
    page = open_page("/calve/tables/shop.stores/picture")
    page.locator("svg text", has_text="north").first.wait_for()
    page.get_by_label("Colour").select_option("quality")
    page.get_by_label("Colour").select_option("age")
    page.get_by_role("link", name="o'west\\ / 47").click()
    page.locator("#partitions tbody tr").first.wait_for()
    assert page.locator("#partitions tbody tr").count() == 1


def test_tables_are_sorted_and_chosen_by_kind(get: Callable[..., httpx.Response]) -> None:
    assert cells(get("/calve/tables?sort=rows").text)[0].startswith("shop.orders")
    assert cells(get("/calve/tables?kind=Iceberg").text) == ["shop.migrated", "shop.of_engines", "shop.stored"]
    assert "1 failed index" in get("/calve/tables").text
    assert "There is only 1 page" in get("/calve/tables?page=9").text
    assert "There is no table of this kind." in get("/calve/tables?kind=other").text
    assert re.search("There (is|are) only .* page", get(f"{ORDERS}/partitions?page=9999").text)


@pytest.mark.parametrize(
    "path",
    [
        f"{ORDERS}/partitions?page={{}}",
        f"{ORDERS}/partition?id={{}}",
        f"{ORDERS}/files?partition={{}}",
        f"{ORDERS}/files/list?id={{}}",
        f"{ORDERS}/operations?before={{}}",
        f"{ORDERS}/quality?before_ms={{}}",
        f"{ORDERS}/quality?report={{}}",
        "/calve/tables/shop.hashed/studio?page={}",
        "/calve/tables?page={}",
        "/calve/operations?before={}",
        "/calve/quality?before={}",
    ],
)
def test_numbers_that_no_database_stores_are_refused(get: Callable[..., httpx.Response], path: str) -> None:
    answer = get(path.format(10**22))
    assert (answer.status_code, "less than" in answer.text) == (422, True), answer.text


@pytest.mark.parametrize("dark", sampled([False, True], [False]))
@pytest.mark.parametrize(
    "path",
    sampled(
        [
            ORDERS,
            f"{ORDERS}/picture",
            f"{ORDERS}/missing?first=2023-12-28&last=2024-03-01",
            "/calve/tables/shop.stores/picture",
            "/calve/tables/shop.ranged/partitions",
        ],
        [ORDERS],
    ),
)
def test_pages_are_accessible_and_fit_narrow_screens(open_page: Callable[..., Page], path: str, dark: bool) -> None:
    page = open_page(path, width=400, dark=dark)
    page.wait_for_load_state("networkidle")
    page.evaluate("document.querySelectorAll('details').forEach((details) => (details.open = true))")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    serious = serious_problems(page)
    assert serious == [], json.dumps(serious, indent=1)[:3000]
