"""Processes of the stack: start them in separate sessions, and find and end all of their descendants.

Airflow's components fork workers that change their process group and title, and Spark jobs are detached from their
tasks. Neither a process group nor the process tree includes all of them, but two marks together do: the session of the
component, and an environment variable that all other descendants inherit.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MARK_VARIABLE = "CALVE_STACK_ID"
GRACE_SECONDS = 15.0


@dataclass(frozen=True)
class ProcessIdentity:
    """The identity of a process, which differs from that of a later process with the same id.

    Attributes:
        pid: The process id.
        started: The start time, in clock ticks since boot.
    """

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """Return the identity of a running process; None if there is none with this id."""
        entry = _read(pid)
        return cls(pid, entry.started) if entry else None

    @classmethod
    def current(cls) -> ProcessIdentity:
        """Return the identity of the calling process."""
        identity = cls.of(os.getpid())
        if identity is None:
            raise ProcessLookupError("/proc does not show the calling process")
        return identity

    @property
    def is_alive(self) -> bool:
        """Whether this process is still running."""
        return ProcessIdentity.of(self.pid) == self


class Component:
    """A long-running program of the stack in a separate session, with its output in a file.

    Args:
        name: The name in messages.
        command: Program and arguments.
        environment: The complete environment variables.
        log_path: File to which the output is appended.
    """

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log_path: Path) -> None:
        self.name = name
        self.log_path = log_path
        self.start_count = 0
        self._command = command
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def identity(self) -> ProcessIdentity | None:
        """The component's first process; None if it is not running."""
        return ProcessIdentity.of(self._process.pid) if self._process and self.is_running else None

    @property
    def is_running(self) -> bool:
        """Whether the component's first process is running."""
        return self._process is not None and self._process.poll() is None

    @property
    def log_tail(self) -> str:
        """The last lines of the component's log."""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-30:]) if self.log_path.exists() else ""

    def start(self) -> None:
        """Start the program; kill the remaining processes of an earlier start first."""
        if self._process is not None:
            self.kill()
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=dict(self._environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.start_count += 1

    @property
    def session(self) -> int:
        """Id of the component's latest session; 0 before the first start."""
        return self._process.pid if self._process else 0

    def kill(self) -> None:
        """Kill the processes of the component's session."""
        end_processes(lambda: session_members({self.session}), grace_seconds=0)
        self.wait(timeout_seconds=1)

    def wait(self, timeout_seconds: float) -> int | None:
        """Wait for a component that ends by itself; return its exit code, or None after the timeout."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout_seconds) if self._process else None
        return None


def session_members(sessions: Iterable[int]) -> set[int]:
    """Return the running processes of sessions.

    Id 0 is ignored: inside a container, all sessions that started outside have it.
    """
    ids = set(sessions) - {0}
    return {entry.pid for entry in _entries() if entry.session in ids}


def marked_processes(mark: str) -> set[int]:
    """Return the running processes that were started with this mark in their environment."""
    variable = f"{MARK_VARIABLE}={mark}".encode()
    marked = set()
    for entry in _entries():
        with suppress(OSError):
            if variable in Path(f"/proc/{entry.pid}/environ").read_bytes().split(b"\0"):
                marked.add(entry.pid)
    return marked - {os.getpid()}


def end_processes(find: Callable[[], set[int]], grace_seconds: float = GRACE_SECONDS) -> None:
    """Send SIGTERM to processes, and SIGKILL to those that still run after the grace period.

    Args:
        find: Returns the running processes; called repeatedly, because they may start others.
        grace_seconds: The grace period.
    """
    asked: set[int] = set()
    deadline = time.monotonic() + grace_seconds
    while alive := find():
        is_over = time.monotonic() >= deadline
        for pid in alive if is_over else alive - asked:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if is_over else signal.SIGTERM)
        asked |= alive
        time.sleep(0.1)


@dataclass(frozen=True)
class _Entry:
    pid: int
    session: int
    started: int


def _entries() -> Iterator[_Entry]:
    for name in os.listdir("/proc"):
        if name.isdigit() and (entry := _read(int(name))):
            yield entry


def _read(pid: int) -> _Entry | None:
    """Return the entry of a process in /proc; None if it has ended or is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name, in parentheses, may contain spaces and parentheses. Field 3 of proc(5) follows it.
    fields = text.rpartition(")")[2].split()
    state, session, started = fields[0], int(fields[3]), int(fields[19])
    return None if state in "ZX" else _Entry(pid, session, started)
