"""Glue's operations on the catalog as a whole."""

from __future__ import annotations

from catalog.doors.glue.calls import Answer, Call, Operation
from catalog.doors.serving.access import Role


def _import_status(call: Call) -> Answer:
    # Clients refuse a catalog whose tables are still to be imported from Athena's former one.
    return {"ImportStatus": {"ImportCompleted": True}}


OPERATIONS = {"GetCatalogImportStatus": Operation(_import_status, Role.READER)}
