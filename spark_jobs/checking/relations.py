"""Rules about rows together: unique columns, and columns that refer to other tables.

They need a pass of their own, over the columns that they name only, except for columns that are unique in a partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog import Catalog, Table
from catalog.errors import InvalidConfigurationError, NotFoundError
from catalog.settings.quality_rules import QualityRules
from catalog.settings.relation_rules import Reference, UniqueRule
from spark_jobs.checking.measures import ELSEWHERE, ORPHANS, column_of, is_complete
from spark_jobs.queries.query import query
from spark_jobs.reading.paths import quoted

if TYPE_CHECKING:
    import pandas

PARTITION = "calve/partition"
"""The column of the id of a row's partition."""


def related_columns(rules: QualityRules) -> list[str]:
    """Return the columns of the rules that `related_counts` counts."""
    unique = [name for rule in rules.unique if rule.is_table_wide for name in rule.columns]
    return list(dict.fromkeys([*unique, *rules.references]))


def related_counts(
    spark: SparkSession, catalog: Catalog, table: Table, rules: QualityRules, rows: DataFrame, visible: Set[int]
) -> Iterator[pandas.DataFrame]:
    """Yield what the rules about other partitions and tables count, each as `partition_id` and a column of counts.

    Partitions without such rows are missing.

    Args:
        rows: Of the checked partitions, with the column `PARTITION`.
        visible: The ids of those that readers see.

    Raises:
        InvalidConfigurationError: A reference names a table or column that does not exist, or one of another type.
    """
    for rule in rules.unique:
        if rule.is_table_wide:
            yield _counted(_elsewhere(spark, catalog, table, rule, rows, visible), column_of(rule, ELSEWHERE))
    for name, reference in rules.references.items():
        yield _counted(orphans(spark, catalog, table, name, reference, rows), f"{name}{ORPHANS}")


def _counted(rows: DataFrame, name: str) -> pandas.DataFrame:
    counts = rows.groupBy(f.col(quoted(PARTITION)).alias("partition_id")).agg(f.sum("count").alias(name))
    return counts.toPandas()


def _elsewhere(
    spark: SparkSession, catalog: Catalog, table: Table, rule: UniqueRule, rows: DataFrame, visible: Set[int]
) -> DataFrame:
    """Return the values of the checked partitions that other partitions have, too, each with its count of 1."""
    partition, one = f.col(quoted(PARTITION)), f.lit(1)
    names = [quoted(name) for name in rule.columns]
    mine = rows.where(is_complete(rule)).groupBy(partition, *names).count()
    of_visible = f.when(partition.isin(list(visible)), f.col("count")).otherwise(0)
    by_value = mine.groupBy(*names).agg(f.collect_list(partition).alias("partitions"), f.sum(of_visible).alias("own"))
    # Readers see the rows of the table and, among them, those of the checked partitions that are visible already.
    whole = query(spark, f"SELECT {', '.join(names)} FROM {_name(table.full_name)}", catalog=catalog)
    same = whole.join(by_value.select(*names), list(rule.columns), "left_semi").groupBy(*names)
    by_value = by_value.join(same.agg(f.count(one).alias("all")), list(rule.columns), "left")
    repeated = by_value.where("size(partitions) > 1 OR coalesce(`all`, 0) > own")
    return repeated.select(f.explode("partitions").alias(PARTITION), one.alias("count"))


def orphans(
    spark: SparkSession, catalog: Catalog, table: Table, name: str, reference: Reference, rows: DataFrame
) -> DataFrame:
    """Return the values to which nothing in the other table belongs, with the numbers of their rows.

    Args:
        name: The column that refers to the other table.
        rows: With this column, and `PARTITION`.

    Returns:
        `PARTITION`, `value` and `count`.

    Raises:
        InvalidConfigurationError: The reference names a table or column that does not exist, or one of another type.
    """
    place = f"quality.references.{name}"
    try:
        target = catalog.get_table(reference.table)
    except NotFoundError as error:
        raise InvalidConfigurationError(f"{place} is {reference}, but {error}") from None
    known = [*(column.name for column in target.columns), *target.key_names]
    if reference.column not in known:
        raise InvalidConfigurationError(
            f"{place} is {reference}, but {target.full_name} has no column {reference.column}; its columns are "
            f"{', '.join(known)}"
        )
    value = f.col(quoted(name))
    mine = rows.where(value.isNotNull()).groupBy(f.col(quoted(PARTITION)), value.alias("value")).count()
    statement = f"SELECT {quoted(reference.column)} AS value FROM {_name(target.full_name)}"
    others = query(spark, statement, catalog=catalog)
    if target.id == table.id and reference.column in rows.columns:
        # Rows that are not visible yet may refer to each other.
        others = others.union(rows.select(quoted(reference.column)))
    types = [dict(frame.dtypes)["value"] for frame in (mine, others)]
    if (types[0] == "string") != (types[1] == "string"):
        raise InvalidConfigurationError(
            f"{place} is {reference}: {name} has the type {types[0]}, but {reference} has the type {types[1]}, and the "
            "two are never equal; name a column of the same type"
        )
    return mine.join(others.where("value IS NOT NULL").distinct(), "value", "left_anti")


def _name(table: str) -> str:
    return ".".join(map(quoted, table.split(".")))
