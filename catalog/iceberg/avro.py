"""Reading of the Avro files of Iceberg's metadata: exactly, to their end, and with limited memory.

PyIceberg 0.12's compiled decoder rounds doubles to floats, and reads whatever is in memory behind its bytes where a
length is wrong. Its reader of decimals skips them as if their length preceded them, and its reader of files takes a
truncated file for a shorter one. It also keeps the entries of manifest lists by the paths of manifests, so that a list
which names another table's manifest would change how that is read.

Sources: https://avro.apache.org/docs/1.12.0/specification/#object-container-files; https://iceberg.apache.org/spec/.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterator
from enum import Enum
from functools import lru_cache
from typing import Any

from pyiceberg.avro.decoder import BinaryDecoder, new_decoder
from pyiceberg.avro.reader import DecimalReader, Reader
from pyiceberg.avro.resolver import ReadSchemaResolver, SchemaPartnerAccessor
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
    _inherit_from_manifest,
)
from pyiceberg.schema import Schema, visit_with_partner
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, FixedType, IcebergType, ListType, MapType, StructType, UnknownType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from catalog.iceberg.compression import unpacked
from catalog.iceberg.storage import read_file

MOST_BLOCK_BYTES = 256 << 20
"""Maximum size of a block, unpacked. Writers that make one block of a manifest end manifests at some 8 MB."""

_MOST_RECORDS_A_BYTE = 8
_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_CHECKSUM_BYTES = 4
_LONGEST_INTEGER = 10
_MORE, _NEGATIVE = 0x80, 0x01
"""Bits of a byte of an encoded integer: another byte follows; of the first byte: it is negative."""
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_CONTENT, _FORMAT, _LISTED_CONTENT, _SUMMARY = 134, 101, 517, 508


class Decoder(BinaryDecoder):
    """PyIceberg's compiled decoder, within its bytes.

    Methods raise EOFError where it would read anything else; after the last one, `require_end` does.
    """

    def __init__(self, contents: bytes) -> None:
        """Start at the first byte."""
        # Integers end at a byte below 128.
        inner = new_decoder(contents + b"\0")
        self._contents, self._size = contents, len(contents)
        self._read, self._skip, self._read_ints = inner.read, inner.skip, inner.read_ints
        self.read_int = inner.read_int  # type: ignore[method-assign]
        self.tell = inner.tell  # type: ignore[method-assign]

    def require_end(self) -> None:
        """Check that everything was read, and nothing else."""
        if self.tell() != self._size:
            raise EOFError(f"{self.tell():,} bytes were read of {self._size:,}")

    def _check(self, length: int) -> int:
        if not 0 <= length <= self._size - self.tell():
            raise EOFError(f"{length:,} bytes are needed at {self.tell():,} of {self._size:,}")
        return length

    def tell(self) -> int:
        """Return the current position."""
        raise NotImplementedError

    def read(self, n: int) -> bytes:
        """Read n bytes."""
        return self._read(self._check(n))

    def read_bytes(self) -> bytes:
        """Read a length, and as many bytes."""
        return self._read(self._check(self.read_int()))

    def read_utf8(self) -> str:
        """Read a length, and a string of as many bytes."""
        return self._read(self._check(self.read_int())).decode()

    def read_boolean(self) -> bool:
        """Read a byte that is 0 or 1."""
        return self.read(1) == b"\1"

    def read_float(self) -> float:
        """Read a number of 4 bytes."""
        value: float = _FLOAT.unpack(self.read(_FLOAT.size))[0]
        return value

    def read_double(self) -> float:
        """Read a number of 8 bytes."""
        value: float = _DOUBLE.unpack(self.read(_DOUBLE.size))[0]
        return value

    def read_ints(self, count: int) -> tuple[int, ...]:
        """Read as many integers."""
        if 0 <= count * _LONGEST_INTEGER <= self._size - self.tell():
            return self._read_ints(count)
        read_int = self.read_int
        return tuple(read_int() for _ in range(self._check(count)))

    def read_int_bytes_dict(self, count: int, dest: dict[int, bytes]) -> None:
        """Read as many pairs of an integer and bytes."""
        read_int, check, read = self.read_int, self._check, self._read
        for _ in range(check(count)):
            key = read_int()
            dest[key] = read(check(read_int()))

    def skip_int_bytes_dict(self, count: int) -> None:
        """Skip as many pairs of an integer and bytes; in the bytes themselves, because most lengths are below 64."""
        contents, position = self._contents, self.tell()
        try:
            for _ in range(self._check(count)):
                while contents[position] & _MORE:
                    position += 1
                length = contents[position + 1]
                if length & (_MORE | _NEGATIVE):
                    self.skip(position + 1 - self.tell())
                    self.skip_bytes()
                    position = self.tell()
                else:
                    position += 2 + (length >> 1)
        except IndexError:
            raise EOFError(f"a map ends at {position:,} of {self._size:,}") from None
        self.skip(position - self.tell())

    def skip(self, n: int) -> None:
        """Skip n bytes."""
        self._skip(self._check(n))

    def skip_int(self) -> None:
        """Skip an integer."""
        self.read_int()

    def skip_bytes(self) -> None:
        """Skip a length, and as many bytes."""
        self._skip(self._check(self.read_int()))

    def skip_utf8(self) -> None:
        """Skip a length, and a string of as many bytes."""
        self._skip(self._check(self.read_int()))


class AvroContainer:
    """An object container file of Avro.

    Attributes:
        metadata: The entries of its header.
    """

    def __init__(self, content: bytes) -> None:
        """Read the header.

        Args:
            content: The file.

        Raises:
            ValueError: It is no Avro file.
            EOFError: It ends too early.
        """
        decoder = Decoder(content)
        if decoder.read(len(_MAGIC)) != _MAGIC:
            raise ValueError("it is not an Avro file")
        self.metadata: dict[str, bytes] = {}
        while count := decoder.read_int():
            if count < 0:
                # The size of the entries follows.
                decoder.read_int()
            for _ in range(abs(count)):
                name = decoder.read_utf8()
                self.metadata[name] = decoder.read_bytes()
        self._sync = decoder.read(_SYNC_BYTES)
        self._content, self._start = content, decoder.tell()

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield the number of records and the unpacked bytes of each block.

        Raises:
            ValueError: A block is damaged, or larger than `MOST_BLOCK_BYTES`.
            NotImplementedError: The codec is not supported.
        """
        codec, length = self.metadata.get("avro.codec", b"null").decode(), len(self._content) - self._start
        decoder = Decoder(self._content[self._start :])
        while decoder.tell() < length:
            count, stored = decoder.read_int(), decoder.read_bytes()
            if decoder.read(_SYNC_BYTES) != self._sync:
                raise ValueError("a block does not end with the sync marker of the header")
            block = _unpacked(codec, stored)
            # Records have different paths, of which each takes more than a bit, also where others are compressed.
            if not 0 <= count <= min(len(block), len(stored) * _MOST_RECORDS_A_BYTE):
                raise ValueError(f"a block of {len(stored)} bytes has {count} records by its header")
            yield count, block

    def records(self, reader_for: Callable[[bytes], Reader]) -> Iterator[Any]:
        """Yield the records.

        Args:
            reader_for: Returns a reader for the schema in the header.
        """
        reader = reader_for(self.metadata["avro.schema"])
        for count, block in self.blocks():
            decoder = Decoder(block)
            for _ in range(count):
                yield reader.read(decoder)
            decoder.require_end()


def written_schema(avro_schema: bytes) -> Schema:
    """Return the schema in the header of a file as Iceberg's."""
    return AvroSchemaConversion().avro_to_iceberg(json.loads(avro_schema))


def reader_of(written: Schema | StructType, read: Schema | StructType | None = None) -> Reader:
    """Return a reader of records that were written with a schema.

    Args:
        read: The fields to read, with their types; None for all.
    """
    return _resolved(written, written if read is None else read, _Resolver({}, {}))


def read_content(io: FileIO, path: str, length: int | None = None) -> bytes:
    """Return the bytes of a file that metadata name.

    Args:
        length: The bytes that the file must have; None for any number.

    Raises:
        LocationNotAllowedError: It is neither in the table's folder nor in an allowed one.
        ValueError: It has another length, or more than manifests have, or it is large and not an Avro file.
    """
    return read_file(io, path, length, _MAGIC)


def manifest_content(io: FileIO, manifest: ManifestFile) -> bytes:
    """Return the bytes of a manifest, as many as its entry in the manifest list says; raises like `read_content`."""
    return read_content(io, manifest.manifest_path, manifest.manifest_length)


def snapshot_manifests(io: FileIO, snapshot: Snapshot | None) -> list[ManifestFile]:
    """Return the entries of a snapshot's manifest list; none without a snapshot."""
    return [] if snapshot is None or not snapshot.manifest_list else listed_manifests(io, snapshot.manifest_list)


def listed_manifests(io: FileIO, path: str) -> list[ManifestFile]:
    """Return the entries of a manifest list."""
    return list(AvroContainer(read_content(io, path)).records(_list_reader))


def manifest_entries(io: FileIO, manifest: ManifestFile, *, with_deleted: bool = False) -> list[ManifestEntry]:
    """Return the entries of a manifest, with the sequence numbers that they inherit.

    Args:
        with_deleted: Also those of files that a commit has removed.
    """
    return entries_in(manifest_content(io, manifest), manifest, with_deleted=with_deleted)


def entries_in(content: bytes, manifest: ManifestFile, *, with_deleted: bool = False) -> list[ManifestEntry]:
    """Return the entries of a manifest that was read, as `manifest_entries`.

    Args:
        content: The manifest's bytes.
    """
    return [
        _inherit_from_manifest(entry, manifest)
        for entry in AvroContainer(content).records(_entry_reader)
        if with_deleted or entry.status is not ManifestEntryStatus.DELETED
    ]


def values_of(record: Record) -> tuple[Any, ...]:
    """Return the values of a record, such as that of a file's partition."""
    return tuple(record[position] for position in range(len(record)))


def _unpacked(codec: str, block: bytes) -> bytes:
    if codec == "null":
        return block
    # A block of snappy ends with a checksum of its contents.
    part = block[:-_CHECKSUM_BYTES] if codec == "snappy" else block
    contents = unpacked(codec, part, MOST_BLOCK_BYTES)
    if codec == "snappy" and zlib.crc32(contents).to_bytes(_CHECKSUM_BYTES, "big") != block[-_CHECKSUM_BYTES:]:
        raise ValueError("a compressed block has another checksum than its contents")
    return contents


@lru_cache(maxsize=64)
def _entry_reader(avro_schema: bytes) -> Reader:
    enums: dict[int, Callable[..., Enum]] = {0: ManifestEntryStatus, _FORMAT: FileFormat, _CONTENT: DataFileContent}
    resolver = _Resolver({-1: ManifestEntry, 2: DataFile}, enums)
    return _resolved(written_schema(avro_schema), MANIFEST_ENTRY_SCHEMAS[DEFAULT_READ_VERSION], resolver)


@lru_cache(maxsize=64)
def _list_reader(avro_schema: bytes) -> Reader:
    resolver = _Resolver({-1: ManifestFile, _SUMMARY: PartitionFieldSummary}, {_LISTED_CONTENT: ManifestContent})
    return _resolved(written_schema(avro_schema), MANIFEST_LIST_FILE_SCHEMAS[DEFAULT_READ_VERSION], resolver)


def _resolved(written: Schema | StructType, read: Schema | StructType, resolver: _Resolver) -> Reader:
    reader: Reader = visit_with_partner(written, read, resolver, _Accessor())  # type: ignore[misc]
    return reader


def _require_bytes(item: IcebergType) -> None:
    """Check that items of a list or map take bytes: the number of others, which a few bytes give, has no limit."""
    if _takes_no_bytes(item):
        raise ValueError(f"it has items of type {item}, which take no bytes")


def _takes_no_bytes(written: IcebergType) -> bool:
    match written:
        case StructType(fields=fields):
            return all(field.required and _takes_no_bytes(field.field_type) for field in fields)
        case FixedType():
            return len(written) == 0
    return isinstance(written, UnknownType)


class _DecimalReader(DecimalReader):
    def skip(self, decoder: BinaryDecoder) -> None:
        decoder.skip(self._length)


class _Resolver(ReadSchemaResolver):
    def list(self, list_type: ListType, expected_list: IcebergType | None, element_reader: Reader) -> Reader:
        _require_bytes(list_type.element_type)
        return super().list(list_type, expected_list, element_reader)

    def map(
        self, map_type: MapType, expected_map: IcebergType | None, key_reader: Reader, value_reader: Reader
    ) -> Reader:
        _require_bytes(StructType(map_type.key_field, map_type.value_field))
        return super().map(map_type, expected_map, key_reader, value_reader)

    def visit_decimal(self, decimal_type: DecimalType, partner: IcebergType | None) -> Reader:
        return _DecimalReader(decimal_type.precision, decimal_type.scale)


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
