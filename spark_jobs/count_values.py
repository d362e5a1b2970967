"""Distribution of the values of the partition column in some partitions, which shows where to split them.

A sample of each partition gives some hundred cut values, which divide it into parts of about equal size. One pass over
the column then counts all rows: those with a cut value, and those between two cut values. So frequent values are
counted separately, and rare values together.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog import Catalog
from catalog.datafiles.files import DataFile
from catalog.errors import InvalidSchemeError, SchemeValueError
from catalog.operations.job_requests import CountValuesJob
from catalog.rebalancing.contents import ValueCount
from catalog.schemes.lists import ListScheme
from catalog.schemes.model import UNPLACED, Scheme
from spark_jobs.reading.files import read_data_files
from spark_jobs.rows.placement import literal_sql, partition_id, search_sql, stored_text, value_sql
from spark_jobs.sessions.session import finish_operation, run_job

log = logging.getLogger("spark_jobs.count_values")

_PARTS = 128
"""Maximum number of cut values of a partition; each represents about `_ROWS_A_PART` rows of the sample."""

_ROWS_A_PART = 16
_MOST_VALUES = 1_000
"""Maximum number of values of a list scheme that are counted, the most frequent first."""

_ID, _VALUE, _PART, _IS_CUT, _COUNT = "calve/id", "calve/value", "calve/part", "calve/is_cut", "calve/count"


def count_values(spark: SparkSession, catalog: Catalog, job: CountValuesJob) -> dict[str, Any]:
    """Count the values of the job's partitions.

    Returns:
        `counts`: partition id, as a string → `[least, greatest, rows]` for each value or range of values, ascending,
        as `catalog.rebalancing.contents.ValueCount`.

    Raises:
        InvalidSchemeError: The table has no partition scheme.
    """
    table = catalog.get_table(job.table)
    scheme = table.scheme
    if scheme is None:
        raise InvalidSchemeError(f"table {table.full_name} has no partition scheme")
    condition = f"_partition_id in ({', '.join(str(int(number)) for number in job.partition_ids)})"
    scanned = catalog.scan_files(table.full_name, condition).files if job.partition_ids else ()
    files = [file for file in scanned if file.partition_id != UNPLACED]
    counts = counted(read_data_files(spark, table, files), scheme, files) if files else {}
    log.info("%s: counted the values of %d partition(s)", table.full_name, len(counts))
    return {
        "counts": {
            str(number): [[count.least, count.greatest, count.row_count] for count in value_counts]
            for number, value_counts in counts.items()
        }
    }


def count_and_record(spark: SparkSession, catalog: Catalog, job: CountValuesJob) -> None:
    """Count the values as `count_values` does, and record that the operation has nothing left to do."""
    finish_operation(catalog, job, count_values(spark, catalog, job))


def counted(rows: DataFrame, scheme: Scheme, files: Sequence[DataFile]) -> dict[int, list[ValueCount]]:
    """Return the distribution of the values in each partition that has any.

    Args:
        rows: Rows with at least the partition column.
        files: The files of the rows.
    """
    value = f.expr(value_sql(scheme.column, scheme.value_type))
    values = rows.select(partition_id(scheme).alias(_ID), value.alias(_VALUE)).where(value.isNotNull())
    parts = _each_value(values, scheme) if isinstance(scheme, ListScheme) else _in_parts(values, scheme, files)
    counts: dict[int, list[ValueCount]] = {}
    for number, least, greatest, count in parts.toLocalIterator():
        counts.setdefault(number, []).append(ValueCount(least, greatest, count))
    return {number: _ascending(scheme, value_counts) for number, value_counts in counts.items()}


def _ascending(scheme: Scheme, counts: Sequence[ValueCount]) -> list[ValueCount]:
    """Return counts in the order of their values, without values that cannot be bounds."""
    orders = [(_order(scheme, count.least), _order(scheme, count.greatest)) for count in counts]
    ordered = [
        (low, count) for (low, high), count in zip(orders, counts, strict=True) if low is not None and high is not None
    ]
    return [count for _, count in sorted(ordered, key=lambda pair: pair[0])]


def _order(scheme: Scheme, text: str) -> bytes | None:
    try:
        return scheme.encoded(text)
    except SchemeValueError:
        return None


def _each_value(values: DataFrame, scheme: Scheme) -> DataFrame:
    counts = values.groupBy(f"`{_ID}`", f"`{_VALUE}`").agg(f.count(f.lit(1)).alias(_COUNT))
    text = stored_text(f.col(f"`{_VALUE}`"), scheme.value_type)
    return (
        counts.orderBy(f.col(f"`{_COUNT}`").desc(), f.col(f"`{_VALUE}`"))
        .limit(_MOST_VALUES)
        .select(f"`{_ID}`", text, text, f"`{_COUNT}`")
    )


def _in_parts(values: DataFrame, scheme: Scheme, files: Sequence[DataFile]) -> DataFrame:
    cuts = _cuts(values, scheme, files)
    value = f.col(f"`{_VALUE}`")
    literals = [literal_sql(scheme.value_type, scheme.typed(text)) for text in cuts]
    part = f.expr(search_sql(f"`{_VALUE}`", literals, range(len(literals) + 1)))
    at_cut = f.expr(f"element_at(array({', '.join(literals)}), `{_PART}`)") if literals else f.lit(None)
    placed = values.withColumn(_PART, part)
    is_cut = f.when(f.col(f"`{_PART}`") > 0, value == at_cut).otherwise(False) if literals else f.lit(False)
    grouped = placed.withColumn(_IS_CUT, is_cut).groupBy(f"`{_ID}`", f"`{_PART}`", f"`{_IS_CUT}`")
    least, greatest = (stored_text(end, scheme.value_type) for end in (f.min(value), f.max(value)))
    counts = grouped.agg(least.alias("least"), greatest.alias("greatest"), f.count(f.lit(1)).alias(_COUNT))
    return counts.select(f"`{_ID}`", "least", "greatest", f"`{_COUNT}`")


def _cuts(values: DataFrame, scheme: Scheme, files: Sequence[DataFile]) -> list[str]:
    """Return sampled values, ascending, that divide each partition into parts of about equal size."""
    fractions = _fractions(files)
    fraction = f.coalesce(*[f.when(f.col(f"`{_ID}`") == number, share) for number, share in fractions.items()])
    text = stored_text(f.col(f"`{_VALUE}`"), scheme.value_type)
    sample: dict[int, list[tuple[bytes, str]]] = {}
    for number, sampled in values.where(f.rand(0) < fraction).select(f"`{_ID}`", text).toLocalIterator():
        if (order := _order(scheme, sampled)) is not None:
            sample.setdefault(number, []).append((order, sampled))
    cuts: dict[bytes, str] = {}
    for ordered_values in sample.values():
        ordered_values.sort()
        step = max(1, len(ordered_values) // _PARTS)
        cuts.update(ordered_values[::step])
    return [cuts[order] for order in sorted(cuts)]


def _fractions(files: Sequence[DataFile]) -> Mapping[int, float]:
    rows: dict[int, int] = {}
    for file in files:
        rows[file.partition_id] = rows.get(file.partition_id, 0) + file.row_count
    return {number: min(1.0, 2 * _PARTS * _ROWS_A_PART / max(1, count)) for number, count in rows.items()}


if __name__ == "__main__":
    raise SystemExit(run_job(CountValuesJob, count_and_record))
