"""An address before an HTTP server, at which a test sees the requests and can act before one of them."""

from __future__ import annotations

import re
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Self
from urllib.parse import urlsplit

_CHUNK_BYTES = 1 << 16
_IDLE_SECONDS = 600
"""With a time-out, threads that read and write one TLS connection do not wait inside OpenSSL."""


class WatchedEndpoint:
    """Passes connections on to a server as they are; a context manager.

    Attributes:
        url: The address for the server's clients, which sign it with their requests.
    """

    def __init__(self, server_url: str, tls: ssl.SSLContext | None = None) -> None:
        """Watch the requests to a server; with `tls`, the address is one of HTTPS."""
        address = urlsplit(server_url)
        self._server = address.hostname, address.port
        self._lock = threading.Lock()
        self._expected: tuple[re.Pattern[bytes], Callable[[], None]] | None = None
        endpoint = self

        class Connection(BaseRequestHandler):
            def handle(self) -> None:
                with suppress(OSError):
                    client = tls.wrap_socket(self.request, server_side=True) if tls else self.request
                    client.settimeout(_IDLE_SECONDS)
                    endpoint._pass_on(client)

        class Listener(ThreadingTCPServer):
            daemon_threads = True
            request_queue_size = 128

        self._listener = Listener(("127.0.0.1", 0), Connection)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._listener.server_address[1]}"

    def __enter__(self) -> Self:
        """Begin to listen."""
        threading.Thread(target=self._listener.serve_forever, name="watched-endpoint", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop listening."""
        self._listener.shutdown()
        self._listener.server_close()

    def before(self, request: str, act: Callable[[], None]) -> threading.Event:
        """Call a function once, before the first request whose line matches a pattern is passed on.

        Args:
            request: A regular expression for the beginning of a line such as `PUT /bucket/key?partNumber=1 HTTP/1.1`.
            act: The function.

        Returns:
            An event that is set after the call.
        """
        acted = threading.Event()

        def act_once() -> None:
            act()
            acted.set()

        self._expected = re.compile(request.encode()), act_once
        return acted

    def _pass_on(self, client: socket.socket) -> None:
        with socket.create_connection(self._server) as server:
            threading.Thread(target=_relay, args=(server, client), daemon=True).start()
            while chunk := client.recv(_CHUNK_BYTES):
                # Clients wait for the response before the next request, which therefore begins a chunk.
                self._look_at(chunk)
                server.sendall(chunk)

    def _look_at(self, chunk: bytes) -> None:
        with self._lock:
            if self._expected is None or not self._expected[0].match(chunk):
                return
            act, self._expected = self._expected[1], None
            act()


def _relay(server: socket.socket, client: socket.socket) -> None:
    with suppress(OSError):
        while chunk := server.recv(_CHUNK_BYTES):
            client.sendall(chunk)
    # The client sees the end of the server's connection.
    with suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)
