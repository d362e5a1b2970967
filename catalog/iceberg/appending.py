"""Adding files to an existing Iceberg table: detection of known files, and the mapping of column names."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IcebergType, IntegerType, LongType, NestedField

from catalog.errors import ColumnsDifferError
from catalog.iceberg.avro import manifest_entries
from catalog.iceberg.documents.tables import NAME_MAPPING
from catalog.iceberg.layout import Layout, highest_mapped_id, map_unknown
from catalog.iceberg.manifests import SingleManifestWriter, WrittenManifest
from catalog.iceberg.metadata import current_manifests
from catalog.iceberg.metrics import metrics_modes
from catalog.iceberg.storage import file_io

if TYPE_CHECKING:
    from catalog.model import Table

_CODEC = "deflate"


def target_layout(source: Table, source_layout: Layout, target: str, metadata: TableMetadata) -> Layout:
    """Return the layout with which files of a Hive table are added to an Iceberg table.

    Its schema has the target's fields, with the partition fields last, in the order of the spec.

    Raises:
        ColumnsDifferError: The target is partitioned by other keys, lacks a column of the source, or has a key of
            another type or one that is NOT NULL.
    """
    _require_columns_by_name(source, source_layout, target)
    schema, spec = metadata.schema(), metadata.spec()
    keys = [schema.find_field(part.source_id) for part in spec.fields]
    _require_partition_keys(source, target, metadata, keys)
    _require_columns(source, source_layout, target, schema)
    types = {field.name: field.field_type for field in source_layout.schema.fields}
    _require_key_types(source, target, keys, types)
    ids = {key.field_id for key in keys}
    fields = [*(field for field in schema.fields if field.field_id not in ids), *keys]
    hive_types = dict(zip(types, source_layout.hive_types, strict=True))
    return Layout(
        Schema(*fields, schema_id=schema.schema_id),
        PartitionSpec(*spec.fields, spec_id=spec.spec_id),
        len(keys),
        tuple(hive_types.get(field.name.lower(), str(field.field_type)) for field in fields),
        metrics=metrics_modes(metadata.properties, schema, metadata.sort_order()),
    )


def _require_columns_by_name(source: Table, source_layout: Layout, target: str) -> None:
    if source_layout.file_names:
        raise ColumnsDifferError(
            f"columns of {source.full_name} were renamed or dropped, and its files have their earlier names, "
            f"which could be those of other columns in {target}; copy the rows instead"
        )


def _require_partition_keys(source: Table, target: str, metadata: TableMetadata, keys: Sequence[NestedField]) -> None:
    schema, spec = metadata.schema(), metadata.spec()
    source_keys = list(source.key_names)
    is_identity = all(isinstance(part.transform, IdentityTransform) for part in spec.fields)
    if not is_identity or sorted(key.name.lower() for key in keys) != sorted(source_keys):
        parts = ", ".join(f"{part.transform}({schema.find_column_name(part.source_id)})" for part in spec.fields)
        raise ColumnsDifferError(
            f"Iceberg table {target} is partitioned by {parts or 'nothing'}, and {source.full_name} by "
            f"{', '.join(source_keys) or 'nothing'}; files are added only between tables partitioned by the same keys"
        )


def _require_columns(source: Table, source_layout: Layout, target: str, schema: Schema) -> None:
    known = {field.name.lower() for field in schema.fields}
    if missing := [column.name for column in source.columns if column.name not in known]:
        raise ColumnsDifferError(
            f"Iceberg table {target} has no column {', '.join(missing)}, which {source.full_name} has; add it there "
            "first"
        )
    names = {field.name for field in source_layout.schema.fields}
    if empty := [field.name for field in schema.fields if field.required and field.name.lower() not in names]:
        raise ColumnsDifferError(
            f"column {', '.join(empty)} of the Iceberg table {target} is NOT NULL, and {source.full_name} has no such "
            "column; make it optional there first"
        )


def _require_key_types(
    source: Table, target: str, keys: Sequence[NestedField], types: Mapping[str, IcebergType]
) -> None:
    """Check the types of the target's partition keys.

    Args:
        types: Column of the source → its type as an Iceberg column.
    """
    if required := [key.name for key in keys if key.required]:
        raise ColumnsDifferError(
            f"partition key {', '.join(required)} of the Iceberg table {target} is NOT NULL, and a Hive table's files "
            "do not have their partition keys: some readers (PyIceberg) refuse the table then. Make it optional there "
            f"first: ALTER TABLE {target} ALTER COLUMN {required[0]} DROP NOT NULL"
        )
    for key in keys:
        source_type = types[key.name.lower()]
        is_wider = isinstance(source_type, IntegerType) and isinstance(key.field_type, LongType)
        if source_type != key.field_type and not is_wider:
            raise ColumnsDifferError(
                f"partition key {key.name} is {key.field_type} in the Iceberg table {target} and would be "
                f"{source_type} from {source.full_name}; files can only be added between tables with keys of the same "
                "types"
            )


def fits(layout: Layout, metadata: TableMetadata) -> bool:
    """Return whether manifests of a layout fit the current table: the same fields and the same partition spec.

    The spec of a manifest is read from the table, not from the manifest.
    """
    fields = {field.field_id: field for field in metadata.schema().fields}
    return metadata.spec().fields == layout.spec.fields and fields == {
        field.field_id: field for field in layout.schema.fields
    }


def layout_digest(layout: Layout) -> str:
    """Return a digest of a layout's schema and spec; when it changes, files must be staged again."""
    values = layout.as_json()
    text = json.dumps([values["schema"]["fields"], values["spec"]["fields"]], default=str, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def known_files(metadata: TableMetadata) -> Iterator[str]:
    """Yield the paths of a table's data files, with one manifest in memory at a time."""
    io = file_io(metadata.location)
    for manifest in current_manifests(metadata):
        if manifest.content == ManifestContent.DATA:
            for entry in manifest_entries(io, manifest):
                yield entry.data_file.file_path


def files_of(manifest: WrittenManifest, spec: PartitionSpec) -> list[ManifestEntry]:
    """Return the entries of a manifest that is not yet part of a snapshot."""
    file = ManifestFile.from_args(
        manifest_path=manifest.path,
        manifest_length=manifest.length_bytes,
        partition_spec_id=spec.spec_id,
        content=ManifestContent.DATA,
        sequence_number=0,
        min_sequence_number=0,
        added_snapshot_id=None,
        added_files_count=manifest.file_count,
        existing_files_count=0,
        deleted_files_count=0,
        added_rows_count=manifest.row_count,
        existing_rows_count=0,
        deleted_rows_count=0,
        partitions=[],
        key_metadata=None,
    )
    return manifest_entries(file_io(manifest.path), file, with_deleted=True)


def without_files(
    manifest: WrittenManifest, layout: Layout, left_out: Collection[str], path: str
) -> WrittenManifest | None:
    """Write a copy of a manifest without some files; return None when no files are left."""
    kept = [entry for entry in files_of(manifest, layout.spec) if entry.data_file.file_path not in left_out]
    return write_entries(layout, kept, path) if kept else None


def write_entries(layout: Layout, entries: Iterable[ManifestEntry], path: str) -> WrittenManifest:
    """Write a manifest with PyIceberg; its files are added by the snapshot that includes the manifest."""
    output = file_io(path).new_output(path)
    # Without a snapshot id, which the files inherit.
    with SingleManifestWriter(layout.spec, layout.schema, output, None, _CODEC) as writer:  # type: ignore[arg-type]
        for entry in entries:
            writer.add_entry(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=None,
                    sequence_number=None,
                    file_sequence_number=None,
                    data_file=entry.data_file,
                )
            )
    written = writer.to_manifest_file()
    return WrittenManifest(
        path,
        written.manifest_length,
        written.added_files_count or 0,
        written.added_rows_count or 0,
        tuple(written.partitions or ()),
    )


def completed_mapping(
    metadata: TableMetadata,
    layout: Layout,
    spellings: Mapping[int, Sequence[str]],
    unknown: Iterable[tuple[int, Sequence[str]]] = (),
) -> str:
    """Return a table's name mapping, extended by the names of its columns in the added files.

    Args:
        spellings, unknown: As in `Layout.name_mapping`. Columns that exist only in files get ids that the table never
            assigned; `catalog.iceberg.metadata.write_append` prevents that it assigns them later.
    """
    known = mapping_of(metadata)
    mapping: list[dict[str, Any]] = [] if known is None else json.loads(known)
    _merge(mapping, json.loads(layout.name_mapping(spellings)))
    map_unknown(mapping, unknown, max(metadata.last_column_id, highest_mapped_id(json.dumps(mapping))))
    return json.dumps(mapping)


def _merge(known: list[dict[str, Any]], more: Iterable[dict[str, Any]]) -> None:
    """Add fields, and names of fields, to a mapping; a name that another field has stays with that field."""
    by_id = {entry.get("field-id"): entry for entry in known}
    taken = {name for entry in known for name in entry["names"]}
    for entry in more:
        mine = by_id.get(entry["field-id"])
        names = [name for name in entry["names"] if name not in taken]
        if mine is None:
            known.append({**entry, "names": names})
            continue
        mine["names"] += names
        if "fields" in entry:
            _merge(mine.setdefault("fields", []), entry["fields"])


def mapping_of(metadata: TableMetadata) -> str | None:
    """Return a table's name mapping; None when it has none."""
    return metadata.properties.get(NAME_MAPPING)
