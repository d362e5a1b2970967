"""What a running stack writes down, so that another process can look at it, stop it, or clean up after it."""

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
    """The stack's own account of itself, kept in `run/stack.json` of its state folder.

    Attributes:
        stack_id: Mark by which its processes are found.
        owner: The process that runs it.
        phase: What it is doing, in words; `HEALTHY` when it is up.
        url: Where Airflow answers, once that is decided.
        components: The first process of each component, by name.
    """

    stack_id: str
    owner: ProcessIdentity
    phase: str = "starting"
    url: str | None = None
    components: dict[str, ProcessIdentity] = field(default_factory=dict)

    @classmethod
    def read(cls, home: Path) -> StackState | None:
        """Return what the latest stack of this folder wrote; None when it ended in good order or never ran."""
        path = state_path(home)
        if not path.exists():
            return None
        document: dict[str, Any] = json.loads(path.read_text())
        document["owner"] = ProcessIdentity(**document["owner"])
        document["components"] = {name: ProcessIdentity(**value) for name, value in document["components"].items()}
        return cls(**document)

    def write(self, home: Path) -> StackState:
        """Write it down, at once or not at all, and return it."""
        write_private(state_path(home), json.dumps(asdict(self), indent=2))
        return self

    def with_phase(self, phase: str) -> StackState:
        """Return the same account in another phase."""
        return replace(self, phase=phase)

    def processes(self) -> set[int]:
        """Return the processes of this stack that still live, its owner and its PostgreSQL server not included.

        A session is its own proof: its number is not given away while it has members, so only a living first process
        with another start time shows that the number belongs to somebody else now.
        """
        sessions = set()
        for identity in self.components.values():
            current = ProcessIdentity.of(identity.pid)
            if current is None or current == identity:
                sessions.add(identity.pid)
        return session_members(sessions) | marked_processes(self.stack_id)

    def end_processes(self) -> None:
        """End what `processes` returns, gently for 15 seconds, then by force."""
        end_processes(self.processes)


def shell_file(home: Path) -> Path:
    """Return the file for a person's shell to source: it sets what `calve` needs to find this catalog."""
    return home / "calve.env"


def passwords_path(home: Path) -> Path:
    """Return the file of the passwords of Airflow's users."""
    return home / "airflow" / "passwords.json"


def read_passwords(home: Path) -> dict[str, str]:
    """Return the passwords of Airflow's users, by user name."""
    passwords: dict[str, str] = json.loads(passwords_path(home).read_text())
    return passwords


def state_path(home: Path) -> Path:
    """Return where the stack of this state folder writes what it knows about itself."""
    return home / "run" / "stack.json"


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read; a reader sees the old text or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    os.replace(temporary, path)
