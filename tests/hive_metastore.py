"""A real Hive Metastore: the server that is in PySpark's jars, on an embedded Derby database."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import IO, Any, Self
from xml.sax.saxutils import escape

from catalog.errors import SourceUnavailableError
from catalog.importing.address import SourceAddress
from standalone.class_archive import spark_home
from standalone.java import require_java
from tests.glue_endpoint import PARQUET

_MAIN = "org.apache.hadoop.hive.metastore.HiveMetaStore"
_START_SECONDS = 180
_OPENED = ("java.lang", "java.lang.invoke", "java.net", "java.nio", "java.util", "java.util.concurrent", "sun.nio.ch")
# One appender and no others: the configuration in Hive's jar logs asynchronously, by a class that is not there.
_LOGGING = """status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


class HiveMetastoreServer:
    """A metastore in a process of its own, on a free port of this machine; a context manager that stops it.

    Attributes:
        warehouse: Folder of the tables that are created without a location.
    """

    def __init__(self, folder: Path) -> None:
        """Take an empty folder for the database, the warehouse and the log."""
        self._folder = folder
        self.warehouse = folder / "warehouse"
        self._log: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]

    @property
    def uri(self) -> str:
        """What `hive.metastore.uris` has to be."""
        return f"thrift://127.0.0.1:{self.port}"

    def source(self, path: str = "") -> str:
        """Return the address of the metastore as a source."""
        return f"hms://127.0.0.1:{self.port}{path}"

    def client(self) -> Any:
        """Return a client of the catalog's."""
        from catalog.importing.hms import HiveMetastore

        return HiveMetastore(SourceAddress.parse(self.source())[0])

    def drop_database(self, name: str) -> None:
        """Drop a database with all its tables, and leave their files."""
        with self.client() as client:
            client._client.drop_database(name, False, True)

    def __enter__(self) -> Self:
        """Start the server, and wait until it answers."""
        self.warehouse.mkdir(parents=True)
        conf = self._folder / "conf"
        conf.mkdir()
        (conf / "hive-site.xml").write_text(self._settings())
        (conf / "hive-log4j2.properties").write_text(_LOGGING)
        (conf / "log4j2.properties").write_text(_LOGGING)
        self._log = (self._folder / "metastore.log").open("wb")
        self._process = subprocess.Popen(
            self._command(conf), cwd=self._folder, stdout=self._log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the process, by its own id."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._log is not None:
            self._log.close()

    def _command(self, conf: Path) -> list[str]:
        jars = spark_home() / "jars" / "*"
        opened = [option for name in _OPENED for option in ("--add-opens", f"java.base/{name}=ALL-UNNAMED")]
        return [
            str(Path(require_java()) / "bin" / "java"),
            "-Xmx512m",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Dlog4j2.contextSelector=org.apache.logging.log4j.core.selector.BasicContextSelector",
            "-Dlog4j2.disable.jmx=true",
            f"-Dlog4j.configurationFile={conf / 'log4j2.properties'}",
            f"-Dderby.stream.error.file={self._folder / 'derby.log'}",
            *opened,
            "-cp",
            f"{conf}{os.pathsep}{jars}",
            _MAIN,
            "-p",
            str(self.port),
        ]

    def _settings(self) -> str:
        settings = {
            "javax.jdo.option.ConnectionURL": f"jdbc:derby:{self._folder}/metastore;create=true",
            "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
            "datanucleus.schema.autoCreateAll": "true",
            "datanucleus.connectionPoolingType": "HikariCP",
            # Makes the tables of transactions and locks, without which no database can be dropped.
            "hive.in.test": "true",
            "hive.metastore.schema.verification": "false",
            "hive.metastore.warehouse.dir": f"file:{self.warehouse}",
            "hive.async.log.enabled": "false",
            "hive.metastore.server.min.threads": "4",
        }
        fields = "".join(
            f"<property><name>{name}</name><value>{escape(value)}</value></property>"
            for name, value in settings.items()
        )
        return f"<configuration>{fields}</configuration>"

    def _wait(self) -> None:
        assert self._process is not None
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until:
            if self._process.poll() is not None:
                break
            try:
                with self.client() as client:
                    client.databases()
                    return
            except SourceUnavailableError:
                time.sleep(0.2)
        said = (self._folder / "metastore.log").read_text(errors="replace")[-4_000:]
        raise RuntimeError(f"the metastore does not answer; it said: {said}")


class Metastore:
    """A metastore through its own protocol, with one database that is made for a test."""

    def __init__(self, server: HiveMetastoreServer, source: Any, database: str) -> None:
        from hive_metastore import ttypes

        self.types: Any = ttypes
        self.source = source
        self.thrift = source._client
        self.address = server.source()
        self.database = database
        self.root = f"file:{server.warehouse}/{database}.db"
        made = ttypes.Database(
            name=database, description="What we sell", locationUri=self.root, parameters={"by": "etl"}
        )
        self.thrift.create_database(made)

    def storage(self, location: str, classes: Any = PARQUET, **fields: Any) -> Any:
        input_format, output_format, serde = classes
        columns = [self.types.FieldSchema("id", "bigint", "which"), self.types.FieldSchema("name", "varchar(20)", None)]
        said = {"bucketCols": [], "sortCols": [], "numBuckets": -1, "parameters": {}, "compressed": False, **fields}
        return self.types.StorageDescriptor(
            cols=columns,
            location=location,
            inputFormat=input_format,
            outputFormat=output_format,
            serdeInfo=self.types.SerDeInfo(serializationLib=serde, parameters={"serialization.format": "1"}),
            **said,
        )

    def create(self, name: str = "orders", keys: Any = (("day", "date"), ("s", "string")), **fields: Any) -> None:
        said: dict[str, Any] = {
            "owner": "me",
            "tableType": "MANAGED_TABLE",
            "parameters": {"owner.team": "sales", "comment": "All orders"},
            "sd": self.storage(f"{self.root}/{name}"),
            **fields,
        }
        made = [self.types.FieldSchema(key, text, "a key") for key, text in keys]
        self.thrift.create_table(self.types.Table(tableName=name, dbName=self.database, partitionKeys=made, **said))

    def add(self, values: Any, name: str = "orders", classes: Any = PARQUET, where: str = "own/", **more: str) -> None:
        made = [
            self.types.Partition(
                values=list(each),
                dbName=self.database,
                tableName=name,
                sd=self.storage(f"{self.root}/{where}{number}", classes),
                parameters=dict(more),
            )
            for number, each in enumerate(values)
        ]
        self.thrift.add_partitions(made)

    def table(self, name: str = "orders") -> Any:
        """Return a table without times that change by themselves."""
        found = self.thrift.get_table(self.database, name)
        found.lastAccessTime = None
        found.parameters.pop("transient_lastDdlTime")
        return found

    def alter(self, **parameters: str) -> None:
        found = self.thrift.get_table(self.database, "orders")
        found.parameters |= parameters
        self.thrift.alter_table(self.database, "orders", found)
