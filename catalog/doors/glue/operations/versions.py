"""Glue's operations on the versions of tables."""

from __future__ import annotations

from typing import Any

from catalog.doors.glue.calls import Answer, Call, Operation
from catalog.doors.glue.failures import GlueError, invalid_input, not_found
from catalog.doors.glue.forms.tables import table_to_glue
from catalog.doors.glue.operations.finding import Found, of_members, shown, version_id, version_of
from catalog.doors.glue.tokens import sorted_page
from catalog.doors.serving.access import Role
from catalog.errors import TableNotFoundError

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


def _number(version_id: str) -> int:
    """Return a version's number.

    Raises:
        GlueError: It is no number.
    """
    if not (version_id.isascii() and version_id.isdigit()) or len(version_id) > _DIGITS:
        raise invalid_input(f"version_id must be a number, not {version_id[:100]!r}")
    return int(version_id)


def _versions(call: Call, table: Found) -> list[dict[str, Any]]:
    """Return the versions of a table, as `Table`, the current one last."""
    if table.is_iceberg:
        return [shown(call.door, table)]
    versions = call.door.entries.versions(table.entry.name)
    return [
        table_to_glue(version.entry, call.door.catalog_id, version_id(version.number)) for version in reversed(versions)
    ]


def _version(table: dict[str, Any]) -> dict[str, Any]:
    return {"Table": table, "VersionId": table["VersionId"]}


def _get(call: Call) -> Answer:
    versions = _versions(call, of_members(call))
    asked = call.members.get("VersionId", versions[-1]["VersionId"])
    number = _number(asked)
    version = next((table for table in versions if int(table["VersionId"]) == number), None)
    if version is None:
        raise _missing()
    return {"TableVersion": _version(version)}


def _missing() -> GlueError:
    return not_found("Version not found.")


def _list(call: Call) -> Answer:
    versions = _versions(call, of_members(call))
    page, token = sorted_page(call.operation, call.members, versions, lambda table: table["VersionId"].zfill(_DIGITS))
    answer: dict[str, Any] = {"TableVersions": list(map(_version, page))}
    return answer if token is None else {**answer, "NextToken": token}


def _remove(call: Call, table: Found, asked: str) -> None:
    number = _number(asked)
    if asked == version_of(table):
        raise invalid_input(f"version {asked} is the current one; delete the table instead")
    try:
        call.door.entries.delete_version(table.entry.name, number - 1)
    except TableNotFoundError:
        raise _missing() from None


def _delete(call: Call) -> Answer:
    _remove(call, of_members(call), call.members["VersionId"])
    return {}


def _delete_batch(call: Call) -> Answer:
    table, errors = of_members(call), []
    for version in call.members["VersionIds"]:
        try:
            _remove(call, table, version)
        except GlueError as error:
            detail = {"ErrorCode": error.code, "ErrorMessage": str(error)}
            errors.append({"TableName": call.members["TableName"], "VersionId": version, "ErrorDetail": detail})
    return {"Errors": errors} if errors else {}


OPERATIONS = {
    "GetTableVersion": Operation(_get, Role.READER),
    "GetTableVersions": Operation(_list, Role.READER),
    "DeleteTableVersion": Operation(_delete, Role.OWNER),
    "BatchDeleteTableVersion": Operation(_delete_batch, Role.OWNER),
}
