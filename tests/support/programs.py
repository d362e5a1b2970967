"""Programs that tests run to their end."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_LONGEST_SECONDS = 3600


def run(command: Sequence[str], environment: Mapping[str, str], folder: Path | None = None) -> str:
    """Run a command, and return what it prints.

    Raises:
        AssertionError: It failed; the message has what it printed.
    """
    ended = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=_LONGEST_SECONDS, check=False
    )
    assert ended.returncode == 0, f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}"
    return ended.stdout


def succeeds(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Return whether a command exists, and succeeds."""
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 0
