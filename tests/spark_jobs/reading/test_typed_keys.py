"""Partition keys of every type, read as their values."""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog import Catalog, NewPartition
from catalog.model.partition_names import partition_path
from tests.spark_jobs.reading.test_tables import TABLE
from tests.spark_jobs.reading.test_tables import catalog as catalog
from tests.support.effort import sampled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]


TYPED_KEYS = (("at", "timestamp"), ("price", "decimal(5,2)"), ("ok", "boolean"), ("x", "double"), ("f", "float"))
TYPED = (
    # Spellings that Spark parses correctly in paths, and others.
    (("2024-01-01 00:00:00", "1.50", "true", "0.1", "0.1"), (datetime(2024, 1, 1), "1.50", True, 0.1, 0.1)),
    (("2024-01-01 00:00:00.0", "1.5", "TRUE", "1", "1e2"), (datetime(2024, 1, 1), "1.50", True, 1.0, 100.0)),
    (("2024-01-02", "-7", "False", "NaN", "inf"), (datetime(2024, 1, 2), "-7.00", False, math.nan, math.inf)),
    (
        ("2023-12-31T23:59:59.999999000", "+1e1", "false", "-Infinity", "16777217"),
        (datetime(2023, 12, 31, 23, 59, 59, 999999), "10.00", False, -math.inf, 16777216.0),
    ),
    (
        ("0001-01-01 00:00:00.000001", "0.01", "true", "-0.0", "1e300"),
        # No float is so large, and the value is refused today.
        ("0001-01-01 00:00:00.000001", "0.01", True, "-0.0", None),
    ),
    ((None, None, None, None, None), (None, None, None, None, None)),
    (("noon", "1.005", "yes", "one", "1_0"), (None, None, None, None, None)),
    # In the partitions' own folders, elsewhere.
    (("2024-01-03 12:00:00", "999.99", "true", "nan", "-inf"), None),
    (("2024-01-03 12:00:00.5", "-999.99", "FALSE", "1.5e300", "NaN"), None),
)
TYPED_FILTERS = (
    "at = timestamp'2024-01-01 00:00:00'",
    "at > timestamp'2024-01-01 00:00:00' and at < timestamp'2024-01-03 12:00:00.5'",
    "price between -7 and 1.5",
    "price in (10, 999.99)",
    "ok = true and price is not null",
    "not (ok = false)",
    "x = 0",
    "x > 1e300",
    "x <> 'NaN'",
    "f >= 100",
    "at is null",
)


def typed_row(values: Sequence[str | None], told: Sequence[Any] | None) -> list[str]:
    """Return the expected keys of a row; by default, the result of Spark's casts of the strings."""
    return [
        f"cast({'null' if each is None else repr(str(each))} AS {kind})"
        for each, (_, kind) in zip(
            values if told is None else [None if each is None else str(each).lower() for each in told],
            TYPED_KEYS,
            strict=True,
        )
    ]


@pytest.mark.long
@pytest.mark.usefixtures("unfit_values")
@pytest.mark.parametrize("file_format", sampled(["parquet", "orc"], ["parquet"]))
def test_keys_of_every_type_are_read_as_their_values(
    spark: SparkSession, catalog: Catalog, tmp_path: Path, file_format: str
) -> None:
    from spark_jobs.reading.tables import read_table

    catalog.create_database("shop")
    table = catalog.create_table(TABLE, columns=[("id", "int")], partition_keys=TYPED_KEYS, format=file_format)
    source = tmp_path / "source"
    spark.range(1).selectExpr("cast(id AS int) AS id").coalesce(1).write.format(file_format).save(str(source))
    for number, (values, _) in enumerate(TYPED):
        location = f"{table.location}/{partition_path(table.key_names, values)}"
        if number >= len(TYPED) - 2:
            location = str(tmp_path / f"elsewhere {number}")
        shutil.copytree(source, location)
        catalog.add_partitions(TABLE, [NewPartition(values, location)])
    rows = [
        ", ".join(
            [
                "cast(0 AS int) AS id",
                *(f"{text} AS {name}" for text, (name, _) in zip(typed_row(*each), TYPED_KEYS, strict=True)),
            ]
        )
        for each in TYPED
    ]
    plain = spark.sql(" UNION ALL ".join(f"SELECT {row}" for row in rows))
    everything = read_table(spark, TABLE, catalog=catalog)
    assert everything.schema.simpleString() == plain.schema.simpleString()
    assert shown(everything) == shown(plain)
    for where in TYPED_FILTERS:
        expected = shown(plain.where(where))
        assert 0 < expected.total() < len(TYPED)
        assert shown(read_table(spark, TABLE, where, catalog=catalog)) == expected, where


def shown(frame: DataFrame) -> Counter[str]:
    """Return the rows as strings, with equal zeros, because Python's range of timestamps is smaller."""
    texts = frame.withColumn("at", frame["at"].cast("string")).collect()
    return Counter(repr(tuple(row)).replace("-0.0", "0.0") for row in texts)
