"""What an import found and did, table by table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self

SHOWN = 100
"""Partitions of each sort that a report names; it counts them all."""


HEADERS = ("TABLE", "OUTCOME", "PARTITIONS", "ADDED", "CHANGED", "VANISHED", "REFUSED", "REMARKS")
"""What `TableReport.row` has."""


class ImportOutcome(StrEnum):
    """What became of a table."""

    CREATED = "created"
    UPDATED = "updated"
    """It was in the catalog with another definition, and has the source's now."""
    UNCHANGED = "unchanged"
    """Its definition is the source's; partitions may be new."""
    DIFFERS = "differs"
    """It has another definition than in the source, and keeps it, because nobody asked to change it."""
    REFUSED = "refused"
    """The catalog cannot keep it."""
    FAILED = "failed"


@dataclass
class Named:
    """How many things there are, and the first of them in words."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Count one more."""
        self.count += 1
        if len(self.first) < SHOWN:
            self.first.append(text)


@dataclass
class PartitionCounts:
    """What became of a table's partitions.

    Attributes:
        seen: Those that the source has.
        added: Those of them that are new in the catalog.
        changed: Those whose location, format, properties or statistics are others than in the source.
        updated: How many of these were changed.
        vanished: Those that only the catalog has.
        vanished_digest: A digest of them; empty when there is none.
        dropped: How many of these were dropped; their files stay.
        refused: Those that the catalog cannot keep, with the reason.
    """

    seen: int = 0
    added: int = 0
    changed: Named = field(default_factory=Named)
    updated: int = 0
    vanished: Named = field(default_factory=Named)
    vanished_digest: str = ""
    dropped: int = 0
    refused: Named = field(default_factory=Named)

    @property
    def applied(self) -> str:
        """The changes in words, or an empty string if nothing changed."""
        if not (self.added or self.updated or self.dropped):
            return ""
        return f"{self.added:,} partitions were added, {self.updated:,} updated and {self.dropped:,} dropped"


@dataclass(frozen=True)
class TableReport:
    """What an import did with one table.

    Attributes:
        table: `database.name`.
        differences: What is defined otherwise in the catalog than in the source, or was until now.
        reason: Why it was REFUSED or FAILED.
        is_dry_run: Nothing was changed; the counts say what would be.
    """

    table: str
    outcome: ImportOutcome
    differences: tuple[str, ...] = ()
    partitions: PartitionCounts = field(default_factory=PartitionCounts)
    reason: str | None = None
    is_dry_run: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return {**asdict(self), "differences": list(self.differences)}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Read what `as_json` wrote."""
        counts = dict(fields["partitions"])
        named = {name: Named(**counts[name]) for name in ("changed", "vanished", "refused")}
        return cls(
            **{
                **fields,
                "outcome": ImportOutcome(fields["outcome"]),
                "differences": tuple(fields["differences"]),
                "partitions": PartitionCounts(**{**counts, **named}),
            }
        )

    def row(self) -> tuple[str | int, ...]:
        """Return the report as a line of a table."""
        counts = self.partitions
        numbers = (counts.seen, counts.added, counts.changed.count, counts.vanished.count, counts.refused.count)
        return (self.table, self.outcome, *numbers, self.summary)

    @property
    def summary(self) -> str:
        """What there is to say beyond the counts, in one line."""
        partitions = self.partitions
        said = [self.reason or "", "; ".join(self.differences)]
        for what, named in (("refused", partitions.refused), ("vanished", partitions.vanished)):
            if named.count:
                said.append(f"{what}: {', '.join(named.first[:3])}{', …' if named.count > 3 else ''}")
        return "; ".join(text for text in said if text)
