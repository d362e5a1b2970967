"""A catalog with a shop's tables, Airflow's API server with the pages over it, and a browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, timedelta
from typing import TYPE_CHECKING

import pytest

from catalog import Catalog, IndexDefinition, NewPartition
from tests.support.browser import running_browser
from tests.support.delays import make_delays
from tests.support.pages_samples import fill
from tests.support.pages_server import ROLES, PagesServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

COUNTRIES = ("DE", "FR", "US")
DAYS = 60
DELAYS = "shop.delays"
"""A table with a partition scheme; tests change no partition of these tables, which pages count."""
MISSING = "2024-01-20"
"""A day that only one country lacks."""


@pytest.fixture(scope="session")
def pages_catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    """A catalog with tables of some kinds."""
    folder = tmp_path_factory.mktemp("pages-catalog")
    with Catalog.initialise(f"sqlite:///{folder}/catalog.db", warehouse=str(folder / "lake")) as catalog:
        catalog.create_database("shop")
        catalog.create_table(
            "shop.orders",
            columns=[("id", "bigint"), ("amount", "double")],
            partition_keys=[("country", "string"), ("day", "date")],
            indexes=[IndexDefinition("by_day", ("day", "country"))],
        )
        catalog.add_partitions(
            "shop.orders",
            [
                NewPartition((country, str(day)), file_count=1, row_count=100 + number, size_bytes=10_000)
                for country in COUNTRIES
                for number in range(DAYS)
                if (day := date(2024, 1, 1) + timedelta(number)) != date.fromisoformat(MISSING) or country != "FR"
            ],
        )
        make_delays(catalog, DELAYS)
        catalog.create_table("shop.customers", columns=[("id", "bigint"), ("name", "string")])
        fill(catalog)
        yield catalog


@pytest.fixture(scope="session")
def pages_server(pages_catalog: Catalog, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PagesServer]:
    """The API server over `pages_catalog`."""
    url = pages_catalog.storage.url.render_as_string(hide_password=False)
    with PagesServer(tmp_path_factory.mktemp("pages-server"), url) as server:
        yield server


@pytest.fixture(scope="session")
def tokens(pages_server: PagesServer) -> dict[str, str]:
    """A token of a user of each role."""
    return {role: pages_server.token(role) for role in ROLES}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless browser, for one module."""
    with running_browser() as running:
        yield running


@pytest.fixture
def open_page(browser: Browser, pages_server: PagesServer, tokens: dict[str, str]) -> Iterator[Callable[..., Page]]:
    """A function that opens a page as a user, and fails at the end if the browser reported an error."""
    contexts = []
    problems: list[str] = []

    def opened(path: str, user: str = "admin", *, width: int = 1400, dark: bool = False) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
        )
        contexts.append(context)
        context.add_cookies([{"name": "_token", "value": tokens[user], "url": pages_server.url}])
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.goto(f"{pages_server.url}{path}")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert problems == []
