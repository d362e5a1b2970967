"""Storage descriptors of partitions that differ from that of their table, as metastores keep them.

A descriptor is JSON that only the front doors read (`catalog.doors.entries`). Partitions with equal descriptors share a
row, which never changes, so that a million partitions with a few descriptors stay small.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from hashlib import blake2b

from sqlalchemy import Connection, select, update
from sqlalchemy.dialects import postgresql, sqlite

from catalog.model import Table
from catalog.storage.bulk import among
from catalog.storage.schema import DescriptorRow, PartitionRow

_DIGEST_BYTES = 16


def descriptor_ids(connection: Connection, table: Table, descriptors: Iterable[str]) -> dict[str, int]:
    """Return the ids of descriptors, after storing those that the table does not have yet.

    Args:
        descriptors: JSON; the same descriptor is always spelled in the same way.
    """
    by_digest = {blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest(): text for text in set(descriptors)}
    row = DescriptorRow
    query = select(row.digest, row.id).where(row.table_id == table.id, among(connection, row.digest, [*by_digest]))
    known = {by_digest[bytes(digest)]: number for digest, number in connection.execute(query)}
    missing = {digest: text for digest, text in sorted(by_digest.items()) if text not in known}
    if not missing:
        return known
    # Another transaction may store the same descriptor; in one order, so that neither waits for the other in a circle.
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    rows = [{"table_id": table.id, "digest": digest, "descriptor": text} for digest, text in missing.items()]
    connection.execute(insert(row).values(rows).on_conflict_do_nothing())
    return {by_digest[bytes(digest)]: number for digest, number in connection.execute(query)}


def read_descriptors(connection: Connection, ids: Collection[int]) -> dict[int, str]:
    """Return descriptors by their ids; what an id means never changes."""
    stored = DescriptorRow
    query = select(stored.id, stored.descriptor).where(among(connection, stored.id, list(ids)))
    return {row.id: row.descriptor for row in connection.execute(query)}


def change_descriptors(connection: Connection, table: Table, change: Callable[[str], str]) -> None:
    """Change the descriptors of all partitions of a table that the caller has locked exclusively.

    Args:
        change: Returns a descriptor after the change, given the one before.
    """
    row = DescriptorRow
    query = select(row.id, row.descriptor).where(row.table_id == table.id)
    before = {stored.id: stored.descriptor for stored in connection.execute(query)}
    after = {number: changed for number, text in before.items() if (changed := change(text)) != text}
    ids = descriptor_ids(connection, table, after.values()) if after else {}
    for number, text in after.items():
        is_old = PartitionRow.table_id == table.id, PartitionRow.descriptor_id == number
        connection.execute(update(PartitionRow).where(*is_old).values(descriptor_id=ids[text]))
