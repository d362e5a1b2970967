"""Totals of the affected partitions before and after a change, for its report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.datafiles.files import Total
from catalog.datafiles.partitions import text_of_partition
from catalog.rebalancing.planning import RebalancePlan
from catalog.schemes.model import UNPLACED

TOTALS = "totals"
"""The field of an operation's report that contains the totals."""


def concerned_partitions(plan: RebalancePlan) -> list[int]:
    """Return the partitions that lose or gain rows: the existing ones in logical order, then the new ones."""
    before = {reading.partition_id: None for reading in plan.readings}
    targets = {target for reading in plan.readings for target in reading.targets}
    return [*before, *(number for number in plan.scheme.ids if number in targets and number not in before)]


def partition_totals(
    plan: RebalancePlan, before: Mapping[int, Total], after: Mapping[int, Total]
) -> list[dict[str, Any]]:
    """Return the totals of each affected partition before and after a change.

    Shape: `partition_id`, `partition` (a description), and `before` and `after` with `rows`, `bytes` and `files` each,
    or None if the partition does not exist then.
    """
    old, new = plan.table.scheme, plan.scheme
    assert old is not None
    old_ids, new_ids = {*old.ids, UNPLACED}, {*new.ids, UNPLACED}
    totals = []
    for number in concerned_partitions(plan):
        existed, exists = number in old_ids, number in new_ids
        totals.append(
            {
                "partition_id": number,
                "partition": text_of_partition(new if exists else old, number),
                "before": _fields(before.get(number, Total())) if existed else None,
                "after": _fields(after.get(number, Total())) if exists else None,
            }
        )
    return totals


def _fields(total: Total) -> dict[str, int]:
    return {"rows": total.row_count, "bytes": total.size_bytes, "files": total.file_count}
