"""A catalog with its front doors, and a Trino that has a catalog for each way to use them."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from catalog import Catalog
from catalog.statements.session import Session
from standalone.calve_server import CalveServer
from standalone.state import write_private
from standalone.trino_server import TrinoClient, TrinoServer, installed, require_trino_java

HIVE = {"hive": "hms", "hive_glue": "glue"}
"""Catalogs of Trino's Hive connector → the door."""

TYPED = {"hive_typed": "hms", "hive_glue_typed": "glue"}
"""Catalogs of the Hive connector that send filters on keys of all types, and not only of strings → the door."""

ICEBERG = {"iceberg": "hms", "iceberg_glue": "glue", "iceberg_rest": "rest"}
"""Catalogs of Trino's Iceberg connector → the door."""

_KEY, _SECRET = "TRINO", "the-secret-key-of-trino"
_CLIENTS = f"clients: {{trino: {{role: owner, access_key: {_KEY}, secret_key: {_SECRET}}}}}\n"
_SEARCHES = re.compile(r'calve_door_searches_total\{table="([^"]+)",way="(\w+)"\} (\d+)')


@dataclass(frozen=True)
class Lake:
    """A catalog, Trino on its doors, and statements of Calve.

    Attributes:
        trino: The client of Trino, which has the catalogs of `HIVE`, `TYPED` and `ICEBERG`.
        session: Calve's statements, on Spark.
        servers: Door → the server that has it.
        folder: A folder in which tables may be, outside the warehouse.
    """

    catalog: Catalog
    trino: TrinoClient
    session: Session
    servers: Mapping[str, CalveServer]
    folder: Path

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement that Calve runs."""
        return [tuple(row) for row in self.session.execute(statement).rows]

    def searches(self, door: str, table: str) -> dict[str, int]:
        """Return how often partitions of a table were searched through a door: by `index`, and by reading `all`."""
        proof = {"Authorization": f"Basic {b64encode(f'{_KEY}:{_SECRET}'.encode()).decode()}"}
        request = Request(f"http://{self.servers[door].address('metrics')}/metrics", headers=proof)
        with urlopen(request, timeout=30) as answer:
            text = answer.read().decode()
        return {way: int(count) for name, way, count in _SEARCHES.findall(text) if name == table}


@contextmanager
def running_lake(catalog: Catalog, session: Session, folder: Path, environment: Mapping[str, str]) -> Iterator[Lake]:
    """Serve a catalog, and run Trino on it.

    The client of the HTTP doors has keys. Trino cannot prove any to the Hive Metastore door without TLS.

    Args:
        environment: The variables that name the catalog and its warehouse.

    Raises:
        SetUpError: Maven or a Java for Trino is missing.
        StackError: A server does not start.
    """
    keys = folder / "keys.yaml"
    write_private(keys, _CLIENTS)
    for name in ("thrift", "http", "tables"):
        (folder / name).mkdir()
    thrift = CalveServer(folder / "thrift", doors=("hms", "metrics"), environment=environment)
    with_keys = {**environment, "CALVE_DOOR_KEYS": str(keys)}
    http = CalveServer(folder / "http", doors=("glue", "rest", "metrics"), environment=with_keys)
    with thrift, http:
        servers = {"hms": thrift, "glue": http, "rest": http}
        addresses = {door: server.address(door) for door, server in servers.items()}
        catalogs = _catalogs(addresses, environment["CALVE_WAREHOUSE"])
        with TrinoServer(installed(), require_trino_java(), folder / "trino", catalogs) as trino:
            yield Lake(catalog, trino.client, session, servers, folder / "tables")


def _catalogs(addresses: Mapping[str, str], warehouse: str) -> dict[str, dict[str, str]]:
    metastore = {"hive.metastore.uri": f"thrift://{addresses['hms']}"}
    glue = {
        "hive.metastore.glue.endpoint-url": f"http://{addresses['glue']}",
        "hive.metastore.glue.region": "eu-west-1",
        "hive.metastore.glue.aws-access-key": _KEY,
        "hive.metastore.glue.aws-secret-key": _SECRET,
        "hive.metastore.glue.default-warehouse-dir": f"file://{warehouse}",
    }
    rest = {
        "iceberg.rest-catalog.uri": f"http://{addresses['rest']}",
        "iceberg.rest-catalog.security": "OAUTH2",
        "iceberg.rest-catalog.oauth2.credential": f"{_KEY}:{_SECRET}",
    }
    hive = {
        "connector.name": "hive",
        "hive.allow-register-partition-procedure": "true",
        "hive.non-managed-table-writes-enabled": "true",
    }
    iceberg = {
        "connector.name": "iceberg",
        "iceberg.register-table-procedure.enabled": "true",
        "iceberg.expire-snapshots.min-retention": "0s",
    }
    on_thrift = {**hive, **metastore, "hive.iceberg-catalog-name": "iceberg"}
    on_glue = {**hive, "hive.metastore": "glue", **glue, "hive.iceberg-catalog-name": "iceberg_glue"}
    return {
        "hive": on_thrift,
        "hive_typed": {**on_thrift, "hive.metastore.thrift.assume-canonical-partition-keys": "true"},
        "hive_glue": on_glue,
        "hive_glue_typed": {**on_glue, "hive.metastore.glue.assume-canonical-partition-keys": "true"},
        "iceberg": {**iceberg, "iceberg.catalog.type": "hive_metastore", **metastore},
        "iceberg_glue": {**iceberg, "iceberg.catalog.type": "glue", **glue},
        "iceberg_rest": {**iceberg, "iceberg.catalog.type": "rest", **rest},
    }
