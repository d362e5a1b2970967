"""Search for folders below a table that others need: other tables, Iceberg's metadata, and running loads."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sqlalchemy import select

from catalog.iceberg.reachability import Reachability
from catalog.model import Table
from catalog.operations.attempts import attempts_among
from catalog.operations.records import UNFINISHED
from catalog.operations.staging import STAGING, VERSIONS
from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.schema import OperationRow, StagedPartitionRow
from catalog.tables.neighbours import neighbours


def folders_in_use(storage: Storage, reachability: Reachability, table: Table, folders: Collection[str]) -> set[str]:
    """Return the folders, among some below a table's location, whose files somebody besides the table's readers needs.

    These are folders of other tables or their partitions, folders whose files the metadata of an Iceberg table refers
    to, and folders of loads that are running, of the table's files that are staged or moved and not visible yet. The
    folders of the table's own partitions are only included if their location is not the default. Read these
    afterwards, because a load may commit meanwhile.

    Raises:
        UnreadableMetadataError: Metadata of an Iceberg table cannot be read, so whether it needs files is unknown.
    """
    row, in_use = StagedPartitionRow, set[str]()
    written = {folder: number for folder in folders if (number := _writer(storage, table, folder)) is not None}
    with storage.read() as connection:
        for batch in batched(folders):
            reserved = select(row.location).where(row.table_id == table.id, among(connection, row.location, batch))
            in_use.update(connection.scalars(reserved))
        running = OperationRow.number.in_(set(written.values())), OperationRow.state.in_(UNFINISHED)
        numbers = set(connection.scalars(select(OperationRow.number).where(*running)))
        in_use.update(folder for folder, number in written.items() if number in numbers)
        for near in neighbours(connection, folders):
            if not near.path and (near.is_partition or near.table_id != table.id):
                in_use.add(near.folder)
    # Of nested folders, only the outermost is a neighbour of what contains it.
    in_use.update(folder for folder in folders if in_use.intersection(_above(folder, table.location)))
    return in_use | set(reachability.reached(set(folders) - in_use, besides=(table.full_name,)))


def _above(folder: str, root: str) -> Iterator[str]:
    """Yield the folders around a folder, up to a table's location."""
    while len(folder) > len(root):
        folder = folder.rpartition("/")[0]
        yield folder


def _writer(storage: Storage, table: Table, folder: str) -> int | None:
    """Return the number of the operation whose attempt writes to a folder; None if it is no folder of an attempt."""
    parts = folder.removeprefix(f"{table.location}/").split("/")
    if parts[0] not in (STAGING, VERSIONS):
        return None
    return next((attempt.number for attempt in attempts_among(storage, parts[1:2])), None)
