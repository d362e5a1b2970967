"""The end of a message is found, and its number of objects is limited, before objects are made of it."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hive_metastore import ThriftHiveMetastore, ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.protocol.TProtocol import TProtocolException
from thrift.Thrift import TException
from thrift.transport.TTransport import TMemoryBuffer, TTransportException

from catalog import Catalog
from catalog.doors.hms.calls import calls
from catalog.doors.hms.message_sizes import Measured
from catalog.doors.serving.access import Access, Client, Role
from catalog.doors.serving.limits import Limits
from tests.support.effort import effort
from tests.support.hms_door import HmsDoor, columns, partition, storage, table

LIMITS = Limits()


def written(structure: Any) -> bytes:
    buffer = TMemoryBuffer()
    structure.write(TBinaryProtocolAccelerated(buffer))
    data: bytes = buffer.getvalue()
    return data


def measured(data: bytes, *, part: int = 65_536, limits: Limits = LIMITS) -> tuple[int, int]:
    """Return the end of a structure, and how many bytes were received to find it."""
    parts: Iterator[bytes] = (data[start : start + part] for start in range(0, len(data), part))

    def receive() -> bytes:
        if not (received := next(parts, b"")):
            raise EOFError
        return received

    message = Measured(b"", receive, most_bytes=limits.body_bytes, nesting=limits.nesting)
    return message.end(), len(message.data)


def empty_structures(count: int) -> bytes:
    """Return the arguments of `add_partitions_pspec` with partitions of a byte each, in lists of a thousand."""
    members = b"\x0f\x00\x01\x0c" + struct.pack(">i", 1_000) + b"\0" * 1_000 + b"\0"
    lists = count // 1_000
    return b"\x0f\x00\x01\x0c" + struct.pack(">i", lists) + (b"\x0c\x00\x04" + members + b"\0") * lists + b"\0"


SKEWED = storage("/a", skewedInfo=ttypes.SkewedInfo(["id"], [["1"]], {("1",): "/a/1"}))
ARGUMENTS = (
    ThriftHiveMetastore.get_table_args("demo", "flights"),
    ThriftHiveMetastore.get_partitions_by_names_args("demo", "flights", ["day=1", "", "day=ü"]),
    ThriftHiveMetastore.create_table_args(table("demo", "other", {"day": "date"})),
    ThriftHiveMetastore.add_partitions_args([partition("demo", "flights", ["1"], sd=SKEWED, parameters={"a": "b"})]),
    ThriftHiveMetastore.get_open_txns_args(),
    ThriftHiveMetastore.get_table_statistics_req_args(ttypes.TableStatsRequest("demo", "flights", ["id", "day"])),
    ThriftHiveMetastore.fire_listener_event_args(
        ttypes.FireEventRequest(True, ttypes.FireEventRequestData(ttypes.InsertEventRequestData(filesAdded=["a"])))
    ),
)


@pytest.mark.parametrize("part", [1, 7, 65_536])
@pytest.mark.parametrize("arguments", ARGUMENTS, ids=lambda arguments: type(arguments).__name__)
def test_the_end_is_that_of_the_structure(arguments: Any, part: int) -> None:
    data = written(arguments)
    assert measured(data + b"more", part=part)[0] == len(data)
    for size in range(0, len(data), 5):
        with pytest.raises(EOFError):
            measured(data[:size], part=part)


def test_the_end_is_that_of_the_decoder_in_mutated_messages() -> None:
    chance, agreed = random.Random(20261130), 0
    for _ in range(effort(3_000, 100_000)):
        arguments = chance.choice(ARGUMENTS)
        data = bytearray(written(arguments))
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        buffer = TMemoryBuffer(bytes(data))
        decoded = type(arguments)()
        try:
            decoded.read(TBinaryProtocolAccelerated(buffer, string_length_limit=10_000, container_length_limit=10_000))
        except Exception:
            continue
        agreed += 1
        assert measured(bytes(data))[0] == buffer.cstringio_buf.tell(), bytes(data)
    assert agreed > 100


def test_structures_of_a_byte_are_refused_before_most_of_them_arrive() -> None:
    data = empty_structures(4_000_000)
    with pytest.raises(TTransportException, match="too many structures") as refused:
        measured(data)
    assert refused.value.type == TTransportException.SIZE_LIMIT
    assert measured(empty_structures(80_000))[0]


@pytest.mark.parametrize(("count", "column_count"), [(20_000, 1), (4_000, 40)])
def test_many_partitions_in_a_message_are_accepted(count: int, column_count: int) -> None:
    sd = storage("/a", cols=columns(**{f"c{number}": "int" for number in range(column_count)}))
    members = [partition("d", "t", [str(number)], sd=sd) for number in range(count)]
    data = written(ThriftHiveMetastore.add_partitions_args(members))
    assert measured(data)[0] == len(data)


def test_many_partitions_with_one_storage_are_accepted() -> None:
    members = [ttypes.PartitionWithoutSD([str(day)], 0, 0, f"/day={day}", {}) for day in range(50_000)]
    shared = ttypes.PartitionSpecWithSharedSD(members, storage("/a"))
    spec = ttypes.PartitionSpec("d", "t", "/a", sharedSDPartitionSpec=shared)
    data = written(ThriftHiveMetastore.add_partitions_pspec_args([spec]))
    assert measured(data)[0] == len(data)


def test_sizes_and_levels_have_limits() -> None:
    names = written(ThriftHiveMetastore.get_partitions_by_names_args("d", "t", ["day=1"] * 1_000))
    with pytest.raises(TTransportException, match="larger"):
        measured(names, limits=Limits(body_bytes=5_000))
    nested = b"\x0c\x00\x01" * 200 + b"\0" * 201
    with pytest.raises(TProtocolException, match="nested"):
        measured(nested)
    assert measured(nested, limits=Limits(nesting=201)) == (len(nested), len(nested))
    for length in (-1, 2**31 - 1):
        with pytest.raises((TProtocolException, TTransportException)):
            measured(b"\x0f\x00\x01\x08" + struct.pack(">i", length) + b"\0" * 100)


def test_the_arguments_of_a_refused_call_are_not_read(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    class Spied(ThriftHiveMetastore.add_partitions_args):  # type: ignore[misc]
        def read(self, protocol: Any) -> None:
            read.append("add_partitions")
            super().read(protocol)

    known = calls()["add_partitions"]
    monkeypatch.setitem(calls(), "add_partitions", replace(known, arguments=Spied))
    added = [partition("demo", "t", [str(number)]) for number in range(1_000)]
    for role, expected in ((Role.READER, []), (Role.WRITER, ["add_partitions"])):
        access = Access(anonymous=Client("ann", role))
        with HmsDoor(catalog, tmp_path, tmp_path, access=access) as door, door.client() as client:
            with pytest.raises(TException):
                client.add_partitions(added)
            assert read == expected
            assert client.getName()
