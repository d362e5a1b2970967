"""Bringing the partitions of one table into the catalog, in batches: of millions, only some are in memory at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import Connection, Row, bindparam, func, select, update

from catalog.definitions import Definitions, normalise_location
from catalog.errors import UnsupportedSourceTableError
from catalog.failpoints import Point, reached
from catalog.importing.definition import Partitions
from catalog.importing.hive import HivePartition
from catalog.importing.reports import PartitionCounts
from catalog.indexes.definitions import IdRange, hold_ranges, maintained_indexes
from catalog.locations import comparable
from catalog.model import NewPartition, OnInvalid, Table, is_encrypted
from catalog.ownership import refuse_locations_in_use
from catalog.partition_names import given_values, pack_values, partition_path
from catalog.partitions.adding import PartitionAdder, own_location
from catalog.partitions.changing import drop_partitions
from catalog.partitions.folders import refuse_shared_folders
from catalog.partitions.properties import properties_text, read_properties
from catalog.partitions.repairing import Digests, digests
from catalog.places import require_partition_locations
from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.schema import PartitionRow
from catalog.values import EncodedBatch, ValueEncoder

BATCH = 10_000
"""Partitions of one transaction."""

_COUNTS = ("file_count", "row_count", "size_bytes")

StoredRow = Row[*tuple[Any, ...]]


@dataclass(frozen=True)
class Wishes:
    """What an import does beyond adding.

    Attributes:
        updates: Change what is defined otherwise in the catalog than in the source.
        drops_vanished: Drop partitions that the source does not have; their files stay.
        is_dry_run: Change nothing, and say what would be changed.
    """

    updates: bool = False
    drops_vanished: bool = False
    is_dry_run: bool = False


class PartitionImport:
    """One attempt at importing the partitions of one table."""

    def __init__(
        self,
        storage: Storage,
        definitions: Definitions,
        table: Table,
        wishes: Wishes,
        *,
        guard: Callable[[Connection], None],
        beat: Callable[[int], None],
    ) -> None:
        """Take the table.

        Args:
            guard: Called in each transaction: raises if this attempt was given up.
            beat: Told how many partitions were seen.
        """
        self._storage = storage
        self._definitions = definitions
        self._table = table
        self._wishes = wishes
        self._guard = guard
        self._beat = beat
        self._encoder = ValueEncoder(table)
        self._seen: list[Digests] = []
        self.counts = PartitionCounts()

    def __call__(self, pages: Iterable[Sequence[HivePartition]], made: Partitions) -> PartitionCounts:
        """Add the partitions of a source, compare those that are there, and look for those that it does not have."""
        last_id = self._last_id()
        for batch in batched(self._readable(pages, made), BATCH):
            self._take(batch)
            self._beat(self.counts.seen)
            reached(Point.PARTLY_COMMITTED)
        self._find_vanished(last_id)
        return self.counts

    def _last_id(self) -> int:
        """Return the id up to which partitions were there before the source was asked for its own."""
        with self._storage.read() as connection:
            query = select(func.max(PartitionRow.id)).where(PartitionRow.table_id == self._table.id)
            return connection.scalar(query) or 0

    def _readable(self, pages: Iterable[Sequence[HivePartition]], made: Partitions) -> Iterator[NewPartition]:
        for page in pages:
            for partition in page:
                self.counts.seen += 1
                try:
                    yield made.of(partition)
                except UnsupportedSourceTableError as error:
                    self._refuse(partition.values, str(error))

    def _refuse(self, values: Sequence[str | None], reason: str) -> None:
        self.counts.refused.add(reason)
        self._seen.append(digests([self._encoder.identity(values)]))

    # --- adding and comparing -----------------------------------------------------------------------------------

    def _take(self, batch: Sequence[NewPartition]) -> None:
        encoded = self._encoder.encode_all([partition.values for partition in batch])
        self._seen.append(digests(encoded.identities))
        known = self._registered(encoded.identities)
        new: dict[bytes, NewPartition] = {}
        changed: dict[int, NewPartition] = {}
        moved: list[int] = []
        for number, (partition, identity) in enumerate(zip(batch, encoded.identities, strict=True)):
            row = known.get(identity)
            if row is None and identity not in new:
                new[identity] = partition
            elif row is None or row.packed_values != encoded.packed[number]:
                self._refuse_twin(partition, row, encoded, number)
            elif self._differs(row, partition):
                changed[row.id] = partition
                if self._is_moved(row, partition):
                    moved.append(row.id)
                self.counts.changed.add(self._name(partition))
        if self._wishes.is_dry_run:
            self.counts.added += len(new)
        elif new:
            self._add(list(new.values()))
        if changed and self._wishes.updates and not self._wishes.is_dry_run:
            self._update(changed, moved)

    def _registered(self, identities: Sequence[bytes]) -> Mapping[bytes, StoredRow]:
        row = PartitionRow
        columns = (row.id, row.identity, row.packed_values, row.location, row.properties)
        with self._storage.read() as connection:
            query = select(*columns, *(getattr(row, name) for name in _COUNTS)).where(
                row.table_id == self._table.id, among(connection, row.identity, identities)
            )
            return {bytes(found.identity): found for found in connection.execute(query)}

    def _refuse_twin(self, partition: NewPartition, row: StoredRow | None, encoded: EncodedBatch, number: int) -> None:
        other = "another one of the source"
        if row is not None:
            other = partition_path(self._table.key_names, given_values(row.packed_values))
        self.counts.refused.add(
            f"partition {self._name(partition)} of table {self._table.full_name} has the same values, spelled in "
            f"another way, as {other}"
        )

    def _name(self, partition: NewPartition) -> str:
        return partition_path(self._table.key_names, partition.values)

    def _differs(self, row: StoredRow, partition: NewPartition) -> bool:
        if self._is_moved(row, partition):
            return True
        properties, own_format = read_properties(row.properties)
        if dict(properties) != dict(partition.properties or {}):
            return True
        if (own_format or self._table.format) is not partition.format:
            return True
        counts = ((getattr(row, name), getattr(partition, name)) for name in _COUNTS)
        return any(there is not None and here != there for here, there in counts)

    def _is_moved(self, row: StoredRow, partition: NewPartition) -> bool:
        return comparable(self._effective(row)) != comparable(self._location(partition))

    @staticmethod
    def _location(partition: NewPartition) -> str:
        assert partition.location is not None
        return normalise_location(partition.location)

    def _effective(self, row: StoredRow) -> str:
        default = partition_path(self._table.key_names, given_values(row.packed_values))
        return row.location or self._table.default_partition_location(default)

    def _add(self, new: Sequence[NewPartition]) -> None:
        with self._storage.write() as connection:
            self._guard(connection)
            adder = PartitionAdder(connection, self._definitions, self._table, is_bulk=True)
            result = adder.add(new, if_not_exists=True, on_invalid=OnInvalid.SKIP)
            reached(Point.CHANGED)
        self.counts.added += result.added
        for refused in result.refused:
            self.counts.refused.add(str(refused))

    def _update(self, changed: Mapping[int, NewPartition], moved: Iterable[int]) -> None:
        """Change partitions in place, by two statements however many they are; no value of a key changes."""
        row = PartitionRow
        with self._storage.write() as connection:
            self._guard(connection)
            table = self._definitions.lock_table(connection, self._table, exclusive=False, is_bulk=True)
            admitted = self._admitted(connection, table, changed)
            if not admitted:
                return
            moved = [number for number in moved if number in admitted]
            # As whoever changes a single partition: a build that reads these waits.
            hold_ranges(connection, table.id, IdRange(min(admitted), max(admitted)))
            fields = ("location", "properties", *_COUNTS)
            statement = (
                update(row)
                .where(row.table_id == table.id, row.id == bindparam("this"))
                .values({name: bindparam(f"new_{name}") for name in fields})
            )
            changes = [self._fields(table, number, each) for number, each in admitted.items()]
            new_locations = {change["this"]: change["new_location"] for change in changes}
            own_locations = [location for location in new_locations.values() if location is not None]
            require_partition_locations(table, own_locations)
            refuse_locations_in_use(connection, table, own_locations)
            connection.execute(statement, changes)
            refuse_shared_folders(
                connection,
                table,
                [pack_values(admitted[number].values, len(table.key_names)) for number in moved],
                [new_locations[number] for number in moved],
            )
            reached(Point.CHANGED)
        self.counts.updated += len(admitted)

    def _admitted(
        self, connection: Connection, table: Table, changed: Mapping[int, NewPartition]
    ) -> dict[int, NewPartition]:
        """Return the changes that the table's indexes admit, which no encrypted partition is, and refuse the others."""
        if not maintained_indexes(connection, table.id):
            return dict(sorted(changed.items()))
        for partition in changed.values():
            if is_encrypted(partition.properties):
                self.counts.refused.add(
                    f"partition {self._name(partition)} of table {table.full_name} is encrypted in the source, and no "
                    "partition index admits that; delete the indexes first"
                )
        return {number: each for number, each in sorted(changed.items()) if not is_encrypted(each.properties)}

    def _fields(self, table: Table, number: int, partition: NewPartition) -> dict[str, Any]:
        location = own_location(table, partition.values, self._location(partition))
        return {
            "this": number,
            "new_location": location,
            "new_properties": properties_text(table, partition.properties, partition.format),
            **{f"new_{name}": getattr(partition, name) for name in _COUNTS},
        }

    # --- what the source does not have --------------------------------------------------------------------------

    def _find_vanished(self, last_id: int) -> None:
        """Count, and perhaps drop, the partitions up to an id that the source does not have; later ones are new."""
        seen = np.unique(np.concatenate([np.empty(0, np.uint64), *self._seen]))
        row, after = PartitionRow, 0
        query = select(row.id, row.identity, row.packed_values).where(row.table_id == self._table.id, row.id <= last_id)
        while True:
            with self._storage.read() as connection:
                page = connection.execute(query.where(row.id > after).order_by(row.id).limit(BATCH)).all()
            if not page:
                return
            after = page[-1].id
            is_seen = np.isin(digests([each.identity for each in page]), seen)
            gone = [each for each, known in zip(page, is_seen, strict=True) if not known]
            for each in gone:
                self.counts.vanished.add(partition_path(self._table.key_names, given_values(each.packed_values)))
            self._beat(self.counts.seen)
            if gone and self._wishes.drops_vanished and not self._wishes.is_dry_run:
                self._drop([each.id for each in gone])

    def _drop(self, ids: Sequence[int]) -> None:
        with self._storage.write() as connection:
            self._guard(connection)
            held = self._definitions.lock_table(connection, self._table, exclusive=False)
            self.counts.dropped += drop_partitions(connection, held, ids)
