"""Writing of manifest lists and table metadata for existing manifests.

Nothing here makes a table visible: that happens when the metadata location is written to the catalog
(`catalog.iceberg.pointers`). Source: the Iceberg table spec, version 2; PyIceberg writes the files.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from pyiceberg.exceptions import ValidationError
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile, write_manifest_list
from pyiceberg.partitioning import PARTITION_FIELD_ID_START
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, TableMetadataV2
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotLogEntry, Summary, update_snapshot_summaries
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
    update_table_metadata,
)
from pyiceberg.types import NestedField

from catalog.errors import UnknownIcebergTypeError, UnsupportedFormatError
from catalog.iceberg.avro import snapshot_manifests
from catalog.iceberg.clock import now_ms
from catalog.iceberg.documents.schemas import Json, all_fields
from catalog.iceberg.documents.tables import NAME_MAPPING
from catalog.iceberg.layout import highest_mapped_id
from catalog.iceberg.places import METADATA
from catalog.iceberg.storage import file_io, read_contents

if TYPE_CHECKING:
    from catalog.iceberg.layout import Layout
    from catalog.iceberg.manifests import WrittenManifest

FORMAT_VERSION: Final = 2

_UNASSIGNED_SEQUENCE = -1
CODEC: Final = "deflate"
VERSION = re.compile(r"(\d+)-")


@dataclass(frozen=True)
class AddedFiles:
    """What manifests add to a table, for the snapshot's summary.

    Attributes:
        size_bytes: The sum of the data files' sizes.
        partition_count: Number of partitions with added files.
        marks: Further entries of the summary, for instance the operation.
    """

    size_bytes: int
    partition_count: int = 0
    marks: Mapping[str, str] | None = None


def write_table(
    layout: Layout,
    location: str,
    manifests: Sequence[WrittenManifest],
    properties: Mapping[str, str],
    name_mapping: str,
    added: AddedFiles | None = None,
    *,
    folder: str | None = None,
    metadata_location: str | None = None,
) -> str:
    """Write the first metadata of a table, with one snapshot that appends manifests; it is not visible yet.

    Args:
        location: Of the table; engines write new files below it.
        manifests: Their entries have neither snapshot id nor sequence number, so they inherit this snapshot's.
        properties: Table properties without the name mapping.
        folder: Folder of the manifest list; by default the standard metadata folder.
        metadata_location: Of the file; by default a new name in the standard metadata folder.

    Returns:
        The location of the metadata.
    """
    added = added or AddedFiles(0)
    metadata_folder = f"{location}/{METADATA}"
    target = metadata_location or f"{metadata_folder}/00000-{uuid4()}.metadata.json"
    io = file_io(target)
    schema, spec = layout.schema, layout.spec
    empty = TableMetadataV2(
        **dashed(
            location=location,
            last_updated_ms=now_ms(),
            # Ids of columns that exist only in files are never reassigned, like those of dropped columns.
            last_column_id=max(schema.highest_field_id, highest_mapped_id(name_mapping)),
            schemas=[schema],
            current_schema_id=schema.schema_id,
            partition_specs=[spec],
            default_spec_id=spec.spec_id,
            last_partition_id=max((part.field_id for part in spec.fields), default=PARTITION_FIELD_ID_START - 1),
            sort_orders=[UNSORTED_SORT_ORDER],
            default_sort_order_id=UNSORTED_SORT_ORDER.order_id,
            properties={**properties, NAME_MAPPING: name_mapping},
            table_uuid=uuid4(),
        )
    )
    snapshot = _append_snapshot(io, empty, manifests, added, folder or metadata_folder)
    metadata = empty.model_copy(
        update={
            "last_sequence_number": snapshot.sequence_number,
            "last_updated_ms": snapshot.timestamp_ms,
            "current_snapshot_id": snapshot.snapshot_id,
            "snapshots": [snapshot],
            "snapshot_log": [
                SnapshotLogEntry(**dashed(snapshot_id=snapshot.snapshot_id, timestamp_ms=snapshot.timestamp_ms))
            ],
            "refs": {MAIN_BRANCH: SnapshotRef(**dashed(snapshot_id=snapshot.snapshot_id, type=SnapshotRefType.BRANCH))},
        }
    )
    ToOutputFile.table_metadata(metadata, io.new_output(target), overwrite=True)
    return target


def write_append(
    before: str,
    manifests: Sequence[WrittenManifest],
    added: AddedFiles,
    folder: str,
    properties: Mapping[str, str] | None = None,
) -> str:
    """Write the metadata of a table with manifests appended in one snapshot; it is not visible yet.

    Args:
        before: The location of the table's current metadata.
        folder: Folder of the manifest list.
        properties: Table properties to set.

    Returns:
        The location of the new metadata.

    Raises:
        UnsupportedFormatError: The table is not of format version 2.
    """
    metadata = read_metadata(before)
    require_version(metadata, before)
    io = file_io(before)
    snapshot = _append_snapshot(io, metadata, manifests, added, folder)
    updates: tuple[TableUpdate, ...] = (
        AddSnapshotUpdate(snapshot=snapshot),
        SetSnapshotRefUpdate(
            **dashed(ref_name=MAIN_BRANCH, type=SnapshotRefType.BRANCH, snapshot_id=snapshot.snapshot_id)
        ),
    )
    if properties:
        updates = (SetPropertiesUpdate(updates=dict(properties)), *updates)
    after = update_table_metadata(metadata, updates, metadata_location=before)
    # Ids of columns that exist only in files are never reassigned, like those of dropped columns.
    last_id = max(after.last_column_id, highest_mapped_id(after.properties.get(NAME_MAPPING, "[]")))
    after = after.model_copy(update={"last_column_id": last_id})
    number = VERSION.match(posixpath.basename(before))
    target = f"{folder}/{int(number[1]) + 1 if number else 0:05d}-{uuid4()}.metadata.json"
    ToOutputFile.table_metadata(after, io.new_output(target))
    return target


def require_version(metadata: TableMetadata, location: str) -> None:
    """Check that a table has format version 2.

    Raises:
        UnsupportedFormatError: It has another one.
    """
    if metadata.format_version != FORMAT_VERSION:
        raise UnsupportedFormatError(
            f"the Iceberg table at {metadata.location} has format version {metadata.format_version} ({location}); "
            f"files can only be added to tables of version {FORMAT_VERSION}"
        )


def read_metadata(location: str) -> TableMetadata:
    """Return the metadata of a table.

    Raises:
        UnknownIcebergTypeError: A column has a type that PyIceberg does not know.
        OSError, EOFError, ValueError, ValidationError: They cannot be read, or are damaged.
    """
    contents = read_contents(location)
    try:
        return TableMetadataUtil.parse_raw(contents.decode())
    except ValidationError:
        _refuse_unknown_type(json.loads(contents))
        raise


def _refuse_unknown_type(document: Json) -> None:
    """Refuse the first column that PyIceberg cannot parse; metadata that are damaged otherwise have none."""
    for schema in document.get("schemas") or ():
        for number, name, kind in all_fields(schema):
            if isinstance(kind, str):
                try:
                    NestedField.model_validate({"id": number, "name": name, "type": kind, "required": False})
                except ValueError:
                    raise UnknownIcebergTypeError(str(document.get("location")), name, kind) from None


def current_manifests(metadata: TableMetadata) -> list[ManifestFile]:
    """Return the manifests of the current snapshot; an empty list without one."""
    return snapshot_manifests(file_io(metadata.location), metadata.current_snapshot())


def _append_snapshot(
    io: FileIO, metadata: TableMetadata, manifests: Sequence[WrittenManifest], added: AddedFiles, folder: str
) -> Snapshot:
    """Write the manifest list of an append; return its snapshot."""
    parent = metadata.current_snapshot()
    snapshot_id = metadata.new_snapshot_id()
    sequence_number = metadata.next_sequence_number()
    path = f"{folder}/snap-{snapshot_id}-0-{uuid4()}.avro"
    listed = [manifest_file(manifest, metadata, snapshot_id) for manifest in manifests]
    listed += snapshot_manifests(io, parent)
    with write_manifest_list(
        FORMAT_VERSION,
        io.new_output(path),
        snapshot_id,
        None if parent is None else parent.snapshot_id,
        sequence_number,
        CODEC,
    ) as writer:
        if listed:
            writer.add_manifests(listed)
    return Snapshot(
        **dashed(
            snapshot_id=snapshot_id,
            parent_snapshot_id=None if parent is None else parent.snapshot_id,
            sequence_number=sequence_number,
            timestamp_ms=max(now_ms(), metadata.last_updated_ms),
            manifest_list=path,
            schema_id=metadata.current_schema_id,
            summary=_summary(manifests, added, parent),
        )
    )


def _summary(manifests: Iterable[WrittenManifest], added: AddedFiles, parent: Snapshot | None) -> Summary:
    files = records = 0
    for manifest in manifests:
        files += manifest.file_count
        records += manifest.row_count
    figures = {
        "added-data-files": files,
        "added-records": records,
        "added-files-size": added.size_bytes,
        "changed-partition-count": added.partition_count,
    }
    texts = {name: str(number) for name, number in figures.items() if number}
    summary = Summary(Operation.APPEND, **texts, **(added.marks or {}))
    previous = None if parent is None or parent.summary is None else parent.summary.additional_properties
    return update_snapshot_summaries(summary, previous)


def manifest_file(written: WrittenManifest, metadata: TableMetadata, snapshot_id: int) -> ManifestFile:
    """Return a new manifest as an entry of a snapshot's manifest list."""
    lowest = written.min_sequence_number
    return ManifestFile.from_args(
        manifest_path=written.path,
        manifest_length=written.length_bytes,
        partition_spec_id=metadata.default_spec_id,
        content=ManifestContent.DATA,
        sequence_number=_UNASSIGNED_SEQUENCE,
        min_sequence_number=_UNASSIGNED_SEQUENCE if lowest is None else lowest,
        added_snapshot_id=snapshot_id,
        added_files_count=written.file_count,
        existing_files_count=written.existing[0],
        deleted_files_count=written.deleted[0],
        added_rows_count=written.row_count,
        existing_rows_count=written.existing[1],
        deleted_rows_count=written.deleted[1],
        partitions=list(written.partitions),
        key_metadata=None,
    )


def has_live_files(manifest: ManifestFile) -> bool:
    """Return whether a manifest may list a file that the snapshot has, and not only removed ones."""
    return manifest.has_added_files() or manifest.has_existing_files()


def dashed(**values: Any) -> dict[str, Any]:
    """Return fields of Iceberg's JSON, given by their Python names."""
    return {name.replace("_", "-"): value for name, value in values.items()}


def lineage(metadata: TableMetadata) -> list[Snapshot]:
    """Return the current snapshot and its ancestors, newest first, as far as the metadata have them.

    Damaged metadata, in which a snapshot is its own ancestor, do not lead to an endless list.
    """
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    found: dict[int, Snapshot] = {}
    snapshot = metadata.current_snapshot()
    while snapshot is not None and snapshot.snapshot_id not in found:
        found[snapshot.snapshot_id] = snapshot
        snapshot = by_id.get(snapshot.parent_snapshot_id or 0)
    return list(found.values())
