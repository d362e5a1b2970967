"""Facts of new data files: each file is read once, for the catalog's statistics and for Iceberg's metrics."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog import Catalog, Column, Table
from catalog.datafiles.files import ColumnStatistics
from catalog.datafiles.footers import DataFileReader, column_types
from catalog.errors import UnusableFileError
from catalog.iceberg.footers import parquet_footers
from catalog.tables.schemes import scheme_from_properties
from catalog.types.column_types import parse_column_type

AT = datetime(2026, 1, 31, tzinfo=UTC)
TYPES = {"x": "double", "at": "timestamp"}


@pytest.fixture
def table(catalog: Catalog) -> Table:
    scheme = scheme_from_properties(
        Column("at", "timestamp"), {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "2026-01-01", "SORT_COLUMNS": "x"}
    )
    return catalog.create_table("demo.t", columns=[("x", "double"), ("at", "timestamp")], scheme=scheme)


def write(table: Table, unit: str) -> int:
    path = Path(table.location, "1-1", "a.parquet")
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"x": [0.5, 1.5], "at": pa.array([AT, AT], pa.timestamp(unit, "UTC"))}), path)
    return path.stat().st_size


@pytest.mark.parametrize(("unit", "has_metrics"), [("us", True), ("ms", False)])
def test_one_read_gives_statistics_and_metrics(
    table: Table, unit: str, has_metrics: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = []
    read_tail = parquet_footers.read_tail
    monkeypatch.setattr(parquet_footers, "read_tail", lambda file: reads.append(file.path) or read_tail(file))
    size_bytes = write(table, unit)
    file = DataFileReader(table, column_types(("at", "x"), TYPES)).read("1-1/a.parquet", size_bytes, 2)
    assert reads == [f"{table.location}/1-1/a.parquet"]
    assert (file.partition_id, file.path, file.row_count, file.size_bytes) == (2, "1-1/a.parquet", 2, size_bytes)
    value_type = parse_column_type("timestamp")
    assert value_type is not None
    value = value_type.parse("2026-01-31 00:00:00")
    assert file.statistics["at"] == ColumnStatistics.of_values(value_type, value, value, 0)
    # Iceberg has no bounds of floating-point numbers, because footers do not record NaNs.
    assert set(file.statistics) == {"at", "x"}
    assert (file.metrics is not None) is has_metrics


def test_a_damaged_file_is_refused(table: Table) -> None:
    size_bytes = write(table, "us")
    path = Path(table.location, "1-1", "a.parquet")
    content = path.read_bytes()
    path.write_bytes(content[:-20] + b"\xff" * 12 + content[-8:])
    with pytest.raises(UnusableFileError, match="footer cannot be read"):
        DataFileReader(table, column_types(("at",), TYPES)).read("1-1/a.parquet", size_bytes, 2)
