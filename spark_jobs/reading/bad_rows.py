"""Rows of source files that cannot be loaded, and their places in the files."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from catalog.errors import RefusedPartition, SourceFileError
from catalog.errors.base import first_of
from catalog.operations.job_requests import SourceJob
from spark_jobs.reading.encodings import encoding_of, open_text
from spark_jobs.reading.headers import has_header
from spark_jobs.reading.json_documents import LONGEST_DOCUMENT, is_document
from spark_jobs.reading.paths import plain_path, quoted
from spark_jobs.reading.source_checks import (
    CORRUPT,
    ENCODING_HINT,
    FILE,
    KEY,
    PROBLEM,
    REPLACED,
    TEXT_FORMATS,
)
from spark_jobs.reading.source_lines import OWN, has_long_values, line_of
from spark_jobs.reading.sources import Source

MOST_SHOWN = 20
"""Number of bad rows that a report or an error names."""

_LONGEST_RECORD = 120
_NUMBER = f"{OWN}number"
_UNREADABLE = "calve: this line cannot be read"
_LINE_BREAKS = " (if values have line breaks, set multiLine in `source_options`)"


@dataclass(frozen=True)
class BadRow:
    """A row, or a whole file, that cannot be loaded.

    Attributes:
        line: Its number; None for files without lines, or if it is unknown.
        column, value, type: The column that is wrong, its value, and its type; None if the row cannot be parsed.
    """

    file: str
    line: int | None
    problem: str
    column: str | None = None
    value: str | None = None
    type: str | None = None

    def __str__(self) -> str:
        """Return `file, line N: problem`."""
        return f"{_place(self.file, self.line)}: {self.problem}"

    def as_json(self) -> dict[str, Any]:
        """Return the row for a report."""
        return asdict(self)


def _marks(source: Source) -> list[SparkColumn]:
    return [f.col(name).isNotNull() for name in (CORRUPT, PROBLEM) if name in source.rows.columns]


def is_bad(source: Source) -> SparkColumn:
    """Return whether a row of `Source.rows` is unreadable or has a value that does not fit."""
    return reduce(or_, _marks(source) or [f.lit(False)])


def bad_count(source: Source) -> SparkColumn:
    """Return the number of rows that cannot be loaded, as an aggregate over `Source.rows`."""
    return f.count_if(is_bad(source))


def first_problem_of(source: Source) -> SparkColumn:
    """Return a problem of the rows that cannot be loaded, as an aggregate over `Source.rows`; null without one."""
    problems = [f.lit(None).cast("string")]
    if CORRUPT in source.rows.columns:
        record = f.left(f.col(CORRUPT), f.lit(_LONGEST_RECORD))
        problems.append(f.when(f.col(CORRUPT).isNotNull(), f.concat(f.lit("it cannot be parsed: "), record)))
    if PROBLEM in source.rows.columns:
        problems.append(f.col(PROBLEM).getField("problem"))
    return f.first(f.coalesce(*problems), ignorenulls=True)


def bad_rows(source: Source, uris: Sequence[str] | None = None, limit: int = MOST_SHOWN) -> list[BadRow]:
    """Return some rows that cannot be loaded, in the order of their places; the first has the advice for several.

    Args:
        uris: The files to look in, as in `FILE`; by default, all of the source.
    """
    if not (marks := _marks(source)):
        return []
    rows = source.given if uris is None else source.given.where(f.col(FILE).isin(list(uris)))
    found = []
    # All columns, because Spark parses only the columns in use and would miss errors in the others.
    for row in rows.where(reduce(or_, marks)).limit(limit).collect():
        record, path = row.asDict(), plain_path(row[FILE])
        if record.get(CORRUPT) is not None:
            found.append(_unparsed(path, record[CORRUPT], source.job))
        else:
            problem = record[PROBLEM].asDict()
            found.append(BadRow(path, line_of(path, record, source.job), **problem))
    found.sort(key=lambda row: (row.file, row.line or 0, row.problem))
    advised = [row for row in found if _LINE_BREAKS in row.problem]
    return [replace(row, problem=row.problem.replace(_LINE_BREAKS, "")) if row in advised[1:] else row for row in found]


def unreadable_lines(source: Source, count: int | None = None) -> SourceFileError:
    """Return the error that names the file and line of the first rows that cannot be loaded.

    Args:
        count: The number of all of them, if it is known.
    """
    shown = first_of(bad_rows(source), MOST_SHOWN, count=count, separator="; ")
    return SourceFileError(
        f"source lines cannot be read as rows: {shown}. Nothing was loaded. Correct these lines, or the types and "
        "options of the table's entry"
    )


def good_rows(source: Source) -> DataFrame:
    """Return `Source.rows` without its own columns; a row that cannot be loaded fails the Spark job that reads it.

    For rows that several jobs read, of which an observation would count one only; see `naming_bad_rows`.
    """
    bad = is_bad(source)
    if bad is None:
        return source.rows.drop(FILE)
    is_good = f.when(~bad, True).otherwise(f.raise_error(f.lit(_UNREADABLE)).cast("boolean"))
    return source.rows.where(is_good).drop(CORRUPT, PROBLEM, FILE)


@contextmanager
def naming_bad_rows(source: Source) -> Iterator[None]:
    """Translate the failure of a job that reads `good_rows` into an error that names file and line.

    Raises:
        SourceFileError: A row cannot be loaded.
    """
    try:
        yield
    except Exception as error:
        if _UNREADABLE in str(error):
            raise unreadable_lines(source) from None
        raise


def rows_of_refused(source: Source, refused: Sequence[RefusedPartition]) -> list[BadRow | None]:
    """Return a row of each partition that is refused for a value; None for others, and if it is not found."""
    computed = source.computed_keys if source.job.source_format in TEXT_FORMATS else ()
    is_row_of = {
        number: f.col(quoted(KEY + partition.key if partition.key in computed else partition.key)) == partition.value
        for number, partition in enumerate(refused)
        if partition.key is not None and partition.value is not None
    }
    if not is_row_of:
        return [None for _ in refused]
    numbers = f.coalesce(*[f.when(is_row, f.lit(number)) for number, is_row in is_row_of.items()])
    # The value of a computed key is not in its line, so the line is found by all values of the row.
    rows = source.given if computed else source.rows
    row = f.first(f.struct("*") if computed else f.struct(FILE)).alias("row")
    files = rows.groupBy(numbers.alias(_NUMBER)).agg(row).where(f"{_NUMBER} IS NOT NULL")
    found: dict[tuple[str | None, str | None], BadRow] = {}
    for number, values in files.collect():
        partition, path = refused[number], plain_path(values[FILE])
        record = {} if partition.key in source.folder_keys else {str(partition.key): partition.value}
        if partition.key in computed:
            record = values.asDict()
        key, value, kind = partition.key, partition.value, partition.expected_type
        found[key, value] = BadRow(path, line_of(path, record, source.job), str(partition), key, value, kind)
    return [found.get((partition.key, partition.value)) for partition in refused]


def with_places(source: Source, refused: Sequence[RefusedPartition]) -> list[RefusedPartition]:
    """Return partitions that are refused for a value, with the file and line of a row that has the value."""
    return [
        replace(partition, place=None if row is None else _place(row.file, row.line))
        for partition, row in zip(refused, rows_of_refused(source, refused), strict=True)
    ]


def _place(path: str, line: int | None) -> str:
    return path if line is None else f"{path}, line {line}"


def _unparsed(path: str, record: str, job: SourceJob) -> BadRow:
    """Return a row that Spark could not parse, with the number of its first line."""
    first_line = record.splitlines()[0] if record else ""
    shown = first_line if len(first_line) <= _LONGEST_RECORD else first_line[:_LONGEST_RECORD] + "…"
    if job.source_format == "json" and is_document(path, job):
        return BadRow(path, *_json_error(path, shown, job))
    if job.source_format == "csv" and first_line.count('"') % 2 and not has_long_values(job):
        shown += _LINE_BREAKS
    elif job.source_format == "csv" and (counts := _field_counts(path, first_line, job)):
        shown += f" (it has {counts[0]:,} fields, but there are {counts[1]:,} columns)"
    if REPLACED in record and encoding_of(job) is None:
        shown += f" (it is not UTF-8; {ENCODING_HINT})"
    with open_text(path, job) as lines:
        numbers = (number for number, line in enumerate(lines, 1) if line.rstrip("\r\n") == first_line)
        return BadRow(path, next(numbers, None), shown)


def _field_counts(path: str, line: str, job: SourceJob) -> tuple[int, int] | None:
    """Return the number of fields of a line, and of columns; None if they are equal or not known."""
    options = job.lowered_options
    separator, quote = options.get("sep", options.get("delimiter", ",")), options.get("quote", '"')
    if len(separator) != 1 or len(quote) != 1 or "escape" in options or has_long_values(job):
        return None

    def count(text: str) -> int:
        return len(next(csv.reader([text], delimiter=separator, quotechar=quote), []))

    try:
        with open_text(path, job) as lines:
            columns = count(lines.readline().rstrip("\r\n")) if has_header(job) else len(job.columns)
        fields = count(line)
    except csv.Error:
        # Such as a field that is longer than Python's limit.
        return None
    return None if fields == columns else (fields, columns)


def _json_error(path: str, shown: str, job: SourceJob) -> tuple[int | None, str]:
    """Return the line and the problem of a document that is not JSON."""
    with open_text(path, job) as text:
        content = text.read(LONGEST_DOCUMENT)
    try:
        json.loads(content)
    except json.JSONDecodeError as error:
        return error.lineno, f"it is not JSON: {error.msg}"
    except RecursionError:
        pass
    return None, shown
