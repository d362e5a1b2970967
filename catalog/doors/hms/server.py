"""The Thrift server: a thread for each connection, within limits."""

from __future__ import annotations

import contextlib
import errno
import logging
import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from time import monotonic

from thrift.protocol.TProtocol import TProtocolException
from thrift.transport.TTransport import TTransportException

from catalog.doors.entries import Entries
from catalog.doors.hms.calls import calls
from catalog.doors.hms.dispatch import DOOR, Dispatcher
from catalog.doors.hms.handler import Handler
from catalog.doors.hms.transport import MessageTransport
from catalog.doors.serving.connections import Place
from catalog.doors.serving.context import Serving
from catalog.doors.serving.limits import Rates
from catalog.doors.serving.sasl import authenticate
from catalog.errors.doors import CredentialsError, TooManyRequestsError

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.2
"""How often the server looks whether it has to stop."""

_FIRST_SECONDS = 1.0
"""How long a server that stops waits for the first message of a new connection."""

_REFUSAL_SECONDS = 1.0
"""How often, at most, a process logs that a client was refused for its credentials."""

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""The errors of a process or system that has too much open."""

_ENDED = (OSError, EOFError, TProtocolException, TTransportException)
"""Errors that end only their own connection: invalid bytes, exceeded limits, and clients that have disconnected.

Thrift's decoder raises the built-in errors, too, for bytes that are no message.
"""


def prepare(serving: Serving) -> Callable[[socket.socket], None]:
    """Prepare the door in a process; return the function that answers on a listening socket until told to stop."""
    calls()
    return HmsServer(serving).serve


class HmsServer:
    """Answers the connections of a listening socket, which several processes may share."""

    def __init__(self, serving: Serving) -> None:
        """Use what all doors of the process share."""
        self._serving = serving
        self._limits = serving.limits
        self._entries = Entries(serving.catalog)
        self._connections = serving.connections(DOOR)
        self._rates = Rates(serving.limits.requests_per_second, DOOR, serving.rates)
        self._lock = threading.Lock()
        # Connections without a first message yet, and those that have had one and wait for the next.
        self._new: set[socket.socket] = set()
        self._idle: set[socket.socket] = set()
        self._threads: dict[threading.Thread, socket.socket] = {}
        # Until when their clients have to prove who they are.
        self._unknown: dict[threading.Thread, float] = {}
        self._refusal_logged = -_REFUSAL_SECONDS

    def serve(self, listener: socket.socket) -> None:
        """Accept connections until `Serving.stop` is set; then finish the requests that have begun, and return."""
        listener.setblocking(False)
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            while not self._serving.stop.is_set():
                if selector.select(_LOOK_SECONDS):
                    self._accept(listener)
                self._end_unknown()
        self._drain()

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, address = listener.accept()
        except OSError as error:
            # Another process has taken it, the client has gone, or there are no more files for now.
            if error.errno in _EXHAUSTED:
                log.warning("cannot accept a connection: %s", error.strerror)
                self._serving.stop.wait(_LOOK_SECONDS)
            return
        client = str(address[0]) if address else ""
        place = self._connections.open(client)
        if place is None:
            log.warning("refused a connection from %s: too many are open, %d at most", client, self._limits.connections)
            connection.close()
            return
        thread = threading.Thread(target=self._run, args=(connection, client, place), daemon=True, name=DOOR)
        with self._lock:
            self._threads[thread] = connection
            self._unknown[thread] = monotonic() + self._limits.proof_seconds
        try:
            thread.start()
        except RuntimeError:
            log.warning("refused a connection: no further thread can be started")
            with self._lock:
                del self._threads[thread], self._unknown[thread]
            place.close()
            connection.close()

    def _end_unknown(self) -> None:
        with self._lock:
            now = monotonic()
            for thread in [thread for thread, until in self._unknown.items() if until < now]:
                del self._unknown[thread]
                _shut(self._threads[thread])

    def _drain(self) -> None:
        with self._lock:
            threads = dict(self._threads)
        since = monotonic()
        # The first message of a new connection may be on its way.
        for seconds, ended in ((0.0, self._idle), (_FIRST_SECONDS, self._new), (self._limits.stop_seconds, None)):
            for thread in threads:
                thread.join(max(0.0, since + seconds - monotonic()))
            with self._lock:
                for connection in threads.values() if ended is None else ended:
                    _shut(connection)

    def _run(self, connection: socket.socket, address: str, place: Place) -> None:
        self._serving.metrics.connected(DOOR, 1)
        try:
            connection.settimeout(self._limits.body_seconds)
            if self._serving.tls is not None:
                connection = self._serving.tls.wrap_socket(connection, server_side=True)
                with self._lock:
                    self._threads[threading.current_thread()] = connection
            with connection:
                self._converse(connection, address, place)
        except (CredentialsError, TooManyRequestsError) as error:
            self._warn_of_refusal(address, error)
        except _ENDED as error:
            log.debug("a connection from %s ends: %s", address, error)
        except Exception as error:
            # Whatever the bytes of a client lead to, only its connection ends.
            log.warning("a connection from %s ends: %s: %s", address, type(error).__name__, error)
        finally:
            connection.close()
            with self._lock:
                self._threads.pop(threading.current_thread(), None)
                self._unknown.pop(threading.current_thread(), None)
            place.close()
            self._serving.metrics.connected(DOOR, -1)

    def _warn_of_refusal(self, address: str, error: Exception) -> None:
        # A client that cannot log in must not be able to fill the log.
        with self._lock:
            now = monotonic()
            is_due = now >= self._refusal_logged + _REFUSAL_SECONDS
            self._refusal_logged = now if is_due else self._refusal_logged
        log.log(logging.WARNING if is_due else logging.DEBUG, "refused a connection from %s: %s", address, error)

    def _converse(self, connection: socket.socket, address: str, place: Place) -> None:
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._waiting(connection, self._new, place):
            authenticated = authenticate(connection, self._serving.access)
        if authenticated is None:
            return
        stream, client = authenticated
        place.end = partial(_shut, connection)
        place.prove(client)
        with self._lock:
            self._unknown.pop(threading.current_thread(), None)
        transport = MessageTransport(
            stream,
            message_bytes=self._limits.body_bytes,
            nesting=self._limits.nesting,
            idle_seconds=self._limits.idle_seconds,
            body_seconds=self._limits.body_seconds,
        )
        handler = Handler(self._serving.catalog, self._entries, client)
        dispatcher = Dispatcher(handler, client, address, self._rates, self._serving.metrics)
        with self._waiting(connection, self._new, place):
            has_message = transport.wait()
        while has_message:
            dispatcher.answer(transport)
            with self._waiting(connection, self._idle, place):
                has_message = not self._serving.stop.is_set() and transport.wait()

    @contextlib.contextmanager
    def _waiting(self, connection: socket.socket, waiting: set[socket.socket], place: Place) -> Iterator[None]:
        """Mark a connection as one that may be closed when the server stops, or for another one of its client."""
        with self._lock:
            waiting.add(connection)
        place.rest()
        try:
            yield
        finally:
            place.work()
            with self._lock:
                waiting.discard(connection)


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
