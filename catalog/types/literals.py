"""Quoting and unquoting of string literals and names."""

from __future__ import annotations

import re

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2}|.)|''|\"\"", re.DOTALL)
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_SPECIAL = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_TO_ESCAPE = re.compile(r"[\\'\x00-\x1f]")
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def unquoted(token: str) -> str:
    r"""Return the value of a string literal in single or double quotes.

    A quote inside is doubled or escaped by a backslash. The other escapes are Spark's: `\n`, `\t`, `\u00e9`, `\101` and
    so on; `\%` and `\_` are kept, for LIKE; any other character after a backslash is itself.
    """
    quote, text = token[0], token[1:-1]
    if "\\" not in text and quote not in text:
        return text
    unescaped = _ESCAPE.sub(lambda match: _unescaped(match.group(), quote), text)
    # Two escapes may be the surrogate pair of one character.
    return _PAIR.sub(lambda match: match.group().encode("utf-16-le", "surrogatepass").decode("utf-16-le"), unescaped)


def _unescaped(escape: str, quote: str) -> str:
    if escape[0] != "\\":
        return quote if escape[0] == quote else escape
    code = escape[1:]
    if code[0] in "uU" and len(code) > 1:
        number = int(code[1:], 16)
        return chr(number) if number <= 0x10FFFF else escape
    if len(code) == 3:
        return chr(int(code, 8))
    return _SPECIAL.get(code, code)


def quoted(text: str) -> str:
    """Return a string in single quotes, as Hive, Spark and `unquoted` read it."""
    return "'" + _TO_ESCAPE.sub(lambda match: _escaped(match.group()), text) + "'"


def _escaped(character: str) -> str:
    if character in "\\'":
        return "\\" + character
    return _NAMED.get(character) or f"\\u{ord(character):04x}"


def quoted_name(name: str) -> str:
    """Return a name in backquotes, so that it cannot be taken for a keyword."""
    return "`" + name.replace("`", "``") + "`"
