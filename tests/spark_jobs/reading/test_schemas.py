"""Schemas of source files, read from their footers without Spark."""

from __future__ import annotations

from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from catalog.files.filesystem import FileInfo

MOMENT = datetime(2026, 1, 1, 12, 30, 15, 123456)


def schemas(*paths: Path) -> tuple[list[list[str]], dict[str, str]]:
    """Return the names of the files of each group, and name of an unreadable file → reason."""
    from spark_jobs.reading.schemas import by_schema

    groups, unreadable = by_schema([FileInfo(str(path), path.stat().st_size, 0) for path in paths], "parquet")
    named = [[Path(file.path).name for file in group] for group in groups]
    return named, {Path(path).name: reason for path, reason in unreadable.items()}


FRAMES: dict[str, tuple[pd.DataFrame, str, dict[str, Any], dict[str, str]]] = {
    "nanoseconds": (
        pd.DataFrame({"at": pd.Series([MOMENT, "2026-01-01 00:00:00.123456789"], dtype="datetime64[ns]")}),
        "its column at has timestamps in nanoseconds, which tables do not have; write it with microseconds",
        {"coerce_timestamps": "us", "allow_truncated_timestamps": True},
        {},
    ),
    "nanoseconds with zone": (
        pd.DataFrame({"at": pd.Series(["2026-01-01 00:00:00.123456789"], dtype="datetime64[ns, Europe/Berlin]")}),
        "its column at has timestamps in nanoseconds",
        {"coerce_timestamps": "us", "allow_truncated_timestamps": True},
        {},
    ),
    "float16": (
        pd.DataFrame({"f": np.array([1.5], dtype=np.float16)}),
        "its column f has floats of 16 bits, which tables do not have; write it with 32 bits",
        {},
        {"f": "float32"},
    ),
    "time": (
        pd.DataFrame({"t": [time(12, 30), None]}),
        "its column t has times without a date, which tables do not have; write it with strings",
        {},
        {"t": "string"},
    ),
}
"""A frame that pandas writes with a type that tables do not have, the message, and what its remedy says."""


@pytest.mark.parametrize("name", FRAMES)
def test_files_with_types_that_tables_do_not_have_are_named_with_the_column_and_the_remedy(
    tmp_path: Path, name: str
) -> None:
    frame, message, options, types = FRAMES[name]
    frame.to_parquet(tmp_path / "bad.parquet")
    frame.astype(types).to_parquet(tmp_path / "good.parquet", **options)
    good, unreadable = schemas(tmp_path / "bad.parquet", tmp_path / "good.parquet")
    assert good == [["good.parquet"]]
    assert unreadable["bad.parquet"].startswith(message)
    for word in (*map(str, options), *map(repr, types.values())):
        assert word in unreadable["bad.parquet"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("TIME '12:30:00'", "times without a date"),
        ("TIMETZ '12:30:00+01'", "times without a date"),
        ("TIMESTAMP_NS '2026-01-01'", "timestamps in nanoseconds"),
        ("uuid()", "UUIDs"),
        ("INTERVAL 1 DAY", "intervals"),
    ],
)
def test_so_are_those_of_duckdb(tmp_path: Path, value: str, words: str) -> None:
    duckdb.sql(f"COPY (SELECT {value} AS c) TO '{tmp_path}/bad.parquet'")
    duckdb.sql(f"COPY (SELECT CAST({value} AS varchar) AS c) TO '{tmp_path}/good.parquet'")
    good, unreadable = schemas(tmp_path / "bad.parquet", tmp_path / "good.parquet")
    assert good == [["good.parquet"]]
    assert unreadable["bad.parquet"].startswith(f"its column c has {words}")


def test_so_are_decimals_of_too_many_digits(tmp_path: Path) -> None:
    for digits in (38, 39):
        numbers = pa.array([1], pa.decimal256(digits, 2))
        pq.write_table(pa.table({"d": numbers}), tmp_path / f"{digits}.parquet")
    good, unreadable = schemas(tmp_path / "38.parquet", tmp_path / "39.parquet")
    assert good == [["38.parquet"]]
    message = "its column d has decimals of 39 digits, which tables do not have; write it with at most 38 digits"
    assert unreadable == {"39.parquet": message}


def test_so_are_those_inside_of_others(tmp_path: Path) -> None:
    nested = pa.array([[{"at": MOMENT}]], pa.list_(pa.struct([("at", pa.timestamp("ns", "UTC"))])))
    pq.write_table(pa.table({"parts": nested}), tmp_path / "a.parquet")
    _, unreadable = schemas(tmp_path / "a.parquet")
    assert unreadable["a.parquet"].startswith("its column parts.list.element.at has timestamps in nanoseconds")


@pytest.mark.parametrize("unit", ["ms", "us"])
def test_other_units_are_read(tmp_path: Path, unit: str) -> None:
    pq.write_table(pa.table({"at": pa.array([MOMENT], pa.timestamp(unit))}), tmp_path / "a.parquet")
    pq.write_table(
        pa.table({"at": pa.array([MOMENT.replace(tzinfo=UTC)], pa.timestamp(unit, "UTC")), "n": [1]}),
        tmp_path / "b.parquet",
        use_deprecated_int96_timestamps=unit == "us",
    )
    assert schemas(tmp_path / "a.parquet", tmp_path / "b.parquet")[1] == {}


@pytest.mark.parametrize("source_format", ["parquet", "orc", "avro"])
def test_columns_whose_names_differ_only_in_case_are_named_with_their_file(tmp_path: Path, source_format: str) -> None:
    from spark_jobs.reading.schemas import by_schema, kind_of

    path = tmp_path / "a"
    rows = pa.table({"A": [1], "b": [2], "a": [3]})
    if source_format == "parquet":
        pq.write_table(rows, path)
    elif source_format == "orc":
        orc.write_table(rows, path)
    else:
        fields = [{"name": name, "type": "long"} for name in rows.column_names]
        with path.open("wb") as file:
            fastavro.writer(file, {"type": "record", "name": "r", "fields": fields}, rows.to_pylist())
    file = FileInfo(str(path), path.stat().st_size, 0)
    assert by_schema([file], source_format)[1] == {
        str(path): "it has the columns A and a, which are one for tables; rename one of them"
    }
    assert kind_of(file) == source_format
