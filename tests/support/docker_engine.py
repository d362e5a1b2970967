"""A Docker engine for tests: this machine's or, as root on Debian without one, one that is started for the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.local_images import LocalImages
from tests.support.programs import run, succeeds

COMPOSE = "github.com/docker/compose/v2/cmd@v2.40.3"
"""The Go package of Docker Compose, for machines whose distribution has only its first version."""

_PACKAGES = {
    "docker.io": Path("/usr/sbin/dockerd"),
    "podman": Path("/usr/bin/podman"),
    "netavark": Path("/usr/lib/podman/netavark"),
    "mmdebstrap": Path("/usr/bin/mmdebstrap"),
}
"""Debian's packages, with a file of each."""

_WITHOUT_NETWORKS_OF_THE_HOST = ("--bridge", "none", "--iptables=false", "--ip6tables=false", "--ip-forward=false")
"""The engine changes no rules of the firewall: containers reach each other, and nothing outside."""

_START_SECONDS = 60
_STOP_SECONDS = 60


@dataclass(frozen=True)
class Engine:
    """An engine with Compose, as the environment of this process names it.

    Attributes:
        environment: The variables of all commands.
    """

    environment: Mapping[str, str]

    def run(self, *arguments: str, folder: Path | None = None) -> str:
        """Run `docker`, and return what it prints.

        Args:
            arguments: The command and its arguments, such as `compose`, `up`.
            folder: The working folder.

        Raises:
            AssertionError: It failed; the message has what it printed.
        """
        return run(["docker", *arguments], self.environment, folder)

    def build(self, project: Path, image: str) -> None:
        """Build the image of a project's docker-compose.yaml, which gives it this name."""
        self.run("compose", "build", folder=project)
        self.run("image", "inspect", image)

    @contextmanager
    def saved(self, image: str) -> Iterator[subprocess.Popen[bytes]]:
        """Write an image as a tar file to the output of a process."""
        command = ["docker", "save", image]
        with subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE) as process:
            yield process
        assert process.returncode == 0, f"docker save {image} failed"


@dataclass(frozen=True)
class OwnEngine(Engine):
    """An engine that the tests have started, and which has no images but those that are made on this machine.

    Attributes:
        images: Makes them.
    """

    images: LocalImages

    def build(self, project: Path, image: str) -> None:
        """Build the image with the settings by which this machine reaches package indexes, none of which is in it."""
        self.images.build(project, image)
        self.load(image)

    def load(self, image: str) -> None:
        """Copy an image into the engine."""
        with self.images.saved(image) as process:
            loaded = subprocess.run(
                ["docker", "load"],
                env=self.environment,
                stdin=process.stdout,
                capture_output=True,
                text=True,
                check=False,
            )
        assert loaded.returncode == 0, loaded.stderr


@contextmanager
def running_engine(kept: Path) -> Iterator[Engine]:
    """Yield this machine's engine; where none responds, start one, and remove it and all it has at the end.

    Args:
        kept: A folder for what takes long to make: Compose, Debian's files, layers of images.

    Raises:
        AssertionError: There is no engine, and this user or distribution cannot run one; or there is no Compose.
    """
    environment = dict(os.environ)
    if succeeds(["docker", "info"], environment):
        assert succeeds(["docker", "compose", "version"], environment), "install Docker's plugin Compose, version 2"
        yield Engine(environment)
        return
    assert os.geteuid() == 0, (
        "no Docker engine responds to `docker info`; start one, or run the tests as root on Debian"
    )
    assert shutil.which("apt-get"), "no Docker engine responds to `docker info`; install and start one"
    _install()
    kept.mkdir(parents=True, exist_ok=True)
    # Not in the folder of the tests: the paths of the engine's sockets must be short.
    with tempfile.TemporaryDirectory(prefix="calve-docker-", ignore_cleanup_errors=True) as folder:
        environment |= {"DOCKER_HOST": f"unix://{folder}/socket", "DOCKER_CONFIG": str(_client(kept, environment))}
        with _daemon(Path(folder), environment):
            engine = OwnEngine(environment, LocalImages(kept))
            for image in engine.images.make():
                engine.load(image)
            yield engine


@contextmanager
def _daemon(folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    paths = ("--data-root", folder / "data", "--exec-root", folder / "exec", "--pidfile", folder / "pid")
    command = ["dockerd", "--host", environment["DOCKER_HOST"], *map(str, paths), *_WITHOUT_NETWORKS_OF_THE_HOST]
    log = folder / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=file, start_new_session=True)
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not succeeds(["docker", "info"], environment):
            running = process.poll() is None and time.monotonic() < deadline
            assert running, f"dockerd does not start:\n{log.read_text()[-3000:]}"
            time.sleep(0.5)
        yield
    finally:
        process.terminate()
        process.wait(_STOP_SECONDS)


def _install() -> None:
    if missing := [package for package, path in _PACKAGES.items() if not path.exists()]:
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        run(["apt-get", "update"], environment)
        run(["apt-get", "install", "--yes", "--no-install-recommends", *missing], environment)


def _client(kept: Path, environment: Mapping[str, str]) -> Path:
    """Return the client's configuration with the plugin Compose, which is built if Debian's Docker has none."""
    folder = kept / "client"
    plugin = folder / "cli-plugins" / "docker-compose"
    with_folder = {**environment, "DOCKER_CONFIG": str(folder)}
    if not succeeds(["docker", "compose", "version"], with_folder):
        assert shutil.which("go"), "install Docker's plugin Compose, version 2, or Go, with which the tests build it"
        with tempfile.TemporaryDirectory(prefix="calve-compose-") as module:
            for command in (
                ["go", "mod", "init", "calve"],
                ["go", "get", COMPOSE],
                ["go", "build", "-o", str(plugin), COMPOSE.partition("@")[0]],
            ):
                run(command, environment, Path(module))
    return folder
