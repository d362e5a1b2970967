"""docker-compose.yaml, deployed as its head says, in a copy of the repository with free ports and names of its own."""

from __future__ import annotations

import base64
import json
import re
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import yaml
from pyarrow.dataset import dataset
from pyarrow.fs import S3FileSystem

from standalone.airflow_api import AirflowApi
from standalone.environment import ADMIN, REPOSITORY
from standalone.postgres import free_ports
from tests.support.docker_engine import Engine, OwnEngine

PORTS = {"airflow": ("api-server", 8080), "spark": ("spark-master", 8081), "s3": ("s3", 8333)}
PORTS |= {"hms": ("doors", 9083), "glue": ("doors", 8484), "rest": ("doors", 8181)}
"""Name of a port → its service, and the port in the container."""

ACCESS_KEY = "engines"
_START_SECONDS = 1200
_POLL_SECONDS = 2.0
_MEASURE_SECONDS = 5.0
_LABEL = "label=com.docker.compose.project"


def example_values(cpus: str) -> dict[str, str]:
    """Return a value for each variable of `.env.example`, secrets generated as it says."""
    values = dict(re.findall(r"^(\w+)=(.*)$", (REPOSITORY / ".env.example").read_text(), re.MULTILINE))
    for name in re.findall(r"\$\{(\w+):\?", (REPOSITORY / "docker-compose.yaml").read_text()):
        values[name] = secrets.token_hex(24)
    for name in ("AIRFLOW_JWT_SECRET", "AIRFLOW_SECRET_KEY"):
        values[name] = base64.b64encode(secrets.token_bytes(48)).decode()
    values["AIRFLOW_FERNET_KEY"] = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
    return values | {"SCHEDULER_CPUS": cpus}


class Deployment:
    """The containers of one project.

    Args:
        engine: Runs them.
        folder: An empty folder for the copy of the repository.
        cpus: The processors of the scheduler.

    Attributes:
        seconds: The duration of each step so far.
        peaks: The largest memory of each service that was seen, in MiB.
    """

    def __init__(self, engine: Engine, folder: Path, cpus: str) -> None:
        self.engine = engine
        self.folder = folder
        self.name = f"calve-test-{secrets.token_hex(3)}"
        self.images: list[str] = []
        self.ports = free_ports(PORTS)
        self.values = {**example_values(cpus), "COMPOSE_PROJECT_NAME": self.name}
        self.seconds: dict[str, float] = {}
        self.peaks: dict[str, float] = {}
        for path in self._build_context():
            target = folder / path
            copy = shutil.copytree if (REPOSITORY / path).is_dir() else shutil.copy
            copy(REPOSITORY / path, target)
        self._services = yaml.safe_load((self.folder / "docker-compose.yaml").read_text())["services"].keys()
        self._publish_free_ports()

    @property
    def api(self) -> AirflowApi:
        """Airflow's API, for its user admin."""
        return AirflowApi(f"http://127.0.0.1:{self.ports['airflow']}", ADMIN, self.values["AIRFLOW_ADMIN_PASSWORD"])

    @property
    def storage(self) -> Any:
        """A client of the S3 server."""
        return boto3.client("s3", **self.storage_options)

    @property
    def storage_options(self) -> dict[str, str]:
        """Address and keys of the S3 server, as boto3 names them."""
        return {
            "endpoint_url": f"http://127.0.0.1:{self.ports['s3']}",
            "region_name": "us-east-1",
            "aws_access_key_id": self.values["S3_ACCESS_KEY"],
            "aws_secret_access_key": self.values["S3_SECRET_KEY"],
        }

    def parquet_rows(self, locations: Iterable[str]) -> int:
        """Return the number of rows of the Parquet files in folders of the S3 server."""
        options = self.storage_options
        store = S3FileSystem(
            access_key=options["aws_access_key_id"],
            secret_key=options["aws_secret_access_key"],
            endpoint_override=options["endpoint_url"],
            region=options["region_name"],
        )
        folders = [location.removeprefix("s3://") for location in locations]
        return sum(dataset(folder, filesystem=store, format="parquet").count_rows() for folder in folders)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure a step."""
        started = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - started

    def list_tables(self, *names: str) -> None:
        """Give the list of tables these entries, all like that of the repository, with their source on S3."""
        text = (REPOSITORY / "tables.yaml").read_text().replace("${CALVE_HOME}/landing", "s3://lake/landing")
        (entry,) = yaml.safe_load(text)["tables"].values()
        (self.folder / "tables.yaml").write_text(json.dumps({"tables": dict.fromkeys(names, entry)}))

    def build(self) -> str:
        """Build the image under a new name, which the next `up` uses; return it."""
        image = f"{self.name}:{len(self.images) + 1}"
        self.images.append(image)
        self.values["CALVE_IMAGE"] = image
        (self.folder / ".env").write_text("".join(f"{name}={value}\n" for name, value in self.values.items()))
        self.engine.build(self.folder, image)
        return image

    def up(self) -> None:
        """Create the containers, or those that have changed, and wait until all are healthy."""
        self.compose("up", "--detach")
        self.wait_until_healthy()

    def compose(self, *arguments: str) -> str:
        """Run `docker compose` in the project."""
        return self.engine.run("compose", *arguments, folder=self.folder)

    def containers(self) -> dict[str, dict[str, Any]]:
        """Return the project's containers by service, as `docker inspect` shows them."""
        ids = self.engine.run("ps", "--all", "--quiet", "--filter", f"{_LABEL}={self.name}").split()
        shown = json.loads(self.engine.run("inspect", *ids)) if ids else []
        return {container["Config"]["Labels"]["com.docker.compose.service"]: container for container in shown}

    def wait_until_healthy(self, since: Mapping[str, str] | None = None) -> None:
        """Wait until the set-up has succeeded and all other services are healthy.

        Args:
            since: Service → the start of its container before now, which must be another one.
        """
        wait(lambda: self._unready(since or {}), "are not healthy", _START_SECONDS)

    def wait_for_heartbeats(self) -> None:
        """Wait until each component of Airflow has sent a heartbeat after now: those of before count as health, too."""
        now = datetime.now(UTC)
        wait(lambda: [name for name, time in self._heartbeats().items() if time < now], "have no heartbeat", 120)

    def starts(self) -> dict[str, str]:
        """Return the time at which each container was started."""
        return {service: container["State"]["StartedAt"] for service, container in self.containers().items()}

    def kill(self, service: str) -> None:
        """Kill the first process of a container from outside; the engine takes it for a crash."""
        process = self.containers()[service]["State"]["Pid"]
        options = ("--rm", "--pid=host", "--network=none", "--user=root", "--entrypoint=kill")
        self.engine.run("run", *options, self.images[-1], "-KILL", str(process))

    def measure_memory(self) -> None:
        """Add the memory that each service now uses to the peaks."""
        shown = self.engine.run("stats", "--no-stream", "--format", "{{.Name}} {{.MemUsage}}")
        for service, used in re.findall(rf"^{self.name}-(.+)-1 (\S+) /", shown, re.MULTILINE):
            self.peaks[service] = max(self.peaks.get(service, 0.0), _mebibytes(used))

    @contextmanager
    def memory_watched(self) -> Iterator[None]:
        """Measure the memory all the time, meanwhile."""
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(_MEASURE_SECONDS):
                # A container may disappear meanwhile.
                with suppress(AssertionError):
                    self.measure_memory()

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def logs(self) -> str:
        """Return the end of each service's output."""
        return self.compose("logs", "--no-color", "--tail", "60")

    def down(self) -> None:
        """Remove all containers, networks, volumes and images of the project."""
        self.compose("down", "--volumes", "--remove-orphans", "--timeout", "20")
        while self.images:
            image = self.images.pop()
            self.engine.run("image", "rm", "--force", image)
            if isinstance(self.engine, OwnEngine):
                self.engine.images.remove(image)

    def leftovers(self) -> str:
        """Return what the engine still has of the project."""
        label = f"{_LABEL}={self.name}"
        return "".join(
            [
                self.engine.run("ps", "--all", "--quiet", "--filter", label),
                self.engine.run("volume", "ls", "--quiet", "--filter", label),
                self.engine.run("network", "ls", "--quiet", "--filter", label),
                self.engine.run("image", "ls", "--quiet", self.name),
            ]
        )

    def _heartbeats(self) -> dict[str, datetime]:
        entries = self.api.get("/monitor/health").values()
        fields = [field for entry in entries for field in entry.items()]
        return {name: datetime.fromisoformat(text) for name, text in fields if name.endswith("_heartbeat")}

    def _unready(self, since: Mapping[str, str]) -> list[str]:
        states = {service: container["State"] for service, container in self.containers().items()}
        return sorted(
            f"{service}: {_described(states.get(service, {}))}"
            for service in self._services
            if not _is_ready(states.get(service, {})) or states[service]["StartedAt"] == since.get(service)
        )

    @staticmethod
    def _build_context() -> list[str]:
        admitted = re.findall(r"^!(\S+)$", (REPOSITORY / ".dockerignore").read_text(), re.MULTILINE)
        return [*admitted, "Dockerfile", ".dockerignore", "docker-compose.yaml"]

    def _publish_free_ports(self) -> None:
        published: dict[str, list[str]] = {}
        for name, (service, port) in PORTS.items():
            published.setdefault(service, []).append(f"127.0.0.1:{self.ports[name]}:{port}")
        lines = [f"  {service}:\n    ports: !override {json.dumps(ports)}\n" for service, ports in published.items()]
        (self.folder / "docker-compose.override.yaml").write_text("services:\n" + "".join(lines))


def wait(missing: Callable[[], object], what: str, seconds: float) -> None:
    """Wait until nothing is missing.

    Raises:
        AssertionError: Something still is.
    """
    deadline = time.monotonic() + seconds
    while found := missing():
        assert time.monotonic() < deadline, f"after {seconds:.0f} s, {what}: {found}"
        time.sleep(_POLL_SECONDS)


def _is_ready(state: Mapping[str, Any]) -> bool:
    if "Health" in state:
        return bool(state["Status"] == "running" and state["Health"]["Status"] == "healthy")
    return state.get("Status") == "exited" and state["ExitCode"] == 0


def _described(state: Mapping[str, Any]) -> str:
    return f"{state.get('Status', 'missing')} {state.get('Health', {}).get('Status', state.get('ExitCode', ''))}"


def _mebibytes(text: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+)([KMG]?i?B)", text).groups()  # type: ignore[union-attr]
    return float(number) * {"B": 1 / 2**20, "KiB": 1 / 2**10, "MiB": 1, "GiB": 2**10}[unit]
