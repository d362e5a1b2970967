"""Expressions of `GetPartitions`: Calve's filter language, with Glue's types, limits and messages.

Source: AWS Glue API, `GetPartitions`: the operators, and the types of keys: string, date, timestamp, int, bigint, long,
tinyint, smallint and decimal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property, lru_cache

from catalog.doors.glue.failures import GlueError, invalid_input
from catalog.errors import (
    ExpressionError,
    LiteralTypeError,
    UnknownColumnError,
    UnsupportedExpressionError,
)
from catalog.expressions import parse_expression
from catalog.model import Table
from catalog.types.key_types import (
    DateType,
    DecimalType,
    IntegerType,
    KeyType,
    KeyValue,
    KeyValueError,
    StringType,
    TimestampType,
    recorded_key_type,
)
from catalog.types.key_types.base import unfit

_PARENTHESISED = re.compile(
    r"""('(?:[^'\\]+|''|\\.)*+'|"(?:[^"\\]+|""|\\.)*+"|`[^`]*+`)|\(\s*(and|or)\s*\)""", re.I | re.S
)
_TIMESTAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?", re.ASCII)
_NAME = re.compile(r"`([^`]+)`|(\w+)")

_NOUNS: Mapping[type[KeyType], tuple[str, str]] = {
    IntegerType: ("an integer", "Integral"),
    DecimalType: ("a decimal", "Decimal"),
    DateType: ("a date", "Date"),
    TimestampType: ("a timestamp", "Timestamp"),
}
"""Type → a value of it, and its name, as Glue's messages have them."""


def calve_expression(expression: str | None, table: Table) -> str | None:
    """Return an expression of Glue in Calve's filter language; None for all partitions.

    Raises:
        GlueError: It is not valid, or compares a key of a type that Glue does not compare.
    """
    if expression is None or not expression.strip():
        return None
    text = _PARENTHESISED.sub(lambda match: match.group(1) or match.group(2), expression)
    _check(text, _GlueView.of(table))
    return text


class _GlueView(Table):
    """A table whose keys accept the literals that Glue accepts."""

    @classmethod
    def of(cls, table: Table) -> _GlueView:
        return cls(table.database, table.name, (), table.partition_keys, table.format, "", id=table.id)

    def __hash__(self) -> int:
        return hash((self.database, self.name, self.partition_keys))

    @cached_property
    def key_types(self) -> tuple[KeyType, ...]:
        return tuple(_glue_type(recorded_key_type(key.type)) for key in self.partition_keys)


@lru_cache(maxsize=1_024)
def _check(text: str, view: _GlueView) -> None:
    """Check an expression; cached, because parsing it takes longer than finding a few partitions.

    Raises:
        GlueError: It is not valid.
    """
    try:
        parse_expression(text, view)
    except UnknownColumnError:
        raise invalid_input("Invalid partition expression!") from None
    except LiteralTypeError as error:
        raise invalid_input(str(error)) from None
    except UnsupportedExpressionError as error:
        raise _unsupported(error, text, view) from None
    except ExpressionError as error:
        raise invalid_input(f"Unsupported expression '{text}': {error}") from None


def _unsupported(error: ExpressionError, text: str, view: _GlueView) -> GlueError:
    named = _NAME.match(text, error.position or 0)
    position = None if named is None else view.key_position(named.group(1) or named.group(2))
    key_type = None if position is None else view.key_types[position]
    if isinstance(key_type, _Literals) and "LIKE" in str(error):
        return invalid_input(f"{key_type.kind} data type doesn't support operation 'LIKE'")
    return invalid_input(f"Unsupported expression '{text}': {error}")


def _glue_type(key_type: KeyType) -> KeyType:
    """Return a type that reads literals as Glue does."""
    return key_type if isinstance(key_type, StringType) else _Literals(key_type)


class _Literals(KeyType):
    """A type of which only literals are read."""

    def __init__(self, key_type: KeyType) -> None:
        self.name = str(key_type)
        self._type = key_type
        known = next((words for kind, words in _NOUNS.items() if isinstance(key_type, kind)), ("", self.name))
        self._noun, self.kind = known

    def parse(self, text: str) -> KeyValue:
        if not self._noun:
            raise unfit(f"Unknown type : '{self.name}'")
        is_timestamp = isinstance(self._type, TimestampType)
        try:
            if is_timestamp and not _TIMESTAMP.fullmatch(text):
                raise unfit(text)
            # Only the check counts; the filter is read again for the table's own types.
            return self._type.parse_bound(text)[0] or 0
        except KeyValueError:
            raise unfit(f"{text[:40]!r} is not {self._noun}") from None

    def encode(self, value: KeyValue) -> bytes:
        raise NotImplementedError

    def decode(self, key: bytes, start: int) -> tuple[KeyValue, int]:
        raise NotImplementedError
