"""Schemas of source files, read from their footers without Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pyarrow as pa
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


def test_files_with_nanoseconds_are_named_with_the_column_and_the_remedy(tmp_path: Path) -> None:
    frame = pd.DataFrame({"id": [1], "at": pd.Series([MOMENT], dtype="datetime64[ns]")})
    frame.to_parquet(tmp_path / "pandas.parquet")
    frame.to_parquet(tmp_path / "coerced.parquet", coerce_timestamps="us")
    nested = pa.array([{"at": MOMENT}], pa.struct([("at", pa.timestamp("ns", "UTC"))]))
    pq.write_table(pa.table({"part": nested}), tmp_path / "nested.parquet")
    good, unreadable = schemas(*(tmp_path / f"{name}.parquet" for name in ("pandas", "coerced", "nested")))
    assert good == [["coerced.parquet"]]
    assert unreadable.keys() == {"pandas.parquet", "nested.parquet"}
    assert unreadable["pandas.parquet"].startswith("its column at has timestamps in nanoseconds")
    assert "coerce_timestamps='us'" in unreadable["pandas.parquet"]
    assert unreadable["nested.parquet"].startswith("its column part.at has")


@pytest.mark.parametrize("unit", ["ms", "us"])
def test_other_units_are_read(tmp_path: Path, unit: str) -> None:
    pq.write_table(pa.table({"at": pa.array([MOMENT], pa.timestamp(unit))}), tmp_path / "a.parquet")
    pq.write_table(
        pa.table({"at": pa.array([MOMENT.replace(tzinfo=UTC)], pa.timestamp(unit, "UTC")), "n": [1]}),
        tmp_path / "b.parquet",
        use_deprecated_int96_timestamps=unit == "us",
    )
    assert schemas(tmp_path / "a.parquet", tmp_path / "b.parquet")[1] == {}
