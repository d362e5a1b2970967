"""Programs that root runs as an unprivileged user."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from standalone.errors import SetUpError

UNPRIVILEGED_USER = "nobody"
_KEPT = ("PATH", "LANG", "TERM", "COLUMNS", "JAVA_HOME", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


def clean_environment() -> Mapping[str, str]:
    """Return environment variables without the caller's locale, time zone and PG* settings."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


def unprivileged_prefixes() -> list[list[str]]:
    """Return command prefixes with which root runs a program as an unprivileged user, least privileges first.

    The second and third can access files below a restricted folder, such as a clone in /root: by the capability
    CAP_DAC_OVERRIDE, or in a user namespace in which root has another user id.
    """
    user = pwd.getpwnam(UNPRIVILEGED_USER)
    change = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    # Without the secure bit, access(2), which PostgreSQL uses, ignores the capability.
    override = ["--inh-caps=+dac_override", "--ambient-caps=+dac_override", "--securebits=+no_setuid_fixup"]
    return [
        change,
        [*change, *override],
        ["unshare", "--user", f"--map-user={user.pw_uid}", f"--map-group={user.pw_gid}"],
    ]


def unprivileged_prefix(probes: Sequence[Sequence[str]]) -> Sequence[str] | None:
    """Return the prefix with the least privileges with which all commands succeed; None if there is none.

    Args:
        probes: Commands that use what the programs will use. For a user other than root, the prefix is empty, and they
            are not run.
    """
    if os.geteuid() != 0:
        return ()
    for prefix in unprivileged_prefixes():
        if not any(_run_quietly([*prefix, *probe]).returncode for probe in probes):
            return prefix
    return None


def python_probe(python: str, code: str) -> list[str]:
    """Return a command that runs code if the user can use a Python.

    The code runs in a process that this Python starts: root's privileges still apply to the start of the first.
    """
    return [
        python,
        "-c",
        "import subprocess, sys; subprocess.run([sys.executable, *sys.argv[1:]], check=True)",
        "-c",
        code,
    ]


def run_unprivileged(home: Path, arguments: Sequence[str]) -> NoReturn:
    """Replace this process of root by Python with other arguments, run by an unprivileged user.

    Args:
        home: The folder that the user owns, which is also its home; created if it does not exist.
        arguments: Arguments of Python.

    Raises:
        SetUpError: The user cannot run this Python, or reach the folder, or the folder has files of another user.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if home.owner() != UNPRIVILEGED_USER and any(home.iterdir()):
        raise SetUpError(
            f"{home} belongs to user {home.owner()}, and root runs the cluster as {UNPRIVILEGED_USER!r}; use an empty "
            "folder"
        )
    hand_over(home)
    prefix = unprivileged_prefix([python_probe(sys.executable, "import standalone.stack"), ["ls", str(home)]])
    if prefix is None:
        raise SetUpError(
            f"user {UNPRIVILEGED_USER!r}, as which root runs the cluster, cannot use {sys.executable} or {home}; use "
            "another user than root, or a folder that all users can access"
        )
    # None of root's settings, such as credentials for another S3.
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    os.execvpe(prefix[0], [*prefix, sys.executable, *arguments], {**kept, "HOME": str(home)})


def hand_over(path: Path) -> None:
    """Change the owner of a file, or of a folder and its contents, to the unprivileged user, unless it is its own."""
    account = pwd.getpwnam(UNPRIVILEGED_USER)
    if path.stat().st_uid == account.pw_uid:
        return
    for owned in (*path.rglob("*"), path):
        os.chown(owned, account.pw_uid, account.pw_gid, follow_symlinks=False)


def _run_quietly(command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, cwd="/", env=clean_environment(), capture_output=True, check=False)
