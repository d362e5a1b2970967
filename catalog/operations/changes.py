"""The record of changed partitions that are still to be announced, for instance as events of Airflow's assets.

Each transaction that makes, changes, releases or drops partitions records them itself, so that none is missed whichever
door it came through, and none is recorded that was rolled back. Whoever announces partitions claims their records
first, in a transaction: a record is claimed once, so that none is announced twice. A load that announces its partitions
itself claims their records when it makes them. Compactions change no row, and are not recorded.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, insert, select

from catalog.model import Table
from catalog.operations.records import OperationKind
from catalog.storage.clock import CurrentMs
from catalog.storage.schema import OperationRow, PartitionChangeRow

ANNOUNCES = "announces"
"""The field of a load's settings that says that the load announces its partitions itself, after its quality check."""

COMPACT = "compact"
"""The change in the request of an operation that compacts partitions."""


def is_compaction() -> ColumnElement[bool]:
    """Return the condition that an operation compacts partitions, so that their rows stay the same."""
    change: ColumnElement[Any] = OperationRow.request["change"].as_string()
    return and_(OperationRow.kind == OperationKind.CHANGE_ROWS, func.coalesce(change, "") == COMPACT)


def record_changed(
    connection: Connection, table: Table, ids: Collection[int], operation_number: int | None = None
) -> None:
    """Record that partitions were added, changed or released, in the transaction that does it.

    Args:
        ids: Their ids; of a table with a partition scheme, their numbers in the scheme.
        operation_number: The operation that changes them, if there is one.
    """
    if not ids:
        return
    first, last = min(ids), max(ids)
    is_range = last - first + 1 == len(ids)
    _record(connection, table, {"range": [first, last]} if is_range else {"ids": sorted(ids)}, False, operation_number)


def record_dropped(
    connection: Connection, table: Table, values: Sequence[str], operation_number: int | None = None
) -> None:
    """Record that partitions were dropped, in the transaction that does it.

    Args:
        values: Their values, as the catalog stores them.
    """
    if values:
        _record(connection, table, {"values": list(values)}, True, operation_number)


def _record(
    connection: Connection, table: Table, partitions: dict[str, object], is_dropped: bool, number: int | None
) -> None:
    claimer = None
    if number is not None:
        # Here, and not in the claims: of many large requests, that would take seconds each time.
        announces = OperationRow.request["settings"][ANNOUNCES].as_boolean()
        query = select(OperationRow.id, announces.label("announces"), is_compaction().label("is_compaction"))
        operation = connection.execute(query.where(OperationRow.number == number)).one_or_none()
        if operation is not None and operation.is_compaction:
            return
        claimer = operation.id if operation is not None and operation.announces else None
    connection.execute(
        insert(PartitionChangeRow).values(
            table_id=table.id,
            partitions=json.dumps(partitions, separators=(",", ":")),
            is_dropped=is_dropped,
            operation_number=number,
            changed_at_ms=CurrentMs(),
            claimed_by=claimer,
        )
    )
