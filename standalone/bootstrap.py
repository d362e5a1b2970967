"""Set-up of the virtual environment in a fresh clone: `python3 -m standalone.bootstrap`.

Runs with the system's Python and the standard library only. Repeatable: a stamp file records the installed versions,
and an environment whose set-up was interrupted is created again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from standalone.errors import SetUpError
from standalone.java import DEBIAN_PACKAGES, find_java, require_java

REPOSITORY = Path(__file__).resolve().parent.parent
STATE_DIR = REPOSITORY / ".calve"
LOCK_FILE = REPOSITORY / "requirements-dev.txt"
PROJECT_FILE = REPOSITORY / "pyproject.toml"
OLDEST_PYTHON = (3, 11)
KNOWN_PYTHONS = ("python3.14", "python3.13", "python3.12", "python3.11")
INCOMPLETE = "incomplete"


def set_up(venv: Path = STATE_DIR / "venv") -> None:
    """Install exactly the locked requirements in the virtual environment, and Java for Spark if it is missing.

    Raises:
        SetUpError: A system package is missing, and this user may not install it.
    """
    STATE_DIR.mkdir(exist_ok=True)
    with (STATE_DIR / "bootstrap.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        required = fingerprint(LOCK_FILE, PROJECT_FILE)
        stamp = read_stamp(venv)
        if stamp != required:
            if stamp is None or stamp["python"] != required["python"]:
                _create_venv(venv)
            _stamp_path(venv).write_text(INCOMPLETE)
            _install(venv)
            _stamp_path(venv).write_text(json.dumps(required))
        if find_java() is None:
            _install_java()


def fingerprint(lock_file: Path, project_file: Path) -> dict[str, str]:
    """Return the versions and files on which the environment depends; it is updated when they change."""
    return {
        "python": f"{sys.implementation.name} {platform.python_version()} {sys.base_prefix}",
        "lock": hashlib.sha256(lock_file.read_bytes()).hexdigest(),
        "project": hashlib.sha256(project_file.read_bytes()).hexdigest(),
        "place": str(project_file.parent),
    }


def read_stamp(venv: Path) -> Mapping[str, str] | None:
    """Return the fingerprint of the installed environment; None if it is missing or incomplete."""
    path = _stamp_path(venv)
    if not path.exists() or not os.access(venv / "bin" / "python", os.X_OK):
        return None
    text = path.read_text()
    if text == INCOMPLETE:
        return None
    stamp: dict[str, str] = json.loads(text)
    return stamp


def locked_requirement(lock_text: str, package: str) -> str:
    """Return the lines of one package in a lock file: its version and hashes.

    Raises:
        SetUpError: The lock file does not name the package.
    """
    match = re.search(rf"^{re.escape(package)}==.*?(?=^\S|\Z)", lock_text, re.MULTILINE | re.DOTALL)
    if match is None:
        raise SetUpError(f"{LOCK_FILE.name} does not name {package}. Compile it again: make lock")
    return match[0]


def _stamp_path(venv: Path) -> Path:
    return venv / ".calve-stamp"


def _create_venv(venv: Path) -> None:
    _say(f"Creating {venv}")
    shutil.rmtree(venv, ignore_errors=True)
    command = [sys.executable, "-m", "venv", str(venv)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        package = f"python3.{sys.version_info.minor}-venv"
        if not _apt_install(package):
            raise SetUpError(
                f"{sys.executable} cannot create virtual environments: {(done.stdout + done.stderr).strip()}\n"
                f"Install the missing package: sudo apt-get install {package}"
            )
        shutil.rmtree(venv, ignore_errors=True)
        _run(command)


def _install(venv: Path) -> None:
    python, uv = str(venv / "bin" / "python"), venv / "bin" / "uv"
    requirement = locked_requirement(LOCK_FILE.read_text(), "uv")
    if not uv.exists():
        pinned = STATE_DIR / "uv.txt"
        pinned.write_text(requirement)
        _run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "-r", str(pinned)])
    _say("Installing the locked requirements")
    command = [str(uv), "pip"]
    _run([*command, "sync", "--quiet", "--python", python, "--require-hashes", "--compile-bytecode", str(LOCK_FILE)])
    project = ["--no-deps", "--no-build-isolation", "--editable", str(REPOSITORY)]
    _run([*command, "install", "--python", python, "--quiet", *project])


def _install_java() -> None:
    """Install Debian's headless Java, if this user may.

    Raises:
        SetUpError: There is still no supported Java; the message says how to install it.
    """
    _say("Installing Java for Spark")
    for package in DEBIAN_PACKAGES:
        if _apt_install(package):
            break
    require_java()


def _apt_install(package: str) -> bool:
    """Install a Debian package; return False if this fails, or if this user may not install packages."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    _say(f"apt-get install {package}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", package]
    for command in (install, ["apt-get", "update", "--quiet"], install):
        done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False)
        if command is install and done.returncode == 0:
            return True
    return False


def _run(command: Sequence[str]) -> None:
    # uv must use the system's certificates, as pip does, and must ignore a virtual environment that is active.
    environment = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
    done = subprocess.run(command, env={"UV_SYSTEM_CERTS": "true", **environment}, check=False)
    if done.returncode:
        raise SetUpError(f"Command failed with exit code {done.returncode}: {' '.join(command)}")


def _use_newer_python() -> None:
    """Restart this program with a newer Python if `python3` is too old."""
    if sys.version_info >= OLDEST_PYTHON:
        return
    newer = next(filter(None, map(shutil.which, KNOWN_PYTHONS)), None)
    if newer is None:
        raise SetUpError(
            f"Python {platform.python_version()} is too old: Calve needs 3.11 or later, and none of "
            f"{', '.join(KNOWN_PYTHONS)} is on the PATH."
        )
    os.execv(newer, [newer, "-m", "standalone.bootstrap"])


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    try:
        _use_newer_python()
        set_up()
    except SetUpError as error:
        sys.exit(f"SetUpError: {error}")
    except KeyboardInterrupt:
        sys.exit("Interrupted. Run the set-up again to continue.")
