"""Tables that have stopped receiving partitions, as learned from the times of their earlier loads.

Each load of a table with quality rules leaves a check in the history, so that its times are read without the partitions
themselves. A table is late if nothing arrived for longer than is usual between two loads, by the rule of
`quality.learn` for freshness. It stays late until its checks expire from the history, or the rule is taken away.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import median

from sqlalchemy import func, select

from catalog.errors import TableNotFoundError
from catalog.settings.learning_rules import FEWEST, LearningRule, usual_distance
from catalog.storage import Storage
from catalog.storage.clock import read_clock_ms
from catalog.storage.schema import QualityCheckRow
from catalog.tables.definitions import Definitions

_MIDDLE = 0.9
_LEAST_SHARE, _LEAST_MS = 0.1, 3_600_000
_SHORTEST_MS = 24 * 3_600_000
"""Tables whose checks are of a shorter time are not judged: they may be the loads of its past, one after the other."""


@dataclass(frozen=True)
class LateTable:
    """A table for which nothing has arrived for longer than usual.

    Attributes:
        table: `database.table`.
        latest_ms: The time of its latest load, in milliseconds since 1970 UTC.
        silent_seconds: The time since then.
        usual_seconds: The longest usual time between two loads.
    """

    table: str
    latest_ms: int
    silent_seconds: float
    usual_seconds: float

    def __str__(self) -> str:
        """Return the times for people."""
        return f"nothing arrived for {_shown(self.silent_seconds)}, usually {_shown(self.usual_seconds)} at most"


def late_tables(storage: Storage, definitions: Definitions, rules: Mapping[str, LearningRule]) -> list[LateTable]:
    """Return the tables that are late, in the order of the rules; one indexed query for each, in one transaction.

    Args:
        rules: Table → its rule; tables that do not exist are skipped.
    """
    row, late = QualityCheckRow, []
    with storage.read() as connection:
        now_ms = read_clock_ms(connection)
        for name, rule in rules.items():
            try:
                table = definitions.get_table(name, connection)
            except TableNotFoundError:
                continue
            query = select(row.checked_at_ms).where(row.table_id == table.id)
            newest_first = query.order_by(row.checked_at_ms.desc(), row.operation_number.desc())
            times = connection.scalars(newest_first.limit(rule.last + 1)).all()
            oldest = connection.scalar(select(func.min(row.checked_at_ms)).where(row.table_id == table.id))
            is_judged = oldest is not None and times[0] - oldest >= _SHORTEST_MS
            usual_ms = usual_gap_ms(times, rule.tolerance) if is_judged else None
            if usual_ms is not None and now_ms - times[0] > usual_ms:
                late.append(LateTable(name, times[0], (now_ms - times[0]) / 1000, usual_ms / 1000))
    return late


def usual_gap_ms(times_ms: Sequence[int], tolerance: float) -> float | None:
    """Return the longest usual time between two loads; None if fewer than `FEWEST` are known.

    Loads that follow each other within a tenth of the time that is typical count as one, such as those of a backfill.

    Args:
        times_ms: The times of the loads, newest first.
        tolerance: The allowed distance from the median, in standard deviations.
    """
    if len(times_ms) <= FEWEST:
        return None
    gaps = sorted(later - earlier for later, earlier in pairwise(times_ms))
    # Half of the whole time lies in gaps that are not longer: many short ones do not count more than a few long ones.
    typical = gaps[bisect_left([*accumulate(gaps)], sum(gaps) / 2)]
    gaps = [gap for gap in gaps if gap >= _LEAST_SHARE * typical]
    middle = median(gaps)
    least = max(_LEAST_SHARE * middle, _LEAST_MS)
    distance = usual_distance(gaps, middle, tolerance, least)
    # A table without loads at weekends has longer gaps regularly.
    return max(middle + distance, gaps[math.ceil(_MIDDLE * (len(gaps) - 1))] + least)


def _shown(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours / 24:,.1f} days" if hours >= 48 else f"{hours:,.1f} hours"
