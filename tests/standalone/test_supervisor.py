from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from standalone import supervisor
from standalone.processes import ProcessIdentity
from standalone.stack import Stack
from standalone.state import StackState, shell_file

pytestmark = [pytest.mark.airflow, pytest.mark.slow]


@pytest.fixture
def home(tmp_path: Path):
    yield tmp_path
    supervisor.down(tmp_path, print)


def run(command: str, home: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "standalone", command, "--home", str(home)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def postmaster(home: Path) -> int:
    return int((home / "postgres" / "cluster" / "postmaster.pid").read_text().split("\n", 1)[0])


@pytest.mark.long
def test_up_twice_is_one_stack_and_down_ends_what_a_killed_one_left(home: Path) -> None:
    first = run("up", home)
    assert first.returncode == 0, first.stdout + first.stderr
    state = StackState.read(home)
    assert state is not None
    assert state.url is not None
    assert state.url in first.stdout
    assert str(shell_file(home)) in first.stdout

    assert run("up", home).returncode == 0
    assert StackState.read(home) == state, "the second `up` must leave the running stack alone"
    assert run("status", home).returncode == 0

    server = postmaster(home)
    os.kill(state.owner.pid, signal.SIGKILL)
    assert run("down", home).returncode == 0
    assert state.processes() == set()
    assert ProcessIdentity.of(server) is None
    assert run("status", home).returncode == 1


@pytest.mark.long
def test_ctrl_c_while_starting_leaves_no_process(home: Path) -> None:
    with (home / "output").open("wb") as output:
        command = [sys.executable, "-m", "standalone", "supervise", "--home", str(home)]
        starting = subprocess.Popen(command, start_new_session=True, stdout=output, stderr=output)
    deadline = time.monotonic() + 300
    state = None
    while (state is None or len(state.components) < 4) and time.monotonic() < deadline:
        time.sleep(0.1)
        state = StackState.read(home)
    assert state is not None
    server = postmaster(home)
    os.killpg(starting.pid, signal.SIGINT)
    assert starting.wait(300) == 128 + signal.SIGINT
    assert state.processes() == set()
    assert ProcessIdentity.of(server) is None


def test_with_nothing_running_down_is_harmless_and_no_stack_is_found(tmp_path: Path) -> None:
    assert run("down", tmp_path).returncode == 0
    assert not Stack(tmp_path).attach()
