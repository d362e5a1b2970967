"""What a benchmark yields."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PARTITIONS_PER_SECOND = "partitions/s"


class BenchmarkError(Exception):
    """Nothing can be compared: one side failed, or the two did not do the same."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One measurement beside that of a peer.

    Attributes:
        name: `<what>.<case>.<partitions>.<database>`.
        ours, peer: Medians, in `unit`.
        limit: What the machine allows, in `unit`; None when it was not measured.
        runs: How often ours was taken.
        goal: The greatest `ratio` that is good enough; of a rate, the least `ours`. None when there is none.
    """

    name: str
    ours: float
    peer: float
    unit: str
    runs: int
    limit: float | None = None
    goal: float | None = None

    @property
    def is_rate(self) -> bool:
        """Whether more is better."""
        return self.unit.endswith("/s")

    @property
    def ratio(self) -> float:
        """How many times as much as the peer ours takes: time, or memory. Less is better, of rates too."""
        return self.peer / self.ours if self.is_rate else self.ours / self.peer

    @property
    def goal_ratio(self) -> float | None:
        """The ratio at which the goal is just met."""
        return self.peer / self.goal if self.goal and self.is_rate else self.goal

    @property
    def goal_text(self) -> str:
        """The goal as people read it, `≤ 2.5 ×` or `≥ 50,000/s`; empty when there is none."""
        if self.goal is None:
            return ""
        return f"≥ {self.goal:,.0f}/s" if self.is_rate else f"≤ {self.goal:.3g} ×"

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None without one."""
        if self.goal is None:
            return None
        return self.ours >= self.goal if self.is_rate else self.ratio <= self.goal

    @property
    def parts(self) -> tuple[str, str, int, str]:
        """What, case, partitions and database: the parts of the name."""
        what, case, partition_count, database = self.name.split(".")
        return what, case, int(partition_count), database

    def as_dict(self) -> dict[str, Any]:
        """Return the figure as the JSON file holds it."""
        return {
            "name": self.name,
            "ours": self.ours,
            "peer": self.peer,
            "limit": self.limit,
            "unit": self.unit,
            "ratio": self.ratio,
            "goal": self.goal,
            "met": self.met,
            "runs": self.runs,
        }


def save(figures: Sequence[Figure], path: Path) -> None:
    """Write figures as a JSON list, one a line."""
    lines = ",\n".join(json.dumps(figure.as_dict()) for figure in figures)
    path.write_text(f"[\n{lines}\n]\n")
