"""Layouts and data files for tests of what Iceberg knows of files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IcebergType, NestedField

from catalog.files import FileInfo
from catalog.iceberg.facts import FooterReader
from catalog.iceberg.layout import Layout
from catalog.iceberg.manifests import ManifestWriter
from catalog.iceberg.metadata import write_table
from catalog.model import FileFormat


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


def write_metadata(table: Layout, file_format: FileFormat, paths: Iterable[Path], folder: Path) -> str:
    """Write the metadata of the Iceberg table that files are; return their location."""
    reader = FooterReader(table, file_format)
    spellings: dict[int, list[str]] = {}
    unknown: set[tuple[int, tuple[str, ...]]] = set()
    with ManifestWriter(table, f"{folder}/m") as writer:
        for path in paths:
            facts = reader.read(file_info(path))
            writer.add((), file_format, file_info(path), facts)
            unknown.update(facts.unknown)
            for field_id, name in facts.spellings:
                spellings.setdefault(field_id, []).append(name)
    return write_table(table, str(folder), writer.manifests, {}, table.name_mapping(spellings, unknown))
