"""Quotes in CSV files that nothing closes, with which the lines after them would become part of one value in silence.

Spark's parser ends such a value at the next quote of another value, or at the end of the file. Where values have no
line breaks, it ends at the end of its line, and no row is lost. Source: univocity-parsers 2.9, class CsvParser.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from pyspark.sql import SparkSession

from catalog.errors import StorageError
from catalog.files.filesystem import FileInfo
from catalog.operations.job_requests import SourceJob
from spark_jobs.reading.encodings import open_text
from spark_jobs.reading.source_lines import delimiter_of, has_long_values
from spark_jobs.sessions.python_tasks import in_tasks

_FILES_A_TASK = 8
_LONGEST_VALUE = 1 << 26
"""Characters of a value, which is read into memory; Python's own limit is far lower."""


def open_quotes(spark: SparkSession, files: Sequence[FileInfo], job: SourceJob) -> dict[str, str]:
    """Return the files with a quote that swallows lines: path → what is wrong with it."""
    if not files or job.source_format != "csv" or not has_long_values(job):
        return {}
    paths = [file.path for file in files]
    return dict(in_tasks(spark, paths, -(-len(paths) // _FILES_A_TASK), partial(_open_quotes, job)).collect())


def _open_quotes(job: SourceJob, paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    for path in paths:
        try:
            with open_text(path, job) as lines:
                problem = open_quote(lines, job)
        except (OSError, ValueError, StorageError):
            # Spark says why it cannot read the file.
            continue
        if problem:
            yield path, problem


def open_quote(lines: Iterable[str], job: SourceJob) -> str | None:
    """Return what is wrong with the first value over several lines that is not closed where it ends; None without one.

    Other quotes in the middle of a value are none of its business: Spark keeps them. Files with delimiters of several
    characters, or with line separators of their own, are not checked.
    """
    options = job.lowered_options
    delimiter, quote = delimiter_of(job), options.get("quote", '"')
    if len(delimiter) != 1 or len(quote) != 1 or "linesep" in options:
        return None
    escape, comment = options.get("escape", quote), options.get("comment") or None
    end = 0

    def without_comments() -> Iterator[str]:
        for line in lines:
            is_comment = comment is not None and rows.line_num == end and line.startswith(comment)
            yield "\n" if is_comment else line

    rows = csv.reader(
        without_comments(),
        delimiter=delimiter,
        quotechar=quote,
        doublequote=escape == quote,
        escapechar=escape if len(escape) == 1 and escape != quote else None,
        skipinitialspace=options.get("ignoreleadingwhitespace", "").lower() == "true",
        strict=True,
    )
    limit = csv.field_size_limit(_LONGEST_VALUE)
    try:
        while True:
            end = rows.line_num
            try:
                next(rows)
            except StopIteration:
                return None
            except csv.Error as error:
                if "end of data" in str(error):
                    return _problem(end + 1, "nothing closes it")
                if "limit" in str(error):
                    return _problem(end + 1, f"it is not closed after {_LONGEST_VALUE:,} characters")
                if rows.line_num > end + 1:
                    return _problem(end + 1, f"the next one, in line {rows.line_num}, does not end a value")
    finally:
        csv.field_size_limit(limit)


def _problem(line: int, where: str) -> str:
    return (
        f"has in line {line} a quote with which the lines after it would become one value: {where}; close it, or "
        "double the quotes that are part of a value"
    )
