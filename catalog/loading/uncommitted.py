"""Files that a load or an append has moved to the folder of an existing partition and not committed.

New rows of an existing partition are moved to its folder before the transaction that counts them, so that it never
lacks rows that are counted. Until the commit, which never comes if the process is killed, readers of the folder have to
leave these files out to see one version of the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import Connection, func, select

from catalog.errors import MissingFileError
from catalog.files.filesystem import Folder
from catalog.model import Table
from catalog.operations.attempts import attempt_name
from catalog.operations.records import FINISHED
from catalog.operations.staging import STAGING, read_staged
from catalog.partitions.staged import reserving_attempts
from catalog.storage import Storage
from catalog.storage.schema import OperationRow, StagedPartitionRow
from catalog.storage.values import ValueEncoder


class Mark(NamedTuple):
    """The state of a table's publications: the folders' files are those of one version while it stays the same.

    Attributes:
        attempts: The operation number and attempt of each that has begun to move files.
        committed: The number of the table's committed operations.
        newest: The number of the newest of them.
    """

    attempts: tuple[tuple[int, int], ...]
    committed: int
    newest: int | None


class UncommittedFiles(NamedTuple):
    """The uncommitted files in the folders of a table.

    Attributes:
        mark: The state in which they were found; None if it has changed meanwhile.
        names: Location of a partition, or of a table without partition keys → the names of the files.
    """

    mark: Mark | None
    names: Mapping[str, frozenset[str]]


def find_mark(storage: Storage, table: Table) -> Mark:
    """Return the state of a table's publications."""
    with storage.read() as connection:
        return _mark(connection, table)


def uncommitted_files(storage: Storage, table: Table) -> UncommittedFiles:
    """Return the files that readers of a table's folders have to leave out."""
    row = StagedPartitionRow
    query = select(row.operation_number, row.attempt, row.identity, row.location).where(
        row.table_id == table.id, ~row.is_new, row.refused.is_(None)
    )
    with storage.read() as connection:
        mark = _mark(connection, table)
        # Nearly always none, which costs one look at an index.
        locations: dict[tuple[int, int], dict[bytes, str]] = {}
        for number, attempt, identity, location in connection.execute(query) if mark.attempts else ():
            locations.setdefault((number, attempt), {})[identity] = location
    names: dict[str, frozenset[str]] = {}
    folder, encoder = Folder(table.location), ValueEncoder(table)
    for numbers, of_identity in locations.items():
        try:
            for staged in read_staged(folder, f"{STAGING}/{attempt_name(storage, *numbers).name}"):
                if found := of_identity.get(encoder.identity(staged.values)):
                    names[found] = names.get(found, frozenset()) | frozenset(staged.files)
        except MissingFileError:
            # Committed or withdrawn since.
            return UncommittedFiles(None, {})
    return UncommittedFiles(mark, names)


def _mark(connection: Connection, table: Table) -> Mark:
    operation = OperationRow
    finished = (operation.table_id == table.id, operation.state.in_(FINISHED))
    counted = connection.execute(select(func.count(), func.max(operation.number)).where(*finished)).one()
    return Mark(tuple(sorted(reserving_attempts(connection, table))), *counted)
