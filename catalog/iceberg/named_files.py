"""List the files that an Iceberg table's metadata reference; strict, because unreferenced files are deleted.

Only paths are interpreted, so metadata of every format version are read, even of versions unknown to PyIceberg.
"""

from __future__ import annotations

import json
import logging
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.exceptions import ResolveError, ValidationError
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType

from catalog.errors import CatalogError, LocationNotAllowedError, UnknownIcebergTypeError
from catalog.files.credentials import without_credentials
from catalog.files.locations import reach_key
from catalog.iceberg.avro import AvroContainer, read_content, reader_of, written_schema
from catalog.iceberg.pointers import Pointer
from catalog.iceberg.storage import file_io, metadata_error, read_contents, table_folder
from catalog.settings.places import require_files

log = logging.getLogger(__name__)

_DELETED = 2
_MANIFEST_LIST = Schema(NestedField(500, "manifest_path", StringType(), required=True))
_ADDED_MANIFESTS = Schema(
    NestedField(500, "manifest_path", StringType(), required=True),
    NestedField(503, "added_snapshot_id", LongType(), required=False),
)
_DATA_FILE = StructType(NestedField(100, "file_path", StringType(), required=True))
_MANIFEST = Schema(
    NestedField(0, "status", IntegerType(), required=True), NestedField(2, "data_file", _DATA_FILE, required=True)
)
_SIZED_FILE = StructType(*_DATA_FILE.fields, NestedField(104, "file_size_in_bytes", LongType(), required=True))
_SIZED_MANIFEST = Schema(
    NestedField(0, "status", IntegerType(), required=True), NestedField(2, "data_file", _SIZED_FILE, required=True)
)
_FAILURES = (
    *(OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, EOFError, RecursionError),
    *(ResolveError, ValidationError, NotImplementedError, ImportError, MemoryError, OverflowError),
    *(zlib.error, struct.error, SystemError, LocationNotAllowedError, UnknownIcebergTypeError),
)
"""Errors of readers for missing or truncated files, files of another format, or in a folder that is not allowed.

`SystemError` is that of PyIceberg's compiled decoder.
"""


class UnreadableFileError(Exception):
    """A metadata file cannot be read."""

    def __init__(self, path: str, reason: str) -> None:
        """Keep the file's path and the reader's message, without credentials that they may have."""
        shown = without_credentials(path)
        reason = reason.replace(path, shown)
        super().__init__(shown, reason)
        self.path, self.reason = shown, reason

    def of_table(self, name: str) -> CatalogError:
        """Return the error of the table with this file, as `metadata_error`."""
        return metadata_error(name, self.path, self.reason, self.__cause__)


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Translate the errors of a metadata file's reader.

    Raises:
        UnreadableFileError: The file is missing, truncated, or of another format.
    """
    try:
        yield
    except _FAILURES as error:
        raise UnreadableFileError(path, f"{type(error).__name__}: {error}".splitlines()[0]) from error


@dataclass(frozen=True)
class Expired:
    """What a table's metadata refer to, but not for long.

    Attributes:
        snapshot_ids: Snapshots to remove.
        metadata_files: Earlier metadata files to forget.
        kept_snapshot_ids: The other snapshots.
    """

    snapshot_ids: frozenset[int] = frozenset()
    metadata_files: frozenset[str] = frozenset()
    kept_snapshot_ids: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        """Return whether there is anything."""
        return bool(self.snapshot_ids or self.metadata_files)

    def within(self, other: Expired) -> Expired:
        """Return what both have expired; the snapshots that only this one has are kept."""
        ids = self.snapshot_ids & other.snapshot_ids
        kept = self.kept_snapshot_ids | (self.snapshot_ids - ids)
        return Expired(ids, self.metadata_files & other.metadata_files, kept)


@dataclass
class _Contents:
    """The files that a table's metadata file references directly."""

    snapshot_ids: set[int] = field(default_factory=set)
    files: list[str] = field(default_factory=list)
    manifest_lists: list[str] = field(default_factory=list)
    manifests: list[str] = field(default_factory=list)


def home(metadata_location: str) -> str:
    """Return the folder of the table that owns a metadata file, according to the standard folder names."""
    return table_folder(reach_key(metadata_location))


def metadata_paths(pointer: Pointer, expired: Expired = Expired()) -> Iterator[str]:
    """Yield the files that a table's metadata references, except data files and delete files.

    Args:
        expired: References that do not count.

    Raises:
        UnreadableFileError: A metadata file or a manifest list cannot be read.
    """
    yield pointer.location
    if pointer.previous is not None:
        yield pointer.previous
    contents = _read_contents(pointer.location, expired)
    yield from contents.files
    yield from contents.manifest_lists
    yield from _manifests(contents, file_io(pointer.location))


def data_paths(pointer: Pointer) -> Iterator[str]:
    """Yield the data files and delete files in the manifests of a table, possibly with duplicates.

    Raises:
        UnreadableFileError: A file on the way to them cannot be read.
    """
    io = file_io(pointer.location)
    for path in _manifests(_read_contents(pointer.location), io):
        yield from _live_files(io, path)


def _live_files(io: FileIO, manifest: str) -> Iterator[str]:
    for entry in avro_rows(io, manifest, _MANIFEST):
        # A deleted file is referenced by earlier snapshots, if these still exist.
        if entry[0] != _DELETED:
            yield entry[1][0]


def added_paths(pointer: Pointer, known: frozenset[int]) -> tuple[Iterator[str], set[int]]:
    """Return the files that a table's metadata reference, without those in manifests that known snapshots have added.

    Manifests never change, and a snapshot has those that it has added, so a caller who has read the known snapshots
    has seen the files in them.

    Returns:
        The files, and the snapshots that are known after the last file.

    Raises:
        UnreadableFileError: The metadata file cannot be read, or later, a manifest list or a manifest.
    """
    contents = _read_contents(pointer.location, Expired(known))
    ids = set(contents.snapshot_ids)
    return _added_paths(pointer, contents, known, ids), ids


def _added_paths(pointer: Pointer, contents: _Contents, known: frozenset[int], ids: set[int]) -> Iterator[str]:
    yield pointer.location
    yield from contents.files
    yield from contents.manifest_lists
    io, manifests = file_io(pointer.location), dict.fromkeys(contents.manifests)
    for listed in contents.manifest_lists:
        for path, added_by in avro_rows(io, listed, _ADDED_MANIFESTS):
            if added_by not in known:
                manifests[path] = None
            if added_by is not None:
                ids.add(added_by)
    for path in manifests:
        yield path
        yield from _live_files(io, path)


def expired_files(
    location: str, expired: Expired, sizes: Mapping[str, int], is_own: Callable[[str], bool]
) -> Iterator[tuple[str, int]]:
    """Yield the files that other engines wrote for expired snapshots, possibly with duplicates.

    These are metadata files, statistics, manifest lists, manifests, and the files in manifests that no other snapshot
    has. A data file or delete file may be in another manifest of a snapshot that stays. Snapshots that an engine has
    expired are found in the expired metadata files. Damaged files are left out, with what only they name.

    Args:
        location: The current metadata.
        sizes: The metadata files that exist: `reach_key` → size. No others are read.
        is_own: Whether Calve wrote a metadata file. All files in manifests of its own are known to the catalog.

    Yields:
        Complete paths, and sizes in bytes.

    Raises:
        UnreadableFileError: Metadata that stay are damaged.
    """
    kept = set(metadata_paths(Pointer("", "", "", location), expired))
    history = _ExpiredMetadata(location, expired, sizes)
    paths = dict.fromkeys(path for path in history.files() if path not in kept and reach_key(path) in sizes)
    manifests: dict[str, None] = {}
    for path in history.manifest_lists.intersection(paths):
        with _skipping_damaged():
            listed = [row[0] for row in avro_rows(file_io(location), path, _MANIFEST_LIST)]
            manifests |= dict.fromkeys(listed)
    # What names other files comes after them, so that a caller who stops in between finds them again.
    for path in manifests:
        if path not in kept and not is_own(path) and (key := reach_key(path)) in sizes:
            with _skipping_damaged():
                for entry in avro_rows(file_io(location), path, _SIZED_MANIFEST):
                    yield entry[1][0], entry[1][1]
                yield path, sizes[key]
    yield from ((path, sizes[reach_key(path)]) for path in paths if not is_own(path))


def superseded_files(before: str, after: str) -> tuple[list[str], list[str], list[str]]:
    """Return the files of snapshots that earlier metadata of a table have, and later ones do not.

    These are data files and delete files, manifests, and manifest lists with statistics: a deletion in this order can
    be repeated. A data file or delete file may also be in a manifest that stays. Damaged manifests and lists are left
    out, with what only they name, and so are those that are missing.

    Raises:
        UnreadableFileError: One of the metadata files, or a manifest list that stays, is damaged.
    """
    kept = {reach_key(path) for path in metadata_paths(Pointer("", "", "", after))}
    contents, io = _read_contents(before, with_log=False), file_io(before)
    listed, data = dict.fromkeys(contents.manifests), dict[str, None]()
    tops, manifests = [path for path in contents.files if reach_key(path) not in kept], []
    for path in contents.manifest_lists:
        with _skipping_damaged():
            if reach_key(path) not in kept:
                listed |= dict.fromkeys(row[0] for row in avro_rows(io, path, _MANIFEST_LIST))
                tops.append(path)
    for path in listed:
        with _skipping_damaged():
            if reach_key(path) not in kept:
                data |= dict.fromkeys(entry[1][0] for entry in avro_rows(io, path, _MANIFEST))
                manifests.append(path)
    return list(data), manifests, tops


def logged_files(location: str) -> Iterator[str]:
    """Yield the files that a table's metadata and the earlier ones in their log reference, as far as these exist.

    Raises:
        UnreadableFileError: The metadata are damaged.
    """
    seen: set[str] = set()
    for path in (location, *_own_logged(location)):
        # An engine may have deleted what only earlier metadata name.
        damage = nullcontext if path == location else _skipping_damaged
        with damage():
            contents, io = _read_contents(path), file_io(path)
            yield from (path, *contents.files, *contents.manifest_lists)
            for listed in set(contents.manifest_lists) - seen:
                with damage():
                    contents.manifests += [row[0] for row in avro_rows(io, listed, _MANIFEST_LIST)]
            for manifest in dict.fromkeys(contents.manifests):
                if manifest not in seen:
                    yield manifest
                    with damage():
                        yield from (entry[1][0] for entry in avro_rows(io, manifest, _MANIFEST))
            seen.update(contents.manifest_lists, contents.manifests)


@contextmanager
def _skipping_damaged() -> Iterator[None]:
    try:
        yield
    except UnreadableFileError as error:
        log.warning("%s of an expired snapshot stays with its files: %s", error.path, error.reason)


class _ExpiredMetadata:
    """The expired metadata files and snapshots of a table.

    Attributes:
        manifest_lists: Those of expired snapshots, after `files` has ended.
    """

    def __init__(self, location: str, expired: Expired, sizes: Mapping[str, int]) -> None:
        self.manifest_lists: set[str] = set()
        self._sizes = sizes
        self._document = _readable_document(location)
        log_entries = _logged(self._document)
        self._expired = [path for path in log_entries if path in expired.metadata_files]
        staying = next((path for path in log_entries if path not in expired.metadata_files), None)
        # A snapshot that an engine expired is old enough when no metadata file has it that is not old enough.
        oldest = {} if staying is None or reach_key(staying) not in sizes else _readable_document(staying)
        self._kept = {snapshot.get("snapshot-id") for snapshot in oldest.get("snapshots") or ()} - expired.snapshot_ids
        self._kept |= expired.kept_snapshot_ids

    def files(self) -> Iterator[str]:
        """Yield metadata files, manifest lists and statistics."""
        yield from self._of_snapshots(self._document)
        pending, seen = list(self._expired), set(_logged(self._document))
        while pending:
            path = pending.pop()
            if reach_key(path) not in self._sizes:
                continue
            yield path
            with _skipping_damaged():
                document = _readable_document(path)
                yield from self._of_snapshots(document)
                # The log is limited, so files fall out of it before they expire.
                older = [earlier for earlier in _logged(document) if earlier not in seen]
                seen.update(older)
                pending += older

    def _of_snapshots(self, document: Mapping[str, Any]) -> Iterator[str]:
        for snapshot in document.get("snapshots") or ():
            listed = snapshot.get("manifest-list")
            if snapshot.get("snapshot-id") not in self._kept and listed and listed not in self.manifest_lists:
                self.manifest_lists.add(listed)
                yield listed
        for name in ("statistics", "partition-statistics"):
            for entry in document.get(name) or ():
                if entry.get("snapshot-id") not in self._kept:
                    yield entry["statistics-path"]


def _own_logged(location: str) -> Iterator[str]:
    """Yield the earlier metadata files in the log of some metadata that a table may have."""
    for path in _logged(_readable_document(location)):
        try:
            require_files([path], [table_folder(location)], "metadata file")
        except LocationNotAllowedError as error:
            log.warning("%s names an earlier one that is not read: %s", without_credentials(location), error)
        else:
            yield path


def _logged(document: Mapping[str, Any]) -> list[str]:
    return [entry["metadata-file"] for entry in document.get("metadata-log") or ()]


def _readable_document(path: str) -> dict[str, Any]:
    with reading(path):
        return _read_document(path)


def _manifests(contents: _Contents, io: FileIO) -> Iterator[str]:
    seen: set[str] = set()
    for listed in contents.manifest_lists:
        for row in avro_rows(io, listed, _MANIFEST_LIST):
            if row[0] not in seen:
                seen.add(row[0])
                yield row[0]
    yield from (path for path in contents.manifests if path not in seen)


def avro_rows(io: FileIO, path: str, schema: Schema, length: int | None = None) -> Iterator[Any]:
    """Yield the rows of an Avro file with only some of its fields.

    Args:
        length: The bytes that the file must have; None for any number.

    Raises:
        UnreadableFileError: The file is missing or damaged.
    """
    try:
        container = AvroContainer(read_content(io, path, length))
        yield from container.records(lambda written: reader_of(written_schema(written), schema))
    except _FAILURES as error:
        raise UnreadableFileError(path, f"{type(error).__name__}: {error}") from error


def _read_contents(location: str, expired: Expired = Expired(), *, with_log: bool = True) -> _Contents:
    try:
        document = _read_document(location)
        contents = _Contents()
        if with_log:
            contents.files += [file for file in _logged(document) if file not in expired.metadata_files]
        for name in ("statistics", "partition-statistics"):
            contents.files += [entry["statistics-path"] for entry in document.get(name) or ()]
        for snapshot in document.get("snapshots") or ():
            contents.snapshot_ids.add(snapshot.get("snapshot-id"))
            if snapshot.get("snapshot-id") in expired.snapshot_ids:
                continue
            if "manifest-list" in snapshot:
                contents.manifest_lists.append(snapshot["manifest-list"])
            else:
                # Format version 1 allows snapshots without a manifest list.
                contents.manifests += snapshot["manifests"]
    except _FAILURES as error:
        raise UnreadableFileError(location, f"{type(error).__name__}: {error}") from error
    return contents


def _read_document(location: str) -> dict[str, Any]:
    document = json.loads(read_contents(location))
    if not isinstance(document, dict) or "format-version" not in document:
        raise ValueError("it is not the metadata of an Iceberg table")
    return document


def known_folders(pointer: Pointer) -> set[str]:
    """Return the folders that a metadata file references, if the file can be read although a manifest cannot."""
    try:
        document = _read_document(pointer.location)
    except _FAILURES:
        return set()
    properties = document.get("properties") or {}
    named = [document.get("location"), *(properties.get(f"write.{kind}.path") for kind in ("metadata", "data"))]
    folders = {reach_key(location) for location in named if location}
    for snapshot in document.get("snapshots") or ():
        if listed := snapshot.get("manifest-list"):
            folders.add(home(listed))
    return folders
