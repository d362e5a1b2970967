"""The fields that all statements have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from catalog.statements.terms import TableReference


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A statement.

    Attributes:
        places: Name of a field, or of a property in upper case → its position in the statement's text.
    """

    places: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class TableStatement(Statement):
    """A statement about one table."""

    table: TableReference
