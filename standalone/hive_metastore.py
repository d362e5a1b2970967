"""A Hive Metastore from PySpark's jars with an embedded Derby database."""

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
# The configuration in Hive's jar logs asynchronously and needs a class that is missing.
_LOGGING = """status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


class HiveMetastoreServer:
    """A context manager that runs a metastore in a separate process, on a free local port.

    Attributes:
        warehouse: Folder of tables that are created without a location.
    """

    def __init__(
        self,
        folder: Path,
        *,
        settings: Mapping[str, str] | None = None,
        options: str = "",
        java_options: Sequence[str] = (),
        jars: Sequence[Path] = (),
    ) -> None:
        """Use an empty folder for the database, the warehouse and the log.

        Args:
            settings: Additional settings of Hadoop and the metastore, such as those of TLS and Kerberos.
            options: Options of the source address, such as `tls=true`.
            java_options: Options of the JVM.
            jars: More jars, such as the driver of another database.
        """
        self._folder = folder
        self._custom_settings = dict(settings or {})
        self._query = f"?{options}" if options else ""
        self._java_options = java_options
        self._jars = jars
        self.warehouse = folder / "warehouse"
        self.port = free_port()
        self._process = ServerProcess("The metastore", folder, folder / "metastore.log")

    @property
    def uri(self) -> str:
        """The value for `hive.metastore.uris`."""
        return f"thrift://{HOST}:{self.port}"

    def source(self, path: str = "") -> str:
        """Return the metastore's address as an import source."""
        return f"hms://{HOST}:{self.port}{path}{self._query}"

    def client(self) -> Any:
        """Return the catalog's client for this metastore."""
        from catalog.metastores.hms import HiveMetastore

        return HiveMetastore(SourceAddress.parse(self.source())[0])

    def drop_database(self, name: str) -> None:
        """Drop a database with all its tables, but keep their files."""
        with self.client() as client:
            client._client.drop_database(name, False, True)

    def __enter__(self) -> Self:
        """Start the server, and wait until it responds.

        Raises:
            StackError: The server does not respond; the message has the end of its log.
        """
        self.warehouse.mkdir(parents=True)
        conf = self._folder / "conf"
        conf.mkdir()
        (conf / "hive-site.xml").write_text(_as_xml(self._settings() | self._custom_settings))
        (conf / "core-site.xml").write_text(_as_xml(self._custom_settings))
        (conf / "hive-log4j2.properties").write_text(_LOGGING)
        (conf / "log4j2.properties").write_text(_LOGGING)
        self._process.start(self._command(conf), self._is_ready)
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
            os.pathsep.join(map(str, (conf, jars, *self._jars))),
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
            # Creates the tables of transactions and locks, which dropping a database needs.
            "hive.in.test": "true",
            "hive.metastore.schema.verification": "false",
            "hive.metastore.warehouse.dir": f"file:{self.warehouse}",
            "hive.async.log.enabled": "false",
            "hive.metastore.server.min.threads": "4",
        }

    def _is_ready(self) -> bool:
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
