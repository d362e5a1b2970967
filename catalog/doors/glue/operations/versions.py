"""Glue's operations on the versions of tables."""

from __future__ import annotations

from typing import Any

from catalog.doors.glue.calls import Answer, Call, Operation
from catalog.doors.glue.failures import GlueError, invalid_input, not_found
from catalog.doors.glue.operations.finding import Found, of_members, shown, version_of
from catalog.doors.glue.tokens import sorted_page
from catalog.doors.serving.access import Role

_DIGITS = 19
"""Versions are below 2 to the power of 62; tokens have them with leading zeros, so that strings sort as numbers do."""


def require_version(call: Call, table: Found) -> None:
    """Refuse an update of a table that has another version than the request's.

    Raises:
        GlueError: It has.
    """
    expected, current = call.members.get("VersionId"), version_of(table)
    if expected is not None and expected != current:
        raise GlueError(
            "ConcurrentModificationException",
            f"table {table.table.full_name} has version {current}, not {expected}; get it again, and repeat the update",
        )


def former_entry(call: Call, table: Found) -> dict[str, Any]:
    """Return what is kept of a table that is about to be changed: its `Table`."""
    return shown(call.door, table)


def _number(version_id: str) -> int:
    """Return a version's number.

    Raises:
        GlueError: It is no number.
    """
    if not (version_id.isascii() and version_id.isdigit()) or len(version_id) > _DIGITS:
        raise invalid_input(f"version_id must be a number, not {version_id[:100]!r}")
    return int(version_id)


def _version(table: dict[str, Any]) -> dict[str, Any]:
    return {"Table": table, "VersionId": table["VersionId"]}


def _get(call: Call) -> Answer:
    table = of_members(call)
    current = shown(call.door, table)
    number = _number(call.members.get("VersionId", current["VersionId"]))
    if number == int(current["VersionId"]):
        return {"TableVersion": _version(current)}
    entry = call.door.catalog.former_definitions.get(table.table, number)
    if entry is None:
        raise not_found("Version not found.")
    return {"TableVersion": _version(dict(entry))}


def _list(call: Call) -> Answer:
    table = of_members(call)
    entries = [*call.door.catalog.former_definitions.list(table.table), shown(call.door, table)]
    page, token = sorted_page(call.operation, call.members, entries, lambda entry: entry["VersionId"].zfill(_DIGITS))
    answer: dict[str, Any] = {"TableVersions": list(map(_version, page))}
    return answer if token is None else {**answer, "NextToken": token}


def _remove(call: Call, table: Found, version_id: str) -> None:
    number = _number(version_id)
    if version_id == version_of(table):
        raise invalid_input(f"version {version_id} is the current one; delete the table instead")
    if not call.door.catalog.former_definitions.delete(table.table, number):
        raise not_found("Version not found.")


def _delete(call: Call) -> Answer:
    _remove(call, of_members(call), call.members["VersionId"])
    return {}


def _delete_batch(call: Call) -> Answer:
    table, errors = of_members(call), []
    for version_id in call.members["VersionIds"]:
        try:
            _remove(call, table, version_id)
        except GlueError as error:
            detail = {"ErrorCode": error.code, "ErrorMessage": str(error)}
            errors.append({"TableName": call.members["TableName"], "VersionId": version_id, "ErrorDetail": detail})
    return {"Errors": errors} if errors else {}


OPERATIONS = {
    "GetTableVersion": Operation(_get, Role.READER),
    "GetTableVersions": Operation(_list, Role.READER),
    "DeleteTableVersion": Operation(_delete, Role.OWNER),
    "BatchDeleteTableVersion": Operation(_delete_batch, Role.OWNER),
}
