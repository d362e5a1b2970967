"""Translation of procedures: CALL, and ALTER TABLE … EXECUTE.

Names, arguments and their order are Trino's; additional arguments follow. Those of roll-backs are of Iceberg's
procedures for Spark. Sources: Trino's `MigrateProcedure`, `AddFilesTableFromTableProcedure` and `CallTask`; Iceberg's
`RollbackToSnapshotProcedure` and `RollbackToTimestampProcedure`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn

from lark import Token
from lark.visitors import v_args

from catalog.errors import InvalidIdentifierError, ProcedureArgumentError, UnknownProcedureError
from catalog.model.identifiers import normalise_identifier
from catalog.statements import model as m
from catalog.statements.terms import Literal, LiteralKind, TableReference
from catalog.statements.translation.changes import Change
from catalog.statements.translation.words import Placed, Properties, Words, made

_CATALOGS = ("iceberg", "calve")
_SCHEMA = "system"
_LARGEST_ID = 2**63 - 1
_OWN = ("place", "forget", "rollback_to_snapshot", "rollback_to_timestamp")
"""The procedures of tables that Calve writes to; the others are named as Trino's."""

Map = Sequence[tuple[Literal, Literal]]


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a procedure.

    Attributes:
        name: Its name; None for a positional argument.
    """

    name: Placed[str] | None
    value: Literal | Placed[Map]

    @property
    def position(self) -> int:
        """Its position in the statement's text."""
        return self.value.position if self.name is None else self.name.position


class _UnfitError(Exception):
    """A parameter does not accept a value."""

    def __init__(self, problem: str, position: int) -> None:
        super().__init__(problem)
        self.position = position


Read = Callable[[Literal | Placed[Map]], Any]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a procedure.

    Attributes:
        read: Converts the literal to the statement's value, or raises `_UnfitError`.
        example: An example of a value, for messages.
    """

    name: str
    read: Read
    example: str
    is_required: bool = False


# --- values -----------------------------------------------------------------------------------------------------------


def _text(value: Literal | Placed[Map]) -> str:
    if not isinstance(value, Literal) or value.kind is not LiteralKind.TEXT or value.text is None:
        raise _UnfitError("must be a string in quotes", value.position)
    if "\0" in value.text:
        raise _UnfitError("contains U+0000, which the catalog cannot store", value.position)
    return value.text


def _condition(value: Literal | Placed[Map]) -> str:
    text = _text(value)
    if not text.strip():
        raise _UnfitError("is empty, but must be a condition", value.position)
    return text


def _identifier(value: Literal | Placed[Map]) -> str:
    try:
        return normalise_identifier(_text(value), "a")
    except InvalidIdentifierError as error:
        raise _UnfitError(f"cannot be used: {str(error).removeprefix('a ')}", value.position) from None


def _table_name(value: Literal | Placed[Map]) -> TableReference:
    parts = _text(value).split(".")
    if len(parts) > 2:
        raise _UnfitError("must be a table, as 'database.table'", value.position)
    try:
        *database, name = (normalise_identifier(part, "a") for part in parts)
    except InvalidIdentifierError as error:
        raise _UnfitError(f"cannot be used: {str(error).removeprefix('a ')}", value.position) from None
    return TableReference(database[0] if database else None, name)


def _snapshot_id(value: Literal | Placed[Map]) -> int:
    text = value.text if isinstance(value, Literal) and value.kind is LiteralKind.NUMBER else None
    if text is None or not text.isdecimal() or int(text) > _LARGEST_ID:
        raise _UnfitError("must be the id of a snapshot", value.position)
    return int(text)


def _time(value: Literal | Placed[Map]) -> datetime:
    is_time = isinstance(value, Literal) and value.kind in (LiteralKind.TIMESTAMP, LiteralKind.TEXT)
    try:
        at = datetime.fromisoformat(str(value.text)) if is_time and isinstance(value, Literal) else None
    except ValueError:
        at = None
    if at is None:
        raise _UnfitError("must be a timestamp", value.position)
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _choice(*choices: str) -> Read:
    def read(value: Literal | Placed[Map]) -> str:
        is_boolean = isinstance(value, Literal) and value.kind is LiteralKind.BOOLEAN and "true" in choices
        text = str(value.text) if is_boolean and isinstance(value, Literal) else _text(value)
        if text.lower() not in choices:
            raise _UnfitError(f"must be one of {', '.join(map(repr, choices))}, not {text[:40]!r}", value.position)
        return text.lower()

    return read


def _boolean(value: Literal | Placed[Map]) -> bool:
    return bool(_choice("true", "false")(value) == "true")


def _count(value: Literal | Placed[Map]) -> int:
    text = value.text if isinstance(value, Literal) and value.kind is LiteralKind.NUMBER else None
    if text is None or not text.isdecimal() or len(text) > 9 or int(text) < 1:
        raise _UnfitError("must be a whole number of at least 1", value.position)
    return int(text)


def _partition_values(value: Literal | Placed[Map]) -> dict[str, str | None]:
    if isinstance(value, Literal):
        raise _UnfitError("must be a map: map(ARRAY['key'], ARRAY['value'])", value.position)
    values: dict[str, str | None] = {}
    for key, cell in value.value:
        name = _identifier(key)
        if name in values:
            raise _UnfitError(f"names {name!r} twice", key.position)
        # Trino accepts only strings; numbers and dates are unambiguous, too.
        if cell.kind not in (LiteralKind.TEXT, LiteralKind.NUMBER, LiteralKind.DATE, LiteralKind.NULL):
            raise _UnfitError("must have strings as values", cell.position)
        values[name] = cell.text
    return values


# --- procedures -------------------------------------------------------------------------------------------------------

_SOURCE = (
    Parameter("schema_name", _identifier, "'shop'", is_required=True),
    Parameter("table_name", _identifier, "'orders'", is_required=True),
)
_RECURSIVE = Parameter("recursive_directory", _choice("true", "false", "fail"), "'true'")
_HOW = (
    Parameter("timestamps", _choice("with zone", "without zone"), "'with zone'"),
    Parameter("unusable_files", _choice("fail", "skip"), "'skip'"),
    Parameter("verify", _boolean, "false"),
    Parameter("verified_partitions", _count, "100"),
)

_PLACED_TABLE = Parameter("table", _table_name, "'shop.visits'", is_required=True)

_PROCEDURES: Mapping[str, tuple[Parameter, ...]] = {
    "migrate": (*_SOURCE, _RECURSIVE, *_HOW, Parameter("flip_source", _boolean, "true")),
    "revert": (*_SOURCE, Parameter("lose_data", _boolean, "true")),
    "snapshot": (
        *_SOURCE,
        Parameter("target_table_name", _identifier, "'orders_trial'", is_required=True),
        _RECURSIVE,
        Parameter("target_schema_name", _identifier, "'trials'"),
        Parameter("target_location", _text, "'/data/trials/orders'"),
        *_HOW,
    ),
    "rollback_to_snapshot": (
        _PLACED_TABLE,
        Parameter("snapshot_id", _snapshot_id, "5781947118336215154", is_required=True),
    ),
    "rollback_to_timestamp": (
        _PLACED_TABLE,
        Parameter("timestamp", _time, "TIMESTAMP '2026-01-31 12:00:00'", is_required=True),
    ),
    "place": (_PLACED_TABLE,),
    "forget": (
        _PLACED_TABLE,
        Parameter("where", _condition, "'customer_id = 42'", is_required=True),
        Parameter("at_once", _boolean, "true"),
    ),
}
"""The procedures of CALL, with their parameters in order."""

_TABLE_PROCEDURES: Mapping[str, tuple[Parameter, ...]] = {
    "add_files_from_table": (
        *_SOURCE,
        Parameter("partition_filter", _partition_values, "map(ARRAY['country'], ARRAY['US'])"),
        _RECURSIVE,
        Parameter("duplicate_file", _choice("fail", "skip", "add"), "'skip'"),
        *_HOW,
    ),
}
"""The procedures of ALTER TABLE … EXECUTE, with their parameters in order."""

_OPTIONS = {
    "recursive_directory": "recursive_directory",
    "timestamps": "timestamps",
    "unusable_files": "unusable_files",
    "duplicate_file": "duplicate_files",
    "target_location": "target_location",
    "flip_source": "flip_source",
}
"""Argument → the field of a migration's request."""

Given = Mapping[str, Placed[Any]]


@v_args(inline=True)
class Procedures(Words):
    """CALL, and ALTER TABLE … EXECUTE."""

    def call_procedure(self, name: Placed[tuple[str, ...]], arguments: Sequence[Argument]) -> m.Statement:
        *qualifiers, procedure = name.value
        is_known = len(qualifiers) < 2 or qualifiers[-2] in _CATALOGS
        if len(qualifiers) > 2 or not is_known or qualifiers[-1:] != [_SCHEMA] or procedure not in _PROCEDURES:
            full_name = ".".join(name.value)
            known = ", ".join(f"{_catalog(supported)}.system.{supported}" for supported in _PROCEDURES)
            if procedure in _TABLE_PROCEDURES:
                known += f"; run {procedure} with ALTER TABLE … EXECUTE {procedure}(…)"
            raise UnknownProcedureError(
                f"unknown procedure {full_name}; use one of {known}", self.original, name.position
            )
        given = self._bound(Placed(procedure, name.position), _PROCEDURES[procedure], arguments)
        if procedure == "rollback_to_snapshot":
            return made(m.RollBackToSnapshot, table=given["table"], snapshot_id=given["snapshot_id"])
        if procedure == "rollback_to_timestamp":
            return made(m.RollBackToTimestamp, table=given["table"], at=given["timestamp"])
        if procedure == "place":
            return made(m.PlaceFiles, table=given["table"])
        if procedure == "forget":
            return made(m.ForgetRows, **given)
        table = _table(given, "schema_name", "table_name")
        if procedure == "revert":
            return made(m.RevertTable, table=table, lose_data=given.get("lose_data"))
        if procedure == "migrate":
            return made(m.MigrateTable, table=table, **_how(given))
        target = _table(given, "target_schema_name", "target_table_name")
        return made(m.SnapshotTable, table=table, target=target, **_how(given))

    def execute_procedure(self, name: Placed[str], arguments: Sequence[Argument]) -> Change:
        if name.value not in _TABLE_PROCEDURES:
            known = ", ".join(_TABLE_PROCEDURES)
            if name.value in _PROCEDURES:
                known += f"; run {name.value} with CALL {_catalog(name.value)}.system.{name.value}(…)"
            raise UnknownProcedureError(
                f"unknown table procedure {name.value}; use {known}", self.original, name.position
            )
        given = self._bound(name, _TABLE_PROCEDURES[name.value], arguments)
        source = _table(given, "schema_name", "table_name")
        fields = {"source": source, "partitions": given.get("partition_filter"), **_how(given)}
        return m.AddFilesFromTable, fields

    def procedure(self, *names: Placed[str]) -> Placed[tuple[str, ...]]:
        return Placed(tuple(name.value for name in names), names[0].position)

    def arguments(self, *arguments: Argument) -> Sequence[Argument]:
        return arguments

    def argument(self, name: Placed[str] | None, value: Literal | Placed[Map]) -> Argument:
        return Argument(name, value)

    def map(
        self,
        word: Token,
        keys: tuple[Token, Sequence[Literal]] | None,
        values: tuple[Token, Sequence[Literal]] | None,
    ) -> Placed[Map]:
        position = word.start_pos or 0
        if keys is None or values is None:
            return Placed((), position)
        if len(keys[1]) != len(values[1]):
            raise ProcedureArgumentError(
                f"the map has {len(keys[1])} key(s) and {len(values[1])} value(s); give one value for each key",
                self.original,
                values[0].start_pos,
            )
        return Placed(tuple(zip(keys[1], values[1], strict=True)), position)

    def array(self, word: Token, *literals: Literal) -> tuple[Token, Sequence[Literal]]:
        return word, literals

    # --- arguments ----------------------------------------------------------------------------------------------

    def _bound(self, procedure: Placed[str], parameters: Sequence[Parameter], arguments: Sequence[Argument]) -> Given:
        """Return the given arguments by parameter; NULL counts as not given."""
        given: dict[str, Placed[Any]] = {}
        named = dict(self._named(procedure.value, parameters, arguments))
        for parameter in parameters:
            argument = named.get(parameter.name)
            is_null = argument is None or (
                isinstance(argument.value, Literal) and argument.value.kind is LiteralKind.NULL
            )
            if argument is None or is_null:
                if parameter.is_required:
                    self._refuse(
                        f"{procedure.value} needs {parameter.name}; write {parameter.name} => {parameter.example}",
                        procedure.position if argument is None else argument.value.position,
                    )
                continue
            try:
                given[parameter.name] = Placed(parameter.read(argument.value), argument.value.position)
            except _UnfitError as error:
                self._refuse(f"{parameter.name} {error}; for instance {parameter.example}", error.position)
        return given

    def _named(
        self, procedure: str, parameters: Sequence[Parameter], arguments: Sequence[Argument]
    ) -> Iterator[tuple[str, Argument]]:
        """Yield each argument with the name of its parameter."""
        names = [parameter.name for parameter in parameters]
        seen: set[str] = set()
        for number, argument in enumerate(arguments):
            if (argument.name is None) != (arguments[0].name is None):
                self._refuse("arguments with and without names cannot be mixed; name all of them", argument.position)
            if argument.name is None and number >= len(names):
                self._refuse(f"{procedure} takes at most {len(names)} arguments: {', '.join(names)}", argument.position)
            name = names[number] if argument.name is None else argument.name.value
            if name not in names:
                self._refuse(f"{procedure} has no argument {name}; it takes {', '.join(names)}", argument.position)
            if name in seen:
                self._refuse(f"argument {name} is given twice", argument.position)
            seen.add(name)
            yield name, argument

    def _refuse(self, problem: str, position: int | None) -> NoReturn:
        raise ProcedureArgumentError(problem, self.original, position)


def _catalog(procedure: str) -> str:
    """Return the catalog by which messages name a procedure; both are accepted."""
    return _CATALOGS[procedure in _OWN]


def _table(given: Given, schema: str, table: str) -> Placed[TableReference]:
    database = given[schema].value if schema in given else None
    return Placed(TableReference(database, given[table].value), given[table].position)


def _how(given: Given) -> dict[str, Any]:
    """Return the fields that all statements of migrations share."""
    options = {field: given[name] for name, field in _OPTIONS.items() if name in given}
    fields: dict[str, Any] = {name: given.get(name) for name in ("verify", "verified_partitions")}
    if options:
        values = {field: option.value for field, option in options.items()}
        places = {field: option.position for field, option in options.items()}
        fields["options"] = Properties(values, min(places.values()), places)
    return fields
