"""The operations of Glue that the door answers, by their names."""

from __future__ import annotations

from collections.abc import Mapping

from catalog.doors.glue.calls import Operation
from catalog.doors.glue.operations import (
    databases,
    functions,
    indexes,
    others,
    partitions,
    statistics,
    tables,
    versions,
)

OPERATIONS: Mapping[str, Operation] = {
    **databases.OPERATIONS,
    **tables.OPERATIONS,
    **versions.OPERATIONS,
    **partitions.OPERATIONS,
    **indexes.OPERATIONS,
    **statistics.OPERATIONS,
    **functions.OPERATIONS,
    **others.OPERATIONS,
}
