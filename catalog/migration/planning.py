"""Plans of migrations: the resulting table, and the state of the source that the plan expects."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from catalog.migration.refusals import PartitionChecks, refuse_shared_location, refuse_table, tables_sharing
from catalog.migration.requests import MigrationRequest
from catalog.migration.sources import Selection, partitions_of
from catalog.model import FileFormat, Partition, Table
from catalog.operations.records import OperationKind
from catalog.partitions.queries import Queries
from catalog.partitions.reading import read_pages

if TYPE_CHECKING:
    from catalog.iceberg.layout import Layout

_FILES_A_SECOND = 2_000
_START_SECONDS = 10.0
"""Speed of reading footers in Spark on two cores, and Spark's start-up time (see `make bench`)."""

_SHOWN = 20


def estimated_seconds(files: int) -> float:
    """Return the approximate duration of the Spark jobs that migrate a table with so many files, in seconds."""
    return _START_SECONDS + files / _FILES_A_SECOND


@dataclass(frozen=True)
class PlannedColumn:
    """A column with its types before and after."""

    name: str
    hive_type: str
    iceberg_type: str
    is_partition_key: bool


@dataclass(frozen=True)
class MigrationPlan:
    """The plan of a migration.

    Attributes:
        table: The table when the plan was made.
        request: The request, with the plan's fingerprint.
        layout: The Iceberg table's schema and partition spec.
        columns: Columns and partition keys with both types, in order.
        partition_count: The number of visible partitions; 1 for a table without partition keys.
        formats: Format → the number of partitions that have it.
        outside_count: The number of partitions outside the table's folder.
        file_count, row_count, size_bytes: Totals from the catalog; None if those of any partition are unknown.
        warnings: Differences of the Iceberg table, one sentence each.
        fingerprint: A digest of the expected definition, partitions and request.
    """

    table: Table
    request: MigrationRequest
    layout: Layout
    columns: tuple[PlannedColumn, ...]
    partition_count: int
    formats: Mapping[FileFormat, int]
    outside_count: int
    file_count: int | None
    row_count: int | None
    size_bytes: int | None
    warnings: tuple[str, ...]
    fingerprint: str

    @property
    def estimated_seconds(self) -> float | None:
        """The approximate duration of the Spark jobs in seconds; None if the files were never counted."""
        return None if self.file_count is None else estimated_seconds(self.file_count)

    def as_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        seconds = self.estimated_seconds
        return {
            "table": self.table.full_name,
            "target": self.request.target or self.table.full_name,
            "location": self.table.location,
            "request": self.request.asked,
            "fingerprint": self.fingerprint,
            "columns": [
                {
                    "name": column.name,
                    "hive_type": column.hive_type,
                    "iceberg_type": column.iceberg_type,
                    "is_partition_key": column.is_partition_key,
                }
                for column in self.columns
            ],
            "partitions": self.partition_count,
            "partitions_elsewhere": self.outside_count,
            "formats": {str(name): count for name, count in self.formats.items()},
            "files": self.file_count,
            "rows": self.row_count,
            "bytes": self.size_bytes,
            "warnings": list(self.warnings),
            "estimated_seconds": None if seconds is None else round(seconds, 1),
        }

    def __str__(self) -> str:
        """Return the plan as text, one fact per line."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        target = self.request.target
        yield f"{self.table.full_name} → Iceberg" + (f" table {target}" if target else ", in place")
        for column in self.columns[:_SHOWN]:
            key = ", partition key" * column.is_partition_key
            yield f"  {column.name}: {column.hive_type} → {column.iceberg_type}{key}"
        if len(self.columns) > _SHOWN:
            yield f"  and {len(self.columns) - _SHOWN:,} more columns"
        formats = ", ".join(f"{count:,} {name.upper()}" for name, count in self.formats.items())
        yield f"partitions: {self.partition_count:,} ({formats}), {self.outside_count:,} outside the table's folder"
        yield f"files:      {_known(self.file_count)}"
        yield f"rows:       {_known(self.row_count)}"
        yield f"bytes:      {_known(self.size_bytes)}"
        if self.estimated_seconds is not None:
            yield f"time:       about {self.estimated_seconds:.0f} s"
        yield f"nested folders: {_RECURSION[self.request.recursive_directory]}"
        for warning in self.warnings:
            yield f"warning: {warning}"


_RECURSION = {"true": "their files count", "false": "skipped", "fail": "refused"}


def _known(count: int | None) -> str:
    return "unknown until the files are read" if count is None else f"{count:,}"


def make_plan(
    connection: Connection, table: Table, request: MigrationRequest, layout: Layout, selection: Selection
) -> MigrationPlan:
    """Plan a migration in the caller's transaction; the same table always gives the same plan.

    Args:
        layout: The layout of the Iceberg table.
        selection: The partitions to migrate.

    Raises:
        MigrationRefusedError: The table or a partition cannot be migrated; subclasses tell the reason.
        NotATableError, UnsupportedChangeError, UnsupportedFormatError: The same.
        PartitionValueError: A value of a partition does not have its key's type.
    """
    refuse_table(connection, table, or_target=request.target is None)
    checks = PartitionChecks(table, is_nesting_allowed=request.recursive_directory == "false")
    totals = _Totals()
    if not table.partition_keys:
        totals.count_table(table)
    seen: set[tuple[int, str | None]] = set()
    for partition, has_own_folder in _chosen(connection, table, selection):
        checks.check(partition, has_own_folder=has_own_folder)
        totals.count(table, partition)
        _check_values(layout, selection.values(partition), seen)
    checks.finish(lambda: (partition for partition, _ in _chosen(connection, table, selection)))
    outside = checks.outside
    refuse_shared_location(connection, table, outside)
    sharing = tables_sharing(connection, table) if request.kind is OperationKind.MIGRATE else []
    fingerprint = fingerprint_of(connection, table, request)
    return MigrationPlan(
        table,
        replace(request, fingerprint=fingerprint),
        layout,
        tuple(
            PlannedColumn(column.name, column.hive_type, column.iceberg_type, column.is_partition_key)
            for column in layout.describe()
        ),
        totals.partition_count,
        dict(totals.formats),
        len(outside),
        totals.known("file_count"),
        totals.known("row_count"),
        totals.known("size_bytes"),
        (*layout.warnings, *_warnings(table, totals, len(outside)), *map(_shared, sharing)),
        fingerprint,
    )


def fingerprint_of(connection: Connection, table: Table, request: MigrationRequest) -> str:
    """Return a digest of a table's definition, of all its partitions, and of the request.

    It does not cover files, because listing them would take as long as the migration; the stage takes their digest.
    """
    digest = hashlib.blake2b(digest_size=12)
    digest.update(json.dumps([table.id, table.version, request.asked], sort_keys=True).encode())
    queries = Queries(connection.dialect.name == "postgresql")
    for page in read_pages(connection, queries.partitions_by_order(table.id)):
        digest.update(repr([tuple(row) for row in page]).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _chosen(connection: Connection, table: Table, selection: Selection) -> Iterator[tuple[Partition, bool]]:
    return (
        (partition, has_own_folder)
        for partition, has_own_folder in partitions_of(connection, table)
        if selection.includes(partition)
    )


_REMEMBERED = 10_000


def _check_values(layout: Layout, values: Sequence[str | None], seen: set[tuple[int, str | None]]) -> None:
    """Check that a partition's values have their keys' types; remember the first values to check them only once."""
    if all((position, value) in seen for position, value in enumerate(values)):
        return
    layout.partition_record(values)
    if len(seen) < _REMEMBERED:
        seen.update(enumerate(values))


class _Totals:
    """Totals of a table's partitions, from the counts in the catalog."""

    def __init__(self) -> None:
        self.partition_count = 0
        self.formats: Counter[FileFormat] = Counter()
        self._sums = {"file_count": 0, "row_count": 0, "size_bytes": 0}
        self._unknown: set[str] = set()

    def count(self, table: Table, partition: Partition) -> None:
        self.partition_count += 1
        self.formats[partition.format or table.format] += 1
        for name in self._sums:
            number = getattr(partition, name)
            if number is None:
                self._unknown.add(name)
            else:
                self._sums[name] += number

    def count_table(self, table: Table) -> None:
        self.partition_count = 1
        self.formats[table.format] += 1
        self._unknown.update(self._sums)

    def known(self, name: str) -> int | None:
        return None if name in self._unknown else self._sums[name]


def _shared(name: str) -> str:
    return (
        f"the Iceberg table {name} reads the same files. When this table rewrites files and its old snapshots expire, "
        f"{name} loses these files; drop it first if it was only a test"
    )


def _warnings(table: Table, totals: _Totals, outside_count: int) -> Iterator[str]:
    if others := {name: count for name, count in totals.formats.items() if name is not table.format}:
        counts = ", ".join(f"{count:,} of {name.upper()}" for name, count in others.items())
        yield f"partitions keep their formats ({counts}); new files are written as {table.format.upper()}"
    if outside_count:
        yield (
            f"{outside_count:,} partition(s) lie outside the table's folder and stay there; new files are written "
            "below the table's folder"
        )
