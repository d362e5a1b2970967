"""Reading of the entries of manifests that Calve has written, to copy them to other manifests.

An entry is not decoded any further than a copy needs: everything about its data file stays encoded.

Sources: https://iceberg.apache.org/spec/#manifests; https://avro.apache.org/docs/1.12.0/specification/#binary-encoding.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator
from typing import Any

from pyiceberg.avro.decoder import BinaryDecoder, new_decoder
from pyiceberg.manifest import ManifestFile

from catalog.errors import UnsupportedFormatError
from catalog.iceberg.manifests import Entry

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_DELETED = 2
_NUMBERS_MAPS, _BOUNDS_MAPS = 4, 2
"""Maps from a field id to a number (sizes and counts), and to bytes (bounds), in this order."""


def names_any(content: bytes, names: Collection[bytes]) -> bool:
    """Return whether a manifest has one of some strings in it; much faster than to read its entries."""
    return any(any(name in block for name in names) for _, block in _blocks(content))


def read_entries(manifest: ManifestFile, content: bytes) -> Iterator[Entry]:
    """Yield the entries of a manifest of a table without partition fields, with what they inherit from it.

    Args:
        content: The manifest's bytes.

    Raises:
        UnsupportedFormatError: The manifest is not one that Calve has written.
    """
    for count, block in _blocks(content):
        decoder = new_decoder(block)
        for _ in range(count):
            yield _entry(decoder, block, manifest)


def _entry(decoder: BinaryDecoder, block: bytes, manifest: ManifestFile) -> Entry:
    status = decoder.read_int()
    snapshot_id, sequence_number, file_sequence_number = (_optional(decoder) for _ in range(3))
    start = decoder.tell()
    decoder.skip_int()
    path = decoder.read_utf8()
    decoder.skip_utf8()
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
        row_count,
        size_bytes,
        block[start : decoder.tell()],
    )


def _optional(decoder: BinaryDecoder) -> Any:
    return decoder.read_int() if decoder.read_int() else None


def _skip(decoder: BinaryDecoder, *, is_of_bytes: bool) -> None:
    """Skip an optional map whose keys are numbers; Avro has none such, so it is an array of pairs."""
    if not decoder.read_int():
        return
    while count := decoder.read_int():
        if is_of_bytes:
            decoder.read_int_bytes_dict(count, {})
        else:
            decoder.read_ints(2 * count)


def _blocks(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number of entries and the decompressed bytes of each block."""
    decoder = new_decoder(content)
    if decoder.read(len(_MAGIC)) != _MAGIC:
        raise _refusal("it is not an Avro file")
    header: dict[str, bytes] = {}
    while count := decoder.read_int():
        for _ in range(count):
            name = decoder.read_utf8()
            header[name] = decoder.read_bytes()
    sync = decoder.read(_SYNC_BYTES)
    if header.get("avro.codec") != b"deflate" or header.get("format-version") != b"2":
        raise _refusal(f"its header is {header}")
    while decoder.tell() < len(content):
        count, block = decoder.read_int(), decoder.read_bytes()
        if decoder.read(_SYNC_BYTES) != sync:
            raise _refusal("it is truncated")
        yield count, zlib.decompress(block, -zlib.MAX_WBITS)


def _refusal(reason: str) -> UnsupportedFormatError:
    return UnsupportedFormatError(f"a manifest was not written by Calve: {reason}")
