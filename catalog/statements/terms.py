"""Terms of statements as values: table names, literals and conditions, independent of their notation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class TableReference(NamedTuple):
    """A table name in a statement; without a database, the session's database applies."""

    database: str | None
    name: str


def table_reference(text: str) -> TableReference:
    """Return the name of a table that is written `database.table`, or `table`."""
    database, point, name = text.rpartition(".")
    return TableReference(database if point else None, name)


class LiteralKind(StrEnum):
    """The kind of a literal."""

    TEXT = "text"
    NUMBER = "number"
    DATE = "date"
    TIMESTAMP = "timestamp"
    BOOLEAN = "boolean"
    BINARY = "binary"
    NULL = "null"


@dataclass(frozen=True, slots=True)
class Literal:
    """A literal.

    Attributes:
        text: Its value without quotes and escapes: a number as it was written, bytes in hexadecimal digits, None for
            NULL.
        position: Its position in the statement's text.
    """

    kind: LiteralKind
    text: str | None
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class KeyCondition:
    """A comparison of a partition key with a literal, in DROP PARTITION."""

    key: str
    operator: str
    literal: Literal


PartitionValues = Mapping[str, str | None]
"""Partition key → value, as in `PARTITION (k='v')`; None is null."""
