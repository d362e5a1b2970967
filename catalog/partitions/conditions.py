"""Filter expressions as conditions of SQL, for statements that sort and sum partitions.

SQL cannot compare values as the filter language does: they are stored as the strings that were given. So each condition
of an expression is decided for the distinct strings of its key, and becomes a list of those that match, or of those
that do not, whichever is shorter. If an index finds few partitions, their ids are the condition instead.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from itertools import compress
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, any_, false, func, literal, not_, or_, select, true
from sqlalchemy.dialects.postgresql import ARRAY

from catalog.expressions import Expression, Filter, parse_expression
from catalog.expressions.tree import ALL, Always, And, Condition, Or
from catalog.model import Table
from catalog.partitions.scanning import Scanner
from catalog.storage.bulk import among
from catalog.storage.schema import PartitionRow
from catalog.storage.texts import Text
from catalog.storage.values import read_packed

_BY_ID = 5_000
"""Searches through an index that read at most this number of items become a list of ids."""


def piece(position: int) -> ColumnElement[Any]:
    """Return the SQL expression of one key's value, as the catalog stores it."""
    return func.split_part(PartitionRow.packed_values, "/", position + 1, type_=Text)


def condition_of(
    connection: Connection, scanner: Scanner, table: Table, expression: str | None
) -> ColumnElement[bool] | None:
    """Return the condition of the partitions that match an expression, visible or not; None if all match.

    Raises:
        ExpressionError: The expression is invalid.
    """
    tree = parse_expression(expression, table)
    if tree == ALL:
        return None
    ids = scanner.find_few(connection, table, expression, _BY_ID)
    if ids is not None:
        return among(connection, PartitionRow.id, ids)
    return _Translation(connection, table).condition(tree)


class _Translation:
    """The translation of the conditions on one table's partitions, in one transaction."""

    def __init__(self, connection: Connection, table: Table) -> None:
        self._connection = connection
        self._table = table
        self._pieces: dict[int, Sequence[str]] = {}

    def condition(self, tree: Expression) -> ColumnElement[bool]:
        match tree:
            case Always(value=value):
                return true() if value else false()
            case And(operands=operands):
                return and_(*map(self.condition, operands))
            case Or(operands=operands):
                return or_(*map(self.condition, operands))
            case Condition(key=key):
                pieces = self._pieces_of(key)
                read = partial(read_packed, self._table.key_types[key])
                mask = list(Filter(tree, {key: read}).mask({key: pieces}))
                matching = list(compress(pieces, mask))
                if 2 * len(matching) <= len(pieces):
                    return is_among(self._connection, piece(key), matching)
                others = list(compress(pieces, (not is_match for is_match in mask)))
                return not_(is_among(self._connection, piece(key), others))

    def _pieces_of(self, key: int) -> Sequence[str]:
        if key not in self._pieces:
            query = select(piece(key)).where(PartitionRow.table_id == self._table.id).distinct()
            self._pieces[key] = self._connection.scalars(query).all()
        return self._pieces[key]


def is_among(connection: Connection, value: ColumnElement[Any], texts: Sequence[str]) -> ColumnElement[bool]:
    """Return the condition that a string is one of many."""
    if connection.dialect.name == "postgresql":
        return value == any_(literal(list(texts), ARRAY(Text)))
    listed = func.json_each(json.dumps(list(texts))).table_valued("value")
    return value.in_(select(listed.c.value))
