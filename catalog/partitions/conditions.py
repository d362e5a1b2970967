"""Filter expressions as conditions of SQL, for statements that sort and sum partitions.

SQL cannot compare values as the filter language does: they are stored as the strings that were given. So each condition
of an expression is decided for the distinct strings of its key, and becomes a list of those that match, or of those
that do not, whichever is shorter. If an index finds few partitions, their ids are the condition instead.

To find the distinct strings of a million partitions takes longer than to sum the partitions, so strings that were seen
are remembered. Each answer checks, in its own transaction, that the partitions have no others.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress
from random import Random
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    any_,
    case,
    false,
    func,
    literal,
    literal_column,
    not_,
    or_,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from catalog.expressions import Expression, Filter, parse_expression
from catalog.expressions.tree import ALL, Always, And, Condition, Or, keys_of
from catalog.model import Table
from catalog.partitions.queries import Queries
from catalog.partitions.scanning import Scanner
from catalog.storage.bulk import among
from catalog.storage.partition_rows import IN_ORDER, outermost_partitions, partitions_after
from catalog.storage.schema import PartitionRow
from catalog.storage.texts import Text
from catalog.storage.values import read_packed

BY_ID = 5_000
"""At most this number of partitions are found first, and are a list of ids in the statements that follow."""

_BY_ID_UNLISTED = 50_000
"""The same if the strings of a key are not listed, which takes longer than many ids."""

_SAMPLED = 5_000
"""The number of partitions in which the strings of keys are looked for first."""

_REMEMBERED = 20_000
"""The maximum number of strings of a key that are remembered."""

_MANY = 4_400
"""A key with more strings among `_SAMPLED` partitions likely has more than are remembered."""

_ALL_REMEMBERED = 200_000
"""The maximum number of strings of all keys that are remembered, about 20 MB."""


class _Piece(FunctionElement[str]):
    """A part of a packed string; its arguments are those of PostgreSQL's `split_part`.

    They are in the text of the statement, so that PostgreSQL finds the statistics of the expression (revision 0033).
    """

    name = "split_part"
    type = Text()
    inherit_cache = True


@compiles(_Piece)
def _split_part(element: _Piece, compiler: SQLCompiler, **options: Any) -> str:
    return f"split_part({', '.join(compiler.process(argument, **options) for argument in element.clauses)})"


@compiles(_Piece, "sqlite")
def _built_in(element: _Piece, compiler: SQLCompiler, **options: Any) -> str:
    packed, _, number = (compiler.process(argument, **options) for argument in element.clauses)
    if number == "1":
        return f"substr({packed}, 1, instr({packed} || '/', '/') - 1)"
    # Packed strings have neither quotes nor backslashes. A function in Python is as fast for one request, but lets the
    # other threads of the process wait.
    return f"""json_extract('["' || replace({packed}, '/', '","') || '"]', '$[{int(number) - 1}]')"""


def piece(position: int) -> ColumnElement[Any]:
    """Return the SQL expression of one key's value, as the catalog stores it."""
    return _Piece(PartitionRow.packed_values, literal_column("'/'"), literal_column(str(position + 1)))


@dataclass(frozen=True)
class Match:
    """A translated expression.

    Attributes:
        condition: The condition of the partitions that match; None if all match.
        unseen: If some of them satisfy this condition, they have strings that the translation did not know, so that
            they may not match. None if all strings were known.
    """

    condition: ColumnElement[bool] | None = None
    unseen: ColumnElement[bool] | None = None


class Conditions:
    """The translator of filter expressions, which remembers the strings of partition keys.

    Its methods take the caller's transaction, and raise `ExpressionError` for an invalid expression. The conditions
    include partitions that are not visible.
    """

    def __init__(self, scanner: Scanner) -> None:
        """Set the search through indexes."""
        self._scanner = scanner
        self._remembered: dict[tuple[int, int], frozenset[str]] = {}

    def match(self, connection: Connection, table: Table, expression: str | None) -> Match:
        """Return the condition of an expression for the strings that are remembered."""
        return self._match(connection, table, expression, is_exact=False)

    def exact(self, connection: Connection, table: Table, expression: str | None) -> ColumnElement[bool] | None:
        """Return the condition of the partitions that match an expression; None if all match."""
        return self._match(connection, table, expression, is_exact=True).condition

    def _match(self, connection: Connection, table: Table, expression: str | None, *, is_exact: bool) -> Match:
        tree = parse_expression(expression, table)
        if tree == ALL:
            return Match()
        ids = self._scanner.find_few(connection, table, expression, BY_ID)
        if ids is not None:
            return Match(among(connection, PartitionRow.id, ids))
        keys = sorted(keys_of(tree))
        known = {key: self._remembered.get((table.id, key)) for key in keys}
        if not keys or is_exact or None in known.values():
            first = self._first_strings(connection, table, known)
            if any(len(texts) > _MANY for texts in first.values()):
                # To find all strings of such a key takes longer than to read all partitions.
                ids = self._scanner.find_few(connection, table, expression, _BY_ID_UNLISTED, by_index=False)
                if ids is not None:
                    return Match(among(connection, PartitionRow.id, ids))
            strings = self._read_strings(connection, table, first)
            return Match(_translated(connection, table, tree, strings=strings))
        strings = {key: tuple(texts or ()) for key, texts in known.items()}
        condition = _translated(connection, table, tree, strings=strings, with_unseen=True)
        return Match(condition, _unseen(connection, strings))

    def _first_strings(
        self, connection: Connection, table: Table, known: Mapping[int, Collection[str] | None]
    ) -> dict[int, set[str]]:
        """Return the strings of some keys that are known, or those of some partitions."""
        sample: Sequence[str] = () if all(known.values()) else self._sample(connection, table)
        return {key: set(texts or {packed.split("/")[key] for packed in sample}) for key, texts in known.items()}

    def _read_strings(
        self, connection: Connection, table: Table, strings: Mapping[int, set[str]]
    ) -> dict[int, Sequence[str]]:
        """Return the strings of some keys: of all partitions, and perhaps of some that were dropped.

        Args:
            strings: The strings that are looked for first; others are added.
        """
        if not strings:
            return {}
        own = PartitionRow.table_id == table.id
        # Null for a string that is known, so that few rows are distinct.
        unseen = (case((not_(is_among(connection, piece(key), texts)), piece(key))) for key, texts in strings.items())
        query = select(*unseen).where(own, _unseen(connection, strings)).distinct()
        rows = connection.execute(query.limit(_REMEMBERED + 1)).all()
        if len(rows) <= _REMEMBERED:
            for number, key in enumerate(strings):
                strings[key].update(row[number] for row in rows if row[number] is not None)
        else:
            for key in strings:
                strings[key].update(connection.scalars(select(piece(key)).where(own).distinct()))
        for key, texts in strings.items():
            self._remember((table.id, key), texts)
        return {key: tuple(texts) for key, texts in strings.items()}

    def _remember(self, key: tuple[int, int], texts: Iterable[str]) -> None:
        remembered = self._remembered.copy()
        remembered[key] = frozenset(texts)
        if len(remembered[key]) > _REMEMBERED:
            del remembered[key]
        is_full = sum(map(len, remembered.values())) > _ALL_REMEMBERED
        self._remembered = {} if is_full else remembered

    @staticmethod
    def _sample(connection: Connection, table: Table) -> Sequence[str]:
        """Return the packed values of a small table's partitions, or of some of a large one's."""
        query = select(PartitionRow.packed_values).where(partitions_after(table.id)).order_by(*IN_ORDER)
        packed = connection.scalars(query.limit(_SAMPLED + 1)).all()
        if len(packed) <= _SAMPLED:
            return packed
        first, last = outermost_partitions(connection, table.id)
        random = Random(table.id)
        starts = sorted(random.randint(first, last) for _ in range(_SAMPLED))
        queries = Queries(connection.dialect.name == "postgresql")
        chosen = connection.exec_driver_sql(*queries.values_from(table.id, starts))
        return [values for (values,) in chosen if values is not None]


def _unseen(connection: Connection, strings: Mapping[int, Collection[str]]) -> ColumnElement[bool]:
    """Return the condition of the partitions of which a key has none of some strings."""
    return or_(false(), *(not_(is_among(connection, piece(key), texts)) for key, texts in strings.items()))


def _translated(
    connection: Connection,
    table: Table,
    tree: Expression,
    *,
    strings: Mapping[int, Sequence[str]],
    with_unseen: bool = False,
) -> ColumnElement[bool]:
    """Return the condition of an expression, which is right for partitions whose keys have these strings.

    Args:
        with_unseen: The condition includes all partitions whose other strings may match.
    """
    translate = partial(_translated, connection, table, strings=strings, with_unseen=with_unseen)
    match tree:
        case Always(value=value):
            return true() if value else false()
        case And(operands=operands):
            return and_(*map(translate, operands))
        case Or(operands=operands):
            return or_(*map(translate, operands))
        case Condition(key=key):
            texts = strings[key]
            mask = list(Filter(tree, {key: partial(read_packed, table.key_types[key])}).mask({key: texts}))
            matching = list(compress(texts, mask))
            if 2 * len(matching) <= len(texts) and not with_unseen:
                return is_among(connection, piece(key), matching)
            others = list(compress(texts, (not is_match for is_match in mask)))
            return not_(is_among(connection, piece(key), others))


def is_among(connection: Connection, value: ColumnElement[Any], texts: Collection[str]) -> ColumnElement[bool]:
    """Return the condition that a string is one of many."""
    if connection.dialect.name == "postgresql":
        return value == any_(literal(list(texts), ARRAY(Text)))
    listed = func.json_each(json.dumps(list(texts))).table_valued("value")
    return value.in_(select(listed.c.value))
