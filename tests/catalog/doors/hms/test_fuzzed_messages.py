"""Broken messages end their own connection at most, and leave nothing behind."""

from __future__ import annotations

import os
import random
import socket
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hive_metastore import ThriftHiveMetastore, ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.transport.TTransport import TMemoryBuffer

from catalog import Catalog
from catalog.doors.serving.access import Access, Client, Key, Role
from catalog.doors.serving.limits import Limits
from tests.support.effort import effort
from tests.support.hms_door import HOST, HmsDoor, connected, partition, table

ROUNDS = effort(300, 20_000)


def message(call: Callable[[Any], object]) -> bytes:
    """Return the bytes of a call, made of a client that has no server."""
    buffer = TMemoryBuffer()
    with pytest.raises(EOFError):
        call(ThriftHiveMetastore.Client(TBinaryProtocolAccelerated(buffer)))
    data: bytes = buffer.getvalue()
    return data


LOCKED = ttypes.LockComponent(ttypes.LockType.EXCLUSIVE, ttypes.LockLevel.TABLE, "demo", "flights")
CALL = b"\x80\x01\x00\x01\x00\x00\x00"
ENDED = r"TSocket read 0 bytes|reset|Broken pipe|unexpected exception"
CALLS: tuple[Callable[[Any], object], ...] = (
    lambda client: client.get_table("demo", "flights"),
    lambda client: client.get_all_databases(),
    lambda client: client.create_table(table("demo", "other", {"day": "date"})),
    lambda client: client.add_partitions([partition("demo", "flights", ["JFK", "2013", "2013-01-01"])]),
    lambda client: client.get_partitions_by_filter("demo", "flights", 'origin = "JFK" and year > 2012', -1),
    lambda client: client.get_partitions_by_names("demo", "flights", ["origin=JFK/year=2013/day=2013-01-01"]),
    lambda client: client.lock(
        ttypes.LockRequest(
            [ttypes.LockComponent(ttypes.LockType.EXCLUSIVE, ttypes.LockLevel.TABLE, "demo", "flights")],
            None,
            "me",
            "here",
        )
    ),
    lambda client: client.get_partitions_by_expr(ttypes.PartitionsByExprRequest("demo", "flights", b"\x00\x01\xff")),
)


def mutated(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        place = chance.randrange(len(changed))
        match chance.randrange(5):
            case 0:
                changed[place] = chance.randrange(256)
            case 1:
                del changed[place : place + chance.randint(1, 9)]
            case 2:
                changed[place:place] = chance.randbytes(chance.randint(1, 9))
            case 3:
                changed[place : place + 4] = struct.pack(">i", chance.choice((-1, 0, 2**31 - 1, 2**20, -(2**31))))
            case _:
                changed[place:] = changed[place:] + changed[:place]
        if not changed:
            return b"\x80"
    return bytes(changed)


def send(port: int, data: bytes) -> None:
    """Send bytes, end the sending half, and read until the server ends the connection."""
    with socket.create_connection((HOST, port), timeout=30) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65_536):
                pass
        except OSError:
            # The server has ended the connection before it has read everything.
            pass


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.usefixtures("flights")
def test_mutated_messages_leave_the_server_alive_and_unleaking(door: HmsDoor) -> None:
    chance = random.Random(20261126)
    messages = [message(call) for call in CALLS]
    for data in messages:
        send(door.port, data)
    before = open_files()
    for _ in range(ROUNDS):
        send(door.port, mutated(chance.choice(messages), chance))
    with door.client() as client:
        assert client.getVersion()
    until = time.monotonic() + 10
    while open_files() > before + 5 and time.monotonic() < until:
        time.sleep(0.1)
    assert open_files() <= before + 5


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="http"),
        pytest.param(b"\x00" * 100, id="zeros"),
        pytest.param(b"\x80\x01\x00\x01\x7f\xff\xff\xff", id="name-of-2-GB"),
        pytest.param(CALL + b"\x09get_table\x00\x00\x00\x01" + b"\x0c\x00\x63" * 100_000, id="deep"),
        pytest.param(
            CALL + b"\x19get_table_objects_by_name\x00\x00\x00\x01\x0f\x00\x02\x0b\x7f\xff\xff\xff",
            id="list-of-2-billion",
        ),
    ],
)
def test_bytes_that_are_no_call_end_only_their_connection(door: HmsDoor, client: Any, data: bytes) -> None:
    send(door.port, data)
    assert client.get_all_databases() == ["default", "demo"]


def test_an_unknown_call_is_answered(door: HmsDoor) -> None:
    with door.client() as client:
        client._oprot.writeMessageBegin("no_such_call", 1, 1)
        ThriftHiveMetastore.get_all_databases_args().write(client._oprot)
        client._oprot.trans.flush()
        name, kind, _ = client._iprot.readMessageBegin()
        assert (name, kind) == ("no_such_call", 3)


def test_a_message_over_the_limit_ends_its_connection(catalog: Catalog, tmp_path: Path) -> None:
    with HmsDoor(catalog, tmp_path, tmp_path / "warehouse", limits=Limits(body_bytes=10_000, stop_seconds=5)) as door:
        with (
            door.client() as client,
            pytest.raises(Exception, match=ENDED),
        ):
            client.get_databases("a" * 20_000)
        with door.client() as client:
            assert client.get_databases("a" * 5_000) == []


def test_idle_and_slow_clients_are_closed(catalog: Catalog, tmp_path: Path) -> None:
    limits = Limits(idle_seconds=0.3, body_seconds=0.5, stop_seconds=5)
    with HmsDoor(catalog, tmp_path, tmp_path / "warehouse", limits=limits) as door:
        with door.client() as client:
            assert client.getName()
            time.sleep(0.8)
            with pytest.raises(Exception, match=ENDED):
                client.getName()
        with socket.create_connection((HOST, door.port), timeout=10) as slow:
            slow.sendall(b"\x80\x01\x00\x01\x00\x00")
            assert slow.recv(1) == b""


def test_too_many_connections_are_refused(catalog: Catalog, tmp_path: Path) -> None:
    with HmsDoor(catalog, tmp_path, tmp_path / "warehouse", limits=Limits(connections=2, stop_seconds=5)) as door:
        with door.client() as first:
            # Of two places, one is for clients that have sent nothing yet.
            name = first.getName()
            with door.client() as second:
                assert second.getName() == name
                with socket.create_connection((HOST, door.port), timeout=10) as third:
                    assert third.recv(1) == b""
        time.sleep(0.3)
        with door.client() as again:
            assert again.getName()


def test_idle_connections_of_one_client_leave_places_for_others(catalog: Catalog, tmp_path: Path) -> None:
    keys = {role.name: Key(role.name, "secret", Client(role.name.lower(), role)) for role in Role}
    limits = Limits(connections=16, stop_seconds=5)
    with (
        HmsDoor(catalog, tmp_path, tmp_path / "warehouse", access=Access(keys), limits=limits) as door,
        ExitStack() as stack,
    ):
        for number in range(40):
            idle = stack.enter_context(connected(door.port, ("READER", "secret")))
            if number % 2:
                idle.get_all_databases()
        for _ in range(5):
            assert "demo" in stack.enter_context(connected(door.port, ("OWNER", "secret"))).get_all_databases()
