"""The parser of the filters that clients send for partitions and tables.

The language is that of Hive Metastore's `Filter.g` of releases 2.3 to 4.0: comparisons of a key with a literal on
either side, LIKE, BETWEEN, `(key) IN (…)`, `(struct(key, …)) IN (const struct(…), …)`, AND, OR and parentheses. Unlike
Hive, which ignores what follows a complete condition, Calve refuses a filter that it does not understand to its end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import NoReturn, TypeAlias

from hive_metastore.ttypes import MetaException

MAXIMUM_LENGTH = 4_000_000
"""Maximum length of a filter in characters."""

MAXIMUM_DEPTH = 100
"""Maximum nesting depth of parentheses."""

TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,9})?", re.ASCII)
"""A literal of a timestamp, which is quoted as other text."""

Value: TypeAlias = str | int | date

_TOKEN = r"""\s*+(?:
    (?P<text>TEXT)
    |(?P<date>\d{4}-\d\d-\d\d(?!\d))
    |(?P<name>`[^`]++`|\w++)
    |(?P<number>-\d++)
    |(?P<sign><>|!=|<=|>=|[=<>(),])
    |(?P<end>\Z)
    )"""
_ESCAPED, _PLAIN = (
    re.compile(_TOKEN.replace("TEXT", text), re.VERBOSE | re.DOTALL | re.ASCII)
    for text in (r""""(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+'""", r""""[^"]*+"|'[^']*+'""")
)
"""Tokens of texts in which backslashes escape, and in which they do not."""

_ESCAPED_QUOTE = re.compile(r"""\\["']""")
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_COMPARISONS = frozenset({"=", "<>", "!=", "LIKE", *_MIRRORED})
_MOST_DIGITS = 19


@dataclass(frozen=True, slots=True)
class Leaf:
    """A comparison of a key with a literal.

    Attributes:
        key: Its name as the client wrote it.
        operator: `=`, `<>`, `<`, `<=`, `>`, `>=` or `LIKE`.
    """

    key: str
    operator: str
    value: Value


@dataclass(frozen=True, slots=True)
class Node:
    """Conditions that are joined by `and` or `or`."""

    word: str
    parts: tuple[Tree, ...]


Tree: TypeAlias = Leaf | Node


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    place: int

    @property
    def word(self) -> str:
        return self.text.upper() if self.kind in ("name", "sign") else ""


def parse_filter(text: str) -> Tree:
    """Parse a filter that is not empty.

    A quote after a backslash is part of a text in Hive's language. Spark does not escape, so that it ends the text of
    `endswith`. A filter that can be read both ways is met by what meets either.

    Raises:
        MetaException: It cannot be read, is too long, or is nested too deeply.
    """
    if len(text) > MAXIMUM_LENGTH:
        raise MetaException(f"the filter has {len(text):,} characters; at most {MAXIMUM_LENGTH:,} are allowed")
    if not _ESCAPED_QUOTE.search(text):
        return _Parser(_tokens(text, _ESCAPED)).whole()
    trees: list[Tree] = []
    refusals = []
    for pattern in (_ESCAPED, _PLAIN):
        try:
            trees.append(_Parser(_tokens(text, pattern)).whole())
        except MetaException as error:
            refusals.append(error)
    if not trees:
        raise refusals[0]
    return trees[0] if trees[0] == trees[-1] else Node("or", tuple(trees))


def _tokens(text: str, pattern: re.Pattern[str]) -> list[_Token]:
    tokens, place = [], 0
    while True:
        match = pattern.match(text, place)
        if match is None:
            raise MetaException(f"error parsing partition filter: {text[place : place + 40]!r} cannot be read")
        kind = str(match.lastgroup)
        found = match[kind]
        if kind == "name" and found.isdigit():
            kind = "number"
        tokens.append(_Token(kind, found, match.start(kind)))
        if kind == "end":
            return tokens
        place = match.end()


class _Parser:
    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def whole(self) -> Tree:
        tree = self._any()
        if self._here.kind != "end":
            self._fail("the end of the filter")
        return tree

    # --- conditions ---------------------------------------------------------------------------------------------

    def _any(self) -> Tree:
        return self._joined("or", self._all)

    def _all(self) -> Tree:
        return self._joined("and", self._condition)

    def _joined(self, word: str, part: Callable[[], Tree]) -> Tree:
        parts = [part()]
        while self._took(word.upper()):
            parts.append(part())
        return Node(word, tuple(parts)) if len(parts) > 1 else parts[0]

    def _condition(self) -> Tree:
        if self._here.word != "(":
            return self._comparison()
        if self._next(1).word == "STRUCT" and self._next(2).word == "(":
            return self._in_structs()
        if self._next(1).kind == "name" and self._next(2).word == ")":
            self._take("(")
            key = self._key()
            self._take(")")
            return self._in_list(key)
        self._depth += 1
        if self._depth > MAXIMUM_DEPTH:
            raise MetaException(f"the filter is nested more than {MAXIMUM_DEPTH} times; flatten its parentheses")
        self._take("(")
        tree = self._any()
        self._take(")")
        self._depth -= 1
        return tree

    def _comparison(self) -> Tree:
        if self._is_literal():
            value = self._literal()
            operator = self._operator()
            if operator == "LIKE":
                self._fail("the key on the left of LIKE")
            return Leaf(self._key(), _MIRRORED.get(operator, operator), value)
        key = self._key()
        if self._here.word in ("NOT", "BETWEEN", "IN"):
            return self._between(key) if self._has_between() else self._in_list(key)
        operator = self._operator()
        return Leaf(key, operator, self._literal())

    def _has_between(self) -> bool:
        return "BETWEEN" in (self._here.word, self._next(1).word)

    def _between(self, key: str) -> Tree:
        is_opposite = self._took("NOT")
        self._take("BETWEEN")
        low = self._literal()
        self._take("AND")
        high = self._literal()
        if type(low) is not type(high):
            self._fail("two bounds of one type")
        if is_opposite:
            return Node("or", (Leaf(key, "<", low), Leaf(key, ">", high)))
        return Node("and", (Leaf(key, ">=", low), Leaf(key, "<=", high)))

    def _in_list(self, key: str) -> Tree:
        is_opposite = self._took("NOT")
        self._take("IN")
        values = self._values()
        if len({type(value) for value in values}) > 1:
            self._fail("values of one type")
        leaves = tuple(Leaf(key, "<>" if is_opposite else "=", value) for value in values)
        return leaves[0] if len(leaves) == 1 else Node("and" if is_opposite else "or", leaves)

    def _in_structs(self) -> Tree:
        self._take("(")
        self._take("STRUCT")
        self._take("(")
        keys = [self._key()]
        while self._took(","):
            keys.append(self._key())
        self._take(")")
        self._take(")")
        is_opposite = self._took("NOT")
        self._take("IN")
        self._take("(")
        rows = [self._struct(keys, is_opposite)]
        while self._took(","):
            rows.append(self._struct(keys, is_opposite))
        self._take(")")
        return rows[0] if len(rows) == 1 else Node("and" if is_opposite else "or", tuple(rows))

    def _struct(self, keys: Sequence[str], is_opposite: bool) -> Tree:
        self._took("CONST")
        self._take("STRUCT")
        values = self._values()
        if len(values) != len(keys):
            self._fail(f"{len(keys)} value(s) in each struct")
        leaves = tuple(Leaf(key, "<>" if is_opposite else "=", value) for key, value in zip(keys, values, strict=True))
        return leaves[0] if len(leaves) == 1 else Node("or" if is_opposite else "and", leaves)

    def _values(self) -> list[Value]:
        self._take("(")
        values = [self._literal()]
        while self._took(","):
            values.append(self._literal())
        self._take(")")
        return values

    # --- tokens -------------------------------------------------------------------------------------------------

    def _key(self) -> str:
        token = self._here
        if token.kind != "name":
            self._fail("a key")
        self._at += 1
        return token.text.strip("`")

    def _operator(self) -> str:
        word = self._here.word
        if word not in _COMPARISONS:
            self._fail("a comparison")
        self._at += 1
        return "<>" if word == "!=" else word

    def _is_literal(self) -> bool:
        is_date = self._here.word in ("DATE", "TIMESTAMP") and self._next(1).kind in ("text", "date")
        return self._here.kind in ("text", "date", "number") or is_date

    def _literal(self) -> Value:
        if not self._is_literal():
            self._fail("a literal")
        is_date = self._here.kind == "name"
        if is_date:
            self._at += 1
        token = self._here
        self._at += 1
        if token.kind == "number":
            if len(token.text.lstrip("-0")) > _MOST_DIGITS or not -(2**63) <= int(token.text) < 2**63:
                raise MetaException(f"error parsing partition filter: {token.text[:40]} is not a 64-bit number")
            return int(token.text)
        text = token.text[1:-1] if token.kind == "text" else token.text
        if token.kind == "text" and (not is_date or TIMESTAMP.fullmatch(text)):
            return text
        try:
            return date.fromisoformat(text)
        except ValueError:
            raise MetaException(f"error parsing partition filter: {text[:40]!r} is not a date") from None

    @property
    def _here(self) -> _Token:
        return self._tokens[self._at]

    def _next(self, places: int) -> _Token:
        return self._tokens[min(self._at + places, len(self._tokens) - 1)]

    def _took(self, word: str) -> bool:
        is_here = self._here.word == word
        self._at += is_here
        return is_here

    def _take(self, word: str) -> None:
        if not self._took(word):
            self._fail(repr(word.lower()))

    def _fail(self, expected: str) -> NoReturn:
        found = repr(self._here.text[:40]) if self._here.kind != "end" else "the end"
        raise MetaException(
            f"error parsing partition filter at position {self._here.place}: {found} cannot be read; expected "
            f"{expected}"
        )
