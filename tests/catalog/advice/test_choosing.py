"""The proposed scheme for a table and queries, its effects, and its statement, which must be valid."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, timedelta
from itertools import pairwise

import pytest
import sqlalchemy
from click.testing import CliRunner

from catalog import Catalog, NewPartition, Table
from catalog.advice.choosing import best, candidates, following, partition_count
from catalog.advice.profile import ColumnProfile, PartitionSpread, QueryProfile, TableProfile
from catalog.advice.report import TuningReport, advise_table
from catalog.cli.main import main
from catalog.expressions import parse_expression
from catalog.indexes.bounds import bounds_of
from catalog.model import Column, FileFormat
from catalog.schemes.hashing import HashScheme
from catalog.schemes.model import Scheme, SchemeType
from catalog.schemes.ranges import RangeScheme
from catalog.statements.session import Session

MIB = 1024 * 1024
ROWS = 2_000
DAYS = [str(date(2024, 1, 1) + timedelta(days=number % 360)) for number in range(ROWS)]
CITIES = ["Rome"] * 1200 + ["Oslo"] * 500 + ["Bern, CH"] * 290 + ["rare"] * 10


def column(name: str, column_type: str, texts: Sequence[str | None], distinct: int | None = None) -> ColumnProfile:
    nulls = sum(text is None for text in texts)
    return ColumnProfile.of_sample(name, column_type, distinct or len({*texts} - {None}), nulls / len(texts), texts)


DAY = column("day", "date", DAYS)
CITY = column("city", "string", CITIES)
ID = column("id", "bigint", [str(number * 7919 % 100_003) for number in range(ROWS)], 90_000)
SENT = column("sent_at", "timestamp", [f"{day} 10:00:00.000000" for day in DAYS])
ONE = column("one", "int", ["1"] * ROWS)
VIEW = Table(
    "demo",
    "t",
    tuple(Column(each.name, each.type) for each in (DAY, CITY, ID, SENT)),
    (),
    FileFormat.PARQUET,
    "",
    scheme=HashScheme("id", "bigint"),
).filter_view


def asked(*filters: str) -> tuple[QueryProfile, ...]:
    found = []
    for text in filters:
        keys = bounds_of(parse_expression(text, VIEW), VIEW).keys
        found.append(QueryProfile(text, bounds={VIEW.key_names[key]: ranges for key, ranges in keys.items()}))
    return tuple(found)


def profile(*columns: ColumnProfile, queries: tuple[QueryProfile, ...] = (), size: int | None = None) -> TableProfile:
    return TableProfile("demo.t", 1_000_000, size, columns, queries)


def proposed(measured: TableProfile) -> dict[str, str]:
    scheme = best(candidates(measured, 128 * MIB))
    assert scheme is not None
    sorting = {"SORT_COLUMNS": ", ".join(scheme.sort_columns)} if scheme.sort_columns else {}
    return {"COLUMN": scheme.column, **scheme.properties(), **sorting}


# --- proposals --------------------------------------------------------------------------------------------------------


def test_a_date_that_is_compared_with_ranges_becomes_ranges_of_the_calendar() -> None:
    queries = asked("day >= '2024-03-01' and day < '2024-03-10'", "day = '2024-05-01' and id = 7")
    assert proposed(profile(ID, CITY, DAY, ONE, queries=queries)) == {
        "COLUMN": "day",
        "PARTITION_TYPE": "RANGE_INTERVAL",
        "RANGE_INFO": "2024-04-01",
        "INTERVAL": "1 quarter",
        "SORT_COLUMNS": "id",
    }


@pytest.mark.parametrize(
    ("size_gib", "interval", "bound"),
    [(1, "1 quarter", "2024-04-01"), (6, "1 month", "2024-02-01"), (20, "1 week", "2024-01-08")],
)
def test_large_tables_get_more_partitions(size_gib: int, interval: str, bound: str) -> None:
    measured = profile(DAY, size=size_gib * 1024 * MIB)
    assert proposed(measured)["INTERVAL"] == interval
    assert proposed(measured)["RANGE_INFO"] == bound


def test_an_hour_is_for_timestamps_only() -> None:
    moments = [f"2024-01-01 {number % 24:02}:30:00.000000" for number in range(ROWS)]
    measured = profile(column("at", "timestamp", moments), size=12 * 1024 * MIB)
    assert proposed(measured) == {
        "COLUMN": "at",
        "PARTITION_TYPE": "RANGE_INTERVAL",
        "RANGE_INFO": "2024-01-01 01:00:00",
        "INTERVAL": "1 hour",
    }


def test_a_column_that_is_only_compared_with_values_is_hashed() -> None:
    assert proposed(profile(ID, DAY, queries=asked("id = 5", "id in (1, 2)", "id = 9"))) == {
        "COLUMN": "id",
        "PARTITION_TYPE": "HASH",
        "PARTITION_NUM": "4",
    }


def test_a_column_that_is_compared_with_ranges_gets_ranges_of_about_equal_rows() -> None:
    found = proposed(profile(ID, CITY, queries=asked("id between 5 and 900", "id < 2000")))
    assert (found["COLUMN"], found["PARTITION_TYPE"]) == ("id", "RANGE")
    bounds = [int(bound) for bound in found["RANGE_INFO"].split(", ")]
    values = sorted(int(text) for _, text in ID.sample)
    parts = [sum(low <= value < high for value in values) for low, high in pairwise([0, *bounds, 10**9])]
    assert max(parts) - min(parts) <= 1


def test_a_column_of_few_values_becomes_a_list() -> None:
    assert proposed(profile(CITY, ID, queries=asked("city = 'Oslo'", "city in ('Bern, CH', 'rare')"))) == {
        "COLUMN": "city",
        "PARTITION_TYPE": "LIST",
        "LIST_INFO": r"Rome, Oslo, (Bern\, CH, rare)",
    }


def test_skew_and_nulls_count_against_a_column() -> None:
    even = column("even", "int", [str(number % 1000) for number in range(ROWS)])
    skewed = column("skewed", "int", ["0"] * 1500 + [str(number) for number in range(500)])
    sparse = column("sparse", "int", [None] * 1900 + [str(number) for number in range(100)])
    found = candidates(profile(sparse, skewed, even, ONE), 128 * MIB)
    assert [each.column.name for each in found] == ["even", "skewed", "sparse", "one"]
    assert found[1].column.largest_share == pytest.approx(0.75, abs=0.01)
    assert found[1].partition_skew > 2.5  # type: ignore[operator]
    assert found[-1].scheme is None


def test_queries_say_how_much_each_column_would_save() -> None:
    queries = asked(
        "day = '2024-05-01'", "city = 'Oslo'", "day < '2024-02-01' and city = 'Oslo'", "sent_at is not null"
    )
    by_name = {each.column.name: each for each in candidates(profile(DAY, CITY, ID, SENT, queries=queries), 128 * MIB)}
    assert {name: each.queries_pruned for name, each in by_name.items()} == {"day": 2, "city": 2, "id": 0, "sent_at": 0}
    assert by_name["city"].read_share == pytest.approx((1 + 0.25 + 0.25 + 1) / 4, abs=0.01)
    assert by_name["id"].read_share == 1.0


def test_nothing_is_proposed_where_nothing_helps() -> None:
    assert best(candidates(profile(ONE), 128 * MIB)) is None
    assert best(candidates(profile(ONE, ID, queries=asked("day = '2024-01-01'")), 128 * MIB)) is None
    assert best([]) is None
    assert partition_count(None, 1) == 4


# --- effects ----------------------------------------------------------------------------------------------------------


def test_a_column_that_goes_with_the_partition_column_is_found() -> None:
    scheme = RangeScheme("day", "date", (), 5, tuple(enumerate(("2024-04-01", "2024-07-01", "2024-10-01"), 1)))
    quarters = [("2024-01-01", "2024-03-31"), ("2024-04-01", "2024-06-30"), ("2024-07-01", "2024-09-30")]
    quarters.append(("2024-10-01", "2024-12-25"))
    spread = [
        PartitionSpread(
            number,
            500,
            {
                "sent_at": (f"{low} 10:00:00", f"{high} 10:00:00"),
                "id": ("3", "99990"),
                "day": (low, high),
                "city": ("Bern, CH", "rare"),
            },
        )
        for number, (low, high) in enumerate(quarters)
    ]
    [found] = following(profile(DAY, CITY, ID, SENT), scheme, spread)
    assert found.column == "sent_at"
    assert 0.25 <= found.read_share < 0.3


# --- the report -------------------------------------------------------------------------------------------------------


class Measured:
    """An engine with stored measurements."""

    def __init__(self, found: TableProfile, spread: Sequence[PartitionSpread] = ()) -> None:
        self.found, self.spreads, self.is_closed = found, list(spread), False

    def profile(self, table: Table, queries: Sequence[str], database: str) -> TableProfile:
        assert (table.full_name, database) == ("demo.t", "demo")
        return self.found

    def spread(self, table: Table, scheme: Scheme) -> list[PartitionSpread]:
        return self.spreads

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return catalog.create_table(
        "demo.t",
        columns=[("id", "bigint"), ("city", "string"), ("blob", "binary"), ("sent_at", "timestamp")],
        partition_keys=[("day", "date")],
    )


@pytest.mark.first_case
@pytest.mark.parametrize(
    "queries",
    [("day >= '2024-05-01'",), ("id = 1",), ("id < 77",), ("city = 'Oslo'",), ()],
    ids=["interval", "hash", "range", "list", "none"],
)
def test_the_proposed_statement_creates_such_a_table(catalog: Catalog, table: Table, queries: tuple[str, ...]) -> None:
    measured = Measured(profile(ID, CITY, SENT, DAY, queries=asked(*queries)))
    report = advise_table(measured, table, queries, "demo", None)
    assert report.statement is not None
    with Session(catalog) as session:
        session.execute(report.statement.removesuffix(";"))
    assert report.scheme is not None
    created = catalog.get_table(f"demo.t_by_{report.scheme.column}")
    assert created.scheme == report.scheme
    assert {each.name for each in created.columns} == {"id", "city", "blob", "sent_at", "day"}
    assert created.columns[-1].name == report.scheme.column


def test_the_report_says_what_was_measured(table: Table) -> None:
    queries = (
        *asked("day = '2024-03-01'"),
        QueryProfile("SELECT 1", reads_table=False),
        QueryProfile("SELECT x FROM demo.t", error="there is no column x"),
    )
    report = advise_table(Measured(profile(ID, DAY, queries=queries)), table, [], "demo", None)
    assert isinstance(report, TuningReport)
    assert report.rows()[0][:3] == ("day", "date", "360")
    assert report.rows()[0][5:7] == ("1 of 1", "27.3 %")
    text = "\n".join(report.lines())
    assert "Does not read demo.t: SELECT 1" in text
    assert "Not understood: there is no column x" in text
    plain = json.loads(json.dumps(report.as_json()))
    assert [each["column"] for each in plain["columns"]] == ["day", "id"]
    assert plain["scheme"]["type"] == SchemeType.RANGE_INTERVAL
    assert [each["columns"] for each in plain["queries"]] == [["day"], [], []]


def test_the_command_reads_the_queries_and_stops_the_engine(
    catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Measured(profile(ID, DAY, ONE))
    monkeypatch.setattr("catalog.cli.advising.start_engine", lambda catalog: engine)
    done = CliRunner().invoke(main, ["advise", "demo.t"])
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0].split()[:3] == ["COLUMN", "TYPE", "VALUES"]
    assert "STORED BY 'carbondata'" in done.stdout
    assert engine.is_closed
    as_json = CliRunner().invoke(main, ["advise", "demo.t", "--json", "--queries", "-"], input="SELECT 1; SELECT 2")
    assert json.loads(as_json.stdout)["table"] == "demo.t"
    catalog.add_partitions("demo.t", [NewPartition(("2026-01-01",), file_count=9, size_bytes=90)])
    with catalog.storage.write() as connection:
        connection.execute(sqlalchemy.text("UPDATE calve_partition SET created_at_ms = created_at_ms - 36000000"))
    small = CliRunner().invoke(main, ["advise", "demo.t"])
    assert small.exit_code == 0, small.stderr
    assert small.stdout.splitlines()[-1].startswith(
        "ALTER TABLE demo.t COMPACT;  -- 1 partition(s) have 9 files of 10 bytes on"
    )
    missing = CliRunner().invoke(main, ["advise", "demo.none"])
    assert missing.stderr.startswith("TableNotFoundError: ")
