"""Measurements of a table for partitioning advice, in one pass over its rows, or two.

The first pass counts rows, nulls and approximate distinct values of all columns, and takes a sample of rows. The
second, once a scheme is chosen, computes the minimum and maximum of each column in each partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.errors import PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog import Catalog, Table
from catalog.advice.profile import ColumnProfile, PartitionSpread, QueryProfile, TableProfile, only_not_null
from catalog.errors import CatalogError
from catalog.expressions import parse_expression
from catalog.indexes.bounds import bounds_of
from catalog.model import PARTITION_ID, Column
from catalog.partitions.counting import count_visible
from catalog.schemes.hashing import HashScheme
from catalog.schemes.model import Scheme
from catalog.types.column_types import parse_column_type
from catalog.types.key_types import KeyType
from spark_jobs.queries.query import filters_on
from spark_jobs.queries.views import with_views
from spark_jobs.reading.tables import read_table
from spark_jobs.rows.placement import partition_id, stored_text, value_sql

SAMPLE_ROWS = 5_000
_ERROR = 0.05
"""Relative standard deviation of the distinct counts."""

_LONGEST_TEXT = 300
"""Maximum length of values and of error messages, in characters; the rest is cut off."""
_PICKED, _ID = "calve/picked", "calve/id"


def profile_table(
    spark: SparkSession, catalog: Catalog, table: Table, queries: Sequence[str], database: str
) -> TableProfile:
    """Measure the comparable columns of a table, and the conditions of queries on it.

    Args:
        queries: SELECTs; the profile of an invalid one has an error.
        database: The database of table names without one.

    Raises:
        CatalogError: See `read_table`.
    """
    rows = read_table(spark, table.full_name, catalog=catalog)
    known_rows, size_bytes = _known(catalog, table)
    columns = comparable_columns(table)
    row_count, profiles = profile_columns(rows, columns, rows.count() if known_rows is None else known_rows)
    query_profiles = [profile_query(spark, catalog, table, query, database) for query in queries]
    return TableProfile(table.full_name, row_count, size_bytes, tuple(profiles), tuple(query_profiles))


def _known(catalog: Catalog, table: Table) -> tuple[int | None, int | None]:
    """Return the number of rows and bytes of a table; None for what the catalog does not know."""
    if table.scheme is not None:
        partitions = catalog.scheme_partitions(table.full_name)
        row_count = sum(partition.row_count for partition in partitions)
        return row_count, sum(partition.size_bytes for partition in partitions)
    if not table.partition_keys:
        return None, None
    total = count_visible(catalog.storage, table)
    return total.rows, total.size_bytes


def comparable_columns(table: Table) -> list[Column]:
    """Return the columns and partition keys of a table whose type is comparable."""
    columns = (*table.columns, *table.partition_keys)
    return [column for column in columns if parse_column_type(column.type) is not None]


def profile_columns(rows: DataFrame, columns: Sequence[Column], row_count: int) -> tuple[int, list[ColumnProfile]]:
    """Measure columns in one pass.

    Args:
        row_count: The approximate number of rows, which determines the sampling rate.

    Returns:
        The exact number of rows, and a profile of each column.
    """
    texts = [_text(column, _value(column)).alias(column.name) for column in columns]
    fraction = min(1.0, SAMPLE_ROWS / max(1, row_count))
    picked = rows.select(*texts).withColumn(_PICKED, f.rand(0) < fraction)
    measures = [f.count(f.lit(1)), f.collect_list(f.when(f.col(f"`{_PICKED}`"), f.array(*_names(columns))))]
    for name in _names(columns):
        measures += [f.count(name), f.approx_count_distinct(name, _ERROR)]
    first = picked.agg(*measures).first()
    assert first is not None
    total, sample, *counts = first
    profiles = []
    for number, column in enumerate(columns):
        filled, distinct = counts[2 * number], counts[2 * number + 1]
        null_share = 1 - filled / total if total else 0.0
        values = [row[number] for row in sample]
        profiles.append(ColumnProfile.of_sample(column.name, column.type, min(distinct, filled), null_share, values))
    return int(total), profiles


def _names(columns: Sequence[Column]) -> list[SparkColumn]:
    return [f.col(f"`{column.name}`") for column in columns]


def _value(column: Column) -> SparkColumn:
    return f.expr(value_sql(column.name, _type_of(column)))


def _text(column: Column, value: SparkColumn) -> SparkColumn:
    """Return a value of a column as the catalog's string, truncated to `_LONGEST_TEXT`."""
    return f.left(stored_text(value, _type_of(column)), f.lit(_LONGEST_TEXT))


def _type_of(column: Column) -> KeyType:
    value_type = parse_column_type(column.type)
    assert value_type is not None
    return value_type


def profile_query(spark: SparkSession, catalog: Catalog, table: Table, query: str, database: str) -> QueryProfile:
    """Return the conditions of a query on the columns of a table, as pushed down by Spark's optimizer."""
    filterable = _filterable(table)
    view = filterable.filter_view
    try:
        filters = filters_on(spark, with_views(catalog, query, database), filterable, catalog=catalog)
        if not filters or None in filters:
            # Once an occurrence reads the whole table, the conditions of others save nothing.
            return QueryProfile(query, reads_table=bool(filters))
        tree = parse_expression(" or ".join(f"({text})" for text in filters), view)
        keys = bounds_of(tree, view).keys
    except (CatalogError, PySparkException) as error:
        return QueryProfile(query, error=str(error).strip().splitlines()[0][:_LONGEST_TEXT])
    # Spark adds `is not null` for each column in a comparison.
    bounds = {view.key_names[key]: tuple(ranges) for key, ranges in keys.items() if not only_not_null(ranges)}
    return QueryProfile(query, bounds=bounds)


def _filterable(table: Table) -> Table:
    """Return a copy of a table that has all comparable columns as pruning columns."""
    columns = (*table.columns, *table.partition_keys)
    names = tuple(column.name for column in comparable_columns(table) if column.name != PARTITION_ID)
    types = ("int", "bigint", "string", "date")
    partition_column = next((column for column in columns if column.type in types), columns[0])
    scheme = HashScheme(partition_column.name, "int", names, 1)
    return replace(table, columns=columns, partition_keys=(), scheme=scheme)


def spread_table(spark: SparkSession, catalog: Catalog, table: Table, scheme: Scheme) -> list[PartitionSpread]:
    """Compute the minimum and maximum of each column in each partition that a scheme would make."""
    columns = comparable_columns(table)
    rows = read_table(spark, table.full_name, catalog=catalog)
    placed = rows.withColumn(_ID, partition_id(scheme))
    measures = [f.count(f.lit(1))]
    for column in columns:
        measures += [_text(column, f.min(_value(column))), _text(column, f.max(_value(column)))]
    spreads = []
    for number, row_count, *extremes in placed.groupBy(f"`{_ID}`").agg(*measures).collect():
        pairs = zip(extremes[::2], extremes[1::2], strict=True)
        known = {column.name: pair for column, pair in zip(columns, pairs, strict=True) if pair[0] is not None}
        spreads.append(PartitionSpread(number, row_count, known))
    return spreads
