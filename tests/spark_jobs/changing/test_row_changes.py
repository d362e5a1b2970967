"""INSERT OVERWRITE, DELETE, UPDATE, TRUNCATE and COMPACT on real sessions, against the same change of a list."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import update

from catalog import Catalog
from catalog.errors import (
    CatalogError,
    ConflictError,
    EngineError,
    InvalidRowsError,
    RefusedStatementError,
    StatementSyntaxError,
    UnsupportedChangeError,
)
from catalog.operations.failpoints import Point
from catalog.statements.session import Session
from catalog.storage.schema import PartitionRow
from tests.support.unfit_values import unfit_values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

NOW = timedelta(0)
ROWS = """(1, 'a', 1.5, 'US', '2026-01-01'), (2, 'b', NULL, 'US', '2026-01-01'), (3, NULL, 3.5, 'US', '2026-01-02'),
(4, 'd', 4.5, 'DE', '2026-01-01'), (5, 'e', 5.5, 'DE', NULL)"""
Row = tuple[Any, ...]
BEFORE: list[Row] = [
    (1, "a", 1.5, "US", "2026-01-01"),
    (2, "b", None, "US", "2026-01-01"),
    (3, None, 3.5, "US", "2026-01-02"),
    (4, "d", 4.5, "DE", "2026-01-01"),
    (5, "e", 5.5, "DE", None),
]

FORMATS = {"hive": "STORED AS PARQUET", "csv": "STORED AS CSV", "iceberg": "STORED AS ICEBERG"}


@pytest.fixture(params=["hive", "iceberg"])
def orders(session: Session, request: pytest.FixtureRequest) -> Session:
    """A session with the table `orders` of some rows, in partitions by country and day."""
    create(session, request.param)
    return session


def create(session: Session, kind: str) -> None:
    session.execute(
        "CREATE TABLE orders (id int, name string, amount double) PARTITIONED BY (country string, day date) "
        f"{FORMATS[kind]}"
    )
    session.execute(f"INSERT INTO orders VALUES {ROWS}")


def rows(session: Session, table: str = "orders") -> list[Row]:
    answer = session.execute(f"SELECT id, name, amount, country, CAST(day AS STRING) FROM {table} ORDER BY id")
    return [tuple(row) for row in answer.rows]


def counted(catalog: Catalog) -> dict[tuple[str | None, ...], int | None]:
    return {partition.values: partition.row_count for partition in catalog.get_partitions("shop.orders")}


def assert_consistent(session: Session, catalog: Catalog, expected: list[Row]) -> None:
    """Check that readers through the catalog and its counts agree with rows, also after vacuum."""
    counts: dict[tuple[str | None, ...], int] = {}
    for row in expected:
        counts[row[3:]] = counts.get(row[3:], 0) + 1
    for _ in range(3):
        assert rows(session) == sorted(expected)
        assert counted(catalog) == counts
        assert catalog.vacuum(grace=NOW).problems == ()


def keep(condition: Callable[[Row], bool], *added: Row) -> Callable[[list[Row]], list[Row]]:
    """Return a change that keeps some rows and adds others."""
    return lambda rows: [*filter(condition, rows), *added]


def is_first(row: Row) -> bool:
    return row[3:] == ("US", "2026-01-01")


CHANGES: dict[str, Callable[[list[Row]], list[Row]]] = {
    "DELETE FROM orders WHERE id = 2": keep(lambda row: row[0] != 2),
    "DELETE FROM orders WHERE name = 'd' OR amount > 3": keep(lambda row: row[1] != "d" and (row[2] or 0) <= 3),
    "DELETE FROM orders WHERE country = 'DE' AND amount IS NOT NULL AND upper(name) = 'E'": keep(
        lambda row: row[1] != "e"
    ),
    "DELETE FROM orders WHERE day = DATE '2026-01-01' AND country = 'US'": keep(lambda row: not is_first(row)),
    "DELETE FROM orders WHERE name = 'nobody'": keep(lambda row: True),
    "DELETE FROM orders": keep(lambda row: False),
    "TRUNCATE TABLE orders": keep(lambda row: False),
    "TRUNCATE TABLE orders PARTITION (country = 'DE')": keep(lambda row: row[3] != "DE"),
    "TRUNCATE TABLE orders PARTITION (day = 'no day')": keep(lambda row: True),
    "TRUNCATE TABLE orders PARTITION (country = 'US', day = '2026-01-01')": keep(lambda row: not is_first(row)),
    "INSERT OVERWRITE orders PARTITION (country = 'no country') SELECT 7, 'q', 1.0, NULL WHERE false": keep(
        lambda row: True
    ),
    "UPDATE orders SET amount = amount + 1, name = concat(name, ', ', 'x') WHERE country = 'US'": lambda rows: [
        (row[0], row[1] and f"{row[1]}, x", row[2] and row[2] + 1, *row[3:]) if row[3] == "US" else row for row in rows
    ],
    "DELETE FROM orders WHERE id IN (SELECT max(id) FROM orders GROUP BY country)": keep(
        lambda row: row[0] not in (3, 5)
    ),
    "UPDATE orders SET country = 'US', day = DATE '2026-01-01' WHERE id > 3": lambda rows: [
        (*row[:3], "US", "2026-01-01") if row[0] > 3 else row for row in rows
    ],
    "UPDATE orders SET day = NULL, country = upper(name) WHERE name IN ('a', 'd')": lambda rows: [
        (*row[:3], row[1].upper(), None) if row[1] in ("a", "d") else row for row in rows
    ],
    "UPDATE orders SET `amount` = 0": lambda rows: [(row[0], row[1], 0.0, *row[3:]) for row in rows],
    "INSERT OVERWRITE orders VALUES (9, 'z', 9, 'US', '2026-01-01'), (8, 'y', 8, 'FR', '2026-01-03')": keep(
        lambda row: not is_first(row), (9, "z", 9.0, "US", "2026-01-01"), (8, "y", 8.0, "FR", "2026-01-03")
    ),
    "INSERT OVERWRITE TABLE orders PARTITION (country = 'US') SELECT 7, 'q', 1.0, DATE '2026-01-05'": keep(
        lambda row: row[3] != "US", (7, "q", 1.0, "US", "2026-01-05")
    ),
    "INSERT OVERWRITE orders PARTITION (country = 'US', day = '2026-01-01') SELECT id, name, amount FROM orders "
    "WHERE id = 1": keep(lambda row: row[0] == 1 or not is_first(row)),
    "INSERT OVERWRITE orders PARTITION (country = 'US') SELECT id, name, amount, day FROM orders WHERE false": keep(
        lambda row: row[3] != "US"
    ),
}


@pytest.mark.parametrize("statement", CHANGES)
def test_a_change_has_the_effect_of_the_same_change_of_a_list(
    orders: Session, catalog: Catalog, statement: str
) -> None:
    orders.execute(statement)
    assert_consistent(orders, catalog, CHANGES[statement](BEFORE))


@pytest.mark.long
def test_changes_follow_each_other(orders: Session, catalog: Catalog) -> None:
    expected = BEFORE
    for statement in list(CHANGES)[:3] + list(CHANGES)[8:12]:
        orders.execute(statement)
        expected = CHANGES[statement](sorted(expected))
        assert rows(orders) == sorted(expected), statement
    assert_consistent(orders, catalog, expected)


@pytest.mark.long
def test_small_files_become_one_for_each_partition(orders: Session, catalog: Catalog) -> None:
    for number in range(3):
        orders.execute(f"INSERT INTO orders VALUES ({10 + number}, 'n', 1, 'US', '2026-01-01')")
    before = rows(orders)
    answer = orders.execute("ALTER TABLE orders PARTITION (country = 'US') COMPACT 'major'")
    assert [list(row) for row in answer.rows] == [[1, 4, 1]]
    assert_consistent(orders, catalog, before)
    files = {partition.values: partition.file_count for partition in catalog.get_partitions("shop.orders")}
    assert files["US", "2026-01-01"] == 1
    assert "nothing to compact" in str(orders.execute("ALTER TABLE orders COMPACT").text)


@pytest.mark.long
def test_a_reader_that_began_before_a_change_keeps_its_rows(
    session: Session, spark: SparkSession, catalog: Catalog
) -> None:
    from spark_jobs.reading.tables import read_table

    create(session, "csv")
    before = read_table(spark, "shop.orders", catalog=catalog)
    session.execute("DELETE FROM orders WHERE id < 4")
    assert before.count() == 5
    assert_consistent(session, catalog, BEFORE[3:])
    location = Path(catalog.get_table("shop.orders").location)
    assert not list(location.glob("country=US/*/*.csv*"))


WRONG = [
    ("DELETE FROM orders WHERE id IN (SELECT id FROM nowhere.t)", CatalogError, "table nowhere.t does not exist"),
    ("DELETE FROM orders WHERE java_method('x', 'y') = 1", RefusedStatementError, "the function java_method"),
    ("DELETE FROM orders WHERE rand() < 0.5", RefusedStatementError, "the function rand differs from run to run"),
    ("DELETE FROM orders WHERE id IN (SELECT id * rand() FROM orders)", RefusedStatementError, "the function rand"),
    ("DELETE FROM orders WHERE 1 = 1) UNION SELECT (1", CatalogError, "Syntax error at or near"),
    ("UPDATE orders SET country = uuid() WHERE id = 1", RefusedStatementError, "the function uuid differs from run"),
    ("UPDATE orders SET id = 7 WHERE random() < 0.5", RefusedStatementError, "the function random differs from run"),
    ("UPDATE orders SET day = 'X' WHERE id = 1", InvalidRowsError, "column day: 'X' is no date"),
    ("UPDATE orders SET nothing = 1", InvalidRowsError, "column nothing of shop.orders does not exist"),
    ("UPDATE orders SET id = 'abc' WHERE id = 1", InvalidRowsError, "column id: 'abc' is no int"),
    ("UPDATE orders SET id = 1, id = 2", StatementSyntaxError, "column id is set twice"),
    ("UPDATE orders SET id", StatementSyntaxError, "an assignment is a column, = and its new value"),
    ("UPDATE orders SET id = 1 WHERE", StatementSyntaxError, "WHERE has no condition"),
]


MERGE = """MERGE INTO orders t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET name = 'z'"""


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE orders SET name = 'z' WHERE id = 1",
        "UPDATE orders SET country = 'DE' WHERE id = 1",
        "DELETE FROM orders WHERE id = 1",
        MERGE,
        "ALTER TABLE orders COMPACT",
        "INSERT OVERWRITE orders VALUES (6, 'f', 6.5, 'US', '2026-01-01')",
    ],
)
def test_a_file_that_another_program_adds_meanwhile_is_not_lost(
    session: Session, catalog: Catalog, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    from spark_jobs.writing import value_loading

    create(session, "hive")
    session.execute("INSERT INTO orders VALUES (7, 'g', 7.5, 'US', '2026-01-01')")
    folder = Path(catalog.get_partition("shop.orders", ("US", "2026-01-01")).location)
    stage = value_loading.stage_rows

    def stage_late(*given: Any) -> int:
        count = stage(*given)
        shutil.copyfile(min(folder.glob("*.parquet")), folder / "foreign.parquet")
        return count

    monkeypatch.setattr(value_loading, "stage_rows", stage_late)
    session.execute(text)
    ids = [row[0] for row in rows(session)]
    if text.startswith("INSERT"):
        assert ids == [3, 4, 5, 6]
        [problem] = catalog.vacuum("shop.orders", grace=NOW).problems
        assert "such as foreign.parquet; move them elsewhere" in problem
        assert (folder / "foreign.parquet").exists()
    else:
        # The rows were read again, with those of the file.
        foreign = pq.read_table(folder / "foreign.parquet")["id"].to_pylist()
        expected = sorted([1, 2, 3, 4, 5, 7, *foreign])
        assert ids == [number for number in expected if number != 1 or not text.startswith("DELETE")]


@pytest.mark.long
def test_wrong_changes_change_nothing(session: Session, catalog: Catalog) -> None:
    create(session, "hive")
    for statement, error, message in WRONG:
        with pytest.raises(error, match=message):
            session.execute(statement)
    assert_consistent(session, catalog, BEFORE)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["hive", "iceberg"])
def test_rows_that_move_elsewhere_than_foreseen_replace_no_others(session: Session, kind: str) -> None:
    """The time is another one when the partitions are looked for that get rows, and when these are written."""
    session.execute(f"CREATE TABLE moving (id int) PARTITIONED BY (n int) {FORMATS[kind]}")
    session.execute("INSERT INTO moving SELECT id, CAST(id AS int) FROM (SELECT explode(sequence(0, 39)) AS id)")
    for _ in range(2):
        with suppress(ConflictError):
            session.execute("UPDATE moving SET n = CAST(unix_micros(current_timestamp()) % 40 AS int) WHERE id < 3")
        assert [list(row) for row in session.execute("SELECT count(*) FROM moving").rows] == [[40]]
    session.execute("UPDATE moving SET id = CAST(rand() * 9 AS int) WHERE n = 5")
    assert [list(row) for row in session.execute("SELECT count(*) FROM moving").rows] == [[40]]


@pytest.mark.long
def test_a_key_that_is_too_long_for_a_folder_is_named_with_the_reason(session: Session, catalog: Catalog) -> None:
    create(session, "hive")
    with pytest.raises(EngineError, match=r"Task failed while writing rows .*Mkdirs failed to create .*country=xxx"):
        session.execute(f"INSERT INTO orders VALUES (7, 'a', 1.5, '{'x' * 300}', '2026-01-01')")
    assert_consistent(session, catalog, BEFORE)


@pytest.mark.long
def test_a_repair_leaves_the_folders_of_deleted_partitions_to_vacuum(session: Session, catalog: Catalog) -> None:
    create(session, "hive")
    location = Path(catalog.get_table("shop.orders").location)
    session.execute("DELETE FROM orders WHERE country = 'US' AND day = DATE '2026-01-02'")
    shutil.copytree(location / "country=US" / "day=2026-01-01", location / "country=FR" / "day=2026-01-05")
    assert [name for finding in catalog.maintenance.check("shop.orders").findings for name in finding.where] == [
        "country=FR/day=2026-01-05"
    ]
    report = catalog.repair_table("shop.orders")
    assert (report.added, report.unfit_count) == (1, 1)
    assert report.unfit[0].startswith("folder country=US/day=2026-01-02: it has files that were replaced or deleted")
    for _ in range(2):
        catalog.vacuum(grace=NOW)
    assert not (location / "country=US" / "day=2026-01-02").exists()
    kinds = {finding.kind.value for finding in catalog.maintenance.check("shop.orders").findings}
    assert "FOLDER_WITHOUT_PARTITION" not in kinds
    report = catalog.repair_table("shop.orders")
    assert (report.added, report.unfit_count) == (0, 0)


@pytest.mark.long
def test_rows_of_a_partition_that_cannot_be_found_by_its_value_refuse_the_change(
    session: Session, catalog: Catalog
) -> None:
    session.execute("CREATE TABLE odd (id int) PARTITIONED BY (n int)")
    session.execute("INSERT INTO odd VALUES (1, 1), (2, 2)")
    # Readers see null as the key of its rows.
    with unfit_values():
        catalog.alter_partition("shop.odd", ("2",), rename_to=("two",))
    with pytest.raises(InvalidRowsError, match=r"shop\.odd: 1 partition\(s\) with such rows have a value that is not"):
        session.execute("DELETE FROM odd WHERE id = 2")
    session.execute("DELETE FROM odd WHERE id = 1")
    assert [list(row) for row in session.execute("SELECT id, n FROM odd").rows] == [[2, None]]


@pytest.mark.long
def test_rows_do_not_move_to_a_partition_that_is_quarantined(session: Session, catalog: Catalog) -> None:
    create(session, "hive")
    with catalog.storage.write() as connection:
        hidden = PartitionRow.id == catalog.get_partition("shop.orders", ("DE", "2026-01-01")).id
        connection.execute(update(PartitionRow).where(hidden).values(is_quarantined=True))
    with pytest.raises(ConflictError, match=r"country=DE/day=2026-01-01 of shop\.orders is quarantined"):
        session.execute("UPDATE orders SET country = 'DE' WHERE id = 1")
    assert rows(session) == [row for row in BEFORE if row[0] != 4]
    assert catalog.release_partitions("shop.orders") == 1
    assert_consistent(session, catalog, BEFORE)


def test_tables_without_partition_keys_refuse_changes(session: Session) -> None:
    session.execute("CREATE TABLE plain (id int)")
    for statement in ("DELETE FROM {}", "UPDATE {} SET id = 1", "TRUNCATE TABLE {}", "INSERT OVERWRITE {} VALUES (1)"):
        with pytest.raises(UnsupportedChangeError, match="has no partition keys"):
            session.execute(statement.format("plain"))


@pytest.mark.parametrize("point", [Point.LISTED, Point.RESERVED, Point.MOVED, Point.CHANGED])
def test_a_change_that_fails_changes_nothing(
    session: Session, catalog: Catalog, monkeypatch: pytest.MonkeyPatch, point: Point
) -> None:
    """An error at a point; tests/catalog/loading kills processes at these points."""
    create(session, "hive")

    def fail(current: Point) -> None:
        if current is point:
            raise OSError("the disk is full")

    for module in ("catalog.loading.loading", "catalog.loading.publishing"):
        monkeypatch.setattr(f"{module}.reached", fail)
    if point is Point.LISTED:
        monkeypatch.setattr("spark_jobs.writing.value_loading.list_staged", lambda *_: 0)
    with pytest.raises((CatalogError, OSError)):
        session.execute("DELETE FROM orders WHERE id = 1")
    monkeypatch.undo()
    assert_consistent(session, catalog, BEFORE)
    session.execute("DELETE FROM orders WHERE id = 1")
    assert_consistent(session, catalog, BEFORE[1:])


def test_a_partition_has_no_rows_of_the_partitions_whose_folders_are_inside_its_own(
    session: Session, catalog: Catalog, tmp_path: Path
) -> None:
    for name in ("nested", "other"):
        session.execute(f"CREATE TABLE {name} (id int) PARTITIONED BY (k string) STORED AS PARQUET")
    for table, key, folder, numbers in (
        ("nested", "outer", "out", [1, 2]),
        ("nested", "inner", "out/in", [3]),
        ("nested", "innermost", "out/in/most", [4]),
        ("other", "inner", "out/other", [5]),
    ):
        (tmp_path / folder).mkdir(parents=True)
        pq.write_table(pa.table({"id": pa.array(numbers, pa.int32())}), tmp_path / folder / "f.parquet")
        session.execute(f"ALTER TABLE {table} ADD PARTITION (k = '{key}') LOCATION '{tmp_path / folder}'")

    def numbers_of(where: str, table: str = "nested") -> list[int]:
        return [row[0] for row in session.execute(f"SELECT id FROM {table} WHERE {where} ORDER BY id").rows]

    assert numbers_of("true") == [1, 2, 3, 4]
    assert (numbers_of("k = 'outer'"), numbers_of("k = 'inner'")) == ([1, 2], [3])
    session.execute("UPDATE nested SET id = id + 10 WHERE k = 'inner'")
    assert numbers_of("k = 'outer'") == [1, 2], "the former file of the other partition is still there"
    session.execute("UPDATE nested SET id = id + 10 WHERE k = 'outer'")
    session.execute("DELETE FROM nested WHERE id = 4")
    for _ in range(3):
        assert numbers_of("true") == [11, 12, 13]
        assert (numbers_of("k = 'outer'"), numbers_of("k <> 'outer'")) == ([11, 12], [13])
        assert catalog.vacuum(grace=NOW).problems == ()
    assert numbers_of("true", "other") == [5]
