"""SASL's mechanism PLAIN on the Thrift door: the frames of Thrift's `TSaslTransport`."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from catalog.doors.serving.access import WITHOUT_CREDENTIALS, Access, Client, Key, Role
from catalog.doors.serving.sasl import authenticate
from catalog.errors import CredentialsError

START, OK, BAD, COMPLETE = 1, 2, 3, 5
CLIENT = Client("spark", Role.WRITER)
ACCESS = Access({"SPARK": Key("SPARK", "a-long-secret-key", CLIENT)})
RIGHT = b"\0SPARK\0a-long-secret-key"


def message(status: int, payload: bytes) -> bytes:
    return struct.pack("!BI", status, len(payload)) + payload


@contextmanager
def asked(access: Access, sent: bytes) -> Iterator[tuple[socket.socket, Any]]:
    """Send bytes to `authenticate`; yield the client's socket and the result, or the error."""
    client, server = socket.socketpair()
    for end in (client, server):
        end.settimeout(5)
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(authenticate(server, access))
        except (CredentialsError, OSError) as error:
            found.append(error)

    with client, server:
        thread = threading.Thread(target=run)
        thread.start()
        client.sendall(sent)
        thread.join(10)
        yield client, found[0]


@pytest.mark.parametrize("status", [OK, COMPLETE])
def test_right_keys_begin_a_conversation_in_frames(status: int) -> None:
    with asked(ACCESS, message(START, b"PLAIN") + message(status, RIGHT)) as (client, (stream, who)):
        assert who == CLIENT
        assert client.recv(5) == message(COMPLETE, b"")
        client.sendall(struct.pack("!I", 3) + b"abc" + struct.pack("!I", 0) + struct.pack("!I", 2) + b"de")
        assert [stream.recv(2), stream.recv(2), stream.recv(9)] == [b"ab", b"c", b"de"]
        stream.sendall(b"answer")
        assert client.recv(100) == struct.pack("!I", 6) + b"answer"
        client.shutdown(socket.SHUT_WR)
        assert stream.recv(1) == b""


@pytest.mark.parametrize(
    "response",
    [
        b"\0SPARK\0wrong",
        b"\0OTHER\0a-long-secret-key",
        b"",
        b"SPARK",
        b"\0SPARK\0a-long-secret-key\0x",
        b"\0\xff\0\xff",
    ],
)
def test_wrong_keys_are_refused_in_the_protocol(response: bytes) -> None:
    with asked(ACCESS, message(START, b"PLAIN") + message(OK, response)) as (client, error):
        assert isinstance(error, CredentialsError)
        assert client.recv(1) == bytes([BAD])
        assert b"secret" not in client.recv(1_000).replace(b"this secret key", b"")


def test_other_mechanisms_are_refused() -> None:
    with asked(ACCESS, message(START, b"GSSAPI")) as (client, error):
        assert isinstance(error, CredentialsError)
        assert b"use PLAIN" in client.recv(1_000)


def test_a_message_without_end_is_refused() -> None:
    with asked(ACCESS, struct.pack("!BI", START, 1 << 31)) as (_, error):
        assert isinstance(error, CredentialsError)


def test_plain_thrift_needs_a_server_without_credentials() -> None:
    with asked(ACCESS, b"\x80\x01") as (_, error):
        assert isinstance(error, CredentialsError)
    with asked(WITHOUT_CREDENTIALS, b"\x80\x01\x00") as (_, (stream, who)):
        assert who == WITHOUT_CREDENTIALS.anonymous
        assert stream.recv(1) + stream.recv(5) == b"\x80\x01\x00"


def test_a_client_that_leaves_is_no_error() -> None:
    client, server = socket.socketpair()
    with server:
        client.close()
        assert authenticate(server, ACCESS) is None
