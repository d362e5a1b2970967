"""The state file of a running stack, with which other processes inspect it, stop it, or clean up after it."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from standalone.processes import ProcessIdentity, end_processes, marked_processes, session_members

HEALTHY = "healthy"


@dataclass(frozen=True)
class StackState:
    """The state of a stack, stored in `run/stack.json` of its state folder.

    Attributes:
        stack_id: Mark of its processes.
        owner: The process that runs the stack.
        phase: The current phase, for messages; `HEALTHY` when the stack is up.
        url: The address of Airflow, once known.
        components: The first process of each component, by name.
        environment: The environment variables of its processes, once known.
    """

    stack_id: str
    owner: ProcessIdentity
    phase: str = "starting"
    url: str | None = None
    components: dict[str, ProcessIdentity] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of_running(cls, home: Path) -> StackState | None:
        """Return the state of the stack that runs in this folder; None if there is none."""
        state = cls.read(home)
        return state if state and state.owner.is_alive else None

    @classmethod
    def read(cls, home: Path) -> StackState | None:
        """Return the state of the folder's latest stack; None if it was stopped, or never started."""
        path = state_path(home)
        if not path.exists():
            return None
        document: dict[str, Any] = json.loads(path.read_text())
        document["owner"] = ProcessIdentity(**document["owner"])
        document["components"] = {name: ProcessIdentity(**value) for name, value in document["components"].items()}
        return cls(**document)

    def write(self, home: Path) -> StackState:
        """Write the state atomically, and return it."""
        write_private(state_path(home), json.dumps(asdict(self), indent=2))
        return self

    def with_phase(self, phase: str) -> StackState:
        """Return a copy with another phase."""
        return replace(self, phase=phase)

    def processes(self) -> set[int]:
        """Return the running processes of this stack, without its owner and its PostgreSQL server.

        A session id is not reused while the session has members, so it belongs to another session only if its first
        process runs with another start time.
        """
        sessions = set()
        for identity in self.components.values():
            current = ProcessIdentity.of(identity.pid)
            if current is None or current == identity:
                sessions.add(identity.pid)
        return session_members(sessions) | marked_processes(self.stack_id)

    def end_processes(self) -> None:
        """Send SIGTERM to `processes()`, and SIGKILL after 15 seconds."""
        end_processes(self.processes)


def shell_file(home: Path) -> Path:
    """Return the file to source in a shell: it sets the environment variables of the `calve` command."""
    return home / "calve.env"


def airflow_command(home: Path) -> Path:
    """Return Airflow's command with the environment of the stack."""
    return home / "bin" / "airflow"


def passwords_path(home: Path) -> Path:
    """Return the file with the passwords of Airflow's users."""
    return home / "airflow" / "passwords.json"


def read_passwords(home: Path) -> dict[str, str]:
    """Return the passwords of Airflow's users, by user name."""
    passwords: dict[str, str] = json.loads(passwords_path(home).read_text())
    return passwords


def state_path(home: Path) -> Path:
    """Return the state file of a state folder."""
    return home / "run" / "stack.json"


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    os.replace(temporary, path)
