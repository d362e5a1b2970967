"""Glue's operations on databases."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from catalog.doors.glue.calls import Answer, Call, Operation
from catalog.doors.glue.failures import invalid_input, not_found
from catalog.doors.glue.forms.databases import database_from_glue, database_to_glue
from catalog.doors.glue.names import to_calve
from catalog.doors.glue.tokens import sorted_page
from catalog.doors.serving.access import Role
from catalog.errors import DatabaseNotFoundError
from catalog.metastores.types import HiveDatabase

_NAMES_ONLY = ("Name", "CatalogId")


def _create(call: Call) -> Answer:
    given = call.members["DatabaseInput"]
    entry = database_from_glue(given, to_calve(given["Name"], "database"))
    call.door.entries.create_database(replace(entry, created_at=int(time.time())))
    return {}


def find_database(call: Call, name: str) -> HiveDatabase:
    """Return a database.

    Raises:
        GlueError: It does not exist.
    """
    try:
        return call.door.entries.database(to_calve(name, "database"))
    except DatabaseNotFoundError:
        raise not_found(f"Database {name} not found.") from None


def _get(call: Call) -> Answer:
    return {"Database": database_to_glue(find_database(call, call.members["Name"]), call.door.catalog_id)}


def _list(call: Call) -> Answer:
    page, token = sorted_page(
        call.operation, call.members, call.door.entries.databases(), lambda database: database.name
    )
    shown = [database_to_glue(database, call.door.catalog_id) for database in page]
    if call.members.get("AttributesToGet") == ["NAME"]:
        shown = [{field: database[field] for field in _NAMES_ONLY} for database in shown]
    answer: dict[str, Any] = {"DatabaseList": shown}
    return answer if token is None else {**answer, "NextToken": token}


def _update(call: Call) -> Answer:
    given, name = call.members["DatabaseInput"], to_calve(call.members["Name"], "database")
    if (new_name := to_calve(given["Name"], "database")) != name:
        raise invalid_input(f"database {name} cannot be renamed to {new_name}; DatabaseInput needs the same Name")
    before = find_database(call, call.members["Name"])
    entry = replace(database_from_glue(given, name), created_at=before.created_at)
    call.door.entries.alter_database(name, entry)
    return {}


def _delete(call: Call) -> Answer:
    name = find_database(call, call.members["Name"]).name
    # As in Glue, the tables of the database go with it, and no file does.
    call.door.entries.drop_database(name, cascade=True)
    return {}


OPERATIONS = {
    "CreateDatabase": Operation(_create, Role.OWNER),
    "GetDatabase": Operation(_get, Role.READER),
    "GetDatabases": Operation(_list, Role.READER),
    "UpdateDatabase": Operation(_update, Role.OWNER),
    "DeleteDatabase": Operation(_delete, Role.OWNER),
}
