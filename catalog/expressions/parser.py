"""Parser of filter expressions: Lark parses the grammar, and a transformer builds the typed tree.

Source: the expression of Glue's GetPartitions: comparisons of a partition key with a literal, BETWEEN, IN, LIKE,
IS NULL, combined by AND, OR, NOT and parentheses. A comparison uses the key's type, whatever the literal's spelling.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from decimal import Decimal
from functools import cache
from typing import Any, TypeAlias

from lark import Lark, Token, Transformer_NonRecursive
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken, VisitError
from lark.visitors import v_args

from catalog.errors import (
    CatalogError,
    ExpressionSyntaxError,
    ExpressionTooComplexError,
    LiteralTypeError,
    UnknownColumnError,
    UnsupportedExpressionError,
)
from catalog.expressions.evaluation import COMPARE
from catalog.expressions.tree import (
    ALL,
    NONE,
    Condition,
    Expression,
    LikePattern,
    Operator,
    conjunction,
    disjunction,
)
from catalog.model import Table
from catalog.types.key_types import KeyType, KeyValue, KeyValueError, StringType, TimestampType, moment_of

MAXIMUM_LENGTH = 65_536
"""Maximum length of an expression in characters."""

MAXIMUM_TOKENS = 20_000
"""Maximum number of names, literals and signs in an expression; parsing them takes half a second."""

MAXIMUM_DEPTH = 100
"""Maximum nesting depth of AND, OR and NOT."""

_TOKEN = re.compile(r"""'(?:[^'\\]+|''|\\.)*+'|"(?:[^"\\]+|""|\\.)*+"|`[^`]*+`|\w+|[^\w\s]""", re.DOTALL)

_GRAMMAR = r"""
start: condition
?condition: conjunction | conjunction (OR conjunction)+ -> any
?conjunction: negation | negation (AND negation)+   -> all
?negation: predicate | NOT negation                 -> opposite

?predicate: "(" condition ")"                       -> inner
    | TRUE                                          -> true
    | FALSE                                         -> false
    | operand OPERATOR operand                      -> comparison
    | operand OPERATOR truth                        -> comparison
    | operand [NOT] BETWEEN member AND member       -> between
    | operand [NOT] IN "(" member ("," member)* ")" -> in_list
    | operand [NOT] LIKE operand [ESCAPE operand]   -> like
    | operand IS [NOT] NULL                         -> is_null

?operand: "(" operand ")"                           -> inner
    | NAME                                          -> name
    | BACKQUOTED                                    -> backquoted
    | QUOTED                                        -> quoted
    | DOUBLE_QUOTED                                 -> double_quoted
    | DATE                                          -> date
    | [SIGN] NUMBER                                 -> number
    | NULL                                          -> null

?member: operand | truth

!truth: TRUE | FALSE

OPERATOR: "<=" | ">=" | "<>" | "!=" | "=" | "<" | ">"
SIGN: "-" | "+"
NUMBER: /[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?(?!\w)/
QUOTED: /'(?:[^'\\]+|''|\\.)*+'/s
DOUBLE_QUOTED: /"(?:[^"\\]+|""|\\.)*+"/s
BACKQUOTED: /`(?:[^`]+|``)*+`/s
DATE.3: /(?:date|timestamp)\s*(?:'(?:[^'\\]+|''|\\.)*+'|"(?:[^"\\]+|""|\\.)*+")/is
AND.2: /and\b/i
OR.2: /or\b/i
NOT.2: /not\b/i
BETWEEN.2: /between\b/i
IN.2: /in\b/i
LIKE.2: /like\b/i
ESCAPE.2: /escape\b/i
IS.2: /is\b/i
NULL.2: /null\b/i
TRUE.2: /true\b/i
FALSE.2: /false\b/i
NAME: /[^\W\d]\w*/
%ignore /\s+/
"""

_WORDS = {"OPERATOR": "a comparison", "NAME": "a partition key", "QUOTED": "a literal", "LPAR": "'('", "RPAR": "')'"}
_SECONDARY = {"BACKQUOTED", "DOUBLE_QUOTED", "DATE", "NUMBER", "SIGN", "NULL", "TRUE", "FALSE", "$END"}
_OPERATORS = {"!=": Operator.NOT_EQUAL}
_DATE_WORD = re.compile(r"(?:date|timestamp)\s*", re.IGNORECASE)
_ESCAPED = {quote: re.compile(rf"\\([\\'\"])|{quote}({quote})") for quote in "'\""}


def parse_expression(text: str | None, table: Table, zone: tzinfo | None = None) -> Expression:
    """Return the typed tree of a filter on a table's partition keys; an empty string matches all partitions.

    Args:
        zone: The time zone of literals that are compared with timestamps, where timestamps are instants; None for UTC,
            and for partition keys, whose strings are compared as they are.

    Raises:
        ExpressionSyntaxError: The string does not match the grammar.
        UnknownColumnError: It names a column that is not a partition key of the table.
        LiteralTypeError: A literal does not match the key's type.
        UnsupportedExpressionError: It has a comparison that the filter language does not support.
        ExpressionTooComplexError: It exceeds `MAXIMUM_LENGTH`, `MAXIMUM_TOKENS` or `MAXIMUM_DEPTH`.
    """
    if text is None or not text.strip():
        return ALL
    if len(text) > MAXIMUM_LENGTH:
        raise ExpressionTooComplexError(
            f"the filter has {len(text):,} characters; at most {MAXIMUM_LENGTH:,} are allowed", text
        )
    if (count := sum(1 for _ in _TOKEN.finditer(text))) > MAXIMUM_TOKENS:
        raise ExpressionTooComplexError(
            f"the filter has {count:,} names, literals and signs; at most {MAXIMUM_TOKENS:,} are allowed", text
        )
    try:
        truth: _Truth = _Translator(text, table, zone).transform(_parser().parse(text))
    except UnexpectedInput as error:
        raise _syntax_error(error, text) from None
    except VisitError as error:
        if isinstance(error.orig_exc, CatalogError):
            raise error.orig_exc from None
        raise
    return truth.when_true


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", maybe_placeholders=True)


def _syntax_error(error: UnexpectedInput, text: str) -> ExpressionSyntaxError:
    position = len(text)
    what = "the end"
    if isinstance(error, UnexpectedToken) and error.token.type != "$END":
        position, what = error.token.start_pos or 0, f"{str(error.token)[:40]!r}"
    elif isinstance(error, UnexpectedCharacters):
        position = error.pos_in_stream or 0
        what = f"{text[position]!r}"
        if text[position] in "'\"`":
            return ExpressionSyntaxError("unterminated string: a quote is not closed", text, position)
    accepted = error.accepts if isinstance(error, UnexpectedToken) else None
    expected = sorted({_WORDS.get(name, name) for name in accepted or () if name not in _SECONDARY})
    hint = f"; expected {' or '.join(expected)}" if expected else ""
    return ExpressionSyntaxError(f"{what} cannot be read{hint}", text, position)


@dataclass(frozen=True, slots=True)
class _Truth:
    """A condition in three-valued logic: the tree for true and the tree for false."""

    when_true: Expression
    when_false: Expression
    depth: int = 1


@dataclass(frozen=True, slots=True)
class _Key:
    position: int
    place: int


@dataclass(frozen=True, slots=True)
class _Literal:
    """A literal as written; `text` is None for NULL; `name` is set when it could be a key in double quotes."""

    text: str | None
    place: int
    is_number: bool = False
    name: int | None = None


_Operand: TypeAlias = _Key | _Literal
_UNKNOWN = _Truth(NONE, NONE)


def _truth(condition: Condition) -> _Truth:
    return _Truth(condition, Condition(condition.key, condition.operator.opposite, condition.operand))


@v_args(inline=True)
class _Translator(Transformer_NonRecursive[Token, Any]):
    """Transformer of Lark's tree for one table. A method is named after the rule whose children it receives."""

    def __init__(self, text: str, table: Table, zone: tzinfo | None) -> None:
        super().__init__(visit_tokens=False)
        self._text = text
        self._table = table
        self._zone = zone

    # --- conditions ---------------------------------------------------------------------------------------------

    def start(self, truth: _Truth) -> _Truth:
        return truth

    def inner(self, something: Any) -> Any:
        return something

    def true(self, _token: Token) -> _Truth:
        return _Truth(ALL, NONE)

    def false(self, _token: Token) -> _Truth:
        return _Truth(NONE, ALL)

    def opposite(self, _not: Token, truth: _Truth) -> _Truth:
        return _Truth(truth.when_false, truth.when_true, truth.depth)

    def all(self, *parts: _Truth | Token) -> _Truth:
        return self._combined(parts, conjunction, disjunction)

    def any(self, *parts: _Truth | Token) -> _Truth:
        return self._combined(parts, disjunction, conjunction)

    def _combined(
        self,
        parts: Sequence[_Truth | Token],
        join_true: Callable[[Sequence[Expression]], Expression],
        join_false: Callable[[Sequence[Expression]], Expression],
    ) -> _Truth:
        truths = [part for part in parts if isinstance(part, _Truth)]
        depth = 1 + max(truth.depth for truth in truths)
        if depth > MAXIMUM_DEPTH:
            raise ExpressionTooComplexError(
                f"the filter is nested more than {MAXIMUM_DEPTH} times; flatten its parentheses", self._text
            )
        return _Truth(
            join_true([truth.when_true for truth in truths]), join_false([truth.when_false for truth in truths]), depth
        )

    def comparison(self, left: _Operand, symbol: Token, right: _Operand) -> _Truth:
        operator = _OPERATORS.get(symbol) or Operator(symbol)
        left_key, right_key = self._as_key(left), self._as_key(right)
        if left_key and right_key:
            is_plain = isinstance(left, _Key) + isinstance(right, _Key)
            if is_plain != 1:
                raise self._unsupported("two partition keys are compared; compare a key with a literal", right.place)
            # Then the operand in double quotes is a string literal.
            left_key, right_key = (left_key, None) if isinstance(left, _Key) else (None, right_key)
        if left_key:
            return self._compared(left_key, operator, self._as_literal(right))
        if right_key:
            return self._compared(right_key, operator.mirrored, self._as_literal(left))
        return self._constant(self._as_literal(left), operator, self._as_literal(right))

    def between(
        self, operand: _Operand, negation: Token | None, _between: Token, low: _Operand, _and: Token, high: _Operand
    ) -> _Truth:
        key = self._key(operand)
        bounds = [
            self._compared(key, Operator.GREATER_OR_EQUAL, self._as_literal(low)),
            self._compared(key, Operator.LESS_OR_EQUAL, self._as_literal(high)),
        ]
        return self._negated(negation, self._combined(bounds, conjunction, disjunction))

    def in_list(self, operand: _Operand, negation: Token | None, _in: Token, *members: _Operand) -> _Truth:
        key = self._key(operand)
        bounds = [self._bound(key, self._as_literal(member)) for member in members]
        distinct = frozenset(value for value, is_exact in bounds if value is not None and is_exact)
        when_true = disjunction([Condition(key.position, Operator.EQUAL, value) for value in distinct])
        # With a null in the list, a value that is not listed makes the condition unknown.
        when_false = (
            NONE
            if (None, True) in bounds
            else conjunction([Condition(key.position, Operator.NOT_EQUAL, value) for value in distinct])
            if distinct
            else Condition(key.position, Operator.IS_NOT_NULL)
        )
        return self._negated(negation, _Truth(when_true, when_false))

    def like(
        self,
        operand: _Operand,
        negation: Token | None,
        _like: Token,
        pattern: _Operand,
        _escape: Token | None,
        escape: _Operand | None,
    ) -> _Truth:
        key = self._key(operand)
        key_type = self._table.key_types[key.position]
        if not isinstance(key_type, StringType):
            raise self._unsupported(
                f"LIKE needs a key of type string, char or varchar; {self._table.key_names[key.position]!r} is of type "
                f"{key_type}",
                key.place,
            )
        literal = self._as_literal(pattern)
        if literal.text is None:
            return _UNKNOWN
        if literal.is_number:
            raise LiteralTypeError(f"LIKE needs a quoted pattern, not {literal.text}", self._text, literal.place)
        by = "\\" if escape is None else self._as_literal(escape).text
        if by is None or len(by) != 1:
            raise self._unsupported(
                "ESCAPE needs one quoted character", operand.place if escape is None else escape.place
            )
        return self._negated(negation, _truth(Condition(key.position, Operator.LIKE, LikePattern(literal.text, by))))

    def is_null(self, operand: _Operand, _is: Token, negation: Token | None, _null: Token) -> _Truth:
        return self._negated(negation, _truth(Condition(self._key(operand).position, Operator.IS_NULL)))

    @staticmethod
    def _negated(negation: Token | None, truth: _Truth) -> _Truth:
        return truth if negation is None else _Truth(truth.when_false, truth.when_true, truth.depth)

    # --- operands -----------------------------------------------------------------------------------------------

    def name(self, token: Token) -> _Key:
        return self._known(str(token), token)

    def backquoted(self, token: Token) -> _Key:
        return self._known(token[1:-1].replace("``", "`"), token)

    def quoted(self, token: Token) -> _Literal:
        return _Literal(_unquoted(token), token.start_pos or 0)

    def double_quoted(self, token: Token) -> _Literal:
        text = _unquoted(token)
        return _Literal(text, token.start_pos or 0, name=self._table.key_position(text))

    def date(self, token: Token) -> _Literal:
        return _Literal(_unquoted(_DATE_WORD.sub("", token)), token.start_pos or 0)

    def truth(self, token: Token) -> _Literal:
        return _Literal(token.lower(), token.start_pos or 0)

    def number(self, sign: Token | None, token: Token) -> _Literal:
        return _Literal(f"{'-' if sign == '-' else ''}{token}", token.start_pos or 0, is_number=True)

    def null(self, token: Token) -> _Literal:
        return _Literal(None, token.start_pos or 0)

    def _known(self, name: str, token: Token) -> _Key:
        position = self._table.key_position(name)
        if position is None:
            keys = ", ".join(self._table.key_names) or "none"
            raise UnknownColumnError(
                f"{name!r} is not a {self._table.filter_word} of {self._table.full_name} (those there are: {keys})",
                self._text,
                token.start_pos,
            )
        return _Key(position, token.start_pos or 0)

    @staticmethod
    def _as_key(operand: _Operand) -> _Key | None:
        if isinstance(operand, _Key):
            return operand
        return None if operand.name is None else _Key(operand.name, operand.place)

    def _key(self, operand: _Operand) -> _Key:
        key = self._as_key(operand)
        if key is None:
            raise self._unsupported("a partition key is expected instead of a literal", operand.place)
        return key

    def _as_literal(self, operand: _Operand) -> _Literal:
        if isinstance(operand, _Key):
            raise self._unsupported("a literal is expected instead of a partition key", operand.place)
        return operand

    def _compared(self, key: _Key, operator: Operator, literal: _Literal) -> _Truth:
        value, is_exact = self._bound(key, literal)
        if is_exact:
            return _UNKNOWN if value is None else _truth(Condition(key.position, operator, value))
        # The literal lies between this value and the next one, or below all values.
        is_less = operator in (Operator.LESS, Operator.LESS_OR_EQUAL)
        if value is None or operator in (Operator.EQUAL, Operator.NOT_EQUAL):
            known = Condition(key.position, Operator.IS_NOT_NULL)
            return _Truth(NONE, known) if is_less or operator is Operator.EQUAL else _Truth(known, NONE)
        return _truth(Condition(key.position, Operator.LESS_OR_EQUAL if is_less else Operator.GREATER, value))

    def _constant(self, left: _Literal, operator: Operator, right: _Literal) -> _Truth:
        if left.text is None or right.text is None:
            return _UNKNOWN
        if left.is_number != right.is_number:
            raise self._unsupported("a number is compared with a string; compare a key with a literal", left.place)
        read = Decimal if left.is_number else str
        return _Truth(ALL, NONE) if COMPARE[operator](read(left.text), read(right.text)) else _Truth(NONE, ALL)

    def _bound(self, key: _Key, literal: _Literal) -> tuple[KeyValue | None, bool]:
        """Return the greatest typed value that is not greater than a literal, and whether it equals it.

        None for NULL, which is exact, and for a literal below all values, which is not.
        """
        if literal.text is None:
            return None, True
        key_type: KeyType = self._table.key_types[key.position]
        try:
            value, is_exact = key_type.parse_bound(literal.text)
            is_local = isinstance(key_type, TimestampType) and not key_type.has_zone(literal.text)
            if self._zone is not None and is_local and value is not None:
                value = moment_of(int(value), self._zone)
            return value, is_exact
        except KeyValueError as error:
            raise LiteralTypeError(
                f"key {self._table.key_names[key.position]!r} is of type {key_type}: {error}", self._text, literal.place
            ) from None

    def _unsupported(self, problem: str, place: int) -> UnsupportedExpressionError:
        return UnsupportedExpressionError(problem, self._text, place)


def _unquoted(token: str) -> str:
    """Return the string between quotes; a quote is doubled or escaped, and a backslash only escapes these."""
    return _ESCAPED[token[0]].sub(lambda match: match.group(1) or match.group(2), token[1:-1])
