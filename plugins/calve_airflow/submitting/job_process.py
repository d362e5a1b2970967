"""A process that outlives its parent and is found again through its folder.

The folder, which only its owner can read, contains `log` (the program's output), `lock`, a file that the program keeps
locked while it runs, and for some programs `settings`, which may have passwords. The kernel releases the lock when the
last process that holds it ends, however it ends. Unlike a process id, a lock cannot be mistaken for that of another
program.

A program that runs several jobs (`catalog.operations.applications`) has further names for its log and lock in the
folder of its first job. The folder of each later job has another name of the same lock. When a job has ended, the
program gives its folder a log and a lock of its own, so that the folder no longer refers to the program.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from catalog.operations.records import APPLICATION_LOCK, APPLICATION_LOG

# The shell writes the host and its process id to the lock file, and then replaces itself by the program.
_RECORD_AND_BECOME = 'echo "$1 $$" >"$0" && shift && exec "$@"'

NO_LOG = Path(os.devnull, "log")
"""The log of an attempt that is no program, such as a change of the catalog alone: a path that no file can have."""


_END_OF_LOG_BYTES = 64 << 10
_LONGEST_ERROR = 300
_EXCEPTION = re.compile(
    r"""^(?:Exception\ in\ thread\ "[^"]*"\ )?   # Java
    ((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception):.+
    |\S.*\ (?:not\ found|No\ such\ file\ or\ directory)
    |JAVA_HOME\ is\ not\ set)$""",
    re.MULTILINE | re.VERBOSE,
)
"""A line of the log with a message of an exception, of Java or Python, or of a shell that finds no program."""


class JobProcess:
    """A program that runs, ran or will run with its log and lock in one folder."""

    def __init__(self, log_path: Path, log_position: int = 0) -> None:
        """Refer to the program that logs to `log_path`, without starting it.

        Args:
            log_position: Position in the log, in bytes, from which `new_log_lines` continues.
        """
        self.log_path = log_path
        self.log_position = log_position
        self._lock_path = log_path.with_name("lock")
        self._is_known = True
        self._child: subprocess.Popen[bytes] | None = None

    @classmethod
    def in_new_folder(cls, parent: Path, prefix: str) -> JobProcess:
        """Create a folder below `parent` for a program that is to be started."""
        parent.mkdir(parents=True, exist_ok=True)
        process = cls(Path(tempfile.mkdtemp(prefix=prefix, dir=parent)) / "log")
        process._lock_path.touch()
        return process

    @classmethod
    def recorded(cls, log_path: str | None, parent: Path, log_position: int = 0) -> JobProcess:
        """Refer to a program by the log path that the catalog has recorded.

        Who may write to the catalog may record any path, and a job of another host has a path of that host. So a
        program whose folder is not below `parent` is not visible: its files are neither read nor deleted, and no
        process is ended.
        """
        path = Path(os.path.normpath(log_path)) if log_path else NO_LOG
        process = cls(path, log_position)
        process._is_known = path.is_relative_to(parent) and path.name == "log"
        return process

    @classmethod
    def delete_old(cls, parent: Path, age: timedelta, *, is_dry_run: bool = False) -> int:
        """Delete the folders of programs that do not run and have logged nothing for some time; return their number.

        Args:
            parent: The folder of the parents that `in_new_folder` got.
            age: Time since the last line of the log, or since the start if there is none.
            is_dry_run: Only count them.
        """
        limit, count = time.time() - age.total_seconds(), 0
        for folder in parent.glob("*/*/"):
            process = cls(folder / "log")
            # Other tasks may delete it, and folders of other users cannot be read.
            with suppress(OSError):
                last = process.log_path if process.log_path.exists() else process._lock_path
                if last.stat().st_mtime >= limit or process.is_alive():
                    continue
                if not is_dry_run:
                    shutil.rmtree(folder)
                count += 1
            if not is_dry_run:
                # Has no effect while there are folders of other programs.
                with suppress(OSError):
                    folder.parent.rmdir()
        return count

    @property
    def settings_path(self) -> Path:
        """The file for settings that the program reads when it starts; the caller writes it."""
        return self.log_path.with_name("settings")

    @property
    def is_visible(self) -> bool:
        """Whether this host and user can look into the folder, as `is_alive` must."""
        try:
            return self._is_known and self._lock_path.exists()
        except OSError:
            return False

    @property
    def exit_code(self) -> int | None:
        """The program's exit code, negative for a signal; None while it runs or if another process started it."""
        return self._child.poll() if self._child else None

    @property
    def can_become_application(self) -> bool:
        """Whether the folder can refer to the program of another job: not on a file system without hard links."""
        try:
            os.link(self._lock_path, self._lock_path.with_name(APPLICATION_LOCK))
        except OSError:
            return False
        self._lock_path.with_name(APPLICATION_LOCK).unlink()
        return True

    def become_application(self) -> None:
        """Prepare the folder for a program that runs further jobs after this one."""
        self.log_path.touch()
        os.link(self.log_path, self.log_path.with_name(APPLICATION_LOG))
        os.link(self._lock_path, self._lock_path.with_name(APPLICATION_LOCK))

    @property
    def is_application_alive(self) -> bool:
        """Whether a program that runs further jobs after that of this folder still runs on this host."""
        lock = self._lock_path.with_name(APPLICATION_LOCK)
        try:
            return self._is_known and _is_locked(lock) and _process_id_here(lock) is not None
        except OSError:
            return False

    def join(self, first: JobProcess) -> None:
        """Refer to the program that was started in the folder of another job, to which this job was handed over.

        If the program has ended meanwhile, this one seems to have ended, too.
        """
        joined = self._lock_path.with_name("joined")
        with suppress(OSError):
            os.link(first._lock_path.with_name(APPLICATION_LOCK), joined)
            os.replace(joined, self._lock_path)

    def start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start the program in its own session, so that signals to this process's group do not end it."""
        with self._lock_path.open("r+b") as lock, self.log_path.open("ab") as log:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._child = subprocess.Popen(
                ["/bin/sh", "-c", _RECORD_AND_BECOME, str(self._lock_path), socket.gethostname(), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                pass_fds=(lock.fileno(),),
                start_new_session=True,
            )
        while not self._lock_path.stat().st_size and self._child.poll() is None:
            time.sleep(0.005)

    def is_alive(self) -> bool:
        """Return whether the program runs.

        Raises:
            FileNotFoundError: This host does not see the folder; see `is_visible`.
        """
        return _is_locked(self._lock_path)

    def terminate(self, grace_seconds: float = 3.0) -> None:
        """End the program and its children; do nothing if it has ended or runs on another host.

        Args:
            grace_seconds: Time between SIGTERM and SIGKILL.
        """
        self.remove_settings()
        if not (self.is_visible and self.is_alive()):
            return
        process_id = _process_id_here(self._lock_path)
        if process_id is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process_id, signal.SIGTERM)
            deadline = time.monotonic() + grace_seconds
            while self.is_alive():
                if time.monotonic() > deadline:
                    os.killpg(process_id, signal.SIGKILL)
                    return
                time.sleep(0.05)

    def remove_settings(self) -> None:
        """Delete the program's settings, if there are any."""
        if self._is_known:
            with suppress(OSError):
                self.settings_path.unlink()

    def new_log_lines(self) -> Iterator[str]:
        """Yield the lines completed since the last call, from `log_position` on; none if the log does not exist."""
        if not self._is_known or not self.log_path.exists():
            return
        with self.log_path.open("rb") as log:
            log.seek(self.log_position)
            for line in log:
                if not line.endswith(b"\n"):
                    return
                self.log_position += len(line)
                yield line.decode(errors="replace").rstrip()

    def end_of_log(self, maximum_bytes: int) -> str | None:
        """Return the last whole lines of the log, of at most `maximum_bytes`; None if this host does not see it.

        For readers other than the job's task: a link or a device that took the log's place is not read.
        """
        if not self._is_known:
            return None
        with suppress(OSError):
            file = os.open(self.log_path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(file, "rb") as log:
                status = os.fstat(file)
                if not stat.S_ISREG(status.st_mode):
                    return None
                start = max(0, status.st_size - maximum_bytes)
                log.seek(start)
                text = log.read(maximum_bytes).decode(errors="replace")
            return text.partition("\n")[2] if start else text
        return None

    def last_error(self) -> str | None:
        """Return the last line of the log that tells why a program did not start or ended; None if there is none."""
        with suppress(OSError), self.log_path.open("rb") as log:
            log.seek(max(0, self.log_path.stat().st_size - _END_OF_LOG_BYTES))
            errors = _EXCEPTION.findall(log.read().decode(errors="replace"))
            if errors:
                return str(errors[-1]).strip()[:_LONGEST_ERROR]
        return None


def _is_locked(path: Path) -> bool:
    with path.open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _process_id_here(path: Path) -> int | None:
    """Return the id of the process that holds a lock, if this is its host."""
    host, _, process_id = path.read_text().strip().rpartition(" ")
    return int(process_id) if host == socket.gethostname() else None
