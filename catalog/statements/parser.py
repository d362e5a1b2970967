"""Parsing of statements: Lark parses the grammar, and `translation` converts the tree to a value of `model`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

from lark import Lark
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken, VisitError

from catalog.errors import (
    CatalogError,
    InvalidLocationError,
    StatementError,
    StatementSyntaxError,
    StatementTooLongError,
    UnsupportedStatementError,
)
from catalog.settings.places import is_path_property, require_no_password
from catalog.statements.model import PartitionToAdd, SnapshotTable, Statement
from catalog.statements.splitting import unclosed_comment, without_comments
from catalog.statements.translation import Translator

MAXIMUM_LENGTH = 4_000_000
"""The maximum length of a statement in characters."""

MAXIMUM_TOKENS = 200_000
"""The maximum number of names, literals and signs in a statement; parsing them takes a few seconds."""

_QUOTED = re.compile(r"""'(?:[^'\\]+|''|\\.)*+'|"(?:[^"\\]+|""|\\.)*+"|`[^`]*+`""", re.DOTALL)
_TOKEN = re.compile(rf"{_QUOTED.pattern}|\w+|[^\w\s]", re.DOTALL)
_WORD = re.compile(r"\w+|[^\w\s]")
_NAME = re.compile(r"[^\W\d]\w*")
_SURROGATE = re.compile("[\ud800-\udfff]")
_LONGEST_HINT = 12

_SAID = {
    "ANYTHING": "a condition",
    "COLON": "':'",
    "COMMA": "','",
    "DOT": "'.'",
    "EQUAL": "'='",
    "HEXADECIMAL": "bytes",
    "INTEGER": "a whole number",
    "LESSTHAN": "'<'",
    "LPAR": "'('",
    "LSQB": "'['",
    "MORETHAN": "'>'",
    "NAME": "a name",
    "NUMBER": "a number",
    "OPERATOR": "a comparison",
    "QUERY": "SELECT",
    "QUOTED": "a string in quotes",
    "RPAR": "')'",
    "RSQB": "']'",
    "_ARROW": "'=>'",
    "$END": "the end",
}
_UNSAID = {"BACKQUOTED", "SIGN", "__IGNORE_0"}

_ELSEWHERE = {
    "ANALYZE": "row counts and sizes are known without it",
    "CACHE": "Spark's cache belongs to one session",
    "CLUSTER": None,
    "EXPORT": None,
    "FROM": "begin with SELECT or INSERT",
    "GRANT": "who may do what is up to the database and the file system",
    "IMPORT": None,
    "LOCK": "operations hold their table by themselves",
    "OPTIMIZE": None,
    "REFRESH": "nothing is cached",
    "REPLACE": None,
    "RESET": None,
    "REVOKE": "who may do what is up to the database and the file system",
    "SET": None,
    "UNCACHE": "Spark's cache belongs to one session",
    "UNLOCK": "operations hold their table by themselves",
    "VACUUM": None,
}
"""First words of statements of other systems → advice on what to do instead."""


def parse_statement(text: str) -> Statement:
    """Parse a statement; the text may end with blanks and comments, but not with a semicolon.

    Raises:
        StatementSyntaxError: The text does not match the grammar.
        UnsupportedStatementError: It is SQL that Calve does not support, or does in another way.
        StatementTooLongError: It is longer than `MAXIMUM_LENGTH`, or has more than `MAXIMUM_TOKENS`.
        UnknownTypeError: A column has an unknown type.
        InvalidIdentifierError: A name is not allowed.
        InvalidLocationError: A location contains a password; refused here, before the statement is journaled.
    """
    _check_size(text)
    if surrogate := _SURROGATE.search(text):
        raise StatementSyntaxError(
            f"{surrogate.group()!r} is not a character; the statement is not in the encoding UTF-8",
            text,
            surrogate.start(),
        )
    plain = without_comments(text)
    try:
        statement: Statement = Translator(text).transform(_parser().parse(plain))
    except UnexpectedInput as error:
        raise _syntax_error(error, text, plain) from None
    except VisitError as error:
        if isinstance(error.orig_exc, CatalogError):
            raise error.orig_exc from None
        raise
    _refuse_passwords(statement)
    return statement


def _refuse_passwords(statement: Statement) -> None:
    for name, location in _locations(statement):
        try:
            require_no_password(location, name)
        except InvalidLocationError as error:
            error.position = statement.places.get(name, statement.places.get(name.upper()))
            raise


def _locations(statement: Statement) -> Iterator[tuple[str, str]]:
    """Yield the locations in a statement, each with the name of its field or property."""
    for name in ("location", "path"):
        if location := getattr(statement, name, None):
            yield name, location
    if isinstance(statement, SnapshotTable) and (target := statement.options.get("target_location")):
        yield "target_location", target
    for partition in getattr(statement, "partitions", None) or ():
        if isinstance(partition, PartitionToAdd) and partition.location:
            yield "partitions", partition.location
    for name, value in getattr(statement, "properties", {}).items():
        if is_path_property(name):
            yield name, value


def _check_size(text: str) -> None:
    if len(text) > MAXIMUM_LENGTH:
        raise StatementTooLongError(
            f"the statement has {len(text):,} characters, more than the maximum of {MAXIMUM_LENGTH:,}", text
        )
    # Each token has at least one character, so short texts need no count.
    if len(text) > MAXIMUM_TOKENS and (count := sum(1 for _ in _TOKEN.finditer(text))) > MAXIMUM_TOKENS:
        raise StatementTooLongError(
            f"the statement has {count:,} names, literals and signs, more than the maximum of {MAXIMUM_TOKENS:,}. Load "
            "many rows with LOAD DATA",
            text,
        )


@cache
def _parser() -> Lark:
    grammar = files("catalog.statements").joinpath("grammar.lark").read_text("utf-8")
    return Lark(grammar, parser="lalr", maybe_placeholders=True)


def _syntax_error(error: UnexpectedInput, text: str, plain: str) -> StatementError:
    position = _position(error, plain)
    if (start := unclosed_comment(text)) is not None and position >= start:
        return StatementSyntaxError("a comment is not closed", text, start)
    word_match = _WORD.match(plain, position)
    if word_match is None:
        return StatementSyntaxError(f"the statement ends too early{_hint(error)}", text, position)
    if word_match.group() in "'\"`" and not _QUOTED.match(plain, position):
        return StatementSyntaxError("a quote is not closed", text, position)
    if not plain[:position].strip() and (word := word_match.group().upper()) in _ELSEWHERE:
        advice = _ELSEWHERE[word]
        return UnsupportedStatementError(
            f"{word} is no statement here{'' if advice is None else '; ' + advice}", text, position
        )
    return StatementSyntaxError(f"{word_match.group()[:40]!r} cannot be read{_hint(error)}", text, position)


def _position(error: UnexpectedInput, plain: str) -> int:
    if isinstance(error, UnexpectedToken) and error.token.type != "$END":
        return error.token.start_pos or 0
    if isinstance(error, UnexpectedCharacters):
        return error.pos_in_stream or 0
    return len(plain)


def _hint(error: UnexpectedInput) -> str:
    """Return a hint about the tokens that are allowed at the position of a syntax error."""
    allowed: set[str] = set(getattr(error, "allowed", None) or ())
    is_word = False
    if isinstance(error, UnexpectedToken):
        allowed = set(error.accepts or error.expected)
        is_word = "NAME" in allowed and error.token.type != "NAME" and _NAME.fullmatch(error.token) is not None
    expected = sorted({_SAID.get(name, name) for name in allowed if name not in _UNSAID})
    shown = ", ".join(expected[:_LONGEST_HINT]) + (", …" if len(expected) > _LONGEST_HINT else "")
    return (f"; expected {shown}" if expected else "") + ("; names like this need backquotes" if is_word else "")
