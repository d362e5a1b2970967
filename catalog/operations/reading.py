"""Queries of the journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, exists, func, or_, select

from catalog.model import Table
from catalog.model.identifiers import TableName
from catalog.operations.records import DRY_RUN, FINISHED, UNFINISHED, Operation, OperationKind, OperationState
from catalog.operations.rows import is_abandoned, operation_row, select_operation, select_operations, to_operation
from catalog.operations.tables import belongs_to, find_table_id
from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.schema import DatabaseRow, OperationRow, TableRow

_WORK = ("statement", "source", "index", "change", "where", "values")
"""The fields of requests that tell the work of operations of one kind on one table apart."""


class JournalReader:
    """The operations of one catalog, to be read; `Operations` changes them."""

    _storage: Storage

    def committed(self, kind: OperationKind) -> list[Operation]:
        """Return the operations of a kind that have work left after their commit, oldest first."""
        query = select_operations().where(OperationRow.kind == kind, OperationRow.state == OperationState.COMMITTED)
        with self._storage.read() as connection:
            return [to_operation(row) for row in connection.execute(query.order_by(OperationRow.number))]

    def get(self, operation_id: str) -> Operation:
        """Return an operation.

        Raises:
            OperationNotFoundError: There is no operation of this id.
        """
        with self._storage.read() as connection:
            return to_operation(operation_row(connection, operation_id))

    def find(self, operation_id: str) -> Operation | None:
        """Return an operation; None when there is no operation of this id."""
        with self._storage.read() as connection:
            row = connection.execute(select_operation(operation_id)).one_or_none()
        return None if row is None else to_operation(row)

    def find_by_number(self, number: int) -> Operation | None:
        """Return the operation of a number; None when there is none."""
        with self._storage.read() as connection:
            row = connection.execute(select_operations().where(OperationRow.number == number)).one_or_none()
        return None if row is None else to_operation(row)

    def get_states(self, operation_ids: Iterable[str]) -> dict[str, OperationState]:
        """Return the states of many operations by id, with one statement; those that do not exist are missing."""
        row, states = OperationRow, dict[str, OperationState]()
        with self._storage.read() as connection:
            for batch in batched(operation_ids):
                query = select(row.id, row.state).where(among(connection, row.id, batch))
                states |= {number: OperationState(state) for number, state in connection.execute(query)}
        return states

    def list(
        self,
        table: str | None = None,
        *,
        states: Sequence[OperationState] = (),
        kinds: Sequence[OperationKind] = (),
        since_ms: int | None = None,
        before: int | None = None,
        within: str | None = None,
        search: str | None = None,
        with_dry_runs: bool = True,
        with_overcome: bool = True,
        limit: int = 50,
    ) -> list[Operation]:
        """Return the latest operations, newest first; of all tables, or of one (`database.name`).

        Those of a table include operations that started under this name and those of the table that has it now.

        Args:
            states: Only operations in one of these states; empty for all.
            kinds: Only operations of one of these kinds; empty for all.
            since_ms: Only operations that began at this time or later, in milliseconds since 1970 UTC.
            before: Only operations with a number below this one, for the next page.
            within: Only the operation of this id, and those whose id continues it after a slash: `dag/run` for the
                operations of one run in Airflow, `dag` for those of all runs.
            search: Only operations of tables whose name contains this, whatever its case; the name at their start or
                the present one.
            with_dry_runs: Whether to include the plans of dry runs (`catalog.operations.dry_runs`), and loads that only
                check files.
            with_overcome: Whether to include failures after which the same work has succeeded, or has failed, too: an
                operation of the same kind, table, and statement, source or condition.
        """
        query = select_operations().order_by(OperationRow.number.desc()).limit(limit)
        if kinds:
            query = query.where(OperationRow.kind.in_(kinds))
        if since_ms is not None:
            query = query.where(OperationRow.created_at_ms >= since_ms)
        if before is not None:
            query = query.where(OperationRow.number < before)
        if not with_dry_runs:
            query = query.where(~_is_dry_run(OperationRow))
        if not with_overcome:
            query = query.where(~_is_overcome())
        if search:
            name = DatabaseRow.name + "." + TableRow.name
            found = select(TableRow.id).join(DatabaseRow, DatabaseRow.id == TableRow.database_id)
            found = found.where(name.contains(search.lower(), autoescape=True))
            was_found = OperationRow.table_name.contains(search.lower(), autoescape=True)
            query = query.where(or_(was_found, OperationRow.table_id.in_(found)))
        if within is not None:
            # Not LIKE, which ignores the case on SQLite.
            start = func.substr(OperationRow.id, 1, len(within) + 1)
            query = query.where(or_(OperationRow.id == within, start == f"{within}/"))
        with self._storage.read() as connection:
            return [to_operation(row) for row in connection.execute(query.where(*_chosen(connection, table, states)))]

    def count(self, table: str | None = None, *, states: Sequence[OperationState] = ()) -> int:
        """Return the number of operations that `list` returns without a limit."""
        with self._storage.read() as connection:
            query = select(func.count()).select_from(OperationRow).where(*_chosen(connection, table, states))
            return connection.scalar(query) or 0

    def is_running(self, operation_id: str) -> bool:
        """Return whether an operation is unfinished, and not abandoned."""
        query = select(OperationRow.number).where(
            OperationRow.id == operation_id, OperationRow.state.in_(UNFINISHED), ~is_abandoned()
        )
        with self._storage.read() as connection:
            return connection.scalar(query) is not None

    def oldest_unfinished_ms(self, table: Table) -> int | None:
        """Return the time at which the oldest unfinished operation on a table began; None when there is none."""
        row = OperationRow
        query = select(func.min(row.created_at_ms)).where(
            belongs_to(table.id, table.full_name), row.state.in_(UNFINISHED)
        )
        with self._storage.read() as connection:
            return connection.scalar(query)

    def abandoned(self) -> Sequence[Operation]:
        """Return the abandoned unfinished operations, oldest first.

        They had no heartbeat for `LEASE_MS`; or for `SILENT_LEASE_MS`, where an attempt never sent one.
        """
        query = select_operations().where(is_abandoned()).order_by(OperationRow.number)
        with self._storage.read() as connection:
            return [to_operation(row) for row in connection.execute(query)]


def _is_dry_run(row: Any) -> ColumnElement[bool]:
    """Return the condition that an operation is the plan of a dry run, or a load that only checks files.

    Args:
        row: `OperationRow`, or the columns of an alias of its table.
    """
    only_checks: ColumnElement[Any] = row.request["settings"]["request"]["dry_run"].as_boolean()
    return or_(func.coalesce(row.failure_code, "") == DRY_RUN, func.coalesce(only_checks, False))


def _is_overcome() -> ColumnElement[bool]:
    """Return the condition that an operation has failed, and a later one for the same work has ended."""
    later = OperationRow.__table__.alias().c
    same_work = [_text_of(later.request, name) == _text_of(OperationRow.request, name) for name in _WORK]
    ended = exists().where(
        later.table_name == OperationRow.table_name,
        later.state.in_((*FINISHED, OperationState.FAILED)),
        later.kind == OperationRow.kind,
        later.number > OperationRow.number,
        ~_is_dry_run(later),
        *same_work,
    )
    return and_(OperationRow.state == OperationState.FAILED, ended)


def _text_of(request: Any, name: str) -> ColumnElement[str]:
    """Return a field of a request as text; an empty one if it has none."""
    text: ColumnElement[str] = request[name].as_string()
    return func.coalesce(text, "")


def _chosen(
    connection: Connection, table: str | None, states: Sequence[OperationState]
) -> Iterator[ColumnElement[bool]]:
    if states:
        yield OperationRow.state.in_(states)
    if table is not None:
        was_its = OperationRow.table_name == str(TableName.parse(table))
        # Operations on tables that did not exist yet have no id, either.
        table_id = find_table_id(connection, table)
        yield was_its if table_id is None else or_(was_its, OperationRow.table_id == table_id)
