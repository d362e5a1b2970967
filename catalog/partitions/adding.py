"""Adding partitions in bulk, each with its item in every index of the table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from sqlalchemy import Connection, select

from catalog.clock import now_ms
from catalog.definitions import Definitions, normalise_location
from catalog.errors import InvalidPartitionError, PartitionAlreadyExistsError, RefusedPartition
from catalog.indexes.definitions import maintained_indexes
from catalog.indexes.keys import cut_key
from catalog.model import AddResult, NewPartition, OnInvalid, Table
from catalog.partition_names import partition_path, unpack_values
from catalog.storage.bulk import among, batched, insert_rows, reserve_partition_ids
from catalog.storage.schema import IndexItemRow, PartitionRow
from catalog.values import EncodedValues, ValueEncoder

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
)

_Entry: TypeAlias = tuple[NewPartition, EncodedValues]
_Batch: TypeAlias = dict[bytes, _Entry]


class PartitionAdder:
    """Adds partitions of one table in the caller's transaction, which holds the table's row shared."""

    def __init__(
        self,
        connection: Connection,
        definitions: Definitions,
        table: str,
        *,
        is_quarantined: bool = False,
        operation_number: int | None = None,
    ) -> None:
        """Hold the table, and see which indexes it has from now on until the transaction ends.

        Raises:
            TableNotFoundError: There is no such table.
        """
        self._connection = connection
        self.table: Table = definitions.lock_table(connection, table, exclusive=False)
        if not self.table.partition_keys:
            raise InvalidPartitionError(
                self.table.full_name, reason="it has no partition keys, so no partition can be added"
            )
        self._encoder = ValueEncoder(self.table, maintained_indexes(connection, self.table.id))
        self._is_quarantined = is_quarantined
        self._operation_number = operation_number

    def add(self, partitions: Iterable[NewPartition], *, if_not_exists: bool, on_invalid: OnInvalid) -> AddResult:
        """Add partitions; see `Catalog.add_partitions`."""
        added = existing = 0
        refused: list[RefusedPartition] = []
        for chunk in batched(partitions):
            batch, twice = self._encode(chunk, refused)
            if refused and on_invalid is OnInvalid.REFUSE:
                raise InvalidPartitionError(self.table.full_name, refused)
            known = self._insert_new(batch)
            if (known or twice) and not if_not_exists:
                raise self._exists([batch[identity][1] for identity in known] + twice)
            added += len(batch) - len(known)
            existing += len(known) + len(twice)
        return AddResult(added, existing, tuple(refused))

    def _encode(
        self, partitions: Sequence[NewPartition], refused: list[RefusedPartition]
    ) -> tuple[_Batch, list[EncodedValues]]:
        """Return the partitions that fit, by identity, and those named twice; add the others to `refused`."""
        batch: _Batch = {}
        twice: list[EncodedValues] = []
        for partition in partitions:
            encoded = self._encoder.encode(partition.values)
            if isinstance(encoded, RefusedPartition):
                refused.append(encoded)
            elif encoded.identity in batch:
                twice.append(encoded)
            else:
                batch[encoded.identity] = (partition, encoded)
                if partition.location is None and len(partition.values) < len(self.table.partition_keys):
                    name = partition_path(self.table.key_names, partition.values)
                    raise InvalidPartitionError(
                        self.table.full_name,
                        reason=f"partition {name} lacks a value, so it has no default folder; give it a location",
                    )
        return batch, twice

    def _insert_new(self, batch: _Batch) -> list[bytes]:
        """Insert the partitions that are not there yet; return the identities of the others.

        Somebody else may be adding the same partition: then the insert waits for their commit and fails, and the
        second look sees what they added.
        """
        while True:
            known = registered(self._connection, self.table, list(batch))
            new = [entry for identity, entry in batch.items() if identity not in known]
            try:
                with self._connection.begin_nested():
                    self._insert(new)
            except Exception as error:
                if _is_unique_violation(error):
                    continue
                raise
            return [identity for identity in batch if identity in known]

    def _insert(self, new: Sequence[_Entry]) -> None:
        if not new:
            return
        ids = reserve_partition_ids(self._connection, len(new))
        numbered = list(zip(ids, new, strict=True))
        # In one order for everybody: two who add the same partitions would otherwise wait for each other for ever.
        in_order = sorted(numbered, key=lambda each: each[1][1].identity)
        insert_rows(self._connection, PartitionRow, _COLUMNS, self._rows(in_order))
        for number, index in enumerate(self._encoder.indexes):
            items = (
                (index.id, cut_key(encoded.index_keys[number]), partition_id) for partition_id, (_, encoded) in numbered
            )
            insert_rows(self._connection, IndexItemRow, ("index_id", "key", "partition_id"), items)

    def _rows(self, numbered: Sequence[tuple[int, _Entry]]) -> Iterator[tuple[Any, ...]]:
        now = now_ms()
        for partition_id, (partition, encoded) in numbered:
            yield (
                partition_id,
                self.table.id,
                encoded.identity,
                encoded.packed,
                self._own_location(partition),
                partition.file_count,
                partition.row_count,
                partition.size_bytes,
                json.dumps(dict(partition.properties)) if partition.properties else None,
                self._is_quarantined,
                self._operation_number,
                now,
            )

    def _own_location(self, partition: NewPartition) -> str | None:
        """Return the location to store; None for the default, which needs no room."""
        if partition.location is None:
            return None
        location = normalise_location(partition.location)
        path = partition_path(self.table.key_names, partition.values)
        is_default = location == self.table.default_partition_location(path)
        return None if is_default and len(partition.values) == len(self.table.partition_keys) else location

    def _exists(self, known: Sequence[EncodedValues]) -> PartitionAlreadyExistsError:
        names = [partition_path(self.table.key_names, unpack_values(encoded.packed)) for encoded in known[:5]]
        return PartitionAlreadyExistsError(
            f"table {self.table.full_name}: {len(known):,} of these partitions exist or are named twice, for instance "
            f"{', '.join(names)}; nothing was added. Leave them out, or ask to add only those that do not exist"
        )


def registered(connection: Connection, table: Table, identities: Sequence[bytes]) -> set[bytes]:
    """Return those of the identities that partitions of the table have."""
    query = select(PartitionRow.identity).where(
        PartitionRow.table_id == table.id, among(connection, PartitionRow.identity, identities)
    )
    return set(connection.scalars(query))


def _is_unique_violation(error: Exception) -> bool:
    """Say whether a driver refused a row for an identity that exists; bulk statements bypass SQLAlchemy's errors."""
    return getattr(error, "sqlstate", None) == "23505" or "UNIQUE constraint failed" in str(error)
