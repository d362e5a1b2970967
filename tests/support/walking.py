"""Users of Airflow in a browser, and the tables that they meet on a walk through Calve's pages."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow
import pyarrow.parquet

from catalog import Catalog, NewPartition
from tests.support.effort import effort

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

# Read here, because tests run without the developer's variables.
SCREENSHOTS = os.environ.get("CALVE_SCREENSHOTS")
"""A folder for pictures of what the walk shows; without it, none are taken."""

COUNTRIES, DAYS = ("DE", "FR", "US"), [str(date(2024, 5, 1) + timedelta(number)) for number in range(20)]
ORDERS_A_DAY = 5
BAD = ("DE", "2024-05-17")
"""The country and the day whose orders have a negative amount."""

WAREHOUSE = "sales"
"""The database of Hive tables."""
STORES = [f"{WAREHOUSE}.store_{number:02}" for number in range(effort(4, 18))]
"""Tables that can be migrated."""
TEXTS, DAMAGED = f"{WAREHOUSE}.texts", f"{WAREHOUSE}.damaged"
"""A table of a format that Iceberg lacks, and one with an empty file, which only its footers show."""

_PHONE, _DESK = 400, 1400
_PATIENCE_MS = 120_000


class Person:
    """A user of Airflow who is logged in, in a browser of their own.

    Attributes:
        page: The page that they look at.
        problems: What the browser has reported as errors.
    """

    def __init__(self, browser: Browser, url: str, name: str) -> None:
        self.url, self.name = url, name
        self.problems: list[str] = []
        self.context = browser.new_context(viewport={"width": _DESK, "height": 900}, base_url=url)
        self.context.set_default_timeout(_PATIENCE_MS)
        self.page = self.context.new_page()
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", lambda said: self.problems.append(said.text) if said.type == "error" else None)

    def log_in(self, password: str) -> Page:
        """Open Calve's pages, and log in by the form of Airflow that comes instead."""
        self.page.goto("/calve/")
        self.page.get_by_label("Username").fill(self.name)
        self.page.get_by_label("Password", exact=True).fill(password)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.get_by_role("heading", name="Overview").wait_for()
        # Airflow answers a page without a login with 401, which browsers report.
        self.problems.clear()
        return self.page

    def start(self) -> str:
        """Send the form that the page shows; return the operation id of the run that it has started."""
        with self.page.expect_navigation(url="**/calve/operation?*"):
            self.page.get_by_role("button", name="Start", exact=True).click()
        return self.page.locator("main > p.code").inner_text()

    def look(self, name: str) -> None:
        """Take pictures of the page at two widths, in light and dark, if a folder for them is named."""
        if not SCREENSHOTS:
            return
        for width in (_PHONE, _DESK):
            self.page.set_viewport_size({"width": width, "height": 900})
            for scheme in ("dark", "light"):
                self.page.emulate_media(color_scheme=scheme)
                self.page.wait_for_timeout(300)
                path = Path(SCREENSHOTS, f"{name}-{width}-{scheme}.png")
                self.page.screenshot(path=path, full_page=True, animations="disabled")


def shows(place: Locator, *texts: str) -> None:
    """Wait until a place of a page has these texts, and no others: one for each element that it consists of."""
    from playwright.sync_api import expect

    expect(place).to_have_text(list(texts), timeout=_PATIENCE_MS)


def figure(page: Page, name: str) -> Locator:
    """Return the value of one of the figures at the top of a page."""
    return page.locator(".figures > div", has=page.get_by_text(name, exact=True)).locator("dd").first


@contextmanager
def people(browser: Browser, url: str, passwords: Mapping[str, str]) -> Iterator[dict[str, Person]]:
    """Log in users by their passwords; at the end, no browser may have reported an error."""
    opened = {name: Person(browser, url, name) for name in passwords}
    try:
        for name, person in opened.items():
            person.log_in(passwords[name])
        yield opened
        assert {name: person.problems for name, person in opened.items() if person.problems} == {}
    finally:
        for person in opened.values():
            person.context.close()


def write_orders(folder: Path) -> Path:
    """Write a CSV file of orders of some countries and days, of which one has a negative amount."""
    lines = ["id,amount,country,day"]
    for country in COUNTRIES:
        for day in DAYS:
            for number in range(ORDERS_A_DAY):
                amount = -1.5 if (country, day) == BAD and number == 0 else 10 + number
                lines.append(f"{len(lines)},{amount},{country},{day}")
    folder.mkdir(parents=True)
    path = folder / "orders.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def make_warehouse(catalog: Catalog) -> None:
    """Create Hive tables with files, of which two cannot be migrated."""
    catalog.create_database(WAREHOUSE)
    keys = [("month", "int")]
    for name in (*STORES, DAMAGED):
        table = catalog.create_table(name, columns=[("id", "bigint"), ("amount", "double")], partition_keys=keys)
        partitions = []
        for month in (1, 2):
            path = Path(table.location, f"month={month}", "part-0.parquet")
            path.parent.mkdir(parents=True)
            ids = pyarrow.array(range(100 * month, 100 * month + 10), pyarrow.int64())
            amounts = pyarrow.array([float(number) for number in range(10)])
            pyarrow.parquet.write_table(pyarrow.table({"id": ids, "amount": amounts}), path)
            size = path.stat().st_size
            partitions.append(NewPartition((str(month),), file_count=1, row_count=10, size_bytes=size))
        catalog.add_partitions(name, partitions)
    Path(catalog.get_partition(DAMAGED, ("2",)).location, "empty.parquet").touch()
    catalog.create_table(TEXTS, columns=[("line", "string")], format="textfile")
