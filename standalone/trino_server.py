"""A Trino server from Maven Central, with one node and the catalogs that its caller names."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

from standalone.environment import REPOSITORY
from standalone.errors import SetUpError, TrinoError
from standalone.java import JVM_DIR, java_version
from standalone.postgres import HOST, free_port
from standalone.server_process import ServerProcess

VERSION = "476"
LEAST_JAVA = 24
JAVA_VARIABLE = "TRINO_JAVA_HOME"

_NAME = f"trino-server-{VERSION}"
_MAVEN_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
_PLUGINS = frozenset({"hive", "iceberg"})
_ANSWER_SECONDS = 120
_START_SECONDS = 600.0
# The options of Trino's documentation, except the memory.
_JVM_OPTIONS = (
    "-Xmx3G",
    "-XX:G1HeapRegionSize=32M",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:-OmitStackTraceInFastThrow",
    "-XX:ReservedCodeCacheSize=512M",
    "-XX:PerMethodRecompilationCutoff=10000",
    "-XX:PerBytecodeRecompilationCutoff=10000",
    "-Djdk.attach.allowAttachSelf=true",
    "-Djdk.nio.maxCachedBufferSize=2000000",
    "-Dfile.encoding=UTF-8",
    "-XX:+EnableDynamicAgentLoading",
    "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
    "--add-modules=jdk.incubator.vector",
)

log = logging.getLogger(__name__)


def installed(folder: Path = REPOSITORY / ".calve" / "trino") -> Path:
    """Return Trino's folder in `folder`; download it if it is missing, about 800 MB.

    Raises:
        SetUpError: Maven is missing, or the download failed.
    """
    home = folder / _NAME
    if home.exists():
        return home
    log.info("Downloading Trino %s", VERSION)
    unfinished = folder / "unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    with tarfile.open(_downloaded(unfinished / "maven")) as archive:
        archive.extractall(unfinished, filter="data")
    # Each plugin takes about a second at the start.
    for plugin in (unfinished / _NAME / "plugin").iterdir():
        if plugin.name not in _PLUGINS:
            shutil.rmtree(plugin)
    (unfinished / _NAME).rename(home)
    shutil.rmtree(unfinished)
    return home


def _downloaded(repository: Path) -> Path:
    maven = shutil.which("mvn")
    if maven is None:
        raise SetUpError("Maven is required to download Trino. Install it: sudo apt-get install maven")
    artifact = f"-Dartifact=io.trino:trino-server:{VERSION}:tar.gz"
    command = [maven, "-B", "-q", f"{_MAVEN_PLUGIN}:get", artifact, "-Dtransitive=false"]
    done = subprocess.run([*command, f"-Dmaven.repo.local={repository}"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SetUpError(f"Maven could not download {artifact}: {(done.stdout + done.stderr).strip()[-2000:]}")
    return repository / "io" / "trino" / "trino-server" / VERSION / f"{_NAME}.tar.gz"


def require_trino_java(environ: Mapping[str, str] = os.environ, jvm_dir: Path = JVM_DIR) -> Path:
    """Return the home of a Java that Trino supports: that of the environment variable, or the system's newest.

    Raises:
        SetUpError: There is none.
    """
    named = environ.get(JAVA_VARIABLE)
    homes = [Path(named)] if named else sorted(jvm_dir.glob("*"))
    version, home = max(((java_version(home) or 0, home) for home in homes), default=(0, jvm_dir))
    if version < LEAST_JAVA:
        raise SetUpError(
            f"Trino {VERSION} needs Java {LEAST_JAVA} or later, but {JAVA_VARIABLE} and {jvm_dir} have none. Install "
            f"one in addition to Spark's Java, for instance Eclipse Temurin 25, or set {JAVA_VARIABLE}."
        )
    return home


class TrinoServer:
    """A context manager that runs Trino on a free local port.

    Args:
        home: The result of `installed`.
        java: The result of `require_trino_java`.
        folder: The folder for configuration, data and log; it must not exist.
        catalogs: Name of a catalog → its properties, with `connector.name`. All catalogs read local files.

    Attributes:
        client: A client of the server.
    """

    def __init__(self, home: Path, java: Path, folder: Path, catalogs: Mapping[str, Mapping[str, str]]) -> None:
        self._home = home
        self._java = java
        self._folder = folder
        self._catalogs = catalogs
        self._process = ServerProcess("Trino", folder, folder / "trino.log")
        self.client = TrinoClient(free_port())

    def __enter__(self) -> Self:
        """Start the server, and wait until it accepts statements.

        Raises:
            StackError: The server does not start; the message has the end of its log.
        """
        self._configure()
        self._process.start(self._command(), self.client.is_ready, seconds=_START_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the server."""
        self._process.stop()

    def _configure(self) -> None:
        files: dict[str, Mapping[str, str]] = {
            "config.properties": {
                "coordinator": "true",
                "node-scheduler.include-coordinator": "true",
                "http-server.http.port": str(self.client.port),
                "discovery.uri": f"http://{HOST}:{self.client.port}",
                "plugin.dir": str(self._home / "plugin"),
                "query.max-memory": "1GB",
                "query.max-memory-per-node": "1GB",
            },
            **{
                f"catalog/{name}.properties": {"fs.hadoop.enabled": "true", **properties}
                for name, properties in self._catalogs.items()
            },
        }
        (self._folder / "etc" / "catalog").mkdir(parents=True)
        for name, properties in files.items():
            lines = [f"{key}={value}\n" for key, value in properties.items()]
            (self._folder / "etc" / name).write_text("".join(lines))

    def _command(self) -> list[str]:
        settings = {
            "node.environment": "local",
            "node.id": "local",
            "node.data-dir": self._folder,
            "node.bind-ip": HOST,
            "node.internal-address": HOST,
            "config": self._folder / "etc" / "config.properties",
        }
        return [
            str(self._java / "bin" / "java"),
            *_JVM_OPTIONS,
            *(f"-D{name}={value}" for name, value in settings.items()),
            "-cp",
            str(self._home / "lib" / "*"),
            "io.trino.server.TrinoServer",
        ]


class TrinoClient:
    """Runs statements on a local Trino through its HTTP protocol.

    Attributes:
        port: The server's port.
    """

    def __init__(self, port: int) -> None:
        self.port = port

    def is_ready(self) -> bool:
        """Return whether the server accepts statements."""
        try:
            return self._answer(Request(f"{self._url}/v1/info"))["starting"] is False
        except (URLError, ConnectionError):
            return False

    def run(self, statement: str, properties: Mapping[str, object] | None = None) -> list[list[Any]]:
        """Run a statement, and wait until it ends; return the rows of its result.

        Args:
            properties: Session properties, such as `hive.insert_existing_partitions_behavior`.

        Raises:
            TrinoError: The statement failed; the message has the reason.
        """
        session = ",".join(f"{name}={quote(str(value))}" for name, value in (properties or {}).items())
        headers = {"X-Trino-User": "calve", "X-Trino-Session": session}
        answer = self._answer(Request(f"{self._url}/v1/statement", statement.encode(), headers))
        rows = list(answer.get("data", ()))
        while "nextUri" in answer:
            answer = self._answer(Request(answer["nextUri"], headers=headers))
            rows += answer.get("data", ())
        if "error" in answer:
            raise TrinoError(f"Trino could not run {statement}: {_reasons(answer['error'])}")
        return rows

    @property
    def _url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def _answer(self, request: Request) -> dict[str, Any]:
        with urlopen(request, timeout=_ANSWER_SECONDS) as response:
            answer: dict[str, Any] = json.load(response)
        return answer


def _reasons(error: Mapping[str, Any]) -> str:
    """Return the messages of an error and of its causes."""
    messages, cause = [error["message"]], error.get("failureInfo", {}).get("cause")
    while cause is not None:
        messages.append(cause.get("message", cause["type"]))
        cause = cause.get("cause")
    return ": ".join(messages)
