"""`calve serve` in a process of its own, on free local ports."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from standalone.server_process import ServerProcess

_PLACE = re.compile(r"(Hive Metastore|Glue|Iceberg REST|metrics) on (?:https?://)?([\w.\[\]:]+:\d+)")
_DOORS = {"hms": "Hive Metastore", "glue": "Glue", "rest": "Iceberg REST", "metrics": "metrics"}


class CalveServer:
    """A context manager that runs the front doors of the catalog that the environment names."""

    def __init__(
        self,
        folder: Path,
        *,
        doors: Sequence[str] = ("hms", "glue", "rest"),
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare the command.

        Args:
            folder: For the log, `calve-serve.log`.
            doors: Of `hms`, `glue`, `rest` and `metrics`.
            options: More options of `calve serve`.
            environment: Variables besides those of this process, such as `CALVE_CATALOG_URL`.
        """
        self.log_path = folder / "calve-serve.log"
        self._environment = {**os.environ, **(environment or {})}
        places = [option for door in doors for option in (f"--{door}", "0")]
        left_out = [f"--no-{door}" for door in ("hms", "glue", "rest") if door not in doors]
        self._command = [sys.executable, "-m", "catalog.cli", "serve", *places, *left_out, *options]
        self._process = ServerProcess("calve serve", folder, self.log_path)

    def address(self, door: str) -> str:
        """Return `host:port` of a door."""
        places: dict[str, str] = dict(_PLACE.findall(self.log))
        return places[_DOORS[door]]

    @property
    def pid(self) -> int:
        """The id of the supervisor's process."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code of the supervisor; None while it runs."""
        return self._process.exit_code

    @property
    def log(self) -> str:
        """The output of all processes."""
        return self.log_path.read_text(errors="replace")

    def start(self) -> None:
        """Start the server, and wait until it is ready.

        Raises:
            StackError: It has ended; the message has its output.
        """
        self._process.start(self._command, lambda: "Ready: " in self.log, self._environment)

    def stop(self) -> None:
        """Stop the server."""
        self._process.stop()

    def __enter__(self) -> Self:
        """Start the server, and wait until it is ready."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the server."""
        self.stop()
