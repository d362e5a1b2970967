"""Reports of an import, one per table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self

SHOWN = 100
"""The number of partitions of each kind that a report names; it counts all of them."""


HEADERS = ("TABLE", "OUTCOME", "PARTITIONS", "ADDED", "CHANGED", "VANISHED", "REFUSED", "REMARKS")
"""The headers of `TableReport.row`."""


class ImportOutcome(StrEnum):
    """The outcome of the import of a table."""

    CREATED = "created"
    UPDATED = "updated"
    """Its definition in the catalog differed, and was updated."""
    UNCHANGED = "unchanged"
    """Its definition equals the source's; partitions may be new."""
    DIFFERS = "differs"
    """Its definition differs from the source's, and was not updated, because updates were not requested."""
    REFUSED = "refused"
    """The catalog cannot store it."""
    FAILED = "failed"


@dataclass
class Named:
    """A count of things, with descriptions of the first ones."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Count a thing, and store its description if there is room."""
        self.count += 1
        if len(self.first) < SHOWN:
            self.first.append(text)


@dataclass
class PartitionCounts:
    """The outcome of the import of a table's partitions.

    Attributes:
        seen: The number of partitions in the source.
        added: The number of new partitions.
        changed: Partitions whose location, format, properties or statistics differ from the source.
        updated: The number of these that were updated.
        vanished: Partitions that only the catalog has.
        vanished_digest: A digest of these; empty if there are none.
        dropped: The number of these that were dropped; their files stay.
        refused: Partitions that the catalog cannot store, with reasons.
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
        """A description of the changes, or an empty string if nothing changed."""
        if not (self.added or self.updated or self.dropped):
            return ""
        return f"{self.added:,} partitions were added, {self.updated:,} updated and {self.dropped:,} dropped"


@dataclass(frozen=True)
class TableReport:
    """The report of the import of one table.

    Attributes:
        table: `database.name`.
        differences: Differences between catalog and source, as they were before updates.
        reason: The reason for REFUSED or FAILED.
        is_dry_run: Nothing was changed; the counts describe what would be changed.
    """

    table: str
    outcome: ImportOutcome
    differences: tuple[str, ...] = ()
    partitions: PartitionCounts = field(default_factory=PartitionCounts)
    reason: str | None = None
    is_dry_run: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {**asdict(self), "differences": list(self.differences)}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Return the report that `as_json` has stored."""
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
        """Return the report as a table row; see `HEADERS`."""
        counts = self.partitions
        numbers = (counts.seen, counts.added, counts.changed.count, counts.vanished.count, counts.refused.count)
        return (self.table, self.outcome, *numbers, self.summary)

    @property
    def summary(self) -> str:
        """Remarks beyond the counts, in one line."""
        partitions = self.partitions
        remarks = [self.reason or "", "; ".join(self.differences)]
        for what, named in (("refused", partitions.refused), ("vanished", partitions.vanished)):
            if named.count:
                remarks.append(f"{what}: {', '.join(named.first[:3])}{', …' if named.count > 3 else ''}")
        return "; ".join(text for text in remarks if text)
