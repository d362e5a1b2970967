"""The typed tree of a filter expression: keys are positions among the table's partition keys, literals typed values.

The tree has no NOT and no null: the parser builds one tree for what must be true and one for what must be false
(`catalog.expressions.parser`); SQL's unknown is neither. So a tree either matches or does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import TypeAlias

from catalog.types.key_types import KeyType, KeyValue


class Operator(StrEnum):
    """Operators of conditions on a key's value."""

    EQUAL = "="
    NOT_EQUAL = "<>"
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    IN = "in"
    NOT_IN = "not in"
    LIKE = "like"
    NOT_LIKE = "not like"
    IS_NULL = "is null"
    IS_NOT_NULL = "is not null"

    @property
    def opposite(self) -> Operator:
        """The operator that is true where this one is false, for all values except null."""
        return _OPPOSITE[self]

    @property
    def mirrored(self) -> Operator:
        """The operator with its operands exchanged."""
        return _MIRRORED.get(self, self)


_PAIRS = {
    Operator.EQUAL: Operator.NOT_EQUAL,
    Operator.LESS: Operator.GREATER_OR_EQUAL,
    Operator.GREATER: Operator.LESS_OR_EQUAL,
    Operator.IN: Operator.NOT_IN,
    Operator.LIKE: Operator.NOT_LIKE,
    Operator.IS_NULL: Operator.IS_NOT_NULL,
}
_OPPOSITE = {**_PAIRS, **{second: first for first, second in _PAIRS.items()}}
_MIRRORED = {
    Operator.LESS: Operator.GREATER,
    Operator.LESS_OR_EQUAL: Operator.GREATER_OR_EQUAL,
    Operator.GREATER: Operator.LESS,
    Operator.GREATER_OR_EQUAL: Operator.LESS_OR_EQUAL,
}


@dataclass(frozen=True, slots=True)
class LikePattern:
    """A pattern with `%`, `_` and an escape character."""

    text: str
    escape: str = "\\"

    def pieces(self) -> Iterator[tuple[str, bool]]:
        """Yield each character, and whether it is a wildcard."""
        characters = iter(self.text)
        for character in characters:
            if character == self.escape:
                yield next(characters, self.escape), False
            else:
                yield character, character in "%_"

    def split(self) -> tuple[str, str]:
        """Return the string before the first wildcard, and the rest: empty if none, `%` if anything may follow."""
        pieces = list(self.pieces())
        first = next((position for position, (_, is_wild) in enumerate(pieces) if is_wild), len(pieces))
        prefix = "".join(character for character, _ in pieces[:first])
        rest = pieces[first:]
        is_any = rest and all(piece == ("%", True) for piece in rest)
        return prefix, "%" if is_any else "".join(character for character, _ in rest)


Operand: TypeAlias = KeyValue | frozenset[KeyValue] | LikePattern | None


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on one key's value.

    Attributes:
        key: Position of the key.
        operand: A value; a set of values for `in`, a pattern for `like`, None for `is null`.
    """

    key: int
    operator: Operator
    operand: Operand = None

    def describe(self, name: str, key_type: KeyType) -> str:
        """Return the condition as the filter language writes it."""
        match self.operand:
            case None:
                return f"{name} {self.operator}"
            case LikePattern(text=text):
                return f"{name} {self.operator} {_quoted(text)}"
            case frozenset():
                shown = [key_type.format(value) for value in sorted(self.operand, key=key_type.encode)[:10]]
                more = f", … {len(self.operand) - 10:,} more" if len(self.operand) > 10 else ""
                return f"{name} {self.operator} ({', '.join(shown)}{more})"
            case value:
                return f"{name} {self.operator} {key_type.format(value)}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class Always:
    """A constant: matches every partition, or none."""

    value: bool


@dataclass(frozen=True, slots=True)
class And:
    """Conjunction of at least two operands, none of which is an And."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Disjunction of at least two operands, none of which is an Or."""

    operands: tuple[Expression, ...]


Expression: TypeAlias = Always | Condition | And | Or

ALL = Always(True)
"""The empty expression: every partition."""

NONE = Always(False)


def conjunction(parts: Iterable[Expression]) -> Expression:
    """Return the tree that matches if all parts match; without parts, `ALL`."""
    return _joined(And, parts, ALL, NONE, Operator.NOT_EQUAL, Operator.NOT_IN)


def disjunction(parts: Iterable[Expression]) -> Expression:
    """Return the tree that matches if any part matches; without parts, `NONE`."""
    return _joined(Or, parts, NONE, ALL, Operator.EQUAL, Operator.IN)


def _joined(
    kind: type[And] | type[Or],
    parts: Iterable[Expression],
    neutral: Always,
    decisive: Always,
    single: Operator,
    several: Operator,
) -> Expression:
    flat = list(chain.from_iterable(part.operands if isinstance(part, kind) else (part,) for part in parts))
    if decisive in flat:
        return decisive
    kept = _merged([part for part in flat if part != neutral], single, several)
    return kind(tuple(kept)) if len(kept) > 1 else kept[0] if kept else neutral


def _merged(parts: list[Expression], single: Operator, several: Operator) -> list[Expression]:
    """Merge the conditions of each key by (in)equality into one, at the position of the first."""
    values: dict[int, list[KeyValue]] = {}
    kept: dict[object, Expression] = {}
    for number, part in enumerate(parts):
        if isinstance(part, Condition) and part.operator in (single, several):
            operand = part.operand
            values.setdefault(part.key, []).extend(operand if isinstance(operand, frozenset) else [operand])  # type: ignore[list-item]
            kept.setdefault(("key", part.key), part)
        else:
            kept[number] = part
    for key, listed in values.items():
        members = frozenset(listed)
        kept["key", key] = Condition(key, several, members) if len(members) > 1 else Condition(key, single, listed[0])
    return list(kept.values())


def conjuncts(expression: Expression) -> tuple[Expression, ...]:
    """Return the operands of the top-level AND; otherwise the expression itself, and nothing for `ALL`."""
    if isinstance(expression, And):
        return expression.operands
    return () if expression == ALL else (expression,)


def conditions(expression: Expression) -> Iterator[Condition]:
    """Yield all conditions of an expression, from left to right."""
    match expression:
        case Condition():
            yield expression
        case And(operands=operands) | Or(operands=operands):
            for operand in operands:
                yield from conditions(operand)


def keys_of(expression: Expression) -> frozenset[int]:
    """Return the positions of the keys in an expression."""
    return frozenset(condition.key for condition in conditions(expression))
