"""Iceberg's REST door on a free port of this machine, in threads of the test's process or alone."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

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


if __name__ == "__main__":
    with Catalog.initialise(sys.argv[1]) as served, rest_server(served) as address:
        print(address, flush=True)
        sys.stdin.read()
