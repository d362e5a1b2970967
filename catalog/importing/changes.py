"""Changes of an import: partitions to add, update or drop, one batch per transaction.

A partition whose folder is in use is skipped and reported with the reason; the rest of its batch is written.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import Connection, Row, bindparam, select, update

from catalog.errors import CatalogError, LocationInUseError, LocationTakenError
from catalog.files.locations import comparable, location_key
from catalog.importing.reports import PartitionCounts
from catalog.indexes.definitions import IdRange, hold_ranges, maintained_indexes
from catalog.model import NewPartition, Table, is_encrypted
from catalog.model.partition_names import partition_path
from catalog.operations.failpoints import Point, reached
from catalog.partitions.adding import PartitionAdder, own_location, refused_by
from catalog.partitions.changing import drop_partitions
from catalog.partitions.folders import refuse_shared_folders
from catalog.settings.places import require_partition_locations
from catalog.storage import Storage
from catalog.storage.bulk import among
from catalog.storage.properties import properties_text, read_properties
from catalog.storage.schema import PartitionRow
from catalog.storage.values import ValueEncoder
from catalog.tables.definitions import Definitions
from catalog.tables.ownership import refuse_locations_in_use

_COUNTS = ("file_count", "row_count", "size_bytes")

StoredRow: TypeAlias = Row[*tuple[Any, ...]]


class Refusal(NamedTuple):
    """A skipped partition, and the reason."""

    partition: NewPartition
    error: CatalogError


def location_of(partition: NewPartition) -> str:
    """Return the location of a source's partition, which is always set."""
    assert partition.location is not None
    return partition.location


class KnownPartitions:
    """The catalog's partitions of one table, for comparison with a source's."""

    def __init__(self, table: Table) -> None:
        """Set the table."""
        self.table = table
        self.encoder = ValueEncoder(table)

    def rows(self, connection: Connection, identities: Sequence[bytes]) -> Mapping[bytes, StoredRow]:
        """Return the rows of existing partitions, by identity."""
        row = PartitionRow
        columns = (row.id, row.identity, row.packed_values, row.location, row.properties)
        query = select(*columns, *(getattr(row, name) for name in _COUNTS)).where(
            row.table_id == self.table.id, among(connection, row.identity, identities)
        )
        return {bytes(stored.identity): stored for stored in connection.execute(query)}

    def name(self, partition: NewPartition) -> str:
        """Return a partition's name."""
        return partition_path(self.table.key_names, partition.values)

    def location(self, row: StoredRow) -> str:
        """Return the location of a partition in the catalog."""
        return self.table.partition_location(row.packed_values, row.location)

    def is_moved(self, row: StoredRow, partition: NewPartition) -> bool:
        """Return whether a partition has another location in the source than in the catalog."""
        return comparable(self.location(row)) != comparable(location_of(partition))

    def differs(self, row: StoredRow, partition: NewPartition) -> bool:
        """Return whether the source describes a partition differently; ignores counts that the source lacks."""
        if self.is_moved(row, partition):
            return True
        properties, own_format = read_properties(row.properties)
        if dict(properties) != dict(partition.properties or {}):
            return True
        if (own_format or self.table.format) is not partition.format:
            return True
        counts = ((getattr(row, name), getattr(partition, name)) for name in _COUNTS)
        return any(in_source is not None and in_catalog != in_source for in_catalog, in_source in counts)


@dataclass(frozen=True)
class _Change:
    """A changed partition: its row in the catalog, and its description in the source.

    Attributes:
        origin: Its current location.
        location: Its new location as it is stored.
    """

    row: StoredRow
    partition: NewPartition
    origin: str
    location: str | None
    is_moved: bool


class PartitionChanges:
    """Changes of the partitions of one table; each method runs one transaction."""

    def __init__(
        self,
        storage: Storage,
        definitions: Definitions,
        known: KnownPartitions,
        counts: PartitionCounts,
        guard: Callable[[Connection], None],
        hint: str,
    ) -> None:
        """Set the table's partitions.

        Args:
            counts: Updated with each change and refusal.
            guard: Called in each transaction; raises if this attempt is fenced.
            hint: Advice for messages about folders in use.
        """
        self._storage = storage
        self._definitions = definitions
        self._known = known
        self._table = known.table
        self._counts = counts
        self._guard = guard
        self._hint = hint

    # --- refusing -----------------------------------------------------------------------------------------------

    def refuse(self, partition: NewPartition, error: CatalogError) -> None:
        """Record a skipped partition."""
        hint = self._hint if isinstance(error, LocationTakenError) else ""
        self._counts.refused.add(f"partition {self._known.name(partition)}: {error}{hint}")

    def refuse_twin(self, partition: NewPartition, row: StoredRow | None) -> None:
        """Record a partition that is skipped because another one has the same values.

        Args:
            row: The other partition in the catalog; None if the source has both.
        """
        other = "another partition of the source"
        if row is not None:
            other = self._table.partition_name(row.packed_values)
        self._counts.refused.add(
            f"partition {self._known.name(partition)} of table {self._table.full_name} has the same values as {other}, "
            "in another spelling"
        )

    def _refused(self, error: LocationInUseError, partitions: Sequence[NewPartition]) -> dict[int, Refusal]:
        """Return the partitions that an error is about, by number."""
        refused = refused_by(error, self._table, partitions)
        return {number: Refusal(partitions[number], reason) for number, reason in refused.items()}

    # --- dropping -----------------------------------------------------------------------------------------------

    def drop(self, ids: Sequence[int]) -> None:
        """Drop partitions; their files stay."""
        with self._storage.write() as connection:
            self._guard(connection)
            held = self._definitions.lock_table(connection, self._table, exclusive=False)
            dropped = drop_partitions(connection, held, ids)
            reached(Point.CHANGED)
        self._counts.dropped += dropped
        reached(Point.PARTLY_COMMITTED)

    # --- adding -------------------------------------------------------------------------------------------------

    def add(self, new: Sequence[NewPartition]) -> None:
        """Add partitions; skip those that exist meanwhile."""
        with self._storage.write() as connection:
            self._guard(connection)
            adder = PartitionAdder(connection, self._definitions, self._table, is_bulk=True)
            result, new, refusals = adder.add_where_free(new)
            twins = self._twins(connection, new) if result.existing else ()
            reached(Point.CHANGED)
        self._counts.added += result.added
        for twin, row in twins:
            self.refuse_twin(twin, row)
        for problem in result.refused:
            self._counts.refused.add(str(problem))
        for partition, reason in refusals:
            self.refuse(partition, reason)
        reached(Point.PARTLY_COMMITTED)

    def _twins(self, connection: Connection, new: Sequence[NewPartition]) -> list[tuple[NewPartition, StoredRow]]:
        """Return the partitions that exist with another spelling of the same values."""
        encoded = self._known.encoder.encode_all([partition.values for partition in new])
        known = self._known.rows(connection, encoded.identities)
        return [
            (partition, known[identity])
            for partition, identity, packed in zip(new, encoded.identities, encoded.packed, strict=True)
            if identity in known and known[identity].packed_values != packed
        ]

    # --- updating -----------------------------------------------------------------------------------------------

    def update(self, partitions: Sequence[NewPartition]) -> list[Refusal]:
        """Update partitions to the source's description; their values do not change.

        Returns:
            The partitions that were not updated, because their new folder is in use. Partitions may exchange their
            folders within one batch.
        """
        blocked: dict[int, Refusal] = {}
        with self._storage.write() as connection:
            self._guard(connection)
            table = self._definitions.lock_table(connection, self._table, exclusive=False, is_bulk=True)
            changes = self._changes(connection, table, partitions)
            if changes:
                # As for a change of a single partition: index builds that read these partitions wait.
                hold_ranges(connection, table.id, IdRange(min(changes), max(changes)))
            while changes:
                try:
                    with connection.begin_nested():
                        _write(connection, table, list(changes.values()))
                    break
                except LocationInUseError as error:
                    refused = self._blocked(error, changes.values())
                    if not refused:
                        raise
                    blocked |= refused
                    changes = {number: change for number, change in changes.items() if number not in refused}
            reached(Point.CHANGED)
        self._counts.updated += len(changes)
        reached(Point.PARTLY_COMMITTED)
        return list(blocked.values())

    def _changes(self, connection: Connection, table: Table, partitions: Sequence[NewPartition]) -> dict[int, _Change]:
        """Return the changes that are still needed, by partition id; refuse those that an index does not admit."""
        encoded = self._known.encoder.encode_all([partition.values for partition in partitions])
        rows = self._known.rows(connection, encoded.identities)
        is_indexed = bool(maintained_indexes(connection, table.id))
        changes = {}
        for partition, identity in zip(partitions, encoded.identities, strict=True):
            row = rows.get(identity)
            if row is None or not self._known.differs(row, partition):
                continue
            if is_indexed and is_encrypted(partition.properties):
                self._counts.refused.add(
                    f"partition {self._known.name(partition)} of table {table.full_name} is encrypted in the source, "
                    "but partition indexes do not admit encrypted partitions; delete the indexes first"
                )
                continue
            changes[row.id] = _Change(
                row,
                partition,
                self._known.location(row),
                own_location(table, partition.values, location_of(partition)),
                self._known.is_moved(row, partition),
            )
        return dict(sorted(changes.items()))

    def _blocked(self, error: LocationInUseError, changes: Iterable[_Change]) -> dict[int, Refusal]:
        """Return the changes that an error prevents, and those that need a folder of a partition that then stays."""
        moved = [change for change in changes if change.is_moved]
        by_key = defaultdict[bytes, list[_Change]](list)
        for change in moved:
            by_key[location_key(location_of(change.partition))].append(change)
        refused = self._refused(error, [change.partition for change in moved])
        waiting = deque((moved[number], refusal.error) for number, refusal in refused.items())
        blocked: dict[int, Refusal] = {}
        while waiting:
            change, reason = waiting.popleft()
            if change.row.id in blocked:
                continue
            blocked[change.row.id] = Refusal(change.partition, reason)
            owner = f"partition {self._known.name(change.partition)}"
            for follower in by_key.get(location_key(change.origin), ()):
                # Two partitions may share a folder that is not the default folder of either.
                if change.row.location is None or follower.location is None:
                    location = location_of(follower.partition)
                    taken = LocationTakenError(self._table.full_name, location, owner, change.origin)
                    waiting.append((follower, taken))
        return blocked


def _write(connection: Connection, table: Table, changes: Sequence[_Change]) -> None:
    """Update all changed partitions with one statement.

    Raises:
        LocationInUseError: Folders are in use.
    """
    row = PartitionRow
    moved = [change for change in changes if change.is_moved]
    own_locations = [change.location for change in moved if change.location is not None]
    require_partition_locations(table, own_locations)
    refuse_locations_in_use(connection, table, own_locations)
    fields = ("location", "properties", *_COUNTS)
    statement = (
        update(row)
        .where(row.table_id == table.id, row.id == bindparam("this"))
        .values({name: bindparam(f"new_{name}") for name in fields})
    )
    connection.execute(statement, [_fields(table, change) for change in changes])
    refuse_shared_folders(
        connection, table, [change.row.packed_values for change in moved], [change.location for change in moved]
    )


def _fields(table: Table, change: _Change) -> dict[str, Any]:
    partition = change.partition
    return {
        "this": change.row.id,
        "new_location": change.location,
        "new_properties": properties_text(table, partition.properties, partition.format),
        **{f"new_{name}": getattr(partition, name) for name in _COUNTS},
    }
