"""A real Hive Metastore: the server that is in PySpark's jars, on an embedded Derby database."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from xml.sax.saxutils import escape

from catalog.errors import SourceUnavailableError
from catalog.metastores.address import SourceAddress
from standalone.class_archive import spark_home
from standalone.java import require_java
from standalone.postgres import HOST, free_port
from standalone.server_process import ServerProcess

_MAIN = "org.apache.hadoop.hive.metastore.HiveMetaStore"
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

    def __init__(
        self,
        folder: Path,
        *,
        settings: Mapping[str, str] | None = None,
        options: str = "",
        java_options: Sequence[str] = (),
    ) -> None:
        """Take an empty folder for the database, the warehouse and the log.

        Args:
            settings: More settings of Hadoop and of the metastore, such as those of TLS and Kerberos.
            options: Those of the source's address that reaches it then, such as `tls=true`.
            java_options: Of its virtual machine.
        """
        self._folder = folder
        self._more = dict(settings or {})
        self._query = f"?{options}" if options else ""
        self._java_options = java_options
        self.warehouse = folder / "warehouse"
        self.port = free_port()
        self._process = ServerProcess("The metastore", folder, folder / "metastore.log")

    @property
    def uri(self) -> str:
        """What `hive.metastore.uris` has to be."""
        return f"thrift://{HOST}:{self.port}"

    def source(self, path: str = "") -> str:
        """Return the address of the metastore as a source."""
        return f"hms://{HOST}:{self.port}{path}{self._query}"

    def client(self) -> Any:
        """Return a client of the catalog's."""
        from catalog.metastores.hms import HiveMetastore

        return HiveMetastore(SourceAddress.parse(self.source())[0])

    def drop_database(self, name: str) -> None:
        """Drop a database with all its tables, and leave their files."""
        with self.client() as client:
            client._client.drop_database(name, False, True)

    def __enter__(self) -> Self:
        """Start the server, and wait until it answers.

        Raises:
            StackError: It does not; the message carries the end of its log.
        """
        self.warehouse.mkdir(parents=True)
        conf = self._folder / "conf"
        conf.mkdir()
        (conf / "hive-site.xml").write_text(_as_xml(self._settings() | self._more))
        (conf / "core-site.xml").write_text(_as_xml(self._more))
        (conf / "hive-log4j2.properties").write_text(_LOGGING)
        (conf / "log4j2.properties").write_text(_LOGGING)
        self._process.start(self._command(conf), self._answers)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the server."""
        self._process.stop()

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
            *self._java_options,
            f"-Dlog4j.configurationFile={conf / 'log4j2.properties'}",
            f"-Dderby.stream.error.file={self._folder / 'derby.log'}",
            *opened,
            "-cp",
            f"{conf}{os.pathsep}{jars}",
            _MAIN,
            "-p",
            str(self.port),
        ]

    def _settings(self) -> dict[str, str]:
        return {
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

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                client.databases()
        except SourceUnavailableError:
            return False
        return True


def _as_xml(settings: Mapping[str, str]) -> str:
    fields = "".join(
        f"<property><name>{name}</name><value>{escape(value)}</value></property>" for name, value in settings.items()
    )
    return f"<configuration>{fields}</configuration>"
