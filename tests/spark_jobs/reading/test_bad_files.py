"""Files that cannot be loaded: they are set aside by themselves, and tried again when they change."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from datetime import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from catalog import Catalog
from catalog.errors import InvalidPartitionError, SourceFileError

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

on_sqlite = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)

TABLE = "shop.orders"
CSV = {"source_format": "csv", "source_options": {"header": "true"}}
LONG_VALUES = {"source_format": "csv", "source_options": {"header": "true", "multiLine": "true"}}
JSON = {"source_format": "json", "source_options": {}}
PARQUET = {"source_format": "parquet", "source_options": {}}
HEADER = "country,day,id,amount\n"
GOOD_LINES = "US,1,1,1.5\nDE,1,2,2.5\n"
GOOD_RECORDS = '{"country": "US", "day": 1, "id": 1}\n{"country": "DE", "day": 1, "id": 2}\n'


def ids(spark: SparkSession, catalog: Catalog) -> list[int]:
    from spark_jobs.reading.tables import read_table

    return sorted(row["id"] for row in read_table(spark, TABLE, catalog=catalog).collect())


def truncated(text: str) -> bytes:
    """Text compressed by gzip, without its end."""
    compressed = gzip.compress(text.encode() + os.urandom(4000).hex().encode())
    return compressed[: len(compressed) // 2]


def with_time() -> bytes:
    """A Parquet file with a type that tables do not have."""
    sink = pa.BufferOutputStream()
    columns = {"country": ["US"], "day": [2], "id": [3], "amount": pa.array([time(12)], pa.time64("us"))}
    pq.write_table(pa.table(columns), sink)
    return bytes(sink.getvalue())


@pytest.fixture
def table(catalog: Catalog) -> None:
    catalog.create_database("shop")
    columns = [("id", "int"), ("amount", "double")]
    keys = [("country", "string"), ("day", "int")]
    catalog.create_table(TABLE, columns=columns, partition_keys=keys)


BAD: dict[str, tuple[dict[str, Any], str, bytes, dict[str, Any]]] = {
    "a bad value": (
        CSV,
        "b.csv",
        f"{HEADER}US,2,3,1\nUS,2,many,1\nUS,2,x,1\n".encode(),
        {"line": 3, "column": "id", "value": "many", "type": "int", "problem": "column id: 'many' is no int"},
    ),
    "a long line": (
        CSV,
        "b.csv",
        f"{HEADER}US,2,3,1,5\n".encode(),
        {"line": 2, "problem": "US,2,3,1,5 (it has 5 fields, but there are 4 columns)"},
    ),
    "an unknown column": (CSV, "b.csv", b"country,day,id,total\nUS,2,3,1\n", {"line": None}),
    "a name of no column": (CSV, "b.csv", b"country,day,id,a.b\nUS,2,3,1\n", {"line": None}),
    "no key": (CSV, "b.csv", b"country,id\nUS,3\n", {"line": None}),
    "a null key": (CSV, "b.csv", f"{HEADER}US,2,3,1\nUS,,4,1\n".encode(), {"line": 3, "column": "day"}),
    "a bad key": (
        CSV,
        "b.csv",
        f"{HEADER}US,2,3,1\nUS,soon,4,1\n".encode(),
        {"line": 3, "column": "day", "value": "soon", "type": "int"},
    ),
    "a truncated file": (CSV, "b.csv.gz", truncated(f"{HEADER}US,2,3,1\n"), {"line": None}),
    "an open quote": (
        LONG_VALUES,
        "b.csv",
        f'{HEADER}US,2,3,1\nUS,2,4,"1\nUS,2,5,1\n'.encode(),
        {
            "line": None,
            "problem": "the file has in line 3 a quote with which the lines after it would become one value: nothing "
            "closes it; close it, or double the quotes that are part of a value",
        },
    ),
    "a truncated file of long values": (LONG_VALUES, "b.csv.gz", truncated(f"{HEADER}US,2,3,1\n"), {"line": None}),
    "no record": (JSON, "b.json", b'{"country": "US", "day": 2, "id": \n', {"line": 1}),
    "an unknown field": (
        JSON,
        "b.json",
        b'{"country": "US", "day": 2, "id": 3}\n{"country": "US", "day": 2, "note": "x"}\n',
        {"line": 2, "column": "note", "value": "x", "problem": "column note: shop.orders has no such column"},
    ),
    "a bad field": (
        JSON,
        "b.json",
        b'{"country": "US", "day": 2, "id": 1.5}\n',
        {"line": 1, "column": "id", "value": "1.5", "type": "int"},
    ),
    "a time": (PARQUET, "b.parquet", with_time(), {"line": None}),
    "no Parquet": (PARQUET, "b.parquet", b"PAR1 but this is not Parquet", {"line": None}),
}


@on_sqlite
@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("what", BAD)
def test_a_bad_file_is_set_aside_until_it_changes(
    make_loader: Callable[..., Any], spark: SparkSession, catalog: Catalog, tmp_path: Path, what: str
) -> None:
    settings, name, content, expected = BAD[what]
    source, loader = tmp_path / "raw", make_loader()
    source.mkdir()
    if settings is PARQUET:
        good = spark.createDataFrame([("US", 1, 1), ("DE", 1, 2)], "country string, day int, id int")
        good.coalesce(1).write.parquet(str(source / "a"))
    else:
        good_text = HEADER + GOOD_LINES if settings["source_format"] == "csv" else GOOD_RECORDS
        (source / f"a.{settings['source_format']}").write_text(good_text)
    (source / name).write_bytes(content)
    with pytest.raises((SourceFileError, InvalidPartitionError), match=name):
        loader.load(source, **settings)
    assert catalog.set_aside_files(TABLE) == []

    operation = loader.new_operation()
    report = loader.validate(operation, source, **settings, bad_files="skip")
    assert (report["files"], report["rows"], report["set_aside"]["files"]) == (1, 2, 1)
    problem = report["set_aside"]["problems"][0]
    assert problem["file"] == str(source / name)
    assert expected.items() <= problem.items()
    loader.register(operation, loader.write(operation, **settings, bad_files="skip")["staging"])
    assert ids(spark, catalog) == [1, 2]
    [aside] = catalog.set_aside_files(TABLE)
    assert (aside.path, aside.size_bytes, aside.operation_id) == (str(source / name), len(content), operation)
    if expected.get("line") is not None:
        assert f"line {expected['line']}: {problem['problem']}" in aside.reason

    request = loader.whole_request(**settings, bad_files="skip")
    assert catalog.loading.discover("again", TABLE, str(source), settings={"request": request}) == []
    if settings is PARQUET:
        (source / name).unlink()
        frame = spark.createDataFrame([("US", 9, 9)], "country string, day int, id int")
        frame.coalesce(1).write.parquet(str(source / "c"))
    elif name.endswith("gz"):
        (source / name).write_bytes(gzip.compress(f"{HEADER}US,9,9,9\n".encode()))
    else:
        is_csv = settings["source_format"] == "csv"
        (source / name).write_text(f"{HEADER}US,9,9,9\n" if is_csv else '{"country":"US","day":9,"id":9}')
    loader.load(source, **settings, bad_files="skip")
    assert ids(spark, catalog) == [1, 2, 9]
    assert settings is PARQUET or catalog.set_aside_files(TABLE) == []


@pytest.mark.long
def test_a_new_table_has_the_columns_of_its_good_files(
    make_loader: Callable[..., Any], spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text(HEADER + GOOD_LINES)
    (tmp_path / "b.csv").write_text("country,day,id,amount,odd\nUS,soon,x,1,1\n")
    (tmp_path / "c.csv.gz").write_bytes(truncated(f"{HEADER}US,2,3,1\n"))
    (tmp_path / "d.csv.gz").write_bytes(truncated(f"{HEADER}US,2,3,1\n"))
    loader = make_loader()
    report = loader.validate("dry", tmp_path / "*.csv*", **CSV, bad_files="skip", dry_run=True)
    assert (report["files"], report["rows"], report["set_aside"]["files"]) == (1, 2, 3)
    problems = {Path(problem["file"]).name: problem["problem"] for problem in report["set_aside"]["problems"]}
    assert problems.keys() == {"b.csv", "c.csv.gz", "d.csv.gz"}
    assert "soon" in problems["b.csv"]
    assert catalog.list_tables() == []
    loader.load(tmp_path / "*.csv*", **CSV, bad_files="skip")
    table = catalog.get_table(TABLE)
    assert [(column.name, column.type) for column in table.columns] == [("id", "bigint"), ("amount", "double")]
    assert ids(spark, catalog) == [1, 2]
    assert [Path(file.path).name for file in catalog.set_aside_files(TABLE)] == ["b.csv", "c.csv.gz", "d.csv.gz"]


@pytest.mark.long
@pytest.mark.usefixtures("table")
def test_without_a_good_file_the_load_fails_and_the_next_one_has_nothing_to_do(
    make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text(f"{HEADER}US,2,many,1\n")
    (tmp_path / "b.csv").write_text("country,id\nUS,3\n")
    loader = make_loader()
    with pytest.raises(SourceFileError, match=r"none of the 2 source file.*b\.csv.*a\.csv, line 2: column id: 'many'"):
        loader.load(tmp_path / "*.csv", **CSV, bad_files="skip")
    assert [Path(file.path).name for file in catalog.set_aside_files(TABLE)] == ["a.csv", "b.csv"]
    request = loader.whole_request(**CSV, bad_files="skip")
    assert catalog.loading.discover("again", TABLE, f"{tmp_path}/*.csv", settings={"request": request}) == []
    other = {**request, "source_options": {"header": "true", "sep": ";"}}
    assert len(catalog.loading.discover("other", TABLE, f"{tmp_path}/*.csv", settings={"request": other})) == 2


@pytest.mark.long
@on_sqlite
@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("bad_files", ["fail", "skip"])
def test_a_later_load_in_the_same_session_sees_the_files_as_they_are_then(
    make_loader: Callable[..., Any], tmp_path: Path, bad_files: str
) -> None:
    loader, source = make_loader(), tmp_path / "a.csv"
    for number, lines in enumerate((GOOD_LINES, "US,1,1,1.5\n")):
        source.write_text(HEADER + lines)
        report = loader.validate(f"dry-{number}", source, **CSV, bad_files=bad_files, dry_run=True)
        assert report["rows"] == 2 - number


@pytest.mark.long
@on_sqlite
@pytest.mark.usefixtures("table")
def test_a_file_is_tried_again_when_the_table_gets_its_column(
    make_loader: Callable[..., Any], spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text(HEADER + GOOD_LINES)
    (tmp_path / "b.csv").write_text("country,day,id,note\nUS,2,3,x\n")
    loader = make_loader()
    loader.load(tmp_path / "*.csv", **CSV, bad_files="skip")
    assert ids(spark, catalog) == [1, 2]
    catalog.alter_table(TABLE, add_columns=[("note", "string")])
    loader.load(tmp_path / "*.csv", **CSV, bad_files="skip")
    assert ids(spark, catalog) == [1, 2, 3]
    assert catalog.set_aside_files(TABLE) == []
