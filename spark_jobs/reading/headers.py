"""Headers of CSV files: files of one source may have different columns, or the same in another order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from catalog.files.filesystem import FileInfo, in_parallel
from catalog.operations.job_requests import SourceJob
from spark_jobs.reading.encodings import open_text

_MOST_CHARACTERS = 1_000_000
"""Of a header that is compared; a file without lines would be read whole."""


def has_header(job: SourceJob) -> bool:
    """Return whether the first line of each CSV file has the names of its columns."""
    return job.lowered_options.get("header", "false").lower() == "true"


def names_columns(file: FileInfo, columns: Sequence[str], job: SourceJob) -> bool:
    """Return whether the first line of a CSV file is the names of columns, in this order and whatever their case."""
    options = job.lowered_options
    separator = options.get("sep", options.get("delimiter", ","))
    line = _first_line(file, job).lower()
    if quote := options.get("quote", '"'):
        line = line.replace(quote, "")
    return [name.strip() for name in line.split(separator)] == [name.lower() for name in columns]


def by_header(files: Sequence[FileInfo], job: SourceJob) -> list[list[FileInfo]]:
    """Return groups of CSV files with the same first line; files without headers are one group.

    Files that are empty or cannot be read are in the first group; Spark skips them, or says what is wrong.
    """
    if job.source_format != "csv" or not has_header(job) or len(files) == 1:
        return [list(files)]
    groups: dict[str, list[FileInfo]] = {}
    others = []
    for file, line in zip(files, in_parallel(partial(_first_line, job=job), files), strict=True):
        if line:
            groups.setdefault(line, []).append(file)
        else:
            others.append(file)
    first, *rest = groups.values() or [[]]
    return [[*first, *others], *rest]


def _first_line(file: FileInfo, job: SourceJob) -> str:
    try:
        with open_text(file.path, job) as text:
            return text.readline(_MOST_CHARACTERS).rstrip("\r\n")
    except OSError:
        return ""
