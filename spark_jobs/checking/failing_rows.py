"""The first rows that fail rules which allow a sample; they are values of the data, and never logged.

A sample has the columns of the rule, and those that identify a row by a `unique` rule. Only partitions that failed are
read once more, up to the first such rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog import Catalog, PartitionState, Table
from catalog.partitions.quarantine import LoadedPartitions
from catalog.settings.quality_rules import FailedSample, PartitionCheck, QualityRules
from catalog.settings.relation_rules import Reference, UniqueRule
from spark_jobs.checking.loaded_rows import sources_of
from spark_jobs.checking.measures import DUPLICATES, ELSEWHERE, NULL_RATIO, ORPHANS, column_of, is_complete
from spark_jobs.checking.partition_summary import bound_of
from spark_jobs.checking.planned_checks import Check
from spark_jobs.checking.relations import PARTITION, orphans
from spark_jobs.queries.query import query
from spark_jobs.reading.paths import quoted

MOST_SAMPLES = 20
"""The maximum number of samples of a check; more failures have none."""

_LONGEST = 200
"""The maximum number of characters of a value in a sample."""


_Select: TypeAlias = Callable[[DataFrame, bool], DataFrame]
"""Returns the failing rows of those of one partition, of which readers see the rows or not."""


@dataclass(frozen=True)
class _Sampled:
    """A check whose failing rows may be shown.

    Attributes:
        columns: The columns of the sample.
        rows: The number of rows.
    """

    columns: tuple[str, ...]
    rows: int
    select: _Select


def with_samples(
    spark: SparkSession,
    catalog: Catalog,
    loaded: LoadedPartitions,
    rules: QualityRules,
    checks: Mapping[str, Check],
    failed: Mapping[int, PartitionCheck],
) -> dict[int, PartitionCheck]:
    """Return failed checks of partitions, with samples for the rules that allow them.

    Args:
        checks: The checks by their columns of the summary.
        failed: Partition id → its check.
    """
    sampled = {
        checks[column].name: rule for column, rule in _sampled(spark, catalog, loaded.table, rules) if column in checks
    }
    result, left = dict(failed), MOST_SAMPLES
    for partition in loaded.partitions:
        check = failed.get(partition.id)
        names = {} if check is None else {failure.check: _rule(sampled, failure.check) for failure in check.failures}
        wanted = {name: rule for name, rule in names.items() if rule is not None}
        if not wanted or left <= 0:
            continue
        files = [file for file in loaded.files if file.partition_id == partition.id]
        one = replace(loaded, partitions=(partition,), files=files)
        columns = list(dict.fromkeys(name for rule in wanted.values() for name in rule.columns))
        frames = [source.rows.select(*map(quoted, columns)) for source in sources_of(spark, one)]
        rows = reduce(DataFrame.unionByName, frames).withColumn(PARTITION, f.lit(partition.id))
        samples, is_visible = list[FailedSample](), partition.state is PartitionState.VISIBLE
        for name, rule in list(wanted.items())[:left]:
            found = rule.select(rows, is_visible).select(*map(quoted, rule.columns)).limit(rule.rows).collect()
            samples.append(FailedSample(name, rule.columns, tuple(tuple(map(_text, row)) for row in found)))
        left -= len(samples)
        result[partition.id] = replace(result[partition.id], samples=tuple(samples))
    return result


def _rule(sampled: Mapping[str, _Sampled], check: str) -> _Sampled | None:
    """Return the rule of a check, also of one of the new rows of a partition."""
    return sampled.get(check) or sampled.get(check.removesuffix(" in the new rows"))


def _text(value: object) -> str | None:
    text = None if value is None else str(value)
    return text if text is None or len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _sampled(
    spark: SparkSession, catalog: Catalog, table: Table, rules: QualityRules
) -> Iterator[tuple[str, _Sampled]]:
    """Yield the columns of the summary whose checks allow samples, and how their failing rows are found."""
    identifying = [name for rule in rules.unique for name in rule.columns]

    def shown(name: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*identifying, name]))

    for name, rule in rules.columns.items():
        if rule.sample:
            yield f"{name}{NULL_RATIO}", _Sampled(shown(name), rule.sample, _nulls(name))
            yield f"{name}_below", _Sampled(shown(name), rule.sample, _outside(name, least=rule.minimum))
            yield f"{name}_above", _Sampled(shown(name), rule.sample, _outside(name, most=rule.maximum))
    for unique in rules.unique:
        if unique.sample:
            yield column_of(unique, DUPLICATES), _Sampled(unique.columns, unique.sample, _repeated(unique))
            select = _elsewhere(spark, catalog, table, unique)
            yield column_of(unique, ELSEWHERE), _Sampled(unique.columns, unique.sample, select)
    for name, reference in rules.references.items():
        if reference.sample:
            select = _without_target(spark, catalog, table, name, reference)
            yield f"{name}{ORPHANS}", _Sampled(shown(name), reference.sample, select)


def _nulls(name: str) -> _Select:
    return lambda rows, _: rows.where(f.col(quoted(name)).isNull())


def _outside(name: str, *, least: object = None, most: object = None) -> _Select:
    def select(rows: DataFrame, _: bool) -> DataFrame:
        column = f.col(quoted(name))
        is_outside = column > bound_of(rows, name, most) if least is None else column < bound_of(rows, name, least)
        return rows.where(is_outside)

    return select


def _repeated(rule: UniqueRule) -> _Select:
    names = [quoted(name) for name in rule.columns]
    return lambda rows, _: rows.where(is_complete(rule)).groupBy(*names).count().where("count > 1")


def _elsewhere(spark: SparkSession, catalog: Catalog, table: Table, rule: UniqueRule) -> _Select:
    names = [quoted(name) for name in rule.columns]

    def select(rows: DataFrame, is_visible: bool) -> DataFrame:
        whole = query(
            spark,
            f"SELECT {', '.join(names)} FROM {quoted(table.database)}.{quoted(table.name)}",
            catalog=catalog,
        )
        # Readers of the table see the rows of the partition among its rows, unless it is quarantined.
        own = f.count(f.lit(1)) if is_visible else f.lit(0)
        mine = rows.where(is_complete(rule)).groupBy(*names).agg(own.alias("own"))
        every = whole.groupBy(*names).agg(f.count(f.lit(1)).alias("every"))
        return mine.join(every, list(rule.columns)).where("every > own")

    return select


def _without_target(spark: SparkSession, catalog: Catalog, table: Table, name: str, reference: Reference) -> _Select:
    def select(rows: DataFrame, _: bool) -> DataFrame:
        values = orphans(spark, catalog, table, name, reference, rows)
        return rows.join(values.select(f.col("value").alias(name)), name, "left_semi")

    return select
