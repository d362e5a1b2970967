"""Iceberg's REST door on a free port of this machine, in threads of the test's process or alone."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn

from catalog import Catalog
from catalog.doors.rest.application import application
from catalog.doors.serving.access import WITHOUT_CREDENTIALS, Access


@contextmanager
def rest_server(catalog: Catalog, access: Access = WITHOUT_CREDENTIALS) -> Iterator[str]:
    """Serve a catalog; the value is the address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(application(catalog, access), log_config=None, lifespan="off", ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(20)


def error_of(answer: httpx.Response) -> tuple[int, str]:
    """Return the status of a refusal, and its type."""
    error = answer.json()["error"]
    assert error["code"] == answer.status_code
    assert error["message"]
    return answer.status_code, error["type"]


def set_property(name: str, value: str) -> dict[str, Any]:
    """Return the update that sets a table's property."""
    return {"action": "set-properties", "updates": {name: value}}


def properties_of(http: httpx.Client, name: str = "t") -> dict[str, str]:
    """Return the properties of a table of the database `demo`."""
    properties: dict[str, str] = http.get(f"/namespaces/demo/tables/{name}").json()["metadata"]["properties"]
    return properties


if __name__ == "__main__":
    with Catalog.initialise(sys.argv[1]) as served, rest_server(served) as address:
        print(address, flush=True)
        sys.stdin.read()
