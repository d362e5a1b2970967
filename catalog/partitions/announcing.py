"""Claims of changed partitions by those who announce them (`catalog.operations.changes`).

A claim replaces records by batches of partition names, which belong to the claimer until it is done. A partition that
was dropped or hidden meanwhile is left out; its drop is a record of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, Row, and_, delete, func, insert, or_, select, update

from catalog.errors import NotFoundError
from catalog.model import PARTITION_ID, Table
from catalog.model.partition_names import parse_partition_path
from catalog.operations.tables import name_of
from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.clock import CurrentMs
from catalog.storage.schema import PartitionChangeRow, PartitionRow
from catalog.storage.values import ValueEncoder
from catalog.tables.definitions import Definitions

_RECORDS = 100
"""The number of records that a claim reads at a time."""

_PARTITIONS = 20_000
"""The number of partitions that a transaction of a claim replaces by batches, about a second's work."""

RECLAIM_AFTER = timedelta(hours=1)
"""The time after which others claim the batches that a claimer has not finished, such as those of a failed run."""

_IS_UNFINISHED = and_(
    # Batches, not the records of loads that announce themselves when they have been checked.
    PartitionChangeRow.operation_number.is_(None),
    PartitionChangeRow.changed_at_ms <= CurrentMs() - RECLAIM_AFTER // timedelta(milliseconds=1),
)
_IS_CLAIMABLE = or_(PartitionChangeRow.claimed_by.is_(None), _IS_UNFINISHED)


@dataclass(frozen=True)
class Announcement:
    """Partitions of one table to announce together.

    Attributes:
        number: Identifies the batch.
        is_dropped: The partitions were dropped; otherwise they were added, changed or released.
        names: As in paths, `k=v/k2=v2`; of a table with a partition scheme, `_partition_id=3`.
    """

    number: int
    table: str
    is_dropped: bool
    names: Sequence[str]


class Announcements:
    """The changed partitions of one catalog that are still to be announced."""

    def __init__(self, storage: Storage, definitions: Definitions) -> None:
        """Use a database, and the definitions in it."""
        self._storage = storage
        self._definitions = definitions

    def pending(self) -> int | None:
        """Return the number of the latest record that can be claimed; None if there is none."""
        with self._storage.read() as connection:
            return connection.scalar(select(func.max(PartitionChangeRow.number)).where(_IS_CLAIMABLE))

    def claim(self, claimer: str, *, batch_size: int, most: int, most_batches: int) -> list[int]:
        """Claim records, and return the numbers of all batches of the claimer; a repeated call claims more.

        Args:
            claimer: An id that no other claimer has, such as that of a run.
            batch_size: The maximum number of partitions in a batch.
            most: No more records are claimed after this number of partitions.
            most_batches: The maximum number of batches; others become records that nobody has claimed.
        """
        while True:
            with self._storage.write() as connection:
                records = _take(connection, claimer)
                for batch in _batches(self._named(connection, records), batch_size):
                    connection.execute(insert(PartitionChangeRow).values({**batch, "claimed_by": claimer}))
                own = select(PartitionChangeRow.number, PartitionChangeRow.partitions).where(
                    PartitionChangeRow.claimed_by == claimer
                )
                claimed = connection.execute(own.order_by(PartitionChangeRow.number)).all()
                numbers = [row.number for row in claimed]
                _release(connection, numbers[most_batches:])
            count = sum(len(json.loads(row.partitions)["names"]) for row in claimed)
            if not records or count >= most or len(numbers) >= most_batches:
                return numbers[:most_batches]

    def get(self, claimer: str, number: int) -> Announcement | None:
        """Return a batch of a claimer; None if it is done, or of changed partitions whose table was dropped."""
        row = PartitionChangeRow
        query = select(row.table_id, row.partitions, row.is_dropped, name_of(row.table_id).label("table"))
        with self._storage.read() as connection:
            found = connection.execute(query.where(row.number == number, row.claimed_by == claimer)).one_or_none()
        if found is None:
            return None
        partitions = json.loads(found.partitions)
        table = found.table or (partitions.get("table") if found.is_dropped else None)
        return None if table is None else Announcement(number, table, found.is_dropped, partitions["names"])

    def changed_by(self, claimer: str) -> list[str]:
        """Return the names of the partitions that a load has changed, which announces them itself.

        Unlike `Catalog.operation_partitions`, with those that have only lost rows, or whose files were rewritten since.

        Args:
            claimer: The operation's id. After `finish`, there are none.
        """
        row = PartitionChangeRow
        with self._storage.read() as connection:
            own = connection.execute(_RECORD.where(row.claimed_by == claimer, ~row.is_dropped)).all()
            return [name for *_, name in self._named(connection, map(_record, own))]

    def finish(self, claimer: str) -> int:
        """Delete the batches of a claimer, which has announced them; return their number.

        Args:
            claimer: Of a load that announces itself, the operation's id.
        """
        row = PartitionChangeRow
        with self._storage.write() as connection:
            return len(connection.scalars(delete(row).where(row.claimed_by == claimer).returning(row.number)).all())

    # --- inside -------------------------------------------------------------------------------------------------

    def _named(self, connection: Connection, records: Iterable[_Record]) -> Iterator[tuple[int, bool, str, str]]:
        """Yield table id, whether it was dropped, table and name of each partition, each once."""
        tables: dict[int, Table | None] = {}
        seen: set[tuple[int, bool, str]] = set()
        for record in records:
            if record.table_id not in tables:
                tables[record.table_id] = self._table(connection, record.table)
            table = tables[record.table_id]
            if table is None and not (record.is_dropped and "table" in record.partitions):
                continue
            # By the table's present name, if it exists.
            shown = table.full_name if table is not None else str(record.partitions["table"])
            for name in _names(connection, table, record):
                partition = record.table_id, record.is_dropped, name
                if partition not in seen:
                    seen.add(partition)
                    yield record.table_id, record.is_dropped, shown, name

    def _table(self, connection: Connection, name: str | None) -> Table | None:
        try:
            return None if name is None else self._definitions.get_table(name, connection)
        except NotFoundError:
            return None


@dataclass(frozen=True)
class _Record:
    """A record, or a part of it; `table` is None if the table was dropped."""

    table_id: int
    table: str | None
    is_dropped: bool
    partitions: Mapping[str, Any]

    @property
    def size(self) -> int:
        """The number of partitions."""
        if "range" in self.partitions:
            first, last = self.partitions["range"]
            return int(last) - int(first) + 1
        return sum(len(members) for name, members in self.partitions.items() if name != "table")


_RECORD = select(
    PartitionChangeRow.number,
    PartitionChangeRow.table_id,
    PartitionChangeRow.partitions,
    PartitionChangeRow.is_dropped,
    name_of(PartitionChangeRow.table_id).label("table"),
).order_by(PartitionChangeRow.number)


def _record(row: Row[Any]) -> _Record:
    return _Record(row.table_id, row.table, row.is_dropped, json.loads(row.partitions))


def _take(connection: Connection, claimer: str) -> Sequence[_Record]:
    """Return some records, and delete them in the caller's transaction, which replaces them by batches.

    Of a range that is too large for a transaction, the rest becomes a record.
    """
    row = PartitionChangeRow
    is_claimable = and_(_IS_CLAIMABLE, or_(row.claimed_by.is_(None), row.claimed_by != claimer))
    chosen = select(row.number).where(is_claimable).order_by(row.number).limit(_RECORDS).with_for_update()
    numbers = list(connection.scalars(chosen))
    records, taken, count = list[_Record](), list[int](), 0
    for found in connection.execute(_RECORD.where(among(connection, row.number, numbers))).all():
        if count >= _PARTITIONS:
            break
        record = _record(found)
        if record.size > _PARTITIONS and "range" in record.partitions:
            record = _first_part(connection, record)
        records.append(record)
        taken.append(found.number)
        count += record.size
    connection.execute(delete(row).where(among(connection, row.number, taken)))
    return records


def _first_part(connection: Connection, record: _Record) -> _Record:
    """Return the beginning of a large range, and record the rest."""
    first, last = record.partitions["range"]
    middle = first + _PARTITIONS
    connection.execute(
        insert(PartitionChangeRow).values(
            table_id=record.table_id,
            is_dropped=record.is_dropped,
            partitions=json.dumps({"range": [middle, last]}),
            changed_at_ms=CurrentMs(),
        )
    )
    return replace(record, partitions={"range": [first, middle - 1]})


def _release(connection: Connection, numbers: Sequence[int]) -> None:
    """Make batches records that anybody may claim."""
    row = PartitionChangeRow
    connection.execute(update(row).where(among(connection, row.number, numbers)).values(claimed_by=None))


def _names(connection: Connection, table: Table | None, record: _Record) -> Iterator[str]:
    """Yield the names of the partitions of a record; of changed ones, those that exist and are visible."""
    partitions = record.partitions
    if names := partitions.get("names"):
        if table is None or table.scheme is not None or record.is_dropped:
            yield from names
        else:
            yield from _existing(connection, table, names)
        return
    if table is None:
        return
    if table.scheme is not None:
        first, last = partitions.get("range", (0, -1))
        for number in (*range(first, last + 1), *partitions.get("ids", ()), *partitions.get("values", ())):
            yield f"{PARTITION_ID}={number}"
        return
    yield from map(table.partition_name, partitions.get("values", ()))
    row = PartitionRow
    query = select(row.packed_values).where(row.table_id == table.id, ~row.is_quarantined).order_by(row.id)
    if "range" in partitions:
        yield from map(table.partition_name, connection.scalars(query.where(row.id.between(*partitions["range"]))))
    for batch in batched(partitions.get("ids", ())):
        yield from map(table.partition_name, connection.scalars(query.where(among(connection, row.id, batch))))


def _existing(connection: Connection, table: Table, names: Sequence[str]) -> Iterator[str]:
    """Yield the names of the partitions of a table without a partition scheme that exist and are visible."""
    row, encoder = PartitionRow, ValueEncoder(table)
    identities = {encoder.identity([value for _, value in parse_partition_path(name)]): name for name in names}
    visible = row.table_id == table.id, ~row.is_quarantined
    for batch in batched(identities):
        found = set(connection.scalars(select(row.identity).where(*visible, among(connection, row.identity, batch))))
        yield from (identities[identity] for identity in batch if identity in found)


def _batches(partitions: Iterable[tuple[int, bool, str, str]], size: int) -> Iterator[dict[str, Any]]:
    """Yield rows of batches, each of one table and one kind of change."""
    groups: dict[tuple[int, bool, str], list[str]] = {}
    for table_id, is_dropped, table, name in partitions:
        groups.setdefault((table_id, is_dropped, table), []).append(name)
    for (table_id, is_dropped, table), names in groups.items():
        for batch in batched(names, size):
            yield {
                "table_id": table_id,
                "is_dropped": is_dropped,
                "partitions": json.dumps({"names": batch, "table": table}),
                "changed_at_ms": CurrentMs(),
            }
