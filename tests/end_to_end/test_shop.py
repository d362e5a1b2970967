"""The first weeks of a shop's orders, through Airflow: 400 days of 5 countries, and what is delivered after them.

Late rows, a corrected day, a file that is delivered again, missing and additional columns, bad rows, keys in the names
of folders, rows that change by their keys, and a deletion for good. A reader that asks the catalog all the time, while
loads run, sees each partition as it was before or after a load.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from catalog import Catalog
from tests.end_to_end.backfills import backfill
from tests.end_to_end.conftest import SHOPS
from tests.support.published import published

if TYPE_CHECKING:
    from standalone.stack import Stack

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(3600),
    pytest.mark.parametrize("stack", ["postgresql-shared"], indirect=True),
    pytest.mark.parametrize("table", SHOPS),
]

DAYS, AT_ONCE = 400, 30
COUNTRIES = ("AT", "DE", "FR", "UK", "US")
COLUMNS = "id,customer,amount,note,country,day"
CHANGING = 5
"""The day that all changes are about; a reader watches it."""
FORGOTTEN = 3
"""The customer whose rows are deleted for good."""

Row = tuple[int, int, Decimal | None, str | None, str, int]
Rows = dict[int, Row]
"""Id → row."""


def order(number: int, country: str, day: int, amount: str = "1.50", note: str | None = None) -> Row:
    return number, number % 7, Decimal(amount), note, country, day


def text(rows: list[Row], columns: str = COLUMNS) -> str:
    names = COLUMNS.split(",")
    places = [names.index(name) for name in columns.split(",")]
    lines = [",".join("" if row[place] is None else str(row[place]) for place in places) for row in rows]
    return "\n".join([columns, *lines]) + "\n"


def read(catalog: Catalog, table: str, where: str | None = None) -> list[Row]:
    """Return the rows of the partitions that the catalog finds now, from exactly the files that it names."""
    definition = catalog.get_table(table)
    found: list[Row] = []
    if definition.is_stored_as_iceberg:
        scan = catalog.scan_partition_files(table, where)
        paths = [f"{definition.location}/{file.path}" for file in scan.files]
        for row in pa.dataset.dataset(paths, format="parquet").to_table().to_pylist() if paths else []:
            found.append(tuple(row[name] for name in COLUMNS.split(",")))  # type: ignore[arg-type]
        return found
    for partition in catalog.get_partitions(table, where):
        country, day = partition.values
        for row in pa.dataset.dataset(partition.location, format="parquet").to_table().to_pylist():
            values = [row.get(name) for name in COLUMNS.split(",")[:4]]
            found.append((*values, country, int(day or 0)))  # type: ignore[arg-type]
    return found


class Reader:
    """Reads the partitions of one day again and again, and keeps the states that it saw."""

    def __init__(self, catalog: Catalog, table: str) -> None:
        self._catalog, self._table = catalog, table
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.seen: set[frozenset[Row]] = set()
        self.problems: list[str] = []
        self.count = 0

    def _run(self) -> None:
        while not self._is_over.wait(0.05):
            try:
                rows = read(self._catalog, self._table, f"day = {CHANGING}")
            except Exception as error:
                self.problems.append(repr(error))
                return
            if len(set(rows)) < len(rows):
                self.problems.append(f"a row is there twice: {rows}")
            self.seen.add(frozenset(rows))
            self.count += 1

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(60)


class Shop:
    """A table of orders, its landing folder, and the rows that it must have."""

    def __init__(self, landing: Path, table: str, catalog: Catalog, start_dag: Callable[..., Any]) -> None:
        self.landing, self.table, self.catalog = landing, table, catalog
        self._start_dag = start_dag
        self.rows: Rows = {}
        self.states: set[frozenset[Row]] = set()
        self.days = {
            day: [order(day * 10 + place, country, day) for place, country in enumerate(COUNTRIES)]
            for day in range(1, DAYS + 1)
        }

    def deliver(self, name: str, rows: list[Row], columns: str = COLUMNS) -> Path:
        path = self.landing / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text(rows, columns))
        return path

    def load(self, folder: str, expected: str = "success", **form: Any) -> Any:
        source = str(self.landing / folder)
        run = self._start_dag("add_partitions", {"table": self.table, "source": source, "dry_run": False, **form})
        return run.wait(expected)

    def expect(self, put: list[Row], without: Callable[[Row], bool] = lambda row: False) -> None:
        """Change the rows that the table must have, before the change itself starts."""
        self.rows = {number: row for number, row in self.rows.items() if not without(row)}
        self.rows |= {row[0]: row for row in put}
        self.states.add(frozenset(row for row in self.rows.values() if row[5] == CHANGING))

    @property
    def expected(self) -> list[Row]:
        return sorted(self.rows.values(), key=str)

    # --- what happens -------------------------------------------------------------------------------------------

    def many_days(self, first: int, last: int) -> None:
        for day in range(first, last + 1):
            self.deliver(f"days/{day}.csv", self.days[day])
            self.expect(self.days[day])
        report = self.load("days").result("register")
        assert report["partitions"] == (last - first + 1) * len(COUNTRIES)

    def backfilled_days(self, stack: Stack, first: int, last: int) -> None:
        """Airflow's own backfill, each of whose runs loads the file of its day."""
        dates = [date(2026, 1, 1) + timedelta(days=day - first) for day in range(first, last + 1)]
        for day, of_day in zip(range(first, last + 1), dates, strict=True):
            self.deliver(f"daily/{of_day}.csv", self.days[day])
            self.expect(self.days[day])
        runs = backfill(stack, f"add_partitions.{self.table}", str(dates[0]), str(dates[-1]))
        assert runs == {str(of_day): "success" for of_day in dates}

    def late_rows(self) -> None:
        late = [order(100_000 + number, COUNTRIES[number % 5], CHANGING) for number in range(12)]
        self.deliver("late/rows.csv", late)
        self.load("late", "failed", mode="new")
        self.expect(late)
        report = self.load("late", mode="append").result("register")
        assert (report["partitions"], report["partitions_extended"], report["row_count"]) == (0, 5, 12)

    def a_corrected_day(self) -> None:
        """The file of the day is delivered again, with other amounts and without two of its countries."""
        corrected = [order(row[0], row[4], row[5], "9.99") for row in self.days[CHANGING][:3]]
        self.deliver(f"days/{CHANGING}.csv", corrected)
        assert f"{CHANGING}.csv" in self.load("days", "failed", mode="append").log("discover")
        self.expect(corrected, without=lambda row: row[5] == CHANGING and row[4] in COUNTRIES[:3])
        report = self.load("days", mode="replace").result("register")
        assert (report["partitions"], report["partitions_replaced"], report["row_count"]) == (0, 3, 3)

    def other_columns(self) -> None:
        more = self.deliver("columns/more.csv", [order(1, "AT", CHANGING)])
        more.write_text(more.read_text().replace("note", "coupon"))
        assert "coupon" in self.load("columns", "failed", mode="append").log("validate")
        more.unlink()
        fewer = [order(200_000, "AT", CHANGING)]
        self.deliver("columns/fewer.csv", fewer, "id,customer,amount,country,day")
        self.expect(fewer)
        assert self.load("columns", mode="append").result("validate")["missing_columns"] == ["note"]

    def bad_rows(self) -> None:
        good = [order(300_000, "DE", CHANGING)]
        self.deliver("bad/good.csv", good)
        bad = self.deliver("bad/bad.csv", [order(300_001, "DE", CHANGING)])
        bad.write_text(bad.read_text().replace("1.50", "much"))
        self.expect(good)
        report = self.load("bad", mode="append", bad_files="skip").result("register")
        assert (report["row_count"], report["set_aside"]["files"]) == (1, 1)

    def keys_in_folders(self) -> None:
        rows = [order(400_000, "US", CHANGING), order(400_001, "US", DAYS + 1)]
        for row in rows:
            self.deliver(f"folders/country=US/day={row[5]}/part.csv", [row], "id,customer,amount,note")
        self.expect(rows)
        self.load("folders", mode="append")

    def rows_that_change(self) -> None:
        """One row gets another amount, one moves to another country and day, and one is deleted."""
        changed = [order(400_000, "US", CHANGING, "7.77"), order(400_001, "DE", DAYS + 1, note="moved")]
        gone = order(300_000, "DE", CHANGING, note="gone")
        self.deliver("merge/rows.csv", [*changed, gone])
        self.expect(changed, without=lambda row: row[0] == gone[0])
        self.load("merge", mode="merge")

    def forget(self) -> Any:
        statement = f"CALL calve.system.forget('{self.table}', 'customer = {FORGOTTEN}')"
        run = self._start_dag("run_statement", {"statement": statement})
        run.wait()
        result = run.result("run")
        return dict(zip(result["columns"], result["rows"][0], strict=True))

    def a_deletion(self) -> None:
        self.expect([], without=lambda row: row[1] == FORGOTTEN)
        # Running readers keep the former files for the grace period.
        assert self.forget()["files_left"] > 0

    @property
    def files_with_forgotten(self) -> list[str]:
        """The Parquet files in the table's folder, hidden ones included, that have rows that must not exist."""
        paths = sorted(Path(self.catalog.get_table(self.table).location).rglob("*.parquet"))
        tables = ((path, pq.ParquetFile(path)) for path in paths)
        return [
            str(path)
            for path, file in tables
            if "customer" in file.schema_arrow.names
            and FORGOTTEN in file.read(columns=["customer"]).column("customer").to_pylist()
        ]


@pytest.fixture
def shop(stack: Stack, table: str, catalog: Catalog, start_dag: Callable[..., Any]) -> Shop:
    return Shop(stack.home / "landing" / table, table, catalog, start_dag)


def test_weeks_of_a_shop(stack: Stack, shop: Shop, catalog: Catalog, table: str) -> None:
    shop.many_days(1, DAYS - AT_ONCE)
    with Reader(catalog, table) as reader:
        shop.backfilled_days(stack, DAYS - AT_ONCE + 1, DAYS)
        shop.late_rows()
        shop.a_corrected_day()
        shop.other_columns()
        shop.bad_rows()
        shop.keys_in_folders()
        shop.rows_that_change()
        shop.a_deletion()
    assert reader.problems == []
    assert reader.count > 20
    # The reader asks for several partitions, of which it may see one before and another after a change.
    assert by_partition(reader.seen) <= by_partition(shop.states)
    assert sorted(read(catalog, table), key=str) == shop.expected
    assert shop.files_with_forgotten
    if SHOPS[table] == "iceberg":
        assert_published(catalog, table, shop.expected)
    for _ in range(3):
        assert catalog.vacuum(table, grace=timedelta(0)).problems == ()
        assert sorted(read(catalog, table), key=str) == shop.expected
    assert shop.files_with_forgotten == []
    proof = shop.forget()
    assert (proof["rows_deleted"], proof["files_left"], proof["rows_left"]) == (0, 0, 0)
    assert sorted(read(catalog, table), key=str) == shop.expected
    if SHOPS[table] == "iceberg":
        assert_published(catalog, table, shop.expected)
        return
    files = f"{catalog.get_table(table).location}/*/*/*.parquet"
    query = f"SELECT {COLUMNS} FROM read_parquet('{files}', hive_partitioning=true, hive_types={{'day': 'INT'}})"
    assert sorted(duckdb.sql(query).fetchall(), key=str) == shop.expected


def assert_published(catalog: Catalog, table: str, expected: list[Row]) -> None:
    """Check that other engines see the rows in the current snapshot."""
    rows = published(catalog, table).scan().to_arrow().select(COLUMNS.split(",")).to_pylist()
    assert sorted((tuple(row.values()) for row in rows), key=str) == expected


def by_partition(states: set[frozenset[Row]]) -> set[tuple[str, frozenset[Row]]]:
    return {
        (country, frozenset(row for row in state if row[4] == country)) for state in states for country in COUNTRIES
    }
