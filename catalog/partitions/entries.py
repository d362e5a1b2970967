"""Changes of partitions by the entries of metastores' protocols: many at once, all or none.

Unlike the changes of `catalog.partitions.altering`, they move folders as a metastore does: that of a renamed partition
of a managed table, if it is the default one and on a local disk (`catalog.tables.moving`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select, update

from catalog.errors import (
    InvalidPartitionError,
    LocationInUseError,
    PartitionNotFoundError,
    PartitionProblem,
    RefusedPartition,
    UnsupportedChangeError,
)
from catalog.files.locations import comparable, is_local, is_within, keys_above, locations_with_keys
from catalog.indexes.definitions import IdRange, hold_ranges, maintained_indexes
from catalog.model import NewPartition, OnInvalid, PartitionIndex, Table, TableKind, is_encrypted
from catalog.model.partition_names import partition_path
from catalog.operations.changes import record_changed
from catalog.operations.journal import Operations
from catalog.partitions.adding import PartitionAdder, own_location
from catalog.partitions.altering import rename_partition
from catalog.partitions.changing import drop_partitions
from catalog.partitions.descriptors import descriptor_ids
from catalog.partitions.folders import refuse_shared_folders
from catalog.partitions.truncating import truncate
from catalog.partitions.versions import is_version
from catalog.settings.places import require_partition_locations
from catalog.storage import Storage
from catalog.storage.bulk import among
from catalog.storage.properties import properties_text
from catalog.storage.schema import PartitionRow
from catalog.storage.values import ValueEncoder
from catalog.tables.checks import refuse_stored_as_iceberg
from catalog.tables.definitions import Definitions
from catalog.tables.moving import FolderMoves, Move
from catalog.tables.neighbours import neighbours
from catalog.tables.normalising import normalise_location
from catalog.tables.ownership import refuse_locations_in_use

_FIELDS = ("location", "properties", "row_count", "file_count", "size_bytes", "descriptor_id")
_UPDATE = (
    update(PartitionRow)
    .where(PartitionRow.id == bindparam("changed_id"))
    .values({name: bindparam(f"new_{name}") for name in _FIELDS})
)

Values = Sequence[str | None]


class PartitionEntries:
    """Changes partitions by entries of metastores' protocols."""

    def __init__(self, storage: Storage, definitions: Definitions, operations: Operations) -> None:
        """Set the storage, the definitions in it, and the journal."""
        self._storage = storage
        self._definitions = definitions
        self._moves = FolderMoves(storage, definitions, operations)

    def replace(self, table: Table, changes: Sequence[tuple[Values, NewPartition]]) -> None:
        """Replace all that is known of partitions by other descriptions, perhaps with other values, in one transaction.

        Args:
            changes: The values of a visible partition, and its new description; without a location, it keeps its own.

        Raises:
            TableNotFoundError: The table does not exist.
            PartitionNotFoundError: A partition does not exist; nothing was changed.
            PartitionAlreadyExistsError: Another partition has the new values.
            InvalidPartitionError: A partition is named twice, or an index does not admit it.
            LocationInUseError: Another table or partition uses a new location.
            UnsupportedChangeError: The table is stored as Iceberg.
            LocationNotEmptyError: The folder of the new values has files.
            StorageError: A folder cannot be moved.
        """

        def change(connection: Connection, tables: Sequence[Table]) -> tuple[None, Sequence[Move]]:
            (held,) = tables
            refuse_stored_as_iceberg(held, "changing partitions", "Insert the rows again under the new values")
            return None, _Replacement(connection, held).run(changes)

        has_locations = any(partition.location is not None for _, partition in changes)
        self._moves.run([table], change, exclusive=False, is_bulk=has_locations)

    def exchange(self, source: Table, target: Table, partitions: Sequence[tuple[int, NewPartition]]) -> None:
        """Move partitions with their files from one table to another, in one transaction.

        Args:
            partitions: The id of a partition of the source, and its description in the target. Folders inside the
                source's folder move to the default folders in the target.

        Raises:
            TableNotFoundError, PartitionNotFoundError: A table, or a partition of the source, was dropped meanwhile.
            PartitionAlreadyExistsError: The target has one of the partitions.
            UnsupportedChangeError: A table is stored as Iceberg, or the files are on an object store.
            LocationInUseError: Another partition of the source has its files in a folder that would move.
            MissingFileError: The folder of a partition does not exist.
            LocationNotEmptyError: A folder in the target has files.
            StorageError: A folder cannot be moved.
        """

        def change(connection: Connection, tables: Sequence[Table]) -> tuple[None, Sequence[Move]]:
            for held in tables:
                refuse_stored_as_iceberg(held, "exchanging partitions", "Copy the rows with INSERT INTO … SELECT")
            moves: list[Move] = []
            new = [_exchanged(source, target, partition, moves) for _, partition in partitions]
            if drop_partitions(connection, source, [number for number, _ in partitions]) < len(partitions):
                raise PartitionNotFoundError(
                    f"partitions of table {source.full_name} were dropped meanwhile; nothing was exchanged"
                )
            _refuse_shared(connection, source, (partition for _, partition in partitions))
            adder = PartitionAdder(connection, self._definitions, target, is_bulk=True)
            adder.add(new, if_not_exists=False, on_invalid=OnInvalid.REFUSE)
            return None, moves

        tables = sorted((source, target), key=lambda table: table.id)
        self._moves.run(tables, change, exclusive=False, is_bulk=True)

    def truncate(self, table: Table, partition_ids: Collection[int] | None = None) -> None:
        """Delete the files of a table or of partitions; see `catalog.partitions.truncating.truncate`."""
        truncate(self._storage, self._definitions, table, partition_ids)


def _exchanged(source: Table, target: Table, partition: NewPartition, moves: list[Move]) -> NewPartition:
    assert partition.location is not None
    if not is_within(comparable(partition.location), comparable(source.location)):
        return partition
    folder = target.default_partition_location(partition_path(target.key_names, partition.values))
    if not (is_local(partition.location) and is_local(folder)):
        raise UnsupportedChangeError(
            f"partition {partition.location} cannot move to {folder}: an object store renames no folders. Copy the "
            "rows with INSERT INTO … SELECT, and drop the partition"
        )
    moves.append(Move(partition.location, folder, must_exist=True))
    return replace(partition, location=None)


def _refuse_shared(connection: Connection, source: Table, exchanged: Iterable[NewPartition]) -> None:
    """Refuse to move folders that overlap those of other partitions, which partitions in default folders never do.

    Args:
        exchanged: Partitions whose rows have been deleted.

    Raises:
        LocationInUseError: A folder overlaps that of a partition that stays, or of another that moves.
    """
    moving: dict[bytes, str] = {}
    # By keys, which sort a folder before those inside it.
    for key, folder in sorted((keys[-1], folder) for folder, keys in locations_with_keys(_custom(source, exchanged))):
        if (above := next((above for above in keys_above(key) if above in moving), None)) is not None:
            raise _shared(source, moving[above], source.full_name, folder)
        moving[key] = folder
    for near in neighbours(connection, moving.values()):
        if near.is_partition:
            raise _shared(source, near.folder, near.table, near.location)


def _custom(source: Table, partitions: Iterable[NewPartition]) -> Iterator[str]:
    """Yield the locations inside a table's folder that are no default folders."""
    for partition in partitions:
        folder, name = str(partition.location).rstrip("/"), partition_path(source.key_names, partition.values)
        is_default = comparable(folder) == comparable(source.default_partition_location(name))
        if is_within(comparable(folder), comparable(source.location)) and not is_default:
            yield folder


def _shared(source: Table, folder: str, owner: str, location: str) -> LocationInUseError:
    reason = f"another partition of {owner} has its files in {location}, too, and would lose them. Give the partitions "
    return LocationInUseError(source.full_name, folder, owner, location, reason=f"{reason}folders of their own")


class _Replacement:
    """One replacement of partitions of a table that the caller has locked."""

    def __init__(self, connection: Connection, table: Table) -> None:
        self._connection = connection
        self._table = table
        self._moves: list[Move] = []
        self._encoder = ValueEncoder(table)
        self._indexes: Sequence[PartitionIndex] = maintained_indexes(connection, table.id)

    def run(self, changes: Sequence[tuple[Values, NewPartition]]) -> Sequence[Move]:
        """Change the rows; return the folders to move."""
        rows = self._rows([values for values, _ in changes])
        texts = {partition.descriptor for _, partition in changes if partition.descriptor is not None}
        descriptors = descriptor_ids(self._connection, self._table, texts) if texts else {}
        updated: list[dict[str, Any]] = []
        moved: list[tuple[Row[Any], str | None]] = []
        for (_, partition), row in zip(changes, rows, strict=True):
            fields = self._fields(row, partition, descriptors)
            if self._encoder.identity(partition.values) != bytes(row.identity) or self._is_respelled(row, partition):
                self._rename(row, partition, fields)
                continue
            if fields["location"] != row.location:
                moved.append((row, fields["location"]))
            updated.append({"changed_id": row.id, **{f"new_{name}": fields[name] for name in _FIELDS}})
        if updated:
            self._connection.execute(_UPDATE, updated)
        if moved:
            stored = [location for _, location in moved]
            refuse_locations_in_use(self._connection, self._table, [location for location in stored if location])
            refuse_shared_folders(self._connection, self._table, [row.packed_values for row, _ in moved], stored)
            record_changed(self._connection, self._table, [row.id for row, _ in moved])
        return self._moves

    def _rows(self, values: Sequence[Values]) -> list[Row[Any]]:
        """Return the rows of partitions, locked against index builds and other changes until the commit."""
        table, row = self._table, PartitionRow
        identities = [self._encoder.identity(partition) for partition in values]
        if len(set(identities)) < len(identities):
            twice = next(v for v, identity in zip(values, identities, strict=True) if identities.count(identity) > 1)
            name = partition_path(table.key_names, twice)
            raise InvalidPartitionError(table.full_name, reason=f"partition {name} is named twice; name it once")
        is_named = row.table_id == table.id, among(self._connection, row.identity, identities), ~row.is_quarantined
        ids = self._connection.scalars(select(row.id).where(*is_named)).all()
        if ids:
            hold_ranges(self._connection, table.id, IdRange(min(ids), max(ids)))
        query = select(row.__table__).where(*is_named).order_by(row.id).with_for_update()
        found = {bytes(record.identity): record for record in self._connection.execute(query)}
        for partition, identity in zip(values, identities, strict=True):
            if identity not in found:
                raise PartitionNotFoundError(
                    f"table {table.full_name} has no partition {partition_path(table.key_names, partition)}; nothing "
                    "was changed"
                )
        return [found[identity] for identity in identities]

    def _fields(self, row: Row[Any], partition: NewPartition, descriptors: Mapping[str, int]) -> dict[str, Any]:
        table = self._table
        if self._indexes and is_encrypted(partition.properties):
            path = partition_path(table.key_names, partition.values)
            refused = RefusedPartition(path, None, None, None, PartitionProblem.ENCRYPTED, self._indexes[0].name)
            raise InvalidPartitionError(table.full_name, [refused], reason=f"{refused}. Nothing was changed")
        location = row.location
        if partition.location is not None:
            current = table.partition_location(row.packed_values, row.location)
            if (wanted := normalise_location(partition.location)) != current:
                require_partition_locations(table, [wanted])
                location = own_location(table, partition.values, wanted)
        return {
            "location": location,
            "properties": properties_text(table, partition.properties, partition.format),
            "row_count": partition.row_count,
            "file_count": partition.file_count,
            "size_bytes": partition.size_bytes,
            "descriptor_id": None if partition.descriptor is None else descriptors[partition.descriptor],
        }

    def _is_respelled(self, row: Row[Any], partition: NewPartition) -> bool:
        return bool(self._encoder.encode_all([partition.values]).packed[0] != row.packed_values)

    def _rename(self, row: Row[Any], partition: NewPartition, fields: dict[str, Any]) -> None:
        table, values = self._table, tuple(partition.values)
        before = table.partition_location(row.packed_values, row.location)
        after = before if fields["location"] is None else fields["location"]
        default = table.default_partition_location(table.partition_name(row.packed_values))
        is_kept = fields["location"] == row.location and comparable(before) == comparable(default)
        if is_kept and table.kind is TableKind.MANAGED and is_local(before) and not is_version(row.location):
            after = table.default_partition_location(partition_path(table.key_names, values))
            self._moves += [Move(before, after)] if after != before else []
        if after != before:
            refuse_locations_in_use(self._connection, table, [after])
        packed = rename_partition(self._connection, table, self._indexes, row, values, {**fields, "location": after})
        refuse_shared_folders(self._connection, table, [packed], [own_location(table, values, after)])
