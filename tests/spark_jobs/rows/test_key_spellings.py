"""Each value of a partition key has one spelling, which is a spelling of the same value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from catalog import Catalog
from catalog.types.key_types import KeyValueError, parse_key_type
from spark_jobs.rows.key_spellings import canonical_key

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True),
]

SPELLINGS = {
    "int": ["1", "01", "+1", "0001", "-1", "-01", "0", "-0", "00", "2147483647", "2147483648", "1.0", " 1", "x", ""],
    "bigint": ["9223372036854775807", "09223372036854775807", "9223372036854775808", "7"],
    "date": ["2024-06-01", "2024-6-1", "2024-06-1", "2024-02-30", "0024-06-01", "24-6-1", "2024-06", "today", "epoch"],
    "boolean": ["true", "TRUE", " True", "false", "False", "yes", "1"],
    "double": ["1", "1.0", "1e0", "01", "-0.0", "0", "nan", "NaN", "inf", "Infinity", "-inf", "1.5 ", "x", "1d"],
    "float": ["0.1", "0.10", "1e-1", ".1", "16777217", "16777216"],
    "decimal(10,2)": [
        *("1.5", "1.50", " 1.50 ", "\t1.5", ".5", "0.5", "-.50", "-0.5", "."),
        *("01.5", "+1.500", "1.555", "0", "-0", "0.00", "1e1", "10", "123456789.00", "x"),
    ],
    "timestamp": [
        "2024-06-01",
        "2024-06-01 00:00:00",
        "2024-06-01T00:00:00.000",
        "2024-06-01 00:00:00.5",
        "now",
        "2024-06-01 00:00:00.500000",
        "2024-06-01 00:00:00.5000000",
        "2024-06-01 00:00:00.1234567",
    ],
    "char(5)": ["de", "de ", "de   ", " de", ""],
    "varchar(5)": ["de", "de "],
    "string": ["1", "01", "de", "de ", "true"],
}


@pytest.mark.parametrize("text", SPELLINGS)
def test_spellings_of_one_value_become_one(spark: SparkSession, catalog_url: str, text: str) -> None:
    key_type = parse_key_type(text)
    frame = spark.createDataFrame([(spelling,) for spelling in SPELLINGS[text]], "given string")
    found = frame.select("given", canonical_key(f.col("given"), key_type).alias("text")).collect()
    assert len(found) == len(SPELLINGS[text])
    by_value: dict[object, set[str]] = {}
    for row in found:
        try:
            value = key_type.parse(row["given"])
        except KeyValueError:
            # A date of files may have one digit for its month.
            if row["text"] == row["given"]:
                continue
            value = key_type.parse_literal(row["given"])
        assert key_type.parse(row["text"]) == value
        by_value.setdefault(value, set()).add(row["text"])
    several = {value: texts for value, texts in by_value.items() if len(texts) > 1}
    # An exponent is no spelling that files use for decimals; it stays as it is.
    assert not several or (text == "decimal(10,2)" and list(several.values()) == [{"1e1", "10.00"}])


@pytest.mark.long
def test_files_may_spell_a_partition_in_several_ways(
    make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path
) -> None:
    loader = make_loader(keys={"country": "char(3)", "day": "date", "hr": "int"})
    (tmp_path / "a.csv").write_text("id,country,day,hr\n1,de,2024-6-1,01\n2,de ,2024-06-01,1\n")
    (tmp_path / "b.csv").write_text("id,country,day,hr\n3,de,2024-06-01,+1\n")
    loader.load(tmp_path / "*.csv")
    [partition] = catalog.get_partitions("shop.orders")
    assert (partition.values, partition.row_count) == (("de", "2024-06-01", "1"), 3)
    folder = tmp_path / "raw" / "country=de" / "day=2024-6-1" / "hr=01"
    folder.mkdir(parents=True)
    (folder / "c.csv").write_text("id\n4\n")
    loader.load(tmp_path / "raw", mode="append")
    [partition] = catalog.get_partitions("shop.orders")
    assert partition.row_count == 4
