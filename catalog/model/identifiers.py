"""Names of databases, tables, columns and indexes: compared without regard to case, kept in lower case."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import NamedTuple

from catalog.errors import InvalidIdentifierError, InvalidRequestError

DEFAULT_DATABASE = "default"
_MAX_LENGTH = 255
# What a path, a property or an SQL statement could mistake for something else.
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
        """Read `database.table`, or `table` in the database `default`.

        Raises:
            InvalidIdentifierError: The text has more parts, or a part cannot be a name.
        """
        parts = text.split(".")
        if len(parts) > 2:
            raise InvalidIdentifierError(f"table {text!r} has {len(parts)} parts; write it as database.table")
        database = parts[0] if len(parts) == 2 else DEFAULT_DATABASE
        return cls(normalise_identifier(database, "database"), normalise_identifier(parts[-1], "table"))


def normalise_identifier(name: str, what: str) -> str:
    """Return the name in lower case; of anything but a column in Unicode's normal form NFC.

    Args:
        what: The thing named, for the message: `database`, `table`, `column`, `partition index`.

    Raises:
        InvalidIdentifierError: The name is empty, longer than 255 characters, or holds a control character, a slash,
            a dot or a quote.
    """
    normal = require_text(name, f"{what} name").strip().lower()
    if what != "column":
        # Two spellings of one accented letter would be two tables, whose folders some file systems take for one. The
        # names of columns have to be those in the files, as Spark compares them.
        normal = unicodedata.normalize("NFC", normal)
    if not normal:
        raise InvalidIdentifierError(f"{what} name {name!r} is empty; give it at least one character")
    if len(normal) > _MAX_LENGTH:
        raise InvalidIdentifierError(
            f"{what} name {normal[:40]!r}… has {len(normal)} characters; at most {_MAX_LENGTH} are allowed"
        )
    if found := _FORBIDDEN.search(normal):
        raise InvalidIdentifierError(
            f"{what} name {name!r} contains {found.group()!r}; dots, slashes, quotes and control characters are not "
            "allowed"
        )
    return normal


def require_text(value: object, what: str) -> str:
    """Return a value if it is text that every database and file system can keep.

    Args:
        what: The thing, for the message.

    Raises:
        InvalidRequestError: It is no text, or has half of a surrogate pair.
    """
    if not isinstance(value, str):
        raise InvalidRequestError(f"{what} is {value!r}, which is no text; give it as text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidRequestError(
            f"{what} is {value[:100]!r}, which is no Unicode text; correct its encoding"
        ) from None
    return value


def text_properties(properties: Mapping[str, str | None] | None) -> dict[str, str | None]:
    """Return properties if their names are texts, and their values are texts or None.

    Raises:
        InvalidRequestError: Another one is there.
    """
    texts = dict(properties or {})
    try:
        # All at once: a million partitions have properties.
        "".join((*texts, *texts.values())).encode()  # type: ignore[arg-type]
    except (TypeError, UnicodeEncodeError):
        for name, value in texts.items():
            require_text(name, "the name of a property")
            if value is not None:
                require_text(value, f"property {name}")
    return texts
