"""Measuring a table to say how it should be partitioned: two passes over its rows, one of them over few of its values.

The first counts rows, nulls and, about, different values of all columns, and takes a sample of rows on its way. The
second, when a scheme is chosen, finds what each column's values would lie between in each partition.
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
from catalog.types.key_types import KeyType, TimestampType
from spark_jobs.queries.query import filters_on
from spark_jobs.queries.views import with_views
from spark_jobs.reading.tables import read_table
from spark_jobs.rows.placement import partition_id, value_sql

SAMPLE_ROWS = 5_000
_ERROR = 0.05
"""Relative standard deviation of the counts of different values."""

_LONGEST_TEXT = 300
_PICKED, _ID = "calve/picked", "calve/id"


def profile_table(
    spark: SparkSession, catalog: Catalog, table: Table, queries: Sequence[str], database: str
) -> TableProfile:
    """Measure the columns of a table whose values compare, and what queries ask of it.

    Args:
        queries: SELECTs; one that cannot be understood is no error.
        database: Where tables without a database are.

    Raises:
        CatalogError: As `read_table`.
    """
    rows = read_table(spark, table.full_name, catalog=catalog)
    known_rows, size_bytes = _known(catalog, table)
    columns = comparable_columns(table)
    row_count, profiles = profile_columns(rows, columns, rows.count() if known_rows is None else known_rows)
    asked = [profile_query(spark, catalog, table, query, database) for query in queries]
    return TableProfile(table.full_name, row_count, size_bytes, tuple(profiles), tuple(asked))


def _known(catalog: Catalog, table: Table) -> tuple[int | None, int | None]:
    """Return the rows and bytes of a table, as far as the catalog knows."""
    if table.scheme is not None:
        partitions = catalog.scheme_partitions(table.full_name)
        return sum(each.row_count for each in partitions), sum(each.size_bytes for each in partitions)
    if not table.partition_keys:
        return None, None
    total = count_visible(catalog.storage, table)
    return total.rows, total.size_bytes


def comparable_columns(table: Table) -> list[Column]:
    """Return the columns of a table, its partition keys too, whose values compare."""
    return [each for each in (*table.columns, *table.partition_keys) if parse_column_type(each.type) is not None]


def profile_columns(rows: DataFrame, columns: Sequence[Column], row_count: int) -> tuple[int, list[ColumnProfile]]:
    """Measure columns in one pass.

    Args:
        row_count: About how many rows there are; the sample is chosen by it.

    Returns:
        The number of rows, and a profile of each column.
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
    found = []
    for number, column in enumerate(columns):
        filled, distinct = counts[2 * number], counts[2 * number + 1]
        null_share = 1 - filled / total if total else 0.0
        own = [row[number] for row in sample]
        found.append(ColumnProfile.of_sample(column.name, column.type, min(distinct, filled), null_share, own))
    return int(total), found


def _names(columns: Sequence[Column]) -> list[SparkColumn]:
    return [f.col(f"`{column.name}`") for column in columns]


def _value(column: Column) -> SparkColumn:
    return f.expr(value_sql(column.name, _type_of(column)))


def _text(column: Column, value: SparkColumn) -> SparkColumn:
    """Return a value of a column as the catalog writes it; the beginning of a long one."""
    value_type = _type_of(column)
    if isinstance(value_type, TimestampType):
        return f.date_format(value, "yyyy-MM-dd HH:mm:ss.SSSSSS")
    return f.left(value.cast("string"), f.lit(_LONGEST_TEXT))


def _type_of(column: Column) -> KeyType:
    found = parse_column_type(column.type)
    assert found is not None
    return found


def profile_query(spark: SparkSession, catalog: Catalog, table: Table, query: str, database: str) -> QueryProfile:
    """Say which columns of a table a query compares with what, by Spark's own optimizer."""
    seen = _seen(table)
    view = seen.filter_view
    try:
        filters = filters_on(spark, with_views(catalog, query, database), seen, catalog=catalog)
        if not filters or None in filters:
            # Read whole in one place, no condition in another saves anything.
            return QueryProfile(query, reads_table=bool(filters))
        tree = parse_expression(" or ".join(f"({each})" for each in filters), view)
        keys = bounds_of(tree, view).keys
    except (CatalogError, PySparkException) as error:
        return QueryProfile(query, error=str(error).strip().splitlines()[0][:_LONGEST_TEXT])
    # Spark adds `is not null` for each column that it compares, in whatever way.
    bounds = {view.key_names[key]: tuple(ranges) for key, ranges in keys.items() if not only_not_null(ranges)}
    return QueryProfile(query, bounds=bounds)


def _seen(table: Table) -> Table:
    """Return a table of which every column whose values compare tells which rows are needed."""
    columns = (*table.columns, *table.partition_keys)
    names = tuple(each.name for each in comparable_columns(table) if each.name != PARTITION_ID)
    placing = next((each for each in columns if each.type in ("int", "bigint", "string", "date")), columns[0])
    scheme = HashScheme(placing.name, "int", names, 1)
    return replace(table, columns=columns, partition_keys=(), scheme=scheme)


def spread_table(spark: SparkSession, catalog: Catalog, table: Table, scheme: Scheme) -> list[PartitionSpread]:
    """Find what each column's values would lie between in each partition, if the table had a scheme."""
    columns = comparable_columns(table)
    rows = read_table(spark, table.full_name, catalog=catalog)
    placed = rows.withColumn(_ID, partition_id(scheme))
    measures = [f.count(f.lit(1))]
    for column in columns:
        measures += [_text(column, f.min(_value(column))), _text(column, f.max(_value(column)))]
    found = []
    for number, row_count, *extremes in placed.groupBy(f"`{_ID}`").agg(*measures).collect():
        pairs = zip(extremes[::2], extremes[1::2], strict=True)
        known = {column.name: pair for column, pair in zip(columns, pairs, strict=True) if pair[0] is not None}
        found.append(PartitionSpread(number, row_count, known))
    return found
