"""Partition records of other engines' files, as partitions of tables stored as Iceberg.

An engine commits files with a record of typed values; the catalog has partitions by strings. A change of files by an
engine adds partitions, extends them, and drops those without files, in the transaction that takes it in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from catalog.datafiles.files import NewFile
from catalog.datafiles.history import file_ids
from catalog.errors import PartitionValueError
from catalog.iceberg.differences import LiveFile
from catalog.iceberg.values import text_of
from catalog.model import Table
from catalog.model.partition_names import NULL_TEXTS
from catalog.partitions.adding import PartitionAdder
from catalog.partitions.snapshots import UNPARTITIONED, add_partition_files, replace_files
from catalog.tables.definitions import Definitions
from catalog.types.key_types import KeyValueError


@dataclass(frozen=True)
class ChangedPartitions:
    """The effect of other engines' commits on the partitions of a table: numbers of partitions."""

    added: int = 0
    extended: int = 0
    dropped: int = 0


def follow_files(
    connection: Connection,
    definitions: Definitions,
    table: Table,
    added: Iterable[LiveFile],
    removed: Iterable[str],
) -> ChangedPartitions:
    """Change file rows, partitions, their counts and index items as other engines have changed the files.

    The caller has locked the table exclusively.

    Args:
        removed: Paths relative to the table's location.

    Raises:
        PartitionValueError: A record has a value that no partition of the catalog can have.
        InvalidPartitionError: A partition index does not admit a value.
        ConflictError: A file belongs to a quarantined partition.
    """
    adder = PartitionAdder(connection, definitions, table) if table.partition_keys else None
    new = add_partition_files(connection, adder, table, _new_files(table, added), None)
    dropped = _remove(connection, table, removed)
    return ChangedPartitions(new.added, new.extended, dropped)


def _new_files(table: Table, files: Iterable[LiveFile]) -> Iterator[NewFile]:
    known: dict[tuple[Any, ...], tuple[str | None, ...]] = {}
    for file in files:
        if (values := known.get(file.partition)) is None:
            values = known[file.partition] = values_of(table, file.partition)
        path = file.path.removeprefix(f"{table.location}/")
        by_id = file.is_read_by_id
        yield NewFile(UNPARTITIONED, path, file.row_count, file.size_bytes, {}, values=values, is_read_by_id=by_id)


def values_of(table: Table, record: Sequence[Any]) -> tuple[str | None, ...]:
    """Return the values of a partition, given its record.

    Raises:
        PartitionValueError: The catalog has no such value, for instance an empty string, which it takes as null.
    """
    values = []
    for key, value in zip(table.partition_keys, record, strict=True):
        try:
            text = None if value is None else text_of(key.type, value)
        except KeyValueError as error:
            raise PartitionValueError(key.name, str(value), key.type, str(error)) from None
        if text in NULL_TEXTS:
            raise PartitionValueError(key.name, str(text), key.type, "it stands for null in a partition")
        values.append(text)
    return tuple(values)


def _remove(connection: Connection, table: Table, paths: Iterable[str]) -> int:
    """Remove files, and the partitions that have no other files; return the number of these partitions."""
    return replace_files(connection, table, file_ids(connection, table, sorted(paths)))[1]
