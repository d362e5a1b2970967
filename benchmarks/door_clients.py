"""Clients that ask a front door, or a Hive Metastore, for a while: prints the requests a second that were answered.

    python -m benchmarks.door_clients hms|glue|rest HOST:PORT CLIENTS SECONDS

Each client is a process with one connection. Glue and Hive Metastore are asked for 93 partitions, the REST door for the
metadata of a table.
"""

from __future__ import annotations

import http.client
import json
import os
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from benchmarks.sample import TABLE
from benchmarks.thrift_metastore import connected

ICEBERG_TABLE = "requested"

_DATABASE, _NAME = TABLE.split(".")
_QUESTION = 'country = "US" and category = "category-00" and year = 2015 and month >= 2 and month <= 4'
_RATE = struct.Struct("!d")
_TIMEOUT_SECONDS = 120

Asking = Callable[[], object]


@contextmanager
def http_client(
    address: str, method: str, path: str, body: str | None = None, headers: dict[str, str] | None = None
) -> Iterator[Asking]:
    """Open a connection; yield a function that sends the request, and raises an error unless it succeeds."""
    connection = http.client.HTTPConnection(address, timeout=_TIMEOUT_SECONDS)

    def ask() -> None:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        content = response.read()
        if response.status != http.HTTPStatus.OK:
            raise RuntimeError(f"{method} {path}: {response.status} {content[:300]!r}")

    try:
        yield ask
    finally:
        connection.close()


@contextmanager
def _hms(address: str) -> Iterator[Asking]:
    with connected(address) as client:
        yield lambda: client.get_partitions_by_filter(_DATABASE, _NAME, _QUESTION, -1)


def _glue(address: str) -> AbstractContextManager[Asking]:
    body = {"DatabaseName": _DATABASE, "TableName": _NAME, "Expression": _QUESTION.replace('"', "'")}
    headers = {"X-Amz-Target": "AWSGlue.GetPartitions", "Content-Type": "application/x-amz-json-1.1"}
    return http_client(address, "POST", "/", json.dumps(body), headers)


def _rest(address: str) -> AbstractContextManager[Asking]:
    return http_client(address, "GET", f"/v1/namespaces/{_DATABASE}/tables/{ICEBERG_TABLE}")


_CLIENTS = {"hms": _hms, "glue": _glue, "rest": _rest}


def main(door: str, address: str, clients: int, seconds: float) -> float:
    """Return the requests a second of many processes."""
    pipes = []
    start = time.monotonic() + 0.5 + clients * 0.05
    for _ in range(clients):
        reading, writing = os.pipe()
        if not os.fork():
            os._exit(_ask(door, address, start, seconds, writing))
        os.close(writing)
        pipes.append(reading)
    answers = [os.read(reading, _RATE.size) for reading in pipes]
    for _ in pipes:
        os.wait()
    if not all(answers):
        raise SystemExit("a client has failed")
    return float(sum(_RATE.unpack(answer)[0] for answer in answers))


def _ask(door: str, address: str, start: float, seconds: float, writing: int) -> int:
    try:
        with _CLIENTS[door](address) as ask:
            ask()
            time.sleep(max(0.0, start - time.monotonic()))
            since, count = time.monotonic(), 0
            while not count or time.monotonic() < since + seconds:
                ask()
                count += 1
            rate = count / (time.monotonic() - since)
        os.write(writing, _RATE.pack(rate))
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    print(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
