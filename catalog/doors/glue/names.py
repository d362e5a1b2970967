"""Names of Glue's databases, tables and columns, in Calve.

Glue allows names with dots, slashes and quotes, which Calve does not; these characters, and a `%` that would look like
one of them, are stored as `%` and two hexadecimal digits. All other names are the same in both.
"""

from __future__ import annotations

import re

from catalog.model.identifiers import TableName, normalise_identifier

_FORBIDDEN = re.compile(r"[/\\.`'\"]|%(?=[0-9a-fA-F]{2})")
_ESCAPED = re.compile(r"%(2[fF]|5[cC]|2[eE]|60|27|22|25)")


def to_calve(name: str, kind: str) -> str:
    """Return Calve's spelling of a name, in lower case.

    Args:
        kind: `database`, `table` or `partition index`, for messages.

    Raises:
        InvalidIdentifierError: The name is empty or too long, or has a control character.
    """
    return normalise_identifier(_FORBIDDEN.sub(lambda match: f"%{ord(match.group()[0]):02x}", name), kind)


def to_glue(name: str) -> str:
    """Return Glue's spelling of a name."""
    return _ESCAPED.sub(lambda match: chr(int(match.group(1), 16)), name) if "%" in name else name


def table_name(database: str, name: str) -> TableName:
    """Return the name of a table, given the names in a request."""
    return TableName(to_calve(database, "database"), to_calve(name, "table"))
