"""Quarantined partitions of tables stored as Iceberg: in the catalog, but in no snapshot.

The data files of such a partition are only in the manifest of the folder that its load has written. A release adds
their rows and publishes them. Vacuum keeps the folder as long as the load has quarantined partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, exists, false, insert, literal, select, update

from catalog.datafiles.files import DataFile, NewFile, Total, insert_files, read_files
from catalog.datafiles.intake import take_in
from catalog.datafiles.manifest import read_manifest
from catalog.datafiles.publishing import FileSwap, publish
from catalog.errors import VerificationFailedError
from catalog.model import NewPartition, OnInvalid, Partition, PartitionState, Table
from catalog.partitions.adding import PartitionAdder
from catalog.partitions.changing import set_quarantined
from catalog.storage.bulk import among, batched
from catalog.storage.clock import CurrentMs
from catalog.storage.partition_rows import PartitionFactory, partition_query
from catalog.storage.schema import OperationRow, PartitionCheckRow, PartitionRow
from catalog.storage.values import ValueEncoder
from catalog.tables.definitions import Definitions

HIDDEN_FILES = "hidden_files"
"""The field of a load's report with the folder of its quarantined files, relative to the table's location."""


@dataclass(frozen=True)
class LoadedPartitions:
    """The partitions that a load has added or, in a table stored as Iceberg or with a partition scheme, extended.

    Attributes:
        files: Those that the load has added to such a table, and that the current snapshot has; empty for other tables,
            and for quarantined partitions.
    """

    table: Table
    partitions: Sequence[Partition]
    files: Sequence[DataFile] = ()


def add_hidden_partitions(adder: PartitionAdder, files: Iterable[NewFile]) -> int:
    """Add the partitions of files, without the files; return their number. The adder quarantines them.

    Raises:
        InvalidPartitionError: An index does not admit a partition.
        PartitionAlreadyExistsError: A partition exists; only new ones can be quarantined.
    """
    totals: dict[tuple[str | None, ...], Total] = {}
    for file in files:
        totals[file.values] = totals.get(file.values, Total()) + Total(1, file.row_count, file.size_bytes)
    new = (
        NewPartition(values, None, total.file_count, total.row_count, total.size_bytes)
        for values, total in totals.items()
    )
    return adder.add(new, if_not_exists=False, on_invalid=OnInvalid.REFUSE).added


def lock_to_release(connection: Connection, definitions: Definitions, name: str) -> Table:
    """Return a table, locked until the transaction ends, for `release_partitions`."""
    is_exclusive = definitions.get_table(name, connection).is_stored_as_iceberg
    return definitions.lock_table(connection, name, exclusive=is_exclusive, is_bulk=not is_exclusive)


def quarantined_ids(connection: Connection, table: Table, ids: Iterable[int]) -> list[int]:
    """Return those of some ids that are of quarantined partitions of a table, ascending."""
    row = PartitionRow
    query = select(row.id).where(row.table_id == table.id, row.is_quarantined)
    return [
        number
        for batch in batched(sorted(ids))
        for number in connection.scalars(query.where(among(connection, row.id, batch)).order_by(row.id))
    ]


def release_partitions(
    connection: Connection,
    definitions: Definitions,
    table: Table,
    ids: Iterable[int],
    operation_number: int | None = None,
) -> int:
    """Make quarantined partitions visible; return their number.

    The caller has locked the table (`lock_to_release`). One that is stored as Iceberg gets a snapshot with their files,
    on top of what other engines have committed.

    Args:
        operation_number: The load that releases its own partitions; None for a release of its own.

    Raises:
        VerificationFailedError: The files of a partition are unknown.
        UnsupportedCommitError: Calve cannot follow a commit of another engine.
    """
    ids = sorted(ids)
    files = list(_hidden_files(connection, table, ids)) if table.is_stored_as_iceberg else []
    released = set_quarantined(connection, table, ids, False, operation_number)
    if files:
        # Engines may have added files to the partitions meanwhile, which could not be followed before.
        table = take_in(connection, definitions, table)
        for number, of_load in groupby(files, itemgetter(0)):
            insert_files(connection, table, (file for _, file in of_load), number)
        publish(connection, table, FileSwap([file for _, file in files]))
    return released


def record_release(connection: Connection, ids: Iterable[int], number: int) -> None:
    """Record the operation by which a person has released partitions, as the verdict on those that passed no check.

    Args:
        ids: The partitions.
        number: The operation, which has the person and the reason.
    """
    check, row = PartitionCheckRow, PartitionRow
    columns = "partition_id", "operation_number", "passed", "failures", "checked_at_ms", "release_number"
    verdict = literal(number), false(), literal([], check.failures.type), CurrentMs(), literal(number)
    for batch in batched(ids):
        failed = (among(connection, check.partition_id, batch), check.passed.is_(False))
        connection.execute(update(check).where(*failed).values(release_number=number))
        # Their check could not be made.
        unchecked = select(row.id, *verdict).where(
            among(connection, row.id, batch), ~exists().where(check.partition_id == row.id)
        )
        connection.execute(insert(check).from_select(columns, unchecked))


def _hidden_files(connection: Connection, table: Table, ids: Iterable[int]) -> Iterator[tuple[int, NewFile]]:
    """Yield the files of quarantined partitions with their partition ids, and the numbers of their loads."""
    row, by_load = PartitionRow, dict[int, dict[bytes, int]]()
    for batch in batched(ids):
        query = select(row.operation_number, row.identity, row.id).where(
            row.table_id == table.id, row.is_quarantined, among(connection, row.id, batch)
        )
        for number, identity, partition_id in connection.execute(query):
            by_load.setdefault(number or 0, {})[bytes(identity)] = partition_id
    encoder = ValueEncoder(table)
    for number, id_of in sorted(by_load.items()):
        left = set(id_of)
        for file in _manifested(connection, table, number):
            identity = encoder.identity(file.values)
            if identity in id_of:
                left.discard(identity)
                yield number, replace(file, partition_id=id_of[identity])
        if left:
            raise VerificationFailedError(
                f"table {table.full_name}: the files of {len(left):,} quarantined partition(s) are not in the list of "
                "the load that added them; nothing was changed. Drop these partitions, and load their rows again"
            )


def _manifested(connection: Connection, table: Table, number: int) -> Iterator[NewFile]:
    report = connection.scalar(select(OperationRow.report).where(OperationRow.number == number))
    folder = hidden_folder(report or {})
    return iter(()) if folder is None else read_manifest(table, folder)


def hidden_folder(report: Mapping[str, Any]) -> str | None:
    """Return the folder of a load's quarantined files from the operation's report; None if it had none."""
    folders = (step.get(HIDDEN_FILES) for step in report.values() if isinstance(step, dict))
    return next((folder for folder in folders if folder is not None), None)


def loaded_partitions(connection: Connection, table: Table, number: int, *, is_whole: bool) -> LoadedPartitions:
    """Return the partitions to which a load has added files, each with the counts and the folder of its files.

    Args:
        is_whole: Include all files of these partitions; otherwise only those of the load.
    """
    totals: dict[int, Total] = {}
    folder_of: dict[int, str] = {}

    def count(partition_id: int, path: str, total: Total) -> None:
        totals[partition_id] = totals.get(partition_id, Total()) + total
        folder_of[partition_id] = f"{table.location}/{path.rpartition('/')[0]}"

    files = list(read_files(connection, table, operation_number=number))
    if is_whole:
        files = list(read_files(connection, table, {file.partition_id for file in files}))
    for file in files:
        count(file.partition_id, file.path, Total(1, file.row_count, file.size_bytes))
    if table.scheme is not None:
        return LoadedPartitions(table, [_placed(table, number, totals[number]) for number in sorted(totals)], files)
    of_load = PartitionRow.table_id == table.id, PartitionRow.operation_number == number
    hidden = connection.scalars(select(PartitionRow.id).where(*of_load, PartitionRow.is_quarantined)).all()
    for _, hidden_file in _hidden_files(connection, table, hidden):
        file_total = Total(1, hidden_file.row_count, hidden_file.size_bytes)
        count(hidden_file.partition_id, hidden_file.path, file_total)
    factory = PartitionFactory(table)
    partitions = [
        partition._replace(
            location=folder_of[partition.id],
            file_count=totals[partition.id].file_count,
            row_count=totals[partition.id].row_count,
            size_bytes=totals[partition.id].size_bytes,
        )
        for batch in batched(sorted(totals))
        for partition in factory.make_all(
            connection.execute(partition_query(table).where(among(connection, PartitionRow.id, batch))).all()
        )
    ]
    return LoadedPartitions(table, partitions, files)


def _placed(table: Table, number: int, total: Total) -> Partition:
    """Return a partition of a scheme, whose files may be in any folder of the table; its age is unknown."""
    return Partition(
        number,
        (str(number),),
        table.location,
        total.file_count,
        total.row_count,
        total.size_bytes,
        {},
        PartitionState.VISIBLE,
        0,
    )
