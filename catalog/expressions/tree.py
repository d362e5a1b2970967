"""The typed tree of a filter expression: keys are positions in the table's partition keys, literals typed values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from catalog.key_types import KeyValue


class Operator(StrEnum):
    """How a key's value is compared with a literal."""

    EQUAL = "="
    NOT_EQUAL = "<>"
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="

    @property
    def mirrored(self) -> Operator:
        """The operator with its two sides exchanged."""
        return _MIRRORED.get(self, self)


_MIRRORED = {
    Operator.LESS: Operator.GREATER,
    Operator.LESS_OR_EQUAL: Operator.GREATER_OR_EQUAL,
    Operator.GREATER: Operator.LESS,
    Operator.GREATER_OR_EQUAL: Operator.LESS_OR_EQUAL,
}


class Expression:
    """A node of the tree."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Always(Expression):
    """A constant: true, false, or unknown (None), which is what a comparison with null gives."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Comparison(Expression):
    """`key operator value`."""

    key: int
    operator: Operator
    value: KeyValue


@dataclass(frozen=True, slots=True)
class InList(Expression):
    """`key in (values)`; `has_null` says that the list also held a null, which makes a miss unknown."""

    key: int
    values: frozenset[KeyValue]
    has_null: bool = False


@dataclass(frozen=True, slots=True)
class Like(Expression):
    """`key like pattern`, with `%`, `_` and one escape character."""

    key: int
    pattern: str
    escape: str = "\\"


@dataclass(frozen=True, slots=True)
class IsNull(Expression):
    """`key is null`."""

    key: int


@dataclass(frozen=True, slots=True)
class Not(Expression):
    """`not operand`."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class And(Expression):
    """All operands hold."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or(Expression):
    """At least one operand holds."""

    operands: tuple[Expression, ...]


ALL = Always(True)
"""The empty expression: every partition."""


def conjuncts(expression: Expression) -> Iterator[Expression]:
    """Yield the parts of the top-level AND; an expression that is none is its own only part."""
    if isinstance(expression, And):
        for operand in expression.operands:
            yield from conjuncts(operand)
    elif expression != ALL:
        yield expression


def keys_of(expression: Expression) -> frozenset[int]:
    """Return the positions of the keys that an expression looks at."""
    match expression:
        case Comparison(key=key) | InList(key=key) | Like(key=key) | IsNull(key=key):
            return frozenset((key,))
        case And(operands=operands) | Or(operands=operands):
            return frozenset().union(*map(keys_of, operands))
        case Not(operand=operand):
            return keys_of(operand)
    return frozenset()
