"""The door of the Hive Metastore protocol on a free port, and clients of it."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hive_metastore import ThriftHiveMetastore, ttypes
from thrift.protocol import TBinaryProtocol
from thrift.transport import TSocket, TTransport

from catalog import Catalog
from catalog.doors.hms.server import prepare
from catalog.doors.serving.access import WITHOUT_CREDENTIALS, Access
from catalog.doors.serving.context import Serving
from catalog.doors.serving.limits import Limits
from catalog.doors.serving.metrics import Metrics

HOST = "127.0.0.1"
_START, _OK, _COMPLETE = 1, 2, 5
"""Statuses of SASL's negotiation in Thrift."""

PARQUET = (
    "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
    "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
    "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
)


class HmsDoor:
    """A context manager that serves a catalog in a thread.

    Attributes:
        warehouse: The folder of all databases.
    """

    def __init__(
        self,
        catalog: Catalog,
        folder: Path,
        warehouse: Path,
        *,
        access: Access = WITHOUT_CREDENTIALS,
        limits: Limits | None = None,
    ) -> None:
        """Use a folder for the metrics."""
        self.warehouse = warehouse
        self._listener = socket.create_server((HOST, 0), backlog=100)
        self.port: int = self._listener.getsockname()[1]
        self.serving = Serving(catalog, Metrics(folder), access=access, limits=limits or Limits(stop_seconds=5))
        catalog.searched = self.serving.metrics.searched
        self._thread = threading.Thread(target=prepare(self.serving), args=(self._listener,))

    @property
    def uri(self) -> str:
        """The value for `hive.metastore.uris`."""
        return f"thrift://{HOST}:{self.port}"

    def __enter__(self) -> Self:
        """Start to serve."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.serving.stop.set()
        self._thread.join()
        self._listener.close()

    @contextmanager
    def client(self) -> Iterator[Any]:
        """Yield a client with a connection of its own."""
        with connected(self.port) as client:
            yield client


@contextmanager
def connected(port: int, keys: tuple[str, str] | None = None) -> Iterator[Any]:
    """Yield a client of a metastore on this machine, which proves access key and secret key, if it has them.

    Raises:
        AssertionError: The server refuses the keys; the message is its own.
    """
    socket = TSocket.TSocket(HOST, port)
    # SASL's frames of messages without protection are those of Thrift's framed transport.
    transport = TTransport.TFramedTransport(socket) if keys else TTransport.TBufferedTransport(socket)
    transport.open()
    try:
        if keys:
            _prove(socket, *keys)
        yield ThriftHiveMetastore.Client(TBinaryProtocol.TBinaryProtocolAccelerated(transport))
    finally:
        transport.close()


def _prove(socket: TSocket.TSocket, access_key: str, secret_key: str) -> None:
    """Do SASL's negotiation of the mechanism PLAIN."""
    for status, text in ((_START, b"PLAIN"), (_OK, f"\0{access_key}\0{secret_key}".encode())):
        socket.write(struct.pack("!BI", status, len(text)) + text)
    status, length = struct.unpack("!BI", socket.readAll(5))
    message = socket.readAll(length) if length else b""
    assert status == _COMPLETE, message.decode()


def columns(**types: str) -> list[Any]:
    """Return columns, given name → type."""
    return [ttypes.FieldSchema(name=name, type=column_type, comment=None) for name, column_type in types.items()]


def storage(location: str | None = None, **fields: Any) -> Any:
    """Return a storage descriptor of Parquet files with the column `id`."""
    given = {
        "cols": columns(id="bigint"),
        "location": location,
        "inputFormat": PARQUET[0],
        "outputFormat": PARQUET[1],
        "serdeInfo": ttypes.SerDeInfo(serializationLib=PARQUET[2], parameters={"serialization.format": "1"}),
        "bucketCols": [],
        "sortCols": [],
        "numBuckets": -1,
        "compressed": False,
        "parameters": {},
        **fields,
    }
    return ttypes.StorageDescriptor(**given)


def table(database: str, name: str, keys: dict[str, str] | None = None, **fields: Any) -> Any:
    """Return a managed table of Parquet files with the column `id`."""
    given = {
        "owner": "me",
        "sd": storage(),
        "partitionKeys": columns(**(keys or {})),
        "parameters": {},
        "tableType": "MANAGED_TABLE",
        **fields,
    }
    return ttypes.Table(tableName=name, dbName=database, **given)


def partition(database: str, name: str, values: list[str], **fields: Any) -> Any:
    """Return a partition in its usual folder."""
    given = {"sd": storage(), "parameters": {}, **fields}
    return ttypes.Partition(values=values, dbName=database, tableName=name, **given)
