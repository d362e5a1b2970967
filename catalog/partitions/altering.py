"""Changes of one partition: its location, format, properties or values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from catalog.errors import (
    ConflictError,
    InvalidPartitionError,
    InvalidRequestError,
    PartitionAlreadyExistsError,
    PartitionNotFoundError,
    PartitionProblem,
    RefusedPartition,
)
from catalog.indexes.definitions import IdRange, hold_ranges, maintained_indexes
from catalog.indexes.items import delete_items, item_keys
from catalog.indexes.keys import cut_key
from catalog.model import FileFormat, PartitionIndex, Table, is_encrypted
from catalog.model.partition_names import given_values, partition_path
from catalog.operations.changes import record_changed, record_dropped
from catalog.partitions.adding import own_location
from catalog.partitions.folders import refuse_shared_folders
from catalog.partitions.staged import refuse_reserved
from catalog.partitions.versions import is_version, refuse_unsettled
from catalog.settings.places import require_partition_locations
from catalog.storage.bulk import insert_rows, reserve_partition_ids
from catalog.storage.properties import properties_text, read_properties
from catalog.storage.schema import ColumnStatisticsRow, IndexItemRow, PartitionCheckRow, PartitionRow
from catalog.storage.values import EncodedValues, ValueEncoder
from catalog.tables.checks import refuse_stored_as_iceberg
from catalog.tables.normalising import normalise_location
from catalog.tables.ownership import refuse_locations_in_use


@dataclass(frozen=True)
class PartitionChange:
    """The requested changes of a partition; None keeps the current value.

    Attributes:
        properties: The properties to set, or to remove (None).
        rename_to: The partition's new values, in the order of the keys.
        counts: The new `row_count`, `file_count` and `size_bytes`.
    """

    location: str | None = None
    format: FileFormat | None = None
    properties: Mapping[str, str | None] | None = None
    rename_to: Sequence[str | None] | None = None
    counts: Mapping[str, int | None] = field(default_factory=dict)


def alter_partition(
    connection: Connection, table: Table, values: Sequence[str | None], change: PartitionChange
) -> tuple[str | None, ...]:
    """Change a partition in the caller's transaction, which has a shared lock on the table's row.

    See `Catalog.alter_partition`.

    Returns:
        The partition's values after the change.
    """
    indexes = maintained_indexes(connection, table.id)
    row = _held_row(connection, table, values)
    fields = changed_fields(table, indexes, row, change)
    before = table.partition_location(row.packed_values, row.location)
    after = table.partition_location(row.packed_values, fields["location"])
    if after != before:
        refuse_locations_in_use(connection, table, [after])
    if change.rename_to is None:
        packed, values = row.packed_values, given_values(row.packed_values)
        connection.execute(update(PartitionRow).where(PartitionRow.id == row.id).values(**fields))
        if after != before:
            record_changed(connection, table, [row.id])
    else:
        values = tuple(change.rename_to)
        packed = rename_partition(connection, table, indexes, row, values, {**fields, "location": after})
    stored = own_location(table, values, after)
    # A custom location may have become the default location of the new values.
    if after != before or (stored is None and row.location is not None):
        refuse_shared_folders(connection, table, [packed], [stored])
    return values


def changed_fields(
    table: Table, indexes: Sequence[PartitionIndex], row: Row[Any], change: PartitionChange
) -> dict[str, Any]:
    """Return the new values of columns of a partition's row; a rename changes others, too.

    Args:
        indexes: The table's indexes, which do not admit encrypted partitions.

    Raises:
        LocationNotAllowedError, InvalidLocationError: The location is not allowed.
        InvalidPartitionError: A property is reserved, or an index does not admit the partition.
        InvalidRequestError: A count is not a whole number.
        UnsupportedChangeError: The table is stored as Iceberg, and more than properties would change.
    """
    fields: dict[str, Any] = {"properties": _properties(table, indexes, row, change)}
    counts = {name: count for name, count in change.counts.items() if count is not None}
    if counts or (change.location, change.format, change.rename_to) != (None, None, None):
        refuse_stored_as_iceberg(
            table,
            "a partition's location, format, name or counts",
            "Insert its rows under the new values, and drop the partition",
        )
    before = table.partition_location(row.packed_values, row.location)
    after = before if change.location is None else normalise_location(change.location)
    if after != before:
        require_partition_locations(table, [after])
        # The counts describe the files of the old location.
        fields |= dict.fromkeys(("file_count", "row_count", "size_bytes"))
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 2**63:
            raise InvalidRequestError(f"{name} is {count!r}, expected a whole number, 0 or more")
    return {**fields, **counts, "location": own_location(table, given_values(row.packed_values), after)}


def _held_row(connection: Connection, table: Table, values: Sequence[str | None]) -> Row[Any]:
    """Return a partition's row, locked against index builds and other changes until the commit."""
    condition = PartitionRow.table_id == table.id, PartitionRow.identity == ValueEncoder(table).identity(values)
    partition_id = connection.scalar(select(PartitionRow.id).where(*condition))
    if partition_id is not None:
        hold_ranges(connection, table.id, IdRange(partition_id, partition_id))
        row = connection.execute(select(PartitionRow.__table__).where(*condition).with_for_update()).one_or_none()
        if row is not None:
            return row
    path = partition_path(table.key_names, values)
    raise PartitionNotFoundError(f"table {table.full_name} has no partition {path}; SHOW PARTITIONS lists them")


def _properties(table: Table, indexes: Sequence[PartitionIndex], row: Row[Any], change: PartitionChange) -> str | None:
    properties, own_format = read_properties(row.properties)
    if change.properties is not None:
        changed = {**properties, **change.properties}
        properties = {name: value for name, value in changed.items() if value is not None}
        if indexes and is_encrypted(properties):
            path = table.partition_name(row.packed_values)
            refused = RefusedPartition(path, None, None, None, PartitionProblem.ENCRYPTED, indexes[0].name)
            raise InvalidPartitionError(table.full_name, [refused], reason=f"{refused}. Nothing was changed")
    return properties_text(table, properties, change.format or own_format)


def rename_partition(
    connection: Connection,
    table: Table,
    indexes: Sequence[PartitionIndex],
    row: Row[Any],
    values: tuple[str | None, ...],
    fields: Mapping[str, Any],
) -> str:
    """Replace a partition by one with other values and a new id; return the packed values.

    The values of an id never change: a reader that has found a partition by its values and continues by its id finds
    no partition, instead of one with other values.

    Raises:
        ConflictError: The partition's files wait for their folder (`catalog.partitions.versions`).
    """
    if is_version(row.location):
        raise ConflictError(
            f"the files of partition {table.partition_name(row.packed_values)} of {table.full_name} were replaced, "
            f"and are not in its own folder yet; rename it after `calve vacuum {table.full_name}`, which copies the "
            "files of changes that are older than the grace period"
        )
    new = _encoded(table, indexes, values)
    checks = connection.execute(
        delete(PartitionCheckRow).where(PartitionCheckRow.partition_id == row.id).returning(PartitionCheckRow.__table__)
    ).all()
    connection.execute(delete(PartitionRow).where(PartitionRow.id == row.id))
    for index in indexes:
        [key] = item_keys(ValueEncoder(table, [index]), [row.packed_values])
        delete_items(connection, index.id, [] if key is None else [(key, row.id)])
    [new_id] = reserve_partition_ids(connection, 1)
    location = own_location(table, values, fields["location"])
    changed = {**fields, "location": location, "id": new_id, "identity": new.identity, "packed_values": new.packed}
    try:
        connection.execute(insert(PartitionRow).values({**row._mapping, **changed}))
    except IntegrityError:
        path = partition_path(table.key_names, values)
        raise PartitionAlreadyExistsError(
            f"table {table.full_name} has a partition {path}; nothing was renamed. Choose other values, or drop it"
        ) from None
    refuse_reserved(connection, table, [new.identity])
    refuse_unsettled(connection, table, [new.identity])
    for index, key in zip(indexes, new.index_keys, strict=True):
        insert_rows(connection, IndexItemRow, ("index_id", "key", "partition_id"), [(index.id, cut_key(key), new_id)])
    if not row.is_quarantined:
        record_dropped(connection, table, [row.packed_values])
        record_changed(connection, table, [new_id])
    for check in checks:
        connection.execute(insert(PartitionCheckRow).values({**check._mapping, "partition_id": new_id}))
    statistics = ColumnStatisticsRow
    is_of_row = statistics.table_id == table.id, statistics.partition_id == row.id
    connection.execute(update(statistics).where(*is_of_row).values(partition_id=new_id))
    return new.packed


def _encoded(table: Table, indexes: Sequence[PartitionIndex], values: tuple[str | None, ...]) -> EncodedValues:
    encoded = ValueEncoder(table, indexes, every_key=True).encode(values)
    if isinstance(encoded, RefusedPartition):
        raise InvalidPartitionError(table.full_name, [encoded], reason=f"{encoded}. Nothing was renamed")
    return encoded
