"""From the text of a filter to its typed tree. The grammar is read by sqlglot; the meaning is given here.

Source: the expression of Glue's GetPartitions: comparisons of a partition key with a literal, BETWEEN, IN, LIKE,
IS NULL, combined by AND, OR, NOT and parentheses. A comparison follows the key's type, not the literal's spelling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from sqlglot import exp, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, TokenError

from catalog.errors import (
    ExpressionSyntaxError,
    ExpressionTooComplexError,
    LiteralTypeError,
    UnknownColumnError,
    UnsupportedExpressionError,
)
from catalog.expressions.tree import (
    ALL,
    Always,
    And,
    Comparison,
    Expression,
    InList,
    IsNull,
    Like,
    Not,
    Operator,
    Or,
)
from catalog.key_types import KeyType, KeyValue, KeyValueError, StringType
from catalog.model import Table

MAXIMUM_LENGTH = 65_536
"""Longest expression, in characters."""


class _FilterDialect(Dialect):
    """Both kinds of quotes make strings, backquotes make identifiers; quotes are doubled or escaped inside."""

    class Tokenizer(tokens.Tokenizer):
        QUOTES: ClassVar = ["'", '"']
        IDENTIFIERS: ClassVar = ["`"]
        STRING_ESCAPES: ClassVar = ["\\", "'", '"']


_DIALECT = _FilterDialect()
# So long that the context before an error is always the whole text, and its length the error's position.
_WHOLE_TEXT = MAXIMUM_LENGTH * 2

_OPERATORS: dict[type[exp.Expr], Operator] = {
    exp.EQ: Operator.EQUAL,
    exp.NEQ: Operator.NOT_EQUAL,
    exp.LT: Operator.LESS,
    exp.LTE: Operator.LESS_OR_EQUAL,
    exp.GT: Operator.GREATER,
    exp.GTE: Operator.GREATER_OR_EQUAL,
}


def parse_expression(text: str | None, table: Table) -> Expression:
    """Return the typed tree of a filter on a table's partition keys; an empty text means all.

    Raises:
        ExpressionSyntaxError: The text is not in the grammar.
        UnknownColumnError: It names something that is not a partition key of the table.
        LiteralTypeError: A literal cannot be of the key's type.
        UnsupportedExpressionError: It is SQL, but not of the filter language.
        ExpressionTooComplexError: It is longer than `MAXIMUM_LENGTH`, or nested too deeply.
    """
    if text is None or not text.strip():
        return ALL
    if len(text) > MAXIMUM_LENGTH:
        raise ExpressionTooComplexError(
            f"the filter has {len(text):,} characters; at most {MAXIMUM_LENGTH:,} are read", text
        )
    try:
        return _Translator(text, table).translate(_parse(text))
    except RecursionError:
        raise ExpressionTooComplexError("the filter is nested too deeply; flatten its parentheses", text) from None


def _parse(text: str) -> exp.Expr:
    try:
        parser = _DIALECT.parser(error_message_context=_WHOLE_TEXT)
        statements = parser.parse(_DIALECT.tokenize(text), text)
    except TokenError:
        raise ExpressionSyntaxError("unfinished text: a quote is not closed", text, _open_quote(text)) from None
    except ParseError as error:
        detail = error.errors[0]
        prefix = detail.get("start_context") or ""
        found = detail.get("highlight") or "the end"
        raise ExpressionSyntaxError(f"cannot be read near {found!r}", text, len(prefix)) from None
    if len(statements) != 1 or statements[0] is None:
        raise ExpressionSyntaxError("one condition is expected; leave out the semicolon", text)
    return statements[0]


def _open_quote(text: str) -> int | None:
    """Return the position of the quote that is never closed."""
    position, opened = 0, None
    while position < len(text):
        character = text[position]
        if opened is None:
            if character in "'\"`":
                opened = position
        elif character == "\\":
            position += 1
        elif character == text[opened]:
            opened = None
        position += 1
    return opened


class _Translator:
    """Turns sqlglot's tree into ours, for one table."""

    def __init__(self, text: str, table: Table) -> None:
        self.text = text
        self.table = table

    def translate(self, node: exp.Expr) -> Expression:
        """Return the tree of a condition."""
        node = node.unnest()
        if isinstance(node, exp.And):
            return And(tuple(map(self.translate, node.flatten())))
        if isinstance(node, exp.Or):
            return Or(tuple(map(self.translate, node.flatten())))
        if isinstance(node, exp.Not):
            return Not(self.translate(node.this))
        if isinstance(node, exp.Boolean):
            return Always(bool(node.this))
        if isinstance(node, exp.Null):
            return Always(None)
        translated = self._predicate(node)
        return Not(translated) if node.args.get("negate") else translated

    def _predicate(self, node: exp.Expr) -> Expression:
        handlers: dict[type[exp.Expr], Callable[[exp.Expr], Expression]] = {
            exp.Between: self._between,
            exp.In: self._in,
            exp.Is: self._is,
            exp.Like: self._like,
            exp.Escape: self._escaped_like,
        }
        if operator := _OPERATORS.get(type(node)):
            return self._comparison(node, operator)
        if handler := handlers.get(type(node)):
            return handler(node)
        raise self._unsupported(node)

    def _comparison(self, node: exp.Expr, operator: Operator) -> Expression:
        left, right = node.this.unnest(), node.expression.unnest()
        if isinstance(right, exp.Column) and not isinstance(left, exp.Column):
            left, right, operator = right, left, operator.mirrored
        return self._compare(self._key(left), operator, right)

    def _compare(self, key: int, operator: Operator, literal: exp.Expr) -> Expression:
        value = self._literal(key, literal)
        return Always(None) if value is None else Comparison(key, operator, value)

    def _between(self, node: exp.Expr) -> Expression:
        key = self._key(node.this)
        return And(
            (
                self._compare(key, Operator.GREATER_OR_EQUAL, node.args["low"]),
                self._compare(key, Operator.LESS_OR_EQUAL, node.args["high"]),
            )
        )

    def _in(self, node: exp.Expr) -> Expression:
        if not node.expressions:
            raise self._unsupported(node)
        key = self._key(node.this)
        values = [self._literal(key, member) for member in node.expressions]
        return InList(key, frozenset(value for value in values if value is not None), None in values)

    def _is(self, node: exp.Expr) -> Expression:
        if not isinstance(node.expression, exp.Null):
            raise self._unsupported(node)
        return IsNull(self._key(node.this))

    def _like(self, node: exp.Expr, escape: str = "\\") -> Expression:
        key = self._key(node.this)
        if not isinstance(self.table.key_types[key], StringType):
            raise UnsupportedExpressionError(
                f"LIKE needs a key of type string, char or varchar; {self.table.key_names[key]!r} is of type "
                f"{self.table.key_types[key]}",
                self.text,
                _position(node),
            )
        pattern = node.expression.unnest()
        if not (isinstance(pattern, exp.Literal) and pattern.is_string):
            raise LiteralTypeError(f"LIKE needs a quoted pattern, not {pattern.sql()!r}", self.text)
        return Like(key, pattern.name, escape)

    def _escaped_like(self, node: exp.Expr) -> Expression:
        escape = node.expression.name
        if not isinstance(node.this, exp.Like) or len(escape) != 1:
            raise self._unsupported(node)
        like = self._like(node.this, escape)
        return Not(like) if node.this.args.get("negate") else like

    def _key(self, node: exp.Expr) -> int:
        node = node.unnest()
        if not isinstance(node, exp.Column) or node.table:
            raise self._unsupported(node)
        position = self.table.key_position(node.name)
        if position is None:
            keys = ", ".join(self.table.key_names) or "none"
            raise UnknownColumnError(
                f"{node.name!r} is not a partition key of {self.table.full_name} (its keys: {keys})",
                self.text,
                _position(node),
            )
        return position

    def _literal(self, key: int, node: exp.Expr) -> KeyValue | None:
        """Return the typed value of a literal; None for NULL."""
        text = _literal_text(node.unnest())
        if text is None:
            if isinstance(node.unnest(), exp.Null):
                return None
            raise self._unsupported(node)
        key_type: KeyType = self.table.key_types[key]
        try:
            return key_type.parse_literal(text)
        except KeyValueError as error:
            raise LiteralTypeError(
                f"key {self.table.key_names[key]!r} is of type {key_type}: {error}", self.text
            ) from None

    def _unsupported(self, node: exp.Expr) -> UnsupportedExpressionError:
        return UnsupportedExpressionError(
            f"{node.sql()[:80]!r} is not part of the filter language; compare a partition key with a literal by "
            "=, <>, <, <=, >, >=, BETWEEN, IN, LIKE or IS NULL, and combine by AND, OR, NOT",
            self.text,
            _position(node),
        )


def _literal_text(node: exp.Expr) -> str | None:
    if isinstance(node, exp.Literal):
        return node.name
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and not node.this.is_string:
        return f"-{node.this.name}"
    if isinstance(node, exp.Cast) and node.is_type("date") and isinstance(node.this, exp.Literal):
        return node.this.name
    return None


def _position(node: exp.Expr) -> int | None:
    """Return where the first identifier below a node begins, as far as the parser recorded it."""
    starts: Sequence[int] = [found.meta["start"] for found in node.find_all(exp.Identifier) if "start" in found.meta]
    return min(starts, default=None)
