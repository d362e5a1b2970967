"""Partitions and names as the bytes of Thrift's binary protocol, without an object for each structure.

What many partitions share is encoded once: names, columns, classes of formats, values. A partition costs little more
than its location and its parameters then, and nothing that Python's garbage collector looks at. Columns of rows are
converted one by one, which is faster than row by row.

Source: Thrift's binary protocol; `Partition` and `StorageDescriptor` in `hive_metastore.thrift`. A structure's fields
may be in any order.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hive_metastore import ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer

from catalog.doors.entries.partition_forms import COUNTS, PartitionForms, with_counts
from catalog.doors.entries.storages import qualified
from catalog.doors.hms.names import CATALOG
from catalog.doors.hms.structures import to_descriptor, to_fields
from catalog.metastores.types import HivePartition, HiveStorage
from catalog.model.partition_names import LACKING_VALUE, NULL_VALUE, folder_template, unescape
from catalog.partitions.names import SortedNames
from catalog.partitions.spooling import RowSpool
from catalog.storage.partition_rows import PartitionRecord
from catalog.types.memo import Memo

COLUMNS = ("location", "file_count", "row_count", "size_bytes", "properties", "created_at_ms", "descriptor_id")
"""The columns of partitions that `PartitionEncoder.encode_rows` needs, after those of names."""

_FIELD, _LENGTH, _LIST, _MAP = struct.Struct(">bh"), struct.Struct(">i"), struct.Struct(">bi"), struct.Struct(">bbi")
_TIMES = struct.Struct(">bhibhi")
_STOP = b"\0"
_VALUES, _CREATED, _ACCESSED, _STORAGE, _PARAMETERS = 1, 4, 5, 6, 7
_LOCATION = 2
_LENGTHS = [_LENGTH.pack(length) for length in range(20)]
"""The lengths of the digits of counts."""


@dataclass(frozen=True, slots=True)
class EncodedList:
    """The value of an answer that is a list, as bytes, which are made while they are sent.

    Attributes:
        kind: The type of its members, one of `TType`.
        pieces: The bytes of all members, in their order.
    """

    kind: int
    count: int
    pieces: Iterable[bytes | memoryview]

    def as_result(self) -> Iterator[bytes | memoryview]:
        """Yield the structure of an answer whose value it is."""
        yield _FIELD.pack(TType.LIST, 0) + _LIST.pack(self.kind, self.count)
        yield from self.pieces
        yield _STOP


def encode_names(names: SortedNames) -> EncodedList:
    """Return the names of partitions as an answer."""
    return EncodedList(TType.STRING, len(names), map(encode_texts, names.pages()))


def encode_texts(parts: Sequence[pa.StringArray]) -> memoryview:
    """Return strings as bytes, each after its length.

    Args:
        parts: Arrays of the parts of the strings, which follow one another.
    """
    count = len(parts[0])
    lengths = sum(pc.binary_length(part).to_numpy() for part in parts)
    numbers = pa.py_buffer(np.asarray(lengths, ">i4"))
    heads = pa.FixedSizeBinaryArray.from_buffers(pa.binary(4), count, [None, numbers]).cast(pa.binary())
    joined = pc.binary_join_element_wise(heads, *[part.cast(pa.binary()) for part in parts], b"")
    _, offsets, data = joined.buffers()
    return memoryview(data)[: np.frombuffer(offsets, np.int32)[count]]


class _Kind(NamedTuple):
    """The bytes that partitions with the same stored properties and descriptor share.

    Attributes:
        created_ms: None for the time at which a partition was added.
        parameters: Those without the counts.
        heads: The start of the encoded parameters, by the number of counts that follow; None if a count may replace one
            of the parameters.
    """

    storage: bytes
    created_ms: int | None
    accessed: int
    parameters: Mapping[str, str]
    heads: Sequence[bytes] | None


def encoder_of(forms: PartitionForms) -> PartitionEncoder:
    """Return the encoder of a table, which is kept as long as its forms."""
    known = _ENCODERS.get(forms)
    if known is None:
        known = _ENCODERS[forms] = PartitionEncoder(forms)
    return known


class PartitionEncoder:
    """Encodes the partitions of one table, for many threads."""

    def __init__(self, forms: PartitionForms) -> None:
        """Encode what all partitions of the table share."""
        table = forms.entry
        self._forms = forms
        self._fields = to_fields(table.columns)
        names = ttypes.Partition(dbName=table.name.database, tableName=table.name.name, catName=CATALOG)
        self._width = len(table.partition_keys)
        self._start = _open(names) + _FIELD.pack(TType.LIST, _VALUES) + _LIST.pack(TType.STRING, self._width)
        self._default = qualified(folder_template(forms.table.location, forms.table.key_names)) or ""
        self._values: Memo[str, bytes] = Memo(lambda piece: _text(_value(piece)))
        self._texts: Memo[str, bytes] = Memo(_text)
        self._times: Memo[tuple[int, int], bytes] = Memo(_times)
        self._files: Memo[int, bytes] = Memo(lambda count: _FILES + _number(count))
        self._kinds: Memo[tuple[str | None, int | None], _Kind] = Memo(self._kind)
        self._descriptors: dict[int, tuple[HiveStorage, bytes, bytes]] = {}

    def encode_pages(self, pages: Iterable[Sequence[PartitionRecord]]) -> EncodedList:
        """Return partitions as an answer; many are encoded while they are sent.

        Args:
            pages: Rows as for `encode_rows`; consumed before the method returns.
        """
        count = 0
        with ExitStack() as exits:
            spool = exits.enter_context(RowSpool())
            for page in pages:
                spool.append(page)
                count += len(page)
            return EncodedList(TType.STRUCT, count, self._pieces(spool, exits.pop_all()))

    def _pieces(self, spool: RowSpool, exits: ExitStack) -> Iterator[bytes]:
        with exits:
            yield from map(self.encode_rows, spool)

    def encode_rows(self, page: Sequence[PartitionRecord]) -> bytes:
        """Return partitions as bytes, given at least one row with the columns of names and then `COLUMNS`."""
        packed, _, locations, files, rows, sizes, texts, created, descriptors = zip(*page, strict=True)
        self._forms.read_descriptors(set(descriptors))
        pieces = "/".join(packed).split("/")
        columns = [pieces[position :: self._width] for position in range(self._width)]
        places: Iterable[str] = map(self._default.__mod__, zip(*columns, strict=True))
        if any(locations):
            places = [qualified(own) or usual for own, usual in zip(locations, places, strict=True)]
        encoded = list(map(str.encode, places))
        kinds = list(map(self._kinds.__getitem__, zip(texts, descriptors, strict=True)))
        times = [
            (at if kind.created_ms is None else kind.created_ms, kind.accessed)
            for kind, at in zip(kinds, created, strict=True)
        ]
        members = zip(
            repeat(self._start),
            *[map(self._values.__getitem__, column) for column in columns],
            map(self._times.__getitem__, times),
            [kind.storage for kind in kinds],
            map(_LENGTH.pack, map(len, encoded)),
            encoded,
            repeat(_STOP),
            map(self._counted, kinds, files, rows, sizes),
        )
        return b"".join(chain.from_iterable(members))

    def _kind(self, key: tuple[str | None, int | None]) -> _Kind:
        storage, parameters, created, accessed = self._forms.shared(*key)
        heads = None
        if parameters.keys().isdisjoint(COUNTS):
            pairs = b"".join([part for pair in parameters.items() for part in map(_text, pair)])
            heads = [_map_head(len(parameters) + counts) + pairs for counts in range(len(COUNTS) + 1)]
        _, _, with_location = self._descriptor(storage)
        return _Kind(with_location, None if created is None else 1000 * created, accessed, parameters, heads)

    def _counted(self, kind: _Kind, files: int | None, rows: int | None, size: int | None) -> bytes:
        """Return the parameters of a partition, and its end."""
        if kind.heads is None:
            return self._parameters(with_counts(kind.parameters, files, rows, size))
        if files is None or rows is None or size is None:
            counts = with_counts({}, files, rows, size)
            return kind.heads[len(counts)] + b"".join(map(_text, chain.from_iterable(counts.items()))) + _STOP
        digits, bytes_digits = b"%d" % rows, b"%d" % size
        return b"".join(
            (
                kind.heads[3],
                self._files[files],
                _ROWS,
                _LENGTHS[len(digits)],
                digits,
                _SIZE,
                _LENGTHS[len(bytes_digits)],
                bytes_digits,
                _STOP,
            )
        )

    def encode(self, partitions: Iterable[HivePartition]) -> EncodedList:
        """Return partitions as bytes."""
        start, texts, descriptors, join = self._start, self._texts, self._descriptors, b"".join
        encoded = []
        for values, storage, parameters, location, created, accessed in partitions:
            _, without_location, with_location = descriptors.get(id(storage)) or self._descriptor(storage)
            place = [without_location] if location is None else [with_location, _text(qualified(location) or "")]
            times = self._times[1000 * (created or 0), accessed]
            members = [start, *[texts[value] for value in values], times, *place, _STOP, self._parameters(parameters)]
            encoded.append(join(members))
        return EncodedList(TType.STRUCT, len(encoded), encoded)

    def _parameters(self, parameters: Mapping[str, str]) -> bytes:
        pieces = [_map_head(len(parameters))]
        for name, value in parameters.items():
            pieces += self._texts[name], _text(value)
        pieces.append(_STOP)
        return b"".join(pieces)

    def _descriptor(self, storage: HiveStorage) -> tuple[HiveStorage, bytes, bytes]:
        fields = self._fields if storage.columns is None else to_fields(storage.columns)
        without = _FIELD.pack(TType.STRUCT, _STORAGE) + _open(to_descriptor(storage, fields, None))
        # The storage is kept, so that its id stays its own.
        known = self._descriptors[id(storage)] = storage, without, without + _FIELD.pack(TType.STRING, _LOCATION)
        return known


def _text(text: str) -> bytes:
    data = text.encode()
    return _LENGTH.pack(len(data)) + data


def _number(number: int) -> bytes:
    return _text(str(number))


def _value(piece: str) -> str:
    """Return a stored value as clients get it."""
    return NULL_VALUE if piece == LACKING_VALUE else unescape(piece)


def _times(times: tuple[int, int]) -> bytes:
    created_ms, accessed = times
    return _TIMES.pack(TType.I32, _CREATED, created_ms // 1000, TType.I32, _ACCESSED, accessed)


def _map_head(count: int) -> bytes:
    return _FIELD.pack(TType.MAP, _PARAMETERS) + _MAP.pack(TType.STRING, TType.STRING, count)


def _open(structure: Any) -> bytes:
    """Return the bytes of a structure without its end, so that fields can follow."""
    buffer = TMemoryBuffer()
    structure.write(TBinaryProtocolAccelerated(buffer))
    data: bytes = buffer.getvalue()
    return data[: -len(_STOP)]


_FILES, _ROWS, _SIZE = map(_text, COUNTS)
_ENCODERS: WeakKeyDictionary[PartitionForms, PartitionEncoder] = WeakKeyDictionary()
