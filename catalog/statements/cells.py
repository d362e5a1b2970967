"""Literals as values of a column's type, exactly: nothing is rounded, cut, or becomes null."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache

from catalog.statements.model import Literal, LiteralKind
from catalog.types.column_types import parse_column_type
from catalog.types.key_types import (
    DateType,
    DecimalType,
    FloatingType,
    IntegerType,
    KeyType,
    KeyValueError,
    StringType,
    TimestampType,
)


class CellError(ValueError):
    """A literal is not a value of a column's type; the message says why."""


def cell_text(type_name: str, literal: Literal) -> str | None:
    """Return a literal as the text that Spark's cast reads as the same value; bytes in hexadecimal digits.

    A text is a value of any type whose texts it is one of; so is a number of a text's.

    Raises:
        CellError: It is not a value of the type.
    """
    if literal.text is None:
        return None
    if type_name == "binary":
        return _bytes(literal)
    column_type, accepted, write = _writer(type_name)
    if literal.kind not in accepted:
        raise CellError(f"{_shown(literal)} is a {literal.kind}")
    text = literal.text
    if literal.kind is LiteralKind.NUMBER and isinstance(column_type, IntegerType | DecimalType):
        text = _plain(text)
    try:
        return write(text)
    except KeyValueError as error:
        raise CellError(str(error)) from None


def _shown(literal: Literal) -> str:
    return repr((literal.text or "")[:40])


def _bytes(literal: Literal) -> str:
    if literal.kind is LiteralKind.BINARY:
        return literal.text or ""
    if literal.kind is LiteralKind.TEXT:
        return (literal.text or "").encode().hex()
    raise CellError(f"{_shown(literal)} is a {literal.kind}; bytes are written X'1A2B', or as a text")


def _plain(number: str) -> str:
    """Return a number without an exponent or superfluous zeros; one of very many digits is left to be refused."""
    value = Decimal(number)
    if not value:
        return "0"
    if abs(value.adjusted()) > 100 or len(number) > 200:
        return number
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


_NUMBERS = frozenset({LiteralKind.TEXT, LiteralKind.NUMBER})


@lru_cache(maxsize=256)
def _writer(type_name: str) -> tuple[KeyType, frozenset[LiteralKind], Callable[[str], str]]:
    """Return a type, which literals it takes, and what writes a text of it in the one way that Spark's cast reads.

    Raises:
        CellError: No literal is of such a type.
    """
    found = parse_column_type(type_name)
    match found:
        case None:
            raise CellError("no literal is of this type; use INSERT INTO … SELECT, or NULL")
        case StringType():
            kinds = frozenset(LiteralKind) - {LiteralKind.BINARY}
            return found, kinds, lambda text: found.text_of(found.parse(text))
        case IntegerType():
            return found, _NUMBERS, lambda text: str(found.parse(text))
        case DecimalType():
            return found, _NUMBERS, lambda text: found.format(found.parse(text))
        case FloatingType():
            return found, _NUMBERS, lambda text: _floating(found, text)
        case DateType():
            return found, frozenset({LiteralKind.TEXT, LiteralKind.DATE}), lambda text: _unquoted(found, text)
        case TimestampType():
            kinds = frozenset({LiteralKind.TEXT, LiteralKind.DATE, LiteralKind.TIMESTAMP})
            return found, kinds, lambda text: _unquoted(found, text)
        case _:
            return found, frozenset({LiteralKind.TEXT, LiteralKind.BOOLEAN}), lambda text: _unquoted(found, text)


def _unquoted(column_type: KeyType, text: str) -> str:
    return column_type.format(column_type.parse(text))[1:-1]


def _floating(column_type: FloatingType, text: str) -> str:
    value = column_type.number(column_type.parse(text))
    if math.isinf(value) and any(character.isdigit() for character in text):
        raise CellError(f"{text[:40]!r} is more than a {column_type} holds")
    return repr(value)
