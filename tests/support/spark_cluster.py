"""A real standalone cluster of Spark with two workers, whose processes belong to another user than the driver's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from standalone.class_archive import spark_home
from standalone.java import require_java
from standalone.postgres import HOST, free_port
from standalone.processes import Component, end_processes, session_members
from standalone.services import Service, SparkCluster
from standalone.unprivileged import UNPRIVILEGED_USER, clean_environment, python_probe, unprivileged_prefix

_START_SECONDS = 120
SECRET = "planted-cluster-secret"


class ClusterOfTests:
    """A running cluster.

    Attributes:
        folder: The files of the cluster, owned by its user.
        python: The interpreter of the executors, which finds third-party packages, but not Calve.
        driver_conf: Folder with the `spark-defaults.conf` of drivers, with the secret of the cluster.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python, self._prefix = _interpreter()
        self.driver_conf = folder / "driver-conf"
        self._cluster = SparkCluster(spark_home(), HOST, free_port(), free_port(), "1", "1g")
        self._components: list[Component] = []
        self._pages: list[str] = []

    @property
    def url(self) -> str:
        return self._cluster.url

    def start(self) -> None:
        settings = "".join(f"{name} {value}\n" for name, value in self._cluster.defaults(SECRET).items())
        for conf in (self.driver_conf, self.folder / "conf"):
            conf.mkdir()
            (conf / "spark-defaults.conf").write_text(settings)
            (conf / "spark-defaults.conf").chmod(0o600)
        (self.folder / "work").mkdir()
        for path in (self.folder, self.folder / "conf", self.folder / "conf" / "spark-defaults.conf"):
            _hand_over(path)
        _hand_over(self.folder / "work")
        self._launch(self._cluster.master())
        for number in (1, 2):
            work_dir = self.folder / "work" / str(number)
            self._launch(self._cluster.worker(f"spark-worker-{number}", HOST, free_port(), work_dir))
        _wait_for(lambda: self._cluster.worker_count() == 2)

    def stop(self) -> None:
        sessions = [component.session for component in self._components]
        end_processes(lambda: session_members(sessions), grace_seconds=5)
        for component in self._components:
            component.wait(timeout_seconds=1)

    def run_as_worker(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command like an executor: as the cluster's user, with its environment."""
        return subprocess.run(
            [*self._prefix, *command], env=self._environment(), cwd="/", capture_output=True, text=True, check=False
        )

    def places_with(self, text: str) -> list[str]:
        """Return where a text is: files of the cluster and of ended applications, and the workers' pages."""
        found = []
        # Executors of an ended application may still remove their files and folders, which `os.walk` skips then.
        files = (Path(folder, name) for folder, _, names in os.walk(self.folder) for name in names)
        for path in files:
            with suppress(FileNotFoundError):
                if path.name != "spark-defaults.conf" and text.encode() in path.read_bytes():
                    found.append(str(path))
        for url in self._pages:
            with urllib.request.urlopen(url) as page:
                if text in page.read().decode():
                    found.append(url)
        return found

    def _launch(self, service: Service) -> None:
        log_path = self.folder / f"{service.name}.log"
        environment = {**self._environment(), **service.environment}
        component = Component(service.name, [*self._prefix, *service.command], environment, log_path)
        component.start()
        self._components.append(component)
        _wait_for(lambda: service.is_healthy() or not component.is_running)
        assert component.is_running, component.log_tail
        self._pages.append(str(service.health_url))

    def _environment(self) -> dict[str, str]:
        return {
            **clean_environment(),
            "HOME": str(self.folder),
            **self._cluster.host_environment(self.folder, require_java()),
        }


@contextmanager
def running_cluster() -> Iterator[ClusterOfTests]:
    """Start a cluster in a folder that its user can reach, unlike pytest's."""
    folder = Path(tempfile.mkdtemp(prefix="calve-cluster"))
    folder.chmod(0o755)
    cluster = ClusterOfTests(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder)


def _interpreter() -> tuple[str, Sequence[str]]:
    """Return an interpreter of this minor version outside the virtual environment, and how the user runs it."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    base = os.path.realpath(sys.executable)
    # Every user can run the system's interpreter; that of the virtual environment may be in someone's home.
    for python in (f"/usr/bin/{version}", base):
        if Path(python).exists() and (prefix := unprivileged_prefix([python_probe(python, "")])) is not None:
            return python, prefix
    raise AssertionError(f"user {UNPRIVILEGED_USER} cannot run {base}")


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the cluster did not start"
        time.sleep(0.1)


def _hand_over(path: Path) -> None:
    if os.geteuid() == 0:
        shutil.chown(path, UNPRIVILEGED_USER)
