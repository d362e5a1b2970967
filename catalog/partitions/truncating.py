"""Deletion of all files of a managed table, or of some of its partitions, whose definitions stay.

The files are deleted in the transactions that set the counts to zero, so that no operation writes rows meanwhile. After
an interruption, files may be gone whose counts are still there; a repetition deletes the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, Row, or_, select, update

from catalog.errors import ConflictError, OperationConflictError, UnsupportedChangeError
from catalog.files.folders import make_folders
from catalog.files.locations import comparable, is_within
from catalog.model import Table, TableKind
from catalog.operations.changes import record_changed
from catalog.operations.records import UNFINISHED, OperationKind
from catalog.operations.rows import is_abandoned
from catalog.operations.tables import hold_operations
from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.properties import properties_text, read_properties
from catalog.storage.schema import OperationRow, PartitionRow
from catalog.tables.definitions import Definitions
from catalog.tables.neighbours import neighbours
from catalog.tables.own_files import delete_own_files, is_linked_outside
from catalog.tables.purging import refuse_needed_files, refuse_reached_folders

_BATCH = 100
"""The number of partitions that one transaction empties."""

_COUNTS = ("numFiles", "numRows", "rawDataSize", "totalSize")
"""Properties with numbers that are zero afterwards."""

_WRITING = (
    OperationKind.LOAD_ROWS,
    OperationKind.APPEND_ROWS,
    OperationKind.CHANGE_ROWS,
    OperationKind.COMPACT_PARTITIONS,
)


def truncate(
    storage: Storage, definitions: Definitions, table: Table, partition_ids: Collection[int] | None = None
) -> None:
    """Delete all files in the folder of a managed table without partition keys, or of some partitions.

    Files of other tables and partitions stay, wherever they are.

    Args:
        partition_ids: None for a table without partition keys; those that do not exist any longer are skipped.

    Raises:
        TableNotFoundError: The table was dropped.
        UnsupportedChangeError: The catalog does not own the files; nothing was deleted.
        OperationConflictError: An operation writes to the table.
        FilesNeededError: An Iceberg table needs files; nothing was deleted.
        UnreadableMetadataError: Which files an Iceberg table needs is unknown; nothing was deleted.
        StorageError: The file system refused.
    """
    if table.kind is not TableKind.MANAGED or table.has_file_rows or table.is_iceberg:
        raise UnsupportedChangeError(
            f"the files of table {table.full_name} are not its own, or are in snapshots; delete its rows where they "
            "come from, or with DELETE"
        )
    _Truncation(storage, definitions, table).run(partition_ids)


class _Truncation:
    def __init__(self, storage: Storage, definitions: Definitions, table: Table) -> None:
        self._storage = storage
        self._definitions = definitions
        self._table = table

    def run(self, partition_ids: Collection[int] | None) -> None:
        table = self._table
        if partition_ids is None:
            refuse_reached_folders(self._storage, table.full_name, [table.location])
            with self._storage.write() as connection:
                held = self._hold(connection)
                _empty(connection, held, [held.location])
                zeros = {name: "0" for name in _COUNTS if name in held.properties}
                if zeros:
                    self._definitions.update_table(connection, held, properties={**held.properties, **zeros})
            return
        ids = sorted(partition_ids)
        with self._storage.read() as connection:
            folders = [folder for batch in batched(ids) for folder in _folders(table, _rows(connection, table, batch))]
        refuse_reached_folders(self._storage, table.full_name, folders)
        for batch in batched(ids, _BATCH):
            with self._storage.write() as connection:
                held = self._hold(connection)
                rows = _rows(connection, held, batch)
                folders = _folders(held, rows)
                _refuse_shared(connection, held, rows)
                _empty(connection, held, folders)
                for row in rows:
                    _forget_counts(connection, held, row)
                record_changed(connection, held, [row.id for row in rows])

    def _hold(self, connection: Connection) -> Table:
        """Lock the table against everything that writes to it."""
        held = self._definitions.lock_table(connection, self._table, exclusive=True)
        if (held.kind, held.location) != (self._table.kind, self._table.location) or held.has_file_rows:
            raise ConflictError(f"table {held.full_name} was changed meanwhile; look at it, and repeat the request")
        refuse_needed_files(connection, held)
        hold_operations(connection, held.id)
        row = OperationRow
        is_writing = or_(row.is_exclusive, row.kind.in_(_WRITING)), row.state.in_(UNFINISHED), ~is_abandoned()
        busy = connection.scalar(select(row.id).where(row.table_id == held.id, *is_writing).limit(1))
        if busy is not None:
            raise OperationConflictError(
                f"operation {busy} is changing table {held.full_name}; wait for it, or cancel it: calve give-up "
                f"'{busy}'",
                busy,
            )
        return held


def _rows(connection: Connection, table: Table, ids: Collection[int]) -> Sequence[Row[Any]]:
    row = PartitionRow
    query = select(row.__table__).where(row.table_id == table.id, among(connection, row.id, list(ids)))
    return connection.execute(query.order_by(row.id)).all()


def _folders(table: Table, rows: Sequence[Row[Any]]) -> list[str]:
    """Return the folders of partitions.

    Raises:
        UnsupportedChangeError: One is outside of the table's folder.
    """
    root = comparable(table.location)
    folders = [comparable(table.partition_location(row.packed_values, row.location)) for row in rows]
    for folder in folders:
        if folder == root or not is_within(folder, root):
            raise UnsupportedChangeError(
                f"a partition of table {table.full_name} has its files in {folder}, outside of the table's folder, "
                "where others may use them; drop the partition, and add it again with a new folder"
            )
    return folders


def _refuse_shared(connection: Connection, table: Table, rows: Sequence[Row[Any]]) -> None:
    row, emptied = PartitionRow, {row.id for row in rows}
    own = [row.location for row in rows if row.location is not None]
    sharing = select(row.id, row.location).where(row.table_id == table.id, among(connection, row.location, own))
    for number, location in connection.execute(sharing) if own else ():
        if number not in emptied:
            raise UnsupportedChangeError(
                f"several partitions of table {table.full_name} have their files in {location}; truncate them together"
            )


def _empty(connection: Connection, table: Table, folders: Sequence[str]) -> None:
    for folder in filter(is_linked_outside, folders):
        raise UnsupportedChangeError(
            f"{folder} is behind a symbolic link that leads out of the allowed folders, where files are not deleted; "
            "replace the link by a folder, or drop the partition"
        )
    kept: dict[str, list[str]] = {folder: [] for folder in folders}
    for near in neighbours(connection, folders):
        if near.path:
            kept[near.folder].append(near.path)
        elif near.table_id != table.id:
            raise UnsupportedChangeError(
                f"{near.folder} belongs to table {near.table}, too, so that its files stay; drop one of the tables"
            )
    for folder, paths in kept.items():
        delete_own_files(folder, None, paths)
    make_folders(folders)


def _forget_counts(connection: Connection, table: Table, row: Row[Any]) -> None:
    counts = {name: 0 for name in ("row_count", "file_count", "size_bytes") if getattr(row, name) is not None}
    properties, own_format = read_properties(row.properties)
    zeros = {name: "0" for name in _COUNTS if name in properties}
    values: dict[str, Any] = dict(counts)
    if zeros:
        values["properties"] = properties_text(table, {**properties, **zeros}, own_format)
    if values:
        connection.execute(update(PartitionRow).where(PartitionRow.id == row.id).values(**values))
