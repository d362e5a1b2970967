"""Keys from the names of folders: as Hive and Spark write them, and never against a file's own column."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from catalog import Catalog
from catalog.errors import InvalidPartitionError, SourceFileError
from catalog.model.partition_names import partition_path

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

on_sqlite = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)

TABLE = "shop.orders"
KEYS = {"dt": "date", "hr": "int"}
CSV = {"source_format": "csv", "source_options": {"header": "true"}}
JSON = {"source_format": "json", "source_options": {}}

Rows = dict[tuple[str | None, ...], list[int]]


def deliver(source: Path, folder: str, text: str, name: str = "part-0") -> Path:
    path = source / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return source


def rows_of(spark: SparkSession, catalog: Catalog) -> Rows:
    """The ids of each partition."""
    from spark_jobs.reading.tables import read_table

    table, found = catalog.get_table(TABLE), Rows()
    for row in read_table(spark, TABLE, catalog=catalog).collect():
        values = tuple(None if row[key] is None else str(row[key]) for key in table.key_names)
        found.setdefault(values, []).append(row["id"])
    return {values: sorted(ids) for values, ids in found.items()}


@pytest.mark.long
@pytest.mark.parametrize("source_format", ["csv", "json", "parquet"])
def test_hourly_files_are_loaded_by_their_folders(
    spark: SparkSession, make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path, source_format: str
) -> None:
    source, expected = tmp_path / "raw", Rows()
    for number in range(4):
        day, hour = f"2024-06-0{1 + number // 2}", str(number % 2)
        folder = f"dt={day}/HR={hour}"
        expected[day, hour] = [number, number + 10]
        if source_format == "csv":
            deliver(source, folder, f"id,amount\n{number},1.5\n{number + 10},2.5\n")
        elif source_format == "json":
            lines = [json.dumps({"id": each, "amount": 1.5}) for each in expected[day, hour]]
            deliver(source, folder, "\n".join(lines))
        else:
            frame = spark.createDataFrame([(each, 1.5) for each in expected[day, hour]], "id int, amount double")
            frame.coalesce(1).write.parquet(str(source / folder))
    options = {} if source_format == "csv" else {"source_format": source_format, "source_options": {}}
    report = make_loader(keys=KEYS).load(source, **options)
    assert (report["partitions"], report["row_count"]) == (4, 8)
    assert rows_of(spark, catalog) == expected


@pytest.mark.long
@on_sqlite
def test_values_are_those_that_hive_and_spark_have_written(
    spark: SparkSession, make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path
) -> None:
    values = ["a/b", "50%", "x=y", "ü ñ 😀", "it's", "a:b", "[z]", "a+b", "%2B", "tab\there", "01", None]
    rows = [(number, value) for number, value in enumerate(values)]
    spark.createDataFrame(rows, "id int, name string").write.partitionBy("name").json(str(tmp_path / "spark"))
    for number, value in rows:
        deliver(tmp_path / "hive", partition_path(["name"], [value]), json.dumps({"id": number}))
    loader = make_loader(keys={"name": "string"})
    for source in ("spark", "hive"):
        loader.load(tmp_path / source, **JSON, null_keys="allow")
        assert rows_of(spark, catalog) == {(value,): [number] for number, value in rows}
        catalog.purge_partitions(TABLE)


@pytest.mark.long
@on_sqlite
def test_a_column_and_a_folder_that_agree_are_one_key(
    spark: SparkSession, make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path
) -> None:
    source = deliver(tmp_path / "raw", "x/dt=2024-06-01/hr=05", "id,dt,hr\n1,2024-06-01,5\n2,,\n")
    make_loader(keys=KEYS).load(source)
    assert rows_of(spark, catalog) == {("2024-06-01", "5"): [1, 2]}


@pytest.mark.long
@on_sqlite
@pytest.mark.parametrize(
    ("options", "text", "words"),
    [
        (CSV, "id,dt\n1,2024-06-01\n2,2024-06-02\n", "line 3: partition key dt is '2024-06-02' in the file, and"),
        (JSON, '{"id": 1}\n{"id": 2, "hr": 7}\n', "partition key hr is '7' in the file, and '5' in the name of its"),
    ],
)
def test_a_column_against_its_folder_is_refused(
    make_loader: Callable[..., Any],
    catalog: Catalog,
    tmp_path: Path,
    options: dict[str, Any],
    text: str,
    words: str,
) -> None:
    source = deliver(tmp_path / "raw", "dt=2024-06-01/hr=5", text)
    with pytest.raises(SourceFileError, match=words):
        make_loader(keys=KEYS).load(source, **options)
    assert catalog.list_databases() == []


@on_sqlite
@pytest.mark.parametrize(
    ("options", "text", "words"),
    [
        (CSV, "id\n1\n", "has no column hr, which the table is partitioned by, and not every file is in a folder such"),
        (JSON, '{"id": 1}', "line 1: partition key hr is null, which `null_keys` refuses"),
        ({**JSON, "null_keys": "allow"}, '{"id": 1}', "the record .* has no field hr"),
    ],
)
def test_a_key_that_neither_gives_is_refused(
    make_loader: Callable[..., Any], tmp_path: Path, options: dict[str, Any], text: str, words: str
) -> None:
    source = deliver(tmp_path / "raw", "dt=2024-06-01/hr=5", text)
    deliver(source, "dt=2024-06-02", text)
    with pytest.raises(SourceFileError, match=words):
        make_loader(keys=KEYS).load(source, **options)


@pytest.mark.long
@on_sqlite
def test_a_folder_whose_name_is_no_value_of_its_key_is_named(make_loader: Callable[..., Any], tmp_path: Path) -> None:
    source = deliver(tmp_path / "raw", "dt=yesterday/hr=5", "id\n1\n")
    with pytest.raises(InvalidPartitionError, match="yesterday"):
        make_loader(keys=KEYS).load(source)
