"""Checks against what was measured in earlier partitions of a table.

A measure is usual if it is near the median of the earlier partitions, or among their middle 80 %: so a few bad
partitions do not widen what is usual, and weekends are, if some of the earlier partitions were weekends.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from statistics import median
from typing import TYPE_CHECKING, Any

from catalog import Table
from catalog.settings.learning_rules import FEWEST, LearningRule, Measure, usual_distance
from catalog.settings.quality_rules import PartitionCheck
from catalog.storage.values import ValueEncoder
from spark_jobs.checking.measures import AGE, COLUMN_AGE, DISTINCT, NEWEST, NULL_RATIO
from spark_jobs.checking.planned_checks import Check

if TYPE_CHECKING:
    import pandas

_MIDDLE = 0.8
_DATE_PARTS = ("year", "month", "day", "hour")


@dataclass(frozen=True)
class _Kind:
    """How the values of a measure are compared.

    Attributes:
        least_share, least: The smallest allowed distance from the median: a share of it, and a number.
        has_low: Too small values are unusual, too.
        unit: Divisor for texts.
    """

    measure: Measure
    least_share: float
    least: float
    has_low: bool
    unit: float = 1


_ROWS = _Kind(Measure.ROW_COUNT, 0.1, 1, True)
_NULLS = _Kind(Measure.NULLS, 0, 0.01, False)
# Approximate counts differ from the true ones by 5 %.
_DISTINCTS = _Kind(Measure.DISTINCT, 0.15, 1, True)
_AGES = _Kind(Measure.FRESHNESS, 0.1, 3_600, False, 3_600)


@dataclass(frozen=True)
class Band:
    """The usual values of a measure, both ends inclusive; `low` is None if small values are usual."""

    low: float | None
    high: float

    def __contains__(self, value: float) -> bool:
        """Return whether a value is usual."""
        return (self.low is None or value >= self.low) and value <= self.high


def usual_band(values: Sequence[float], kind: _Kind, tolerance: float) -> Band:
    """Return the band of the usual values.

    Args:
        values: Of earlier partitions; at least one.
        tolerance: The allowed distance from the median, in standard deviations.
    """
    ordered = sorted(values)
    middle = median(ordered)
    least = max(kind.least_share * abs(middle), kind.least)
    distance = usual_distance(ordered, middle, tolerance, least)
    outside = (1 - _MIDDLE) / 2 * (len(ordered) - 1)
    low = min(middle - distance, ordered[math.ceil(outside)] - least)
    high = max(middle + distance, ordered[len(ordered) - 1 - math.ceil(outside)] + least)
    return Band(low if kind.has_low else None, high)


def with_ages(
    summary: pandas.DataFrame, table: Table, values: Sequence[Sequence[str | None]], now_ms: int
) -> pandas.DataFrame:
    """Return a summary with the ages of the partitions, in place of the newest times in columns.

    The age is that of the day in the partition keys, or else, by column, that of the newest time.

    Args:
        values: The partition values of each row.
        now_ms: The time of the check, in milliseconds since 1970 UTC.
    """
    newest = [name for name in summary.columns if name.endswith(NEWEST)]
    starts = [start_of(table, partition_values) for partition_values in values]
    if any(start is not None for start in starts):
        now = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=now_ms)
        ages = {AGE: [math.nan if start is None else (now - start).total_seconds() for start in starts]}
    else:
        ages = {
            f"{name.removesuffix(NEWEST)}{COLUMN_AGE}": now_ms / 1000 - summary[name].astype("Float64")
            for name in newest
        }
    return summary.drop(columns=newest).assign(**ages)


def start_of(table: Table, values: Sequence[str | None]) -> datetime | None:
    """Return the start of the day, or of the hour, of a partition's keys, in UTC; None if they have no date.

    These are a key of the type date, keys named year, month, day and hour, or a string such as 2024-05-31 or 20240531.
    """
    by_name = dict(zip(table.key_names, values, strict=True))
    for key in table.partition_keys:
        text = by_name[key.name]
        if text is not None and key.type in ("date", "string") and (day := _date_of(text)) is not None:
            return datetime.combine(day, time(), UTC)
    if "year" not in by_name:
        return None
    try:
        year, month, day_number, hour = (int(by_name.get(part) or (0 if part == "hour" else 1)) for part in _DATE_PARTS)
        return datetime(year, month, day_number, hour, tzinfo=UTC)
    except ValueError:
        return None


def _date_of(text: str) -> date | None:
    if len(text) not in (8, 10) or not text[:4].isdigit():
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def learned_checks(
    summary: pandas.DataFrame,
    values: Sequence[Sequence[str | None]],
    table: Table,
    rule: LearningRule,
    earlier: Sequence[tuple[Sequence[str | None], PartitionCheck]],
) -> tuple[pandas.DataFrame, list[Check]]:
    """Return a summary with the results of checks against earlier partitions as further columns, and these checks.

    Partitions pass as long as fewer than `FEWEST` earlier ones are known.

    Args:
        values: The partition values of each row.
        earlier: The values and the checks of earlier partitions, newest first.
    """
    learned = _Learned(table, rule, earlier)
    groups = [learned.group(partition_values) for partition_values in values]
    # Distinct values are compared where the number of rows is usual: fewer rows have fewer of them.
    usual_rows = [
        count == count and (band := learned.band(group, "row_count")) is not None and count in band
        for group, count in zip(groups, _floats(summary["row_count"]), strict=True)
    ]
    checks, results = [], dict[str, list[bool]]()
    for name, kind in _measures(summary, rule):
        judged = list(zip(summary["partition"], groups, _floats(summary[name]), strict=True))
        if kind is _DISTINCTS:
            judged = [entry for entry, is_usual in zip(judged, usual_rows, strict=True) if is_usual]
        bands = {str(partition): learned.band(group, name) for partition, group, value in judged if value == value}
        compared = {partition: band for partition, band in bands.items() if band is not None}
        if not compared:
            continue
        number_of = {str(partition): float(value) for partition, _, value in judged}
        column = f"{name}_is_usual"
        is_usual = {partition: number_of[partition] in band for partition, band in compared.items()}
        results[column] = [is_usual.get(partition, True) for partition in summary["partition"]]
        checks.append(
            Check(
                column,
                _title(name, kind),
                f"as in the last {rule.last} partitions" + (f" of the same {', '.join(rule.per)}" * bool(rule.per)),
                is_claim=True,
                observed_in={partition: _number(number_of[partition], kind) for partition in compared},
                allowed_in={partition: _range(band, kind) for partition, band in compared.items()},
            )
        )
    return summary.assign(**results), checks


def _floats(measured: pandas.Series) -> list[float]:
    """Return measures as floats; NaN for unknown ones, which pandas has as NA, and with which no comparison works."""
    return measured.astype("Float64").to_numpy("float64", na_value=math.nan).tolist()  # type: ignore[no-any-return]


class _Learned:
    """The bands of groups of partitions."""

    def __init__(
        self, table: Table, rule: LearningRule, earlier: Sequence[tuple[Sequence[str | None], PartitionCheck]]
    ) -> None:
        self._encoder = ValueEncoder(table)
        self._positions = [table.key_names.index(key) for key in rule.per]
        self._rule = rule
        self._measures: dict[bytes, list[Mapping[str, Any]]] = {}
        for values, check in earlier:
            of_group = self._measures.setdefault(self.group(values), [])
            if len(of_group) < rule.last:
                of_group.append(check.measures)
        self._bands: dict[tuple[bytes, str], Band | None] = {}

    def group(self, values: Sequence[str | None]) -> bytes:
        """Return the values that compared partitions have in common."""
        return self._encoder.group(self._positions, [values[position] for position in self._positions])

    def band(self, group: bytes, name: str) -> Band | None:
        """Return the usual values of a measure; None if too few partitions have it."""
        if (group, name) not in self._bands:
            known = [measures[name] for measures in self._measures.get(group, ()) if name in measures]
            is_known = len(known) >= FEWEST
            self._bands[group, name] = usual_band(known, _kind(name), self._rule.tolerance) if is_known else None
        return self._bands[group, name]


def _kind(name: str) -> _Kind:
    if name == "row_count":
        return _ROWS
    if name == AGE or name.endswith(COLUMN_AGE):
        return _AGES
    return _NULLS if name.endswith(NULL_RATIO) else _DISTINCTS


def _measures(summary: pandas.DataFrame, rule: LearningRule) -> Iterator[tuple[str, _Kind]]:
    for name in summary.columns:
        if name in ("row_count", AGE) or name.endswith((NULL_RATIO, DISTINCT, COLUMN_AGE)):
            kind = _kind(name)
            if kind.measure in rule.measures:
                yield name, kind


def _title(name: str, kind: _Kind) -> str:
    match kind.measure:
        case Measure.ROW_COUNT:
            return "rows"
        case Measure.NULLS:
            return f"ratio of nulls in {name.removesuffix(NULL_RATIO)}"
        case Measure.DISTINCT:
            return f"distinct values of {name.removesuffix(DISTINCT)}"
    if name == AGE:
        return "hours from the start of the partition's day to its check"
    return f"hours from the newest {name.removesuffix(COLUMN_AGE)} to the check"


def _number(value: float, kind: _Kind) -> str:
    shown = value / kind.unit
    return f"{shown:,.0f}" if kind.has_low or abs(shown) >= 100 else f"{shown:.3g}"


def _range(band: Band, kind: _Kind) -> str:
    learned = "as in earlier partitions"
    if band.low is None:
        return f"at most {_number(band.high, kind)}, {learned}"
    return f"{math.ceil(max(band.low, 0)):,} to {math.floor(band.high):,}, {learned}"
