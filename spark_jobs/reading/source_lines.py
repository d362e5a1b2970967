"""Line numbers of rows in text files, which Spark does not report."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TextIO

from catalog.operations.job_requests import SourceJob
from spark_jobs.reading.encodings import encoding_of, is_wide, open_text
from spark_jobs.reading.json_documents import LONGEST_DOCUMENT, is_document, records_of

OWN = "_calve_"
"""Start of the names of columns that the readers of sources add."""


_LITERALS = {True: "true", False: "false"}


def line_of(path: str, record: Mapping[str, Any], job: SourceJob) -> int | None:
    """Return the number of the line on which a row begins; None for files without lines, or if the row is not found.

    Args:
        record: The row's values by lower-case name; strings, integers and nulls are compared, but not Calve's own
            columns.
        job: The settings to read the file.
    """
    values = {name: value for name, value in record.items() if not name.startswith(OWN)}
    compared = {name: value for name, value in values.items() if value is None or type(value) in (str, int)}
    if job.source_format not in ("csv", "json") or not compared:
        return None
    nulls = (None, "", job.lowered_options.get("nullvalue", ""))
    with open_text(path, job) as lines:
        rows = _csv_rows(lines, job) if job.source_format == "csv" else _json_rows(path, lines, job)
        for number, row in rows:
            is_same = (_is_same(row.get(name), value, nulls) for name, value in compared.items())
            if row.keys() & compared.keys() and all(is_same):
                return number
    return None


def _is_same(text: str | None, value: str | int | None, nulls: Sequence[str | None]) -> bool:
    """Return whether a string in a file is a value that Spark has read."""
    if value is None or text is None:
        return text in nulls and value in nulls
    if isinstance(value, str):
        return text == value
    try:
        return int(text) == value
    except ValueError:
        return False


_ESCAPED = {r"\t": "\t", r"\b": "\b", r"\f": "\f", r"\\": "\\", r"\'": "'", r"\"": '"'}
"""Delimiters that Spark reads with a backslash. Source: `CSVExprUtils` of Spark 4.1."""


def delimiter_of(job: SourceJob) -> str:
    """Return what is between the values of CSV files."""
    options = job.lowered_options
    written = options.get("sep", options.get("delimiter", ","))
    return _ESCAPED.get(written, written)


def has_long_values(job: SourceJob) -> bool:
    """Return whether values of CSV files may have line breaks; by default, in wide encodings (`reader_options`)."""
    given = job.lowered_options.get("multiline")
    return is_wide(encoding_of(job)) if given is None else given.lower() == "true"


def _csv_rows(lines: Iterable[str], job: SourceJob) -> Iterator[tuple[int, dict[str, str | None]]]:
    options, delimiter = job.lowered_options, delimiter_of(job)
    if len(delimiter) != 1:
        return
    quote = options.get("quote", '"')[:1] or None
    names: Sequence[str] | None = list(job.column_types)
    if options.get("header", "false").lower() == "true":
        names = None
    for number, row in _split(lines, delimiter, quote, has_long_values(job)):
        if names is None:
            names = row
        elif row:
            yield number, {name.strip().lower(): text for name, text in zip(names, row, strict=False)}


def _split(
    lines: Iterable[str], delimiter: str, quote: str | None, has_long: bool
) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield the fields of each row, with the number of its first line."""
    if not has_long:
        for number, line in enumerate(lines, 1):
            yield number, next(csv.reader([line.rstrip("\r\n")], delimiter=delimiter, quotechar=quote), [])
        return
    reader, end = csv.reader(lines, delimiter=delimiter, quotechar=quote), 0
    for row in reader:
        yield end + 1, row
        end = reader.line_num


def _json_rows(path: str, text: TextIO, job: SourceJob) -> Iterator[tuple[int, dict[str, str | None]]]:
    for number, record in _records_of_document(text) if is_document(path, job) else _records_on_lines(text):
        if isinstance(record, dict):
            texts = {name.lower(): _LITERALS.get(value, value) for name, value in record.items() if _is_plain(value)}
            yield number, texts


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | bool)


def _records_of_document(text: TextIO) -> Iterator[tuple[int, Any]]:
    content = text.read(LONGEST_DOCUMENT)
    if len(content) < LONGEST_DOCUMENT:
        yield from records_of(content)


def _records_on_lines(lines: Iterable[str]) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(lines, 1):
        with suppress(ValueError):
            yield from ((number, record) for _, record in records_of(line))
