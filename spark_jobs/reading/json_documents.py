"""JSON files: records on one line each, or one document over many lines, such as an array of records.

Spark has one option for all files, and reads only the first record of a file with lines as if it were a document.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from catalog.errors import StorageError
from catalog.files.filesystem import FileInfo, in_parallel
from catalog.operations.job_requests import SourceJob
from spark_jobs.reading.encodings import open_text

_FIRST_CHARACTERS = 1 << 16
LONGEST_DOCUMENT = 1 << 26
"""Number of characters up to which a document that is no array is read whole, to see that nothing follows it."""

_MULTI_LINE = "multiLine"


def by_layout(files: Sequence[FileInfo], job: SourceJob) -> list[tuple[list[FileInfo], bool]]:
    """Return the files with records on lines, and those that are documents, each with whether they are documents.

    Files that cannot be read are among the first; Spark says what is wrong.
    """
    lines: list[FileInfo] = []
    documents: list[FileInfo] = []
    are_documents = in_parallel(partial(is_document, job=job), [file.path for file in files])
    for file, is_one in zip(files, are_documents, strict=True):
        (documents if is_one else lines).append(file)
    return [(group, group is documents) for group in (lines, documents) if group]


def with_layout(job: SourceJob, *, is_document: bool) -> SourceJob:
    """Return the settings to read JSON files of one layout, whatever the settings of the source say."""
    options = {name: value for name, value in job.source_options.items() if name.lower() != _MULTI_LINE.lower()}
    return replace(job, source_options={**options, _MULTI_LINE: str(is_document).lower()})


def records_of(text: str) -> Iterator[tuple[int, Any]]:
    """Yield the records of a document, each with the number of its first line; numbers are strings.

    Raises:
        ValueError: The document is not JSON.
    """
    # Numbers as strings, because a float would lose digits.
    decoder = json.JSONDecoder(parse_float=str, parse_int=str)
    line, counted, at = 1, 0, _after_blanks(text, 0)
    is_array = text.startswith("[", at)
    at += is_array
    while (at := _after_blanks(text, at)) < len(text) and text[at] != "]":
        record, end = decoder.raw_decode(text, at)
        line, counted = line + text.count("\n", counted, at), at
        yield line, record
        at = _after_blanks(text, end)
        if not is_array or not text.startswith(",", at):
            return
        at += 1


def _after_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n\ufeff":
        at += 1
    return at


def is_document(path: str, job: SourceJob) -> bool:
    """Return whether a file is one document over many lines; False if it cannot be read."""
    try:
        with open_text(path, job) as text:
            start = text.read(_FIRST_CHARACTERS).lstrip(" \t\r\n\ufeff")
            first_line, is_longer, rest = start.partition("\n")
            if not is_longer or not rest.strip():
                return False
            if _is_json(first_line):
                return False
            if start.startswith("["):
                return True
            # A record over many lines; lines of which the first is damaged are no document.
            whole = start + text.read(LONGEST_DOCUMENT)
            return len(whole) < LONGEST_DOCUMENT and _is_json(whole)
    except (OSError, EOFError, StorageError):
        return False


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
