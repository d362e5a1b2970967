"""Runs one part of the tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType

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
    """Run a part; return the exit code of its command.

    SIGINT, SIGTERM and SIGHUP interrupt the tests, and end this process as usual when the tests have torn down. The
    tests get SIGINT for each of them, since pytest tears down after no other signal. Their processes are a group of
    their own, so that a terminal does not interrupt them a second time.
    """
    environment = {**os.environ, "CALVE_TEST_EFFORT": part.effort}
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = {number: signal.getsignal(number) for number in numbers}
    received: list[int] = []
    tests: subprocess.Popen[bytes] | None = None

    def interrupt(number: int, _frame: FrameType | None) -> None:
        # nohup has SIGHUP ignored.
        if handlers[signal.Signals(number)] is not signal.SIG_IGN:
            received.append(number)
            if tests is not None:
                _interrupt(tests)

    for number in numbers:
        signal.signal(number, interrupt)
    try:
        tests = subprocess.Popen(
            command(part), cwd=repository, env=environment, stdin=subprocess.DEVNULL, process_group=0
        )
        if received:
            _interrupt(tests)
        return tests.wait()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if received:
            signal.raise_signal(received[0])


def _interrupt(tests: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(tests.pid, signal.SIGINT)
