"""Pages as users of each role see them, and as nobody may."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count, product
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from calve_airflow.pages.open_catalog import KeptCatalog, Remembered
from calve_airflow.pages.rendering import STATIC, breakable, duration, form_text, key_name, short_count, size
from calve_airflow.pages.request_limits import AT_ONCE, WAIT_SECONDS
from catalog import Catalog, Column, FileFormat, NewPartition, Table
from catalog.errors import CatalogUnavailableError, CatalogVersionError
from catalog.expressions.parser import parse_expression
from catalog.storage.upgrade import VERSION_TABLE, newest_revision
from standalone.environment import REPOSITORY
from tests.support.browser import serious_problems
from tests.support.effort import sampled
from tests.support.pages_server import ROLES, PagesServer

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.airflow, pytest.mark.slow]


PAGES = (
    "/calve/",
    "/calve/tables",
    "/calve/tables/shop.orders",
    "/calve/tables/shop.orders/explain?where=day+%3E+%272024-02-01%27+and+country+%3D+%27DE%27",
    "/calve/tables/shop.orders/explain?where=day+%3E",
    "/calve/tables/shop.orders/partitions?where=country = 'DE' and day < '2024-01-10'",
    "/calve/tables/shop.orders/picture",
    "/calve/tables/shop.orders/missing?first=2024-01-01&last=2024-02-01",
    "/calve/tables/shop.orders/files",
    "/calve/tables/shop.orders/quality",
    "/calve/tables/checked.events/quality",
    "/calve/tables/shop.orders/operations",
    "/calve/operations",
    "/calve/operation?id=none",
    "/calve/approvals",
    "/calve/run/build_partition_index",
    "/calve/run/rebalance_partitions",
    "/calve/run/run_statement",
    "/calve/migrations",
    "/calve/migrations?state=ready",
    "/calve/migrations/warehouse.migrated",
    "/calve/tables/demo.visits/studio?partition_ids=3",
    "/calve/tables/demo.devices/studio?partition_ids=3",
    "/calve/quality",
)
"""A page of each kind."""


@pytest.mark.parametrize("path", PAGES)
def test_each_page_is_for_users_who_are_logged_in(pages_server: PagesServer, tokens: dict[str, str], path: str) -> None:
    with httpx.Client(base_url=pages_server.url) as client:
        anonymous = client.get(path)
        assert (anonymous.status_code, "shop" in anonymous.text) == (401, False)
        browser = client.get(path, headers={"Accept": "text/html", "Host": "elsewhere.example"})
        assert browser.status_code == 303
        login = urlsplit(browser.headers["location"])
        asked = browser.request.url.raw_path.decode()
        assert (login.path, parse_qs(login.query)) == ("/auth/login", {"next": [asked]})
        wrong = client.get(path, headers={"Authorization": "Bearer x"})
        assert wrong.status_code in (401, 403)
        for role in ROLES:
            answer = client.get(path, headers={"Authorization": f"Bearer {tokens[role]}"})
            assert answer.status_code == 200, (role, answer.text)


def test_a_change_that_another_site_asks_for_is_refused(pages_server: PagesServer, tokens: dict[str, str]) -> None:
    with httpx.Client(base_url=pages_server.url, cookies={"_token": tokens["admin"]}) as client:
        own = {"Origin": pages_server.url}
        for headers in ({}, {"Origin": "https://elsewhere.example"}, {**own, "Sec-Fetch-Site": "cross-site"}):
            refused = client.post("/calve/operation/cancel?id=none", headers=headers)
            assert (refused.status_code, "comes from another site" in refused.text) == (403, True)
        # A browser adds the password of a proxy to the requests of all sites.
        elsewhere = {"Origin": "https://elsewhere.example", "Authorization": "Basic eDp5"}
        assert client.post("/calve/operation/cancel?id=none", headers=elsewhere).status_code == 403
        proxied = {"Origin": "https://airflow.example", "Sec-Fetch-Site": "same-origin"}
        for headers in (own, proxied):
            assert client.post("/calve/operation/cancel?id=none", headers=headers).status_code == 404


def test_requests_without_their_bodies_keep_nobody_waiting(pages_server: PagesServer, tokens: dict[str, str]) -> None:
    server = urlsplit(pages_server.url)
    request = (
        "POST /calve/quality/release HTTP/1.1\r\nHost: calve\r\nContent-Length: 1000\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\n\r\nreason="
    )
    with ExitStack() as stack:
        for _ in range(2 * AT_ONCE):
            connection = stack.enter_context(socket.create_connection((server.hostname, server.port), timeout=30))
            connection.sendall(request.encode())
        headers = {"Authorization": f"Bearer {tokens['viewer']}"}
        with httpx.Client(base_url=pages_server.url, headers=headers, timeout=WAIT_SECONDS / 2) as client:
            assert client.get("/calve/static/calve.js").status_code == 200
            assert client.get("/calve/").status_code == 200


def test_unknown_tables_and_pages_are_said_to_be_unknown(pages_server: PagesServer, tokens: dict[str, str]) -> None:
    headers = {"Authorization": f"Bearer {tokens['viewer']}"}
    with httpx.Client(base_url=pages_server.url, headers=headers) as client:
        missing = client.get("/calve/tables/shop.nothing")
        assert missing.status_code == 404
        assert "shop.nothing" in missing.text
        assert client.get("/calve/nothing").status_code == 404
        assert "Traceback" not in missing.text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"/operations?before={10**30}", 422),
        (f"/quality?before={10**30}", 422),
        (f"/tables?page={10**30}", 422),
        (f"/tables/shop.orders/partitions?page={10**30}", 422),
        (f"/tables/shop.orders/partition?id={2**63}", 422),
        (f"/tables/shop.orders/files/list?id={2**63}", 422),
        (f"/tables/shop.orders/quality?before_ms={-(2**63) - 1}", 422),
        (f"/tables/shop.orders/partitions?page={10**9}", 200),
        (f"/tables/shop.orders/partition?id={2**63 - 1}", 404),
        (f"/tables/shop.orders/partitions?where={'(' * 10_001}", 422),
        (f"/tables/shop.orders/explain?where={'(' * 10_001}", 422),
        (f"/tables/shop.orders/picture/data?where={'(' * 10_001}", 422),
        ("/run/rebalance_partitions?items=%5B%22%5Cud800%22%5D", 200),
        ("/operations?table=&state=&kind=", 200),
        ("/run/%00", 422),
        ("/operations?table=%00", 422),
        (f"/run/compact_partitions?tables={'[' * 3_000}", 200),
        (f"/tables/shop.orders/picture/data?view=keys&inside={'[' * 3_000}", 422),
        ("/tables/shop.orders/picture/data?view=keys&inside=%5B%22%5Cud800%22%5D", 422),
    ],
)
def test_values_in_addresses_have_bounds(
    pages_server: PagesServer, tokens: dict[str, str], path: str, status: int
) -> None:
    headers = {"Authorization": f"Bearer {tokens['viewer']}"}
    assert httpx.get(f"{pages_server.url}/calve{path}", headers=headers).status_code == status


def test_no_cache_keeps_values_of_the_catalog(pages_server: PagesServer, tokens: dict[str, str]) -> None:
    headers = {"Authorization": f"Bearer {tokens['viewer']}"}
    table = f"{pages_server.url}/calve/tables/shop.orders"
    for path in ("", "/picture/data", "/explain/values?key=country", "/days?first=2024-01-01&last=2024-01-02"):
        answer = httpx.get(f"{table}{path}", headers=headers)
        assert answer.status_code in (200, 303)
        sent = (answer.headers["cache-control"], answer.headers["x-content-type-options"])
        assert sent == ("no-store", "nosniff"), path


def test_secrets_in_properties_are_not_shown(
    pages_server: PagesServer, tokens: dict[str, str], pages_catalog: Catalog
) -> None:
    properties = {
        "hive.sql.dbcp.password": "p4ss",
        "hive.sql.jdbc.url": "jdbc:postgresql://reader:p4ss@host/sales",
        "address": "https://host/x?token=p4ss",
        "note": "user=me, password=p4ss",
        "team": "sales",
        "looks": "\u202eelas",
    }
    pages_catalog.create_database("secrets")
    pages_catalog.create_table(
        "secrets.orders", columns=[("id", "bigint")], partition_keys=[("day", "date")], properties=properties
    )
    pages_catalog.add_partitions("secrets.orders", [NewPartition(("2024-01-01",), properties=properties)])
    (partition,) = pages_catalog.browsing.page("secrets.orders").partitions
    headers = {"Authorization": f"Bearer {tokens['admin']}"}
    for path in ("", f"/partition?id={partition.id}"):
        text = httpx.get(f"{pages_server.url}/calve/tables/secrets.orders{path}", headers=headers).text
        assert [value in text for value in ("hive.sql.dbcp.password", "***", "sales", "p4ss")] == [True] * 3 + [False]
        assert "\u202e" not in text
    pages_catalog.drop_table("secrets.orders")
    pages_catalog.drop_database("secrets")


def test_only_those_who_may_start_a_dag_can_press_its_button(open_page: Callable[..., Page]) -> None:
    path = "/calve/run/build_partition_index?table=shop.orders&keys=%5B%22country%22%5D"
    for user, is_disabled in (("viewer", True), ("user", False)):
        page = open_page(path, user)
        assert page.get_by_role("button", name="Start").is_disabled() is is_disabled
        assert page.get_by_label("Table").input_value() == "shop.orders"
        assert page.get_by_label("Keys").input_value() == "country"


def test_a_form_starts_a_run_with_its_values(
    open_page: Callable[..., Page], pages_server: PagesServer, tokens: dict[str, str]
) -> None:
    page = open_page("/calve/run/build_partition_index?table=shop.orders&name=by_country&keys=country")
    with page.expect_navigation():
        page.get_by_role("button", name="Start").click()
    headers = {"Authorization": f"Bearer {tokens['admin']}"}
    (run,) = httpx.get(f"{pages_server.url}/api/v2/dags/build_partition_index/dagRuns", headers=headers).json()[
        "dag_runs"
    ]
    assert run["conf"]["table"] == "shop.orders"
    assert run["conf"]["keys"] == ["country"]


@pytest.mark.long
def test_statements_keep_their_lines(open_page: Callable[..., Page]) -> None:
    statement = "SELECT *  -- all columns\nFROM shop.orders"
    page = open_page(f"/calve/run/run_statement?{httpx.QueryParams(statement=statement)}")
    assert page.get_by_label("Statement").input_value() == statement
    with page.expect_request("**/api/v2/dags/run_statement/dagRuns") as asked, page.expect_navigation():
        page.get_by_role("button", name="Start").click()
    assert asked.value.post_data_json["conf"] == {"statement": statement}


@pytest.mark.long
@pytest.mark.parametrize(
    ("typed", "sent"),
    [
        ("30", ["30"]),
        ("15\n\n30\n", ["15", "30"]),
        ("(Mars, Venus)", ["(Mars, Venus)"]),
        ('["15", "30"]', ["15", "30"]),
    ],
)
def test_lists_are_typed_one_item_per_line(open_page: Callable[..., Page], typed: str, sent: list[str]) -> None:
    page = open_page("/calve/run/rebalance_partitions?table=shop.delays&operation=add&partition_ids=[2, 3]")
    assert page.get_by_label("Partition ids").input_value() == "2\n3"
    page.get_by_label("Bounds or groups").fill(typed)
    with page.expect_request("**/api/v2/dags/rebalance_partitions/dagRuns") as asked, page.expect_navigation():
        page.get_by_role("button", name="Start").click()
    conf = asked.value.post_data_json["conf"]
    assert (conf["items"], conf["partition_ids"]) == (sent, ["2", "3"])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (["a", "b"], "a\nb"),
        ([2, 3], "2\n3"),
        ([], ""),
        (["a\nb"], '["a\\nb"]'),
        (["[a"], '["[a"]'),
        ([None], "[null]"),
        ({"a": 1}, '{"a": 1}'),
        (None, ""),
    ],
)
def test_values_of_fields_are_shown_so_that_they_are_read_as_the_same(value: object, text: str) -> None:
    assert form_text(value) == text


@pytest.mark.long
def test_parts_that_are_asked_for_again_and_again_do_not_fade(open_page: Callable[..., Page]) -> None:
    page = open_page("/calve/approvals")
    opacity = "document.querySelector('#approvals').classList.add('htmx-request'),"
    opacity += "document.getAnimations().forEach((fading) => fading.finish()),"
    opacity += "getComputedStyle(document.querySelector('#approvals')).opacity"
    assert page.evaluate(f"({opacity})") == "1"


@pytest.mark.long
def test_tables_are_searched_as_one_types(open_page: Callable[..., Page]) -> None:
    page = open_page("/calve/tables")
    assert page.get_by_role("link", name="shop.customers").is_visible()
    page.get_by_label("Search by name").fill("ord")
    page.get_by_role("link", name="shop.customers").wait_for(state="detached")
    assert page.get_by_role("link", name="shop.orders").is_visible()
    page.get_by_label("Search by name").fill("<b>")
    page.get_by_text("No table has “<b>” in its name.").wait_for()


def test_the_overview_counts_partitions(open_page: Callable[..., Page], pages_catalog: Catalog) -> None:
    page = open_page("/calve/")
    sizes = pages_catalog.table_sizes()
    hive = [sizes[table.id] for table in pages_catalog.list_tables() if table.id in sizes and not table.is_iceberg]
    partitions = sum(size.partitions for size in hive)
    assert page.locator(".figure", has_text="Partitions").locator("dd").inner_text() == str(partitions)


@pytest.mark.long
def test_the_overview_shows_proposals_with_their_forms_filled_in(open_page: Callable[..., Page]) -> None:
    page = open_page("/calve/")
    row = page.get_by_role("row").filter(has_text="SPLIT PARTITION (3) INTO")
    assert "3.1 times the median" in row.inner_text()
    row.get_by_role("link", name="Open the form").click()
    assert page.get_by_label("Bounds or groups").input_value() == "2024-02-15\n2024-03-01"
    assert page.get_by_label("Dry run").is_checked()
    page.go_back()
    row.get_by_role("link", name="Open the studio").click()
    assert page.get_by_role("radio", name="Split").is_checked()
    page.go_back()
    small = page.get_by_role("row").filter(has_text="warehouse.sales_10")
    assert not small.is_visible()
    page.get_by_text("further proposals").click()
    assert "files of" in small.inner_text()


@pytest.mark.parametrize(
    ("path", "dark"),
    sampled(product(PAGES, [False, True]), [(PAGES[0], True), (PAGES[-1], False)]),
)
def test_pages_are_accessible_and_fit_narrow_screens(open_page: Callable[..., Page], path: str, dark: bool) -> None:
    page = open_page(path, width=400, dark=dark)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    serious = serious_problems(page)
    assert serious == [], json.dumps(serious, indent=1)[:3000]


def test_the_built_scripts_are_those_of_the_sources() -> None:
    ui = REPOSITORY / "ui"
    sources = ["package-lock.json", "build.mjs", *(f"src/{path.name}" for path in sorted((ui / "src").iterdir()))]
    digest = hashlib.sha256(b"".join((ui / source).read_bytes() for source in sources)).hexdigest()
    found = re.match(r"/\* sources (\w+);", (STATIC / "calve.js").read_text())
    assert found is not None
    assert found[1] == digest, "run `make ui` and commit what it builds"


def test_pages_load_nothing_from_elsewhere() -> None:
    for name in ("calve.js", "calve.css"):
        text = (STATIC / name).read_text()
        assert re.findall(r"(?:url\(|src=|import\()\s*[\"']?https?://[^\s\"')]+", text) == []


@pytest.mark.parametrize(
    ("value", "text"), [(None, "—"), (0, "0 B"), (1023, "1,023 B"), (1536, "1.5 KiB"), (5 * 2**40, "5.0 TiB")]
)
def test_sizes_are_in_binary_units(value: int | None, text: str) -> None:
    assert size(value) == text


def test_names_break_after_dots_and_underscores_only() -> None:
    assert breakable("shop.new_orders") == "shop.<wbr>new_<wbr>orders"
    assert breakable("<b>._x") == "&lt;b&gt;.<wbr>_<wbr>x"


@pytest.mark.parametrize("name", ["country", "größe", "größe key", "in", "date", "a-b", "1st", "null"])
def test_names_of_keys_are_written_as_filters_need_them(name: str) -> None:
    table = Table("shop", "orders", (), (Column(name, "string"),), FileFormat.PARQUET, "/none")
    written = key_name(name)
    assert parse_expression(f"{written} = 'x' and {written} in ('…')", table)
    assert (written == name) == (name in ("country", "größe"))


def test_a_schema_of_another_version_is_refused_while_the_server_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALVE_CATALOG_URL", f"sqlite:///{tmp_path}/catalog.db")
    kept, checked_later = KeptCatalog(check_seconds=0), KeptCatalog(check_seconds=3600)
    with Catalog.initialise(warehouse=str(tmp_path)) as catalog:

        def set_revision(revision: str) -> None:
            with catalog.storage.write() as connection:
                connection.exec_driver_sql(f"UPDATE {VERSION_TABLE} SET version_num = '{revision}'")

        assert (kept.get().list_tables(), checked_later.get().list_tables()) == ([], [])
        set_revision("9999")
        for _ in range(2):
            with pytest.raises(CatalogVersionError, match="created by a newer version"):
                kept.get()
        checked_later.get()
        set_revision(newest_revision())
        kept.get()
    for opened in (kept, checked_later):
        opened.close()


def test_an_old_result_is_shown_while_a_new_one_is_made() -> None:
    remembered, made = Remembered(seconds=0.0, stale_seconds=60.0), threading.Event()
    assert remembered.get("key", lambda: "first") == "first"

    def second() -> str:
        made.set()
        return "second"

    assert remembered.get("key", second) == "first"
    assert made.wait(10)
    deadline = time.monotonic() + 10
    while remembered.get("key", lambda: "second") != "second":
        assert time.monotonic() < deadline


def test_a_result_without_age_is_made_each_time() -> None:
    remembered, numbers = Remembered(seconds=0.0), iter(range(2))
    assert [remembered.get("key", lambda: next(numbers)) for _ in range(2)] == [0, 1]


def test_simultaneous_requests_share_one_query() -> None:
    remembered, begun, go_on, queries = Remembered(seconds=60.0), threading.Event(), threading.Event(), count()

    def slow() -> int:
        begun.set()
        assert go_on.wait(10)
        return next(queries)

    with ThreadPoolExecutor(2) as requests:
        first = requests.submit(remembered.get, "key", slow)
        assert begun.wait(10)
        second = requests.submit(remembered.get, "key", slow)
        assert not second.done()
        go_on.set()
        assert [first.result(10), second.result(10)] == [0, 0]

    def failing() -> int:
        raise CatalogUnavailableError("gone")

    remembered.forget()
    for _ in range(2):
        with pytest.raises(CatalogUnavailableError):
            remembered.get("key", failing)
    assert remembered.get("key", slow) == 1


def test_a_result_that_was_read_before_a_change_is_not_shown_after_it() -> None:
    remembered = Remembered(seconds=60.0)

    def read_beside_a_change() -> str:
        remembered.forget()
        return "before"

    assert remembered.get("key", read_beside_a_change) == "before"
    assert remembered.get("key", lambda: "after") == "after"
    assert remembered.get("key", lambda: "again") == "after"


def test_counts_and_durations_are_short() -> None:
    assert [short_count(value) for value in (None, 9999, 12_345, 1_234_567, 2.5e9)] == [
        "—",
        "9,999",
        "12.3 k",
        "1.2 M",
        "2.5 G",
    ]
    assert [duration(value) for value in (None, 1.25, 75, 3725, 90_000)] == [
        "—",
        "1.2 s",
        "1 min 15 s",
        "1 h 2 min",
        "1 d 1 h",
    ]


@pytest.mark.long
def test_no_page_names_the_database_that_cannot_be_reached(tmp_path: Path) -> None:
    with PagesServer(tmp_path, "postgresql+psycopg://keeper:hidden@127.0.0.1:1/lake") as server:
        headers = {"Authorization": f"Bearer {server.token('viewer')}"}
        answer = httpx.get(f"{server.url}/calve/tables", headers=headers, timeout=60)
        log = server.log_path.read_text()
    assert (answer.status_code, "The catalog cannot be reached" in answer.text) == (503, True)
    assert not [word for word in ("keeper", "hidden", "127.0.0.1:1/", "port 1") if word in answer.text]
    assert "The page /calve/tables cannot read the catalog" in log
    assert "hidden" not in log
