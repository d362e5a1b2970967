"""A real Hive Metastore on the benchmarks' PostgreSQL with the sample, and the client that asks it and Calve."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import Database, FieldSchema, Partition, SerDeInfo, StorageDescriptor, Table
from sqlalchemy import make_url
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from benchmarks.databases import Postgresql
from benchmarks.sample import KEYS, LOCATION, TABLE, partitions
from catalog.settings.environment import DRIVERS
from standalone.hive_metastore import HiveMetastoreServer
from standalone.spark_jars import fetch_jars

_TIMEOUT_MS = 1_800_000
_FORMAT = "org.apache.hadoop.mapred.TextInputFormat"
_OUTPUT = "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat"
_SERDE = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"

# The metastore adds a few hundred partitions a second, so all but the first are copied from that in its tables.
_FILL = """
CREATE TEMPORARY TABLE template AS
SELECT p."PART_ID" AS part_id, p."TBL_ID" AS tbl_id, p."SD_ID" AS sd_id, s."CD_ID" AS cd_id, s."SERDE_ID" AS serde_id
FROM "PARTITIONS" p JOIN "SDS" s USING ("SD_ID");
INSERT INTO "SERDES" ("SERDE_ID", "NAME", "SLIB")
SELECT serde_id + number, "NAME", "SLIB" FROM arrived, template JOIN "SERDES" ON "SERDE_ID" = serde_id;
INSERT INTO "SDS" ("SD_ID", "CD_ID", "INPUT_FORMAT", "IS_COMPRESSED", "IS_STOREDASSUBDIRECTORIES", "LOCATION",
    "NUM_BUCKETS", "OUTPUT_FORMAT", "SERDE_ID")
SELECT sd_id + number, cd_id, "INPUT_FORMAT", "IS_COMPRESSED", "IS_STOREDASSUBDIRECTORIES", location,
    "NUM_BUCKETS", "OUTPUT_FORMAT", serde_id + number
FROM arrived, template JOIN "SDS" ON "SD_ID" = sd_id;
INSERT INTO "PARTITIONS" ("PART_ID", "CREATE_TIME", "LAST_ACCESS_TIME", "PART_NAME", "SD_ID", "TBL_ID")
SELECT part_id + number, 1700000000, 0, name, sd_id + number, tbl_id FROM arrived, template;
INSERT INTO "PARTITION_KEY_VALS" ("PART_ID", "PART_KEY_VAL", "INTEGER_IDX")
SELECT part_id + number, key.value, key.place - 1
FROM arrived, template, unnest(ARRAY[country, category, year, month, day]) WITH ORDINALITY AS key (value, place);
INSERT INTO "PARTITION_PARAMS" ("PART_ID", "PARAM_KEY", "PARAM_VALUE")
SELECT part_id + number, param.name, param.value
FROM arrived, template
CROSS JOIN LATERAL (VALUES ('numFiles', files), ('numRows', rows), ('totalSize', bytes)) AS param (name, value);
"""
_ARRIVED = "number bigint, country text, category text, year text, month text, day text, name text, location text, "
_PARAMETERS = "files text, rows text, bytes text"


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Open a client of the Hive Metastore protocol, for any server of it.

    Args:
        address: `host:port`.
    """
    host, port = address.rsplit(":", 1)
    socket = TSocket(host, int(port))
    socket.setTimeout(_TIMEOUT_MS)
    transport = TBufferedTransport(socket, 1 << 20)
    transport.open()
    try:
        yield Client(TBinaryProtocolAccelerated(transport))
    finally:
        transport.close()


@contextmanager
def running(folder: Path, postgresql: Postgresql, partition_count: int) -> Iterator[str]:
    """Run a metastore that has the sample; yield its `host:port`."""
    folder.mkdir(parents=True)
    name = f"metastore_{partition_count}"
    url = make_url(postgresql.create(name))
    settings = {
        "javax.jdo.option.ConnectionURL": f"jdbc:postgresql://{url.host}:{url.port}/{name}",
        "javax.jdo.option.ConnectionDriverName": "org.postgresql.Driver",
        "javax.jdo.option.ConnectionUserName": url.username or "",
        "javax.jdo.option.ConnectionPassword": str(url.password or ""),
        # A thread and a connection to the database for each client.
        "hive.metastore.server.min.threads": "64",
        "datanucleus.connectionPool.maxPoolSize": "64",
    }
    jars = fetch_jars(folder / "jars", (DRIVERS["postgresql"],))
    # All partitions of the largest table are in its memory at once.
    with HiveMetastoreServer(folder, settings=settings, jars=jars, java_options=("-Xmx6g",)) as server:
        address = server.uri.removeprefix("thrift://")
        with connected(address) as client:
            _create(client)
        _fill(postgresql, name, partition_count)
        yield address


def _create(client: Any) -> None:
    database, table = TABLE.split(".")
    client.create_database(Database(database, locationUri=f"file:{LOCATION}", parameters={}))
    keys = [FieldSchema(name, kind, None) for name, kind in KEYS]
    client.create_table(
        Table(
            table,
            database,
            "bench",
            0,
            0,
            0,
            _storage(LOCATION),
            keys,
            {"EXTERNAL": "TRUE"},
            tableType="EXTERNAL_TABLE",
        )
    )
    first = next(partitions(1))
    client.add_partition(Partition(list(first.values), database, table, 0, 0, _storage(_location(first.values)), {}))


def _storage(location: str) -> Any:
    columns = [FieldSchema("amount", "double", None)]
    serde = SerDeInfo(None, _SERDE, {})
    return StorageDescriptor(columns, f"file:{location}", _FORMAT, _OUTPUT, False, -1, serde, [], [], {})


def _fill(postgresql: Postgresql, name: str, partition_count: int) -> None:
    driver = postgresql.connect(name)
    try:
        driver.run(f"CREATE TABLE arrived ({_ARRIVED}{_PARAMETERS})")
        with driver.connection.cursor() as cursor, cursor.copy(b"COPY arrived FROM STDIN") as copy:
            for number, partition in enumerate(partitions(partition_count)):
                # The metastore has the first.
                if number:
                    path = _path(partition.values)
                    counts = (partition.file_count, partition.row_count, partition.size_bytes)
                    copy.write_row((number, *partition.values, path, f"file:{LOCATION}/{path}", *counts))
        for statement in _FILL.split(";"):
            if statement.strip():
                driver.run(statement)
        driver.run("DROP TABLE arrived")
    finally:
        driver.close()
    postgresql.settle(name)


def _path(values: Iterable[str | None]) -> str:
    return "/".join(f"{key}={value}" for (key, _), value in zip(KEYS, values, strict=True))


def _location(values: Iterable[str | None]) -> str:
    return f"{LOCATION}/{_path(values)}"
