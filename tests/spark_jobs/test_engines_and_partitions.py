"""Commits by Spark's Iceberg to tables stored as Iceberg: all readers, partitions, indexes and checks follow them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog import Catalog
from catalog.operations.job_requests import CheckQualityJob
from catalog.statements.session import Session
from spark_jobs.check_quality import check_quality
from tests.support.partition_files import EXTREMES, KEYS, check_partitions, plain, rows_by_calve, rows_by_engines
from tests.support.published import reachable_files

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession

    from tests.spark_jobs.conftest import Loader

pytestmark = pytest.mark.spark

TABLE = "shop.orders"
ORDERS = """CREATE TABLE orders (id int, note string) PARTITIONED BY (country string, day date)
PARTITION INDEX by_country (country), by_day (day, country) STORED AS ICEBERG"""
MODES = ("delete", "update", "merge")

Order = tuple[int, str | None, str | None, date | None]


def order(number: int, note: str | None = "n") -> Order:
    return number, note, ("DE", "US", None, "F/R")[number % 4], date(2024, 1, 1 + number % 3)


def literal(value: object) -> str:
    if value is None:
        return "NULL"
    return f"DATE '{value}'" if isinstance(value, date) else repr(value)


def listed(orders: Sequence[Order]) -> str:
    return ", ".join(f"({', '.join(map(literal, values))})" for values in orders)


def set_mode(engine: SparkSession, mode: str) -> None:
    properties = ", ".join(f"'write.{kind}.mode'='{mode}'" for kind in MODES)
    engine.sql(f"ALTER TABLE calve.{TABLE} SET TBLPROPERTIES ({properties})")


class Orders:
    """The table, and the rows that it should have."""

    def __init__(
        self, session: Session, catalog: Catalog, spark: SparkSession, duck: duckdb.DuckDBPyConnection
    ) -> None:
        self.session, self.catalog, self.spark, self.duck = session, catalog, spark, duck
        self.rows: list[Order] = []

    def check(self) -> None:
        """Compare what all readers, the partitions and the indexes say."""
        expected = sorted(self.rows, key=repr)
        assert rows_by_calve(self.spark, self.catalog, TABLE) == expected
        for name, read in rows_by_engines(self.spark, self.duck, self.catalog, TABLE).items():
            assert read == expected, name
        check_partitions(self.catalog, TABLE)
        self._check_filters()
        self._check_partitions()

    def _check_filters(self) -> None:
        for where, fits in (
            ("country = 'US'", lambda row: row[2] == "US"),
            (
                "day > '2024-01-01' and country in ('DE', 'F/R')",
                lambda row: row[2] in ("DE", "F/R") and row[3] > date(2024, 1, 1),
            ),
            ("country is null", lambda row: row[2] is None),
        ):
            expected = sorted(filter(fits, self.rows), key=repr)
            assert rows_by_calve(self.spark, self.catalog, TABLE, where) == expected, where
        found = self.session.execute("SELECT id FROM orders WHERE country = 'DE' AND id > 10 ORDER BY id").rows
        assert [row[0] for row in found] == sorted(row[0] for row in self.rows if row[2] == "DE" and row[0] > 10)
        found = self.session.execute("SELECT day, count(*) FROM orders WHERE country <> 'US' GROUP BY day").rows
        assert {str(day): count for day, count in found} == Counter(
            str(row[3]) for row in self.rows if row[2] not in ("US", None)
        )

    def _check_partitions(self) -> None:
        """Check partitions and their counts, which have deleted rows as long as these are only in delete files."""
        expected = Counter((row[2], str(row[3])) for row in self.rows)
        partitions = {partition.values: partition.row_count for partition in self.catalog.get_partitions(TABLE)}
        by_day = {partition.values for partition in self.catalog.get_partitions(TABLE, "day = '2024-01-02'")}
        assert by_day == {values for values in partitions if values[1] == "2024-01-02"}
        has_deletes = self.catalog.get_table(TABLE).delete_file_count > 0
        if not has_deletes:
            assert partitions == expected
        assert all((partitions[values] or 0) >= count for values, count in expected.items())
        shown = {str(row[0]): row[1:] for row in self.session.execute("SHOW PARTITIONS orders").rows}
        assert len(shown) == len(partitions)
        facts = {row[0]: row[1] for row in self.session.execute("DESCRIBE FORMATTED orders").rows}
        assert facts["Rows"] == str(sum(count or 0 for count in partitions.values()))
        assert facts["Partitions"] == str(len(partitions))


@pytest.fixture
def orders(session: Session, catalog: Catalog, iceberg_spark: SparkSession, duck: duckdb.DuckDBPyConnection) -> Orders:
    session.execute(ORDERS)
    made = Orders(session, catalog, iceberg_spark, duck)
    made.rows = list(map(order, range(24)))
    session.execute(f"INSERT INTO orders VALUES {listed(made.rows)}")
    return made


@pytest.mark.long
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_every_reader_follows_what_spark_commits(orders: Orders, engine: SparkSession, mode: str) -> None:
    set_mode(engine, mode)
    new = [order(number, None) for number in range(24, 30)]
    engine.sql(f"INSERT INTO calve.{TABLE} VALUES {listed([*new, (30, 'p', 'PL', date(2024, 1, 2))])}")
    orders.rows += [*new, (30, "p", "PL", date(2024, 1, 2))]
    orders.check()

    engine.sql(f"DELETE FROM calve.{TABLE} WHERE id % 5 = 0")
    orders.rows = [row for row in orders.rows if row[0] % 5]
    orders.check()
    assert (orders.catalog.get_table(TABLE).delete_file_count > 0) is (mode == "merge-on-read")

    # One row is changed, one moves to another partition, and one is new.
    engine.sql(
        f"MERGE INTO calve.{TABLE} t USING (SELECT * FROM VALUES (1, 'm', 'US', DATE '2024-01-02'), "
        "(2, 'moved', 'DE', DATE '2024-02-01'), (99, 'new', 'ES', DATE '2024-01-03') AS s (id, note, country, day)) s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    orders.rows = [row for row in orders.rows if row[0] not in (1, 2)]
    orders.rows += [(1, "m", "US", date(2024, 1, 2)), (2, "moved", "DE", date(2024, 2, 1))]
    orders.rows += [(99, "new", "ES", date(2024, 1, 3))]
    orders.check()

    more = [order(number) for number in range(40, 46)]
    orders.session.execute(f"INSERT INTO orders VALUES {listed(more)}")
    orders.rows += more
    engine.sql(f"UPDATE calve.{TABLE} SET note = 'u' WHERE country = 'DE'")
    orders.rows = [(row[0], "u", *row[2:]) if row[2] == "DE" else row for row in orders.rows]
    orders.check()

    orders.session.execute("ALTER TABLE orders DROP PARTITION (country = 'US', day = '2024-01-02')")
    orders.rows = [row for row in orders.rows if row[2:] != ("US", date(2024, 1, 2))]
    orders.check()

    engine.sql(f"INSERT OVERWRITE calve.{TABLE} PARTITION (country = 'DE', day = DATE '2024-01-01') SELECT 70, 'o'")
    orders.rows = [row for row in orders.rows if row[2:] != ("DE", date(2024, 1, 1))]
    orders.rows += [(70, "o", "DE", date(2024, 1, 1))]
    replaced = [(71, "d", "F/R", date(2024, 1, 1)), (72, "d", "AT", date(2024, 1, 1))]
    frame = engine.createDataFrame(replaced, "id int, note string, country string, day date")
    frame.writeTo(f"calve.{TABLE}").overwritePartitions()
    orders.rows = [row for row in orders.rows if row[2:] not in {row[2:] for row in replaced}] + replaced
    orders.check()

    check_vacuum(orders)
    orders.check()


def check_vacuum(orders: Orders) -> None:
    """Check that vacuum leaves no file that the live metadata do not reach, of data or deletes or metadata."""
    assert orders.catalog.vacuum(grace=timedelta(0)).problems == ()
    location = Path(orders.catalog.get_table(TABLE).location)
    # Hadoop's file system writes checksums of its own beside the files.
    on_disk = {str(path) for path in location.rglob("*") if path.is_file() and path.suffix != ".crc"}
    assert on_disk <= reachable_files(orders.catalog, TABLE)


@pytest.mark.long
def test_a_partition_whose_rows_are_all_in_delete_files(orders: Orders, engine: SparkSession) -> None:
    set_mode(engine, "merge-on-read")
    # A condition that the metrics of files cannot answer, or Iceberg would remove the files.
    engine.sql(f"DELETE FROM calve.{TABLE} WHERE country = 'US' AND id % 3 >= 0")
    orders.rows = [row for row in orders.rows if row[2] != "US"]
    orders.check()
    assert len(list(orders.catalog.get_partitions(TABLE, "country = 'US'"))) == 3
    orders.session.execute("ALTER TABLE orders DROP PARTITION (country = 'US')")
    orders.check()
    assert orders.catalog.get_table(TABLE).delete_file_count == 0


@pytest.mark.long
def test_filters_on_keys_of_all_types_beside_delete_files(
    session: Session, engine: SparkSession, iceberg_spark: SparkSession, catalog: Catalog
) -> None:
    columns = ", ".join(f"{name} {kind}" for name, kind in KEYS.items())
    session.execute(f"CREATE TABLE orders (id int) PARTITIONED BY ({columns}) STORED AS ICEBERG")
    doubled = [*EXTREMES, *(f"(1{text[1:]}" for text in EXTREMES)]
    session.execute(f"INSERT INTO orders VALUES {', '.join(doubled)}")
    whole = rows_by_calve(iceberg_spark, catalog, TABLE)
    set_mode(engine, "merge-on-read")
    engine.sql(f"DELETE FROM calve.{TABLE} WHERE id > 10")
    table = catalog.get_table(TABLE)
    assert table.delete_file_count > 0
    assert rows_by_calve(iceberg_spark, catalog, TABLE) == [row for row in whole if row[0] < 10]
    for condition, ids in (
        ("a = -128", [1]),
        ("b in (32767, 0)", [2, 4]),
        ("c < 0", [1]),
        ("d = 0.01", [2]),
        ("e = '1582-10-04'", [2]),
        ("e < '1600-01-01'", [1, 2]),
        ("f <= '1969-12-31 23:59:59.999999'", [1, 2]),
        ("f >= '1500-02-28 23:59:59.000001' and f < '1600-01-01'", [1]),
        ("g = 'é/=%#漢 \U0001f600'", [1]),
        ("g like 'a%'", [2]),
        ("h = '  x '", [1]),
        ("i = 'ab'", [1]),
        ("i in ('b', 'x')", [2, 4]),
        ("j = true", [1, 4]),
        ("k = 0", [4]),
        ("a is null", [3]),
        ("a <> 0", [1, 2]),
    ):
        assert sorted(row[0] for row in rows_by_calve(iceberg_spark, catalog, TABLE, condition)) == ids, condition
        if "like" not in condition:
            found = session.execute(f"SELECT id FROM orders WHERE {condition}").rows
            assert sorted(row[0] for row in found) == ids, condition


@pytest.mark.long
def test_instants_in_keys_beside_delete_files(
    session: Session, engine: SparkSession, iceberg_spark: SparkSession, catalog: Catalog
) -> None:
    session.execute("CREATE TABLE orders (id int) PARTITIONED BY (at timestamp) STORED AS ICEBERG")
    iceberg_spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        # The hour from 01:00 exists twice.
        session.execute(
            "INSERT INTO orders SELECT id, timestamp_seconds(1699160400 + 3600 * (id % 10)) "
            "FROM VALUES (0), (1), (2), (10), (11), (12) AS t (id)"
        )
        set_mode(engine, "merge-on-read")
        engine.sql(f"DELETE FROM calve.{TABLE} WHERE id >= 10")
        assert catalog.get_table(TABLE).delete_file_count > 0
        read = rows_by_calve(iceberg_spark, catalog, TABLE, "at < '2023-11-05 02:00:00'")
        found = session.execute("SELECT id FROM orders WHERE at < TIMESTAMP '2023-11-05 02:00:00'").rows
    finally:
        iceberg_spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert [row[0] for row in read] == [0, 1]
    assert sorted(row[0] for row in found) == [0, 1]


# --- quality checks ---------------------------------------------------------------------------------------------------

QUALITY = {"columns": {"id": {"max": 10}}, "on_failure": "warn"}


def loaded(make_loader: Callable[..., Loader], source: Path) -> tuple[Loader, str]:
    """Load a file whose partition of the US has a row that fails the checks; return the loader and the operation."""
    loader = make_loader()
    loader.request |= {"format": "iceberg"}
    source.write_text("id,country,day\n1,US,1\n99,US,1\n2,DE,1\n3,DE,1\n")
    operation = loader.new_operation()
    loader.validate(operation, source)
    loader.register(operation, loader.write(operation)["staging"])
    return loader, operation


def checked(loader: Loader, operation: str) -> dict[str, Any]:
    with loader.catalog.operations.attempt(operation, "check_quality") as attempt:
        job = CheckQualityJob(
            operation_id=operation, step="check_quality", attempt=attempt, table=loader.table, rules=QUALITY
        )
        check_quality(loader.spark, loader.catalog, job)
    report: dict[str, Any] = loader.catalog.operations.get(operation).report["check_quality"]
    return report


@pytest.mark.long
def test_checks_find_the_row(make_loader: Callable[..., Loader], iceberg_spark: SparkSession, tmp_path: Path) -> None:
    report = checked(*loaded(make_loader, tmp_path / "1.csv"))
    assert (report["checked"], report["failed"]) == (2, 1)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_checks_do_not_see_rows_that_engines_have_deleted(
    make_loader: Callable[..., Loader],
    iceberg_spark: SparkSession,
    engine: SparkSession,
    catalog: Catalog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
) -> None:
    monkeypatch.setenv("CALVE_HOME", str(tmp_path / "home"))
    loader, operation = loaded(make_loader, tmp_path / "1.csv")
    set_mode(engine, mode)
    engine.sql(f"DELETE FROM calve.{TABLE} WHERE id = 99")
    report = checked(loader, operation)
    # With copy-on-write, the rows of the partition are in a file of the engine.
    assert (report["checked"], report["failed"]) == ((2, 0) if mode == "merge-on-read" else (1, 0)), report
    assert [row[0] for row in map(plain, rows_by_calve(iceberg_spark, catalog, TABLE))] == [1, 2, 3]


@pytest.mark.long
def test_checks_do_not_see_files_that_engines_have_replaced(
    make_loader: Callable[..., Loader],
    iceberg_spark: SparkSession,
    engine: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A partition has two files of the load, one of which an engine has rewritten."""
    monkeypatch.setenv("CALVE_HOME", str(tmp_path / "home"))
    iceberg_spark.conf.set("spark.sql.files.maxRecordsPerFile", "1")
    try:
        loader, operation = loaded(make_loader, tmp_path / "1.csv")
    finally:
        iceberg_spark.conf.unset("spark.sql.files.maxRecordsPerFile")
    assert len(loader.catalog.loaded_partitions(operation).files) == 4
    engine.sql(f"DELETE FROM calve.{TABLE} WHERE id = 99")
    report = checked(loader, operation)
    assert (report["checked"], report["failed"]) == (2, 0), report
