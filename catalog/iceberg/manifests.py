"""Writing of manifest files by the processes that read the footers; they inherit the id of the committing snapshot.

PyIceberg encodes the header, with its schemas, and the partition records. The rest of an entry is mostly maps of small
numbers and bounds; encoding those here is ten times as fast.

Sources: https://iceberg.apache.org/spec/#manifests; https://avro.apache.org/docs/1.12.0/specification/#binary-encoding.
"""

from __future__ import annotations

import io
import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.resolver import construct_writer
from pyiceberg.io import InputFile, OutputFile, OutputStream
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    ManifestWriterV2,
    PartitionFieldSummary,
    construct_partition_summaries,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record, TableVersion

from catalog.files.filesystem import FileInfo, Folder
from catalog.iceberg.footers.facts import FileFacts
from catalog.model import FileFormat

if TYPE_CHECKING:
    from catalog.iceberg.layout import Layout

TARGET_BYTES = 8 << 20
"""Iceberg's own default, `commit.manifest.target-size-bytes`."""

_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")
_BLOCK_BYTES = 1 << 16
_SYNC_BYTES = 16
_LEVEL = 1
"""Compression level: higher ones take three times as long and save a few percent."""
_NULL, _PRESENT, _END = b"\x00", b"\x02", b"\x00"
"""Avro's union branches for null and for a value, and the end of an array."""
_ADDED_BY_COMMIT = b"\x02" + _NULL + _NULL + _NULL
"""Status ADDED, without snapshot id, sequence number and file sequence number."""
_EXISTING, _DELETED = b"\x00", b"\x04"
_DATA = b"\x00"
ENTRY_FIELDS = ("status", "snapshot_id", "sequence_number", "file_sequence_number", "data_file")
FILE_FIELDS = (
    *("content", "file_path", "file_format", "partition", "record_count", "file_size_in_bytes", "column_sizes"),
    *("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds", "key_metadata"),
    *("split_offsets", "equality_ids", "sort_order_id"),
)


def zigzag(number: int) -> bytes:
    """Return Avro's encoding of an integer."""
    number = number << 1 if number >= 0 else ~(number << 1)
    if number < 1 << 7:
        return bytes((number,))
    if number < 1 << 14:
        return bytes((number & 0x7F | 0x80, number >> 7))
    if number < 1 << 21:
        return bytes((number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14))
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


_SMALL = tuple(map(zigzag, range(1 << 13)))
_SMALL_COUNT = len(_SMALL)


@dataclass(frozen=True)
class WrittenManifest:
    """A complete manifest file.

    Attributes:
        path: In the form of its writer's prefix.
        file_count, row_count: Of the files that the commit adds.
        partitions: One summary per field of the partition spec.
        existing, deleted: The numbers of files and rows that earlier commits added, and that the commit deletes.
        min_sequence_number: The lowest of the existing files; None without any.
    """

    path: str
    length_bytes: int
    file_count: int
    row_count: int
    partitions: tuple[PartitionFieldSummary, ...]
    existing: tuple[int, int] = (0, 0)
    deleted: tuple[int, int] = (0, 0)
    min_sequence_number: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return JSON values for `from_json`, of a manifest that only adds files."""
        return {
            "path": self.path,
            "length_bytes": self.length_bytes,
            "file_count": self.file_count,
            "row_count": self.row_count,
            "partitions": [
                [field.contains_null, field.contains_nan, _as_text(field.lower_bound), _as_text(field.upper_bound)]
                for field in self.partitions
            ],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> WrittenManifest:
        """Return the manifest of `as_json`."""
        return cls(
            document["path"],
            document["length_bytes"],
            document["file_count"],
            document["row_count"],
            tuple(
                PartitionFieldSummary(contains_null, contains_nan, _as_bytes(lower), _as_bytes(upper))
                for contains_null, contains_nan, lower, upper in document["partitions"]
            ),
        )


def _as_text(bound: bytes | None) -> str | None:
    return None if bound is None else b64encode(bound).decode()


def _as_bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


class Entry(NamedTuple):
    """An entry of a manifest that is copied to another manifest.

    Attributes:
        snapshot_id, sequence_number, file_sequence_number: Of the file, never inherited.
        partition: Its partition's typed values; empty in a table without partition fields.
        data_file: The encoded struct with everything else about the file, including its path.
    """

    is_deleted: bool
    snapshot_id: int
    sequence_number: int
    file_sequence_number: int
    path: str
    partition: tuple[Any, ...]
    row_count: int
    size_bytes: int
    data_file: bytes


class ManifestWriter:
    """Writer of a sequence of manifests; a context manager, after which `manifests` has all of them.

    A manifest is in memory until it is complete, and then written at once. After an error the last one is not written.

    Attributes:
        manifests: The complete manifests.
    """

    def __init__(
        self, layout: Layout, path_prefix: str, target_bytes: int = TARGET_BYTES, most_entries: int | None = None
    ) -> None:
        """Prepare the header; nothing is written.

        Args:
            path_prefix: Prefix of the manifests' paths, to which a number and `.avro` are appended. No other process
                may use the same prefix.
            target_bytes: Size at which a manifest is complete.
            most_entries: Number of entries at which it is complete, too; None for any number.
        """
        self.manifests: list[WrittenManifest] = []
        self._existing: tuple[int, int]
        self._deleted: tuple[int, int]
        self._min_sequence_number: int | None
        self._schema, self._spec = layout.schema, layout.spec
        self._prefix, self._target, self._most_entries = path_prefix, target_bytes, most_entries
        partition_type = layout.spec.partition_type(layout.schema)
        self._partition_writer = construct_writer(partition_type)
        # Equal floating-point keys may differ in sign (zeros), so their records are not cached.
        self._caches_records = not any(str(field.field_type) in ("float", "double") for field in partition_type.fields)
        self._header = _header(layout)
        self._formats = {file_format: _text(file_format.value.upper()) for file_format in FileFormat}
        self._begin()

    def __enter__(self) -> ManifestWriter:
        """Return the writer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Complete the last manifest."""
        if kind is None:
            self._complete()

    def add(self, partition: tuple[Any, ...], file_format: FileFormat, file: FileInfo, facts: FileFacts) -> None:
        """Add a data file.

        Args:
            partition: The result of `Layout.partition_record` for its partition's values.
        """
        self.add_encoded(partition, file_format, file.path, facts.row_count, file.size_bytes, encode_metrics(facts))

    def add_encoded(
        self,
        partition: tuple[Any, ...],
        file_format: FileFormat,
        path: str,
        row_count: int,
        size_bytes: int,
        metrics: bytes,
    ) -> None:
        """Add a data file whose metrics were encoded before.

        Args:
            metrics: The result of `encode_metrics`, or `NO_METRICS`.
        """
        record = self._records.get(partition)
        if record is None:
            record = self._record(partition)
        counts = zigzag(row_count), zigzag(size_bytes)
        self._file_count += 1
        self._row_count += row_count
        self._append(
            b"".join((_ADDED_BY_COMMIT, _DATA, _text(path), self._formats[file_format], record, *counts, metrics))
        )

    def keep(self, entry: Entry) -> None:
        """Copy the entry of a file that stays in the table."""
        self._existing = self._existing[0] + 1, self._existing[1] + entry.row_count
        lowest = self._min_sequence_number
        self._min_sequence_number = entry.sequence_number if lowest is None else min(lowest, entry.sequence_number)
        self._summarized.setdefault(entry.partition)
        self._append(_EXISTING + _inherited(entry, entry.snapshot_id) + entry.data_file)

    def delete(self, entry: Entry, snapshot_id: int) -> None:
        """Copy the entry of a file that a snapshot deletes."""
        self._deleted = self._deleted[0] + 1, self._deleted[1] + entry.row_count
        self._summarized.setdefault(entry.partition)
        self._append(_DELETED + _inherited(entry, snapshot_id) + entry.data_file)

    def _append(self, entry: bytes) -> None:
        self._block.append(entry)
        self._block_bytes += len(entry)
        if self._block_bytes >= self._block_target:
            self._end_block()
            if self._length >= self._target:
                self._complete()
        if self._entry_count == self._most_entries:
            self._complete()

    @property
    def _entry_count(self) -> int:
        return self._file_count + self._existing[0] + self._deleted[0]

    def _begin(self) -> None:
        self._parts = [self._header]
        self._length = len(self._header)
        self._block: list[bytes] = []
        self._block_bytes = self._file_count = self._row_count = 0
        self._existing = self._deleted = (0, 0)
        self._min_sequence_number = None
        self._block_target = min(_BLOCK_BYTES, self._target)
        self._records: dict[tuple[Any, ...], bytes] = {}
        # Ordered, and without repeated ones.
        self._summarized: dict[tuple[Any, ...], None] = {}

    def _record(self, partition: tuple[Any, ...]) -> bytes:
        output = io.BytesIO()
        self._partition_writer.write(BinaryEncoder(output), Record(*partition))
        encoded = output.getvalue()
        if self._caches_records:
            self._records[partition] = encoded
        self._summarized.setdefault(partition)
        return encoded

    def _end_block(self) -> None:
        block = _deflated(b"".join(self._block))
        parts = (zigzag(len(self._block)), zigzag(len(block)), block, self._header[-_SYNC_BYTES:])
        self._parts.extend(parts)
        self._length += sum(map(len, parts))
        self._block.clear()
        self._block_bytes = 0

    def _complete(self) -> None:
        if not self._entry_count:
            return
        if self._block:
            self._end_block()
        path = f"{self._prefix}{len(self.manifests)}.avro"
        folder, _, name = path.rpartition("/")
        Folder(folder).write_bytes(name, b"".join(self._parts))
        records = [Record(*partition) for partition in self._summarized]
        summaries = construct_partition_summaries(self._spec, self._schema, records)
        counts = self._file_count, self._row_count, tuple(summaries), self._existing, self._deleted
        self.manifests.append(WrittenManifest(path, self._length, *counts, self._min_sequence_number))
        self._begin()


def _deflated(block: bytes) -> bytes:
    """Return a block in Avro's codec `deflate`: without zlib's header and checksum."""
    deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return deflate.compress(block) + deflate.flush()


class _Keys(dict[int, bytes]):
    """Field id → its encoding."""

    def __missing__(self, field_id: int) -> bytes:
        encoded = self[field_id] = zigzag(field_id)
        return encoded


_KEYS = _Keys()

NO_METRICS = 10 * _NULL
"""The encoded metrics of a file about which nothing else is known than its numbers of rows and bytes."""


def encode_metrics(facts: FileFacts) -> bytes:
    """Return the last fields of an entry: column sizes, counts, bounds and split offsets."""
    lower, upper, nans, offsets = facts.lower_bounds, facts.upper_bounds, facts.nan_counts, facts.split_offsets
    return b"".join(
        (
            _numbers(_KEYS, facts.column_sizes),
            _numbers(_KEYS, facts.value_counts),
            _numbers(_KEYS, facts.null_counts),
            _numbers(_KEYS, nans) if nans else _NULL,
            _bounds(_KEYS, lower),
            _bounds(_KEYS, upper),
            _NULL,
            _offsets(offsets) if offsets else _NULL,
            _NULL,
            _NULL,
        )
    )


def encode_data_file(file: DataFile, record: bytes = b"") -> bytes:
    """Return the struct of a data file, as in `Entry.data_file`.

    Args:
        record: Its encoded partition record.
    """
    key, order = file.key_metadata, file.sort_order_id
    return b"".join(
        (
            _DATA,
            _text(file.file_path),
            _text(file.file_format.value.upper()),
            record,
            zigzag(file.record_count),
            zigzag(file.file_size_in_bytes),
            *(
                _numbers(_KEYS, values or {})
                for values in (file.column_sizes, file.value_counts, file.null_value_counts, file.nan_value_counts)
            ),
            *(_bounds(_KEYS, values or {}) for values in (file.lower_bounds, file.upper_bounds)),
            _NULL if key is None else _PRESENT + zigzag(len(key)) + key,
            _offsets(file.split_offsets) if file.split_offsets else _NULL,
            _NULL,
            _NULL if order is None else _PRESENT + zigzag(order),
        )
    )


def _inherited(entry: Entry, snapshot_id: int) -> bytes:
    numbers = snapshot_id, entry.sequence_number, entry.file_sequence_number
    return b"".join(_PRESENT + zigzag(number) for number in numbers)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return zigzag(len(encoded)) + encoded


def _numbers(keys: _Keys, numbers: Mapping[int, int]) -> bytes:
    if not numbers:
        return _NULL
    items = [
        keys[field_id] + (_SMALL[number] if 0 <= number < _SMALL_COUNT else zigzag(number))
        for field_id, number in numbers.items()
    ]
    return b"".join((_PRESENT, zigzag(len(items)), *items, _END))


def _bounds(keys: _Keys, values: Mapping[int, bytes]) -> bytes:
    # Avro ends a map with a block of no items, so that one of no items would end twice.
    if not values:
        return _NULL
    items = [
        keys[field_id] + (_SMALL[len(value)] if len(value) < _SMALL_COUNT else zigzag(len(value))) + value
        for field_id, value in values.items()
    ]
    return b"".join((_PRESENT, zigzag(len(items)), *items, _END))


def _offsets(offsets: Sequence[int]) -> bytes:
    return b"".join((_PRESENT, zigzag(len(offsets)), *map(zigzag, offsets), _END))


class _Header(OutputFile, InputFile):
    """In-memory file for PyIceberg's writer."""

    def __init__(self) -> None:
        super().__init__("")
        self.content = io.BytesIO()

    def __len__(self) -> int:
        return len(self.content.getvalue())

    def exists(self) -> bool:
        return False

    def to_input_file(self) -> InputFile:
        return self

    def open(self, seekable: bool = True) -> Any:
        return io.BytesIO(self.content.getvalue())

    def create(self, overwrite: bool = False) -> OutputStream:
        return self.content


def _header(layout: Layout) -> bytes:
    """Return the common header of a table's manifests, including the sync marker that ends it and each block."""
    entry, file = MANIFEST_ENTRY_SCHEMAS[2].fields, DATA_FILE_TYPE[2].fields
    field_names = tuple(field.name for field in entry), tuple(field.name for field in file)
    if field_names != (ENTRY_FIELDS, FILE_FIELDS):
        raise NotImplementedError(
            f"this version of PyIceberg writes manifests with other fields: {field_names}; use the pinned version"
        )
    header = _Header()
    SingleManifestWriter(layout.spec, layout.schema, header, 0, "deflate").__enter__()
    return header.content.getvalue()


class SingleManifestWriter(ManifestWriterV2):
    """PyIceberg's writer, with names of partition fields that all readers of Avro allow.

    PyIceberg keeps letters beyond ASCII, which Avro does not have in names; DuckDB ends its process then. Readers find
    the fields by ids.
    """

    def _with_partition(self, format_version: TableVersion) -> Schema:
        fields = [
            field.model_copy(update={"name": _BEYOND_ASCII.sub(_escaped, field.name)}) for field in self._spec.fields
        ]
        partition_type = PartitionSpec(*fields, spec_id=self._spec.spec_id).partition_type(self._schema)
        data_file = data_file_with_partition(partition_type, format_version)
        return manifest_entry_schema_with_data_file(format_version, data_file)


def _escaped(character: re.Match[str]) -> str:
    return f"_x{ord(character[0]):X}"
