"""The processes of a deployment on several hosts, in one place.

`make cluster` runs them on this machine, and a test compares docker-compose.yaml with them.
"""

from __future__ import annotations

import json
import sys
import sysconfig
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

EVERYTHING = ("Admin", "Read", "Write", "List", "Tagging")
"""All actions that SeaweedFS can allow a user."""

AIRFLOW_COMPONENTS: Mapping[str, tuple[str, ...]] = {
    # Log servers are not needed, because all components share the folder of logs, and would listen on all interfaces.
    "api-server": ("api-server",),
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "dag-processor": ("dag-processor",),
    "triggerer": ("triggerer", "--skip-serve-logs"),
}
"""Airflow's components: name → arguments of `airflow`."""

_LAUNCHER = Path(__file__).with_name("store_server.py")
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_HEALTH_SECONDS = 5.0


@dataclass(frozen=True)
class Service:
    """A long-running process.

    Attributes:
        name: Its name in messages, and in docker-compose.yaml.
        command: Program and arguments.
        environment: The variables that it needs, besides those of its host.
        health_url: A page that responds with status 200 when the process is ready.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    health_url: str | None = None

    @property
    def health_command(self) -> tuple[str, ...]:
        """A command that succeeds when the process is ready, for images with Python."""
        return ("python", "-c", f"import urllib.request as r; r.urlopen('{self.health_url}')")

    def is_healthy(self) -> bool:
        """Return whether the process is ready; always true without a page."""
        return self.health_url is None or _responds(self.health_url)


@dataclass(frozen=True)
class SparkCluster:
    """A standalone cluster of Spark: a master, and workers that register with it.

    Attributes:
        spark_home: Folder of Spark.
        host: Name of the master, under which workers and drivers reach it.
        port: Port of the master.
        web_port: Port of the master's pages.
        worker_cores: Cores that one worker offers.
        worker_memory: Memory that one worker offers, as in `2g`.
    """

    spark_home: Path
    host: str = "spark-master"
    port: int = 7077
    web_port: int = 8081
    worker_cores: str = "2"
    worker_memory: str = "2g"

    @property
    def url(self) -> str:
        """The master, as Spark names it."""
        return f"spark://{self.host}:{self.port}"

    def master(self) -> Service:
        """Return the master."""
        return Service(
            "spark-master",
            self._command(
                "master.Master",
                *("--host", self.host, "--port", str(self.port), "--webui-port", str(self.web_port)),
            ),
            health_url=f"http://{self.host}:{self.web_port}/json/",
        )

    def worker(self, name: str, host: str, web_port: int, work_dir: Path) -> Service:
        """Return a worker.

        Args:
            name: The name of the service.
            host: Name under which the master and drivers reach the worker.
            web_port: Port of the worker's pages.
            work_dir: Folder of the applications' files; those of ended ones are removed after some time.
        """
        return Service(
            name,
            self._command(
                "worker.Worker",
                *("--host", host, "--webui-port", str(web_port)),
                *("--cores", self.worker_cores, "--memory", self.worker_memory, "--work-dir", str(work_dir)),
                self.url,
            ),
            # Else the files of each application, among them its jars, stay forever.
            {"SPARK_WORKER_OPTS": "-Dspark.worker.cleanup.enabled=true"},
            health_url=f"http://{host}:{web_port}/json/",
        )

    @staticmethod
    def defaults(secret: str) -> dict[str, str]:
        """Return the settings of the cluster's processes and of drivers: they share a secret, and encrypt."""
        return {
            "spark.authenticate": "true",
            "spark.authenticate.secret": secret,
            "spark.network.crypto.enabled": "true",
        }

    def host_environment(self, folder: Path, java_home: Path) -> dict[str, str]:
        """Return the variables of a host on which all processes run, without any of Calve's.

        Args:
            folder: The folder with the settings in `conf` and temporary files in `work`.
            java_home: The installation of Java.
        """
        return {
            "JAVA_HOME": str(java_home),
            "SPARK_HOME": str(self.spark_home),
            "SPARK_CONF_DIR": str(folder / "conf"),
            "SPARK_LOCAL_DIRS": str(folder / "work"),
            "SPARK_LOCAL_IP": self.host,
            "SPARK_DAEMON_MEMORY": "256m",
            # Third-party packages only: unlike the virtual environment, it has no link to Calve's code.
            "PYTHONPATH": sysconfig.get_path("purelib"),
        }

    def worker_count(self) -> int:
        """Return the number of workers that have registered; 0 while the master does not respond."""
        try:
            with _OPENER.open(f"http://{self.host}:{self.web_port}/json/", timeout=_HEALTH_SECONDS) as response:
                return int(json.load(response)["aliveworkers"])
        except OSError:
            return 0

    def _command(self, main_class: str, *arguments: str) -> tuple[str, ...]:
        return (f"{self.spark_home}/bin/spark-class", f"org.apache.spark.deploy.{main_class}", *arguments)


@dataclass(frozen=True)
class ObjectStore:
    """SeaweedFS, an S3 server in one process; each of its ports asks for a key.

    Attributes:
        program: Path of `weed`.
        folder: The objects.
        users: File of `users_file`, which has the keys.
        host: Name under which clients reach the server.
        listen: Address that it listens on.
        ports: Ports by SeaweedFS' names, such as `s3` and `filer.grpc`; by default SeaweedFS' own.
        python: The Python that starts it by `launcher`.
        launcher: Path of `store_server.py`.
    """

    program: str
    folder: Path
    users: Path
    host: str = "s3"
    listen: str = "0.0.0.0"
    ports: Mapping[str, int] = field(default_factory=dict)
    python: str = sys.executable
    launcher: Path = _LAUNCHER

    PORTS: ClassVar[tuple[str, ...]] = (
        *("master", "volume", "filer", "s3"),
        *("master.grpc", "volume.grpc", "filer.grpc", "s3.grpc", "admin"),
    )

    @property
    def url(self) -> str:
        """The endpoint for clients of S3."""
        return f"http://{self.host}:{self.ports.get('s3', 8333)}"

    def service(self) -> Service:
        """Return the server."""
        options: dict[str, object] = {"dir": self.folder, "ip": self.host, "ip.bind": self.listen}
        for name, port in self.ports.items():
            server, _, kind = name.partition(".")
            options[f"{server}.port.{kind}" if kind else f"{server}.port"] = port
        options |= {"s3.port.iceberg": 0, "s3.port.lance": 0, "s3.config": self.users}
        # A missing bucket is an error, and nothing is sent to SeaweedFS' authors.
        off = dict.fromkeys(("admin.ui", "webdav", "master.telemetry", "s3.autoCreateBucket"), "false")
        arguments = (f"-{name}={value}" for name, value in {**options, **off}.items())
        launcher = (self.python, "-I", str(self.launcher), self.host, str(self.folder / "certificate.pem"))
        return Service(
            "s3",
            (*launcher, self.program, f"-logdir={self.folder}", "mini", *arguments),
            {"TMPDIR": str(self.folder)},
            health_url=f"{self.url}/healthz",
        )


def users_file(*users: Mapping[str, object]) -> str:
    """Return the content of an object store's file of users; each is the result of `user`."""
    return json.dumps({"identities": users})


def user(name: str, key: str, secret: str, actions: Sequence[str] = EVERYTHING) -> dict[str, object]:
    """Return a user of an object store, who may do actions such as `Read:lake`; by default all."""
    return {"name": name, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": list(actions)}


def _responds(url: str) -> bool:
    try:
        with _OPENER.open(url, timeout=_HEALTH_SECONDS):
            return True
    except OSError:
        return False
