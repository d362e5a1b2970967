"""Thrift messages over a socket, with limits of size and time."""

from __future__ import annotations

from io import BytesIO
from time import monotonic

from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.transport.TTransport import CReadableTransport, TTransportBase, TTransportException

from catalog.doors.hms.message_sizes import Measured
from catalog.doors.serving.sasl import Stream

_CHUNK = 65_536
_PART = 1 << 22
"""The number of bytes of a long answer that are sent at a time."""

_LARGEST_CONTAINER = 2_000_000
"""Members of a list, set or map; Thrift allocates a list before it reads the members."""


class MessageTransport(TTransportBase, CReadableTransport):  # type: ignore[misc]
    """The messages of one connection.

    A client may be idle between messages; once a message has begun, its rest must arrive within a time.
    """

    def __init__(
        self, stream: Stream, *, message_bytes: int, nesting: int, idle_seconds: float, body_seconds: float
    ) -> None:
        """Use the stream of a connection, which the caller closes."""
        self._socket = stream
        self._message_bytes = message_bytes
        self._nesting = nesting
        self._idle_seconds = idle_seconds
        self._body_seconds = body_seconds
        self._buffer = BytesIO()
        self._end = 0
        self._written: list[bytes | memoryview] = []
        self._size = 0
        self._left = message_bytes
        self._deadline: float | None = None
        self.protocol = TBinaryProtocolAccelerated(
            self, string_length_limit=message_bytes, container_length_limit=_LARGEST_CONTAINER
        )

    def wait(self) -> bool:
        """Wait for the first bytes of a message; return False if the client has closed the connection, or is idle."""
        self._left, self._deadline = self._message_bytes, None
        if self._buffer.tell() < self._buffer.getbuffer().nbytes:
            return True
        self._socket.settimeout(self._idle_seconds)
        try:
            received = self._socket.recv(_CHUNK)
        except TimeoutError:
            return False
        self._buffer = BytesIO(received)
        self._left -= len(received)
        self._deadline = monotonic() + self._body_seconds
        return bool(received)

    def receive_arguments(self) -> None:
        """Receive all arguments of a call, whose name has been read, without making objects of them.

        Raises:
            TProtocolException: The bytes are no arguments.
            TTransportException: They exceed a limit, do not arrive in time, or the client has gone.
        """
        measured = Measured(self._buffer.read(), self._received, most_bytes=self._message_bytes, nesting=self._nesting)
        self._end = measured.end()
        self._buffer = BytesIO(measured.data)

    def pass_arguments(self) -> None:
        """Forget the arguments that have been received, whether they have been read or not."""
        self._buffer = BytesIO(self._buffer.getbuffer()[self._end :])

    # --- what Thrift calls --------------------------------------------------------------------------------------

    def isOpen(self) -> bool:
        """Return True: the server closes the connection."""
        return True

    def read(self, size: int) -> bytes:
        """Return at most this number of bytes, and at least one."""
        found = self._buffer.read(size)
        if not found and size:
            self._buffer = BytesIO(self._received())
            found = self._buffer.read(size)
        return found

    def readAll(self, size: int) -> bytes:
        """Return exactly this number of bytes, without copying what has arrived again and again."""
        pieces = []
        while size > 0:
            piece = self.read(size)
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def write(self, data: bytes | memoryview) -> None:
        """Keep bytes until the message is complete; send those of a long one, which the client can read meanwhile."""
        self._written.append(data)
        self._size += len(data)
        if self._size >= _PART:
            self.flush()

    def flush(self) -> None:
        """Send what has been written."""
        message = b"".join(self._written)
        self.discard()
        self._socket.settimeout(self._body_seconds)
        # Long answers in parts, each with its own time: a slow client may be slow, but not stop.
        view = memoryview(message)
        for start in range(0, len(view), _PART):
            self._socket.sendall(view[start : start + _PART])

    def discard(self) -> None:
        """Forget what has been written and not been sent."""
        self._written.clear()
        self._size = 0

    @property
    def cstringio_buf(self) -> BytesIO:
        """The bytes that have arrived, for Thrift's decoder in C."""
        return self._buffer

    def cstringio_refill(self, partial: bytes, size: int) -> BytesIO:
        """Return a buffer of at least this number of bytes, which begins with those that the decoder has read."""
        pieces, missing = [partial], size - len(partial)
        while missing > 0:
            piece = self._received()
            pieces.append(piece)
            missing -= len(piece)
        self._buffer = BytesIO(b"".join(pieces))
        return self._buffer

    # --- inside -------------------------------------------------------------------------------------------------

    def _received(self) -> bytes:
        if self._left <= 0:
            raise TTransportException(TTransportException.SIZE_LIMIT, "the message is larger than the server accepts")
        if self._deadline is None:
            self._deadline = monotonic() + self._body_seconds
        seconds = self._deadline - monotonic()
        if seconds <= 0:
            raise TTransportException(TTransportException.TIMED_OUT, "the message has not arrived in time")
        self._socket.settimeout(seconds)
        received = self._socket.recv(min(_CHUNK, self._left))
        if not received:
            raise TTransportException(TTransportException.END_OF_FILE, "the client has closed the connection")
        self._left -= len(received)
        return received
