"""Finding the end of a Thrift structure, and limits of what it holds, before a decoder makes objects of it."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from thrift.protocol.TProtocol import TProtocolException
from thrift.Thrift import TType
from thrift.transport.TTransport import TTransportException

_SIZES = {TType.BOOL: 1, TType.BYTE: 1, TType.DOUBLE: 8, TType.I16: 2, TType.I32: 4, TType.I64: 8, TType.UUID: 16}
"""Type → the number of its bytes, where it is always the same."""

_BYTES_OF_OBJECT = 16
"""Bytes of a message for each structure, list, set and map in it, on average at least.

An empty structure is one byte in a message and some 150 in memory, so that the largest message of nothing else would
take 20 GB. Messages of clients have more bytes: a partition with its storage some 30 for each object, a column of a
table with short names 20, a partition that shares its storage 18. With 16, objects take at most some 10 times the size
of their message, as numbers and short strings do. The size of the message has a limit, so all its objects have one,
too, however many lists they are in.
"""

_FEW_OBJECTS = 100_000
"""Objects that a message of any size may have; they take some 15 MB."""

_STRING, _STOP = int(TType.STRING), int(TType.STOP)
_LENGTH = Struct(">i").unpack_from


class Measured:
    """A message that is received while the end of its arguments is looked for."""

    def __init__(self, begun: bytes, receive: Callable[[], bytes], *, most_bytes: int, nesting: int) -> None:
        """Use the bytes that have arrived, and a function that returns the next ones.

        Args:
            begun: They begin with a structure.
            most_bytes: The largest size of the structure.
            nesting: The most levels of structures and containers.
        """
        self.data = bytearray(begun)
        self._receive = receive
        self._most_bytes = most_bytes
        self._nesting = nesting
        self._objects = 0

    def end(self) -> int:
        """Receive the whole structure, and return the place behind it in `data`.

        Raises:
            TProtocolException: The bytes are no structure, or are nested too deeply.
            TTransportException: It is too large, or has too many structures and containers for its size.
        """
        place = self._struct(0, 1)
        self._reach(place)
        return place

    def _reach(self, end: int) -> None:
        if end > self._most_bytes:
            raise TTransportException(TTransportException.SIZE_LIMIT, "the message is larger than the server accepts")
        while len(self.data) < end:
            self.data += self._receive()

    def _count(self, place: int, level: int) -> None:
        """Count a structure or container that begins at a place."""
        if level > self._nesting:
            raise TProtocolException(TProtocolException.DEPTH_LIMIT, "the message is nested too deeply")
        self._objects += 1
        if self._objects > _FEW_OBJECTS + place // _BYTES_OF_OBJECT:
            raise TTransportException(
                TTransportException.SIZE_LIMIT, "the message has too many structures for its size; send it in parts"
            )

    def _struct(self, place: int, level: int) -> int:
        self._count(place, level)
        data = self.data
        while True:
            if place >= len(data):
                self._reach(place + 1)
            kind = data[place]
            # Strings, of which messages have most, without a call for each.
            if kind == _STRING:
                place += 7 + self._length(place + 3)
            elif kind == _STOP:
                return place + 1
            else:
                place = self._value(kind, place + 3, level)

    def _value(self, kind: int, place: int, level: int) -> int:
        """Return the place behind a value, of which not all bytes may have arrived."""
        if (size := _SIZES.get(kind)) is not None:
            return place + size
        if kind == _STRING:
            return place + 4 + self._length(place)
        if kind == TType.STRUCT:
            return self._struct(place, level + 1)
        if kind in (TType.LIST, TType.SET):
            return self._members(place, 1, level + 1)
        if kind == TType.MAP:
            return self._members(place, 2, level + 1)
        raise TProtocolException(TProtocolException.INVALID_DATA, f"there is no type {kind}")

    def _members(self, place: int, kinds: int, level: int) -> int:
        """Return the place behind a container, which begins with the types of its members or of key and value."""
        self._count(place, level)
        length = self._length(place + kinds)
        types = self.data[place : place + kinds]
        place += kinds + 4
        sizes = [_SIZES.get(kind) for kind in types]
        if None not in sizes:
            return place + length * sum(size or 0 for size in sizes)
        for _ in range(length):
            for kind in types:
                place = place + 4 + self._length(place) if kind == _STRING else self._value(kind, place, level)
        return place

    def _length(self, place: int) -> int:
        if place + 4 > len(self.data):
            self._reach(place + 4)
        length: int = _LENGTH(self.data, place)[0]
        if length < 0:
            raise TProtocolException(TProtocolException.NEGATIVE_SIZE, f"the message has a length of {length}")
        return length
