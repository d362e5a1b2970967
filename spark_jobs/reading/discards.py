"""Rows and values that the schema contract of a load leaves out, and the report of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.reading.bad_rows import MOST_SHOWN, BadRow, good_rows
from spark_jobs.reading.paths import plain_path
from spark_jobs.reading.source_checks import DISCARDED, FILE
from spark_jobs.reading.source_lines import line_of
from spark_jobs.reading.sources import Source

MOST_FILES = 100
"""Number of files that a report counts by themselves, those with the most discards first."""

_ROWS, _VALUES = "discarded_rows", "discarded_values"


def may_discard(source: Source) -> bool:
    """Return whether the contract may leave out rows or values of a source."""
    return DISCARDED in source.rows.columns


def is_kept(source: Source) -> SparkColumn:
    """Return whether a row of `Source.rows` is loaded."""
    if not may_discard(source):
        return f.lit(True)
    return ~f.coalesce(f.col(DISCARDED).getField("is_row"), f.lit(False))


def kept_rows(source: Source) -> DataFrame:
    """Return `Source.rows` without the rows that the contract leaves out."""
    return source.rows.where(is_kept(source)) if may_discard(source) else source.rows


def kept_good_rows(source: Source) -> DataFrame:
    """Return `good_rows` without the rows that the contract leaves out."""
    rows = good_rows(source)
    return rows.where(is_kept(source)).drop(DISCARDED) if may_discard(source) else rows


def discard_counts(source: Source) -> list[SparkColumn]:
    """Return the numbers of rows and values that are left out, as aggregates over `Source.rows`."""
    if not may_discard(source):
        return [f.lit(0).alias(_ROWS), f.lit(0).alias(_VALUES)]
    values = f.coalesce(f.sum(f.col(DISCARDED).getField("values")), f.lit(0))
    return [f.count_if(~is_kept(source)).alias(_ROWS), values.alias(_VALUES)]


def discard_report(source: Source, by_file: DataFrame, bad_uris: Sequence[str] = ()) -> dict[str, Any]:
    """Return what the contract leaves out: in all, of each file, and some examples.

    Args:
        by_file: Rows with `FILE` and the columns of `discard_counts`.
        bad_uris: Files that are not loaded, as in `FILE`.
    """
    nothing = {"rows": 0, "values": 0, "files": 0, "of_files": [], "examples": []}
    if not may_discard(source):
        return nothing
    files = by_file.where(~f.col(FILE).isin(list(bad_uris))).groupBy(FILE)
    counted = files.agg(f.sum(_ROWS).alias(_ROWS), f.sum(_VALUES).alias(_VALUES)).where(f"{_ROWS} + {_VALUES} > 0")
    total = counted.agg(f.sum(_ROWS), f.sum(_VALUES), f.count("*")).first()
    assert total is not None
    if not total[2]:
        return nothing
    most = counted.orderBy(f.desc(f.col(_ROWS) + f.col(_VALUES)), FILE).limit(MOST_FILES).collect()
    of_files = [{"file": plain_path(row[FILE]), "rows": row[_ROWS], "values": row[_VALUES]} for row in most]
    examples = _examples(source, [row[FILE] for row in most[:MOST_SHOWN]])
    return {"rows": total[0], "values": total[1], "files": total[2], "of_files": of_files, "examples": examples}


def _examples(source: Source, uris: Sequence[str]) -> list[dict[str, Any]]:
    rows = source.given.where(f.col(DISCARDED).isNotNull() & f.col(FILE).isin(list(uris))).limit(MOST_SHOWN)
    examples = []
    for row in rows.collect():
        record, path = row.asDict(), plain_path(row[FILE])
        discarded = record[DISCARDED]
        bad_row = BadRow(path, line_of(path, record, source.job), **discarded["problem"].asDict())
        examples.append({**bad_row.as_json(), "discarded": "row" if discarded["is_row"] else "value"})
    return sorted(examples, key=lambda example: (example["file"], example["line"] or 0))
