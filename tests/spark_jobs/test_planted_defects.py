"""Defects that are planted into a load are found and named by rules that need no numbers, and a good load is green."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog.errors import InvalidConfigurationError
from catalog.operations.job_requests import CheckQualityJob
from spark_jobs.check_quality import check_quality

if TYPE_CHECKING:
    from tests.spark_jobs.conftest import Loader

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

RULES: dict[str, Any] = {
    "learn": True,
    "unique": {"columns": ["id"], "within": "table"},
    "references": {"customer": "shop.customers.id"},
    "agree": {"day": "to_date(at)"},
}
ROWS, EARLIER = 40, 8
TODAY = datetime.now(UTC).date()

Row = dict[str, Any]


class Shop:
    """A table of orders, one partition a day, and the table of their customers."""

    def __init__(self, loader: Loader, folder: Path) -> None:
        self.loader = loader
        self.folder = folder
        self.last_id = 0

    def day(self, age: int, count: int = ROWS) -> list[Row]:
        """Return the good rows of a day so many days ago."""
        day, first = TODAY - timedelta(days=age), self.last_id
        self.last_id += count
        return [
            {
                "id": first + number,
                "customer": number % 10,
                "amount": number % 7 + 0.5,
                "at": f"{day} 12:00:00",
                "day": day,
            }
            for number in range(count)
        ]

    def load(self, name: str, days: list[list[Row]], rules: dict[str, Any] | None = None) -> dict[str, Any]:
        """Load rows, and return the report of their check."""
        columns = ("id", "customer", "amount", "at", "day")
        rows = [row for day in days for row in day]
        lines = [",".join("" if row[column] is None else str(row[column]) for column in columns) for row in rows]
        source = self.folder / f"{name}.csv"
        source.write_text("\n".join([",".join(columns), *lines, ""]))
        operation = self.loader.new_operation()
        self.loader.validate(operation, source, mode="append")
        staging = self.loader.write(operation, mode="append")["staging"]
        self.loader.register(operation, staging, mode="append")
        return self.check(operation, RULES if rules is None else rules)

    def check(self, operation: str, rules: dict[str, Any]) -> dict[str, Any]:
        catalog = self.loader.catalog
        with catalog.operations.attempt(operation, "check_quality") as attempt:
            job = CheckQualityJob(
                operation_id=operation, step="check_quality", attempt=attempt, table=self.loader.table, rules=rules
            )
            check_quality(self.loader.spark, catalog, job)
        return dict(catalog.operations.get(operation).report["check_quality"])


@pytest.fixture
def make_shop(
    make_loader: Callable[..., Loader], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Shop]:
    def make(table_format: str) -> Shop:
        monkeypatch.setenv("CALVE_QUALITY_PAGES", str(tmp_path / "pages"))
        loader = make_loader(keys={"day": "date"})
        loader.request |= {"format": table_format, "columns": [["id", "bigint"], ["customer", "bigint"]]}
        customers = make_loader("shop.customers", keys={"country": "string"})
        customers.request |= {"columns": [["id", "bigint"]]}
        customers._numbers = itertools.count(1_000)
        (tmp_path / "customers.csv").write_text("id,country\n" + "".join(f"{number},DE\n" for number in range(10)))
        customers.load(tmp_path / "customers.csv")
        return Shop(loader, tmp_path)

    return make


def changed(rows: list[Row], count: int = 1, **fields: Any) -> list[Row]:
    return [{**row, **(fields if number < count else {})} for number, row in enumerate(rows)]


@pytest.mark.long
@pytest.mark.parametrize("table_format", ["parquet", "iceberg"])
def test_planted_defects_are_found_and_named(make_shop: Callable[[str], Shop], table_format: str) -> None:
    shop = make_shop(table_format)
    first = shop.load("first", [shop.day(age) for age in range(EARLIER, 0, -1)])
    assert (first["checked"], first["failures"]) == (EARLIER, []), "nothing is known yet"

    other_month = f"{TODAY - timedelta(days=75)} 12:00:00"
    duplicate = shop.day(12)
    elsewhere = changed(shop.day(13), id=3)
    days = {
        "nulls": changed(shop.day(9), ROWS // 2, amount=None),
        "wrong month": changed(shop.day(10), at=other_month),
        "half": shop.day(11, ROWS // 2),
        "duplicate": changed(duplicate, id=duplicate[1]["id"]),
        "elsewhere": elsewhere,
        "orphan": changed(shop.day(14), customer=77),
        "late": shop.day(90),
        "good": shop.day(0),
    }
    report = shop.load("defects", list(days.values()))
    found = {text.partition(": ")[0]: text.partition(": ")[2] for text in report["failures"]}
    said = {name: found.pop(f"day={rows[0]['day']}", "") for name, rows in days.items()}
    assert found == {}
    assert said["nulls"] == "ratio of nulls in amount: 0.5, expected at most 0.01, as in earlier partitions"
    assert said["wrong month"] == "to_date(at) gives the partition's day: false, expected true"
    assert said["half"] == "rows: 20, expected 36 to 44, as in earlier partitions"
    assert said["duplicate"] == "rows with the same id as an earlier row of the partition: 1, expected 0"
    assert said["elsewhere"] == "values of id that other partitions have, too: 1, expected 0"
    assert said["orphan"] == "rows with a customer that shop.customers.id does not have: 1, expected 0"
    assert said["late"].startswith("hours from the start of the partition's day to its check: 2,1")
    assert said["good"] == ""
    assert (report["checked"], report["passed"], report["failed"]) == (8, 1, 7)
    assert "duplicate" in Path(report["docs_path"]).read_text()

    good = shop.load("good", [shop.day(15), shop.day(16)])
    assert (good["checked"], good["passed"], good["failures"]) == (2, 2, [])


SAMPLED: dict[str, Any] = {
    "columns": {"amount": {"min": 0, "max": 50, "max_null_ratio": 0, "sample": 3}, "customer": {"max": 50}},
    "unique": {"columns": ["id"], "within": "table", "sample": 2},
    "references": {"customer": {"to": "shop.customers.id", "sample": 5}},
}


@pytest.mark.long
@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_rows_that_fail_are_kept_for_rules_that_allow_it_and_never_told_elsewhere(
    make_shop: Callable[[str], Shop], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    shop = make_shop("parquet")
    assert shop.load("first", [shop.day(1)], SAMPLED)["failed"] == 0
    twice, low, high, nulls, again, orphan = (shop.day(age) for age in range(2, 8))
    days = [
        changed(twice, id=twice[1]["id"]),
        changed(low, 5, amount=-4321.5),
        changed(high, amount=4321.5),
        changed(nulls, amount=None),
        changed(again, id=3),
        changed(orphan, customer=77),
        shop.day(8),
    ]
    report = shop.load("defects", days, SAMPLED)
    assert (report["checked"], report["failed"]) == (7, 6)
    catalog = shop.loader.catalog
    partitions = {partition.values[0]: partition.id for partition in catalog.get_partitions(shop.loader.table)}
    samples = catalog.quality.samples(list(partitions.values()))
    found = {
        number: [(sample.columns, sorted(sample.rows, key=str)) for sample in samples.get(partitions[str(day)], ())]
        for number, day in enumerate(rows[0]["day"] for rows in days)
    }

    def first_id(number: int) -> str:
        return str(days[number][0]["id"])

    assert found[0] == [(("id",), [(str(twice[1]["id"]),)])]
    ((columns, rows),) = found[1]
    assert (columns, len(rows), {amount for _, amount in rows}) == (("id", "amount"), 3, {"-4321.5"})
    assert found[2] == [(("id", "amount"), [(first_id(2), "4321.5")])]
    assert found[3] == [(("id", "amount"), [(first_id(3), None)])]
    assert found[4] == [(("id",), [("3",)])]
    # The rule about the greatest customer allows no sample.
    assert found[5] == [(("id", "customer"), [(first_id(5), "77")])]
    assert found[6] == []
    told = [str(report), Path(report["docs_path"]).read_text(), caplog.text, *capfd.readouterr()]
    assert [text for text in told if "4321.5" in text] == []

    shop.loader.catalog.quality.remove_samples(shop.loader.table)
    assert catalog.quality.samples(list(partitions.values())) == {}


@pytest.mark.long
def test_late_row_that_repeats_one_of_its_partition_is_found(make_shop: Callable[[str], Shop]) -> None:
    shop = make_shop("iceberg")
    rows = shop.day(1)
    assert shop.load("first", [rows, shop.day(2)])["failed"] == 0
    # The row is in another file and folder of the same partition.
    late = shop.load("late", [rows[:1], shop.day(3)])
    assert late["failures"] == [
        f"day={rows[0]['day']}: rows with the same id as an earlier row of the partition: 1, expected 0"
    ]
    assert shop.load("more", [shop.day(2, 1)])["failed"] == 0


def test_partitions_are_compared_with_those_of_the_same_keys(
    make_loader: Callable[..., Loader], tmp_path: Path
) -> None:
    loader = make_loader(keys={"country": "string", "day": "date"})
    shop = Shop(loader, tmp_path)
    rules = {"learn": {"measures": ["row_count"], "per": ["country"]}}

    def load(name: str, counts: dict[str, int], ages: range) -> dict[str, Any]:
        lines = [
            f"{country},{TODAY - timedelta(days=age)},1"
            for country, count in counts.items()
            for age in ages
            for _ in range(count)
        ]
        (tmp_path / name).write_text("\n".join(["country,day,n", *lines, ""]))
        operation = loader.new_operation()
        loader.validate(operation, tmp_path / name, mode="append")
        loader.register(operation, loader.write(operation, mode="append")["staging"], mode="append")
        return shop.check(operation, rules)

    assert load("first.csv", {"DE": 100, "LU": 10}, range(1, 9))["failed"] == 0
    report = load("second.csv", {"DE": 10, "LU": 10, "FR": 1}, range(1))
    assert report["failures"] == [f"country=DE/day={TODAY}: rows: 10, expected 90 to 110, as in earlier partitions"]


@pytest.mark.long
@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (
            {"references": {"customer": "shop.clients.id"}},
            "customer is shop.clients.id, but table shop.clients does not",
        ),
        ({"references": {"customer": "shop.customers.number"}}, "has no column number; its columns are id, country"),
        ({"references": {"customer": "shop.customers.country"}}, "customer has the type bigint, but .* string"),
        ({"unique": ["number"]}, "quality.unique names number, which shop.orders does not have"),
        ({"learn": {"columns": ["number"]}}, "quality.learn.columns names number"),
    ],
)
def test_rules_that_do_not_fit_the_tables_are_refused(
    make_shop: Callable[[str], Shop], rules: dict[str, Any], said: str
) -> None:
    shop = make_shop("parquet")
    with pytest.raises(InvalidConfigurationError, match=said):
        shop.load("first", [shop.day(1)], rules)
