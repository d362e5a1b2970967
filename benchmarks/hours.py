"""The table of a CarbonData talk, 51 columns in 24 hourly ranges, and the same rows in a table of plain Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from catalog import Catalog
from catalog.schemes.ranges import RangeScheme

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

HOURS = 24
SORT_COLUMNS = ("id", "field_c", "field_d")
PARTITION_COLUMN = "create_time_hour"
TABLE, PLAIN = "bench.hours", "plain"

_IDS, _DAYS, _KINDS = 2_000, 7, 500
_TEXTS, _NUMBERS, _MEASURES = 22, 16, 8


def generate(spark: SparkSession, row_count: int) -> DataFrame:
    """Return rows in the order of their arrival: hours, days and ids are evenly distributed.

    Shape: the columns of the queries; strings and numbers with few distinct values, which depend on the kind of row;
    and measures with distinct values.
    """
    from pyspark.sql import functions as f

    def any_of(count: int, name: str) -> Column:
        return f.pmod(f.xxhash64("n", f.lit(name)), f.lit(count)).cast("int").alias(name)

    names = (("i", _IDS), ("c", 100), ("field_d", 1_000), ("d", _DAYS), (PARTITION_COLUMN, HOURS), ("kind", _KINDS))
    measures = [f.rand(number).alias(f"measure_{number:02}") for number in range(_MEASURES)]
    rows = spark.range(0, row_count, 1, HOURS).withColumnRenamed("id", "n")
    rows = rows.select(*[any_of(count, name) for name, count in names], *measures)
    # Strings are joined instead of computed for each row, which takes a tenth of the time.
    ids = spark.range(_IDS).selectExpr("cast(id as int) AS i", "format_string('id-%06d', id) AS id")
    letters = spark.range(100).selectExpr("cast(id as int) AS c", "format_string('c-%02d', id) AS field_c")
    days = spark.range(_DAYS).selectExpr("cast(id as int) AS d", "date_add(DATE '2017-06-01', cast(id as int)) AS day")
    texts = [f"concat('text ', id % {3 + number}) AS text_{number:02}" for number in range(_TEXTS)]
    numbers = [f"cast(id * {i + 3} % {7 + 3 * i} as int) AS number_{i:02}" for i in range(_NUMBERS)]
    kinds = spark.range(_KINDS).selectExpr("cast(id as int) AS kind", *texts, *numbers)
    for other, key in ((ids, "i"), (letters, "c"), (days, "d"), (kinds, "kind")):
        rows = rows.join(f.broadcast(other), key)
    rows = rows.drop("i", "c", "d", "kind")
    first = [*SORT_COLUMNS, "day"]
    others = [name for name in rows.columns if name not in (*first, PARTITION_COLUMN)]
    # The catalog's tables have their partition column last.
    return rows.select(*first, *others, PARTITION_COLUMN)


def create(spark: SparkSession, catalog: Catalog, folder: Path, row_count: int) -> None:
    """Write the catalog's table, and a view `plain` with the same rows in as many files with the same sort order."""
    from spark_jobs.writing.scheme_loading import load_rows

    plain = str(folder / "plain")
    generate(spark, row_count).sortWithinPartitions(*SORT_COLUMNS).write.parquet(plain)
    rows = spark.read.parquet(plain)
    rows.createOrReplaceTempView(PLAIN)
    bounds = tuple((hour, str(hour)) for hour in range(1, HOURS + 1))
    catalog.create_table(
        TABLE,
        columns=[(field.name, field.dataType.simpleString()) for field in rows.schema],
        scheme=RangeScheme(PARTITION_COLUMN, "int", SORT_COLUMNS, HOURS + 1, bounds),
        location=str(folder / "hours"),
    )
    load_rows(spark, catalog, "load", TABLE, rows)
