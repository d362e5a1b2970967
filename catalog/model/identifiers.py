"""Names of databases, tables, columns and indexes: case-insensitive, stored in lower case."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import NamedTuple

from catalog.errors import InvalidIdentifierError, InvalidRequestError

DEFAULT_DATABASE = "default"
_MAX_LENGTH = 255
# Characters with a special meaning in paths, properties or SQL statements.
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f/\\.`'\"]")


class TableName(NamedTuple):
    """A table's database and name."""

    database: str
    name: str

    def __str__(self) -> str:
        """Return `database.name`."""
        return f"{self.database}.{self.name}"

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Parse `database.table`, or `table` in the database `default`.

        Raises:
            InvalidIdentifierError: There are more parts, or a part is not a valid name.
        """
        parts = text.split(".")
        if len(parts) > 2:
            raise InvalidIdentifierError(f"table {text!r} has {len(parts)} parts; write it as database.table")
        database = parts[0] if len(parts) == 2 else DEFAULT_DATABASE
        return cls(normalise_identifier(database, "database"), normalise_identifier(parts[-1], "table"))


def normalise_identifier(name: str, what: str) -> str:
    """Return the name in lower case; except for columns, in Unicode's normal form NFC.

    Args:
        what: The kind of object, for the message: `database`, `table`, `column`, `partition index`.

    Raises:
        InvalidIdentifierError: The name is empty, longer than 255 characters, or contains a control character, a slash,
            a dot or a quote.
    """
    normal = require_text(name, f"{what} name").strip().lower()
    if what != "column":
        # Otherwise two encodings of one accented letter would be two tables, whose folders are the same on some file
        # systems. Column names must equal those in the files, as Spark compares them.
        normal = unicodedata.normalize("NFC", normal)
    if not normal:
        raise InvalidIdentifierError(f"{what} name {name!r} is empty; give it at least one character")
    if len(normal) > _MAX_LENGTH:
        raise InvalidIdentifierError(
            f"{what} name {normal[:40]!r}… has {len(normal)} characters; at most {_MAX_LENGTH} are allowed"
        )
    if match := _FORBIDDEN.search(normal):
        raise InvalidIdentifierError(
            f"{what} name {name!r} contains {match.group()!r}; dots, slashes, quotes and control characters are not "
            "allowed"
        )
    return normal


def require_text(value: object, what: str) -> str:
    """Return a value if it is a string that every database and file system can store.

    Args:
        what: The name of the value, for the message.

    Raises:
        InvalidRequestError: It is not a string, or has an unpaired surrogate.
    """
    if not isinstance(value, str):
        raise InvalidRequestError(f"{what} is {value!r}, which is not a string; give a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidRequestError(
            f"{what} is {value[:100]!r}, which is not valid Unicode; correct its encoding"
        ) from None
    return value


def text_properties(properties: Mapping[str, str | None] | None) -> dict[str, str | None]:
    """Return properties after checking that names are strings, and values strings or None.

    Raises:
        InvalidRequestError: One is not.
    """
    texts = dict(properties or {})
    try:
        # One check for all strings is faster: a million partitions may have properties.
        "".join((*texts, *texts.values())).encode()  # type: ignore[arg-type]
    except (TypeError, UnicodeEncodeError):
        for name, value in texts.items():
            require_text(name, "the name of a property")
            if value is not None:
                require_text(value, f"property {name}")
    return texts
