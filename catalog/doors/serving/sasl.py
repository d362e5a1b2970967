"""Authentication of Thrift clients: by certificate, or by SASL's mechanism PLAIN with an access key and a secret key.

Source: Apache Thrift, `TSaslTransport` (the frames); RFC 4616 (PLAIN); Hive's `metastore.client.auth.mode=PLAIN`.
"""

from __future__ import annotations

import socket
import ssl
import struct
from typing import Any, Protocol

from catalog.doors.serving.access import Access, Client
from catalog.errors.doors import CredentialsError

_START, _OK, _BAD, _ERROR, _COMPLETE = 1, 2, 3, 4, 5
_NEGOTIATION = struct.Struct("!BI")
_LENGTH = struct.Struct("!I")
_LONGEST = 4_096
"""Bytes of a message of the negotiation."""

PLAIN = b"PLAIN"


class Stream(Protocol):
    """The methods of a connection that the Thrift door uses; a `socket.socket` has them."""

    def recv(self, size: int, /) -> bytes:
        """Return at most this number of bytes; none at the end."""

    def sendall(self, data: bytes | memoryview, /) -> None:
        """Send all bytes."""

    def settimeout(self, seconds: float | None, /) -> None:
        """Set how long one call may take."""


def authenticate(connection: socket.socket, access: Access) -> tuple[Stream, Client] | None:
    """Find out who has connected.

    Args:
        connection: After TLS's handshake, if any, and with a timeout.

    Returns:
        The stream of Thrift's messages, and the client; None if the client closed the connection.

    Raises:
        CredentialsError: The client has no credentials, or wrong ones. It has been told so, as SASL can.
        OSError: The connection was lost, or the client is too slow.
    """
    client = _client_of_certificate(connection, access)
    first = connection.recv(1)
    if not first:
        return None
    if first[0] == _START:
        return _negotiate(connection, access)
    if client is None:
        client = access.anonymous
    if client is None:
        raise CredentialsError(
            "the client has neither a certificate nor SASL credentials, which CALVE_DOOR_KEYS asks for; give it one of "
            "them, or, if it knows neither, run a calve serve without CALVE_DOOR_KEYS on 127.0.0.1 of its machine"
        )
    return _Continued(connection, first), client


def _client_of_certificate(connection: socket.socket, access: Access) -> Client | None:
    certificate = connection.getpeercert() if isinstance(connection, ssl.SSLSocket) else None
    if not certificate:
        return None
    subject: Any = certificate.get("subject", ())
    names = [value for part in subject for name, value in part if name == "commonName"]
    if access.anonymous is not None:
        return access.anonymous
    return access.client_of_certificate(str(names[-1]) if names else "")


def _negotiate(connection: socket.socket, access: Access) -> tuple[Stream, Client]:
    """Continue a negotiation whose first byte has been read."""
    mechanism = _message(connection)
    if mechanism != PLAIN:
        _refuse(connection, _BAD, "unsupported mechanism; use PLAIN")
    status = _exactly(connection, 1)[0]
    if status not in (_OK, _COMPLETE):
        _refuse(connection, _BAD, "the client has ended the negotiation")
    parts = _message(connection).split(b"\0")
    try:
        _, access_key, secret_key = (part.decode() for part in parts)
        client = access.anonymous or access.client(access_key, secret_key)
    except (CredentialsError, ValueError):
        _refuse(connection, _BAD, "no client has this access key and this secret key")
    connection.sendall(_NEGOTIATION.pack(_COMPLETE, 0))
    return _Framed(connection), client


def _refuse(connection: socket.socket, status: int, message: str) -> None:
    text = message.encode()
    connection.sendall(_NEGOTIATION.pack(status, len(text)) + text)
    raise CredentialsError(message)


def _message(connection: socket.socket) -> bytes:
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    if length > _LONGEST:
        _refuse(connection, _ERROR, "the message is too long")
    return _exactly(connection, length)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionResetError("the client has closed the connection")
        data += part
    return data


class _Continued:
    """A connection of which the first bytes have been read."""

    def __init__(self, connection: socket.socket, first: bytes) -> None:
        self._connection = connection
        self._first = first
        self.sendall = connection.sendall
        self.settimeout = connection.settimeout

    def recv(self, size: int) -> bytes:
        """Return the bytes that were read before, then those that arrive."""
        if self._first:
            first, self._first = self._first[:size], self._first[size:]
            return first
        return self._connection.recv(size)


class _Framed:
    """The data after a negotiation: in frames, each after its length."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._left = 0
        self._length = b""
        self.settimeout = connection.settimeout

    def recv(self, size: int) -> bytes:
        """Return bytes of the current or of the next frame."""
        while not self._left:
            # What has arrived of a length is kept, if the rest does not arrive in time.
            part = self._connection.recv(_LENGTH.size - len(self._length))
            if not part:
                return b""
            self._length += part
            if len(self._length) == _LENGTH.size:
                (self._left,) = _LENGTH.unpack(self._length)
                self._length = b""
        data = self._connection.recv(min(size, self._left))
        self._left -= len(data)
        return data

    def sendall(self, data: bytes | memoryview) -> None:
        """Send a frame."""
        self._connection.sendall(_LENGTH.pack(len(data)))
        self._connection.sendall(data)
