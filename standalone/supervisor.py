"""`up`, `down` and `status`: the stack as a daemon."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from standalone.airflow_api import AirflowApi
from standalone.cluster import ClusterStack
from standalone.environment import ADMIN, VIEWER
from standalone.errors import AirflowApiError, StackError
from standalone.processes import ProcessIdentity
from standalone.stack import Stack
from standalone.state import HEALTHY, StackState, read_passwords, shell_file, state_path

log = logging.getLogger(__name__)

STOP_TIMEOUT_SECONDS = 90.0
_POLL_SECONDS = 0.2


def supervise(home: Path, *, cluster: bool = False, environ: Mapping[str, str] = os.environ) -> None:
    """Run the stack until a signal ends this process.

    CALVE_CATALOG_URL and CALVE_WAREHOUSE override the embedded catalog and warehouse, but not those of a cluster.
    """
    catalog_url, warehouse = environ.get("CALVE_CATALOG_URL"), environ.get("CALVE_WAREHOUSE")
    with ClusterStack(home) if cluster else Stack(home, catalog_url=catalog_url, warehouse=warehouse):
        signal.pause()


def up(home: Path, say: Callable[[str], None], *, cluster: bool = False) -> None:
    """Start the stack in the background unless it is running, and wait until it is healthy.

    Args:
        home: State folder.
        say: Prints a line.
        cluster: Start the stack with a cluster of Spark and an S3 server.

    Raises:
        StackError: The stack did not start; the message has the end of the daemon's log.
    """
    state = _running(home)
    if state is None:
        _start_daemon(home, say, cluster=cluster)
    elif state.phase != HEALTHY:
        _wait_until_healthy(home, state.owner, say)
    say(describe(home, ClusterStack.stop_command if cluster else Stack.stop_command))


def down(home: Path, say: Callable[[str], None]) -> None:
    """Stop the stack of this state folder, or the remaining processes of a killed one."""
    state = StackState.read(home)
    if state is None:
        say(f"No stack is running in {home}.")
        return
    if state.owner.is_alive:
        os.kill(state.owner.pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_TIMEOUT_SECONDS
        while state.owner.is_alive and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        if state.owner.is_alive:
            os.kill(state.owner.pid, signal.SIGKILL)
    if state_path(home).exists():
        Stack(home).clean_up()
    say("Stopped.")


def status(home: Path, say: Callable[[str], None]) -> bool:
    """Print the state of the stack and its components; return whether all are healthy."""
    state = _running(home)
    if state is None:
        say(f"No stack is running in {home}. Start it: make up")
        return False
    if state.phase != HEALTHY or state.url is None:
        say(f"The stack is {state.phase}.")
        return False
    try:
        health = AirflowApi(state.url, ADMIN, "").health()
    except AirflowApiError as error:
        say(str(error))
        return False
    for name, value in health.items():
        say(f"{name:14} {value}")
    say(describe(home))
    return set(health.values()) == {HEALTHY}


def describe(home: Path, stop_command: str = Stack.stop_command) -> str:
    """Return the addresses and passwords of a running stack, and how to stop it.

    Raises:
        StackError: The stack is not running.
    """
    state = StackState.read(home)
    if state is None:
        raise StackError(f"No stack is running in {home}. Start it: make up")
    passwords = read_passwords(home)
    return "\n".join(
        [
            "",
            f"  Airflow    {state.url}",
            f"             user {ADMIN}, password {passwords[ADMIN]}  (read-only: {VIEWER}, {passwords[VIEWER]})",
            f"  Catalog    source {shell_file(home)} && calve tables",
            f"  Logs       {home / 'logs'}; tasks: {home / 'airflow' / 'logs'}",
            f"  Stop       {stop_command}",
            "",
        ]
    )


def _running(home: Path) -> StackState | None:
    state = StackState.read(home)
    return state if state and state.owner.is_alive else None


def _start_daemon(home: Path, say: Callable[[str], None], *, cluster: bool) -> None:
    log_path = home / "logs" / "stack.log"
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with log_path.open("wb") as log_file:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "standalone", "supervise", "--home", str(home), *(["--cluster"] if cluster else [])],
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_until_healthy(home, ProcessIdentity.of(daemon.pid), say)
    except BaseException:
        daemon.terminate()
        daemon.wait()
        raise


def _wait_until_healthy(home: Path, owner: ProcessIdentity | None, say: Callable[[str], None]) -> None:
    phase = ""
    while phase != HEALTHY:
        if owner is None or not owner.is_alive:
            log_path = home / "logs" / "stack.log"
            tail = "\n".join(log_path.read_text(errors="replace").splitlines()[-40:])
            raise StackError(f"The stack did not start. The end of {log_path}:\n{tail}")
        state = StackState.read(home)
        if state is not None and state.owner == owner and state.phase != phase:
            phase = state.phase
            say(f"{phase} ...")
        time.sleep(_POLL_SECONDS)
