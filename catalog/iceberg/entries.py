"""Reading of the entries of manifests, to copy them to other manifests.

An entry of a manifest that Calve has written is not decoded any further than a copy needs: everything about its data
file stays encoded. Those of other engines, which may have further fields, are read by PyIceberg and encoded again.

Sources: https://iceberg.apache.org/spec/#manifests; https://avro.apache.org/docs/1.12.0/specification/#binary-encoding.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from io import BytesIO
from typing import Any

from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_writer
from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import StructType

from catalog.iceberg.avro import AvroContainer, Decoder, entries_in, reader_of, values_of
from catalog.iceberg.manifests import ENTRY_FIELDS, FILE_FIELDS, Entry, encode_data_file

_DELETED = 2
_SEARCHED_FOLDERS = 100
_NUMBERS_MAPS, _BOUNDS_MAPS = 4, 2
"""Maps from a field id to a number (sizes and counts), and to bytes (bounds), in this order."""


class PathSearch:
    """A search for the paths of some files in the bytes of manifests; much faster than to read the entries."""

    def __init__(self, paths: Iterable[str]) -> None:
        """Prepare a search for complete paths."""
        self._paths = {path.encode() for path in paths}
        self._lengths = {len(path) for path in self._paths}
        folders = {path[: path.rfind(b"/") + 1] for path in self._paths}
        # Of more folders, too many are in each manifest to look for each of them.
        self._folder = re.compile(b"|".join(map(re.escape, folders))) if len(folders) <= _SEARCHED_FOLDERS else None

    def is_possible_in(self, content: bytes) -> bool:
        """Return whether a manifest may have an entry of one of the files."""
        return self._folder is None or any(map(self._is_in, AvroContainer(content).blocks()))

    def _is_in(self, block: tuple[int, bytes]) -> bool:
        assert self._folder is not None
        starts = (match.start() for match in self._folder.finditer(block[1]))
        return any(block[1][start : start + length] in self._paths for start in starts for length in self._lengths)


def partition_type_in(content: bytes) -> StructType:
    """Return the type of partition records in a manifest, by its header.

    Args:
        content: The manifest's bytes.
    """
    header = AvroContainer(content).metadata
    fields = [PartitionField.model_validate(field) for field in json.loads(header["partition-spec"])]
    return PartitionSpec(*fields).partition_type(Schema.model_validate_json(header["schema"]))


def read_entries(manifest: ManifestFile, content: bytes, partition_type: StructType) -> Iterator[Entry]:
    """Yield the entries of a manifest of data files, with what they inherit.

    Args:
        content: The manifest's bytes.
        partition_type: Of partition records.
    """
    container = AvroContainer(content)
    if not _has_own_fields(container.metadata):
        for entry in entries_in(content, manifest, with_deleted=True):
            yield _encoded(entry, partition_type)
        return
    partitions = reader_of(partition_type) if partition_type.fields else None
    for count, block in container.blocks():
        decoder = Decoder(block)
        for _ in range(count):
            yield _entry(decoder, block, manifest, partitions)
        decoder.require_end()


def _encoded(entry: ManifestEntry, partition_type: StructType) -> Entry:
    record, output = values_of(entry.data_file.partition), BytesIO()
    construct_writer(partition_type).write(BinaryEncoder(output), Record(*record))
    return Entry(
        entry.status is ManifestEntryStatus.DELETED,
        entry.snapshot_id or 0,
        entry.sequence_number or 0,
        entry.file_sequence_number or 0,
        entry.data_file.file_path,
        record,
        entry.data_file.record_count,
        entry.data_file.file_size_in_bytes,
        encode_data_file(entry.data_file, output.getvalue()),
    )


def _entry(decoder: Decoder, block: bytes, manifest: ManifestFile, partitions: Reader | None) -> Entry:
    status = decoder.read_int()
    snapshot_id, sequence_number, file_sequence_number = (_optional(decoder) for _ in range(3))
    start = decoder.tell()
    decoder.skip_int()
    path = decoder.read_utf8()
    decoder.skip_utf8()
    partition = () if partitions is None else values_of(partitions.read(decoder))
    row_count, size_bytes = decoder.read_int(), decoder.read_int()
    for _ in range(_NUMBERS_MAPS):
        _skip(decoder, is_of_bytes=False)
    for _ in range(_BOUNDS_MAPS):
        _skip(decoder, is_of_bytes=True)
    if decoder.read_int():
        decoder.skip_bytes()
    for _ in range(2):
        if decoder.read_int():
            while count := decoder.read_int():
                decoder.read_ints(count)
    _optional(decoder)
    # Manifests of a manifest list have both; PyIceberg's types allow for those of format version 1.
    own, added = manifest.sequence_number or 0, manifest.added_snapshot_id or 0
    return Entry(
        status == _DELETED,
        added if snapshot_id is None else snapshot_id,
        own if sequence_number is None else sequence_number,
        own if file_sequence_number is None else file_sequence_number,
        path,
        partition,
        row_count,
        size_bytes,
        block[start : decoder.tell()],
    )


def _optional(decoder: Decoder) -> Any:
    return decoder.read_int() if decoder.read_int() else None


def _skip(decoder: Decoder, *, is_of_bytes: bool) -> None:
    """Skip an optional map whose keys are numbers; Avro has none such, so it is an array of pairs."""
    if not decoder.read_int():
        return
    while count := decoder.read_int():
        if is_of_bytes:
            decoder.skip_int_bytes_dict(count)
        else:
            decoder.read_ints(2 * count)


def _has_own_fields(header: Mapping[str, bytes]) -> bool:
    """Return whether the entries of a manifest have the fields of Calve's manifests, in the same order."""
    return header.get("format-version") == b"2" and _field_names(header["avro.schema"]) == (ENTRY_FIELDS, FILE_FIELDS)


def _field_names(schema: bytes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the fields of an entry, and of its data file."""
    entry = json.loads(schema)["fields"]
    files = next((field["type"]["fields"] for field in entry if field["name"] == "data_file"), ())
    return tuple(field["name"] for field in entry), tuple(field["name"] for field in files)
