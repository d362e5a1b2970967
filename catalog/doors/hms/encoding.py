"""Partitions as the bytes of Thrift's binary protocol, without an object for each structure.

What many partitions share is encoded once: names, columns, classes of formats, values. A partition costs little more
than its location and its parameters then, and nothing that Python's garbage collector looks at.

Source: Thrift's binary protocol; `Partition` and `StorageDescriptor` in `hive_metastore.thrift`. A structure's fields
may be in any order.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hive_metastore import ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer

from catalog.doors.hms.names import CATALOG
from catalog.doors.hms.structures import to_descriptor, to_fields
from catalog.metastores.types import HivePartition, HiveStorage, HiveTable
from catalog.types.memo import Memo

_FIELD, _LENGTH, _LIST, _MAP = struct.Struct(">bh"), struct.Struct(">i"), struct.Struct(">bi"), struct.Struct(">bbi")
_TIMES = struct.Struct(">bhibhi")
_STOP = b"\0"
_VALUES, _CREATED, _ACCESSED, _STORAGE, _PARAMETERS = 1, 4, 5, 6, 7
_LOCATION = 2
_NO_PARAMETERS = _FIELD.pack(TType.MAP, _PARAMETERS) + _MAP.pack(TType.STRING, TType.STRING, 0) + _STOP


@dataclass(frozen=True, slots=True)
class EncodedPartitions:
    """Partitions as bytes: the value of an answer that is a list of them."""

    partitions: list[bytes]

    def as_result(self) -> list[bytes]:
        """Return the structure of an answer whose value they are."""
        head = _FIELD.pack(TType.LIST, 0) + _LIST.pack(TType.STRUCT, len(self.partitions))
        return [head, *self.partitions, _STOP]


class PartitionEncoder:
    """Encodes the partitions of one table."""

    def __init__(self, table: HiveTable) -> None:
        """Encode what all partitions of the table share."""
        self._fields = to_fields(table.columns)
        names = ttypes.Partition(dbName=table.name.database, tableName=table.name.name, catName=CATALOG)
        count = len(table.partition_keys)
        self._start = _open(names) + _FIELD.pack(TType.LIST, _VALUES) + _LIST.pack(TType.STRING, count)
        self._texts: Memo[str, bytes] = Memo(_text)
        self._descriptors: dict[int, tuple[HiveStorage, bytes, bytes]] = {}

    def encode(self, partitions: Iterable[HivePartition]) -> EncodedPartitions:
        """Return partitions as bytes."""
        start, texts, descriptors = self._start, self._texts, self._descriptors
        pack_times, pack_length, join = _TIMES.pack, _LENGTH.pack, b"".join
        encoded = []
        for values, storage, parameters, location, created, accessed in partitions:
            _, without_location, with_location = descriptors.get(id(storage)) or self._descriptor(storage)
            times = pack_times(TType.I32, _CREATED, created or 0, TType.I32, _ACCESSED, accessed)
            if location is None:
                place = [without_location]
            else:
                where = f"file:{location}".encode() if location.startswith("/") else location.encode()
                place = [with_location, pack_length(len(where)), where]
            rest = self._parameters(parameters) if parameters else _NO_PARAMETERS
            encoded.append(join([start, *[texts[value] for value in values], times, *place, _STOP, rest]))
        return EncodedPartitions(encoded)

    def _parameters(self, parameters: Any) -> bytes:
        pieces = [_FIELD.pack(TType.MAP, _PARAMETERS), _MAP.pack(TType.STRING, TType.STRING, len(parameters))]
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


def _open(structure: Any) -> bytes:
    """Return the bytes of a structure without its end, so that fields can follow."""
    buffer = TMemoryBuffer()
    structure.write(TBinaryProtocolAccelerated(buffer))
    data: bytes = buffer.getvalue()
    return data[: -len(_STOP)]
