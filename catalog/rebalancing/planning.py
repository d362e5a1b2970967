"""Plans of partition changes: which files are rewritten, and which only move to another partition in the catalog."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from catalog.datafiles.files import DataFile, Total, count_files, read_files
from catalog.datafiles.pruning import place_files
from catalog.errors import InvalidSchemeError
from catalog.model import Table
from catalog.rebalancing.changes import PartitionChange
from catalog.schemes.model import Scheme
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
    """

    table: Table
    change: PartitionChange
    scheme: Scheme
    readings: tuple[PartitionReading, ...]
    rewritten: tuple[DataFile, ...]
    relabelled: Mapping[int, int]
    deleted: tuple[DataFile, ...]

    @property
    def needs_spark(self) -> bool:
        """Whether rows have to move."""
        return bool(self.rewritten)

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
    def estimated_files(self) -> int:
        """The approximate number of written files."""
        return max(len(self.targets), -(-self.moved.size_bytes // target_file_bytes(self.table))) * bool(self.rewritten)

    @property
    def estimated_seconds(self) -> float:
        """The approximate duration in seconds; almost none without Spark."""
        return _START_SECONDS + self.moved.size_bytes / _BYTES_A_SECOND if self.needs_spark else 0.05

    @property
    def fingerprint(self) -> str:
        """A digest of the state that the plan expects; it differs for another scheme or other files."""
        scheme = self.table.scheme
        assert scheme is not None
        expected = [
            scheme.as_json(),
            self.change.as_json(),
            sorted(file.id for file in self.rewritten),
            sorted(self.relabelled.items()),
            sorted(file.id for file in self.deleted),
        ]
        return hashlib.blake2b(json.dumps(expected).encode(), digest_size=12).hexdigest()

    def as_json(self) -> dict[str, Any]:
        """Return the plan as JSON values, without its files."""
        moved, lost = self.moved, self.lost
        return {
            "table": self.table.full_name,
            "statement": f"ALTER TABLE {self.table.full_name} {self.change}",
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
            "scheme_after": self.scheme.lines(),
        }

    def __str__(self) -> str:
        """Return the plan as a readable string, with one line for each fact."""
        moved, lost = self.moved, self.lost
        lines = [f"ALTER TABLE {self.table.full_name} {self.change}"]
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


def make_plan(connection: Connection, table: Table, change: PartitionChange) -> RebalancePlan:
    """Plan a change in the caller's transaction; the same table gives the same plan.

    Raises:
        PartitionNotFoundError, InvalidSchemeError: The change does not fit the table's scheme; subclasses say why.
    """
    scheme = table.scheme
    if scheme is None:
        raise InvalidSchemeError(
            f"table {table.full_name} has no partition scheme, so it does not support {change}; for a table with "
            "partition keys, name the values: ALTER TABLE … ADD PARTITION (key='value')"
        )
    effect = change.of(scheme)
    affected = {*effect.targets, *effect.deleted}
    before = count_files(connection, table, affected)
    files = list(read_files(connection, table, affected & before.keys()))
    deleted = tuple(file for file in files if file.partition_id in effect.deleted)
    kept = (file for file in files if file.partition_id not in effect.deleted)
    placing = place_files(effect.scheme, kept, effect.targets)
    moved: dict[int, Total] = {}
    for file in placing.rewritten:
        moved[file.partition_id] = moved.get(file.partition_id, Total()) + Total.of([file])
    readings = tuple(
        PartitionReading(
            partition_id,
            scheme.text_of(partition_id),
            before.get(partition_id, Total()),
            moved.get(partition_id, Total()),
            effect.targets.get(partition_id, ()),
        )
        for partition_id in scheme.ids
        if partition_id in affected
    )
    return RebalancePlan(table, change, effect.scheme, readings, tuple(placing.rewritten), placing.relabelled, deleted)
