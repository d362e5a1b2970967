"""A program that outlives whoever started it, and is found again through its folder.

The folder, which only its owner can read, holds `log`, the program's output, `request.json`, what the program is asked,
and `lock`, a file that the program keeps locked as long as it runs. The kernel drops the lock with the last process
that holds it, however that one ends; so a lock cannot be mistaken for another program's, as a process id can.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

# The shell writes where and under which id the program runs before it becomes the program.
_RECORD_AND_BECOME = 'echo "$1 $$" >"$0" && shift && exec "$@"'


class JobProcess:
    """One program started, or to be started, in one folder."""

    def __init__(self, log_path: Path) -> None:
        """Refer to the program whose output is in `log_path`; start nothing."""
        self.log_path = log_path
        self._lock_path = log_path.with_name("lock")
        self._log_position = 0
        self._child: subprocess.Popen[bytes] | None = None

    @classmethod
    def in_new_folder(cls, parent: Path, prefix: str) -> JobProcess:
        """Make a folder below `parent` for a program to be started."""
        parent.mkdir(parents=True, exist_ok=True)
        process = cls(Path(tempfile.mkdtemp(prefix=prefix, dir=parent)) / "log")
        process._lock_path.touch()
        return process

    def write_request(self, request: str) -> Path:
        """Write what the program is asked, and return the file: every user of the host can read command lines."""
        path = self.log_path.with_name("request.json")
        path.write_text(request, encoding="utf-8")
        return path

    @property
    def is_visible(self) -> bool:
        """Whether the folder can be seen from here, so that `is_alive` can be answered."""
        return self._lock_path.exists()

    @property
    def exit_code(self) -> int | None:
        """How the program ended, negative for a signal; None while it runs, or when another process started it."""
        return self._child.poll() if self._child else None

    def start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start the program in a session of its own, so that nothing that ends this process ends it too."""
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
            FileNotFoundError: The folder is not `is_visible`.
        """
        with self._lock_path.open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def terminate(self, grace_seconds: float = 3.0) -> None:
        """End the program and its children; do nothing when it has ended or runs on another host.

        Args:
            grace_seconds: How long it may take to end by itself before it is killed.
        """
        if not (self.is_visible and self.is_alive()):
            return
        process_id = self._process_id_here()
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

    def new_log_lines(self) -> Iterator[str]:
        """Yield the lines completed since the last call, from the first line on; none when the log is not here."""
        if not self.log_path.exists():
            return
        with self.log_path.open("rb") as log:
            log.seek(self._log_position)
            for line in log:
                if not line.endswith(b"\n"):
                    return
                self._log_position += len(line)
                yield line.decode(errors="replace").rstrip()

    def _process_id_here(self) -> int | None:
        host, _, process_id = self._lock_path.read_text().strip().rpartition(" ")
        return int(process_id) if host == socket.gethostname() else None
