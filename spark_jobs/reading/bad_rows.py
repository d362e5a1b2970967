"""Rows of source files that cannot be loaded, and their places in the files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as f

from catalog.errors import RefusedPartition, SourceFileError
from catalog.files.filesystem import Folder
from catalog.operations.job_requests import SourceJob
from spark_jobs.reading.source_lines import OWN, line_of
from spark_jobs.reading.sources import CORRUPT, FILE, PROBLEM, Source, plain_path, quoted

_SHOWN = 10
_NUMBER = f"{OWN}number"


def is_bad(source: Source) -> SparkColumn | None:
    """Return whether a row of `Source.rows` is unreadable or has a value that does not fit; None if no row can be."""
    marks = [f.col(name).isNotNull() for name in (CORRUPT, PROBLEM) if name in source.rows.columns]
    return reduce(or_, marks) if marks else None


def bad_count(source: Source) -> SparkColumn:
    """Return the number of rows that cannot be loaded, as an aggregate over `Source.rows`."""
    bad = is_bad(source)
    return f.count_if(f.lit(False) if bad is None else bad)


def unreadable_lines(source: Source) -> SourceFileError:
    """Return the error that names the file and line of the first rows that cannot be loaded."""
    # All columns, because Spark parses only the columns in use and would miss errors in the others.
    marks = [f.col(name).isNotNull() for name in (CORRUPT, PROBLEM) if name in source.given.columns]
    places = []
    for row in source.given.where(reduce(or_, marks)).limit(_SHOWN).collect():
        record, path = row.asDict(), plain_path(row[FILE])
        if record.get(CORRUPT) is not None:
            places.append(_place_of_record(path, record[CORRUPT]))
        else:
            places.append(f"{_place(path, record, source.job)}: {record[PROBLEM]}")
    return SourceFileError(
        f"source lines cannot be read as rows: {'; '.join(sorted(places))}. Nothing was loaded. Correct these "
        "lines, or the types and options of the table's entry"
    )


def with_places(source: Source, refused: Sequence[RefusedPartition]) -> list[RefusedPartition]:
    """Return partitions that are refused for a value, with the file and line of a row that has the value."""
    is_row_of = {
        number: f.col(quoted(partition.key)) == partition.value
        for number, partition in enumerate(refused)
        if partition.key is not None and partition.value is not None
    }
    if not is_row_of:
        return list(refused)
    numbers = f.coalesce(*[f.when(is_row, f.lit(number)) for number, is_row in is_row_of.items()])
    files = source.rows.groupBy(numbers.alias(_NUMBER)).agg(f.first(FILE).alias(FILE)).where(f"{_NUMBER} IS NOT NULL")
    places = {}
    for number, uri in files.collect():
        partition = refused[number]
        record = {} if partition.key in source.folder_keys else {str(partition.key): partition.value}
        places[partition.key, partition.value] = _place(plain_path(uri), record, source.job)
    return [replace(partition, place=places.get((partition.key, partition.value))) for partition in refused]


def _place(path: str, record: Mapping[str, Any], job: SourceJob) -> str:
    """Return `path, line N` for a row; the path if its line is not found."""
    line = line_of(path, record, job)
    return path if line is None else f"{path}, line {line}"


def _place_of_record(path: str, record: str) -> str:
    """Return `path, line N: text` for a record that Spark could not read."""
    first_line = record.splitlines()[0] if record else ""
    shown = first_line if len(first_line) <= 120 else first_line[:120] + "…"
    with Folder(path).open_text() as lines:
        for number, line in enumerate(lines, 1):
            if line.rstrip("\r\n") == first_line:
                return f"{path}, line {number}: {shown}"
    return f"{path}: {shown}"
