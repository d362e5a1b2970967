"""Mutated frames of Thrift, on several connections at once, with SASL's frames and without."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from hive_metastore import ThriftHiveMetastore, ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.Thrift import TApplicationException, TException
from thrift.transport.TTransport import TMemoryBuffer

from tests.fuzz.served import ACCESS_KEY, SECRET_KEY, Served
from tests.support.hms_door import HOST, partition, table

_CONNECTIONS = 6
_SECONDS = 20.0
_SHOWN = 600
_START, _OK, _BAD, _ERROR, _COMPLETE = 1, 2, 3, 4, 5

_NAME = "country=DE/day=2024-05-01/number=1"
_LOCK = ttypes.LockComponent(ttypes.LockType.EXCLUSIVE, ttypes.LockLevel.TABLE, "demo", "orders")
_LOCKED = ttypes.LockRequest([_LOCK], None, "me", "here")
CALLS: tuple[Callable[[Any], object], ...] = (
    lambda client: client.get_all_databases(),
    lambda client: client.get_table("demo", "orders"),
    lambda client: client.get_table_req(ttypes.GetTableRequest("demo", "orders")),
    lambda client: client.create_database(ttypes.Database("made", "text", None, {"a": "b"})),
    lambda client: client.drop_database("made", True, True),
    lambda client: client.create_table(table("demo", "other", {"day": "date"})),
    lambda client: client.alter_table("demo", "other", table("demo", "other", {"day": "date"})),
    lambda client: client.drop_table("demo", "other", True),
    lambda client: client.add_partitions([partition("demo", "orders", ["DE", "2024-05-03", "1"])]),
    lambda client: client.append_partition("demo", "orders", ["FR", "2024-05-03", "1"]),
    lambda client: client.alter_partition("demo", "orders", partition("demo", "orders", ["DE", "2024-05-01", "1"])),
    lambda client: client.drop_partition("demo", "orders", ["FR", "2024-05-03", "1"], True),
    lambda client: client.get_partitions("demo", "orders", -1),
    lambda client: client.get_partitions_by_filter("demo", "orders", 'country = "DE" and number > 1', -1),
    lambda client: client.get_partitions_by_names("demo", "orders", [_NAME]),
    lambda client: client.get_partitions_ps("demo", "orders", ["DE", "", ""], 5),
    lambda client: client.get_partitions_by_expr(ttypes.PartitionsByExprRequest("demo", "orders", b"\x00\x01\xff")),
    lambda client: client.get_partition_names("demo", "orders", -1),
    lambda client: client.get_tables("demo", "*"),
    lambda client: client.lock(_LOCKED),
    lambda client: client.get_aggr_stats_for(ttypes.PartitionsStatsRequest("demo", "orders", ["id"], [_NAME])),
    lambda client: client.get_functions("demo", "*"),
    lambda client: client.set_ugi("me", ["we"]),
)


def message(call: Callable[[Any], object]) -> bytes:
    """Return the bytes of a call, made of a client that has no server."""
    buffer = TMemoryBuffer()
    with contextlib.suppress(EOFError):
        call(ThriftHiveMetastore.Client(TBinaryProtocolAccelerated(buffer)))
    data: bytes = buffer.getvalue()
    return data


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Return bytes with some of them changed: values, lengths, types, nesting, order and end."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 6)):
        place = chance.randrange(len(changed)) if changed else 0
        match chance.randrange(8):
            case 0:
                changed[place : place + 1] = bytes((chance.randrange(256),))
            case 1:
                del changed[place : place + chance.randint(1, 9)]
            case 2:
                changed[place:place] = chance.randbytes(chance.randint(1, 9))
            case 3:
                length = chance.choice((-1, 0, 1, 2**31 - 1, 2**20, 1_999_999, -(2**31)))
                changed[place : place + 4] = struct.pack(">i", length)
            case 4:
                # The type of a field or of members.
                changed[place : place + 1] = bytes((chance.choice((0, 2, 3, 4, 6, 8, 10, 11, 12, 13, 14, 15)),))
            case 5:
                changed[place:place] = b"\x0c\x00\x01" * chance.choice((1, 50, 5_000))
            case 6:
                del changed[place:]
            case _:
                other = chance.randrange(len(changed) + 1)
                changed[place:place] = changed[min(place, other) : max(place, other)]
    return bytes(changed) or b"\x80"


def negotiation(secret_key: str = SECRET_KEY) -> bytes:
    """Return the bytes by which a client proves its keys."""
    proof = f"\0{ACCESS_KEY}\0{secret_key}".encode()
    parts = ((_START, b"PLAIN"), (_OK, proof))
    return b"".join(struct.pack("!BI", status, len(text)) + text for status, text in parts)


def fuzz(served: Served, seconds: float, seed: int, *, has_sasl: bool) -> tuple[str, list[str]]:
    """Send mutated messages; return what was done, and the problems.

    Args:
        has_sasl: Whether messages are in the frames that follow SASL's negotiation; the frames are mutated, too.
    """
    port = int(served.server.address("hms").rsplit(":", 1)[1])
    counts: Counter[str] = Counter()
    problems: list[str] = []
    messages = [message(call) for call in CALLS]
    until = time.monotonic() + seconds

    def work(number: int) -> None:
        chance = random.Random(f"{seed} {has_sasl} {number}")
        while time.monotonic() < until and len(problems) < 20:
            sent = _conversation(chance, messages, has_sasl=has_sasl)
            try:
                counts[_outcome(_exchange(port, sent), has_sasl=has_sasl)] += 1
            except (OSError, ValueError) as error:
                problems.append(f"{type(error).__name__}: {error}"[:_SHOWN] + f"; sent {sent[-_SHOWN:].hex()}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(_CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if has_sasl and _exchange(port, negotiation("a-wrong-secret-key") + _frame(messages[0]))[:1] == bytes((_COMPLETE,)):
        problems.append("a wrong secret key was accepted")
    shown = ", ".join(f"{count:,} {outcome}" for outcome, count in counts.most_common())
    return f"{sum(counts.values()):,} connections: {shown}", problems


def _frame(data: bytes) -> bytes:
    return struct.pack("!I", len(data)) + data


def _conversation(chance: random.Random, messages: list[bytes], *, has_sasl: bool) -> bytes:
    """Return what one connection sends: up to three messages, of which the last is mutated."""
    sent = [chance.choice(messages) for _ in range(chance.randrange(3))]
    last = mutated(chance.choice(messages), chance)
    if not has_sasl:
        return b"".join([*sent, last])
    # Mutations of a message in a right frame reach Thrift's decoder; the others, SASL's.
    framed = b"".join(map(_frame, [*sent, last]))
    place = chance.randrange(4)
    if place == 0:
        return mutated(negotiation(), chance) + framed
    return negotiation() + (mutated(framed, chance) if place == 1 else framed)


def _exchange(port: int, data: bytes) -> bytes:
    """Send bytes, end the sending half, and return what the server sends until it ends the connection.

    Raises:
        TimeoutError: The server does not end it.
    """
    received = []
    with socket.create_connection((HOST, port), timeout=_SECONDS) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(1 << 20):
                received.append(part)
        except TimeoutError:
            raise
        except OSError:
            # The server has ended the connection before it has read everything.
            pass
    return b"".join(received)


def _outcome(received: bytes, *, has_sasl: bool) -> str:
    """Return what a server has answered.

    Raises:
        ValueError: It is not the protocol.
    """
    if has_sasl:
        if not received:
            return "ended"
        status, length = struct.unpack_from("!BI", received)
        if status != _COMPLETE:
            return "refused by SASL"
        received = _unframed(received[5 + length :])
    return _answers(received)


def _unframed(data: bytes) -> bytes:
    parts = []
    while len(data) >= 4:
        (length,) = struct.unpack_from("!I", data)
        parts.append(data[4 : 4 + length])
        data = data[4 + length :]
    return b"".join(parts)


def _answers(data: bytes) -> str:
    """Read all answers of a connection; return what the last one is."""
    if not data or data[0] in (_BAD, _ERROR):
        # A first byte of 1 begins SASL's negotiation.
        return "refused by SASL" if data else "ended"
    transport = TMemoryBuffer(data)
    protocol = TBinaryProtocolAccelerated(transport)
    last = ""
    while transport._buffer.tell() < len(data):
        try:
            name, kind, _ = protocol.readMessageBegin()
            if kind == 3:
                failure = TApplicationException()
                failure.read(protocol)
                last = "application exception"
                if "internal error" in str(failure.message):
                    raise ValueError(f"{name}: {failure.message}")
                continue
            result = getattr(ThriftHiveMetastore, f"{name}_result")()
            result.read(protocol)
        except (EOFError, AttributeError, TException) as error:
            place = transport._buffer.tell()
            raise ValueError(f"no answer of the protocol: {error!r} at {place} of {data[-_SHOWN:]!r}") from error
        errors = [value for value in vars(result).values() if isinstance(value, Exception)]
        if any("internal error" in str(error) for error in errors):
            raise ValueError(f"{name}: {errors}")
        last = "exception" if errors else "answer"
    return last
