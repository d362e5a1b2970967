"""Explanation of a search for partitions, as text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from catalog.expressions.tree import keys_of
from catalog.partitions.scanning import Scan

_SHOWN_RANGES = 10


@dataclass(frozen=True)
class Explanation:
    """What a search read, and why.

    Attributes:
        index: Name of the index that was read; None if all partitions were read.
        index_conditions: (key, operator) pairs that the index answered.
        checked_keys: Keys that were checked on the index key, before partitions were fetched.
        residual_keys: Keys that were checked on the fetched partitions.
        skipped_key: Index key without a condition, whose distinct values were looked up first.
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
    skipped_key: str | None
    ranges: tuple[str, ...]
    items_read: int
    partitions_fetched: int
    partitions_found: int
    not_used: Mapping[str, str]
    quarantined: int = 0
    is_cut: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the explanation as JSON values."""
        return {
            "index": self.index,
            "index_conditions": [{"key": key, "operator": operator} for key, operator in self.index_conditions],
            "checked_keys": list(self.checked_keys),
            "residual_keys": list(self.residual_keys),
            "skipped_key": self.skipped_key,
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
            if self.skipped_key:
                lines.append(f"skipped:            {self.skipped_key}, by looking up its values first")
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
        skipped_key=plan.skip.name if plan.skip else None,
        ranges=tuple(key_range.text for key_range in scan.ranges),
        items_read=scan.counts.items_read,
        partitions_fetched=scan.counts.partitions_fetched,
        partitions_found=scan.counts.partitions_found,
        not_used=plan.not_used,
        quarantined=scan.counts.partitions_in_other_states,
        is_cut=scan.counts.is_cut,
    )
