"""Paths of files, names and texts, as Spark expects and reports them."""

from __future__ import annotations

import re
from urllib.parse import unquote

from catalog import Table
from catalog.errors import InvalidLocationError

_WILDCARD = re.compile(r"[*?\[\]{}\\]")


def spark_path(location: str) -> str:
    """Return a location for Spark, with a plain path as a local path regardless of Spark's default file system."""
    return f"file://{location}" if location.startswith("/") else location


def read_path(location: str) -> str:
    """Return a location for Spark's readers, with wildcard characters escaped.

    Spark's option `__globPaths__` is not used: with it, each path with a wildcard is expanded to all paths of the
    reader, so that their rows are repeated. Source: `DataSource.checkAndGlobPathIfNecessary` of Spark 4.1.

    Raises:
        InvalidLocationError: It also has a colon, which Hadoop's `Globber` takes as the end of a scheme.
    """
    path = spark_path(location)
    if not _WILDCARD.search(path):
        return path
    if ":" in path.partition("://")[2].partition("/")[2]:
        raise InvalidLocationError(
            f"Spark cannot read {location!r}, because it has a colon and one of the characters * ? [ ] {{ }} \\; "
            "rename the file or folder"
        )
    return _WILDCARD.sub(r"\\\g<0>", path)


def plain_path(uri: str) -> str:
    """Return the plain location of a URI as Spark reports it, escaped and with any number of slashes."""
    return re.sub("^file:/+", "/", unquote(uri))


def quoted(name: str) -> str:
    """Return a column's name as a quoted SQL identifier."""
    return f"`{name.replace('`', '``')}`"


def quoted_table(table: Table) -> str:
    """Return a table's `database.name` as quoted SQL identifiers."""
    return f"{quoted(table.database)}.{quoted(table.name)}"


def text_literal(text: str) -> str:
    """Return a text as a literal of Spark SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
