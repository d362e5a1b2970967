"""Layouts and data files for tests of what Iceberg knows of files."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IcebergType, NestedField

from catalog.files import FileInfo
from catalog.iceberg.layout import Layout


def layout(columns: dict[str, IcebergType], keys: dict[str, IcebergType] | None = None) -> Layout:
    """Return a layout of columns with ids from 1 and keys behind them."""
    named = [*columns.items(), *(keys or {}).items()]
    fields = [NestedField(number, name, kind) for number, (name, kind) in enumerate(named, 1)]
    spec = PartitionSpec(
        *(
            PartitionField(len(columns) + number, 999 + number, IdentityTransform(), name)
            for number, name in enumerate(keys or {}, 1)
        )
    )
    return Layout(Schema(*fields), spec, len(keys or {}), tuple("string" for _ in named))


def file_info(path: Path | str) -> FileInfo:
    return FileInfo(str(path), Path(path).stat().st_size, 0)
