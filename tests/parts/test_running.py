"""A part that is interrupted ends when its tests have torn down."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
TESTS = """
import os, signal
signal.alarm(120)  # If they are not interrupted.
notes = os.open("notes", os.O_WRONLY)
try:
    os.write(notes, b"begun ")
    os.read(os.open("never", os.O_RDWR), 1)
except KeyboardInterrupt:
    os.write(notes, b"interrupted ")
    os.read(os.open("continue", os.O_RDONLY), 1)
    os.write(notes, b"torn down ")
"""
RUNNER = """
import signal, sys
from pathlib import Path
from tests.parts import running
# The tests may run where these signals are ignored, as below nohup.
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
running.command = lambda part: [sys.executable, "-c", sys.argv[1]]
running.run(running.PARTS[2], Path(sys.argv[2]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_part_ends_after_its_tests_have_torn_down(tmp_path: Path, number: signal.Signals) -> None:
    for name in ("notes", "never", "continue"):
        os.mkfifo(tmp_path / name)
    # The writing end stays open without the tests, whose end would be the end of the file.
    notes = os.open(tmp_path / "notes", os.O_RDWR)
    command = [sys.executable, "-c", RUNNER, TESTS, str(tmp_path)]
    with subprocess.Popen(command, cwd=REPOSITORY, start_new_session=True) as runner:
        try:
            assert read(notes) == "begun "
            # As a terminal does, to all processes of the group.
            os.killpg(runner.pid, number)
            assert read(notes) == "interrupted "
            with pytest.raises(subprocess.TimeoutExpired):
                runner.wait(0.5)
            (tmp_path / "continue").write_text("x")
            assert runner.wait(60) == -number
        finally:
            runner.kill()
    assert read(notes) == "torn down "
    os.close(notes)


def read(notes: int) -> str:
    assert select.select([notes], [], [], 60)[0]
    return os.read(notes, 100).decode()
