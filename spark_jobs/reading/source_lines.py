"""Line numbers of rows in text files, which Spark does not report."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from catalog.files.filesystem import Folder
from catalog.operations.job_requests import SourceJob


def line_of(path: str, record: Mapping[str, Any], job: SourceJob) -> int | None:
    """Return the number of the line on which a row ends; None for files without lines, or if the row is not found.

    Args:
        record: The row's values by lower-case name; only strings are compared.
        job: The settings to read the file.
    """
    if job.source_format not in ("csv", "json"):
        return None
    texts = {name: value for name, value in record.items() if isinstance(value, str)}
    with Folder(path).open_text() as lines:
        rows = _csv_rows(lines, job) if job.source_format == "csv" else _json_rows(lines)
        for number, row in rows:
            common = row.keys() & texts.keys()
            if common and all(row[name] == texts[name] for name in common):
                return number
    return None


def _csv_rows(lines: Iterable[str], job: SourceJob) -> Iterator[tuple[int, dict[str, str]]]:
    options = {name.lower(): value for name, value in job.source_options.items()}
    delimiter = options.get("sep", options.get("delimiter", ","))
    if len(delimiter) != 1:
        return
    reader = csv.reader(lines, delimiter=delimiter, quotechar=options.get("quote", '"')[:1] or None)
    names = list(job.column_types)
    if options.get("header", "false").lower() == "true":
        names = next(reader, [])
    for row in reader:
        yield reader.line_num, {name.strip().lower(): text for name, text in zip(names, row, strict=False)}


def _json_rows(lines: Iterable[str]) -> Iterator[tuple[int, dict[str, str]]]:
    for number, line in enumerate(lines, 1):
        try:
            # Numbers as strings, because a float would lose digits.
            row = json.loads(line, parse_float=str, parse_int=str)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield number, {name.lower(): value for name, value in row.items() if isinstance(value, str)}
