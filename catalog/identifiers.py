"""Names of databases, tables, columns and indexes: compared without regard to case, kept in lower case."""

from __future__ import annotations

import re
from typing import NamedTuple

from catalog.errors import InvalidIdentifierError

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
    """Return the name in lower case.

    Args:
        what: The thing named, for the message: `database`, `table`, `column`, `partition index`.

    Raises:
        InvalidIdentifierError: The name is empty, longer than 255 characters, or holds a control character, a slash,
            a dot or a quote.
    """
    normal = name.strip().lower()
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
