"""Layouts and data files for tests of Iceberg's metadata of files."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IcebergType, NestedField

from catalog.files.filesystem import FileInfo
from catalog.iceberg.footers.facts import FooterReader
from catalog.iceberg.layout import Layout
from catalog.iceberg.manifests import ManifestWriter
from catalog.iceberg.metadata import write_table
from catalog.migration.staging import Staged
from catalog.model import FileFormat


def layout(columns: dict[str, IcebergType], keys: dict[str, IcebergType] | None = None) -> Layout:
    """Return a layout of columns with ids from 1, followed by keys."""
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


def write_metadata(
    table: Layout,
    file_format: FileFormat,
    paths: Iterable[Path],
    folder: Path,
    keys: Sequence[tuple[Any, ...]] = (),
) -> str:
    """Write the metadata of an Iceberg table of existing files; return its location.

    Args:
        keys: The values of each file's partition, for a table with partition keys.
    """
    reader = FooterReader(table, file_format)
    spellings: dict[int, list[str]] = {}
    unknown: set[tuple[int, tuple[str, ...]]] = set()
    unvectorized: set[str] = set()
    with ManifestWriter(table, f"{folder}/m") as writer:
        for path, values in itertools.zip_longest(paths, keys, fillvalue=()):
            assert isinstance(path, Path)
            facts = reader.read(file_info(path))
            writer.add(values, file_format, file_info(path), facts)
            unknown.update(facts.unknown)
            unvectorized.update(facts.unvectorized)
            for field_id, name in facts.spellings:
                spellings.setdefault(field_id, []).append(name)
    staged = Staged(writer.manifests, (), "", {}, (), unvectorized=sorted(unvectorized))
    mapping = table.name_mapping(spellings, unknown)
    return write_table(table, str(folder), writer.manifests, staged.reading_properties, mapping)
