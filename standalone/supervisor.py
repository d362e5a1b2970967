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
from types import MappingProxyType

from standalone.airflow_api import AirflowApi
from standalone.cluster import ClusterStack
from standalone.environment import ADMIN, VIEWER
from standalone.errors import AirflowApiError, StackError
from standalone.processes import ProcessIdentity
from standalone.stack import Stack
from standalone.state import HEALTHY, StackState, airflow_command, read_passwords, shell_file, state_path

log = logging.getLogger(__name__)

STOP_TIMEOUT_SECONDS = 90.0
_POLL_SECONDS = 0.2


def supervise(home: Path, *, cluster: bool = False, environ: Mapping[str, str] = os.environ) -> None:
    """Run the stack until a signal ends this process.

    CALVE_CATALOG_URL and CALVE_WAREHOUSE override the embedded catalog and warehouse, but not those of a cluster.
    """
    with stack_of(home, cluster=cluster, environ=environ):
        signal.pause()


def stack_of(home: Path, *, cluster: bool, environ: Mapping[str, str] = MappingProxyType({})) -> Stack:
    """Return the stack of a state folder, not started.

    Args:
        home: State folder.
        cluster: Whether it has a cluster of Spark and an S3 server.
        environ: CALVE_CATALOG_URL and CALVE_WAREHOUSE override the embedded catalog and warehouse.
    """
    if cluster:
        return ClusterStack(home)
    return Stack(home, catalog_url=environ.get("CALVE_CATALOG_URL"), warehouse=environ.get("CALVE_WAREHOUSE"))


def up(home: Path, say: Callable[[str], None], *, cluster: bool = False) -> None:
    """Start the stack in the background unless it is running, and wait until it is healthy.

    Args:
        home: State folder.
        say: Prints a line.
        cluster: Start the stack with a cluster of Spark and an S3 server.

    Raises:
        StackError: The stack did not start; the message has the end of the daemon's log.
    """
    state = StackState.of_running(home)
    if state is None:
        _start_daemon(home, say, cluster=cluster)
    elif state.phase != HEALTHY:
        _wait_until_healthy(home, state.owner, say)
    say(describe(stack_of(home, cluster=cluster)))


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


def status(home: Path, say: Callable[[str], None], *, cluster: bool = False) -> bool:
    """Print the state of the stack and its components; return whether all are healthy."""
    stack = stack_of(home, cluster=cluster)
    state = StackState.of_running(home)
    if state is None:
        say(f"No stack is running in {home}. Start it: {stack.start_command}")
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
    say(describe(stack))
    return set(health.values()) == {HEALTHY}


def describe(stack: Stack) -> str:
    """Return the addresses and passwords of a running stack, and how to stop it.

    Raises:
        StackError: The stack is not running.
    """
    home, state = stack.home, StackState.read(stack.home)
    if state is None:
        raise StackError(f"No stack is running in {home}. Start it: {stack.start_command}")
    passwords = read_passwords(home)
    return "\n".join(
        [
            "",
            f"  Airflow    {state.url}",
            f"             user {ADMIN}, password {passwords[ADMIN]}  (read-only: {VIEWER}, {passwords[VIEWER]})",
            f"  Commands   {airflow_command(home)} dags list",
            f"  Catalog    source {shell_file(home)} && calve tables",
            f"  Engines    source {shell_file(home)} && calve serve",
            f"  Logs       {home / 'logs'}; tasks: {home / 'airflow' / 'logs'}",
            f"  Stop       {stack.stop_command}",
            "",
        ]
    )


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
