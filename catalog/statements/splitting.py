"""Splitting of scripts into statements, which end with a semicolon."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_PIECE = re.compile(
    r"""(?P<quoted>(?<!\w)[rR](?:'[^']*+(?:'|\Z)|"[^"]*+(?:"|\Z))"""
    r"""|'(?:[^'\\]+|\\.|\\\Z)*+(?:'|\Z)|"(?:[^"\\]+|\\.|\\\Z)*+(?:"|\Z)|`[^`]*+(?:`|\Z))"""
    r"""|(?P<comment>--[^\n]*+|/\*)|(?P<end>;)|(?P<blank>\s++)|\w++|[^\w\s'"`;/-]++|.""",
    re.DOTALL,
)
_WORD_OR_SIGN = re.compile(r"\w+|\W")
_COMMENT_EDGE = re.compile(r"/\*|\*/")


@dataclass(frozen=True)
class StatementText:
    """The text of one statement, without the semicolon and without leading and trailing comments.

    Attributes:
        offset: Its start in the script, in characters from 0.
        line: The line of the script in which it starts, from 1.
    """

    text: str
    offset: int
    line: int


def split(script: str) -> Iterator[StatementText]:
    """Yield the statements of a script; ignore semicolons in quotes and comments.

    An unclosed quote or comment extends to the end of the script, because all text after it may belong to it.
    """
    line = counted = 0
    first = last = -1
    for kind, start, end in (*_pieces(script), ("end", len(script), len(script))):
        if kind == "end":
            if first >= 0:
                line, counted = line + script.count("\n", counted, first), first
                yield StatementText(script[first:last], first, line + 1)
            first = -1
        elif kind not in ("comment", "blank"):
            first = start if first < 0 else first
            last = end


def is_complete(script: str) -> bool:
    """Return whether the last statement of a script ends with a semicolon, or there is none."""
    kinds = [kind for kind, start, end in _pieces(script) if kind not in ("comment", "blank")]
    return unclosed_comment(script) is None and (not kinds or kinds[-1] == "end")


@dataclass(frozen=True)
class Part:
    """A part of a statement as it was written, without blanks around it, and its position."""

    text: str
    position: int


def split_update(text: str, start: int) -> tuple[list[tuple[Part, Part]], Part | None]:
    """Return the assignments and the condition of an UPDATE; a part is empty if the statement lacks it.

    Args:
        start: The position after SET.
    """
    edges: list[tuple[str, int, int]] = []
    depth = 0
    for kind, piece_start, piece_end in _pieces(text):
        if piece_end <= start or kind in ("quoted", "comment", "blank"):
            continue
        for word in _WORD_OR_SIGN.finditer(text, max(piece_start, start), piece_end):
            sign = word.group().upper()
            depth += (sign in "([") - (sign in ")]")
            if depth == 0 and sign in (",", "=", "WHERE"):
                edges.append((sign, word.start(), word.end()))
    where = next((edge for edge in edges if edge[0] == "WHERE"), ("WHERE", len(text), len(text)))
    assignments, begin = [], start
    commas = [edge for edge in edges if edge[0] == "," and edge[1] < where[1]]
    for _, end, next_begin in (*commas, where):
        middle = next((edge for edge in edges if edge[0] == "=" and begin <= edge[1] < end), ("=", end, end))
        assignments.append((part_of(text, begin, middle[1]), part_of(text, middle[2], end)))
        begin = next_begin
    return assignments, None if where[1] == len(text) else part_of(text, where[2], len(text))


def words_of(text: str, start: int) -> Iterator[tuple[str, int, int]]:
    """Yield the words and signs of a statement from a position on, in upper case, and quoted strings and names.

    Comments are left out. Each has its start and end.
    """
    for kind, piece_start, piece_end in _pieces(text):
        if piece_end <= start or kind in ("comment", "blank"):
            continue
        if kind == "quoted":
            yield text[piece_start:piece_end], piece_start, piece_end
            continue
        for word in _WORD_OR_SIGN.finditer(text, max(piece_start, start), piece_end):
            yield word.group().upper(), word.start(), word.end()


def names_of(part: Part) -> list[Part]:
    """Return the names of a dotted name; empty if the text is none."""
    words = list(words_of(part.text, 0))
    names = words[::2]
    is_dotted = all(word == "." for word, _, _ in words[1::2]) and len(words) % 2 == 1
    if not is_dotted or any(not (word[0] == "`" or word.replace("_", "a").isalnum()) for word, _, _ in names):
        return []
    return [Part(part.text[start:end], part.position + start) for _, start, end in names]


def part_of(text: str, start: int, end: int) -> Part:
    """Return a part of a statement, without blanks around it."""
    blanks = len(text[start:end]) - len(text[start:end].lstrip())
    return Part(text[start:end].strip(), start + blanks)


def without_comments(text: str) -> str:
    """Return a statement with comments replaced by blanks, so that all other characters keep their positions."""
    parts, done = [], 0
    for kind, start, end in _pieces(text):
        if kind == "comment":
            parts += [text[done:start], re.sub(r"\S", " ", text[start:end])]
            done = end
    return "".join([*parts, text[done:]])


def replace_literals(text: str, replacement: Callable[[str], str]) -> str:
    """Return a statement for people: with each string literal replaced, and with blanks for comments.

    Args:
        replacement: Gets a literal with its quotes.
    """
    parts = []
    for kind, start, end in _pieces(text):
        piece = text[start:end]
        if kind == "comment":
            piece = re.sub(r"\S", " ", piece)
        elif kind == "quoted" and piece[0] != "`":
            piece = replacement(piece)
        parts.append(piece)
    return "".join(parts)


def unclosed_comment(text: str) -> int | None:
    """Return the position of an unclosed comment; None if there is none."""
    for kind, start, end in _pieces(text):
        if kind == "comment" and end == len(text) and text.startswith("/*", start) and _comment_end(text, start) < 0:
            return start
    return None


def _pieces(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield kind, start and end of each piece: quoted, comment, end (a semicolon), blank, or other."""
    position = 0
    while match := _PIECE.match(text, position):
        end = match.end()
        if match.lastgroup == "comment" and match.group() == "/*":
            end = _comment_end(text, position)
            end = len(text) if end < 0 else end
        yield match.lastgroup or "other", position, end
        position = end


def _comment_end(text: str, start: int) -> int:
    """Return the end of a comment, which may hold others, as Spark reads them; -1 when it is not closed."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    return -1
