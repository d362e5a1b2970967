"""The processes of `calve serve`: a supervisor, and workers that share its listening sockets.

The supervisor opens the sockets and forks the workers. A worker that dies is replaced, after a pause that grows while
its successors die, too. SIGTERM and SIGINT stop the server gracefully; SIGHUP reads the files of keys and certificates
again, and replaces the workers one after the other: each by a successor that serves already, as soon as it has finished
its requests.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from catalog.doors.serving.access import Access
from catalog.doors.serving.connections import allow_open_files, connection_records
from catalog.doors.serving.keys import read_access
from catalog.doors.serving.limits import Limits, rate_records
from catalog.doors.serving.listening import Address, Certificate, require_credentials
from catalog.doors.serving.logs import log
from catalog.doors.serving.seen import SeenSignatures
from catalog.doors.serving.worker import OUTDATED, READY, Assignment, Prepare, work
from catalog.errors import CatalogError, CatalogUnavailableError, CatalogVersionError
from catalog.settings.environment import job_patience

_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD}
_START_SECONDS = 60.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.1, 30.0
_HEALTHY_SECONDS = 10.0
"""A worker that has lived for so long is replaced at once."""

_OTHER_FILES = 1_024
"""Files that a process may have open besides the connections of its doors."""

_IMPATIENT_SECONDS = 1.0
"""A signal that comes later than this after the first ends the server at once; some callers send the first twice."""


@dataclass(frozen=True)
class Door:
    """A front door to be served.

    Attributes:
        name: Its name in logs and metrics.
        title: Its name for users.
        prepare: Called in each worker; returns the function that answers on the socket until `Serving.stop` is set.
        scheme: `http` for the addresses of an HTTP door.
    """

    name: str
    title: str
    address: Address
    prepare: Prepare
    scheme: str = ""


@dataclass
class _Worker:
    number: int
    process: int
    since: float = field(default_factory=time.monotonic)


class Supervisor:
    """Serves front doors until it is told to stop."""

    def __init__(
        self,
        doors: Sequence[Door],
        *,
        workers: int,
        certificate: Certificate | None = None,
        is_plain: bool = False,
        report: Callable[[str], None],
    ) -> None:
        """Check the settings, and listen.

        Args:
            workers: The number of processes.
            is_plain: Whether plain connections from other machines are allowed.
            report: Called with the lines for the user: what listens where.

        Raises:
            InvalidConfigurationError: A setting, a file or an address is wrong, or a port is in use.
        """
        self._doors = doors
        self._count = workers
        self._certificate = certificate
        self._is_plain = is_plain
        self._report = report
        self._limits = Limits.from_settings()
        allow_open_files(len(doors) * self._limits.connections + _OTHER_FILES)
        self._access = self._read_access()
        self._seen = SeenSignatures()
        self._counts = connection_records()
        self._rates = rate_records()
        self._listeners: list[socket.socket] = []
        self._workers: dict[int, _Worker] = {}
        self._failures = 0
        self._due: dict[int, float] = {}
        # Workers with former keys, and the one that has been told to stop because its successor serves.
        self._stale: list[_Worker] = []
        self._retiring: int | None = None
        self._is_stopping = False
        self._is_outdated = False
        try:
            self._listeners.extend(door.address.listen() for door in doors)
        except CatalogError:
            self._close()
            raise

    def serve(self) -> None:
        """Serve until SIGTERM or SIGINT.

        Raises:
            CatalogVersionError: Another version of Calve has upgraded the catalog.
            CatalogError: The catalog cannot be opened, or a door cannot be prepared.
        """
        previous = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        # Workers watch the other end, and stop when the supervisor is gone, however it went.
        self._alive, self._life = os.pipe()
        try:
            with tempfile.TemporaryDirectory(prefix="calve-metrics-") as folder:
                self._metrics = Path(folder)
                self._start_all()
                if not self._is_stopping:
                    self._report(self._ready_line())
                while not self._is_stopping:
                    self._handle(signal.sigtimedwait(_SIGNALS, self._pause()))
                    self._start_due()
                    self._replace_next()
                self._stop()
        finally:
            self._kill()
            self._close()
            os.close(self._life)
            os.close(self._alive)
            signal.pthread_sigmask(signal.SIG_SETMASK, previous)
        if self._is_outdated:
            raise CatalogVersionError(
                "another version of Calve has upgraded the catalog while it was served; install that version, and "
                "start the server again"
            )

    def _read_access(self) -> Access:
        access = read_access()
        for door in self._doors:
            require_credentials(door.address, access, self._certificate, is_plain=self._is_plain)
        if self._certificate is not None:
            self._certificate.context()
        return access

    def _ready_line(self) -> str:
        places = []
        for door, listener in zip(self._doors, self._listeners, strict=True):
            address = str(Address(door.address.host, listener.getsockname()[1]))
            scheme = f"{door.scheme}{'s' if self._certificate else ''}://" if door.scheme else ""
            places.append(f"{door.title} on {scheme}{address}")
        who = f"{len(self._access.keys) + len(self._access.certificates)} client(s) with credentials"
        if self._access.anonymous is not None:
            who = "no credentials: all users of this machine are owners"
        return f"Ready: {', '.join(places)}; {self._count} process(es); {who}"

    # --- workers ------------------------------------------------------------------------------------------------

    def _start_all(self) -> None:
        """Start the workers; the first one alone, so that what is wrong is reported once.

        Raises:
            CatalogUnavailableError: A worker cannot serve.
        """
        answer = self._start(0, is_awaited=True)
        if answer != READY and _is_told_to_stop():
            self._is_stopping = True
            return
        if answer != READY:
            raise CatalogUnavailableError(answer.decode() or "a process has ended while it started; see the log")
        for number in range(1, self._count):
            self._start(number)

    def _start(self, number: int, *, is_awaited: bool = False) -> bytes:
        """Start a worker; return its answer, if it is awaited."""
        reading, writing = os.pipe()
        process = os.fork()
        if not process:
            os.close(reading)
            os.close(self._life)
            doors = [(door.prepare, listener) for door, listener in zip(self._doors, self._listeners, strict=True)]
            work(
                Assignment(
                    number=number,
                    count=self._count,
                    doors=doors,
                    metrics=self._metrics,
                    seen=self._seen,
                    counts=self._counts,
                    rates=self._rates,
                    access=self._access,
                    limits=self._limits,
                    certificate=self._certificate,
                    life=self._alive,
                    answer=writing,
                )
            )
        os.close(writing)
        self._workers[process] = _Worker(number, process)
        try:
            return _read(reading) if is_awaited else READY
        finally:
            os.close(reading)

    def _handle(self, found: signal.struct_siginfo | None) -> None:
        if found is None:
            return
        if found.si_signo in (signal.SIGTERM, signal.SIGINT):
            self._is_stopping = True
        elif found.si_signo == signal.SIGHUP:
            self._reload()
        self._reap()

    def _reap(self) -> None:
        """Note the workers that have ended, and when their successors start."""
        for worker in list(self._workers.values()):
            process, status = os.waitpid(worker.process, os.WNOHANG)
            if not process:
                continue
            del self._workers[process]
            if os.WIFEXITED(status) and os.WEXITSTATUS(status) == OUTDATED:
                self._is_outdated = self._is_stopping = True
            if process == self._retiring:
                self._retiring = None
                continue
            if self._is_stopping:
                continue
            lived = time.monotonic() - worker.since
            self._failures = 0 if status == 0 or lived > _HEALTHY_SECONDS else self._failures + 1
            pause = 0.0 if not self._failures else min(_LONGEST_PAUSE, _SHORTEST_PAUSE * 2**self._failures)
            self._due[worker.number] = time.monotonic() + pause
            if status:
                fields = {"worker": worker.number, "exit_code": os.waitstatus_to_exitcode(status), "pause": pause}
                log.error("a worker has died", extra={"fields": fields})

    def _pause(self) -> float:
        soonest = min(self._due.values(), default=time.monotonic() + 60.0)
        return max(0.0, soonest - time.monotonic())

    def _start_due(self) -> None:
        for number in [number for number, due in self._due.items() if due <= time.monotonic()]:
            if self._is_stopping:
                return
            del self._due[number]
            self._start(number)

    def _reload(self) -> None:
        """Read keys and certificates again; the former ones stay if the new ones are wrong."""
        try:
            self._access = self._read_access()
        except CatalogError as error:
            log.error("keys and certificates stay as they were", extra={"fields": {"problem": str(error)}})
            return
        self._stale = [worker for worker in self._workers.values() if worker.process != self._retiring]
        log.info("keys and certificates were read again")

    def _replace_next(self) -> None:
        """Replace one worker that has former keys, unless another one is being replaced."""
        # One that has died has got a successor with the new keys.
        self._stale = [worker for worker in self._stale if worker.process in self._workers]
        if not self._stale or self._retiring is not None or self._is_stopping:
            return
        stale = self._stale.pop(0)
        used = {worker.number for worker in self._workers.values()} | self._due.keys()
        answer = self._start(next(number for number in range(self._count + 1) if number not in used), is_awaited=True)
        if answer != READY:
            # It is started again as each worker that dies; former keys must not stay valid until it succeeds.
            log.error("a worker's successor does not start", extra={"fields": {"problem": answer.decode()}})
        self._retiring = stale.process
        os.kill(stale.process, signal.SIGTERM)

    # --- the end ------------------------------------------------------------------------------------------------

    def _stop(self) -> None:
        for listener in self._listeners:
            listener.close()
        for process in self._workers:
            os.kill(process, signal.SIGTERM)
        since = time.monotonic()
        while self._workers and time.monotonic() < since + self._limits.stop_seconds + 5.0:
            found = signal.sigtimedwait(_SIGNALS, 0.2)
            is_asked = found is not None and found.si_signo in (signal.SIGTERM, signal.SIGINT)
            if is_asked and time.monotonic() > since + _IMPATIENT_SECONDS:
                log.warning("told to stop once more: requests are not waited for")
                return
            self._reap()

    def _kill(self) -> None:
        for process in self._workers:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        self._workers.clear()

    def _close(self) -> None:
        for listener in self._listeners:
            listener.close()


def _read(descriptor: int) -> bytes:
    """Return what a worker writes; nothing if it ends, takes too long, or the supervisor is told to stop."""
    until = time.monotonic() + _START_SECONDS + job_patience()
    while time.monotonic() < until and not _is_told_to_stop():
        if select.select([descriptor], [], [], 0.1)[0]:
            return os.read(descriptor, select.PIPE_BUF)
    return b""


def _is_told_to_stop() -> bool:
    return bool(signal.sigpending() & {signal.SIGTERM, signal.SIGINT})
