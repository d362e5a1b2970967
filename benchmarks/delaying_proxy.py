"""A proxy before an object store on this machine, which makes each request as slow as one to a remote store."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Self
from urllib.parse import parse_qs, urlsplit

from standalone.postgres import HOST

_MOST_HEAD_BYTES = 1 << 20
_PART_BYTES = 1 << 16
_END_OF_HEAD = b"\r\n\r\n"


class DelayingProxy:
    """A running proxy; a context manager that ends it. It passes bytes on unchanged, so that signatures stay valid.

    Attributes:
        url: The endpoint for clients.
    """

    def __init__(self, url: str, delay_seconds: float) -> None:
        """Start the proxy in a process of its own, so that it does not slow its clients down.

        Args:
            url: The endpoint of the store.
            delay_seconds: The time that each request waits before it is passed on, however many others wait.
        """
        self._pipe, other_end = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=_run, args=(url, delay_seconds, other_end), daemon=True)
        self._process.start()
        other_end.close()
        self.url = f"http://{HOST}:{self._pipe.recv()}"

    def __enter__(self) -> Self:
        """Return the proxy."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        self._process.terminate()
        self._process.join()
        self._pipe.close()

    def take_counts(self) -> Counter[str]:
        """Return the numbers of requests by operation since the last call, such as `GET`, `LIST` or `COPY`."""
        self._pipe.send(None)
        counts: Counter[str] = self._pipe.recv()
        return counts


def _run(url: str, delay_seconds: float, pipe: Connection) -> None:
    with suppress(KeyboardInterrupt):
        asyncio.run(_Proxy(url, delay_seconds).serve(pipe))


@dataclass(frozen=True)
class _Head:
    """The first line and the headers of a request, as the client has sent them."""

    content: bytes
    method: str
    target: str
    headers: dict[str, str]

    @classmethod
    def parse(cls, content: bytes) -> _Head:
        first, *lines = content.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        method, target, _ = first.split(" ", 2)
        pairs = (line.partition(":") for line in lines)
        return cls(content, method, target, {name.lower(): value.strip() for name, _, value in pairs})

    @property
    def is_chunked(self) -> bool:
        return self.headers.get("transfer-encoding", "").lower() == "chunked"

    @property
    def body_bytes(self) -> int:
        return int(self.headers.get("content-length", 0))

    @property
    def operation(self) -> str:
        """The method, and what distinguishes S3's operations of the same method."""
        parameters = parse_qs(urlsplit(self.target).query, keep_blank_values=True)
        if "x-amz-copy-source" in self.headers:
            return "COPY"
        if self.method == "GET" and "list-type" in parameters:
            return "LIST"
        parts = [name for name in ("uploads", "uploadId", "delete") if name in parameters]
        return " ".join([self.method, *parts])


class _Proxy:
    def __init__(self, url: str, delay_seconds: float) -> None:
        address = urlsplit(url)
        self._address = address.hostname, address.port
        self._delay_seconds = delay_seconds
        self._counts: Counter[str] = Counter()

    async def serve(self, pipe: Connection) -> None:
        server = await asyncio.start_server(self._connect, HOST, 0, limit=_MOST_HEAD_BYTES, backlog=1024)
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(pipe.fileno(), self._answer, pipe, ended)
        pipe.send(server.sockets[0].getsockname()[1])
        await ended.wait()

    def _answer(self, pipe: Connection, ended: asyncio.Event) -> None:
        try:
            pipe.recv()
        except EOFError:
            # The process of the benchmark was killed.
            asyncio.get_running_loop().remove_reader(pipe.fileno())
            ended.set()
            return
        pipe.send(self._counts)
        self._counts = Counter()

    async def _connect(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """Serve one connection of a client with one to the store, until either side closes it."""
        server, to_server = await asyncio.open_connection(*self._address, limit=_MOST_HEAD_BYTES)
        directions = [
            asyncio.create_task(self._pass_requests(client, to_server)),
            asyncio.create_task(_pass_everything(server, to_client)),
        ]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)
            to_client.close()
            to_server.close()

    async def _pass_requests(self, client: asyncio.StreamReader, to_server: asyncio.StreamWriter) -> None:
        while True:
            head = _Head.parse(await client.readuntil(_END_OF_HEAD))
            self._counts[head.operation] += 1
            await asyncio.sleep(self._delay_seconds)
            to_server.write(head.content)
            if head.is_chunked:
                await _pass_chunks(client, to_server)
            else:
                await _pass_bytes(client, to_server, head.body_bytes)
            await to_server.drain()


async def _pass_chunks(client: asyncio.StreamReader, to_server: asyncio.StreamWriter) -> None:
    """Pass on a body in chunks, and the trailers after its last, empty chunk."""
    while True:
        line = await client.readuntil(b"\r\n")
        to_server.write(line)
        if (size := int(line.partition(b";")[0], 16)) == 0:
            break
        await _pass_bytes(client, to_server, size + len(b"\r\n"))
    while line != b"\r\n":
        line = await client.readuntil(b"\r\n")
        to_server.write(line)


async def _pass_bytes(client: asyncio.StreamReader, to_server: asyncio.StreamWriter, count: int) -> None:
    while count:
        part = await client.read(min(count, _PART_BYTES))
        if not part:
            raise EOFError
        count -= len(part)
        to_server.write(part)
        await to_server.drain()


async def _pass_everything(server: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
    """Pass on responses, which arrive only after their requests; their ends need not be known."""
    while part := await server.read(_PART_BYTES):
        to_client.write(part)
        await to_client.drain()
