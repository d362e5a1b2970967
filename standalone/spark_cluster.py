"""A running standalone cluster of Spark for benchmarks and tests, whose processes belong to another user than root."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from standalone.class_archive import spark_home
from standalone.errors import StackError
from standalone.java import require_java
from standalone.postgres import HOST, free_port
from standalone.processes import Component, end_processes, session_members
from standalone.services import Service, SparkCluster
from standalone.unprivileged import UNPRIVILEGED_USER, clean_environment, python_probe, unprivileged_prefix

WORKERS = 2
_START_SECONDS = 120


class RunningSparkCluster:
    """A master and two workers with one core each.

    Attributes:
        folder: The files of the cluster, owned by its user.
        python: The interpreter of the executors, which finds third-party packages, but not Calve.
        driver_conf: Folder with the `spark-defaults.conf` of drivers, with the secret of the cluster.
    """

    def __init__(self, folder: Path, secret: str | None = None) -> None:
        """Choose free ports, and keep the cluster's files in an existing folder that its user can reach.

        Args:
            folder: An empty folder.
            secret: The secret that the cluster shares with drivers; random by default.

        Raises:
            StackError: The cluster's user can run no Python.
        """
        self.folder = folder
        self.python, self.prefix = _interpreter()
        self.driver_conf = folder / "driver-conf"
        self.pages: list[str] = []
        self._secret = secret or secrets.token_urlsafe(30)
        self._cluster = SparkCluster(spark_home(), HOST, free_port(), free_port(), "1", "1g")
        self._components: list[Component] = []

    @property
    def url(self) -> str:
        """The master, as Spark names it."""
        return self._cluster.url

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables of the cluster's processes."""
        return {
            **clean_environment(),
            "HOME": str(self.folder),
            **self._cluster.host_environment(self.folder, require_java()),
        }

    @classmethod
    @contextmanager
    def running(cls, secret: str | None = None) -> Iterator[Self]:
        """Start a cluster in a temporary folder, and stop it at the end of the block.

        Args:
            secret: As for the constructor.

        Raises:
            StackError: The cluster does not start.
        """
        folder = Path(tempfile.mkdtemp(prefix="calve-cluster"))
        # Unlike the default, its user can reach it.
        folder.chmod(0o755)
        try:
            cluster = cls(folder, secret)
            try:
                cluster.start()
                yield cluster
            finally:
                cluster.stop()
        finally:
            shutil.rmtree(folder)

    def start(self) -> None:
        """Start the processes, and wait until the workers have registered.

        Raises:
            StackError: They do not within two minutes.
        """
        settings = "".join(f"{name} {value}\n" for name, value in self._cluster.defaults(self._secret).items())
        for conf in (self.driver_conf, self.folder / "conf"):
            conf.mkdir()
            (conf / "spark-defaults.conf").write_text(settings)
            (conf / "spark-defaults.conf").chmod(0o600)
        (self.folder / "work").mkdir()
        for path in (self.folder, self.folder / "conf", self.folder / "conf" / "spark-defaults.conf"):
            _hand_over(path)
        _hand_over(self.folder / "work")
        self._launch(self._cluster.master())
        for number in range(1, WORKERS + 1):
            work_dir = self.folder / "work" / str(number)
            self._launch(self._cluster.worker(f"spark-worker-{number}", HOST, free_port(), work_dir))
        _wait_for("Spark's workers register", lambda: self._cluster.worker_count() == WORKERS)

    def stop(self) -> None:
        """End all processes."""
        sessions = [component.session for component in self._components]
        end_processes(lambda: session_members(sessions), grace_seconds=5)
        for component in self._components:
            component.wait(timeout_seconds=1)

    def _launch(self, service: Service) -> None:
        log_path = self.folder / f"{service.name}.log"
        environment = {**self.environment, **service.environment}
        component = Component(service.name, [*self.prefix, *service.command], environment, log_path)
        component.start()
        self._components.append(component)
        _wait_for(f"{service.name} is ready", lambda: service.is_healthy() or not component.is_running)
        if not component.is_running:
            raise StackError(f"{service.name} ended while starting. The end of its log:\n{component.log_tail}")
        self.pages.append(str(service.health_url))


def _interpreter() -> tuple[str, Sequence[str]]:
    """Return an interpreter of this minor version outside the virtual environment, and how the user runs it."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    base = os.path.realpath(sys.executable)
    # Every user can run the system's interpreter; that of the virtual environment may be in someone's home.
    for python in (f"/usr/bin/{version}", base):
        if Path(python).exists() and (prefix := unprivileged_prefix([python_probe(python, "")])) is not None:
            return python, prefix
    raise StackError(f"user {UNPRIVILEGED_USER!r}, as which root runs the cluster, cannot run {base}; use another user")


def _wait_for(what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise StackError(f"Waited {_START_SECONDS} s in vain until {what}")
        time.sleep(0.1)


def _hand_over(path: Path) -> None:
    if os.geteuid() == 0:
        shutil.chown(path, UNPRIVILEGED_USER)
