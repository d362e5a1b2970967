"""A running Glue door, and clients of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from catalog import Catalog
from catalog.doors.glue.application import application, error_body
from catalog.doors.serving.access import WITHOUT_CREDENTIALS, Access, Client, Key, Role
from catalog.doors.serving.context import Serving
from catalog.doors.serving.http import Wrapped
from catalog.doors.serving.limits import Limits
from catalog.doors.serving.metrics import Metrics

REGION = "eu-west-1"
KEYS = Access(
    {
        name: Key(name, f"the-secret-of-{name}", Client(name.lower(), role))
        for name, role in (("READER", Role.READER), ("WRITER", Role.WRITER), ("OWNER", Role.OWNER))
    }
)


class GlueDoor:
    """The address of a running door."""

    def __init__(self, catalog: Catalog, url: str) -> None:
        """Keep the catalog behind it."""
        self.catalog = catalog
        self.url = url

    def client(self, name: str = "OWNER", **more: Any) -> Any:
        """Return boto3's client with one of `KEYS`."""
        import boto3

        secret = KEYS.keys[name].secret_key
        keys = {"aws_access_key_id": name, "aws_secret_access_key": secret, "region_name": REGION, **more}
        return boto3.client("glue", endpoint_url=self.url, **keys)


@contextmanager
def serving_glue(
    catalog: Catalog,
    folder: Path,
    access: Access = WITHOUT_CREDENTIALS,
    limits: Limits | None = None,
    *,
    clock: Callable[[], float] = time.time,
) -> Iterator[GlueDoor]:
    """Serve a catalog on a free local port.

    Args:
        folder: For the metrics.
        clock: Returns seconds since 1970 UTC, for signatures.
    """
    serving = Serving(catalog, Metrics(folder), access, limits or Limits())
    served = Wrapped(application(serving, clock), "glue", serving, error_body)  # type: ignore[arg-type]
    server = uvicorn.Server(uvicorn.Config(served, "127.0.0.1", 0, log_level="error", http="httptools"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server has not started"
        time.sleep(0.005)
    [socket] = server.servers[0].sockets
    try:
        yield GlueDoor(catalog, f"http://127.0.0.1:{socket.getsockname()[1]}")
    finally:
        server.should_exit = True
        thread.join(30)


def table_input(name: str, keys: Mapping[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """Return the definition of a small table of Parquet files."""
    from tests.support.glue_endpoint import columns, storage

    return {
        "Name": name,
        "TableType": "EXTERNAL_TABLE",
        "StorageDescriptor": storage(more.pop("location", f"s3://lake/{name}")),
        "PartitionKeys": columns(*(keys or {}).items()),
        **more,
    }
