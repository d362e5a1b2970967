"""Columns, locations and formats as the catalog stores them, from what callers give."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from catalog.errors import InvalidLocationError, InvalidTableError
from catalog.files.locations import has_plain_names, problem_of_uri
from catalog.files.object_stores import is_on_s3
from catalog.model import Column, FileFormat
from catalog.model.identifiers import normalise_identifier, require_text
from catalog.types.column_types import named_column_type
from catalog.types.key_types import parse_key_type

ColumnLike = Column | tuple[str, str] | Mapping[str, str]
"""A column: a `Column`, a (name, type) pair, or a mapping with `name`, `type` and an optional `comment`."""


def normalise_columns(columns: Iterable[ColumnLike], *, is_recorded: bool = False) -> tuple[Column, ...]:
    """Return columns with names and types in lower case.

    Args:
        is_recorded: Accept names and types that a metastore has, and Calve does not know.

    Raises:
        InvalidIdentifierError: A name is not allowed.
    """
    normalised = []
    for column in columns:
        match column:
            case Column(name, column_type, comment):
                pass
            case (str() as name, str() as column_type):
                comment = None
            case _:
                name, column_type, comment = column["name"], column["type"], column.get("comment")
        column_type = require_text(column_type, f"the type of column {name}").strip().lower()
        if is_recorded:
            name = require_text(name, "column name").strip().lower()
        else:
            column_type = named_column_type(name, column_type)
            name = normalise_identifier(name, "column")
        normalised.append(Column(name, column_type, comment))
    return tuple(normalised)


def check_columns(table: str, columns: Sequence[Column], keys: Sequence[Column], *, is_recorded: bool = False) -> None:
    """Check that a table's columns and partition keys are consistent.

    Args:
        is_recorded: Accept a table without columns, and keys of any type, whose values are then compared as strings.

    Raises:
        InvalidTableError: A name is used twice, or there is neither a column nor a key.
        InvalidKeyTypeError: A partition key cannot have this type.
    """
    names = [column.name for column in (*columns, *keys)]
    if not names and not is_recorded:
        raise InvalidTableError(f"table {table} has neither columns nor partition keys; name at least one")
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidTableError(
            f"table {table} names {', '.join(repeated)} more than once; each column and key needs its own name"
        )
    for key in () if is_recorded else keys:
        parse_key_type(key.type)


def normalise_location(location: str) -> str:
    """Return a location without a trailing slash, and as an absolute path.

    Raises:
        InvalidLocationError: It is empty, a URI that names no folder, or not all readers find it.
    """
    if not location.strip():
        raise InvalidLocationError("the location is empty; name a folder")
    require_text(location, "the location")
    if problem := problem_of_uri(location):
        raise InvalidLocationError(f"location {location!r} {problem}")
    if "://" not in location and not location.startswith("file:"):
        location = os.path.abspath(os.path.expanduser(location))
    location = location.rstrip("/") or "/"
    if is_on_s3(location) and not has_plain_names(location):
        raise InvalidLocationError(
            f"location {location!r} has an empty name, '.' or '..' in it, which some readers of S3 take literally and "
            "others resolve; write it without them"
        )
    return location


def parse_format(text: str) -> FileFormat:
    """Return the file format of a name, ignoring case; `json` means Hive's `jsonfile`.

    Raises:
        InvalidTableError: The format is unknown.
    """
    name = text.strip().lower()
    known = {file_format.value: file_format for file_format in FileFormat if file_format is not FileFormat.OTHER}
    file_format = known.get({"json": "jsonfile"}.get(name, name))
    if file_format is None:
        raise InvalidTableError(f"unknown format {text!r}; use one of {', '.join(known)}")
    return file_format
