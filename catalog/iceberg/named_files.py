"""List the files that an Iceberg table's metadata reference; strict, because unreferenced files are deleted.

Only paths are interpreted, so metadata of every format version are read, even of versions unknown to PyIceberg.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.file import META_SCHEMA, AvroFileHeader
from pyiceberg.avro.resolver import ReadSchemaResolver, SchemaPartnerAccessor, construct_reader
from pyiceberg.exceptions import ResolveError, ValidationError
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema, visit_with_partner
from pyiceberg.types import IcebergType, IntegerType, NestedField, StringType, StructType

from catalog.files.locations import reach_key
from catalog.iceberg.places import HIDDEN, METADATA
from catalog.iceberg.pointers import Pointer
from catalog.iceberg.storage import file_io

_GZIP = b"\x1f\x8b"
_SYNC_BYTES = 16
_DELETED = 2
_MANIFEST_LIST = Schema(NestedField(500, "manifest_path", StringType(), required=True))
_DATA_FILE = StructType(NestedField(100, "file_path", StringType(), required=True))
_MANIFEST = Schema(
    NestedField(0, "status", IntegerType(), required=True), NestedField(2, "data_file", _DATA_FILE, required=True)
)
_FAILURES = (
    *(OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, EOFError, RecursionError),
    *(ResolveError, ValidationError, NotImplementedError, MemoryError, OverflowError, zlib.error),
)
"""Errors of readers for missing or truncated files, or files of another format."""


class UnreadableFileError(Exception):
    """A metadata file cannot be read."""

    def __init__(self, path: str, reason: str) -> None:
        """Keep the file's path and the reader's message."""
        super().__init__(path, reason)
        self.path, self.reason = path, reason


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


@dataclass
class _Contents:
    """The files that a table's metadata file references directly."""

    files: list[str] = field(default_factory=list)
    manifest_lists: list[str] = field(default_factory=list)
    manifests: list[str] = field(default_factory=list)


def home(metadata_location: str) -> str:
    """Return the folder of the table that owns a metadata file, according to the standard folder names."""
    folder = reach_key(metadata_location).rpartition("/")[0]
    for name in (METADATA, HIDDEN):
        folder = folder.removesuffix(f"/{name}")
    return folder


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
        for entry in _rows(io, path, _MANIFEST):
            # A deleted file is referenced by earlier snapshots, if these still exist.
            if entry[0] != _DELETED:
                yield entry[1][0]


def _manifests(contents: _Contents, io: FileIO) -> Iterator[str]:
    seen: set[str] = set()
    for listed in contents.manifest_lists:
        for row in _rows(io, listed, _MANIFEST_LIST):
            if row[0] not in seen:
                seen.add(row[0])
                yield row[0]
    yield from (path for path in contents.manifests if path not in seen)


def _rows(io: FileIO, path: str, schema: Schema) -> Iterator[Any]:
    """Yield the rows of an Avro file with only some of its fields; a truncated file is an error.

    PyIceberg's own reader treats a truncated file as a shorter one, and skips neither lists nor maps.
    """
    try:
        with io.new_input(path).open() as opened:
            content = opened.read()
        decoder = new_decoder(content)
        header: AvroFileHeader = construct_reader(META_SCHEMA, {-1: AvroFileHeader}).read(decoder)
        resolver = ReadSchemaResolver({}, {})
        reader: Any = visit_with_partner(header.get_schema(), schema, resolver, _Accessor())  # type: ignore[misc]
        codec = header.compression_codec()
        while decoder.tell() < len(content):
            count, block = decoder.read_int(), decoder.read_bytes()
            if decoder.read(_SYNC_BYTES) != header.sync:
                raise ValueError("a block does not end with the sync marker of the header")
            rows = new_decoder(block if codec is None else codec.decompress(block))
            for _ in range(count):
                yield reader.read(rows)
    except _FAILURES as error:
        raise UnreadableFileError(path, f"{type(error).__name__}: {error}") from error


class _Accessor(SchemaPartnerAccessor):
    """Accessor that treats fields outside the requested schema as missing, including their contents."""

    def field_partner(self, partner: IcebergType | None, field_id: int, field_name: str) -> IcebergType | None:
        return None if partner is None else super().field_partner(partner, field_id, field_name)

    def list_element_partner(self, partner_list: IcebergType | None) -> IcebergType | None:
        return None if partner_list is None else super().list_element_partner(partner_list)

    def map_key_partner(self, partner_map: IcebergType | None) -> IcebergType | None:
        return None if partner_map is None else super().map_key_partner(partner_map)

    def map_value_partner(self, partner_map: IcebergType | None) -> IcebergType | None:
        return None if partner_map is None else super().map_value_partner(partner_map)


def _read_contents(location: str, expired: Expired = Expired()) -> _Contents:
    try:
        document = _read_document(location)
        contents = _Contents()
        log = [entry["metadata-file"] for entry in document.get("metadata-log") or ()]
        contents.files += [file for file in log if file not in expired.metadata_files]
        for name in ("statistics", "partition-statistics"):
            contents.files += [entry["statistics-path"] for entry in document.get(name) or ()]
        for snapshot in document.get("snapshots") or ():
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
    with file_io(location).new_input(location).open() as opened:
        content = opened.read()
    document = json.loads(gzip.decompress(content) if content.startswith(_GZIP) else content)
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
