"""Differences between two versions of a table's metadata: the commits of other engines.

Only manifests that are not in both snapshots are read. The files of the earlier version may be gone: engines delete
metadata files (`write.metadata.delete-after-commit.enabled`), and expire snapshots. Then the files of the current
snapshot are compared with those that the catalog knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from catalog.iceberg.avro import manifest_entries, snapshot_manifests, values_of
from catalog.iceberg.metadata import FORMAT_VERSION, has_live_files, lineage, read_metadata
from catalog.iceberg.named_files import reading
from catalog.iceberg.storage import file_io


@dataclass(frozen=True)
class LiveFile:
    """A data file of a snapshot.

    Attributes:
        path: Complete.
        format: In upper case, for instance `PARQUET`.
        partition: The values of its partition; empty in a table without partition fields.
        lower_bounds, upper_bounds, value_counts, null_counts, nan_counts: By field id, as in the manifest.
        is_read_by_id: As `catalog.datafiles.files.NewFile` has it.
    """

    path: str
    format: str
    row_count: int
    size_bytes: int
    lower_bounds: Mapping[int, bytes]
    upper_bounds: Mapping[int, bytes]
    value_counts: Mapping[int, int]
    null_counts: Mapping[int, int]
    nan_counts: Mapping[int, int]
    partition: tuple[Any, ...] = ()
    is_read_by_id: bool = False

    @classmethod
    def of(cls, file: DataFile, partition: tuple[Any, ...]) -> LiveFile:
        """Return a file of a manifest."""
        return cls(
            file.file_path,
            file.file_format.value.upper(),
            file.record_count,
            file.file_size_in_bytes,
            file.lower_bounds or {},
            file.upper_bounds or {},
            file.value_counts or {},
            file.null_value_counts or {},
            file.nan_value_counts or {},
            partition,
        )


@dataclass(frozen=True)
class Base:
    """The state of a table before the commits of other engines, as far as it is known.

    Attributes:
        snapshot_id: Its current snapshot.
        table_uuid: None if it is unknown.
        schema_ids: The ids of its schemas; empty if they are unknown.
    """

    snapshot_id: int | None
    properties: Mapping[str, str]
    last_column_id: int
    default_spec_id: int = 0
    table_uuid: UUID | None = None
    schema_ids: frozenset[int] = frozenset()

    @classmethod
    def of(cls, metadata: TableMetadata) -> Base:
        """Return what metadata say."""
        return cls(
            metadata.current_snapshot_id,
            metadata.properties,
            metadata.last_column_id,
            metadata.default_spec_id,
            metadata.table_uuid,
            frozenset(schema.schema_id for schema in metadata.schemas),
        )


@dataclass(frozen=True)
class Difference:
    """The commits of other engines to a table.

    Attributes:
        before: The table before them.
        after: The metadata after them.
        added: Data files of the current snapshot that the base snapshot did not have.
        removed: Paths of the other way round.
        delete_file_count: The number of delete files in the current snapshot.
        other_spec_id: A partition spec that the earlier version did not have as its default, of new files or of live
            ones; None if there is none.
        repeated: The path of a data file that manifests of only the current snapshot list more than once; None without
            any.
        delete_paths: Paths of the delete files in the current snapshot's manifests that the base snapshot did not have.
    """

    before: Base
    after: TableMetadata
    added: Sequence[LiveFile]
    removed: Sequence[str]
    delete_file_count: int
    other_spec_id: int | None = None
    repeated: str | None = None
    delete_paths: Sequence[str] = ()

    @property
    def snapshot_id(self) -> int | None:
        """The current snapshot; None without one."""
        return self.after.current_snapshot_id

    @property
    def replaced_schemas(self) -> list[Schema]:
        """The added schemas that are no longer the current one, in order."""
        known = self.before.schema_ids | {self.after.current_schema_id}
        return [schema for schema in self.after.schemas if schema.schema_id not in known]

    @property
    def raised_column_id(self) -> int:
        """The highest id of a column or field that was ever given, if it was raised; 0 otherwise."""
        last_id = self.after.last_column_id
        return last_id if last_id > self.before.last_column_id else 0

    @property
    def is_spec_undone(self) -> bool:
        """Return whether new files have the earlier version's partition spec, as files of another spec do not."""
        return self.other_spec_id is not None and self.after.default_spec_id == self.before.default_spec_id

    @property
    def obstacle(self) -> str | None:
        """The reason why Calve cannot follow the commits; None if it can."""
        after = self.after
        main = after.refs.get(MAIN_BRANCH)
        if self.before.table_uuid not in (None, after.table_uuid):
            return "the table was replaced by another one"
        if after.format_version != FORMAT_VERSION:
            return f"its format version is {after.format_version}, not {FORMAT_VERSION}"
        if self.other_spec_id is not None:
            fields = ", ".join(map(str, after.specs()[self.other_spec_id].fields))
            has = "files of another" if self.is_spec_undone else "another"
            return f"it has {has} partition spec of Iceberg, ({fields})"
        if after.current_snapshot_id is not None and (main is None or main.snapshot_id != after.current_snapshot_id):
            return f"its current snapshot is not that of the branch {MAIN_BRANCH}"
        return None


@dataclass(frozen=True)
class Versions:
    """Two versions of a table's metadata, the later of which other engines have written."""

    before_location: str
    after_location: str

    @cached_property
    def before(self) -> TableMetadata:
        """The earlier metadata.

        Raises:
            UnreadableFileError: They are damaged.
        """
        with reading(self.before_location):
            return read_metadata(self.before_location)

    @cached_property
    def after(self) -> TableMetadata:
        """The later metadata.

        Raises:
            UnreadableFileError: They are damaged.
        """
        with reading(self.after_location):
            return read_metadata(self.after_location)

    @property
    def lineage(self) -> list[int]:
        """The current snapshot and its ancestors, newest first, as far as the metadata know."""
        snapshots = lineage(self.after)
        ids = [snapshot.snapshot_id for snapshot in snapshots]
        # The oldest ancestor that the metadata have may follow one that was expired.
        parent = snapshots[-1].parent_snapshot_id if snapshots else None
        return ids if parent is None else [*ids, parent]

    def since(self, base_id: int | None) -> Difference:
        """Return the difference between a snapshot and the current one.

        Args:
            base_id: A snapshot of either version; None for a table without files.

        Raises:
            UnreadableFileError: A manifest is damaged.
            OSError: The file system refused.
        """
        io, before, later = file_io(self.after_location), Base.of(self.before), self._live_manifests()
        facts = _delete_files(later.values()), self._other_spec_id(before, later.values())
        if base_id == self.after.current_snapshot_id:
            return Difference(before, self.after, (), (), *facts)
        holder = self.after if base_id is None or self.after.snapshot_by_id(base_id) is not None else self.before
        base = None if base_id is None else holder.snapshot_by_id(base_id)
        earlier = {manifest.manifest_path: manifest for manifest in _manifests(holder, base)}
        gone = {file.path for file in _files_of(io, earlier, later)}
        listed = list(_files_of(io, later, earlier))
        deletes = list(_delete_paths(io, later, earlier))
        return Difference(before, self.after, *_changes(listed, gone), *facts, _repeated(listed), deletes)

    def since_files(self, base: Base, paths: Collection[str]) -> Difference:
        """Return the difference between the files that the catalog knows and the current snapshot; reads all manifests.

        Args:
            base: The table as the catalog knows it.
            paths: The paths of its files, complete.

        Raises:
            UnreadableFileError: The current metadata or a manifest is damaged.
            OSError: The file system refused.
        """
        io, later = file_io(self.after_location), self._live_manifests()
        listed, deletes = list(_files_of(io, later, ())), list(_delete_paths(io, later, ()))
        facts = _delete_files(later.values()), self._other_spec_id(base, later.values())
        return Difference(base, self.after, *_changes(listed, set(paths)), *facts, _repeated(listed), deletes)

    def _live_manifests(self) -> dict[str, ManifestFile]:
        return {manifest.manifest_path: manifest for manifest in _manifests(self.after, self.after.current_snapshot())}

    def _other_spec_id(self, base: Base, manifests: Iterable[ManifestFile]) -> int | None:
        live = (manifest.partition_spec_id for manifest in manifests if has_live_files(manifest))
        return next((one for one in [self.after.default_spec_id, *live] if one != base.default_spec_id), None)


def _changes(listed: Iterable[LiveFile], before: Collection[str]) -> tuple[list[LiveFile], list[str]]:
    """Return the files that are new, and the paths of those that are gone."""
    new = {file.path: file for file in listed}
    return [file for path, file in new.items() if path not in before], [path for path in before if path not in new]


def _repeated(listed: Iterable[LiveFile]) -> str | None:
    counts = Counter(file.path for file in listed)
    return next((path for path, count in counts.items() if count > 1), None)


def _manifests(metadata: TableMetadata, snapshot: Snapshot | None) -> list[ManifestFile]:
    if snapshot is None:
        return []
    with reading(snapshot.manifest_list):
        return snapshot_manifests(file_io(metadata.location), snapshot)


def _files_of(io: FileIO, manifests: Mapping[str, ManifestFile], others: Container[str]) -> Iterator[LiveFile]:
    """Yield the live data files of the manifests that are not among others."""
    for path, manifest in manifests.items():
        if path not in others:
            yield from _files(io, manifest)


def _files(io: FileIO, manifest: ManifestFile) -> Iterator[LiveFile]:
    if manifest.content != ManifestContent.DATA:
        return
    with reading(manifest.manifest_path):
        for entry in manifest_entries(io, manifest):
            # Files of another spec are refused, whatever their partition.
            partition = values_of(entry.data_file.partition) if manifest.partition_spec_id == 0 else ()
            yield LiveFile.of(entry.data_file, partition)


def _delete_paths(io: FileIO, manifests: Mapping[str, ManifestFile], others: Container[str]) -> Iterator[str]:
    """Yield the paths of the live delete files of the manifests that are not among others."""
    for path, manifest in manifests.items():
        if path not in others and manifest.content == ManifestContent.DELETES:
            with reading(path):
                for entry in manifest_entries(io, manifest):
                    yield entry.data_file.file_path


def _delete_files(manifests: Iterable[ManifestFile]) -> int:
    """Return the number of live delete files in some manifests."""
    return sum(
        (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
        for manifest in manifests
        if manifest.content == ManifestContent.DELETES
    )
