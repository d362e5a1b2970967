"""The proxy that makes requests to an object store slow, and counts them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from benchmarks.delaying_proxy import DelayingProxy

DELAY_SECONDS = 0.3


class Echo(BaseHTTPRequestHandler):
    """Responds with the Host header, and with the body that was sent."""

    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        body = self._chunks() if self.headers.get("Transfer-Encoding") else self._body()
        content = f"{self.headers['Host']} ".encode() + body
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _chunks(self) -> bytes:
        body = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline() != b"\r\n":
            """A trailer."""
        return body

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def proxy() -> Iterator[DelayingProxy]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever).start()
        with DelayingProxy(f"http://127.0.0.1:{server.server_port}", DELAY_SECONDS) as running:
            yield running
        server.shutdown()


@pytest.fixture
def connection(proxy: DelayingProxy) -> Iterator[HTTPConnection]:
    opened = HTTPConnection(urlsplit(proxy.url).netloc, timeout=30)
    yield opened
    opened.close()


def test_requests_of_a_connection_are_passed_on_unchanged(proxy: DelayingProxy, connection: HTTPConnection) -> None:
    host = urlsplit(proxy.url).netloc
    bodies = [b"", b"short", b"long" * 500_000]
    for body in bodies:
        connection.request("PUT", "/key", body=body, headers={"Host": "store.example.com"})
        assert connection.getresponse().read() == b"store.example.com " + body
    connection.request("PUT", "/key?partNumber=1&uploadId=2", body=iter([b"in ", b"chunks"]), encode_chunked=True)
    assert connection.getresponse().read() == f"{host} in chunks".encode()
    connection.putrequest("PUT", "/key", skip_host=True)
    for name, value in {"Host": "h", "Transfer-Encoding": "chunked", "x-amz-copy-source": "a"}.items():
        connection.putheader(name, value)
    connection.endheaders(b"2;signature=a\r\nab\r\n0\r\nx-amz-trailer: b\r\n\r\n")
    assert connection.getresponse().read() == b"h ab"
    connection.request("GET", "/lake?list-type=2")
    assert connection.getresponse().read() == f"{host} ".encode()
    assert proxy.take_counts() == {"PUT": 3, "PUT uploadId": 1, "COPY": 1, "LIST": 1}
    assert proxy.take_counts() == {}


def test_requests_wait_together_and_not_one_after_the_other(proxy: DelayingProxy) -> None:
    def get(_: int) -> float:
        connection, began = HTTPConnection(urlsplit(proxy.url).netloc, timeout=30), time.monotonic()
        connection.request("GET", "/key")
        connection.getresponse().read()
        connection.close()
        return time.monotonic() - began

    began = time.monotonic()
    with ThreadPoolExecutor(40) as pool:
        waited = list(pool.map(get, range(40)))
    assert min(waited) >= DELAY_SECONDS
    assert time.monotonic() - began < sum(waited) / 4
