"""Glue's operations on tables."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from catalog.doors.entries.iceberg import ICEBERG, TABLE_TYPE, metadata_of
from catalog.doors.entries.kept import keep_fields_of_hive
from catalog.doors.glue.calls import Answer, Call, Operation
from catalog.doors.glue.failures import glue_error, invalid_input
from catalog.doors.glue.forms.tables import table_from_glue
from catalog.doors.glue.names import table_name, to_glue
from catalog.doors.glue.operations.databases import find_database
from catalog.doors.glue.operations.finding import find_many, find_table, found, found_whole, shown
from catalog.doors.glue.operations.indexes import definitions_of
from catalog.doors.glue.operations.versions import require_version
from catalog.doors.glue.tokens import make_token, read_token
from catalog.doors.serving.access import Role
from catalog.errors import CatalogError
from catalog.files.locations import comparable
from catalog.metastores.types import HiveTable
from catalog.model import Table
from catalog.model.identifiers import TableName

_NAME_FIELDS = ("Name", "DatabaseName", "CatalogId")
_TYPE_FIELDS = (*_NAME_FIELDS, "TableType")
_PUNCTUATION = re.compile(r"[\s:;,./#|-]+")
_SORTED = frozenset({bool, int, float, str})
"""The types of the values by which tables are sorted."""

_TIMES = ("CreateTime", "UpdateTime", "LastAccessTime")


# --- creation and change ----------------------------------------------------------------------------------------------


def _create(call: Call) -> Answer:
    given = _table_input(call)
    name = table_name(call.members["DatabaseName"], given["Name"])
    find_database(call, call.members["DatabaseName"])
    entry = table_from_glue(given, name)
    if "OpenTableFormatInput" in call.members:
        _create_iceberg(call, entry)
    else:
        call.door.entries.create_table(entry, indexes=definitions_of(call.members.get("PartitionIndexes", ())))
    return {}


def _create_iceberg(call: Call, entry: HiveTable) -> None:
    """Create an Iceberg table with its first metadata; without columns, there are no metadata yet."""
    if entry.columns:
        call.door.catalog.create_table(
            str(entry.name),
            columns=entry.columns,
            partition_keys=entry.partition_keys,
            format=ICEBERG,
            location=entry.location,
            properties=entry.parameters,
            description=entry.description,
        )
    else:
        call.door.entries.create_table(replace(entry, parameters={**entry.parameters, TABLE_TYPE: ICEBERG}))


def _table_input(call: Call) -> dict[str, Any]:
    given: dict[str, Any] | None = call.members.get("TableInput")
    if given is None:
        raise invalid_input("the request has no TableInput, which is the definition of the table")
    return given


def _update(call: Call) -> Answer:
    given = _table_input(call)
    before = find_table(call, call.members["DatabaseName"], call.members.get("Name", given["Name"]))
    name = table_name(call.members["DatabaseName"], given["Name"])
    if name != before.entry.name:
        raise invalid_input(f"table {before.entry.name} cannot be renamed to {name}; TableInput needs the same Name")
    entry = keep_fields_of_hive(table_from_glue(given, name, int(time.time())), before.entry)
    has_moved = entry.location is not None and comparable(entry.location) != comparable(before.entry.location or "")
    is_commit = before.is_iceberg and metadata_of(entry) is not None and not has_moved
    call.client.require(Role.WRITER if is_commit else Role.OWNER, f"change the definition of table {name}")

    def check(table: Table) -> None:
        require_version(call, found(call.door, table))

    call.door.entries.alter_table(
        before.entry.name, entry, check=check, keeps_former=not call.members.get("SkipArchive", False)
    )
    return {}


# --- deletion ---------------------------------------------------------------------------------------------------------


def _delete(call: Call) -> Answer:
    _drop(call, call.members["Name"])
    return {}


def _drop(call: Call, name: str) -> None:
    # As in Glue, no file is deleted.
    call.door.entries.drop_table(find_table(call, call.members["DatabaseName"], name).entry.name)


def _delete_batch(call: Call) -> Answer:
    find_database(call, call.members["DatabaseName"])
    errors = []
    for name in call.members["TablesToDelete"]:
        try:
            _drop(call, name)
        except CatalogError as error:
            errors.append({"TableName": name, "ErrorDetail": detail(error)})
    return {"Errors": errors} if errors else {}


def detail(error: Exception) -> dict[str, str]:
    """Return the `ErrorDetail` of a member of a batch."""
    failure = glue_error(error)
    return {"ErrorCode": failure.code, "ErrorMessage": str(failure)}


# --- look-up ----------------------------------------------------------------------------------------------------------


def _get(call: Call) -> Answer:
    table = find_table(call, call.members["DatabaseName"], call.members["Name"])
    return {"Table": _chosen(call, shown(call.door, table))}


def _chosen(call: Call, table: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a table that the request asks for; all, unless it names other ones."""
    asked = set(call.members.get("AttributesToGet", ()))
    if not asked or asked & {"DEFAULT", "LATEST_ICEBERG_METADATA"}:
        return table
    fields = _TYPE_FIELDS if "TABLE_TYPE" in asked else _NAME_FIELDS
    return {name: table[name] for name in fields if name in table}


def _list(call: Call) -> Answer:
    database = find_database(call, call.members["DatabaseName"]).name
    [after] = read_token(call.operation, call.members, [{str}]) or [None]
    size, expression = call.members.get("MaxResults", 100), call.members.get("Expression")
    # A pattern needs all names, but only the definitions of the tables on the page.
    names = call.door.catalog.table_names(database, after=after, limit=None if expression else size + 1)
    if expression:
        names = matching(expression, names, to_glue)
    page = [TableName(database, name) for name in names[:size]]
    answer: dict[str, Any] = {"TableList": [_chosen(call, shown(call.door, table)) for table in find_many(call, page)]}
    if len(names) > size:
        answer["NextToken"] = make_token(call.operation, call.members, [names[size - 1]])
    return answer


def matching(expression: str, items: Sequence[Any], name_of: Callable[[Any], str]) -> list[Any]:
    """Return the items whose names match a pattern of Glue: a regular expression, in which `*` alone is any string.

    RE2 evaluates it, in linear time.

    Raises:
        GlueError: It is no regular expression.
    """
    import pyarrow as pa
    from pyarrow.compute import match_substring_regex

    pattern = re.sub(r"(?<!\.)\*", ".*", expression)
    try:
        # By itself, because parentheses around it could complete it, and are in the message.
        match_substring_regex(pa.array([""], pa.string()), pattern)
        names = pa.array([name_of(item) for item in items], pa.string())
        mask = match_substring_regex(names, rf"\A(?:{pattern})\z", ignore_case=True)
    except pa.ArrowInvalid as error:
        raise invalid_input(f"Expression {expression!r} is not a regular expression: {error}") from None
    return [item for item, matches in zip(items, mask.to_pylist(), strict=True) if matches]


# --- search -----------------------------------------------------------------------------------------------------------


def _search(call: Call) -> Answer:
    tables = [found_whole(call.door, table) for table in call.door.catalog.list_tables()]
    entries = [shown(call.door, table) for table in tables]
    text = call.members.get("SearchText")
    predicates = call.members.get("Filters", ())
    chosen = [
        table
        for table in entries
        if (text is None or _has_text(table, text)) and all(_fits(table, predicate) for predicate in predicates)
    ]
    criterion: dict[str, str] = next(iter(call.members.get("SortCriteria", ())), {})
    field, is_descending = criterion.get("FieldName", "Name"), criterion.get("Sort") == "DESC"

    def place(table: dict[str, Any]) -> list[Any]:
        value = _value(table, field)
        # Numbers before strings, so that any two values have an order.
        return [isinstance(value, str), value, table["DatabaseName"], table["Name"]]

    chosen.sort(key=place, reverse=is_descending)
    if position := read_token(call.operation, call.members, [{bool}, _SORTED, {str}, {str}]):
        if isinstance(position[1], str) is not position[0]:
            raise invalid_input("NextToken is not from a page of this request; begin again without a token")
        chosen = [t for t in chosen if (place(t) < position if is_descending else place(t) > position)]
    size = call.members.get("MaxResults", 100)
    answer: dict[str, Any] = {"TableList": chosen[:size]}
    if len(chosen) > size:
        answer["NextToken"] = make_token(call.operation, call.members, place(chosen[size - 1]))
    return answer


def _value(table: dict[str, Any], field: str) -> Any:
    value = table.get(field, table["Parameters"].get(field, ""))
    return value if type(value) in _SORTED else ""


def _has_text(table: dict[str, Any], text: str) -> bool:
    """Return whether a string occurs in names, comments or parameters; in quotes, as the whole of one of them."""
    columns = (*table["StorageDescriptor"]["Columns"], *table["PartitionKeys"])
    texts = [table["Name"], table["DatabaseName"], table.get("Description", ""), *table["Parameters"].values()]
    texts += [column.get(field, "") for column in columns for field in ("Name", "Comment")]
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1].lower() in (known.lower() for known in texts)
    return any(text.lower() in known.lower() for known in texts)


def _fits(table: dict[str, Any], predicate: dict[str, str]) -> bool:
    """Return whether a table fits a filter: strings have it as a word, times are compared as the filter says."""
    key, asked = predicate.get("Key", ""), predicate.get("Value", "")
    value = _value(table, key)
    if key in _TIMES:
        try:
            moment = float(asked)
        except ValueError:
            raise invalid_input(f"the filter of {key} has the value {asked!r}; give seconds since 1970 UTC") from None
        return _COMPARISONS[predicate.get("Comparator", "EQUALS")](float(value or 0), moment)
    words = [str(value).lower(), *_PUNCTUATION.split(str(value).lower())]
    return asked.lower() in words


_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "EQUALS": lambda value, asked: value == asked,
    "GREATER_THAN": lambda value, asked: value > asked,
    "LESS_THAN": lambda value, asked: value < asked,
    "GREATER_THAN_EQUALS": lambda value, asked: value >= asked,
    "LESS_THAN_EQUALS": lambda value, asked: value <= asked,
}

OPERATIONS = {
    "CreateTable": Operation(_create, Role.OWNER),
    "GetTable": Operation(_get, Role.READER),
    "GetTables": Operation(_list, Role.READER),
    "UpdateTable": Operation(_update, Role.WRITER),
    "DeleteTable": Operation(_delete, Role.OWNER),
    "BatchDeleteTable": Operation(_delete_batch, Role.OWNER),
    "SearchTables": Operation(_search, Role.READER),
}
