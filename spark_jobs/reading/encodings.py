"""Encodings of text files: Spark decodes their rows, and Python what is shown of them."""

from __future__ import annotations

import codecs
from typing import TextIO

from catalog.files.filesystem import Folder
from catalog.operations.job_requests import SourceJob

_UTF_8 = "utf-8-sig"
"""UTF-8, in which a byte order mark at the beginning is no text."""


_KNOWN = ("ascii", "iso8859-1", *(f"utf-{bits}{order}" for bits in (16, 32) for order in ("", "-le", "-be")))
"""The other encodings that Spark reads, as Python spells them."""


def encoding_of(job: SourceJob) -> str | None:
    """Return the encoding that the settings of a load name, as Python spells it; None if they name none."""
    options = job.lowered_options
    name = options.get("encoding", options.get("charset"))
    try:
        return None if name is None else codecs.lookup(name).name
    except LookupError:
        # Spark refuses it.
        return name


def is_wide(encoding: str | None) -> bool:
    """Return whether each character of an encoding has several bytes, among which may be that of a line break."""
    return encoding is not None and encoding.startswith(("utf-16", "utf-32"))


def open_text(path: str, job: SourceJob) -> TextIO:
    """Open a text file in the encoding that the settings of a load name; invalid bytes are replaced."""
    encoding = encoding_of(job)
    # One that is unknown is refused by Spark.
    is_known = encoding in _KNOWN
    return Folder(path).open_text(encoding=encoding if encoding is not None and is_known else _UTF_8)
