"""Files that a writer puts into a table's snapshot under paths of its choice."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record

SECRET = 666
"""The value in the file of another."""


def write_secret(path: Path) -> Path:
    """Write a file that is not of the table, with a row that its schema (`v int`, of the field id 1) can have."""
    path.parent.mkdir(parents=True, exist_ok=True)
    field = pa.field("v", pa.int32(), metadata={"PARQUET:field_id": "1"})
    pq.write_table(pa.table({"v": pa.array([SECRET], pa.int32())}, schema=pa.schema([field])), path)
    return path


def commit_path(table: Table, path: str, size_bytes: int) -> None:
    """Commit a data file with exactly this path."""
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=size_bytes,
        spec_id=0,
        column_sizes={},
        value_counts={},
        null_value_counts={},
        nan_value_counts={},
        lower_bounds={},
        upper_bounds={},
        key_metadata=None,
        split_offsets=None,
        equality_ids=None,
        sort_order_id=None,
    )
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as snapshot:
        snapshot.append_data_file(file)
