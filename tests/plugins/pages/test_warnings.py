"""The overview tells of tables with partitions or files of unfavourable sizes."""

from __future__ import annotations

import pytest

from catalog import FileFormat, Table
from catalog.partitions.counting import TableSize

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]  # Airflow's own


@pytest.mark.parametrize(
    ("files", "largest", "reasons"),
    [
        (200, 10, []),
        (900, 10, ["small files"]),
        (900, 1_000, ["small files", "skew"]),
        (200, 1_000, ["skew"]),
    ],
)
def test_skew_is_told_beside_small_files_that_a_compaction_would_merge(
    files: int, largest: int, reasons: list[str]
) -> None:
    from calve_airflow.pages.overview import warnings

    table = Table("shop", "orders", (), (), FileFormat.PARQUET, "/none", id=1)
    size = TableSize(partitions=200, files=files, rows=2_000, size_bytes=2_000, largest_rows=largest)
    assert [warned.reason for warned in warnings([table], {1: size})] == reasons
