"""Line numbers of rows in text files, which Spark does not report."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from catalog.files.filesystem import Folder
from catalog.operations.job_requests import SourceJob

OWN = "_calve_"
"""Start of the names of columns that the readers of sources add."""


def line_of(path: str, record: Mapping[str, Any], job: SourceJob) -> int | None:
    """Return the number of the line on which a row ends; None for files without lines, or if the row is not found.

    Args:
        record: The row's values by lower-case name; strings, integers and nulls are compared, but not Calve's own
            columns.
        job: The settings to read the file.
    """
    values = {name: value for name, value in record.items() if not name.startswith(OWN)}
    compared = {name: value for name, value in values.items() if value is None or type(value) in (str, int)}
    if job.source_format not in ("csv", "json") or not compared:
        return None
    nulls = (None, "", _options(job).get("nullvalue", ""))
    with Folder(path).open_text() as lines:
        rows = _csv_rows(lines, job) if job.source_format == "csv" else _json_rows(lines)
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


def _options(job: SourceJob) -> dict[str, str]:
    return {name.lower(): value for name, value in job.source_options.items()}


def _csv_rows(lines: Iterable[str], job: SourceJob) -> Iterator[tuple[int, dict[str, str | None]]]:
    options = _options(job)
    delimiter = options.get("sep", options.get("delimiter", ","))
    if len(delimiter) != 1:
        return
    reader = csv.reader(lines, delimiter=delimiter, quotechar=options.get("quote", '"')[:1] or None)
    names = list(job.column_types)
    if options.get("header", "false").lower() == "true":
        names = next(reader, [])
    for row in reader:
        yield reader.line_num, {name.strip().lower(): text for name, text in zip(names, row, strict=False)}


def _json_rows(lines: Iterable[str]) -> Iterator[tuple[int, dict[str, str | None]]]:
    for number, line in enumerate(lines, 1):
        try:
            # Numbers as strings, because a float would lose digits.
            row = json.loads(line, parse_float=str, parse_int=str)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield number, {name.lower(): value for name, value in row.items() if value is None or type(value) is str}
