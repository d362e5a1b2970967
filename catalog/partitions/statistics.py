"""Statistics of columns that engines have computed, of tables and of partitions.

Calve only keeps them: they are JSON that the front doors read (`catalog.doors.entries`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from catalog.errors import PartitionNotFoundError
from catalog.model import Table
from catalog.model.partition_names import partition_path
from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.clock import read_clock_ms
from catalog.storage.schema import ColumnStatisticsRow, PartitionRow
from catalog.storage.values import ValueEncoder
from catalog.tables.definitions import Definitions

WHOLE_TABLE = 0
"""Stands for the id of a partition in statistics of the whole table."""

_BATCH = 1_000

Values = Sequence[str | None]


class StoredStatistics(NamedTuple):
    """The statistics of one column; `partition_id` is `WHOLE_TABLE` for those of the whole table."""

    partition_id: int
    column: str
    statistics: Mapping[str, Any]
    analysed_at_ms: int


class ColumnStatistics:
    """The statistics of columns in one catalog."""

    def __init__(self, storage: Storage, definitions: Definitions) -> None:
        """Set the storage and the definitions in it."""
        self._storage = storage
        self._definitions = definitions

    def read(
        self, table: Table, partition_ids: Sequence[int], columns: Sequence[str] | None = None
    ) -> Iterator[StoredStatistics]:
        """Yield the statistics of partitions, ordered by partition and column.

        Args:
            partition_ids: Or only `WHOLE_TABLE`.
            columns: None for all.
        """
        row = ColumnStatisticsRow
        query = select(row.partition_id, row.column_name, row.statistics, row.analysed_at_ms).where(
            row.table_id == table.id
        )
        for ids in batched(sorted(partition_ids), _BATCH):
            with self._storage.read() as connection:
                own = query.where(among(connection, row.partition_id, ids))
                if columns is not None:
                    own = own.where(row.column_name.in_(list(columns)))
                rows = connection.execute(own.order_by(row.partition_id, row.column_name)).all()
            yield from (StoredStatistics(*stored) for stored in rows)

    def write(self, table: Table, statistics: Iterable[tuple[Values | None, Mapping[str, Mapping[str, Any]]]]) -> None:
        """Store the statistics of a table or of partitions, in one transaction; those of other columns stay.

        Args:
            statistics: The values of a partition, or None for the whole table; and column → statistics.

        Raises:
            TableNotFoundError: The table was dropped meanwhile.
            PartitionNotFoundError: A partition does not exist; nothing was stored.
        """
        given = list(statistics)
        row = ColumnStatisticsRow
        with self._storage.write() as connection:
            held = self._definitions.lock_table(connection, table, exclusive=False)
            ids = partition_ids(connection, held, [values for values, _ in given if values is not None])
            now = read_clock_ms(connection)
            rows = {
                (WHOLE_TABLE if values is None else ids[tuple(values)], column): stored
                for values, by_column in given
                for column, stored in by_column.items()
            }
            insert = postgresql.insert if self._storage.is_postgresql else sqlite.insert
            # In one order, so that two transactions do not wait for one another.
            for batch in batched(sorted(rows), _BATCH):
                new = insert(row).values(
                    [
                        {
                            "table_id": held.id,
                            "partition_id": number,
                            "column_name": column,
                            "statistics": dict(rows[number, column]),
                            "analysed_at_ms": now,
                        }
                        for number, column in batch
                    ]
                )
                changed = {"statistics": new.excluded.statistics, "analysed_at_ms": new.excluded.analysed_at_ms}
                key = [row.table_id, row.partition_id, row.column_name]
                connection.execute(new.on_conflict_do_update(index_elements=key, set_=changed))

    def delete(self, table: Table, values: Values | None, column: str | None = None) -> int:
        """Delete the statistics of a partition, or of the whole table for None; return the number of columns.

        Args:
            column: None for all columns.

        Raises:
            PartitionNotFoundError: The partition does not exist.
        """
        row = ColumnStatisticsRow
        with self._storage.write() as connection:
            number = WHOLE_TABLE
            if values is not None:
                number = partition_ids(connection, table, [values])[tuple(values)]
            gone = delete(row).where(row.table_id == table.id, row.partition_id == number)
            if column is not None:
                gone = gone.where(row.column_name == column)
            return connection.execute(gone).rowcount


def partition_ids(connection: Connection, table: Table, values: Sequence[Values]) -> dict[tuple[str | None, ...], int]:
    """Return the ids of visible partitions by their values.

    Raises:
        PartitionNotFoundError: One does not exist.
    """
    encoder, row = ValueEncoder(table), PartitionRow
    identities = {tuple(partition): encoder.identity(partition) for partition in values}
    ids: dict[bytes, int] = {}
    for batch in batched(identities.values(), _BATCH):
        is_named = row.table_id == table.id, among(connection, row.identity, batch), ~row.is_quarantined
        ids |= {
            bytes(identity): number
            for identity, number in connection.execute(select(row.identity, row.id).where(*is_named))
        }
    for partition, identity in identities.items():
        if identity not in ids:
            name = partition_path(table.key_names, partition)
            raise PartitionNotFoundError(f"table {table.full_name} has no partition {name}; nothing was changed")
    return {partition: ids[identity] for partition, identity in identities.items()}
