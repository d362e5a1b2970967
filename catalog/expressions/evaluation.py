"""Whether partition values match an expression, by SQL's three-valued logic."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from catalog.expressions.tree import (
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
from catalog.key_types import KeyValue

Values = Sequence[KeyValue | None]
"""One typed value for each partition key, in order; None is null."""

Predicate = Callable[[Values], bool | None]
"""True: matches. False: does not. None: unknown, because a null was compared."""

_COMPARE: dict[Operator, Callable[[KeyValue, KeyValue], bool]] = {
    Operator.EQUAL: operator.eq,
    Operator.NOT_EQUAL: operator.ne,
    Operator.LESS: operator.lt,
    Operator.LESS_OR_EQUAL: operator.le,
    Operator.GREATER: operator.gt,
    Operator.GREATER_OR_EQUAL: operator.ge,
}


def compile_predicate(expression: Expression) -> Predicate:
    """Return the function that evaluates the expression on typed values."""
    match expression:
        case Always(value=constant):
            return lambda _values: constant
        case Comparison(key=key, operator=how, value=value):
            return partial(_compare, key, _COMPARE[how], value)
        case InList(key=key, values=members, has_null=has_null):
            return partial(_is_in, key, members, has_null)
        case Like(key=key, pattern=pattern, escape=escape):
            return partial(_is_like, key, like_pattern(pattern, escape))
        case IsNull(key=key):
            return lambda values: values[key] is None
        case Not(operand=operand):
            return partial(_negate, compile_predicate(operand))
        case And(operands=operands):
            return partial(_all, tuple(map(compile_predicate, operands)))
        case Or(operands=operands):
            return partial(_any, tuple(map(compile_predicate, operands)))
    raise TypeError(f"{type(expression).__name__} is not an expression")


def like_pattern(pattern: str, escape: str) -> re.Pattern[str]:
    """Return the regular expression of an SQL LIKE pattern."""
    parts: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            parts.append(re.escape(next(characters, escape)))
        else:
            parts.append({"%": ".*", "_": "."}.get(character) or re.escape(character))
    return re.compile("".join(parts), re.DOTALL)


def _compare(key: int, compare: Callable[[KeyValue, KeyValue], bool], literal: KeyValue, values: Values) -> bool | None:
    value = values[key]
    return None if value is None else compare(value, literal)


def _is_in(key: int, members: frozenset[KeyValue], has_null: bool, values: Values) -> bool | None:
    value = values[key]
    if value is None:
        return None
    return True if value in members else None if has_null else False


def _is_like(key: int, pattern: re.Pattern[str], values: Values) -> bool | None:
    value = values[key]
    return None if value is None else pattern.fullmatch(str(value)) is not None


def _negate(operand: Predicate, values: Values) -> bool | None:
    result = operand(values)
    return None if result is None else not result


def _all(operands: Iterable[Predicate], values: Values) -> bool | None:
    answer: bool | None = True
    for operand in operands:
        result = operand(values)
        if result is False:
            return False
        if result is None:
            answer = None
    return answer


def _any(operands: Iterable[Predicate], values: Values) -> bool | None:
    answer: bool | None = False
    for operand in operands:
        result = operand(values)
        if result is True:
            return True
        if result is None:
            answer = None
    return answer
