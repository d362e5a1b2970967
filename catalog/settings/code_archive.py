"""A zip file of Calve's code, with which Spark's executors, and drivers in cluster mode, run it on other hosts."""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from catalog.errors import InvalidConfigurationError
from catalog.settings.environment import state_folder

PACKAGES = ("catalog", "spark_jobs")
"""The packages that jobs import."""

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time of a zip file's entry: equal code makes equal files."""


def code_archive(folder: Path | None = None, packages: Iterable[str] = PACKAGES) -> Path:
    """Return a zip file of installed packages, named by a hash of their files; write it unless it is there.

    Args:
        folder: Where the file is; by default a folder of this user in the state folder, because other users, such as
            root in a stack of `make cluster`, may create files that this one can neither replace nor trust.
        packages: Names of importable packages.

    Raises:
        InvalidConfigurationError: A package is not installed as a folder.
    """
    folder = folder or state_folder() / f"code-{os.geteuid()}"
    content = _content(packages)
    archive = folder / f"calve-{_digest(content)}.zip"
    expected = _zipped(content)
    # Executors run it with the passwords of their job, so that its name does not suffice.
    if not archive.exists() or archive.read_bytes() != expected:
        _write(archive, expected)
    return archive


def code_digest() -> str:
    """Return a hash of Calve's code as it is installed.

    Raises:
        InvalidConfigurationError: A package is not installed as a folder.
    """
    return _digest(_content(PACKAGES))


def runs_from_archive() -> bool:
    """Return whether this process, such as a driver in cluster mode, imports the packages from a zip file."""
    return not all(root.is_dir() for package in PACKAGES if (root := _root(package)))


def _content(packages: Iterable[str]) -> dict[str, bytes]:
    return {name: path.read_bytes() for package in packages for name, path in _files(package)}


def _digest(content: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, data in content.items():
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:16]


def _root(package: str) -> Path | None:
    spec = find_spec(package)
    return Path(spec.origin).parent if spec and spec.origin else None


def _files(package: str) -> Iterator[tuple[str, Path]]:
    """Yield the name in the archive, and the path, of each file of a package, in a fixed order."""
    root = _root(package)
    if root is None or not root.is_dir():
        raise InvalidConfigurationError(
            f"package {package} is not installed as a folder, so it cannot be sent to Spark's executors; install Calve "
            "on the host of the Spark driver"
        )
    for path in sorted(root.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(root.parent).as_posix(), path


def _zipped(content: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in content.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data)
    return buffer.getvalue()


def _write(path: Path, data: bytes) -> None:
    """Write a file atomically: other jobs may look for it now."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    # It is only code, and a cluster may read it as another user.
    os.chmod(temporary, 0o644)
    os.replace(temporary, path)
