"""Counts of the columns of each partition, and their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as f

from catalog import Table
from catalog.errors import InvalidConfigurationError
from catalog.settings.learning_rules import Measure
from catalog.settings.quality_rules import QualityRules
from catalog.settings.relation_rules import UniqueRule
from spark_jobs.reading.paths import quoted

AGE = "age_seconds"
"""The measure of the time from the day of a partition's keys to its check."""

NULLS, NULL_RATIO, DISTINCT, NEWEST, COLUMN_AGE = "_nulls", "_null_ratio", "_distinct", "_newest", "_age_seconds"
DUPLICATES, ELSEWHERE, ORPHANS = "_duplicates", "_elsewhere", "_orphans"
"""Ends of the names of measures and counts, after the names of columns."""

COUNTS = (DUPLICATES, ELSEWHERE, ORPHANS)
MEASURES = (NULL_RATIO, DISTINCT, COLUMN_AGE)
"""Ends of the names of what the catalog stores of each partition, besides its rows and `AGE`."""

MOST_COLUMNS = 100
"""The number of columns that are measured if a rule names none."""

_NOT_COMPARED = ("array", "map", "struct", "binary", "variant")
_TIMES = ("date", "timestamp")


def require_columns(table: Table, types: Mapping[str, str], rules: QualityRules) -> None:
    """Check that the data files have the columns of the rules.

    Raises:
        InvalidConfigurationError: They do not have one.
    """
    named = {
        "columns": [*rules.columns],
        "learn.columns": [] if rules.learn is None else rules.learn.columns,
        "unique": [name for rule in rules.unique for name in rule.columns],
        "references": [*rules.references],
    }
    for place, names in named.items():
        for name in names:
            if name not in types:
                raise InvalidConfigurationError(
                    f"quality.{place} names {name}, which {table.full_name} does not have; its columns are "
                    f"{', '.join(types)}"
                )


def measured_columns(table: Table, types: Mapping[str, str], rules: QualityRules) -> list[str]:
    """Return the columns whose measures are learned, or whose values are unique."""
    learned = _learned(table, types, rules)
    return list(dict.fromkeys([*learned, *(name for rule in rules.unique for name in rule.columns)]))


def null_columns(table: Table, types: Mapping[str, str], rules: QualityRules) -> list[str]:
    """Return the columns whose nulls are counted."""
    learned = _learned(table, types, rules) if _measures(rules, Measure.NULLS) else ()
    return list(dict.fromkeys([*rules.columns, *learned]))


def column_measures(table: Table, types: Mapping[str, str], rules: QualityRules) -> Iterator[Column]:
    """Yield the aggregates of columns that can be combined from those of parts of a partition."""
    for name in null_columns(table, types, rules):
        yield f.count_if(f.col(quoted(name)).isNull()).alias(f"{name}{NULLS}")
    if _measures(rules, Measure.FRESHNESS):
        for name in _learned(table, types, rules):
            if types[name].startswith(_TIMES):
                newest = f.max(f.col(quoted(name))).cast("timestamp").cast("double")
                yield newest.alias(f"{name}{NEWEST}")


def distinct_measures(table: Table, types: Mapping[str, str], rules: QualityRules) -> list[Column]:
    """Return the aggregates of columns that are of whole partitions only."""
    aggregates = [duplicates(rule) for rule in rules.unique]
    if _measures(rules, Measure.DISTINCT):
        for name in _learned(table, types, rules):
            aggregates.append(f.approx_count_distinct(quoted(name)).alias(f"{name}{DISTINCT}"))
    return aggregates


def duplicates(rule: UniqueRule) -> Column:
    """Return the aggregate that counts the rows whose values an earlier row of the group has."""
    columns = [f.col(quoted(name)) for name in rule.columns]
    return (f.count_if(is_complete(rule)) - f.count_distinct(*columns)).alias(column_of(rule, DUPLICATES))


def is_complete(rule: UniqueRule) -> Column:
    """Return whether a row has values in all columns of a unique rule."""
    return reduce(Column.__and__, (f.col(quoted(name)).isNotNull() for name in rule.columns))


def column_of(rule: UniqueRule, end: str) -> str:
    """Return the summary's column of a unique rule."""
    return "_".join(rule.columns) + end


def _measures(rules: QualityRules, measure: Measure) -> bool:
    return rules.learn is not None and measure in rules.learn.measures


def _learned(table: Table, types: Mapping[str, str], rules: QualityRules) -> list[str]:
    """Return the columns whose measures are learned."""
    if rules.learn is None or rules.learn.measures == {Measure.ROW_COUNT}:
        return []
    if rules.learn.columns:
        return list(rules.learn.columns)
    names = (column.name for column in table.columns)
    compared = [name for name in names if name in types and not types[name].startswith(_NOT_COMPARED)]
    return compared[:MOST_COLUMNS]
