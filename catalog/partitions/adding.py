"""Bulk addition of partitions, each with its item in every index of the table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from operator import attrgetter
from types import NoneType
from typing import Any

from sqlalchemy import Connection, exists, select

from catalog.errors import (
    InvalidPartitionError,
    LocationInUseError,
    PartitionAlreadyExistsError,
    PartitionProblem,
    RefusedPartition,
)
from catalog.files.locations import comparable, location_key
from catalog.indexes.definitions import maintained_indexes
from catalog.indexes.keys import cut_key
from catalog.model import AddResult, NewPartition, OnInvalid, Table, is_encrypted
from catalog.model.partition_names import folder_template, partition_path, unpack_values
from catalog.operations.changes import record_changed
from catalog.partitions.descriptors import descriptor_ids
from catalog.partitions.folders import refuse_shared_folders
from catalog.partitions.staged import refuse_reserved
from catalog.partitions.versions import refuse_unsettled
from catalog.settings.places import require_partition_locations
from catalog.storage.bulk import among, batched, insert_rows, reserve_partition_ids
from catalog.storage.clock import read_clock_ms
from catalog.storage.failures import violates_unique_index
from catalog.storage.properties import properties_text
from catalog.storage.schema import IndexItemRow, PartitionRow, StagedPartitionRow
from catalog.storage.values import ValueEncoder
from catalog.tables.checks import refuse_view
from catalog.tables.definitions import Definitions
from catalog.tables.normalising import normalise_location
from catalog.tables.ownership import refuse_locations_in_use

_IDENTITIES = next(index for index in PartitionRow.metadata.tables[PartitionRow.__tablename__].indexes if index.unique)
"""The unique index that prevents two partitions with the same values."""

_GREATEST = 2**63 - 1
"""The greatest count that the databases can store."""

_COUNT_NAMES = ("file_count", "row_count", "size_bytes")
_COUNTS = attrgetter(*_COUNT_NAMES)

_COLUMNS = (
    "id",
    "table_id",
    "identity",
    "packed_values",
    "location",
    "file_count",
    "row_count",
    "size_bytes",
    "properties",
    "is_quarantined",
    "operation_number",
    "created_at_ms",
    "descriptor_id",
)


@dataclass(frozen=True)
class _Batch:
    """Valid partitions with their stored values, as parallel lists.

    Attributes:
        locations: Custom locations; None for a default location.
    """

    partitions: Sequence[NewPartition]
    packed: Sequence[str]
    identities: Sequence[bytes]
    locations: Sequence[str | None]
    index_keys: Sequence[Sequence[bytes]]

    def only(self, numbers: Sequence[int]) -> _Batch:
        """Return a batch of the partitions with these numbers, in this order."""
        return _Batch(
            [self.partitions[number] for number in numbers],
            [self.packed[number] for number in numbers],
            [self.identities[number] for number in numbers],
            [self.locations[number] for number in numbers],
            [[keys[number] for number in numbers] for keys in self.index_keys],
        )


class PartitionAdder:
    """Adds partitions to one table in the caller's transaction, with a shared lock on the table's row."""

    def __init__(
        self,
        connection: Connection,
        definitions: Definitions,
        table: str | Table,
        *,
        is_quarantined: bool = False,
        operation_number: int | None = None,
        is_bulk: bool = False,
        adds_versions: bool = False,
    ) -> None:
        """Lock the table, which fixes its set of indexes until the transaction ends.

        Args:
            is_quarantined: Hide the added partitions from readers.
            operation_number: The operation that adds them.
            is_bulk: The caller may add several batches, or partitions with custom locations.
            adds_versions: The caller gives partitions versions if their folders wait to be settled
                (`catalog.partitions.versions`).

        Raises:
            TableNotFoundError: The table does not exist.
        """
        self._adds_versions = adds_versions
        self._connection = connection
        self.table: Table = definitions.lock_table(connection, table, exclusive=False, is_bulk=is_bulk)
        require_partition_keys(self.table)
        indexes = maintained_indexes(connection, self.table.id)
        self._encoder = ValueEncoder(self.table, indexes, every_key=True)
        self._is_quarantined = is_quarantined
        self._operation_number = operation_number
        self._created_at_ms = read_clock_ms(connection)
        self._looks_first = False
        self._default_location = folder_template(self.table.location, self.table.key_names)

    def add(self, partitions: Iterable[NewPartition], *, if_not_exists: bool, on_invalid: OnInvalid) -> AddResult:
        """Add partitions; see `Catalog.add_partitions`."""
        added = existing = 0
        refused: list[RefusedPartition] = []
        for chunk in batched(partitions):
            batch, duplicates = self._encode(chunk, refused)
            if refused and on_invalid is OnInvalid.REFUSE:
                raise InvalidPartitionError(self.table.full_name, refused)
            known = self._insert_new(batch)
            self._check_folders(batch, known)
            again = [batch.only(known), duplicates]
            if (known or duplicates.packed) and not if_not_exists:
                raise self._exists(again)
            if on_invalid is OnInvalid.REFUSE:
                self._refuse_twins(again)
            added += len(batch.packed) - len(known)
            existing += len(known) + len(duplicates.packed)
        return AddResult(added, existing, tuple(refused))

    def add_where_free(
        self, new: Sequence[NewPartition]
    ) -> tuple[AddResult, Sequence[NewPartition], Sequence[tuple[NewPartition, LocationInUseError]]]:
        """Add the partitions that do not exist yet, except those whose folders are in use.

        Returns:
            The result, the partitions it is about, and the skipped partitions with their reasons.

        Raises:
            LocationInUseError: A folder is in use, but not one of these partitions.
        """
        skipped: list[tuple[NewPartition, LocationInUseError]] = []
        while True:
            try:
                with self._connection.begin_nested():
                    return self.add(new, if_not_exists=True, on_invalid=OnInvalid.SKIP), new, skipped
            except LocationInUseError as error:
                refused = refused_by(error, self.table, new)
                if not refused:
                    raise
                skipped += [(new[number], reason) for number, reason in refused.items()]
                new = [partition for number, partition in enumerate(new) if number not in refused]

    def check(self, partitions: Sequence[NewPartition], *, on_invalid: OnInvalid) -> Sequence[RefusedPartition]:
        """Raise what `add` would raise, without adding; return the partitions that it would skip."""
        refused: list[RefusedPartition] = []
        batch, duplicates = self._encode(partitions, refused)
        if refused and on_invalid is OnInvalid.REFUSE:
            raise InvalidPartitionError(self.table.full_name, refused)
        existing = registered(self._connection, self.table, batch.identities)
        known = [number for number, identity in enumerate(batch.identities) if identity in existing]
        self._check_folders(batch, known)
        if known or duplicates.packed:
            raise self._exists([batch.only(known), duplicates])
        return refused

    def _encode(self, partitions: Sequence[NewPartition], refused: list[RefusedPartition]) -> tuple[_Batch, _Batch]:
        """Return the valid partitions, and those with the values of one of them; append the others to `refused`.

        The batch is sorted by values: concurrent transactions that add the same partitions insert them in one order,
        which prevents deadlocks, and partitions that are looked up together are stored together.
        """
        self._check_values(partitions)
        encoded = self._encoder.encode_all([partition.values for partition in partitions])
        problems = {**self._encrypted(partitions), **encoded.refused}
        refused += [problems[number] for number in sorted(problems)]
        first_of = dict(zip(reversed(encoded.identities), range(len(partitions) - 1, -1, -1), strict=True))
        numbers: Iterable[int] = first_of.values()
        repeated: list[int] = []
        if problems or len(first_of) < len(partitions):
            numbers = [number for number in first_of.values() if number not in problems]
            chosen = {*numbers, *problems}
            repeated = [number for number in range(len(partitions)) if number not in chosen]
        locations = [None] * len(partitions)
        whole = _Batch(partitions, encoded.packed, encoded.identities, locations, encoded.index_keys)
        batch = whole.only(sorted(numbers, key=encoded.typed.__getitem__))
        self._check_locations(batch)
        return replace(batch, locations=self._own_locations(batch)), whole.only(repeated)

    def _encrypted(self, partitions: Sequence[NewPartition]) -> dict[int, RefusedPartition]:
        """Return the encrypted partitions, which indexes do not admit, by their numbers."""
        if not self._encoder.indexes:
            return {}
        index, names = self._encoder.indexes[0].name, self.table.key_names
        return {
            number: RefusedPartition(
                partition_path(names, partition.values), None, None, None, PartitionProblem.ENCRYPTED, index
            )
            for number, partition in enumerate(partitions)
            if partition.properties and is_encrypted(partition.properties)
        }

    def _check_locations(self, batch: _Batch) -> None:
        self._check_counts(batch.partitions)
        for partition in batch.partitions:
            if partition.location is None and len(partition.values) < len(self.table.partition_keys):
                name = partition_path(self.table.key_names, partition.values)
                raise InvalidPartitionError(
                    self.table.full_name,
                    reason=f"partition {name} lacks a value, so it has no default folder; give it a location",
                )

    def _check_counts(self, partitions: Sequence[NewPartition]) -> None:
        # Check all counts at once: for a million partitions, a loop is affordable only after one count was wrong.
        counts = [count for count in chain.from_iterable(map(_COUNTS, partitions)) if count is not None]
        if not counts or ({*map(type, counts)} == {int} and min(counts) >= 0 and max(counts) <= _GREATEST):
            return
        for partition in partitions:
            for name, count in zip(_COUNT_NAMES, _COUNTS(partition), strict=True):
                if count is not None and (type(count) is not int or not 0 <= count <= _GREATEST):
                    path = partition_path(self.table.key_names, partition.values)
                    raise InvalidPartitionError(
                        self.table.full_name,
                        reason=f"partition {path} has {name} {count!r}; give a whole number from 0 to {_GREATEST}, "
                        "or None",
                    )

    def _check_values(self, partitions: Sequence[NewPartition]) -> None:
        values = [partition.values for partition in partitions]
        if {*map(type, values)} <= {tuple, list} and {*map(type, chain.from_iterable(values))} <= {str, NoneType}:
            return
        for partition in partitions:
            if isinstance(partition.values, str) or not all(
                value is None or isinstance(value, str) for value in partition.values
            ):
                raise InvalidPartitionError(
                    self.table.full_name,
                    reason=f"the values of a partition are {partition.values!r}; give a list with a string or None for "
                    "each key",
                )

    def _insert_new(self, batch: _Batch) -> list[int]:
        """Insert the partitions that do not exist yet; return the numbers of the others.

        A look-up takes as long as an insert, so existing partitions are looked up only after an insert has failed. If
        another transaction is adding the same partition, the insert waits for its commit and fails, and the look-up
        then returns that partition.
        """
        existing: set[bytes] = set()
        while True:
            if self._looks_first:
                existing = registered(self._connection, self.table, batch.identities)
            known = [number for number, identity in enumerate(batch.identities) if identity in existing]
            new = [number for number, identity in enumerate(batch.identities) if identity not in existing]
            try:
                with self._connection.begin_nested():
                    self._insert(batch.only(new) if known else batch)
            except Exception as error:
                if not violates_unique_index(error, _IDENTITIES):
                    raise
                self._looks_first = True
            else:
                return known

    def _insert(self, new: _Batch) -> None:
        if not new.packed:
            return
        own_locations = [location for location in new.locations if location is not None]
        require_partition_locations(self.table, own_locations)
        refuse_locations_in_use(self._connection, self.table, own_locations)
        texts = {partition.descriptor for partition in new.partitions if partition.descriptor is not None}
        descriptors = descriptor_ids(self._connection, self.table, texts) if texts else {}
        ids = reserve_partition_ids(self._connection, len(new.packed))
        insert_rows(self._connection, PartitionRow, _COLUMNS, self._rows(ids, new, descriptors))
        for index, keys in zip(self._encoder.indexes, new.index_keys, strict=True):
            items = zip(repeat(index.id), map(cut_key, keys), ids)
            insert_rows(self._connection, IndexItemRow, ("index_id", "key", "partition_id"), items)
        if not self._is_quarantined:
            record_changed(self._connection, self.table, ids, self._operation_number)

    def _rows(self, ids: Sequence[int], new: _Batch, descriptors: Mapping[str, int]) -> Iterator[tuple[Any, ...]]:
        now, table_id = self._created_at_ms, self.table.id
        is_quarantined, operation_number = self._is_quarantined, self._operation_number
        for partition_id, partition, packed, identity, location in zip(
            ids, new.partitions, new.packed, new.identities, new.locations, strict=True
        ):
            yield (
                partition_id,
                table_id,
                identity,
                packed,
                location,
                partition.file_count,
                partition.row_count,
                partition.size_bytes,
                properties_text(self.table, partition.properties, partition.format)
                if partition.properties or partition.format
                else None,
                is_quarantined,
                operation_number,
                now,
                None if partition.descriptor is None else descriptors[partition.descriptor],
            )

    def _own_locations(self, batch: _Batch) -> list[str | None]:
        """Return the locations to store: None for default locations."""
        key_count = len(self.table.partition_keys)
        locations: list[str | None] = []
        for partition, packed in zip(batch.partitions, batch.packed, strict=True):
            location = partition.location
            if location is not None:
                default = self._default_location % tuple(packed.split("/"))
                # A default location is already normalised.
                location = location if location == default else normalise_location(location)
                if len(partition.values) == key_count and _is_same(location, default):
                    location = None
            locations.append(location)
        return locations

    def _check_folders(self, batch: _Batch, known: Sequence[int]) -> None:
        """Refuse new partitions that a load has reserved, and those whose folders are in use.

        Called after the insert, which waits for transactions that rename a partition to the same values.

        Raises:
            OperationConflictError: A load is about to add one of the partitions.
            ConflictError: A folder waits to be settled (`catalog.partitions.versions`).
            LocationInUseError: Another partition has its files there, or a purge is deleting them.
        """
        if not batch.identities:
            return
        staged = exists().where(StagedPartitionRow.table_id == self.table.id)
        if self._connection.scalar(select(staged)):
            refuse_reserved(self._connection, self.table, batch.identities, self._operation_number)
        existing = set(known)
        new = batch.only([n for n in range(len(batch.packed)) if n not in existing]) if existing else batch
        if not self._adds_versions:
            refuse_unsettled(self._connection, self.table, new.identities)
        refuse_shared_folders(self._connection, self.table, new.packed, new.locations, are_new=True)

    def _refuse_twins(self, again: Iterable[_Batch]) -> None:
        """Refuse folders that name the values of a partition in another spelling, and are not its location.

        Raises:
            InvalidPartitionError: A folder is not registered, so its files would be read by no query.
        """
        given = {
            (identity, packed): normalise_location(partition.location)
            for batch in again
            for identity, packed, partition in zip(batch.identities, batch.packed, batch.partitions, strict=True)
            if partition.location is not None
        }
        row, own = PartitionRow, dict[bytes, tuple[str, str | None]]()
        query = select(row.identity, row.packed_values, row.location).where(row.table_id == self.table.id)
        for identities in batched({identity for identity, _ in given}):
            rows = self._connection.execute(query.where(among(self._connection, row.identity, identities)))
            own |= {bytes(identity): (packed, location) for identity, packed, location in rows}
        for (identity, packed), folder in given.items():
            registered, location = own[identity]
            if packed == registered:
                continue
            registered_at = self.table.partition_location(registered, location)
            if comparable(folder) != comparable(registered_at):
                reason = (
                    f"folder {folder} has the values of partition {self.table.partition_name(registered)}, which is in "
                    f"{registered_at}; move its files there, or leave it out. Nothing was added"
                )
                raise InvalidPartitionError(self.table.full_name, reason=reason)

    def _exists(self, again: Iterable[_Batch]) -> PartitionAlreadyExistsError:
        known = [packed for batch in again for packed in batch.packed]
        names = [partition_path(self.table.key_names, unpack_values(packed)) for packed in known[:5]]
        return PartitionAlreadyExistsError(
            f"table {self.table.full_name}: {len(known):,} of these partitions exist or are named twice, for instance "
            f"{', '.join(names)}; nothing was added. Remove them, or use the option to skip existing partitions"
        )


def require_partition_keys(table: Table) -> None:
    """Refuse a table that cannot have partitions.

    Raises:
        NotATableError: It is a view.
        InvalidPartitionError: It has no partition keys.
    """
    refuse_view(table, "has no partitions")
    if not table.partition_keys:
        raise InvalidPartitionError(table.full_name, reason="it has no partition keys, so no partition can be added")


def own_location(table: Table, values: Sequence[str | None], location: str) -> str | None:
    """Return a partition's location as it is stored: None for the default folder, however it is spelled.

    So the default folders of partitions are known by their values, and no other partition gets them.
    """
    location = normalise_location(location)
    is_default = _is_same(location, table.default_partition_location(partition_path(table.key_names, values)))
    return None if is_default and len(values) == len(table.partition_keys) else location


def _is_same(location: str, other: str) -> bool:
    return location == other or comparable(location) == comparable(other)


def refused_by(
    error: LocationInUseError, table: Table, partitions: Sequence[NewPartition]
) -> dict[int, LocationInUseError]:
    """Return the partitions that an error is about, by number, each with its own error."""
    errors = {location_key(refusal.location): refusal for refusal in (error, *error.others)}
    refused = {}
    for number, partition in enumerate(partitions):
        reason = errors.get(location_key(partition.location or ""))
        # The owner of the folder may be a partition of this batch that got it first.
        if reason is not None and reason.owner != f"partition {partition_path(table.key_names, partition.values)}":
            refused[number] = reason
    return refused


def registered(connection: Connection, table: Table, identities: Sequence[bytes]) -> set[bytes]:
    """Return the identities that belong to existing partitions of the table."""
    query = select(PartitionRow.identity).where(
        PartitionRow.table_id == table.id, among(connection, PartitionRow.identity, identities)
    )
    return set(connection.scalars(query))
