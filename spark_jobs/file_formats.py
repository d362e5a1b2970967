"""What Spark has to be told to read and write the files of Hive-style tables."""

from __future__ import annotations

import re

from catalog import FileFormat

SIZED_TEXT = re.compile(r"\b(char|varchar)\s*\(\s*([0-9]+)\s*\)")
"""A text type with a length."""

_OPTIONS = {FileFormat.CSV: {"header": "true"}}


def file_options(file_format: FileFormat) -> dict[str, str]:
    """Return the options with which files of a format are read, and written."""
    return dict(_OPTIONS.get(file_format, {}))


def spark_type(type_text: str) -> str:
    """Return a column's type as Spark's readers and writers take it, which have no char and no varchar."""
    return SIZED_TEXT.sub("string", type_text)
