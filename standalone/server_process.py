"""A server process that runs during a block of code."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from standalone.errors import StackError

START_SECONDS = 180.0
STOP_SECONDS = 20.0
_POLL_SECONDS = 0.2
_LOG_TAIL = 4_000


class ServerProcess:
    """A process in the caller's process group, which is interrupted with the caller.

    Args:
        name: The name in messages.
        folder: The working directory.
        log_path: The file for its output.
    """

    def __init__(self, name: str, folder: Path, log_path: Path) -> None:
        self._name = name
        self._folder = folder
        self._log_path = log_path
        self._log: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(
        self,
        command: Sequence[str],
        is_ready: Callable[[], bool],
        environment: Mapping[str, str] | None = None,
        *,
        seconds: float = START_SECONDS,
    ) -> None:
        """Run a command, and wait until the server is ready.

        Args:
            environment: All variables of the process; by default those of this one.
            seconds: How long the server may take.

        Raises:
            StackError: The server ended, or is not ready in time; the message has the end of its log.
        """
        self._log = self._log_path.open("wb")
        try:
            self._process = subprocess.Popen(
                command,
                cwd=self._folder,
                env=environment,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
            self._wait(self._process, is_ready, seconds)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the process; kill it if it does not stop in time."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._log is not None:
            self._log.close()

    @property
    def pid(self) -> int:
        """The id of the process, which has been started."""
        assert self._process is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code of the process; None while it runs."""
        assert self._process is not None
        return self._process.poll()

    @property
    def memory_mb(self) -> float:
        """The resident memory of the running process, in MB."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        (kilobytes,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(kilobytes) / 1024

    def _wait(self, process: subprocess.Popen[bytes], is_ready: Callable[[], bool], seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and process.poll() is None:
            if is_ready():
                return
            time.sleep(_POLL_SECONDS)
        tail = self._log_path.read_text(errors="replace")[-_LOG_TAIL:]
        raise StackError(f"{self._name} does not respond. The end of {self._log_path}:\n{tail}")
