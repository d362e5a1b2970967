"""What the partitions that a change concerns held before it and hold after it, for its report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.datafiles.files import Total
from catalog.rebalancing.planning import RebalancePlan

TOTALS = "totals"
"""The field of an operation's report."""


def concerned_partitions(plan: RebalancePlan) -> list[int]:
    """Return the partitions that lose or gain rows: those of before in logical order, then those that are new."""
    before = {each.partition_id: None for each in plan.readings}
    targets = {target for each in plan.readings for target in each.targets}
    return [*before, *(each for each in plan.scheme.ids if each in targets and each not in before)]


def partition_totals(
    plan: RebalancePlan, before: Mapping[int, Total], after: Mapping[int, Total]
) -> list[dict[str, Any]]:
    """Return what each of these partitions held and holds.

    Shape: `partition_id`, `partition` in words, and of `before` and `after` each `rows`, `bytes` and `files`; None
    where there is no such partition then.
    """
    old, new = plan.table.scheme, plan.scheme
    assert old is not None
    old_ids, new_ids = set(old.ids), set(new.ids)
    found = []
    for each in concerned_partitions(plan):
        was, is_there = each in old_ids, each in new_ids
        found.append(
            {
                "partition_id": each,
                "partition": (new if is_there else old).text_of(each),
                "before": _fields(before.get(each, Total())) if was else None,
                "after": _fields(after.get(each, Total())) if is_there else None,
            }
        )
    return found


def _fields(total: Total) -> dict[str, int]:
    return {"rows": total.row_count, "bytes": total.size_bytes, "files": total.file_count}
