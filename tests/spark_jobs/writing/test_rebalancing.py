"""Rows are moved by an expression over only their possible target partitions, into a few files at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from catalog import Catalog
from catalog.datafiles.files import NewFile
from catalog.errors import VerificationFailedError
from catalog.rebalancing.changes import SplitPartition
from catalog.schemes.lists import ListScheme
from catalog.schemes.model import Scheme
from catalog.schemes.ranges import RangeScheme
from tests.support.published import add_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TENS = RangeScheme("c", "int", (), 10, tuple((number, str(10 * number)) for number in range(1, 10)))
WORDS = ListScheme("c", "string", (), 5, ((1, ("1", "2")), (2, ("3",)), (3, ("4", "5", "6")), (4, ("7",))))
ROWS = 1_000


@pytest.fixture
def table(spark: SparkSession, catalog: Catalog) -> str:
    """A table of ranges of ten, with the numbers from 0 to 99, each ten times."""
    from spark_jobs.writing.scheme_loading import load_rows

    catalog.create_database("shop")
    catalog.create_table("shop.numbers", columns=[("c", "int"), ("n", "int")], scheme=TENS)
    rows = spark.range(ROWS).selectExpr("cast(id % 100 as int) as c", "cast(id as int) as n")
    load_rows(spark, catalog, "load", "shop.numbers", rows)
    return "shop.numbers"


@pytest.mark.parametrize("scheme", [TENS, WORDS], ids=str)
@pytest.mark.parametrize("among", [(0,), (1,), (3, 4), (0, 1), (9, 0), (1, 4), tuple(range(10))], ids=str)
def test_the_shorter_expression_says_the_same_of_rows_of_its_partitions(
    spark: SparkSession, scheme: Scheme, among: tuple[int, ...]
) -> None:
    from spark_jobs.rows.placement import partition_id

    values = spark.range(-5, 110).selectExpr(f"cast(id as {scheme.column_type}) as c")
    rows = values.unionByName(values.selectExpr(f"cast(null as {scheme.column_type}) as c").limit(1))
    found = rows.select(partition_id(scheme).alias("all"), partition_id(scheme, among).alias("few")).collect()
    assert {row["few"] for row in found if row["all"] in among} == {each for each in among if each in scheme.ids}
    assert all(row["few"] == row["all"] for row in found if row["all"] in among)
    if scheme is TENS:
        assert all(row["few"] not in {*among} - {0} for row in found if row["all"] not in among)


def test_its_length_does_not_grow_with_the_partitions() -> None:
    from spark_jobs.rows.placement import partition_id_sql

    more = RangeScheme("c", "int", (), 1_001, tuple((number, str(10 * number)) for number in range(1, 1_001)))
    assert partition_id_sql(more, (3, 4)) == partition_id_sql(TENS, (3, 4))


def test_a_split_into_more_partitions_than_files_may_be_open_keeps_every_row(
    spark: SparkSession, catalog: Catalog, table: str
) -> None:
    from spark_jobs.reading.tables import read_table
    from spark_jobs.rebalance import rebalance

    report = rebalance(spark, catalog, "split", table, SplitPartition(5, tuple(map(str, range(41, 51)))))
    assert report["rows_written"] == 100
    assert report["files_written"] == 10
    assert sorted(row["n"] for row in read_table(spark, table, catalog=catalog).collect()) == list(range(ROWS))
    for number in range(40, 50):
        [partition] = catalog.scheme_partitions(table, f"c = {number}")
        assert partition.row_count == 10


def test_a_row_in_a_partition_that_is_not_its_own_stops_the_change(
    spark: SparkSession, catalog: Catalog, table: str
) -> None:
    from spark_jobs.rebalance import rebalance

    [wrong] = catalog.scan_files(table, "_partition_id = 8").files
    add_files(catalog, table, [NewFile(2, wrong.path, wrong.row_count, wrong.size_bytes, {})])
    with pytest.raises(VerificationFailedError, match="belong to none of the partitions 10, 11"):
        rebalance(spark, catalog, "split", table, SplitPartition(2, ("15", "20")))
    assert catalog.get_table(table).scheme == TENS


@pytest.mark.long
def test_a_value_that_changes_while_rows_move_stops_the_change(
    spark: SparkSession, catalog: Catalog, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark_jobs.rebalance import rebalance
    from spark_jobs.writing import rebalancing

    read = rebalancing.read_live_rows
    monkeypatch.setattr(rebalancing, "read_live_rows", lambda *given: read(*given).selectExpr("c", "n + 1 AS n"))
    with pytest.raises(VerificationFailedError, match="do not have the rows of the old ones"):
        rebalance(spark, catalog, "split", table, SplitPartition(2, ("15", "20")))
    assert catalog.get_table(table).scheme == TENS
