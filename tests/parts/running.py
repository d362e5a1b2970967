"""Runs one part of the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.parts.parts import PARTS, Part


def command(part: Part) -> list[str]:
    """Return the command that runs the tests of a part, without those that other parts name."""
    options = ["--numprocesses", str(part.processes), "--no-loadscope-reorder", "-m", part.markers]
    if part.keywords:
        options += ["-k", part.keywords]
    others = {
        path
        for other in PARTS.values()
        if other.effort == part.effort and other.paths != part.paths
        for path in other.paths
    }
    ignored = sorted(path for path in others if any(path.startswith(f"{own}/") for own in part.paths))
    return [sys.executable, "-m", "pytest", *options, *(f"--ignore={path}" for path in ignored), *part.paths]


def run(part: Part, repository: Path) -> int:
    """Run a part; return the exit code of its command."""
    environment = {**os.environ, "CALVE_TEST_EFFORT": part.effort}
    return subprocess.run(command(part), cwd=repository, env=environment, check=False).returncode
