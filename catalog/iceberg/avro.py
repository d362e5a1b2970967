"""Reading of Avro records in Iceberg's metadata, exactly.

PyIceberg 0.12's compiled decoder rounds doubles to floats, and its reader of decimals skips them as if their length
preceded them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import Enum
from typing import Any

from pyiceberg.avro.decoder import BinaryDecoder, new_decoder
from pyiceberg.avro.file import AvroFile
from pyiceberg.avro.reader import DecimalReader, DoubleReader, Reader
from pyiceberg.avro.resolver import ReadSchemaResolver, SchemaPartnerAccessor
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    _inherit_from_manifest,
)
from pyiceberg.schema import Schema, visit_with_partner
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, DoubleType, IcebergType, StructType

_DOUBLE = struct.Struct("<d")
_CONTENT, _FORMAT = 134, 101


def reader_of(written: Schema | StructType, read: Schema | StructType | None = None) -> Reader:
    """Return a reader of records that were written with a schema.

    Args:
        read: The fields to read, with their types; None for all.
    """
    return _resolved(written, written if read is None else read, _Resolver({}, {}))


def manifest_entries(io: FileIO, manifest: ManifestFile, *, with_deleted: bool = False) -> list[ManifestEntry]:
    """Return the entries of a manifest, with the sequence numbers that they inherit.

    Args:
        with_deleted: Also those of files that a commit has removed.
    """
    with _Manifest(io.new_input(manifest.manifest_path), MANIFEST_ENTRY_SCHEMAS[DEFAULT_READ_VERSION]) as entries:
        return [
            _inherit_from_manifest(entry, manifest)
            for entry in entries
            if with_deleted or entry.status is not ManifestEntryStatus.DELETED
        ]


def values_of(record: Record) -> tuple[Any, ...]:
    """Return the values of a record, such as that of a file's partition."""
    return tuple(record[position] for position in range(len(record)))


def _resolved(written: Schema | StructType, read: Schema | StructType, resolver: _Resolver) -> Reader:
    reader: Reader = visit_with_partner(written, read, resolver, _Accessor())  # type: ignore[misc]
    return reader


class _Manifest(AvroFile[ManifestEntry]):
    def __enter__(self) -> _Manifest:
        # Instead of PyIceberg's, which takes as long to create a reader as to read a short manifest with it.
        with self.input_file.open() as opened:
            self.decoder = new_decoder(opened.read())
        self.header = self._read_header()
        self.schema = self.header.get_schema()
        enums: dict[int, Callable[..., Enum]] = {0: ManifestEntryStatus, _FORMAT: FileFormat, _CONTENT: DataFileContent}
        assert self.read_schema is not None
        self.reader = _resolved(self.schema, self.read_schema, _Resolver({-1: ManifestEntry, 2: DataFile}, enums))
        return self


class _DoubleReader(DoubleReader):
    def read(self, decoder: BinaryDecoder) -> float:
        value: float = _DOUBLE.unpack(decoder.read(_DOUBLE.size))[0]
        return value


class _DecimalReader(DecimalReader):
    def skip(self, decoder: BinaryDecoder) -> None:
        decoder.skip(self._length)


class _Resolver(ReadSchemaResolver):
    def visit_double(self, double_type: DoubleType, partner: IcebergType | None) -> Reader:
        return _DoubleReader()  # type: ignore[no-untyped-call]

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
