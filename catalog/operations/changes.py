"""The record of changed partitions that are still to be announced, for instance as events of Airflow's assets.

Each transaction that makes, changes, releases or drops partitions records them itself, so that none is missed whichever
door it came through, and none is recorded that was rolled back. Whoever announces partitions claims their records
first, in a transaction: a record is claimed once, so that none is announced twice. A load that announces its partitions
itself claims their records when it makes them. Compactions change no row, and are not recorded.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, insert, select

from catalog.model import PARTITION_ID, Table
from catalog.operations.records import OperationKind
from catalog.storage.bulk import batched
from catalog.storage.clock import CurrentMs
from catalog.storage.schema import OperationRow, PartitionChangeRow

ANNOUNCES = "announces"
"""The field of a load's settings that says that the load announces its partitions itself, after its quality check."""

COMPACT = "compact"
"""The change in the request of an operation that compacts partitions."""

_MEMBERS = 10_000
"""The number of partitions in a record, except in a range of ids."""


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
    parts = [{"range": [first, last]}] if is_range else [{"ids": part} for part in batched(sorted(ids), _MEMBERS)]
    _record(connection, table.id, parts, False, operation_number)


def record_dropped(
    connection: Connection, table: Table, values: Sequence[str], operation_number: int | None = None
) -> None:
    """Record that partitions were dropped, in the transaction that does it.

    Args:
        values: Their values, as the catalog stores them; of a table with a partition scheme, their numbers.
    """
    names = (f"{PARTITION_ID}={value}" if table.scheme else table.partition_name(value) for value in values)
    record_names_dropped(connection, table.id, table.full_name, names, operation_number)


def record_names_dropped(
    connection: Connection, table_id: int, table: str, names: Iterable[str], operation_number: int | None = None
) -> None:
    """Record that partitions were dropped whose table may be dropped, too, in the transaction that does it.

    Args:
        table: The name by which they are announced if the table does not exist any longer.
        names: As in paths, `k=v/k2=v2`; of a table with a partition scheme, `_partition_id=3`.
    """
    parts = [{"names": part, "table": table} for part in batched(names, _MEMBERS)]
    if parts:
        _record(connection, table_id, parts, True, operation_number)


def _record(
    connection: Connection, table_id: int, parts: Sequence[Mapping[str, object]], is_dropped: bool, number: int | None
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
    row = {"table_id": table_id, "is_dropped": is_dropped, "operation_number": number, "claimed_by": claimer}
    for part in parts:
        text = json.dumps(part, separators=(",", ":"))
        connection.execute(insert(PartitionChangeRow).values(**row, partitions=text, changed_at_ms=CurrentMs()))
