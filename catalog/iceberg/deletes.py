"""Delete files of other engines, and the data files that they may apply to.

Source: https://iceberg.apache.org/spec/#scan-planning. A position delete applies to data files that are not newer, an
equality delete to older ones; both name no partition in tables without partition fields.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntry, ManifestFile

from catalog.iceberg.avro import manifest_content, manifest_entries
from catalog.iceberg.entries import partition_type_in, read_entries
from catalog.iceberg.manifests import Entry
from catalog.iceberg.metadata import current_manifests, read_metadata
from catalog.iceberg.named_files import UnreadableFileError, reading
from catalog.iceberg.storage import file_io

_FILE_PATH = 2147483546
"""The field id of the path in position deletes, whose bounds are not truncated. Source: Iceberg's `MetadataColumns`."""


@dataclass(frozen=True)
class DeleteFile:
    """A delete file.

    Attributes:
        sequence_number: Of its commit.
        paths: The least and the greatest path of the data files that it names; None if it may apply to any file.
    """

    path: str
    is_equality: bool
    sequence_number: int
    row_count: int
    size_bytes: int
    paths: tuple[str, str] | None

    @classmethod
    def of(cls, entry: ManifestEntry) -> DeleteFile:
        """Return a delete file of a manifest."""
        file = entry.data_file
        is_equality = file.content is DataFileContent.EQUALITY_DELETES
        low, high = ((bounds or {}).get(_FILE_PATH) for bounds in (file.lower_bounds, file.upper_bounds))
        paths = None if is_equality or low is None or high is None else (low.decode(), high.decode())
        return cls(
            file.file_path, is_equality, entry.sequence_number or 0, file.record_count, file.file_size_in_bytes, paths
        )

    def applies_to(self, path: str, sequence_number: int) -> bool:
        """Return whether it may delete rows of a data file."""
        if self.is_equality:
            return sequence_number < self.sequence_number
        return sequence_number <= self.sequence_number and self.may_name(path)

    def may_name(self, path: str) -> bool:
        """Return whether a data file may be one that it names, however old."""
        return self.paths is None or self.paths[0] <= path <= self.paths[1]


@dataclass(frozen=True)
class Deletes:
    """The delete files of a snapshot, by the manifest that lists them."""

    by_manifest: Sequence[tuple[ManifestFile, Sequence[DeleteFile]]]

    @classmethod
    def of(cls, io: FileIO, manifests: Iterable[ManifestFile]) -> Deletes:
        """Read the delete files that some manifests list; those of data files are ignored.

        Raises:
            UnreadableFileError: A manifest is damaged.
        """
        listed = []
        for manifest in manifests:
            if manifest.content == ManifestContent.DELETES:
                with reading(manifest.manifest_path):
                    entries = manifest_entries(io, manifest)
                listed.append((manifest, [DeleteFile.of(entry) for entry in entries]))
        return cls(listed)

    @cached_property
    def files(self) -> Sequence[DeleteFile]:
        """All delete files."""
        return [file for _, files in self.by_manifest for file in files]

    @property
    def totals(self) -> dict[str, str]:
        """The entries of a snapshot's summary about its delete files."""
        equality = sum(file.row_count for file in self.files if file.is_equality)
        return {
            "total-delete-files": str(len(self.files)),
            "total-position-deletes": str(sum(file.row_count for file in self.files) - equality),
            "total-equality-deletes": str(equality),
        }

    def apply_to(self, path: str, sequence_number: int) -> bool:
        """Return whether one of them may delete rows of a data file."""
        return any(file.applies_to(path, sequence_number) for file in self.files)

    def still_needed(self, data_files: Iterable[Entry]) -> Deletes:
        """Return the manifests of which a delete file may apply to one of some data files."""
        pending = dict(enumerate(self.by_manifest))
        needed = []
        for entry in data_files:
            if not pending:
                break
            for number, (_, files) in list(pending.items()):
                if any(file.applies_to(entry.path, entry.sequence_number) for file in files):
                    needed.append(number)
                    del pending[number]
        return Deletes([self.by_manifest[number] for number in sorted(needed)])


def without_unneeded(io: FileIO, manifests: list[ManifestFile]) -> tuple[list[ManifestFile], Deletes, int]:
    """Return the manifests of a snapshot without those whose delete files apply to none of its data files.

    Returns:
        The manifests, their delete files, and the number of bytes of the unneeded delete files.

    Raises:
        UnreadableFileError: A manifest is damaged.
    """
    deletes = Deletes.of(io, manifests)
    if not deletes.files:
        return manifests, deletes, 0
    # Files of a new manifest have no sequence number yet: no delete file applies to them.
    earlier = (entry for entry in live_entries(io, manifests) if entry.sequence_number >= 0)
    needed = deletes.still_needed(earlier)
    unneeded = {manifest.manifest_path for manifest, _ in deletes.by_manifest}
    unneeded -= {manifest.manifest_path for manifest, _ in needed.by_manifest}
    kept = [manifest for manifest in manifests if manifest.manifest_path not in unneeded]
    return kept, needed, sum(file.size_bytes for file in deletes.files) - sum(file.size_bytes for file in needed.files)


def live_entries(io: FileIO, manifests: Iterable[ManifestFile]) -> Iterator[Entry]:
    """Yield the live data files that some manifests list; those of delete files are ignored.

    Raises:
        UnreadableFileError: A manifest is damaged.
    """
    for manifest in manifests:
        if manifest.content == ManifestContent.DATA:
            with reading(manifest.manifest_path):
                content = manifest_content(io, manifest)
                entries = list(read_entries(manifest, content, partition_type_in(content)))
            yield from (entry for entry in entries if not entry.is_deleted)


def files_with_deletes(location: str) -> set[str]:
    """Return the complete paths of the live data files to which delete files may apply.

    Raises:
        UnreadableFileError: The metadata are damaged.
    """
    io = file_io(location)
    manifests = _manifests(location)
    deletes = Deletes.of(io, manifests)
    if not deletes.files:
        return set()
    return {entry.path for entry in live_entries(io, manifests) if deletes.apply_to(entry.path, entry.sequence_number)}


def delete_file_count(location: str) -> int:
    """Return the number of delete files in the current snapshot.

    Raises:
        UnreadableFileError: The metadata are damaged.
    """
    return len(Deletes.of(file_io(location), _manifests(location)).files)


def have_changed(before: str, after: str, paths: Collection[str], *, is_serializable: bool) -> bool:
    """Return whether other rows of some data files may be deleted than with earlier metadata of the table.

    Args:
        before: The earlier metadata; an engine may have deleted them, and nothing is known then.
        paths: Complete paths.
        is_serializable: Whether rows of all other files count, too, that are no longer deleted.

    Raises:
        UnreadableFileError: The later metadata are damaged.
    """
    io, later = file_io(after), _manifests(after)
    try:
        earlier = _manifests(before)
        former = _files_only_in(io, earlier, later)
    except (UnreadableFileError, FileNotFoundError):
        return True
    now = _files_only_in(io, later, earlier)
    if any(file.may_name(path) for file in now.values() if file.path not in former for path in paths):
        return True
    # A roll-back to an earlier snapshot, for instance, takes deletes back.
    taken_back = [file for file in former.values() if file.path not in now]
    return bool(taken_back) and any(
        file.applies_to(entry.path, entry.sequence_number)
        for entry in live_entries(io, later)
        if is_serializable or entry.path in paths
        for file in taken_back
    )


def _files_only_in(
    io: FileIO, manifests: Iterable[ManifestFile], others: Iterable[ManifestFile]
) -> dict[str, DeleteFile]:
    """Return the delete files, by path, of the manifests that are not among others."""
    known = {manifest.manifest_path for manifest in others}
    own = (manifest for manifest in manifests if manifest.manifest_path not in known)
    return {file.path: file for file in Deletes.of(io, own).files}


def _manifests(location: str) -> list[ManifestFile]:
    with reading(location):
        return current_manifests(read_metadata(location))
