"""Search for a Java that Spark 4.1 supports. Standard library only: the set-up uses it before installing anything."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from standalone.errors import SetUpError

SUPPORTED_VERSIONS = (17, 21)
DEBIAN_PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless")
JVM_DIR = Path("/usr/lib/jvm")


def find_java(environ: Mapping[str, str] = os.environ, jvm_dir: Path = JVM_DIR) -> Path | None:
    """Return the home of the first supported Java in JAVA_HOME, PATH and the system's JVM folder.

    Args:
        environ: The environment variables.
        jvm_dir: The folder with the system's JVMs.

    Returns:
        A folder with `bin/java` of a version in `SUPPORTED_VERSIONS`; None if there is none. A JAVA_HOME with another
        version is skipped.
    """
    return next((home for home in _candidates(environ, jvm_dir) if java_version(home) in SUPPORTED_VERSIONS), None)


def require_java() -> Path:
    """Return `find_java()`.

    Raises:
        SetUpError: There is no supported Java; the message has the package to install.
    """
    home = find_java()
    if home is None:
        raise SetUpError(
            f"Spark needs Java {' or '.join(map(str, SUPPORTED_VERSIONS))}, but JAVA_HOME, PATH and {JVM_DIR} have "
            f"none. Install it: sudo apt-get install {DEBIAN_PACKAGES[0]} (or {DEBIAN_PACKAGES[1]})"
        )
    return home


def java_version(home: Path) -> int | None:
    """Return the feature version (17 for 17.0.8) of the Java in this folder; None if there is none."""
    executable = home / "bin" / "java"
    if not os.access(executable, os.X_OK):
        return None
    release = home / "release"
    # Prefer the release file: a JVM takes a fraction of a second to start.
    text = release.read_text() if release.is_file() else _output_of_version(executable)
    match = re.search(r'(?:JAVA_VERSION=|version )"(\d+)', text)
    return int(match[1]) if match else None


def _candidates(environ: Mapping[str, str], jvm_dir: Path) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"])
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path:
        yield Path(on_path).resolve().parent.parent
    if jvm_dir.is_dir():
        yield from sorted(jvm_dir.iterdir())


def _output_of_version(executable: Path) -> str:
    done = subprocess.run([executable, "-version"], capture_output=True, text=True, check=False)
    return done.stderr + done.stdout
