"""Long lists as parameters of PostgreSQL: psycopg's own conversion of a list takes ten times as long.

Source: PostgreSQL, `array_recv` in `arrayfuncs.c`, the binary format of arrays.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import cache
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

_EMPTY, _HEAD, _LENGTH, _NUMBER = (
    struct.Struct(">iiI"),
    struct.Struct(">iiIii"),
    struct.Struct(">i"),
    struct.Struct(">iq"),
)
_INT8, _BYTEA, _INT8S, _BYTEAS = 20, 17, 1016, 1001


class Numbers(list[int]):
    """A parameter of the type `bigint[]`."""


class ByteStrings(list[bytes]):
    """A parameter of the type `bytea[]`."""


def register_arrays(connection: psycopg.Connection[Any]) -> None:
    """Make a connection accept the parameters of this module, in the binary format."""
    for kind, dumper in _dumpers().items():
        connection.adapters.register_dumper(kind, dumper)


@cache
def _dumpers() -> dict[type, type[psycopg.adapt.Dumper]]:
    from psycopg.adapt import Dumper
    from psycopg.pq import Format

    class NumbersDumper(Dumper):
        format, oid = Format.BINARY, _INT8S

        def dump(self, numbers: Numbers) -> bytes:
            return _array(_INT8, len(numbers), map(_NUMBER.pack, repeat(_NUMBER.size - _LENGTH.size), numbers))

    class ByteStringsDumper(Dumper):
        format, oid = Format.BINARY, _BYTEAS

        def dump(self, strings: ByteStrings) -> bytes:
            lengths = map(_LENGTH.pack, map(len, strings))
            return _array(_BYTEA, len(strings), chain.from_iterable(zip(lengths, strings, strict=True)))

    return {Numbers: NumbersDumper, ByteStrings: ByteStringsDumper}


def _array(member_type: int, count: int, members: Iterable[bytes]) -> bytes:
    if not count:
        return _EMPTY.pack(0, 0, member_type)
    return _HEAD.pack(1, 0, member_type, count, 1) + b"".join(members)
