"""Rules that are learned from the earlier partitions of a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from catalog.errors import InvalidConfigurationError
from catalog.settings.problems import Problems
from catalog.settings.rule_fields import is_number, require_fields, require_keys, require_mapping, require_names

_PLACE = "quality.learn"
_FIELDS = ("measures", "columns", "per", "last", "tolerance")
FEWEST = 7
"""Partitions are compared if at least so many earlier ones were measured: those of a week of daily loads."""

_MOST = 500
_DEVIATIONS = 1.4826
"""The standard deviation of normal values, divided by the median of their distances from the median."""


class Measure(StrEnum):
    """The measures of a partition that are compared with those of earlier ones."""

    ROW_COUNT = "row_count"
    NULLS = "nulls"
    DISTINCT = "distinct"
    FRESHNESS = "freshness"


@dataclass(frozen=True)
class LearningRule:
    """Which measures of a partition must be as usual.

    Attributes:
        columns: The columns whose nulls, distinct values and newest times are measured; empty for all columns.
        per: Keys whose values the compared partitions have in common; empty to compare all partitions of the table.
        last: The number of earlier partitions that a partition is compared with.
        tolerance: The allowed distance from the median, in standard deviations (estimated from the median of the
            distances).
    """

    measures: frozenset[Measure] = frozenset(Measure)
    columns: tuple[str, ...] = ()
    per: tuple[str, ...] = ()
    last: int = 30
    tolerance: float = 4.0

    @classmethod
    def from_config(cls, config: Any, *, keys: Sequence[str]) -> LearningRule | None:
        """Parse the rule: `on`, `off`, a list of measures, or a mapping; None if nothing is learned.

        Raises:
            InvalidConfigurationError: A field is unknown or has an invalid value.
        """
        if config is None or config is False or config == "off":
            return None
        if config is True or config == "on":
            return cls()
        if isinstance(config, (list, tuple)):
            return cls(_measures(_PLACE, config))
        if isinstance(config, str):
            raise InvalidConfigurationError(
                f"{_PLACE} is {config!r}, expected on, off, or a list of {', '.join(Measure)}"
            )
        rule = require_mapping(_PLACE, config)
        problems = Problems()
        with problems:
            require_fields(_PLACE, rule, _FIELDS)
        measures, columns, per = cls.measures, cls.columns, cls.per
        with problems:
            if "measures" in rule:
                measures = _measures(f"{_PLACE}.measures", rule["measures"])
        with problems:
            if "columns" in rule:
                columns = require_names(f"{_PLACE}.columns", rule["columns"], "columns")
        with problems:
            if "per" in rule:
                per = require_names(f"{_PLACE}.per", rule["per"], "partition keys")
                require_keys(f"{_PLACE}.per", per, keys)
        last, tolerance = rule.get("last", cls.last), rule.get("tolerance", cls.tolerance)
        with problems:
            if isinstance(last, bool) or not isinstance(last, int) or not FEWEST <= last <= _MOST:
                raise InvalidConfigurationError(
                    f"{_PLACE}.last is {last!r}, expected a number of partitions from {FEWEST} to {_MOST}"
                )
        with problems:
            if not is_number(tolerance) or not 0 < tolerance < 1_000:
                raise InvalidConfigurationError(
                    f"{_PLACE}.tolerance is {tolerance!r}, expected a number of standard deviations such as 4"
                )
        problems.report()
        return cls(measures, columns, per, last, float(tolerance))


def _measures(place: str, value: Any) -> frozenset[Measure]:
    names = require_names(place, value, f"measures: {', '.join(Measure)}")
    if unknown := [name for name in names if name not in list(Measure)]:
        raise InvalidConfigurationError(
            f"{place} names {', '.join(unknown)}, which is not measured; the measures are {', '.join(Measure)}"
        )
    return frozenset(map(Measure, names))


def usual_distance(values: Iterable[float], middle: float, tolerance: float, least: float) -> float:
    """Return the distance from the median up to which a value is usual.

    Args:
        values: The earlier values; at least one.
        middle: Their median.
        tolerance: As in `LearningRule`.
        least: The smallest distance.
    """
    # Not in each parse of the DAG files, which read rules.
    from statistics import median

    return max(tolerance * _DEVIATIONS * median(abs(value - middle) for value in values), least)
