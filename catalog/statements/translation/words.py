"""Translation of parts that many statements share: names, strings, clauses, types and literals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from lark import Token, Transformer_NonRecursive
from lark.visitors import v_args

from catalog.errors import InvalidIdentifierError, StatementSyntaxError, UnknownTypeError, UnsupportedStatementError
from catalog.model import Column
from catalog.model.identifiers import normalise_identifier
from catalog.statements import model as m
from catalog.statements.terms import KeyCondition, Literal, LiteralKind, TableReference
from catalog.types import names as types
from catalog.types.literals import unquoted

Value = TypeVar("Value")
Made = TypeVar("Made", bound=m.Statement)


@dataclass(frozen=True, slots=True)
class Placed(Generic[Value]):
    """A value, and its position in the statement's text."""

    value: Value
    position: int


@dataclass(frozen=True, slots=True)
class TypeName(Placed[str]):
    """The name of a type, and its nesting depth."""

    depth: int = 1


@dataclass(frozen=True, slots=True)
class Properties(Placed[dict[str, str]]):
    """Properties, and the positions of their values by name in upper case."""

    places: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause that may appear in any order, but only once, with the statement's fields that it sets."""

    name: str
    position: int
    fields: dict[str, Any]


def made(kind: type[Made], **fields: Any) -> Made:
    """Return a statement with the positions of its fields; a field that is None keeps its default."""
    values: dict[str, Any] = {}
    places: dict[str, int] = {}
    for name, value in fields.items():
        if isinstance(value, Placed):
            places[name] = value.position
            if isinstance(value, Properties):
                places |= value.places
            value = value.value
        if value is not None:
            values[name] = value
    return kind(places=places, **values)


def values_of(parts: Iterable[Placed[Value]]) -> tuple[Value, ...]:
    """Return the values of parts."""
    return tuple(part.value for part in parts)


def together(parts: Sequence[Placed[Value]]) -> Placed[tuple[Value, ...]]:
    """Return several parts as one, at the position of the first."""
    return Placed(values_of(parts), parts[0].position)


@v_args(inline=True)
class Words(Transformer_NonRecursive[Token, Any]):
    """The parts that many statements share."""

    def __init__(self, original: str) -> None:
        """Set the text of the statement, with its comments."""
        super().__init__(visit_tokens=False)
        self.original = original

    def verbatim(self, token: Token) -> Placed[str]:
        """Return the rest of the statement as it was written."""
        start = token.start_pos or 0
        return Placed(self.original[start:], start)

    def unsupported(self, problem: str, token: Token) -> UnsupportedStatementError:
        return UnsupportedStatementError(problem, self.original, token.start_pos)

    def wrong(self, problem: str, position: int | None) -> StatementSyntaxError:
        return StatementSyntaxError(problem, self.original, position)

    def clauses(self, clauses: Iterable[Clause]) -> dict[str, Any]:
        """Return the fields of clauses, after checking that none is repeated."""
        seen: set[str] = set()
        fields: dict[str, Any] = {}
        for clause in clauses:
            if clause.name in seen:
                raise self.wrong(f"{clause.name} appears twice; remove one of them", clause.position)
            seen.add(clause.name)
            fields.update(clause.fields)
        return fields

    def column_name(self, text: str, position: int) -> str:
        """Return the name of a column from its text, which may be in backquotes."""
        is_quoted = len(text) > 1 and text[0] == text[-1] == "`"
        return self._identifier(text[1:-1].replace("``", "`") if is_quoted else text, position).value

    def _identifier(self, text: str, position: int) -> Placed[str]:
        try:
            return Placed(normalise_identifier(text, "a"), position)
        except InvalidIdentifierError as error:
            placed_error = InvalidIdentifierError(str(error).removeprefix("a "))
            placed_error.position = position
            raise placed_error from None

    # --- words --------------------------------------------------------------------------------------------------

    def start(self, statement: m.Statement) -> m.Statement:
        return statement

    def if_not_exists(self) -> bool:
        return True

    def if_exists(self) -> bool:
        return True

    def name(self, token: Token) -> Placed[str]:
        text = token[1:-1].replace("``", "`") if token.type == "BACKQUOTED" else str(token)
        return self._identifier(text, token.start_pos or 0)

    def names(self, *names: Placed[str]) -> Placed[tuple[str, ...]]:
        return together(names)

    def table(self, first: Placed[str], second: Placed[str] | None) -> Placed[TableReference]:
        if second is None:
            return Placed(TableReference(None, first.value), first.position)
        return Placed(TableReference(first.value, second.value), first.position)

    def string(self, token: Token) -> Placed[str]:
        text = self.said(token)
        if "\0" in text:
            raise self.wrong("the string contains U+0000, which the catalog cannot store", token.start_pos)
        return Placed(text, token.start_pos or 0)

    def said(self, token: Token) -> str:
        text = unquoted(token)
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise self.wrong("the string contains half a character (a lone surrogate)", token.start_pos)
        return text

    def strings(self, *texts: Placed[str]) -> Placed[tuple[str, ...]]:
        return together(texts)

    def number(self, sign: Token | None, digits: Token) -> Placed[str]:
        text = str(digits).lower().rstrip("bdlsyf") if digits.type == "NUMBER" else str(digits)
        place = digits if sign is None else sign
        return Placed(("-" if sign == "-" else "") + text, place.start_pos or 0)

    # --- clauses ------------------------------------------------------------------------------------------------

    def comment(self, text: Placed[str]) -> Clause:
        return Clause("COMMENT", text.position, {"comment": text.value})

    def location(self, text: Placed[str]) -> Clause:
        return Clause("LOCATION", text.position, {"location": text})

    def tblproperties(self, properties: Placed[dict[str, str]]) -> Clause:
        return Clause("TBLPROPERTIES", properties.position, {"properties": properties})

    def properties(self, *pairs: tuple[Placed[str], Placed[str]]) -> Properties:
        values: dict[str, str] = {}
        places: dict[str, int] = {}
        for name, value in pairs:
            if name.value.upper() in places:
                raise self.wrong(f"property {name.value!r} is set twice", name.position)
            places[name.value.upper()] = value.position
            values[name.value] = value.value
        return Properties(values, pairs[0][0].position, places)

    def property(self, name: Placed[str], value: Placed[str] | Token) -> tuple[Placed[str], Placed[str]]:
        if isinstance(value, Token):
            return name, Placed(value.lower(), value.start_pos or 0)
        return name, value

    def property_name(self, name: Placed[str]) -> Placed[str]:
        return name

    def dotted(self, *parts: Token) -> Placed[str]:
        return Placed(".".join(parts), parts[0].start_pos or 0)

    # --- columns and types --------------------------------------------------------------------------------------

    def columns(self, *columns: Placed[Column]) -> Placed[tuple[Column, ...]]:
        return together(columns)

    def column(self, name: Placed[str], column_type: TypeName, comment: Clause | None) -> Placed[Column]:
        text = None if comment is None else comment.fields["comment"]
        return Placed(Column(name.value, column_type.value, text), name.position)

    def plain_type(self, name: Token) -> TypeName:
        return self._type(name, lambda: types.plain_type(name))

    def sized_type(self, name: Token, first: Token, second: Token | None) -> TypeName:
        sizes = [self.whole(first), None if second is None else self.whole(second)]
        return self._type(name, lambda: types.sized_type(name, sizes[0] or 0, sizes[1]))

    def nested_type(self, name: Token, *parts: TypeName) -> TypeName:
        return self._type(name, lambda: types.nested_type(name, [part.value for part in parts]), parts)

    def struct_type(self, name: Token, *fields: tuple[str, TypeName]) -> TypeName:
        pairs = [(field, part.value) for field, part in fields]
        return self._type(name, lambda: types.struct_type(name, pairs), [part for _, part in fields])

    def field(self, name: Placed[str], field_type: TypeName) -> tuple[str, TypeName]:
        return name.value, field_type

    def _type(self, name: Token, make: Any, parts: Sequence[TypeName] = ()) -> TypeName:
        depth = 1 + max((part.depth for part in parts), default=0)
        try:
            if depth > types.MAXIMUM_DEPTH:
                raise types.TypeNameError(f"the type is nested more than {types.MAXIMUM_DEPTH} times")
            return TypeName(make(), name.start_pos or 0, depth)
        except types.TypeNameError as error:
            raise UnknownTypeError(str(error), self.original, name.start_pos) from None

    def whole(self, token: Token) -> int:
        if len(token) > 18:
            raise self.wrong("the number is too large", token.start_pos)
        return int(token)

    # --- literals -----------------------------------------------------------------------------------------------

    def text_literal(self, token: Token) -> Literal:
        return Literal(LiteralKind.TEXT, self.said(token), token.start_pos or 0)

    def number_literal(self, number: Placed[str]) -> Literal:
        return Literal(LiteralKind.NUMBER, number.value, number.position)

    def typed_literal(self, word: Token, token: Token) -> Literal:
        return Literal(LiteralKind(word.lower()), self.said(token), word.start_pos or 0)

    def binary_literal(self, token: Token) -> Literal:
        digits = token[2:-1]
        if len(digits) % 2 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
            raise self.wrong("bytes are written as pairs of hexadecimal digits, for instance X'1A2B'", token.start_pos)
        return Literal(LiteralKind.BINARY, digits.lower(), token.start_pos or 0)

    def true_literal(self, token: Token) -> Literal:
        return Literal(LiteralKind.BOOLEAN, "true", token.start_pos or 0)

    def false_literal(self, token: Token) -> Literal:
        return Literal(LiteralKind.BOOLEAN, "false", token.start_pos or 0)

    def null_literal(self, token: Token) -> Literal:
        return Literal(LiteralKind.NULL, None, token.start_pos or 0)

    def values(self, *pairs: tuple[Placed[str], Literal]) -> Placed[dict[str, str | None]]:
        texts: dict[str, str | None] = {}
        for name, literal in pairs:
            if name.value in texts:
                raise self.wrong(f"key {name.value!r} is named twice", name.position)
            texts[name.value] = literal.text
        return Placed(texts, pairs[0][0].position)

    def key_value(self, name: Placed[str], literal: Literal) -> tuple[Placed[str], Literal]:
        return name, literal

    def conditions(self, *conditions: KeyCondition) -> tuple[KeyCondition, ...]:
        return conditions

    def condition(self, name: Placed[str], *rest: Any) -> KeyCondition:
        operator, literal = rest if len(rest) == 2 else ("=", *rest)
        return KeyCondition(name.value, str(operator), literal)

    def ids(self, *tokens: Token) -> Placed[tuple[int, ...]]:
        return Placed(tuple(map(self.whole, tokens)), tokens[0].start_pos or 0)
