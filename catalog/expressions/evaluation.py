"""Evaluation of an expression for many partitions: column by column, with one test per distinct value."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import Any, Generic, TypeVar

from catalog.expressions.tree import (
    Always,
    And,
    Condition,
    Expression,
    LikePattern,
    Operator,
    Or,
    conjunction,
    disjunction,
)
from catalog.model.partition_names import NULL_VALUE
from catalog.types.key_types import KeyType, KeyValue, StringType
from catalog.types.memo import Memo

Raw = TypeVar("Raw")

COMPARE: dict[Operator, Callable[[Any, Any], bool]] = {
    Operator.EQUAL: operator.eq,
    Operator.NOT_EQUAL: operator.ne,
    Operator.LESS: operator.lt,
    Operator.LESS_OR_EQUAL: operator.le,
    Operator.GREATER: operator.gt,
    Operator.GREATER_OR_EQUAL: operator.ge,
}


class Filter(Generic[Raw]):
    """A compiled expression for values in their raw form.

    Args:
        expression: The condition.
        readers: Position of a partition key → function that returns its typed value; None is null.
    """

    def __init__(self, expression: Expression, readers: Mapping[int, Callable[[Raw], KeyValue | None]]) -> None:
        """Compile the expression, with a cache of results for each condition."""
        self._mask = self._compiled(expression, readers)

    def mask(self, columns: Mapping[int, Sequence[Raw]]) -> Iterable[bool]:
        """Return for each row whether it matches.

        Args:
            columns: Position of a partition key → its values in all rows.
        """
        return self._mask(columns)

    def _compiled(
        self, expression: Expression, readers: Mapping[int, Callable[[Raw], KeyValue | None]]
    ) -> Callable[[Mapping[int, Sequence[Raw]]], Iterable[bool]]:
        match expression:
            case Always(value=value):
                return lambda _columns: repeat(value)
            case Condition(key=key):
                read, test = readers[key], _test(expression)
                results: Memo[Raw, bool] = Memo(lambda raw: test(read(raw)))
                return lambda columns: map(results.__getitem__, columns[key])
            case And(operands=operands):
                parts = [self._compiled(operand, readers) for operand in operands]
                return lambda columns: map(all, zip(*[part(columns) for part in parts], strict=True))
            case Or(operands=operands):
                parts = [self._compiled(operand, readers) for operand in operands]
                return lambda columns: map(any, zip(*[part(columns) for part in parts], strict=True))


def comparing_nulls(expression: Expression, key_types: Sequence[KeyType]) -> Expression:
    """Return the tree that compares the null of string keys as the string that stands for it in folders.

    So do metastores, which have no null: a client looks for null by comparing a key with this string.
    """
    match expression:
        case And(operands=operands):
            return conjunction([comparing_nulls(operand, key_types) for operand in operands])
        case Or(operands=operands):
            return disjunction([comparing_nulls(operand, key_types) for operand in operands])
        case Condition(key=key, operator=how) if how is not Operator.IS_NOT_NULL:
            if isinstance(key_types[key], StringType) and _test(expression)(NULL_VALUE):
                return disjunction([expression, Condition(key, Operator.IS_NULL)])
    return expression


def _test(condition: Condition) -> Callable[[KeyValue | None], bool]:
    """Return the function that tests one typed value; null only satisfies `is null`."""
    operand = condition.operand
    match condition.operator:
        case Operator.IS_NULL:
            return lambda value: value is None
        case Operator.IS_NOT_NULL:
            return lambda value: value is not None
        case Operator.IN | Operator.NOT_IN as how:
            assert isinstance(operand, frozenset)
            members, is_in = operand, how is Operator.IN
            return lambda value: value is not None and (value in members) == is_in
        case Operator.LIKE | Operator.NOT_LIKE as how:
            assert isinstance(operand, LikePattern)
            pattern, is_like = like_pattern(operand), how is Operator.LIKE
            return lambda value: value is not None and (pattern.fullmatch(str(value)) is not None) == is_like
        case how:
            return partial(_compares, COMPARE[how], operand)


def _compares(compare: Callable[[Any, Any], bool], operand: Any, value: KeyValue | None) -> bool:
    return value is not None and compare(value, operand)


def like_pattern(pattern: LikePattern) -> re.Pattern[str]:
    """Return the regular expression of an SQL LIKE pattern, without exponential backtracking for many `%`."""
    runs: list[list[str]] = [[]]
    for character, is_wild in pattern.pieces():
        if is_wild and character == "%":
            runs.append([])
        else:
            runs[-1].append("." if is_wild else re.escape(character))
    return re.compile(joined_by_any(["".join(run) for run in runs]), re.DOTALL)


def joined_by_any(runs: Sequence[str], characters: str = ".") -> str:
    """Return a regular expression of parts with any number of characters between them, without backtracking.

    The part between two wildcards is matched once, at its first position, because a later one leaves less to the rest.

    Args:
        characters: The regular expression of a character that wildcards match.
    """
    first, *middle = runs
    if not middle:
        return first
    *middle, last = middle
    searched = "".join(f"(?>{characters}*?{run})" for run in middle if run)
    return f"{first}{searched}{characters}*{last}"
