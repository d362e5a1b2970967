"""Plans of partition changes: which files are rewritten, and which only move to another partition in the catalog."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection

from catalog.datafiles.files import DataFile, Total, read_files
from catalog.datafiles.partitions import text_of_partition
from catalog.datafiles.pruning import partitions_of_file, place_call, place_files
from catalog.datafiles.publishing import files_with_deletes
from catalog.errors import InvalidSchemeError, UnplacedFilesError
from catalog.model import Table
from catalog.rebalancing.changes import PartitionChange
from catalog.schemes.model import UNPLACED, Scheme
from catalog.settings.environment import new_partition_limit as default_partition_limit
from catalog.tables.own_properties import NEW_PARTITIONS_PROPERTY, TARGET_PROPERTY, read_setting

DEFAULT_FILE_BYTES = 128 * 1024 * 1024
"""The default target size of data files; the table's property `calve.target_file_bytes` overrides it."""

_BYTES_A_SECOND = 25_000_000
_START_SECONDS = 6.0
"""Throughput of reading, sorting and writing with Spark on two cores, and Spark's start time (see `make bench`)."""


@dataclass(frozen=True)
class PartitionReading:
    """The effect of a plan on one existing partition.

    Attributes:
        text: A description of the partition.
        before: Its contents.
        rewritten: The part of its contents that is rewritten.
        targets: The partitions that its rows may belong to afterwards; none if they are deleted.
    """

    partition_id: int
    text: str
    before: Total
    rewritten: Total
    targets: tuple[int, ...]


@dataclass(frozen=True)
class RebalancePlan:
    """The plan of one change, with the state that it expects to find.

    Attributes:
        table: The table when the plan was made.
        scheme: The scheme afterwards.
        readings: The affected partitions, in logical order.
        rewritten: The files whose rows belong to several partitions afterwards.
        relabelled: File → the single partition that its rows belong to afterwards; the file is not read.
        deleted: The files that are deleted with their partition.
        last_file_id: The highest id of the files of affected partitions; later files, of other engines, are not part of
            the plan.
    """

    table: Table
    change: PartitionChange
    scheme: Scheme
    readings: tuple[PartitionReading, ...]
    rewritten: tuple[DataFile, ...]
    relabelled: Mapping[int, int]
    deleted: tuple[DataFile, ...]
    last_file_id: int = 0

    @property
    def needs_spark(self) -> bool:
        """Whether rows have to move."""
        return bool(self.rewritten)

    @property
    def has_deletes(self) -> bool:
        """Whether rewritten files may have rows that are deleted in files of their own, by other engines."""
        return self.table.delete_file_count > 0

    @property
    def reading(self) -> dict[str, Any]:
        """The state in which the rows of rewritten files are read: the fields of `FileChange`."""
        return {"read_from": self.table.published_location, "had_deletes": self.has_deletes}

    @property
    def is_destructive(self) -> bool:
        """Whether rows are deleted."""
        return bool(self.deleted)

    @property
    def moved(self) -> Total:
        """The total of the rewritten files."""
        return Total.of(self.rewritten)

    @property
    def lost(self) -> Total:
        """The total of the deleted files."""
        return Total.of(self.deleted)

    @property
    def targets(self) -> tuple[int, ...]:
        """The partitions that rewritten rows may belong to, in the new logical order."""
        sources = {file.partition_id for file in self.rewritten}
        targets = {target for reading in self.readings if reading.partition_id in sources for target in reading.targets}
        return tuple(partition_id for partition_id in self.scheme.ids if partition_id in targets)

    @property
    def targets_of_all(self) -> tuple[int, ...]:
        """The partitions that rows of the affected partitions may belong to, in the new logical order."""
        targets = {target for reading in self.readings for target in reading.targets}
        return tuple(partition_id for partition_id in self.scheme.ids if partition_id in targets)

    @property
    def possible(self) -> dict[int, tuple[int, ...]]:
        """The affected partitions, with those that rows may belong to afterwards which are not part of the plan."""
        return {
            reading.partition_id: reading.targets or self.scheme.ids
            for reading in self.readings
            if reading.partition_id != UNPLACED
        }

    @property
    def estimated_files(self) -> int:
        """The approximate number of written files."""
        return max(len(self.targets), -(-self.moved.size_bytes // target_file_bytes(self.table))) * bool(self.rewritten)

    @property
    def estimated_seconds(self) -> float:
        """The approximate duration in seconds; almost none without Spark."""
        return _START_SECONDS + self.moved.size_bytes / _BYTES_A_SECOND if self.needs_spark else 0.05

    @property
    def fingerprint(self) -> str:
        """A digest of the state that the plan expects, and `last_file_id`.

        It differs for another scheme or other files, but not for files that other engines have added since.
        """
        scheme = self.table.scheme
        assert scheme is not None
        expected = [
            scheme.as_json(),
            self.change.as_json(),
            sorted(file.id for file in self.rewritten),
            sorted(self.relabelled.items()),
            sorted(file.id for file in self.deleted),
        ]
        digest = hashlib.blake2b(json.dumps(expected).encode(), digest_size=12).hexdigest()
        return f"{digest}.{self.last_file_id}"

    def as_json(self) -> dict[str, Any]:
        """Return the plan as JSON values, without its files."""
        moved, lost = self.moved, self.lost
        return {
            "table": self.table.full_name,
            "statement": self.change.statement(self.table.full_name),
            "change": self.change.as_json(),
            "fingerprint": self.fingerprint,
            "needs_spark": self.needs_spark,
            "is_destructive": self.is_destructive,
            "partitions": [
                {
                    "partition_id": reading.partition_id,
                    "partition": reading.text,
                    "rows": reading.before.row_count,
                    "bytes": reading.before.size_bytes,
                    "files": reading.before.file_count,
                    "rows_moved": reading.rewritten.row_count,
                    "targets": list(reading.targets),
                }
                for reading in self.readings
            ],
            "rows_moved": moved.row_count,
            "bytes_moved": moved.size_bytes,
            "files_read": moved.file_count,
            "files_written": self.estimated_files,
            "files_reassigned": len(self.relabelled),
            "rows_deleted": lost.row_count,
            "bytes_deleted": lost.size_bytes,
            "files_deleted": lost.file_count,
            "estimated_seconds": round(self.estimated_seconds, 1),
            "partitions_after": {str(target): text_of_partition(self.scheme, target) for target in self.targets_of_all},
            "scheme_after": self.scheme.lines(),
        }

    def __str__(self) -> str:
        """Return the plan as a readable string, with one line for each fact."""
        moved, lost = self.moved, self.lost
        lines = [self.change.statement(self.table.full_name)]
        for reading in self.readings[:_SHOWN]:
            after = ", ".join(map(str, reading.targets[:_SHOWN])) if reading.targets else "deleted"
            before = f"{reading.before.row_count:,} rows in {reading.before.file_count:,} files"
            lines.append(f"  partition {reading.partition_id} ({reading.text}): {before} → {after}")
        if len(self.readings) > _SHOWN:
            lines.append(f"  and {len(self.readings) - _SHOWN:,} more partitions")
        lines += [
            f"rows moved:       {moved.row_count:,} ({moved.size_bytes:,} bytes) out of {moved.file_count:,} files",
            f"files written:    about {self.estimated_files:,}",
            f"files reassigned: {len(self.relabelled):,}, without reading them",
            f"rows deleted:     {lost.row_count:,} ({lost.size_bytes:,} bytes)",
            f"time:             about {self.estimated_seconds:.1f} s"
            + ("" if self.needs_spark else ", in the catalog alone"),
        ]
        return "\n".join(lines)


_SHOWN = 20


def with_target_file_bytes(table: Table, target_bytes: int) -> Table:
    """Return a table as if its own target size of data files were this one."""
    return replace(table, properties={**table.properties, TARGET_PROPERTY: str(target_bytes)})


def target_file_bytes(table: Table) -> int:
    """Return the target size of a table's data files, in bytes.

    Raises:
        InvalidTableError: The table's property is not a number above 0.
    """
    return read_setting(table.properties, TARGET_PROPERTY, DEFAULT_FILE_BYTES)


def new_partition_limit(table: Table) -> int:
    """Return the maximum number of partitions that one load adds to a RANGE_INTERVAL table.

    The table's property overrides the environment's setting.

    Raises:
        InvalidTableError: The table's property is not a whole number.
    """
    return read_setting(table.properties, NEW_PARTITIONS_PROPERTY, default_partition_limit())


def last_file_id(fingerprint: str) -> int | None:
    """Return the last file of the plan with a fingerprint; None if it does not name one."""
    number = fingerprint.rpartition(".")[2]
    return int(number) if number.isdecimal() else None


def make_plan(connection: Connection, table: Table, change: PartitionChange, until: int | None = None) -> RebalancePlan:
    """Plan a change in the caller's transaction; the same table gives the same plan.

    A change that rewrites files also places the unplaced ones.

    Args:
        until: The highest id of files of other engines that take part; None for all.

    Raises:
        PartitionNotFoundError, InvalidSchemeError: The change does not fit the table's scheme; subclasses say why.
        UnplacedFilesError: The change deletes rows, and unplaced files may have further ones.
    """
    scheme = table.scheme
    if scheme is None:
        raise InvalidSchemeError(
            f"table {table.full_name} has no partition scheme, so it does not support {change}; {_instead(table)}"
        )
    effect = change.of(scheme)
    affected = {*effect.targets, *effect.deleted}
    with_deletes = files_with_deletes(table) if change.applies_deletes else frozenset()
    files = _files_of_plan(connection, table, affected, with_deletes, until)
    if with_deletes:
        affected.update(file.partition_id for file in files)
    unplaced = [file for file in files if file.partition_id == UNPLACED]
    _refuse_unplaced(table, scheme, unplaced, effect.deleted)
    deleted = tuple(file for file in files if file.partition_id in effect.deleted)
    kept = [file for file in files if file.partition_id in affected and file.partition_id not in effect.deleted]
    stay: dict[int, tuple[int, ...]] = {number: (number,) for number in affected}
    targets = {**stay, **effect.targets, UNPLACED: effect.scheme.ids}
    placing = place_files(effect.scheme, kept, targets)
    if placing.rewritten and UNPLACED not in affected and unplaced:
        affected.add(UNPLACED)
        placing = place_files(effect.scheme, [*kept, *unplaced], targets)
    again = [file for file in kept if file.path in with_deletes and file not in placing.rewritten]
    rewritten = (*placing.rewritten, *again)
    relabelled = {number: target for number, target in placing.relabelled.items() if number not in _ids(again)}
    if UNPLACED in affected:
        targets[UNPLACED] = _partitions_of(effect.scheme, (file for file in rewritten if file in unplaced))
    for number in effect.deleted:
        targets[number] = ()
    before, moved = _totals(files), _totals(rewritten)
    readings = tuple(
        PartitionReading(
            number,
            text_of_partition(scheme, number),
            before.get(number, Total()),
            moved.get(number, Total()),
            targets[number],
        )
        for number in (*scheme.ids, UNPLACED)
        if number in affected
    )
    last_id = max(_ids(files), default=0)
    return RebalancePlan(table, change, effect.scheme, readings, rewritten, relabelled, deleted, last_id)


def _instead(table: Table) -> str:
    """Return what to do with a table without a scheme instead of a rebalance."""
    if table.is_stored_as_iceberg:
        return "its partitions follow from the values of its rows, also of those that other engines write"
    if table.partition_keys:
        return "its partitions are named by their values: ALTER TABLE … ADD PARTITION (key='value')"
    return "it has no partitions"


def _files_of_plan(
    connection: Connection,
    table: Table,
    affected: Collection[int],
    with_deletes: Collection[str],
    until: int | None,
) -> list[DataFile]:
    """Return the files of affected partitions, unplaced ones, and those with deleted rows."""
    chosen = None if with_deletes else {*affected, UNPLACED}
    return [
        file
        for file in read_files(connection, table, chosen)
        if (chosen is not None or file.partition_id in affected or file.path in with_deletes)
        and (until is None or file.id <= until or file.is_own)
    ]


def _ids(files: Iterable[DataFile]) -> set[int]:
    return {file.id for file in files}


def _refuse_unplaced(table: Table, scheme: Scheme, unplaced: Sequence[DataFile], deleted_ids: Sequence[int]) -> None:
    """Refuse to delete partitions if unplaced files may have rows of them.

    Raises:
        UnplacedFilesError: They may.
    """
    files = [file for file in unplaced if partitions_of_file(scheme, file.statistics, deleted_ids)]
    if files:
        raise UnplacedFilesError(table.full_name, deleted_ids, len(files), place_call(table))


def _partitions_of(scheme: Scheme, files: Iterable[DataFile]) -> tuple[int, ...]:
    """Return the partitions that rows of some files may belong to, in logical order."""
    possible = {number for file in files for number in partitions_of_file(scheme, file.statistics, scheme.ids)}
    return tuple(number for number in scheme.ids if number in possible)


def _totals(files: Iterable[DataFile]) -> dict[int, Total]:
    totals: dict[int, Total] = {}
    for file in files:
        totals[file.partition_id] = totals.get(file.partition_id, Total()) + Total.of([file])
    return totals
