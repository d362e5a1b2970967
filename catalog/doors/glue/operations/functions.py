"""Glue's operations on functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.doors.entries.kept import GLUE
from catalog.doors.glue.calls import Answer, Call, Operation
from catalog.doors.glue.failures import GlueError, invalid_input, not_found
from catalog.doors.glue.names import to_calve, to_glue
from catalog.doors.glue.operations.databases import find_database
from catalog.doors.glue.operations.tables import matching
from catalog.doors.glue.tokens import sorted_page
from catalog.doors.serving.access import Role
from catalog.errors import FunctionNotFoundError
from catalog.metastores.types import HiveFunction

_OWN_FIELDS = ("FunctionType", "ArtifactLocation", "GovernanceMode")
_RESOURCES = "ResourceUris"
_JAVA = "JAVA"


def _from_glue(given: Mapping[str, Any], database: str, created_at: int | None = None) -> HiveFunction:
    """Return a function, given a `UserDefinedFunctionInput`.

    Raises:
        GlueError: It has no name.
    """
    if "FunctionName" not in given:
        raise invalid_input("FunctionInput has no FunctionName")
    own = {field: given[field] for field in _OWN_FIELDS if field in given}
    resources = given.get(_RESOURCES, ())
    # Only Glue has resources that lack a part, or have more.
    if any(resource.keys() != {"ResourceType", "Uri"} for resource in resources):
        own[_RESOURCES], resources = resources, ()
    return HiveFunction(
        database=database,
        name=to_calve(given["FunctionName"], "function"),
        class_name=given.get("ClassName"),
        owner=given.get("OwnerName"),
        owner_type=given.get("OwnerType"),
        kind=_JAVA,
        resources=tuple((resource["ResourceType"], resource["Uri"]) for resource in resources),
        created_at=created_at,
        extra={GLUE: own} if own else {},
    )


def _to_glue(function: HiveFunction, catalog_id: str) -> dict[str, Any]:
    """Return the `UserDefinedFunction` of a function."""
    shown: dict[str, Any] = {
        "FunctionName": to_glue(function.name),
        "DatabaseName": to_glue(function.database),
        "ClassName": function.class_name,
        "OwnerName": function.owner,
        "OwnerType": function.owner_type,
        "CreateTime": function.created_at,
        _RESOURCES: [{"ResourceType": kind, "Uri": uri} for kind, uri in function.resources],
        **function.extra.get(GLUE, {}),
        "CatalogId": catalog_id,
    }
    return {name: value for name, value in shown.items() if value is not None}


def _named(call: Call) -> HiveFunction:
    """Return the function that a request names.

    Raises:
        GlueError: It does not exist.
    """
    database = find_database(call, call.members["DatabaseName"]).name
    try:
        return call.door.entries.function(database, to_calve(call.members["FunctionName"], "function"))
    except FunctionNotFoundError:
        raise _missing(call) from None


def _missing(call: Call) -> GlueError:
    return not_found(f"UserDefinedFunction {call.members['FunctionName']} not found.")


def _create(call: Call) -> Answer:
    database = find_database(call, call.members["DatabaseName"]).name
    call.door.entries.create_function(_from_glue(call.members["FunctionInput"], database))
    return {}


def _get(call: Call) -> Answer:
    return {"UserDefinedFunction": _to_glue(_named(call), call.door.catalog_id)}


def _list(call: Call) -> Answer:
    asked = call.members.get("DatabaseName")
    functions = call.door.entries.functions(None if asked is None else find_database(call, asked).name)
    shown = [_to_glue(function, call.door.catalog_id) for function in functions]
    if kind := call.members.get("FunctionType"):
        shown = [function for function in shown if function.get("FunctionType") == kind]
    shown = matching(call.members["Pattern"], shown, lambda function: function["FunctionName"])
    shown.sort(key=_place)
    page, token = sorted_page(call.operation, call.members, shown, _place)
    answer: dict[str, Any] = {"UserDefinedFunctions": list(page)}
    return answer if token is None else {**answer, "NextToken": token}


def _place(function: Mapping[str, Any]) -> str:
    return f"{function['DatabaseName']}/{function['FunctionName']}"


def _update(call: Call) -> Answer:
    before = _named(call)
    given = _from_glue(call.members["FunctionInput"], before.database, before.created_at)
    call.door.entries.alter_function(before.database, before.name, given)
    return {}


def _delete(call: Call) -> Answer:
    function = _named(call)
    call.door.entries.drop_function(function.database, function.name)
    return {}


OPERATIONS = {
    "CreateUserDefinedFunction": Operation(_create, Role.OWNER),
    "GetUserDefinedFunction": Operation(_get, Role.READER),
    "GetUserDefinedFunctions": Operation(_list, Role.READER),
    "UpdateUserDefinedFunction": Operation(_update, Role.OWNER),
    "DeleteUserDefinedFunction": Operation(_delete, Role.OWNER),
}
