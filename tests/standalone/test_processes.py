from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from standalone.processes import (
    MARK_VARIABLE,
    Component,
    ProcessIdentity,
    end_processes,
    marked_processes,
    session_members,
)
from standalone.state import StackState, write_private

SLEEP = "import time; time.sleep(600)"
# Starts a child that leaves the session, as a Spark job does, and another that ignores SIGTERM.
PARENT = f"""
import signal, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "{SLEEP}"], start_new_session=True)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "{SLEEP}"])
print("ready", flush=True)
time.sleep(600)
"""


def component(tmp_path: Path, code: str, mark: str) -> Component:
    environment = {**os.environ, MARK_VARIABLE: mark}
    return Component("sleeper", [sys.executable, "-c", code], environment, tmp_path / "sleeper.log")


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def wait_until_ready(running: Component) -> None:
    wait_until(lambda: "ready" in running.log_tail)


def test_identity_tells_a_process_from_a_later_one_of_its_number() -> None:
    current = ProcessIdentity.current()
    assert current.is_alive
    assert not ProcessIdentity(current.pid, current.started - 1).is_alive


def test_ended_process_that_nobody_collected_is_not_alive() -> None:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    identity = ProcessIdentity.of(process.pid)
    wait_until(lambda: identity is None or not identity.is_alive)
    assert ProcessIdentity.of(process.pid) is None
    process.wait()


def test_descendants_are_found_and_ended_wherever_they_went(tmp_path: Path) -> None:
    mark = uuid4().hex
    parent = component(tmp_path, PARENT, mark)
    parent.start()
    wait_until_ready(parent)
    assert parent.identity is not None
    state = StackState(mark, ProcessIdentity.current(), components={"sleeper": parent.identity})
    assert len(session_members({parent.session})) == 2
    assert len(marked_processes(mark)) == 3
    os.kill(parent.session, 9)
    end_processes(state.processes, grace_seconds=0.5)
    assert state.processes() == set()
    assert not parent.is_running


def test_restart_ends_what_the_earlier_start_left(tmp_path: Path) -> None:
    mark = uuid4().hex
    parent = component(tmp_path, f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', '{SLEEP}'])", mark)
    parent.start()
    assert parent.wait(120) == 0
    (orphan,) = session_members({parent.session})
    parent.start()
    assert orphan not in marked_processes(mark)
    parent.wait(120)
    end_processes(lambda: marked_processes(mark), grace_seconds=0)


def test_process_that_took_over_a_number_is_left_alone(tmp_path: Path) -> None:
    stranger = component(tmp_path, SLEEP, mark := uuid4().hex)
    stranger.start()
    earlier = ProcessIdentity(stranger.session, 1)
    state = StackState(uuid4().hex, ProcessIdentity.current(), components={"gone": earlier})
    assert state.processes() == set()
    end_processes(lambda: marked_processes(mark))
    assert not stranger.is_running


def test_session_that_began_outside_the_container_has_no_members() -> None:
    assert session_members({0}) == set()


def test_state_is_private_and_comes_back_as_written(tmp_path: Path) -> None:
    state = StackState("id", ProcessIdentity.current(), "healthy", "http://x", {"a": ProcessIdentity(1, 2)})
    state.write(tmp_path)
    assert StackState.read(tmp_path) == state
    assert StackState.read(tmp_path / "other") is None


def test_private_file_is_for_the_owner_only(tmp_path: Path) -> None:
    write_private(tmp_path / "below" / "secret", "text")
    assert (tmp_path / "below" / "secret").stat().st_mode & 0o777 == 0o600


def test_waiting_for_a_component_that_runs_times_out(tmp_path: Path) -> None:
    running = component(tmp_path, SLEEP, mark := uuid4().hex)
    running.start()
    assert running.wait(0.1) is None
    end_processes(lambda: marked_processes(mark))
    assert not running.is_running
