"""The stack of `make cluster`, run by another user than root."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

if TYPE_CHECKING:
    from standalone.cluster import ClusterStack


@contextmanager
def cluster_stack(home: Path) -> Iterator[ClusterStack]:
    """Start a stack in a new folder, use its storage in this process, and stop it."""
    from standalone.cluster import ClusterStack

    _run("up", home)
    try:
        with mock.patch.dict(os.environ):
            stack = ClusterStack(home)
            assert stack.attach()
            yield stack
    finally:
        _run("down", home)


def _run(command: str, home: Path) -> None:
    arguments = [sys.executable, "-m", "standalone", command, "--cluster", "--home", str(home)]
    ended = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
