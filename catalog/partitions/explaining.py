"""Explanation of a search for partitions, as text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from catalog.expressions.tree import keys_of
from catalog.partitions.scans import Scan

_SHOWN_RANGES = 10


@dataclass(frozen=True)
class Explanation:
    """What a search read, and why.

    Attributes:
        index: Name of the index that was read; None if all partitions were read.
        index_conditions: (key, operator) pairs that the index answered.
        checked_keys: Keys that were checked on the index key, before partitions were fetched.
        residual_keys: Keys that were checked on the fetched partitions.
        skipped_keys: Index keys that the filter does not bind to single values, whose values were looked up first.
        values_looked_up: The number of these values.
        not_skipped: The reason why the values of a further key were not looked up; None if there is none.
        ranges: Descriptions of the index ranges that were read.
        items_read: Index items read.
        partitions_fetched: Partitions read from the catalog.
        partitions_found: Partitions that match.
        quarantined: Partitions that match, and are quarantined, so that readers do not find them.
        not_used: Index → the reason why it was not read.
        is_cut: Whether the search has stopped at its limit, so that the counts are lower bounds.
    """

    index: str | None
    index_conditions: tuple[tuple[str, str], ...]
    checked_keys: tuple[str, ...]
    residual_keys: tuple[str, ...]
    skipped_keys: tuple[str, ...]
    ranges: tuple[str, ...]
    items_read: int
    partitions_fetched: int
    partitions_found: int
    not_used: Mapping[str, str]
    values_looked_up: int = 0
    not_skipped: str | None = None
    quarantined: int = 0
    is_cut: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the explanation as JSON values."""
        return {
            "index": self.index,
            "index_conditions": [{"key": key, "operator": operator} for key, operator in self.index_conditions],
            "checked_keys": list(self.checked_keys),
            "residual_keys": list(self.residual_keys),
            "skipped_keys": list(self.skipped_keys),
            "values_looked_up": self.values_looked_up,
            "not_skipped": self.not_skipped,
            "ranges": list(self.ranges),
            "items_read": self.items_read,
            "partitions_fetched": self.partitions_fetched,
            "partitions_found": self.partitions_found,
            "not_used": dict(self.not_used),
        }

    def __str__(self) -> str:
        """Return the explanation as text, one fact per line."""
        lines = [f"index:              {self.index or 'none, all partitions are read'}"]
        if self.index:
            conditions = ", ".join(f"{key} {operator}" for key, operator in self.index_conditions)
            lines.append(f"answered by it:     {conditions}")
            if self.skipped_keys:
                keys = ", ".join(self.skipped_keys)
                lines.append(f"skipped:            {keys}, by looking up {self.values_looked_up:,} value(s)")
            if self.not_skipped:
                lines.append(f"not skipped:        {self.not_skipped}")
            lines += [f"range:              {text}" for text in self.ranges[:_SHOWN_RANGES]]
            if len(self.ranges) > _SHOWN_RANGES:
                lines.append(f"                    and {len(self.ranges) - _SHOWN_RANGES:,} more ranges")
            if self.checked_keys:
                lines.append(f"checked in index:   {', '.join(self.checked_keys)}")
        lines.append(f"checked afterwards: {', '.join(self.residual_keys) or 'nothing'}")
        if self.index:
            lines.append(f"items read:         {self.items_read:,}")
        lines.append(f"partitions fetched: {self.partitions_fetched:,}")
        lines.append(f"partitions found:   {self.partitions_found:,}")
        lines += [f"not used:           {name}: {reason}" for name, reason in self.not_used.items()]
        return "\n".join(lines)


def explain(scan: Scan) -> Explanation:
    """Run a search to its end, and return its explanation."""
    for _ in scan.partitions:
        pass
    return explanation_of(scan)


def explanation_of(scan: Scan) -> Explanation:
    """Return the explanation of a search as far as it has run."""
    plan, names = scan.plan, scan.table.key_names
    return Explanation(
        index=None if plan.index is None else plan.index.name,
        index_conditions=plan.conditions,
        checked_keys=tuple(names[key] for key in sorted(keys_of(plan.checked_in_index))),
        residual_keys=tuple(names[key] for key in sorted(keys_of(plan.residual))),
        skipped_keys=tuple(skip.name for skip in plan.skips),
        values_looked_up=scan.counts.values_looked_up,
        not_skipped=scan.not_skipped,
        ranges=tuple(key_range.text for key_range in scan.ranges),
        items_read=scan.counts.items_read,
        partitions_fetched=scan.counts.partitions_fetched,
        partitions_found=scan.counts.partitions_found,
        not_used=plan.not_used,
        quarantined=scan.counts.partitions_in_other_states,
        is_cut=scan.counts.is_cut,
    )
