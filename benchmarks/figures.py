"""The results of benchmarks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Self

PARTITIONS_PER_SECOND = "partitions/s"


class BenchmarkError(Exception):
    """A comparison is not possible: one side failed, or the results differ."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One measurement and that of a peer.

    Attributes:
        name: `<what>.<case>.<partitions>.<database>`.
        ours, peer: Medians, in `unit`.
        limit: The limit of the machine, in `unit`; None if it was not measured.
        runs: The number of our runs.
        goal: The maximum `ratio`; for a rate, the minimum of `ours`. None if there is no goal.
    """

    name: str
    ours: float
    peer: float
    unit: str
    runs: int
    limit: float | None = None
    goal: float | None = None

    @classmethod
    def of_runs(
        cls,
        name: str,
        ours: Sequence[float],
        peer: Sequence[float],
        goal: float | None,
        limit: Sequence[float] | None = None,
        unit: str = "s",
    ) -> Self:
        """Return the medians of runs on PostgreSQL.

        Args:
            name: Without the database.
        """
        return cls(
            name=f"{name}.postgresql",
            ours=median(ours),
            peer=median(peer),
            limit=None if limit is None else median(limit),
            unit=unit,
            runs=len(ours),
            goal=goal,
        )

    @property
    def is_rate(self) -> bool:
        """Whether more is better."""
        return self.unit.endswith("/s")

    @property
    def ratio(self) -> float:
        """Our time or memory divided by the peer's; for rates, the inverse. Less is better."""
        return self.peer / self.ours if self.is_rate else self.ours / self.peer

    @property
    def goal_ratio(self) -> float | None:
        """The maximum ratio that meets the goal."""
        return self.peer / self.goal if self.goal and self.is_rate else self.goal

    @property
    def goal_text(self) -> str:
        """The formatted goal, `≤ 2.5 ×` or `≥ 50,000/s`; empty if there is none."""
        if self.goal is None:
            return ""
        return f"≥ {self.goal:,.0f}/s" if self.is_rate else f"≤ {self.goal:.3g} ×"

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None if there is none."""
        if self.goal is None:
            return None
        return self.ours >= self.goal if self.is_rate else self.ratio <= self.goal

    @property
    def parts(self) -> tuple[str, str, int, str]:
        """The parts of the name: what, case, partitions and database."""
        what, case, partition_count, database = self.name.split(".")
        return what, case, int(partition_count), database

    def as_dict(self) -> dict[str, Any]:
        """Return the figure as a JSON object."""
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
    """Write figures as a JSON list, one on each line."""
    lines = ",\n".join(json.dumps(figure.as_dict()) for figure in figures)
    path.write_text(f"[\n{lines}\n]\n")
