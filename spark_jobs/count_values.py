"""Count how the values of the partition column are spread in some partitions, to know where these can be split.

Of each partition a sample gives some hundred values that cut it into about equal parts. Then all rows are counted, in
one pass over the one column: those that have such a value, and those between two of them. So a value of many rows is
counted alone, and those that have few are counted together.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog import Catalog
from catalog.datafiles.files import DataFile
from catalog.errors import InvalidSchemeError, SchemeValueError
from catalog.operations.job_requests import CountValuesJob
from catalog.operations.records import OperationState
from catalog.rebalancing.contents import ValueCount
from catalog.schemes.lists import ListScheme
from catalog.schemes.model import Scheme
from spark_jobs.reading.files import read_data_files
from spark_jobs.rows.placement import literal_sql, partition_id, value_sql
from spark_jobs.sessions.session import run_job

log = logging.getLogger("spark_jobs.count_values")

_PARTS = 128
"""Values that cut a partition, at most; each stands for about so many rows of the sample:"""

_ROWS_A_PART = 16
_MOST_VALUES = 1_000
"""Of lists, the most frequent values of each partition that are counted."""

_ID, _VALUE, _PART, _IS_CUT, _COUNT = "calve/id", "calve/value", "calve/part", "calve/is_cut", "calve/count"


def count_values(spark: SparkSession, catalog: Catalog, job: CountValuesJob) -> dict[str, Any]:
    """Count the values of the job's partitions.

    Returns:
        `counts`: partition id, as text → `[least, greatest, rows]` for each value or range of values, ascending, as
        `catalog.rebalancing.contents.ValueCount`.

    Raises:
        InvalidSchemeError: The table has no partition scheme.
    """
    table = catalog.get_table(job.table)
    scheme = table.scheme
    if scheme is None:
        raise InvalidSchemeError(f"table {table.full_name} has no partition scheme")
    wanted = f"_partition_id in ({', '.join(str(int(each)) for each in job.partition_ids)})"
    files = catalog.scan_files(table.full_name, wanted).files if job.partition_ids else ()
    counts = counted(read_data_files(spark, table, files), scheme, files) if files else {}
    log.info("%s: counted the values of %d partition(s)", table.full_name, len(counts))
    return {
        "counts": {
            str(number): [[each.least, each.greatest, each.row_count] for each in found]
            for number, found in counts.items()
        }
    }


def _count_and_record(spark: SparkSession, catalog: Catalog, job: CountValuesJob) -> None:
    found = count_values(spark, catalog, job)
    with catalog.storage.write() as connection:
        catalog.operations.finish_job(job.operation_id, job.step, job.attempt, found, connection=connection)
        catalog.operations.advance(connection, job.operation_id, OperationState.CLEANED)


def counted(rows: DataFrame, scheme: Scheme, files: Sequence[DataFile]) -> dict[int, list[ValueCount]]:
    """Return how the values are spread in each partition that has any.

    Args:
        rows: At least the partition column.
        files: Those that the rows come from.
    """
    value = f.expr(value_sql(scheme.column, scheme.value_type))
    values = rows.select(partition_id(scheme).alias(_ID), value.alias(_VALUE)).where(value.isNotNull())
    parts = _each_value(values) if isinstance(scheme, ListScheme) else _in_parts(values, scheme, files)
    found: dict[int, list[ValueCount]] = {}
    for number, least, greatest, count in parts.toLocalIterator():
        found.setdefault(number, []).append(ValueCount(least, greatest, count))
    return {number: _ascending(scheme, some) for number, some in found.items()}


def _ascending(scheme: Scheme, counts: Sequence[ValueCount]) -> list[ValueCount]:
    """Return counts in the order of their values, without those that no bound can name."""
    orders = [(_order(scheme, each.least), _order(scheme, each.greatest)) for each in counts]
    known = [
        (low, each) for (low, high), each in zip(orders, counts, strict=True) if low is not None and high is not None
    ]
    return [each for _, each in sorted(known, key=lambda pair: pair[0])]


def _order(scheme: Scheme, text: str) -> bytes | None:
    try:
        return scheme.value_type.encode(scheme.typed(text))
    except SchemeValueError:
        return None


def _text(value: Column, scheme_type: str) -> Column:
    """Return a value as the catalog writes it."""
    return f.date_format(value, "yyyy-MM-dd HH:mm:ss.SSSSSS") if scheme_type == "timestamp" else value.cast("string")


def _each_value(values: DataFrame) -> DataFrame:
    counts = values.groupBy(f"`{_ID}`", f"`{_VALUE}`").agg(f.count(f.lit(1)).alias(_COUNT))
    text = _text(f.col(f"`{_VALUE}`"), dict(values.dtypes)[_VALUE])
    return (
        counts.orderBy(f.col(f"`{_COUNT}`").desc(), f.col(f"`{_VALUE}`"))
        .limit(_MOST_VALUES)
        .select(f"`{_ID}`", text, text, f"`{_COUNT}`")
    )


def _in_parts(values: DataFrame, scheme: Scheme, files: Sequence[DataFile]) -> DataFrame:
    cuts = _cuts(values, scheme, files)
    value = f.col(f"`{_VALUE}`")
    literals = [literal_sql(scheme.value_type, scheme.typed(text)) for text in cuts]
    part = f.expr(_search(f"`{_VALUE}`", literals, 0))
    at_cut = f.expr(f"element_at(array({', '.join(literals)}), `{_PART}`)") if literals else f.lit(None)
    placed = values.withColumn(_PART, part)
    is_cut = f.when(f.col(f"`{_PART}`") > 0, value == at_cut).otherwise(False) if literals else f.lit(False)
    grouped = placed.withColumn(_IS_CUT, is_cut).groupBy(f"`{_ID}`", f"`{_PART}`", f"`{_IS_CUT}`")
    scheme_type = dict(values.dtypes)[_VALUE]
    least, greatest = _text(f.min(value), scheme_type), _text(f.max(value), scheme_type)
    counts = grouped.agg(least.alias("least"), greatest.alias("greatest"), f.count(f.lit(1)).alias(_COUNT))
    return counts.select(f"`{_ID}`", "least", "greatest", f"`{_COUNT}`")


def _cuts(values: DataFrame, scheme: Scheme, files: Sequence[DataFile]) -> list[str]:
    """Return the values, ascending, of a sample that cut each partition into about equal parts."""
    fractions = _fractions(files)
    fraction = f.coalesce(*[f.when(f.col(f"`{_ID}`") == number, share) for number, share in fractions.items()])
    text = _text(f.col(f"`{_VALUE}`"), dict(values.dtypes)[_VALUE])
    sample: dict[int, list[tuple[bytes, str]]] = {}
    for number, found in values.where(f.rand(0) < fraction).select(f"`{_ID}`", text).toLocalIterator():
        if (order := _order(scheme, found)) is not None:
            sample.setdefault(number, []).append((order, found))
    cuts: dict[bytes, str] = {}
    for some in sample.values():
        some.sort()
        step = max(1, len(some) // _PARTS)
        cuts.update(some[::step])
    return [cuts[each] for each in sorted(cuts)]


def _fractions(files: Sequence[DataFile]) -> Mapping[int, float]:
    rows: dict[int, int] = {}
    for file in files:
        rows[file.partition_id] = rows.get(file.partition_id, 0) + file.row_count
    return {number: min(1.0, 2 * _PARTS * _ROWS_A_PART / max(1, count)) for number, count in rows.items()}


def _search(name: str, literals: Sequence[str], before: int) -> str:
    """Return SQL that counts the cuts at or below a value, by a binary search."""
    if not literals:
        return str(before)
    middle = len(literals) // 2
    below = _search(name, literals[:middle], before)
    above = _search(name, literals[middle + 1 :], before + middle + 1)
    return f"if({name} < {literals[middle]}, {below}, {above})"


if __name__ == "__main__":
    raise SystemExit(run_job(CountValuesJob, _count_and_record))
