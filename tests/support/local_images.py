"""Images without a registry: stand-ins for those that Calve's are built from, and builds by Podman.

The stand-ins have the same names, and the same programs in the same places: Debian from its archive, Python from this
machine, PostgreSQL from the package that the tests use.
"""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from standalone.postgres_binaries import binary_dir
from tests.support.programs import run, succeeds

PYTHON, POSTGRES = "python:3.11-slim-bookworm", "postgres:18-bookworm"
SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
IMAGES = Path(__file__).parent.parent / "compose" / "images"

_LIBRARY = "docker.io/library"
"""Where Docker looks for an image without a registry in its name."""

_DEBIAN = (
    *("ca-certificates", "netbase", "tzdata", "libssl3", "libffi8", "libsqlite3-0", "libreadline8", "liblzma5"),
    *("libbz2-1.0", "zlib1g", "libncursesw6", "libuuid1", "libexpat1", "libgdbm6"),
)
_OF_THE_MACHINE = ("resolv.conf", "hostname", "apt/sources.list.d/*")
"""Files of `/etc` that mmdebstrap copies from this machine."""

_CONTAINERS = """
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
helper_binaries_dir = ["/usr/lib/podman"]
[network]
network_backend = "netavark"
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
"""
"""Settings with which Podman runs without systemd."""


class LocalImages:
    """Builds images by Podman, with a store of its own.

    Args:
        folder: The store, the settings, and Debian's files; builds of a later run use them again.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        settings, storage = folder / "containers.conf", folder / "storage.conf"
        settings.write_text(_CONTAINERS)
        paths = f'graphroot = "{folder / "podman"}"\nrunroot = "{folder / "podman-run"}"\n'
        storage.write_text(f'[storage]\ndriver = "overlay"\n{paths}')
        variables = {"CONTAINERS_CONF": str(settings), "CONTAINERS_STORAGE_CONF": str(storage)}
        self._environment = {**os.environ, **variables}

    def make(self) -> tuple[str, str]:
        """Make the stand-ins that are not there yet, and return their names."""
        for image, name, files in ((PYTHON, "python", _python), (POSTGRES, "postgres", _postgres)):
            if not self._has(image):
                context = self.folder / name
                context.mkdir(exist_ok=True)
                shutil.copy(self._debian(), context)
                files(context / f"{name}.tar")
                for path in IMAGES.glob(f"{name}*"):
                    shutil.copy(path, context)
                self._build(image, context, "--network=none", f"--file={context / f'{name}.Dockerfile'}")
                shutil.rmtree(context)
        return PYTHON, POSTGRES

    def build(self, project: Path, image: str) -> None:
        """Build a Dockerfile of stand-ins; this machine's settings of package indexes are mounted meanwhile."""
        mounts = [f"--volume={source}:{target}" for target, source in self._client_settings().items()]
        self._build(image, project, "--network=host", "--pull=never", *mounts)
        built = f"--build-arg=IMAGE={_LIBRARY}/{image}"
        self._build(image, IMAGES, "--network=none", f"--file={IMAGES / 'without-mounts.Dockerfile'}", built)

    @contextmanager
    def saved(self, image: str) -> Iterator[subprocess.Popen[bytes]]:
        """Write an image as a tar file to the output of a process."""
        command = ["podman", "save", "--format", "docker-archive", f"{_LIBRARY}/{image}"]
        with subprocess.Popen(command, env=self._environment, stdout=subprocess.PIPE) as process:
            yield process
        assert process.returncode == 0, f"podman save {image} failed"

    def remove(self, image: str) -> None:
        """Remove the name of an image; its layers stay, for later builds."""
        self._podman("untag", f"{_LIBRARY}/{image}")

    def _build(self, image: str, context: Path, *options: str) -> None:
        self._podman("build", *options, f"--tag={_LIBRARY}/{image}", str(context))

    def _has(self, image: str) -> bool:
        return succeeds(["podman", "image", "exists", f"{_LIBRARY}/{image}"], self._environment)

    def _podman(self, *arguments: str) -> str:
        return run(["podman", *arguments], self._environment)

    def _debian(self) -> Path:
        """Return a tar file of a small Debian, without any file of this machine."""
        path = self.folder / "debian.tar"
        if path.exists():
            return path
        unfinished = self.folder / "unfinished.tar"
        hooks = [f'--customize-hook=rm -f "$1"/etc/{name}' for name in _OF_THE_MACHINE]
        options = ["--variant=minbase", f"--include={','.join(_DEBIAN)}", *hooks]
        sources = [str(SOURCES)] if SOURCES.exists() else []
        run(["mmdebstrap", *options, "bookworm", str(unfinished), *sources], self._environment)
        return unfinished.rename(path)

    def _client_settings(self) -> dict[str, Path]:
        """Return copies of the settings by which this machine reaches package indexes: path in the image → file."""
        folder = self.folder / "settings"
        folder.mkdir(exist_ok=True)
        authorities = Path(os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().openssl_cafile)
        sources = {
            "/etc/ssl/certs/ca-certificates.crt": authorities,
            "/etc/ssl/certs/java/cacerts": Path("/etc/ssl/certs/java/cacerts"),
            "/etc/pip.conf": Path("/etc/pip.conf"),
            str(SOURCES): SOURCES,
        }
        # Packages that are installed meanwhile may write to them.
        return {
            target: Path(shutil.copy(source, folder / Path(target).name))
            for target, source in sources.items()
            if source.exists()
        }


def _python(path: Path) -> None:
    assert sys.version_info[:2] == (3, 11), f"the image has Python 3.11; run the tests by it, not by {sys.version}"

    def without_packages(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        left_out = ("/site-packages/", "/__pycache__", "/lib/python3.11/test")
        return None if any(part in member.name for part in left_out) or member.name.endswith(".a") else member

    with tarfile.open(path, "w") as archive:
        archive.add(sys.base_prefix, ".", filter=without_packages)


def _postgres(path: Path) -> None:
    installation = binary_dir().parent
    package = installation.parent
    with tarfile.open(path, "w") as archive:
        archive.add(installation, f"{package.name}/{installation.name}")
        archive.add(package.with_name(f"{package.name}.libs"), f"{package.name}.libs")
