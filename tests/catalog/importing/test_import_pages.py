"""Imports from a metastore that answers in pages."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from catalog import Catalog
from catalog.importing import partitions as importing_partitions
from tests.catalog.importing.test_imports import LOCATION
from tests.catalog.importing.test_imports import sales as sales
from tests.support.effort import effort
from tests.support.glue_endpoint import GlueEndpoint, columns, storage


def paging(count: int) -> type[BaseHTTPRequestHandler]:
    """Return a simulated Glue client for one table with a number of partitions."""
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        requests = asked

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(body)
            operation = self.headers["X-Amz-Target"].partition(".")[2]
            answer = json.dumps(getattr(self, operation)(body)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def GetTable(self, body: dict[str, Any]) -> dict[str, Any]:
            keys = columns(("n", "int"))
            table = {"Name": "orders", "StorageDescriptor": storage(LOCATION), "PartitionKeys": keys}
            return {"Table": {**table, "TableType": "EXTERNAL_TABLE", "DatabaseName": "sales"}}

        def GetPartitions(self, body: dict[str, Any]) -> dict[str, Any]:
            start = int(body.get("NextToken", "0"))
            end = min(count, start + body["MaxResults"])
            page = [
                {"Values": [str(n)], "StorageDescriptor": storage(f"{LOCATION}/n={n}"), "Parameters": {}}
                for n in range(start, end)
            ]
            return {"Partitions": page} | ({"NextToken": str(end)} if end < count else {})

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def peak_of(sqlite_url: str, glue_server: GlueEndpoint) -> Callable[[int], int]:
    """A function that imports a number of partitions, and returns the peak memory, in bytes."""

    def measure(count: int) -> int:
        handler = paging(count)
        with serving(handler) as url, Catalog.open(sqlite_url, warehouse="/lake") as catalog:
            catalog.create_database(f"sales{count}", if_not_exists=True)
            tracemalloc.start()
            report = catalog.imports.import_table(f"glue://eu-west-1?endpoint_url={url}", f"sales{count}.orders")
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert (report.partitions.added, report.partitions.vanished.count) == (count, 0)
            # The next partition is in the same folder.
            catalog.drop_table(f"sales{count}.orders")
        pages = [body for body in handler.requests if "MaxResults" in body]  # type: ignore[attr-defined]
        assert len(pages) == -(-count // 1000)
        assert all(body["ExcludeColumnSchema"] for body in pages)
        return peak

    return measure


@pytest.mark.long
def test_partitions_come_in_pages_and_few_are_in_memory_at_once(
    peak_of: Callable[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing_partitions, "BATCH", 1_000)
    peak_of(1_000)
    assert peak_of(effort(4_000, 8_000)) < 1.5 * peak_of(2_000)
