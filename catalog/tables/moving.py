"""Moves of folders that belong to a change of the catalog, such as the rename of a managed table.

A folder cannot be moved in a transaction of the catalog. The journal therefore gets an operation before a folder moves,
and claims both places (`catalog.tables.purged_folders`). The transaction of the change ends the operation, moves the
folders as its last step, and commits. After a kill or an error in between, the operation still has its claims, and the
folders are moved back:

    by the process itself               after an error
    `settle_table`                      when the table is locked for any other change
    `settle_claim`                      when a table or partition is to get a place that a move has claimed
    `settle_all`                        when `calve serve` starts or replaces a process, and by vacuum

The lock on the table tells whether a move is alive: its transaction has locked the table exclusively, so that folders
that have moved while another transaction has any lock on the table are those of a killed process. An operation that
was ended by others cannot commit any longer; its process journals the move again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from contextvars import Context
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import uuid4

from sqlalchemy import Connection, bindparam, exists, select

from catalog.errors import CatalogError, ConflictError, MissingFileError
from catalog.files.folders import move_folder, move_folder_back, node_of
from catalog.files.locations import is_local
from catalog.model import Table
from catalog.model.identifiers import TableName
from catalog.operations.exclusive import end_running, fail_operation
from catalog.operations.failpoints import Point, reached
from catalog.operations.journal import Operations
from catalog.operations.records import UNFINISHED, OperationKind, OperationState
from catalog.storage import Storage
from catalog.storage.locks import try_hold_table
from catalog.storage.schema import OperationRow, PurgedFolderRow
from catalog.tables.purged_folders import claim_folders, release_folders

if TYPE_CHECKING:
    from catalog.tables.definitions import Definitions

log = logging.getLogger(__name__)

_UNDONE = "UNDONE"
_ATTEMPTS = 10

_HAS_CLAIMS = exists().where(PurgedFolderRow.operation_number == OperationRow.number)
_OF_TABLE = (
    select(OperationRow.number)
    .where(
        OperationRow.table_id == bindparam("table_id"),
        OperationRow.state.in_((*UNFINISHED, OperationState.FAILED)),
        OperationRow.kind == OperationKind.MOVE_FOLDERS,
        _HAS_CLAIMS,
    )
    .order_by(OperationRow.number)
)

Result = TypeVar("Result")


class Move(NamedTuple):
    """A folder on a local disk, and where it is to be.

    Attributes:
        must_exist: Refuse a folder that does not exist; otherwise its target is made.
    """

    location: str
    target: str
    must_exist: bool = False


class _Folder(NamedTuple):
    """A folder to move, and its node; None if it does not exist."""

    move: Move
    node: int | None


class _Journaled(NamedTuple):
    """Moves in the journal: one operation for each table, each with all folders."""

    table_ids: Sequence[int]
    numbers: Sequence[int]
    folders: Sequence[_Folder]


class _NotJournaledError(Exception):
    """The transaction needs moves that are not in the journal; it is rolled back."""

    def __init__(self, tables: Sequence[Table], folders: Sequence[_Folder]) -> None:
        super().__init__(folders)
        self.tables, self.folders = tables, folders


class FolderMoves:
    """Changes of tables that move folders."""

    def __init__(self, storage: Storage, definitions: Definitions, operations: Operations) -> None:
        """Set the storage, the definitions in it, and the journal."""
        self._storage = storage
        self._definitions = definitions
        self._operations = operations

    def run(
        self,
        names: Sequence[TableName | Table],
        change: Callable[[Connection, Sequence[Table]], tuple[Result, Sequence[Move]]],
        *,
        exclusive: bool,
        is_bulk: bool = False,
    ) -> Result:
        """Change tables in one transaction, and move folders just before its commit.

        Args:
            names: The tables, in the order in which they are locked.
            change: Makes the change; returns its result, and the folders to move. It is called again, in a new
                transaction, if any are to be moved.
            exclusive: Lock the tables exclusively even if no folder moves.
            is_bulk: See `Storage.lock_table`.

        Raises:
            CatalogError: An error of the change; the folders are where they were.
            MissingFileError: A folder that must exist does not.
            LocationNotEmptyError: The target of a folder has files.
            StorageError: A folder cannot be moved.
            ConflictError: Others ended the move again and again.
        """
        journaled: _Journaled | None = None
        try:
            for _ in range(_ATTEMPTS):
                try:
                    with self._storage.write() as connection:
                        # First its own operations: the exclusive lock ends all others of the tables.
                        has_begun = journaled is not None and self._has_begun(connection, journaled)
                        is_alone = exclusive or journaled is not None
                        tables = [
                            self._definitions.lock_table(connection, name, exclusive=is_alone, is_bulk=is_bulk)
                            for name in names
                        ]
                        result, moves = change(connection, tables)
                        folders = _found(moves)
                        if folders != (journaled.folders if journaled is not None and has_begun else []):
                            raise _NotJournaledError(tables, folders)
                        _move(moves)
                    if moves:
                        reached(Point.COMMITTED)
                    return result
                except _NotJournaledError as missing:
                    if journaled is not None:
                        self._settle(journaled)
                    journaled = self._journal(missing.tables, missing.folders) if missing.folders else None
        except BaseException:
            if journaled is not None:
                self._settle(journaled)
            raise
        raise ConflictError(f"the folders of {' and '.join(map(str, names))} are in use; try again in a moment")

    def _has_begun(self, connection: Connection, journaled: _Journaled) -> bool:
        """End the operations in the transaction that moves the folders; return whether none was ended by others."""
        for table_id in journaled.table_ids:
            self._storage.lock_table(connection, table_id, exclusive=True)
        for number in journaled.numbers:
            if not end_running(connection, number):
                return False
            release_folders(connection, number)
        return True

    def _journal(self, tables: Sequence[Table], folders: Sequence[_Folder]) -> _Journaled:
        request = {"moves": [[move.location, move.target, node] for move, node in folders]}
        places = [place for move, _ in folders for place in (move.location, move.target)]
        numbers = []
        with self._storage.write() as connection:
            for table in tables:
                name, kind = f"move-{table.full_name}-{uuid4().hex}", OperationKind.MOVE_FOLDERS
                state = OperationState.RUNNING
                number = self._operations.record(connection, name, kind, table, request, state=state).number
                claim_folders(connection, number, places)
                numbers.append(number)
        reached(Point.JOURNALED)
        return _Journaled([table.id for table in tables], numbers, folders)

    def _settle(self, journaled: _Journaled) -> None:
        """End moves after an error; do nothing if their transaction was committed."""
        # A request that was interrupted (`catalog.storage.interrupting`) has no further transactions of its own.
        Context().run(self._settle_alone, journaled)

    def _settle_alone(self, journaled: _Journaled) -> None:
        try:
            with self._storage.write() as connection:
                for table_id in journaled.table_ids:
                    self._storage.lock_table(connection, table_id, exclusive=True)
                for number in journaled.numbers:
                    _settle(connection, number)
        except CatalogError as error:
            # The claims stay, so that others settle the moves.
            log.warning("a move of folders was not undone: %s", error)


def _found(moves: Sequence[Move]) -> list[_Folder]:
    """Look for folders.

    Raises:
        MissingFileError: One that must exist does not.
    """
    folders = [_Folder(move, node_of(move.location)) for move in moves]
    for move, node in folders:
        if move.must_exist and node is None:
            raise MissingFileError(f"{move.location} does not exist, so it cannot be moved to {move.target}")
    return folders


def _move(moves: Sequence[Move]) -> None:
    if not moves:
        return
    reached(Point.CHANGED)
    for move in moves:
        move_folder(move.location, move.target)
        reached(Point.PARTLY_MOVED)
    reached(Point.MOVED)


def settle_table(connection: Connection, table: Table, *, exclusive: bool) -> None:
    """Move folders back that killed processes have moved; the caller has locked the table.

    Args:
        exclusive: The lock is exclusive: end moves that have not begun, too. A shared one would end those of processes
            that wait for their lock again and again.

    Raises:
        LocationNotEmptyError: Others have written files of the same names where a folder was.
        StorageError: A folder cannot be moved.
    """
    if not is_local(table.location):
        return
    for number in connection.scalars(_OF_TABLE, {"table_id": table.id}).all():
        if exclusive or _has_moved(connection, number):
            _settle(connection, number)


def settle_claim(connection: Connection, number: int) -> bool:
    """End the move of an operation, unless it is running now; return whether it has ended."""
    table_id = connection.scalar(select(OperationRow.table_id).where(OperationRow.number == number))
    if table_id is not None and not try_hold_table(connection, table_id):
        return False
    _settle(connection, number)
    return True


def settle_all(storage: Storage) -> int:
    """End the moves of killed processes; return their number.

    A move whose transaction has not begun yet is ended, too; its process journals it again.

    Raises:
        LocationNotEmptyError, StorageError: A folder cannot be moved back; the moves of other operations were ended.
    """
    row, problems, ended = OperationRow, list[CatalogError](), 0
    with storage.read() as connection:
        query = select(row.number).where(row.number.in_(select(PurgedFolderRow.operation_number)))
        numbers = connection.scalars(query.where(row.kind == OperationKind.MOVE_FOLDERS).order_by(row.number)).all()
    for number in numbers:
        try:
            with storage.write() as connection:
                ended += settle_claim(connection, number)
        except CatalogError as error:
            problems.append(error)
    if problems:
        raise problems[0]
    return ended


def _settle(connection: Connection, number: int) -> None:
    """Move folders back, and end their operation, unless it has committed."""
    row = OperationRow
    query = select(row.state, row.request).where(row.number == number).with_for_update()
    operation = connection.execute(query).one_or_none()
    if operation is None or operation.state == OperationState.CLEANED:
        return
    for location, target in reversed(_moved(operation.request["moves"])):
        log.warning("the folder %s of an interrupted move returns to %s", target, location)
        move_folder_back(location, target)
    fail_operation(connection, number, _UNDONE, "the process ended before its commit; the folders are where they were")
    release_folders(connection, number)


def _has_moved(connection: Connection, number: int) -> bool:
    request = connection.scalar(select(OperationRow.request).where(OperationRow.number == number))
    return request is not None and bool(_moved(request["moves"]))


def _moved(moves: Collection[Any]) -> list[tuple[str, str]]:
    """Return the folders that are at their targets: by their nodes, as others may have folders of the same names."""
    return [(location, target) for location, target, node in moves if node is not None and node_of(target) == node]
