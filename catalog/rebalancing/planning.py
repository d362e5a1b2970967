"""What a change of a table's partitions means for its files: which are written anew, which only counted elsewhere."""

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
from catalog.tables.own_properties import NEW_PARTITIONS_PROPERTY, TARGET_PROPERTY

DEFAULT_FILE_BYTES = 128 * 1024 * 1024
"""The size that data files aim at, unless the table's property `calve.target_file_bytes` says otherwise."""

_BYTES_A_SECOND = 25_000_000
_START_SECONDS = 6.0
"""What Spark takes to read, sort and write on two cores, and to start (see `make bench`)."""


@dataclass(frozen=True)
class PartitionReading:
    """What a plan does with one partition that there is.

    Attributes:
        text: The partition in words.
        before: What it holds.
        rewritten: What of it is read and written anew.
        targets: The partitions that its rows may belong to afterwards; none when they go away.
    """

    partition_id: int
    text: str
    before: Total
    rewritten: Total
    targets: tuple[int, ...]


@dataclass(frozen=True)
class RebalancePlan:
    """How one change is done, and what it expects to find.

    Attributes:
        table: As it was when the plan was made.
        scheme: The scheme afterwards.
        readings: The partitions that the change concerns, in logical order.
        rewritten: The files whose rows belong to several partitions afterwards; they are read and written anew.
        relabelled: File → the one partition that its rows belong to afterwards; nobody reads it.
        deleted: The files that go away with their partition.
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
        """Say whether rows have to be moved."""
        return bool(self.rewritten)

    @property
    def is_destructive(self) -> bool:
        """Say whether rows go away."""
        return bool(self.deleted)

    @property
    def moved(self) -> Total:
        """What is read and written anew."""
        return Total.of(self.rewritten)

    @property
    def lost(self) -> Total:
        """What goes away."""
        return Total.of(self.deleted)

    @property
    def targets(self) -> tuple[int, ...]:
        """The partitions that rewritten rows may belong to, in the new logical order."""
        sources = {each.partition_id for each in self.rewritten}
        wanted = {target for each in self.readings if each.partition_id in sources for target in each.targets}
        return tuple(each for each in self.scheme.ids if each in wanted)

    @property
    def estimated_files(self) -> int:
        """About how many files are written."""
        return max(len(self.targets), -(-self.moved.size_bytes // target_file_bytes(self.table))) * bool(self.rewritten)

    @property
    def estimated_seconds(self) -> float:
        """About how long it takes, in seconds; next to nothing without Spark."""
        return _START_SECONDS + self.moved.size_bytes / _BYTES_A_SECOND if self.needs_spark else 0.05

    @property
    def fingerprint(self) -> str:
        """A digest of all that the plan expects to find; another one for another scheme or other files."""
        scheme = self.table.scheme
        assert scheme is not None
        expected = [
            scheme.as_json(),
            self.change.as_json(),
            sorted(each.id for each in self.rewritten),
            sorted(self.relabelled.items()),
            sorted(each.id for each in self.deleted),
        ]
        return hashlib.blake2b(json.dumps(expected).encode(), digest_size=12).hexdigest()

    def as_json(self) -> dict[str, Any]:
        """Return the plan for people and programs, without its files."""
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
                    "partition_id": each.partition_id,
                    "partition": each.text,
                    "rows": each.before.row_count,
                    "bytes": each.before.size_bytes,
                    "files": each.before.file_count,
                    "rows_moved": each.rewritten.row_count,
                    "targets": list(each.targets),
                }
                for each in self.readings
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
        """Return the plan as text, a line a fact."""
        moved, lost = self.moved, self.lost
        lines = [f"ALTER TABLE {self.table.full_name} {self.change}"]
        for each in self.readings[:_SHOWN]:
            after = ", ".join(map(str, each.targets[:_SHOWN])) if each.targets else "deleted"
            what = f"{each.before.row_count:,} rows in {each.before.file_count:,} files"
            lines.append(f"  partition {each.partition_id} ({each.text}): {what} → {after}")
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
    """Return the size that a table's data files aim at, in bytes.

    Raises:
        InvalidSchemeError: The table's property is no number above 0.
    """
    text = table.properties.get(TARGET_PROPERTY)
    if text is None:
        return DEFAULT_FILE_BYTES
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 16 and int(text)):
        raise InvalidSchemeError(
            f"table {table.full_name}: property {TARGET_PROPERTY} is {text!r}, expected a number of bytes above 0"
        )
    return int(text)


def new_partition_limit(table: Table) -> int:
    """Return how many partitions one load may add to a RANGE_INTERVAL table: its property, or the environment's.

    Raises:
        InvalidSchemeError: The table's property is no whole number.
    """
    text = table.properties.get(NEW_PARTITIONS_PROPERTY)
    if text is None:
        return default_partition_limit()
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidSchemeError(
            f"table {table.full_name}: property {NEW_PARTITIONS_PROPERTY} is {text!r}, expected a whole number"
        )
    return int(text)


def make_plan(connection: Connection, table: Table, change: PartitionChange) -> RebalancePlan:
    """Plan a change in the caller's transaction; the same table gives the same plan.

    Raises:
        PartitionNotFoundError, InvalidSchemeError: The change does not fit the table's scheme; subclasses say why.
    """
    scheme = table.scheme
    if scheme is None:
        raise InvalidSchemeError(
            f"table {table.full_name} has no partition scheme, so {change} is not for it; for one with partition keys, "
            "name the values: ALTER TABLE … ADD PARTITION (key='value')"
        )
    effect = change.of(scheme)
    concerned = {*effect.targets, *effect.deleted}
    before = count_files(connection, table, concerned)
    files = list(read_files(connection, table, concerned & before.keys()))
    deleted = tuple(each for each in files if each.partition_id in effect.deleted)
    kept = (each for each in files if each.partition_id not in effect.deleted)
    placing = place_files(effect.scheme, kept, effect.targets)
    moved: dict[int, Total] = {}
    for file in placing.rewritten:
        moved[file.partition_id] = moved.get(file.partition_id, Total()) + Total.of([file])
    readings = tuple(
        PartitionReading(
            each,
            scheme.text_of(each),
            before.get(each, Total()),
            moved.get(each, Total()),
            effect.targets.get(each, ()),
        )
        for each in scheme.ids
        if each in concerned
    )
    return RebalancePlan(table, change, effect.scheme, readings, tuple(placing.rewritten), placing.relabelled, deleted)
