"""Exact conversion of literals to a column's type, without rounding, truncation or silent nulls."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache

from catalog.statements.terms import Literal, LiteralKind
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
    """A literal is not a value of a column's type; the message tells the reason."""


def cell_text(type_name: str, literal: Literal) -> str | None:
    """Return a literal as a string that Spark's cast converts to the same value; bytes in hexadecimal digits.

    A string literal is accepted for every type that can parse it, and a number literal for string types.

    Raises:
        CellError: The literal is not a value of the type.
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
    raise CellError(f"{_shown(literal)} is a {literal.kind}; write bytes as X'1A2B' or as a string")


def _plain(number: str) -> str:
    """Return a number without an exponent or superfluous zeros; return very long ones unchanged, to be refused."""
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
    """Return a type, the kinds of literals it accepts, and a function from a string to the form for Spark's cast.

    Raises:
        CellError: The type has no literals.
    """
    column_type = parse_column_type(type_name)
    match column_type:
        case None:
            raise CellError("this type has no literals; use INSERT INTO … SELECT, or NULL")
        case StringType():
            kinds = frozenset(LiteralKind) - {LiteralKind.BINARY}
            return column_type, kinds, lambda text: column_type.text_of(column_type.parse(text))
        case IntegerType():
            return column_type, _NUMBERS, lambda text: str(column_type.parse(text))
        case DecimalType():
            return column_type, _NUMBERS, lambda text: column_type.format(column_type.parse(text))
        case FloatingType():
            return column_type, _NUMBERS, lambda text: _floating(column_type, text)
        case DateType():
            return (
                column_type,
                frozenset({LiteralKind.TEXT, LiteralKind.DATE}),
                lambda text: _unquoted(column_type, text),
            )
        case TimestampType():
            kinds = frozenset({LiteralKind.TEXT, LiteralKind.DATE, LiteralKind.TIMESTAMP})
            return column_type, kinds, lambda text: _moment(column_type, text)
        case _:
            return (
                column_type,
                frozenset({LiteralKind.TEXT, LiteralKind.BOOLEAN}),
                lambda text: _unquoted(column_type, text),
            )


def _unquoted(column_type: KeyType, text: str) -> str:
    return column_type.format(column_type.parse(text))[1:-1]


def _moment(column_type: TimestampType, text: str) -> str:
    """Return a timestamp for Spark's cast, which reads it in the session's time zone unless it is an instant."""
    return _unquoted(column_type, text) + "Z" * column_type.has_zone(text)


def _floating(column_type: FloatingType, text: str) -> str:
    return repr(column_type.number(column_type.parse(text)))
