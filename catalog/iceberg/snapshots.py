"""Writing of the metadata of tables that Calve places: definitions, and snapshots that add and remove data files.

Nothing here makes a change visible: that happens when the metadata location is written to the catalog
(`catalog.iceberg.pointers`). Source: the Iceberg table spec, version 2.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import uuid4

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile, write_manifest_list
from pyiceberg.partitioning import PARTITION_FIELD_ID_START
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import MetadataLogEntry, Snapshot
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortField, SortOrder
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AddSortOrderUpdate,
    RemovePropertiesUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetLocationUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
    update_table_metadata,
)
from pyiceberg.transforms import IdentityTransform

from catalog.files.filesystem import Folder
from catalog.iceberg.avro import manifest_content
from catalog.iceberg.deletes import without_unneeded
from catalog.iceberg.documents.tables import NAME_MAPPING
from catalog.iceberg.entries import PathSearch, read_entries
from catalog.iceberg.layout import Layout, highest_mapped_id
from catalog.iceberg.manifests import Entry, ManifestWriter, WrittenManifest
from catalog.iceberg.metadata import (
    CODEC,
    FORMAT_VERSION,
    VERSION,
    current_manifests,
    dashed,
    has_live_files,
    manifest_file,
    read_metadata,
)
from catalog.iceberg.named_files import reading
from catalog.iceberg.places import METADATA
from catalog.iceberg.storage import file_io
from catalog.iceberg.summaries import summary_of
from catalog.iceberg.values import PartitionValue
from catalog.model import FileFormat

_MANIFEST_BYTES, _MANIFEST_ENTRIES = 1 << 20, 2_000
"""Target size of manifests: a change rewrites those that have a removed file, and takes a time for each entry."""

_MOST_MANIFESTS = 100
"""Number of manifests from which small ones are merged. Source: Iceberg's `commit.manifest.min-count-to-merge`."""

_LONGEST_LOG = 100
"""Number of earlier metadata files that metadata name. Source: Iceberg's `write.metadata.previous-versions-max`."""


@dataclass(frozen=True)
class Definition:
    """The definition in the metadata of a table, without its snapshots.

    The partition spec of a table never changes after its creation, except for the names of its fields.

    Attributes:
        location: Of the table; its metadata files are below it.
        writer: Prefix of the random parts of their names.
        sort_columns: Names of the columns by which engines sort new files.
        properties: Table properties without the name mapping.
        at_ms: The time of its publication by the catalog's clock, in milliseconds since 1970.
    """

    layout: Layout
    location: str
    writer: str
    at_ms: int
    sort_columns: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class AddedFile:
    """A data file that a snapshot adds.

    Attributes:
        path: Complete.
        metrics: Of `catalog.iceberg.manifests.encode_metrics`.
        partition: The result of `Layout.partition_record` for its partition's values.
    """

    path: str
    row_count: int
    size_bytes: int
    metrics: bytes
    partition: tuple[PartitionValue, ...] = ()


@dataclass(frozen=True)
class SnapshotChange:
    """The files that a snapshot adds and removes.

    Attributes:
        added: Parquet files.
        removed: Complete paths of files of the table.
        manifests: Further added files, whose manifests are written already (`write_manifests`).
        manifested_bytes: The size of these files.
        marks: Further entries of the snapshot's summary, for instance the operation.
        is_overwrite: Other rows replace the removed ones. Otherwise as many added rows are taken for the same rows in
            other files, which readers of changes skip.
    """

    added: Iterable[AddedFile] = ()
    removed: Collection[str] = ()
    manifests: Sequence[WrittenManifest] = ()
    manifested_bytes: int = 0
    marks: Mapping[str, str] = field(default_factory=dict)
    is_overwrite: bool = False


class FilesChangedError(Exception):
    """A file that a snapshot should remove is not in the table."""


@dataclass(frozen=True)
class Written:
    """Metadata that are written, but not visible yet.

    Attributes:
        location: Of the metadata file.
        snapshot_id: The current snapshot in it; None without any.
    """

    location: str
    snapshot_id: int | None


def write_next(
    before: str | None,
    definition: Definition,
    change: SnapshotChange | None = None,
    *,
    rolled_back_to: int | None = None,
    has_moved: bool = False,
) -> Written:
    """Write the metadata that follows a table's current ones, if anything changes; it is not visible yet.

    Args:
        before: The location of the current metadata; None for a new table.
        definition: The complete definition; what differs from the current metadata is changed.
        change: Of the files; None to add no snapshot.
        rolled_back_to: A snapshot of these metadata that becomes the current one again; without a change of files.
        has_moved: The table, which has no files, has another folder: the metadata then refer to nothing in the former
            one.

    Returns:
        The new metadata; those of `before` if nothing changed.

    Raises:
        FilesChangedError: A removed file is not in the table.
        UnreadableFileError: The current metadata are damaged.
        OSError: The file system refused.
    """
    metadata = _first_metadata(definition) if before is None else known_metadata(before)
    updates = list(_definition_updates(metadata, definition))
    snapshot_id = metadata.current_snapshot_id if rolled_back_to is None else rolled_back_to
    if before is not None and not updates and change is None and snapshot_id == metadata.current_snapshot_id:
        return Written(before, snapshot_id)
    if has_moved:
        metadata, before, snapshot_id = _without_history(metadata), None, None
    folder = f"{definition.location}/{METADATA}"
    # Refuses locations of unknown kinds.
    Folder(folder)
    io = file_io(folder)
    if change is not None:
        schema_id = next(
            (update.schema_id for update in updates if isinstance(update, SetCurrentSchemaUpdate)),
            metadata.current_schema_id,
        )
        snapshot = _SnapshotWriter(io, metadata, definition, schema_id).write(change)
        updates.append(AddSnapshotUpdate(snapshot=snapshot))
        snapshot_id = snapshot.snapshot_id
    if snapshot_id != metadata.current_snapshot_id:
        reference = dashed(ref_name=MAIN_BRANCH, type=SnapshotRefType.BRANCH, snapshot_id=snapshot_id)
        updates.append(SetSnapshotRefUpdate(**reference))
    return Written(write_metadata(io, folder, before, metadata, updates, definition), snapshot_id)


def write_manifests(definition: Definition, files: Iterable[AddedFile]) -> tuple[list[WrittenManifest], int]:
    """Write manifests of files that a later snapshot adds.

    Returns:
        The manifests, and the size of their files.
    """
    size_bytes = 0
    prefix = f"{definition.location}/{METADATA}/{definition.writer}-{uuid4()}-m"
    with ManifestWriter(definition.layout, prefix, _MANIFEST_BYTES, _MANIFEST_ENTRIES) as writer:
        for file in files:
            size_bytes += file.size_bytes
            _add(writer, file)
    return writer.manifests, size_bytes


def _add(writer: ManifestWriter, file: AddedFile) -> None:
    writer.add_encoded(file.partition, FileFormat.PARQUET, file.path, file.row_count, file.size_bytes, file.metrics)


@dataclass(frozen=True)
class Snapshots:
    """The snapshots of a table's metadata.

    Attributes:
        current_id: None without any.
        times: Snapshot → its time, in the order of times.
        properties: The table's properties.
    """

    current_id: int | None
    times: Mapping[int, int]
    properties: Mapping[str, str]


def snapshots_of(location: str) -> Snapshots:
    """Return the snapshots that metadata have.

    Raises:
        UnreadableFileError: The metadata are damaged.
    """
    metadata = known_metadata(location)
    ordered = sorted((snapshot.timestamp_ms, snapshot.snapshot_id) for snapshot in metadata.snapshots)
    times = {snapshot_id: at_ms for at_ms, snapshot_id in ordered}
    return Snapshots(metadata.current_snapshot_id, times, metadata.properties)


def write_metadata(
    io: FileIO,
    folder: str,
    before: str | None,
    metadata: TableMetadata,
    updates: list[TableUpdate],
    definition: Definition,
) -> str:
    """Write the metadata of a table after some updates, and return their location.

    Args:
        before: The location of the metadata before; None for a new table.
    """
    after = update_table_metadata(metadata, tuple(updates)) if updates else metadata
    log = list(after.metadata_log)
    if before is not None:
        log.append(MetadataLogEntry(**dashed(metadata_file=before, timestamp_ms=metadata.last_updated_ms)))
    # Ids of columns that exist only in files are never reassigned, like those of dropped columns.
    last_id = max(
        after.last_column_id,
        definition.layout.schema.highest_field_id,
        highest_mapped_id(after.properties.get(NAME_MAPPING, "[]")),
    )
    # Not PyIceberg's time, which is this host's: JVM engines refuse metadata that are older than their last snapshot.
    at_ms, known = _time_of(definition, metadata), len(metadata.snapshot_log)
    now_current = [entry.model_copy(update={"timestamp_ms": at_ms}) for entry in after.snapshot_log[known:]]
    after = after.model_copy(
        update={
            "last_column_id": last_id,
            "last_updated_ms": at_ms,
            "metadata_log": log[-_LONGEST_LOG:],
            "snapshot_log": [*after.snapshot_log[:known], *now_current],
        }
    )
    number = None if before is None else VERSION.match(posixpath.basename(before))
    target = f"{folder}/{int(number[1]) + 1 if number else 0:05d}-{definition.writer}-{uuid4()}.metadata.json"
    ToOutputFile.table_metadata(after, io.new_output(target))
    return target


def _time_of(definition: Definition, before: TableMetadata) -> int:
    """Return the time of a change, which is never before that of the previous one."""
    return max(definition.at_ms, before.last_updated_ms)


def _first_metadata(definition: Definition) -> TableMetadata:
    schema, spec = definition.layout.schema, definition.layout.spec
    return TableMetadataV2(
        **dashed(
            location=definition.location,
            last_updated_ms=definition.at_ms,
            last_column_id=schema.highest_field_id,
            schemas=[schema],
            current_schema_id=schema.schema_id,
            partition_specs=[spec],
            default_spec_id=spec.spec_id,
            last_partition_id=PARTITION_FIELD_ID_START - 1 + len(spec.fields),
            sort_orders=[UNSORTED_SORT_ORDER],
            default_sort_order_id=UNSORTED_SORT_ORDER.order_id,
            table_uuid=uuid4(),
        )
    )


def _without_history(metadata: TableMetadata) -> TableMetadata:
    lists = ("snapshots", "snapshot_log", "metadata_log", "statistics", "partition_statistics")
    nothing = {name: list[object]() for name in lists}
    return metadata.model_copy(update={**nothing, "refs": {}, "current_snapshot_id": None})


def _definition_updates(metadata: TableMetadata, definition: Definition) -> Iterator[TableUpdate]:
    if metadata.location != definition.location:
        yield SetLocationUpdate(location=definition.location)
    schema = definition.layout.schema
    if metadata.schema().as_struct() != schema.as_struct():
        known = next((old for old in metadata.schemas if old.as_struct() == schema.as_struct()), None)
        if known is None:
            known = schema.model_copy(update={"schema_id": max(old.schema_id for old in metadata.schemas) + 1})
            yield AddSchemaUpdate(schema=known)
        yield SetCurrentSchemaUpdate(**dashed(schema_id=known.schema_id))
    yield from _sort_order_updates(metadata, definition)
    properties = {**definition.properties, NAME_MAPPING: definition.layout.name_mapping()}
    if changed := dict(properties.items() - metadata.properties.items()):
        yield SetPropertiesUpdate(updates=changed)
    if removed := sorted(metadata.properties.keys() - properties.keys()):
        yield RemovePropertiesUpdate(removals=removed)


def _sort_order_updates(metadata: TableMetadata, definition: Definition) -> Iterator[TableUpdate]:
    ids = {column.name: column.field_id for column in definition.layout.schema.fields}
    # Source: Spark sorts nulls first in ascending order.
    fields = [
        SortField(source_id=ids[name], transform=IdentityTransform(), null_order=NullOrder.NULLS_FIRST)
        for name in definition.sort_columns
    ]
    current = metadata.sort_order()
    if list(current.fields) == fields:
        return
    known = next((order for order in metadata.sort_orders if list(order.fields) == fields), None)
    if known is None:
        known = SortOrder(*fields, order_id=max(order.order_id for order in metadata.sort_orders) + 1)
        yield AddSortOrderUpdate(**dashed(sort_order=known))
    yield SetDefaultSortOrderUpdate(**dashed(sort_order_id=known.order_id))


class _SnapshotWriter:
    """Writes one snapshot: its new manifests, and its manifest list."""

    def __init__(self, io: FileIO, metadata: TableMetadata, definition: Definition, schema_id: int) -> None:
        self._io = io
        self._metadata = metadata
        self._at_ms = _time_of(definition, metadata)
        # The metadata's own spec, whose fields keep the names that the columns had when the table was created.
        self._layout = replace(definition.layout, spec=metadata.spec())
        self._partition_type = metadata.spec().partition_type(definition.layout.schema)
        self._folder = f"{definition.location}/{METADATA}"
        self._schema_id = schema_id
        self._id = metadata.new_snapshot_id()
        self._name = f"{definition.writer}-{uuid4()}"
        self._added_bytes = self._removed_bytes = 0

    def write(self, change: SnapshotChange) -> Snapshot:
        parent = self._metadata.current_snapshot()
        parent_id = None if parent is None else parent.snapshot_id
        with reading("" if parent is None else parent.manifest_list):
            before = [manifest for manifest in current_manifests(self._metadata) if has_live_files(manifest)]
        prefix = f"{self._folder}/{self._name}-m"
        with ManifestWriter(self._layout, prefix, _MANIFEST_BYTES, _MANIFEST_ENTRIES) as writer:
            for file in change.added:
                self._added_bytes += file.size_bytes
                _add(writer, file)
            kept = self._without(before, set(change.removed), writer)
            kept = self._merged(kept, writer)
        written = [*change.manifests, *writer.manifests]
        listed = [*(manifest_file(new, self._metadata, self._id) for new in written), *kept]
        listed, deletes, deleted_bytes = without_unneeded(self._io, listed)
        self._removed_bytes += deleted_bytes
        self._added_bytes += change.manifested_bytes
        sequence_number = self._metadata.next_sequence_number()
        path = f"{self._folder}/snap-{self._id}-0-{self._name}.avro"
        with write_manifest_list(
            FORMAT_VERSION, self._io.new_output(path), self._id, parent_id, sequence_number, CODEC
        ) as lists:
            lists.add_manifests(listed)
        return Snapshot(
            **dashed(
                snapshot_id=self._id,
                parent_snapshot_id=parent_id,
                sequence_number=sequence_number,
                timestamp_ms=self._at_ms,
                manifest_list=path,
                schema_id=self._schema_id,
                summary=summary_of(
                    written,
                    (self._added_bytes, self._removed_bytes),
                    deletes.totals,
                    parent,
                    change.marks,
                    is_overwrite=change.is_overwrite,
                ),
            )
        )

    def _without(
        self, manifests: Iterable[ManifestFile], removed: set[str], writer: ManifestWriter
    ) -> list[ManifestFile]:
        """Return the manifests that have no removed file, and copy the entries of the others."""
        if not removed:
            return list(manifests)
        kept, missing = [], set(removed)
        search = PathSearch(removed)
        for manifest in manifests:
            if manifest.content != ManifestContent.DATA:
                kept.append(manifest)
                continue
            with reading(manifest.manifest_path):
                content = manifest_content(self._io, manifest)
                entries = self._entries(manifest, content) if search.is_possible_in(content) else []
            if not any(entry.path in removed and not entry.is_deleted for entry in entries):
                kept.append(manifest)
                continue
            for entry in entries:
                if entry.is_deleted:
                    continue
                if entry.path in removed:
                    missing.discard(entry.path)
                    self._removed_bytes += entry.size_bytes
                    writer.delete(entry, self._id)
                else:
                    writer.keep(entry)
        if missing:
            raise FilesChangedError(f"{min(missing)} is not a file of the table")
        return kept

    def _entries(self, manifest: ManifestFile, content: bytes) -> list[Entry]:
        return list(read_entries(manifest, content, self._partition_type))

    def _merged(self, manifests: list[ManifestFile], writer: ManifestWriter) -> list[ManifestFile]:
        """Return large manifests, and copy the entries of small ones, if there are many manifests."""
        if len(manifests) < _MOST_MANIFESTS:
            return manifests
        kept = []
        for manifest in manifests:
            if manifest.content != ManifestContent.DATA or _is_large(manifest):
                kept.append(manifest)
                continue
            with reading(manifest.manifest_path):
                entries = self._entries(manifest, manifest_content(self._io, manifest))
            for entry in entries:
                if not entry.is_deleted:
                    writer.keep(entry)
        return kept


def known_metadata(location: str) -> TableMetadata:
    """Return metadata that the catalog refers to.

    Raises:
        UnreadableFileError: They are damaged.
    """
    with reading(location):
        return read_metadata(location)


def _is_large(manifest: ManifestFile) -> bool:
    """Return whether a manifest has at least half of the target size."""
    entries = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
    return 2 * manifest.manifest_length >= _MANIFEST_BYTES or 2 * entries >= _MANIFEST_ENTRIES
