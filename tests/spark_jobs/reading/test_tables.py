"""A pruned table equals the whole table, read by plain Spark and filtered."""

from __future__ import annotations

import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.parquet
import pytest

from catalog import Catalog, IndexDefinition, NewPartition
from catalog.errors import InvalidLocationError, TableNotFoundError, UnknownColumnError, VerificationFailedError
from catalog.model.partition_names import partition_path
from catalog.tables.spark_schema import OWN_TYPE
from tests.support.effort import effort

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

TABLE = "shop.orders"
# The version nearest to Spark's that Maven Central has.
AVRO_PACKAGE = "spark-avro_2.13:4.1.1"
KEYS = (("country", "string"), ("n", "int"), ("day", "date"), ("code", "char(4)"))
COLUMNS = {"id": "bigint", "name": "varchar(20)", "price": "decimal(10,2)", "at": "timestamp"}
NESTED = {"info": "struct<tag:char(2),sizes:array<int>>"}
ADDED = {"note": "string", "rank": "smallint"}
SIZED_TEXT = re.compile(r"(var)?char\(\d+\)")

NEW_YEAR = date(2024, 1, 1)
WILD = "a/b%2F c=d?#{x}[y]*'\"\\:;+&é中😀"


@dataclass(frozen=True)
class Given:
    """A partition to add, with its values as Python knows them.

    Attributes:
        folder: Its location in the test's folder; None for its default folder.
        is_old: Its files were written before columns were added.
    """

    values: tuple[str | None, ...]
    typed: tuple[Any, ...]
    folder: str | None = None
    is_old: bool = False


PARTITIONS = (
    Given(("US", "1", "2024-01-01", "ab"), ("US", 1, NEW_YEAR, "ab"), is_old=True),
    Given(("US", "02", "2024-01-02", "ab  "), ("US", 2, date(2024, 1, 2), "ab"), is_old=True),
    Given(("UK", "+3", "0001-01-01", "x"), ("UK", 3, date(1, 1, 1), "x")),
    Given((None, None, None, None), (None, None, None, None)),
    Given((None, "-1", "2024-01-01", "y"), (None, -1, NEW_YEAR, "y")),
    Given((WILD, "4", "9999-12-31", "%_"), (WILD, 4, date(9999, 12, 31), "%_")),
    Given(("01", "0", "2024-01-01", " a"), ("01", 0, NEW_YEAR, " a")),
    Given(("", "5", "2024-01-01", ""), (None, 5, NEW_YEAR, None)),
    Given(("US", "foo", "2024-02-30", "ab"), ("US", None, None, "ab")),
    Given(("US", "6", "2024-01-03", "ab"), ("US", 6, date(2024, 1, 3), "ab"), "elsewhere/plain", True),
    Given(("US", "7", "2024-01-04", "q "), ("US", 7, date(2024, 1, 4), "q"), "elsewhere/é {x}[y]*%2F ?#+'\"\u3000中"),
    Given((None, "8", None, "ab"), (None, 8, None, "ab"), "elsewhere/country=XX/n=99/day=2000-01-01/code=zz"),
    Given(("DE", "9", "2024-01-05", "s1"), ("DE", 9, date(2024, 1, 5), "s1"), "elsewhere/shared"),
    Given(("DE", "10", "2024-01-05", "s2"), ("DE", 10, date(2024, 1, 5), "s2"), "elsewhere/shared"),
    Given(("DE", "11", "2024-01-05", "s3"), ("DE", 11, date(2024, 1, 5), "s3"), "elsewhere/shared/within"),
)

# In Calve's language and in Spark's alike.
FILTERS = (
    "country = 'US'",
    "n between 2 and 7 and country = 'US'",
    "day = '2024-01-01'",
    "day > '2024-01-02' or n is null",
    "code = 'ab'",
    "country like '%b\\\\%%'",
    "country is not null and not (n = 1)",
    "country in ('DE', '', '01')",
    "country is null",
    "n <> 3",
)


@dataclass
class Lake:
    """A table with all these partitions, and the same rows as plain Spark reads them, file by file."""

    spark: SparkSession
    catalog: Catalog
    folder: Path
    format: str
    sources: dict[bool, Path] = field(default_factory=dict)

    def columns(self, is_old: bool) -> dict[str, str]:
        nested = {} if self.format == "csv" else NESTED
        return {**COLUMNS, **nested, **({} if is_old else ADDED)}

    def create(self) -> None:
        for is_old in (True, False):
            self.sources[is_old] = self.folder / f"written/{is_old}"
            self._rows(is_old).write.format(self.format).option("header", "true").save(str(self.sources[is_old]))
        self.catalog.create_database("shop", location=str(self.folder / "shop b{1}%20[x]"))
        indexes = [IndexDefinition("by_country", ("country", "code"))]
        self.catalog.create_table(
            TABLE, columns=self.columns(True).items(), partition_keys=KEYS, format=self.format, indexes=indexes
        )
        self.add(*[given for given in PARTITIONS if given.is_old])
        self.catalog.alter_table(TABLE, add_columns=ADDED.items())
        self.add(*[given for given in PARTITIONS if not given.is_old])

    def _rows(self, is_old: bool) -> DataFrame:
        rows = self.spark.sql(
            "SELECT id, concat('name ', id) AS name, cast(id AS decimal(10,2)) / 3 AS price, "
            "timestamp_seconds(id * 1000) AS at, named_struct('tag', 'a', 'sizes', array(1, 2)) AS info, "
            "if(id = 1, null, 'a, \"note\"') AS note, id AS rank FROM range(1, 4)"
        )
        types = {name: SIZED_TEXT.sub("string", text) for name, text in self.columns(is_old).items()}
        return rows.selectExpr(*[f"cast({name} AS {text}) AS {name}" for name, text in types.items()]).coalesce(1)

    def add(self, *partitions: Given) -> None:
        table = self.catalog.get_table(TABLE)
        new = []
        for given in partitions:
            location = None if given.folder is None else str(self.folder / given.folder)
            path = location or f"{table.location}/{partition_path(table.key_names, given.values)}"
            shutil.copytree(self.sources[given.is_old], path, dirs_exist_ok=True)
            new.append(NewPartition(given.values, location, file_count=1))
        self.catalog.add_partitions(TABLE, new)

    def plain(self) -> DataFrame:
        """All rows of the table, built without Calve, with padded chars as Spark's char type."""
        from pyspark.sql import functions as f

        whole = None
        for is_old, path in self.sources.items():
            types = {name: SIZED_TEXT.sub("string", text) for name, text in self.columns(is_old).items()}
            reader = self.spark.read.format(self.format)
            if self.format == "csv":
                reader = reader.option("header", "true").schema(", ".join(map(" ".join, types.items())))
            rows = reader.load(str(path)).selectExpr(
                *[f"cast({name} AS {text}) AS {name}" for name, text in types.items()]
            )
            keys = self.spark.createDataFrame(
                [given.typed for given in PARTITIONS if given.is_old is is_old],
                "country string, n int, day date, code string",
            )
            keys = keys.withColumn("code", f.rpad("code", 4, " ").alias("code", metadata={OWN_TYPE: KEYS[3][1]}))
            if "info" in rows.columns:
                rows = rows.withColumn(
                    "info", f.expr("named_struct('tag', rpad(info.tag, 2, ' '), 'sizes', info.sizes)")
                )
            both = rows.crossJoin(keys)
            whole = both if whole is None else whole.unionByName(both, allowMissingColumns=True)
        assert whole is not None
        return whole.select(*self.columns(False), "country", "n", "day", "code")

    def read(self, where: str | None = None) -> DataFrame:
        from spark_jobs.reading.tables import read_table

        return read_table(self.spark, TABLE, where, catalog=self.catalog)


@pytest.fixture
def catalog(sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    monkeypatch.setenv("CALVE_CATALOG_URL", sqlite_url)
    with Catalog.open(warehouse=str(tmp_path / "warehouse")) as opened:
        yield opened


@pytest.fixture
def make_lake(spark: SparkSession, catalog: Catalog, tmp_path: Path) -> Callable[..., Lake]:
    def make(file_format: str, session: SparkSession = spark) -> Lake:
        lake = Lake(session, catalog, tmp_path, file_format)
        lake.create()
        return lake

    return make


@pytest.fixture
def avro_session(spark: SparkSession) -> SparkSession:
    """A session that has Spark's Avro package; skipped where Maven Central cannot be reached."""
    from pyspark.errors import PySparkException

    session = spark.newSession()
    try:
        session.sql(f"ADD JAR ivy://org.apache.spark:{AVRO_PACKAGE}?transitive=false")
    except PySparkException as error:
        pytest.skip(f"Spark's Avro package cannot be had: {error}")
    return session


def job_count(spark: SparkSession, action: Callable[[], object]) -> int:
    group = f"group {time.monotonic_ns()}"
    spark.sparkContext.setJobGroup(group, group)
    try:
        action()
        return len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def counted(rows: Iterable[tuple[Any, ...]]) -> Counter[str]:
    """Return the rows, which may contain lists, with their counts."""
    return Counter(repr(tuple(row)) for row in rows)


def check_format(lake: Lake, filters: Sequence[str]) -> None:
    names = [f"match_{number}" for number in range(len(filters))]
    conditions = [f"({where}) AS {name}" for where, name in zip(filters, names, strict=True)]
    everything, plain = lake.read(), lake.plain()
    assert everything.schema.simpleString() == plain.schema.simpleString()
    found = plain.selectExpr("*", *conditions).collect()
    assert len(found) == 3 * len(PARTITIONS)
    assert counted(everything.selectExpr("*", *conditions).collect()) == counted(found)
    # All in one job, because each job takes time.
    answers = [
        lake.read(where).selectExpr(f"'{name}' AS name", "*") for where, name in zip(filters, names, strict=True)
    ]
    pruned = reduce(lambda left, right: left.unionAll(right), answers).collect()
    for name, where in zip(names, filters, strict=True):
        expected = counted(row[: -len(names)] for row in found if row[name])
        assert 0 < expected.total() < len(found)
        assert counted(row[1:] for row in pruned if row.name == name) == expected, where


@pytest.mark.long
@pytest.mark.usefixtures("unfit_values")
def test_parquet_equals_everything_filtered(make_lake: Callable[[str], Lake]) -> None:
    check_format(make_lake("parquet"), effort(FILTERS[::3], FILTERS))


@pytest.mark.long
@pytest.mark.usefixtures("unfit_values")
@pytest.mark.parametrize("file_format", ["orc", "csv"])
def test_other_formats_equal_everything_filtered(make_lake: Callable[[str], Lake], file_format: str) -> None:
    check_format(make_lake(file_format), FILTERS[: effort(2, 4)])


@pytest.mark.long
@pytest.mark.usefixtures("unfit_values")
def test_avro_equals_everything_filtered(make_lake: Callable[..., Lake], avro_session: SparkSession) -> None:
    check_format(make_lake("avro", avro_session), FILTERS[: effort(2, 4)])


def add_orders(catalog: Catalog, count: int) -> Path:
    """Create a table of one-row partitions, one file and day each, and return its folder."""
    catalog.create_database("shop")
    table = catalog.create_table(TABLE, columns=[("id", "bigint")], partition_keys=[("n", "int")])
    for number in range(count):
        write_row(Path(table.location) / f"n={number}", number)
    catalog.add_partitions(TABLE, (NewPartition((str(number),), file_count=1) for number in range(count)))
    return Path(table.location)


def write_row(folder: Path, number: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table({"id": [number]}), folder / "data.parquet")


def test_counts_say_what_is_read(spark: SparkSession, catalog: Catalog) -> None:
    from spark_jobs.reading.tables import prune_table

    folder = add_orders(catalog, 8)
    pruned = prune_table(spark, "Shop.Orders", "n between 2 and 4", catalog=catalog)
    assert (pruned.partitions_read, pruned.files_read) == (3, 3)
    assert str(pruned) == "shop.orders: 3 partitions, 3 files"
    assert sorted(pruned.frame.inputFiles()) == [f"file://{folder}/n={n}/data.parquet" for n in (2, 3, 4)]
    write_row(folder / "n=8", 8)
    catalog.add_partitions(TABLE, [NewPartition(("8",))])
    pruned = prune_table(spark, TABLE, "n > 6", catalog=catalog)
    assert (pruned.partitions_read, pruned.files_read) == (2, None)
    assert str(pruned) == "shop.orders: 2 partitions"


def test_catalog_is_the_one_that_the_environment_names(spark: SparkSession, catalog: Catalog) -> None:
    from spark_jobs.reading.tables import read_table

    add_orders(catalog, 2)
    assert [tuple(row) for row in read_table(spark, TABLE, "n = 1").collect()] == [(1, 1)]


def test_empty_match_needs_no_job_and_has_the_schema(spark: SparkSession, catalog: Catalog) -> None:
    from spark_jobs.reading.tables import read_table

    add_orders(catalog, 2)
    everything = read_table(spark, TABLE, catalog=catalog)
    assert job_count(spark, everything.collect) > 0
    assert job_count(spark, lambda: read_table(spark, TABLE, "n = 7", catalog=catalog).collect()) == 0
    nothing = read_table(spark, TABLE, "n = 7", catalog=catalog)
    assert nothing.schema == everything.schema
    assert nothing.collect() == []


def test_jobs_do_not_grow_with_the_partitions(spark: SparkSession, catalog: Catalog) -> None:
    from spark_jobs.reading.tables import read_table

    folder = add_orders(catalog, 60)
    catalog.drop_partitions(TABLE, "n >= 40")
    catalog.add_partitions(TABLE, (NewPartition((str(n + 100),), str(folder / f"n={n}")) for n in range(40, 60)))
    listing = spark.conf.get("spark.sql.sources.parallelPartitionDiscovery.parallelism")
    few = job_count(spark, lambda: read_table(spark, TABLE, "n in (0, 140)", catalog=catalog).collect())
    everything = read_table(spark, TABLE, catalog=catalog)
    # One more job lists the folders, because there are many.
    assert job_count(spark, everything.collect) <= few + 1
    assert {row.n - row.id for row in everything.collect()} == {0, 100}
    assert everything.count() == 60
    assert spark.conf.get("spark.sql.sources.parallelPartitionDiscovery.parallelism") == listing


def test_folders_that_the_catalog_does_not_know_are_not_read(spark: SparkSession, catalog: Catalog) -> None:
    from spark_jobs.reading.tables import read_table

    folder = add_orders(catalog, 3)
    write_row(folder / "n=77", 77)
    catalog.drop_partitions(TABLE, "n = 1")
    assert {row.n for row in read_table(spark, TABLE, catalog=catalog).collect()} == {0, 2}


def test_missing_folder_is_named(spark: SparkSession, catalog: Catalog) -> None:
    from spark_jobs.reading.tables import read_table

    folder = add_orders(catalog, 3)
    shutil.rmtree(folder / "n=1")
    with pytest.raises(VerificationFailedError, match="orders/n=1 is the location of a partition, but does not exist"):
        read_table(spark, TABLE, catalog=catalog)
    assert read_table(spark, TABLE, "n <> 1", catalog=catalog).count() == 2


def test_file_that_belongs_to_no_partition_is_an_error(spark: SparkSession, catalog: Catalog, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    from spark_jobs.reading.tables import read_table

    add_orders(catalog, 1)
    write_row(tmp_path / "own", 5)
    catalog.add_partitions(TABLE, [NewPartition(("5",), str(tmp_path / "own"))])
    assert read_table(spark, TABLE, "n = 5", catalog=catalog).count() == 1
    write_row(tmp_path / "own/n=6", 6)
    with pytest.raises(PySparkException, match=r"own/n=6, which is not the location of a partition"):
        read_table(spark, TABLE, "n = 5", catalog=catalog).count()


def test_table_without_keys_is_read_whole(spark: SparkSession, catalog: Catalog) -> None:
    from spark_jobs.reading.tables import prune_table, read_table

    catalog.create_database("shop")
    table = catalog.create_table(TABLE, columns=[("id", "bigint"), ("name", "string")])
    assert read_table(spark, TABLE, catalog=catalog).collect() == []
    write_row(Path(table.location), 3)
    assert [tuple(row) for row in read_table(spark, TABLE, catalog=catalog).collect()] == [(3, None)]
    assert prune_table(spark, TABLE, catalog=catalog).partitions_read == 0


def test_table_of_keys_only_has_a_row_for_each_of_its_files_rows(spark: SparkSession, catalog: Catalog) -> None:
    from spark_jobs.reading.tables import read_table

    catalog.create_database("shop")
    table = catalog.create_table(TABLE, columns=[], partition_keys=[("n", "tinyint"), ("s", "string")])
    write_row(Path(table.location) / "n=1/s=a", 0)
    write_row(Path(table.location) / "other", 0)
    catalog.add_partitions(TABLE, [NewPartition(("1", "a")), NewPartition(("2", "b"), f"{table.location}/other")])
    assert sorted(map(tuple, read_table(spark, TABLE, catalog=catalog).collect())) == [(1, "a"), (2, "b")]


def test_errors_are_the_catalogs(spark: SparkSession, catalog: Catalog) -> None:
    from spark_jobs.reading.tables import read_table

    add_orders(catalog, 1)
    with pytest.raises(TableNotFoundError):
        read_table(spark, "shop.nothing", catalog=catalog)
    with pytest.raises(UnknownColumnError):
        read_table(spark, TABLE, "id = 1", catalog=catalog)


def test_any_characters_may_be_in_a_location(spark: SparkSession, catalog: Catalog, tmp_path: Path) -> None:
    from spark_jobs.reading.tables import read_table

    catalog.create_database("shop")
    catalog.create_table(TABLE, columns=[("id", "bigint")], partition_keys=[("n", "int")])
    characters = [chr(point) for point in (*range(0x20, 0x180), *range(0x2000, 0x2070), 0x3000, 0xE000, 0x1F600)]
    characters = [character for character in characters if character not in "/:"]
    names = [":", *("".join(characters[start : start + 16]) for start in range(0, len(characters), 16))]
    for number, name in enumerate(names):
        write_row(tmp_path / name, number)
    catalog.add_partitions(
        TABLE, (NewPartition((str(number),), str(tmp_path / name)) for number, name in enumerate(names))
    )
    rows = [(row.id, row.n) for row in read_table(spark, TABLE, catalog=catalog).collect()]
    assert sorted(rows) == [(number, number) for number in range(len(names))]


def test_a_location_with_a_colon_and_a_wildcard_is_refused(
    spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    from spark_jobs.reading.tables import read_table

    catalog.create_database("shop")
    catalog.create_table(TABLE, columns=[("id", "bigint")], partition_keys=[("n", "int")])
    write_row(tmp_path / "12:00 [a]", 1)
    catalog.add_partitions(TABLE, [NewPartition(("1",), str(tmp_path / "12:00 [a]"))])
    with pytest.raises(InvalidLocationError, match=r"12:00 \[a\].*has a colon and one of.*rename"):
        read_table(spark, TABLE, catalog=catalog)


@pytest.mark.long
def test_csv_of_any_column_order_is_read_right_after_a_load(
    spark: SparkSession, catalog: Catalog, make_loader: Callable[..., Any], tmp_path: Path
) -> None:
    from spark_jobs.reading.tables import read_table

    loader = make_loader()
    for number, lines in enumerate(["country,day,id,name\nUS,1,1,one\n", "name,id,day,country\ntwo,2,2,US\n"]):
        source = tmp_path / f"raw/{number}.csv"
        source.parent.mkdir(exist_ok=True)
        source.write_text(lines, encoding="utf-8")
        loader.load(source, format="csv")
    catalog.alter_table("shop.orders", add_columns=[("note", "string")])
    rows = read_table(spark, "shop.orders", "country = 'US'", catalog=catalog).collect()
    assert sorted(map(tuple, rows)) == [(1, "one", None, "US", 1), (2, "two", None, "US", 2)]
