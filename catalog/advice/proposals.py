"""The latest proposals for the partitions of each table, kept so that pages show them without another analysis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, exists, insert, select

from catalog.operations.records import FINISHED, OperationKind
from catalog.storage import Storage
from catalog.storage.clock import read_clock_ms
from catalog.storage.schema import DatabaseRow, OperationRow, ProposalRow, TableRow
from catalog.tables.definitions import Definitions

_ANSWERS = (OperationKind.REBALANCE, OperationKind.COMPACT_PARTITIONS, OperationKind.ROLL_BACK)
"""Kinds of operations after which the earlier proposals for a table no longer hold."""


@dataclass(frozen=True)
class StoredProposal:
    """A change of a table's partitions that was proposed.

    Attributes:
        table: `database.table`.
        statement: The change as a statement.
        reason: Why it is proposed.
        dag: The DAG that makes it.
        request: Values of the DAG's form.
        proposed_at_ms: Milliseconds since 1970 UTC.
    """

    table: str
    statement: str
    reason: str
    dag: str
    request: Mapping[str, Any]
    proposed_at_ms: int


class Proposals:
    """The latest proposals for each table."""

    def __init__(self, storage: Storage, definitions: Definitions) -> None:
        """Use the catalog's database and the definitions in it."""
        self._storage = storage
        self._definitions = definitions

    def replace(self, table: str, proposals: Iterable[Mapping[str, Any]]) -> None:
        """Keep the proposals for a table in place of its earlier ones.

        Args:
            table: `database.table`.
            proposals: Each with `statement`, `reason`, `dag` and `request`; none if nothing is proposed.

        Raises:
            TableNotFoundError: The table does not exist.
        """
        row = ProposalRow
        with self._storage.write() as connection:
            found = self._definitions.get_table(table, connection)
            # Those of dropped tables go, too: no page shows them.
            is_gone = ~exists(select(TableRow.id).where(TableRow.id == row.table_id))
            connection.execute(delete(row).where((row.table_id == found.id) | is_gone))
            now_ms = read_clock_ms(connection)
            rows = [
                {
                    "table_id": found.id,
                    "position": position,
                    "table_name": found.full_name,
                    "statement": proposal["statement"],
                    "reason": proposal["reason"],
                    "dag": proposal["dag"],
                    "request": dict(proposal["request"]),
                    "proposed_at_ms": now_ms,
                }
                for position, proposal in enumerate(proposals)
            ]
            if rows:
                connection.execute(insert(row), rows)

    def list(self, *, limit: int = 100) -> list[StoredProposal]:
        """Return the proposals that still hold, by table.

        A proposal no longer holds if its table was rebalanced, compacted, rolled back or renamed since.

        Args:
            limit: The maximum number.
        """
        row, operation = ProposalRow, OperationRow
        name = DatabaseRow.name + "." + TableRow.name
        is_answered = exists(
            select(operation.number).where(
                operation.table_id == row.table_id,
                operation.state.in_(FINISHED),
                operation.kind.in_(_ANSWERS),
                operation.created_at_ms >= row.proposed_at_ms,
            )
        )
        query = (
            select(row.table_name, row.statement, row.reason, row.dag, row.request, row.proposed_at_ms)
            .join(TableRow, TableRow.id == row.table_id)
            .join(DatabaseRow, DatabaseRow.id == TableRow.database_id)
            .where(name == row.table_name, ~is_answered)
            .order_by(row.table_name, row.position)
            .limit(limit)
        )
        with self._storage.read() as connection:
            return [StoredProposal(*found) for found in connection.execute(query)]
