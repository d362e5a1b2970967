"""Parsing and formatting of lists of bounds and groups, such as `China, (UK, US)`, with backslash escapes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from catalog.errors import InvalidSchemeError

_TOKEN = re.compile(r"\\(.)|([(),])|([^\\(),]+|\\)", re.DOTALL)
_TO_ESCAPE = re.compile(r"[\\(),]")
_SHOWN = 200


def split_list(text: str, place: str) -> list[str]:
    """Return the comma-separated bounds of a string.

    Raises:
        InvalidSchemeError: A bound is empty, or there is a group.
    """
    items = parse_groups(text, place)
    for item in items:
        if len(item) != 1:
            raise InvalidSchemeError(f"{place}: {format_group(item)} is a group; a bound must be a single value")
    return [item[0] for item in items]


def parse_groups(text: str, place: str) -> list[tuple[str, ...]]:
    """Return the groups of a string; a value outside parentheses is a group of one.

    Raises:
        InvalidSchemeError: A value is empty, or the parentheses are unbalanced or nested.
    """
    reader = _GroupReader(text, place)
    for sign, part in _tokens(text):
        reader.read(sign, part)
    return reader.ended()


class _GroupReader:
    """Parser for the groups of one string; it receives one sign or part of a value at a time."""

    def __init__(self, text: str, place: str) -> None:
        self._text = text
        self._place = place
        self._groups: list[tuple[str, ...]] = []
        self._group: list[str] | None = None
        self._value = ""
        self._is_after_group = False

    def read(self, sign: str, part: str) -> None:
        match sign:
            case "(":
                self._open()
            case ")":
                self._close()
            case ",":
                self._separate()
            case _ if self._is_after_group and part.strip():
                raise self._unreadable("a comma is missing after a group")
            case _:
                self._value += part

    def ended(self) -> list[tuple[str, ...]]:
        if self._group is not None:
            raise self._unreadable("a parenthesis is not closed")
        self._separate()
        return self._groups

    def _open(self) -> None:
        if self._group is not None or self._value.strip() or self._is_after_group:
            raise self._unreadable("groups cannot be nested; write (a, b), c")
        self._group, self._value = [], ""

    def _close(self) -> None:
        if self._group is None:
            raise self._unreadable("a closing parenthesis has no opening one")
        self._groups.append((*self._group, self._taken()))
        self._group, self._is_after_group = None, True

    def _separate(self) -> None:
        if self._group is not None:
            self._group.append(self._taken())
        elif not self._is_after_group:
            self._groups.append((self._taken(),))
        self._value, self._is_after_group = "", False

    def _taken(self) -> str:
        value, self._value = self._value.strip(), ""
        if not value:
            raise self._unreadable("a value is empty")
        return value

    def _unreadable(self, reason: str) -> InvalidSchemeError:
        return _unreadable(self._text, self._place, reason)


def parse_group(text: str, place: str) -> tuple[str, ...]:
    """Return the values of one item: a group in parentheses, or a single value.

    Raises:
        InvalidSchemeError: It is empty, or not one group.
    """
    stripped = text.strip()
    if not stripped.startswith("("):
        if not stripped:
            raise _unreadable(text, place, "a value is empty")
        return (stripped,)
    groups = parse_groups(stripped, place)
    if len(groups) != 1:
        raise _unreadable(text, place, "each item is one value or one group: '(a, b)', 'c'")
    return groups[0]


def bound_texts(items: Sequence[str], place: str) -> list[str]:
    """Return the bounds of items that are one bound each, without surrounding blanks.

    Raises:
        InvalidSchemeError: A bound is empty.
    """
    texts = [item.strip() for item in items]
    for item, text in zip(items, texts, strict=True):
        if not text:
            raise _unreadable(item, place, "a bound is empty")
    return texts


def format_group(values: Sequence[str]) -> str:
    """Return a group in the format that `parse_groups` reads."""
    texts = [_TO_ESCAPE.sub(r"\\\g<0>", value) for value in values]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    for match in _TOKEN.finditer(text):
        escaped, sign, plain = match.groups()
        yield (sign or "", "") if sign else ("", escaped if escaped is not None else plain)


def _unreadable(text: str, place: str, reason: str) -> InvalidSchemeError:
    shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    return InvalidSchemeError(f"{place} {shown!r} cannot be parsed: {reason}")
