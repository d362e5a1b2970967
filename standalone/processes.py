"""Start processes in sessions of their own, find them again, and end all of them, whoever their parents are now.

A component of Airflow forks workers that change their group and their title, and a Spark job is detached from its task
on purpose. Neither a process group nor a tree of parents holds them all, but two marks together do: the session of the
component, and an environment variable that every other descendant inherits.
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
    """A process, told apart from a later one that got the same number.

    Attributes:
        pid: Its number.
        started: When it started, in clock ticks since the machine did.
    """

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """Return the identity of a living process; None when there is none of this number."""
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
        """Whether this very process still runs."""
        return ProcessIdentity.of(self.pid) == self


class Component:
    """One long-running program of the stack, in a session of its own, with its output in a file.

    Args:
        name: For messages.
        command: Program and arguments.
        environment: All of its environment variables.
        log_path: File to which its output is appended.
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
        """The component's first process; None when it does not run."""
        return ProcessIdentity.of(self._process.pid) if self._process and self.is_running else None

    @property
    def is_running(self) -> bool:
        """Whether the component's first process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def log_tail(self) -> str:
        """The last lines that the component wrote."""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-30:]) if self.log_path.exists() else ""

    def start(self) -> None:
        """Start the program, once more if it ran before; what is left of an earlier start is killed first."""
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
        """Number of the session in which the component runs or ran last; 0 before the first start."""
        return self._process.pid if self._process else 0

    def kill(self) -> None:
        """Kill what runs in the component's session."""
        end_processes(lambda: session_members({self.session}), grace_seconds=0)
        self.wait(timeout_seconds=1)

    def wait(self, timeout_seconds: float) -> int | None:
        """Return the exit code of a component that ends by itself; None when it has not in time."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout_seconds) if self._process else None
        return None


def session_members(sessions: Iterable[int]) -> set[int]:
    """Return the living processes of these sessions.

    Inside a container every session that began outside is number 0: that is nobody's own.
    """
    wanted = set(sessions) - {0}
    return {entry.pid for entry in _entries() if entry.session in wanted}


def marked_processes(mark: str) -> set[int]:
    """Return the living processes whose environment at their start carried this mark."""
    wanted = f"{MARK_VARIABLE}={mark}".encode()
    found = set()
    for entry in _entries():
        with suppress(OSError):
            if wanted in Path(f"/proc/{entry.pid}/environ").read_bytes().split(b"\0"):
                found.add(entry.pid)
    return found - {os.getpid()}


def end_processes(find: Callable[[], set[int]], grace_seconds: float = GRACE_SECONDS) -> None:
    """Ask processes to end, and kill those that have not after the grace.

    Args:
        find: Returns the processes that still live; asked again and again, as they may start others meanwhile.
        grace_seconds: How long they have to end by themselves.
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
    """Return what /proc says about a process; None when it is gone or only waits to be collected by its parent."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name, in parentheses, may hold spaces and parentheses. Fields are numbered from 3 after it: see proc(5).
    fields = text.rpartition(")")[2].split()
    state, session, started = fields[0], int(fields[3]), int(fields[19])
    return None if state in "ZX" else _Entry(pid, session, started)
