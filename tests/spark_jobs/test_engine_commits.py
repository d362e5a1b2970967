"""Commits by Spark's Iceberg and PyIceberg to tables with a partition scheme, read and changed by Calve."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog import Catalog, Column
from catalog.errors import LocationNotAllowedError, PlanConflictError
from catalog.rebalancing.changes import MergePartitions, PartitionChange, PlaceFiles, SplitPartition
from catalog.schemes.model import UNPLACED
from catalog.tables.schemes import scheme_from_properties
from tests.support.effort import effort
from tests.support.equality_deletes import delete_equal
from tests.support.iceberg_tables import sql_catalog
from tests.support.published import check_published, published, reachable_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = "shop.t"
_numbers = itertools.count(1)


class Placed:
    """A table of the ranges of `c` up to 10, 20 and 30."""

    def __init__(self, spark: SparkSession, catalog: Catalog, columns: Sequence[tuple[str, str]] = ()) -> None:
        from spark_jobs.sessions.session import configure

        self.spark, self.catalog = configure(spark), catalog
        catalog.create_database("shop")
        scheme = scheme_from_properties(
            Column("c", "int"), {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "10, 20, 30", "SORT_COLUMNS": "a"}
        )
        catalog.create_table(TABLE, columns=[("a", "string"), *columns, ("c", "int")], scheme=scheme)

    def load(self, values: Sequence[int]) -> None:
        from spark_jobs.writing.scheme_loading import load_rows

        rows = self.spark.createDataFrame([(f"a{value}", value) for value in values], "a string, c int")
        load_rows(self.spark, self.catalog, f"load-{next(_numbers)}", TABLE, rows)

    def change(self, change: PartitionChange) -> None:
        from spark_jobs.rebalance import rebalance

        rebalance(self.spark, self.catalog, f"change-{next(_numbers)}", TABLE, change)

    def values(self, where: str | None = None) -> list[int]:
        from spark_jobs.reading.tables import read_table

        return sorted(row.c for row in read_table(self.spark, TABLE, where, catalog=self.catalog).collect())

    def check(self, expected: Sequence[int]) -> None:
        """Compare what Calve and other engines read with the expected values."""
        from spark_jobs.queries.query import query

        assert self.values() == sorted(expected)
        for low in (5, 12, 25, 31):
            assert self.values(f"c >= {low}") == sorted(value for value in expected if value >= low)
        sql = f"SELECT c, _partition_id FROM {TABLE} WHERE c < 20"
        scheme = self.catalog.get_table(TABLE).scheme
        assert scheme is not None
        found = [tuple(row) for row in query(self.spark, sql, catalog=self.catalog).collect()]
        assert sorted(found) == sorted((value, scheme.partition_of(value)) for value in expected if value < 20)
        check_published(self.catalog, TABLE)
        assert sorted(published(self.catalog, TABLE).scan().to_arrow()["c"].to_pylist()) == sorted(expected)

    def places(self) -> dict[int, int]:
        """Return the number of rows of each partition that has any."""
        partitions = self.catalog.scheme_partitions(TABLE)
        return {partition.id: partition.row_count for partition in partitions if partition.row_count}


@pytest.fixture
def placed(iceberg_spark: SparkSession, catalog: Catalog) -> Placed:
    table = Placed(iceberg_spark, catalog)
    table.load([1, 11, 21, 31])
    return table


def test_rows_that_spark_inserts_are_read_and_kept(placed: Placed, engine: SparkSession) -> None:
    engine.sql(f"INSERT INTO calve.{TABLE} SELECT /*+ COALESCE(1) */ * FROM VALUES ('x', 2), ('y', 22)")
    placed.check([1, 2, 11, 21, 22, 31])
    assert placed.places() == {0: 1, 1: 1, 2: 1, 3: 1, UNPLACED: 2}
    engine.createDataFrame([("z", 12)], "a string, c int").coalesce(1).writeTo(f"calve.{TABLE}").append()
    placed.change(SplitPartition(2, ("12", "20")))
    placed.load([3, 13])
    placed.check([1, 2, 3, 11, 12, 13, 21, 22, 31])
    assert engine.table(f"calve.{TABLE}").count() == 9


@pytest.mark.long
def test_rows_are_changed_beside_unplaced_files_and_delete_files(placed: Placed, engine: SparkSession) -> None:
    from spark_jobs.changing.row_changes import delete_rows, overwrite_rows, update_rows

    engine.sql(f"ALTER TABLE calve.{TABLE} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
    placed.load([2, 12, 22, 32])
    engine.sql(f"INSERT INTO calve.{TABLE} SELECT /*+ COALESCE(1) */ * FROM VALUES ('x', 3), ('y', 23)")
    engine.sql(f"DELETE FROM calve.{TABLE} WHERE c = 2 OR c = 12")
    assert placed.catalog.get_table(TABLE).delete_file_count > 0
    placed.check([1, 3, 11, 21, 22, 23, 31, 32])
    report = delete_rows(placed.spark, placed.catalog, "delete", TABLE, "c IN (1, 2, 23)")
    assert report["rows"] == 2
    placed.check([3, 11, 21, 22, 31, 32])
    report = update_rows(placed.spark, placed.catalog, "update", TABLE, {"c": "c + 10"}, "a = 'a11' OR a = 'a12'")
    assert report["rows"] == 1
    placed.check([3, 21, 21, 22, 31, 32])
    engine.sql(f"INSERT INTO calve.{TABLE} SELECT /*+ COALESCE(1) */ * FROM VALUES ('x', 4), ('y', 24)")
    rows = placed.spark.createDataFrame([("new", 29)], "a string, c int")
    overwrite_rows(placed.spark, placed.catalog, "overwrite", TABLE, rows)
    placed.check([3, 4, 29, 31, 32])
    check_vacuum(placed)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_rows_that_spark_deletes_and_merges_are_as_it_left_them(
    placed: Placed, engine: SparkSession, mode: str
) -> None:
    properties = ", ".join(f"'write.{kind}.mode'='{mode}'" for kind in ("delete", "merge", "update"))
    engine.sql(f"ALTER TABLE calve.{TABLE} SET TBLPROPERTIES ({properties})")
    placed.load([value for value in range(40) if value % 10 != 1])
    engine.sql(f"DELETE FROM calve.{TABLE} WHERE c % 10 = 5")
    kept = [value for value in range(40) if value % 10 != 5]
    placed.check(kept)
    engine.sql(
        f"MERGE INTO calve.{TABLE} t USING (SELECT 'm' a, 7 c UNION ALL SELECT 'n', 55) s ON t.c = s.c "
        "WHEN MATCHED THEN UPDATE SET a = s.a WHEN NOT MATCHED THEN INSERT *"
    )
    placed.check([*kept, 55])
    has_deletes = mode == "merge-on-read"
    assert (placed.catalog.get_table(TABLE).delete_file_count > 0) is has_deletes
    # A change applies the deletes of the files that it rewrites, and keeps the others.
    placed.change(SplitPartition(2, ("13", "20")))
    placed.load([3])
    placed.check([*kept, 55, 3])
    assert (placed.catalog.get_table(TABLE).delete_file_count > 0) is has_deletes
    placed.change(PlaceFiles())
    assert placed.catalog.get_table(TABLE).delete_file_count == 0
    placed.check([*kept, 55, 3])
    assert sum(placed.places().values()) == len(kept) + 2
    assert UNPLACED not in placed.places()
    assert engine.table(f"calve.{TABLE}").where("c = 7").first().a == "m"  # type: ignore[union-attr]
    check_vacuum(placed)
    placed.check([*kept, 55, 3])


@pytest.mark.long
def test_a_change_of_a_table_with_deletes_reads_only_its_own_files(placed: Placed, engine: SparkSession) -> None:
    engine.sql(f"ALTER TABLE calve.{TABLE} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
    placed.load([12, 13, 17, 2, 22])
    engine.sql(f"DELETE FROM calve.{TABLE} WHERE c = 13")
    scan = placed.catalog.scan_files(TABLE)
    others = [Path(scan.table.location, file.path) for file in scan.files if file.partition_id != 2]
    assert len(others) == 5
    for path in others:
        path.rename(f"{path}.away")
    placed.change(SplitPartition(2, ("15", "20")))
    for path in others:
        Path(f"{path}.away").rename(path)
    placed.check([1, 2, 11, 12, 17, 21, 22, 31])


def check_vacuum(placed: Placed) -> None:
    """Check that vacuum leaves no file that the live metadata do not reach, of data or deletes or metadata."""
    placed.catalog.vacuum(grace=timedelta(0))
    location = Path(placed.catalog.get_table(TABLE).location)
    files = {path for name in ("data", "metadata") for path in (location / name).rglob("*") if path.is_file()}
    # Hadoop's file system writes checksums of its own beside the files.
    on_disk = {str(path) for path in files if path.suffix != ".crc"}
    assert on_disk <= reachable_files(placed.catalog, TABLE)


@pytest.mark.long
def test_equality_deletes_are_applied(placed: Placed, engine: SparkSession) -> None:
    placed.load([2, 12, 22, 11])
    delete_equal(engine, f"calve.{TABLE}", "c", [11, 22])
    placed.load([11])
    # PyIceberg cannot read the table now.
    assert placed.values() == [1, 2, 11, 12, 21, 31]
    assert placed.values("c > 11") == [12, 21, 31]
    placed.change(SplitPartition(2, ("13", "20")))
    assert placed.values() == [1, 2, 11, 12, 21, 31]
    placed.change(PlaceFiles())
    assert placed.catalog.get_table(TABLE).delete_file_count == 0
    placed.check([1, 2, 11, 12, 21, 31])
    check_vacuum(placed)
    placed.check([1, 2, 11, 12, 21, 31])


def test_deletes_that_come_after_a_plan_are_not_undone(placed: Placed, engine: SparkSession) -> None:
    from catalog.operations.attempts import attempt_folder
    from catalog.rebalancing.rebalancing import COMMIT
    from spark_jobs.writing.rebalancing import rewrite

    engine.sql(f"ALTER TABLE calve.{TABLE} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
    placed.load([10, 12, 13, 22, 23])
    catalog = placed.catalog
    change = SplitPartition(2, ("12", "20"))
    operation = catalog.rebalancing.begin("late", TABLE, change)
    with catalog.operations.attempt("late", COMMIT) as attempt:
        plan = catalog.rebalancing.plan_of(operation)
        folder = attempt_folder(operation, attempt)
        rewrite(placed.spark, plan, folder)
        engine.sql(f"DELETE FROM calve.{TABLE} WHERE c = 13")
        with pytest.raises(PlanConflictError):
            catalog.rebalancing.commit("late", COMMIT, attempt, plan, folder)
    catalog.operations.fail("late", "TEST", "an engine has deleted rows")
    placed.check([1, 10, 11, 12, 21, 22, 23, 31])
    # Deletes of other files do not matter.
    operation = catalog.rebalancing.begin("again", TABLE, change)
    with catalog.operations.attempt("again", COMMIT) as attempt:
        plan = catalog.rebalancing.plan_of(operation)
        folder = attempt_folder(operation, attempt)
        rows = rewrite(placed.spark, plan, folder)
        engine.sql(f"DELETE FROM calve.{TABLE} WHERE c = 23")
        catalog.rebalancing.commit("again", COMMIT, attempt, plan, folder, row_count=rows)
    placed.check([1, 10, 11, 12, 21, 22, 31])


@pytest.mark.long
def test_columns_that_spark_changes_are_followed(
    iceberg_spark: SparkSession, catalog: Catalog, engine: SparkSession
) -> None:
    from spark_jobs.reading.tables import read_table

    placed = Placed(iceberg_spark, catalog, [("b", "int"), ("old", "string")])
    name = f"calve.{TABLE}"

    def insert(*values: str) -> None:
        engine.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ * FROM VALUES {', '.join(values)}")

    insert("('a', 1, 'gone', 1)", "('b', 2, 'gone', 12)")
    for change in (
        "RENAME COLUMN b TO n",
        "ALTER COLUMN n TYPE bigint",
        "DROP COLUMN old",
        "ADD COLUMN old string AFTER a",
        "ADD COLUMN b decimal(5,1)",
        "ALTER COLUMN old COMMENT 'the second'",
    ):
        engine.sql(f"ALTER TABLE {name} {change}")
    insert("('c', 'new', 8589934592, 3, 1.5)", "('d', 'new', 4, 14, 2.5)")

    def check() -> None:
        columns = ["a", "old", "n", "b", "c"]
        own = read_table(placed.spark, TABLE, catalog=catalog).select(columns).orderBy("c").collect()
        assert own == engine.table(name).select(columns).orderBy("c").collect()
        assert [tuple(row)[:4] for row in own] == [
            ("a", None, 1, None),
            ("c", "new", 8589934592, Decimal("1.5")),
            ("b", None, 2, None),
            ("d", "new", 4, Decimal("2.5")),
        ]
        check_published(catalog, TABLE)

    assert [(column.name, column.comment) for column in catalog.get_table(TABLE).columns] == [
        *[("a", None), ("old", "the second"), ("n", None), ("b", None), ("c", None)]
    ]
    placed.change(PlaceFiles())
    check()
    placed.change(SplitPartition(2, ("13", "20")))
    check()


@pytest.mark.parametrize("is_renamed_first", [False, True])
@pytest.mark.parametrize("kind", ["scheme", "iceberg"])
def test_files_without_field_ids_are_read_by_names(
    iceberg_spark: SparkSession,
    catalog: Catalog,
    catalog_url: str,
    engine: SparkSession,
    kind: str,
    is_renamed_first: bool,
) -> None:
    from spark_jobs.reading.tables import read_table

    if kind == "scheme":
        Placed(iceberg_spark, catalog, [("1 b", "int")]).load([12])
    else:
        catalog.create_database("shop")
        columns = [("a", "string"), ("1 b", "int")]
        catalog.create_table(TABLE, columns=columns, partition_keys=[("c", "int")], format="iceberg")
        engine.sql(f"INSERT INTO calve.{TABLE} VALUES ('a12', NULL, 12)")

    def rename() -> None:
        catalog.alter_table(TABLE, change_columns={"1 b": ("2 n", "int")})

    def add(name: str, value: int) -> None:
        path = Path(catalog.get_table(TABLE).location, "data", f"added-{value}.parquet")
        path.parent.mkdir(exist_ok=True)
        values = {name: pa.array([value], pa.int32()), "a": ["x"], "c": pa.array([value], pa.int32())}
        pq.write_table(pa.table(values), path)
        with sql_catalog(catalog_url) as iceberg:
            iceberg.load_table(TABLE).add_files([str(path)])

    if is_renamed_first:
        rename()
        add("2 n", 2)
    else:
        add("1 b", 2)
        assert read_table(iceberg_spark, TABLE, catalog=catalog).count() == 2
        rename()
    add("2 n", 1)
    # Engines write such a name in another way, but with the field id.
    engine.sql(f"INSERT INTO calve.{TABLE} SELECT /*+ COALESCE(1) */ * FROM VALUES ('y', 22, 22), ('y', 23, 23)")
    expected = [("x", 1, 1), ("x", 2, 2), ("a12", None, 12), ("y", 22, 22), ("y", 23, 23)]
    assert [tuple(row) for row in read_table(iceberg_spark, TABLE, catalog=catalog).orderBy("c").collect()] == expected
    assert [tuple(row) for row in engine.table(f"calve.{TABLE}").orderBy("c").collect()] == expected


def test_rows_with_nested_values_of_engines_are_rewritten_for_all_readers(
    iceberg_spark: SparkSession, catalog: Catalog, engine: SparkSession
) -> None:
    from pyspark.sql import functions as f
    from pyspark.sql.types import IntegerType, StructField, StructType

    from spark_jobs.writing.scheme_loading import load_rows

    placed = Placed(iceberg_spark, catalog, [("e", "array<int>"), ("s", "struct<u:int>")])
    engine.sql(f"ALTER TABLE calve.{TABLE} RENAME COLUMN e TO d")
    engine.sql(
        f"INSERT INTO calve.{TABLE} SELECT /*+ COALESCE(1) */ * FROM VALUES "
        "('x', array(1, 2), named_struct('u', 1), 2), ('y', null, null, 22)"
    )
    placed.change(PlaceFiles())
    # A frame of files with field ids has them in its schema.
    inner = StructType([StructField("u", IntegerType(), True, {"parquet.field.id": 50})])
    rows = placed.spark.createDataFrame([((3,),)], StructType([StructField("s", inner)]))
    rows = rows.select(f.lit("z").alias("a"), f.array("s.u").alias("d"), "s", f.col("s.u").alias("c"))
    with_ids = [rows[name].alias(name, metadata={"parquet.field.id": 40 + n}) for n, name in enumerate(rows.columns)]
    load_rows(placed.spark, catalog, "load-with-ids", TABLE, rows.select(*with_ids))
    found = engine.table(f"calve.{TABLE}").orderBy("c").collect()
    assert [tuple(row) for row in found] == [("x", [1, 2], (1,), 2), ("z", [3], (3,), 3), ("y", None, None, 22)]
    arrow = published(catalog, TABLE).scan().to_arrow().sort_by("c")
    assert (arrow["d"].to_pylist(), arrow["s"].to_pylist()) == ([[1, 2], [3], None], [{"u": 1}, {"u": 3}, None])


def test_files_outside_the_allowed_folders_are_not_read(
    placed: Placed, catalog_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark_jobs.reading.tables import read_table

    location = placed.catalog.get_table(TABLE).location
    secret = tmp_path / "secret" / "salaries.parquet"
    secret.parent.mkdir()
    pq.write_table(pa.table({"a": ["of ann"], "c": pa.array([100_000], pa.int32())}), secret)
    with sql_catalog(catalog_url) as iceberg:
        iceberg.load_table(TABLE).add_files([str(secret)])
    # Where everything is allowed, the table stays readable.
    assert 100_000 in placed.values()
    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", location)
    with pytest.raises(LocationNotAllowedError, match=f"table {TABLE}, which another engine has changed: .*secret"):
        read_table(placed.spark, TABLE, catalog=placed.catalog)


@pytest.mark.long
def test_metadata_tables_name_the_snapshots_of_tables_that_calve_places(placed: Placed) -> None:
    from spark_jobs.queries.query import query

    placed.load([2])
    sql = f"SELECT snapshot_id FROM {TABLE}.snapshots ORDER BY committed_at"
    (first, _) = [snapshot_id for (snapshot_id,) in query(placed.spark, sql, catalog=placed.catalog).collect()]
    placed.catalog.roll_backs.to_snapshot(TABLE, first)
    placed.check([1, 11, 21, 31])
    counted = f"SELECT t.c, f.file_count FROM {TABLE} t CROSS JOIN (SELECT count(*) file_count FROM {TABLE}.files) f"
    assert len(query(placed.spark, counted, catalog=placed.catalog).collect()) == 4


COLUMNS = (
    *[("t", "tinyint"), ("s", "smallint"), ("i", "int"), ("l", "bigint"), ("f", "float"), ("d", "double")],
    *[("p", "decimal(5,2)"), ("q", "decimal(18,3)"), ("r", "decimal(30,10)"), ("x", "boolean"), ("y", "date")],
    *[("z", "timestamp"), ("w", "timestamp_ntz"), ("h", "char(5)"), ("v", "varchar(5)"), ("m", "binary")],
    *[("e", "array<int>"), ("g", "struct<u:int,k:string>"), ("j", "map<string,double>")],
)


@pytest.mark.long
def test_each_type_that_engines_write_is_read(
    iceberg_spark: SparkSession, catalog: Catalog, catalog_url: str, engine: SparkSession
) -> None:
    from spark_jobs.reading.iceberg import read_metadata_file
    from spark_jobs.reading.tables import read_table

    placed = Placed(iceberg_spark, catalog, COLUMNS)
    engine.sql(
        f"INSERT INTO calve.{TABLE} SELECT /*+ COALESCE(1) */ * FROM VALUES "
        "('a', 1, -300, 70000, 5000000000, 1.5f, -2.5d, 1.25bd, -123.456bd, 12345678901234567890.0123456789bd, true, "
        "DATE'2024-02-29', TIMESTAMP'2024-02-29 12:34:56.123456', TIMESTAMP_NTZ'1960-01-01 00:00:00.000001', 'h', 'v', "
        "X'00FF', array(1, null), named_struct('u', 1, 'k', 'k'), map('k', 1.5d), 5), "
        "(null, null, null, null, null, float('nan'), double('inf'), null, null, null, null, null, null, null, null, "
        "null, null, null, null, null, 15)"
    )
    with sql_catalog(catalog_url) as iceberg:
        table = iceberg.load_table(TABLE)
        row = {
            **{"a": "p", "t": 2, "s": 3, "i": 4, "l": 5, "f": 0.5, "d": float("nan"), "p": Decimal("-1.00")},
            **{"q": Decimal("1.000"), "r": Decimal("0.0000000001"), "x": False, "y": date(1969, 12, 31)},
            **{"z": datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), "w": datetime(2100, 1, 1)},
            **{"h": "hh", "v": "vv", "m": b"m", "e": [], "g": {"u": None, "k": "x"}, "j": {"a": None}, "c": 25},
        }
        schema = table.schema().as_arrow()
        table.append(pa.Table.from_pylist([row, {**dict.fromkeys(row), "c": None}], schema=schema))
    location = catalog.get_table(TABLE).live_location
    assert location is not None
    names = ["a", *[name for name, _ in COLUMNS], "c"]

    def check() -> None:
        own = read_table(placed.spark, TABLE, catalog=catalog).selectExpr("rtrim(h) h", *[n for n in names if n != "h"])
        published_rows = read_metadata_file(placed.spark, str(catalog.get_table(TABLE).live_location))
        others = published_rows.selectExpr("rtrim(h) h", *[n for n in names if n != "h"])
        assert sorted(map(str, own.collect())) == sorted(map(str, others.collect()))
        assert own.count() == 4
        for where in (
            "t = 1",
            "s < 0",
            "l > 4",
            "f > 0.7",
            "d > 1",
            "p = 1.25",
            "y < '1970-01-01'",
            "h = 'h'",
            "c = 15",
        ):
            kept = read_table(placed.spark, TABLE, where, catalog=catalog).count()
            assert kept == others.where(where.replace("h =", "trim(h) =")).count(), where

    check()
    placed.change(PlaceFiles())
    check()


@pytest.mark.long
def test_two_sessions_append_while_calve_loads_and_splits(
    placed: Placed, iceberg_spark: SparkSession, catalog_url: str
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from tests.support.spark_engine import engine_session

    sessions = [engine_session(iceberg_spark, catalog_url) for _ in range(2)]
    sessions[0].sql(f"ALTER TABLE calve.{TABLE} SET TBLPROPERTIES ('commit.retry.num-retries'='50')")

    def append(session: SparkSession, values: Sequence[int]) -> None:
        for value in values:
            rows = session.createDataFrame([("x", value), ("y", value + 20)], "a string, c int").coalesce(1)
            rows.writeTo(f"calve.{TABLE}").append()

    with ThreadPoolExecutor(2) as pool:
        appended = [list(range(start, 2 * effort(3, 10), 2)) for start in (0, 1)]
        running = [pool.submit(append, *pair) for pair in zip(sessions, appended, strict=True)]
        for number, change in enumerate((SplitPartition(2, ("15", "20")), MergePartitions((4, 5)), PlaceFiles())):
            placed.load([100 + number])
            placed.change(change)
        for done in running:
            done.result()
    of_engines = (value for values in appended for first in values for value in (first, first + 20))
    expected = [1, 11, 21, 31, 100, 101, 102, *of_engines]
    placed.check(expected)
    placed.change(PlaceFiles())
    placed.check(expected)
    assert UNPLACED not in placed.places()
