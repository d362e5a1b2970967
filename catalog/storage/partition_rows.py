"""Rows of partitions, and their conversion to partitions."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, Connection, Select, and_, select, tuple_

from catalog.model import Partition, PartitionState, Table
from catalog.model.partition_names import LACKING_VALUE, NULL_VALUE, folder_start, folder_template, unpack_values
from catalog.storage.properties import read_properties
from catalog.storage.schema import PartitionRow
from catalog.types.memo import Memo

PARTITION_COLUMNS = (
    "id",
    "packed_values",
    "location",
    "file_count",
    "row_count",
    "size_bytes",
    "properties",
    "is_quarantined",
    "created_at_ms",
    "descriptor_id",
)
"""Columns of a partition's row, in the order of all queries."""

_COLUMNS = [getattr(PartitionRow, column) for column in PARTITION_COLUMNS]

PartitionRecord: TypeAlias = Sequence[Any]
"""The columns `PARTITION_COLUMNS` of a partition's row."""

IN_ORDER = (PartitionRow.table_id, PartitionRow.id)
"""The order in which `partitions_after` finds partitions."""

_STATES = (PartitionState.VISIBLE, PartitionState.QUARANTINED)


@contextmanager
def collected_once() -> Iterator[None]:
    """Have the collector look at the objects of the block after it, and not again and again while they are made.

    For blocks that make many objects without cycles, such as rows: to look at them takes as long as to make them.
    Threads that run meanwhile collect later, too; the collector is on again at the end, if it was on before.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def partition_query(table: Table) -> Select[*tuple[Any, ...]]:
    """Return the query of a table's partitions for `PartitionFactory`."""
    return select(*_COLUMNS).where(PartitionRow.table_id == table.id)


def partitions_in_order(table: Table, after: int = 0, *, newest_first: bool = False) -> Select[*tuple[Any, ...]]:
    """Return the query of a table's partitions with greater ids for `PartitionFactory`, in the order of the ids."""
    order = [column.desc() for column in IN_ORDER] if newest_first else IN_ORDER
    return select(*_COLUMNS).where(partitions_after(table.id, after)).order_by(*order)


def partitions_after(table_id: int | ColumnElement[int], partition_id: int = 0) -> ColumnElement[bool]:
    """Return the condition of a table's partitions with greater ids, for queries of the first or last `IN_ORDER`.

    With `table_id = …`, PostgreSQL may read the primary key instead of the index of both columns, and walk over the
    partitions of all other tables.
    """
    return and_(tuple_(*IN_ORDER) > tuple_(table_id, partition_id), PartitionRow.table_id <= table_id)


def newest_partition(table_id: int | ColumnElement[int]) -> Select[int]:
    """Return the query of the greatest partition id of a table, without a row if it has none."""
    newest_first = (column.desc() for column in IN_ORDER)
    return select(PartitionRow.id).where(partitions_after(table_id)).order_by(*newest_first).limit(1)


def outermost_partitions(connection: Connection, table_id: int) -> tuple[int, int]:
    """Return the least and the greatest partition id of a table; 0 if it has none."""
    oldest = select(PartitionRow.id).where(partitions_after(table_id)).order_by(*IN_ORDER).limit(1)
    return connection.scalar(oldest) or 0, connection.scalar(newest_partition(table_id)) or 0


def names_of(keys: Sequence[str], packed: Sequence[str]) -> list[str]:
    """Return the names `k=v/k2=v2` of partitions, as `Partition.name` does, given their packed values of some keys."""
    template = "/".join(folder_start(key).replace("%", "%%") + "%s" for key in keys)
    names = []
    for values in packed:
        pieces = values.split("/")
        if LACKING_VALUE in pieces:
            pieces = [NULL_VALUE if piece == LACKING_VALUE else piece for piece in pieces]
        names.append(template % tuple(pieces))
    return names


class PartitionFactory:
    """Converter of rows to the partitions of one table."""

    def __init__(self, table: Table) -> None:
        """Prepare the default locations and the cache of properties."""
        self._properties = Memo(read_properties)
        self._default_location = folder_template(table.location, table.key_names)

    def make(self, row: PartitionRecord) -> Partition:
        """Return the partition of a row."""
        return self.make_all([row])[0]

    @collected_once()
    def make_all(self, rows: Sequence[PartitionRecord]) -> list[Partition]:
        """Return the partitions of rows, in their order."""
        default_location, properties, states, new = self._default_location, self._properties, _STATES, tuple.__new__
        partitions = []
        for (
            number,
            packed,
            location,
            file_count,
            row_count,
            size_bytes,
            texts,
            is_quarantined,
            created,
            descriptor,
        ) in rows:
            pieces = tuple(packed.split("/"))
            values = unpack_values(packed) if "%" in packed or NULL_VALUE in packed else pieces
            if location is None:
                location = default_location % pieces
            own_properties, own_format = properties[texts]
            fields = (
                number,
                values,
                location,
                file_count,
                row_count,
                size_bytes,
                own_properties,
                states[is_quarantined],
                created,
                own_format,
                descriptor,
            )
            # Bypasses the constructor of the named tuple, which takes as long as all the rest.
            partitions.append(new(Partition, fields))
        return partitions
