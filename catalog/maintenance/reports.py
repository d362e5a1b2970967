"""Reports of maintenance, also of dry runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from catalog.iceberg.places import METADATA


@dataclass(frozen=True)
class TableVacuum:
    """The files of one table that vacuum has deleted.

    Attributes:
        table: `database.name` at the time when its files were retired.
        retired_files, retired_bytes: Files that were replaced, or dropped with their partitions.
        orphan_files, orphan_bytes: Files that no table knows: of attempts that did not commit, and manifests.
        metadata_files, metadata_bytes: Iceberg's metadata of expired snapshots and of changes that did not commit.
        staging_folders: Folders of loads that failed, or were interrupted after their commit.
        settled_partitions: Replaced partitions whose own folders have got their files (`catalog.partitions.versions`).
        version_folders: Folders of versions (`catalog.partitions.versions`) whose grace period has ended.
        unfinished_uploads: Uploads to S3 that a writer began, and neither completed nor aborted.
    """

    table: str
    retired_files: int = 0
    retired_bytes: int = 0
    orphan_files: int = 0
    orphan_bytes: int = 0
    metadata_files: int = 0
    metadata_bytes: int = 0
    staging_folders: int = 0
    settled_partitions: int = 0
    version_folders: int = 0
    unfinished_uploads: int = 0

    def __add__(self, other: TableVacuum) -> TableVacuum:
        """Return the sum of both, under the name of this table."""
        names = [column.name for column in fields(self) if column.name != "table"]
        return TableVacuum(self.table, **{name: getattr(self, name) + getattr(other, name) for name in names})

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {column.name: getattr(self, column.name) for column in fields(self)}

    def outcomes(self, *, is_dry_run: bool) -> Iterator[str]:
        """Yield phrases about what was done, or would be; nothing if nothing was."""
        facts = [
            f"{self.retired_files:,} replaced file(s), {self.retired_bytes:,} bytes" * bool(self.retired_files),
            f"{self.orphan_files:,} orphan(s), {self.orphan_bytes:,} bytes" * bool(self.orphan_files),
            f"{self.metadata_files:,} metadata file(s), {self.metadata_bytes:,} bytes" * bool(self.metadata_files),
            f"{self.staging_folders:,} staging folder(s)" * bool(self.staging_folders),
            f"{self.version_folders:,} folder(s) of replaced partitions" * bool(self.version_folders),
            f"{self.unfinished_uploads:,} unfinished upload(s)" * bool(self.unfinished_uploads),
        ]
        if any(facts):
            yield f"{deleted(is_dry_run=is_dry_run)}: {'; '.join(filter(None, facts))}"
        if self.settled_partitions:
            would = "would get" if is_dry_run else "got"
            yield f"{self.settled_partitions:,} replaced partition(s) {would} their files into their own folders"


def deleted(*, is_dry_run: bool) -> str:
    """Return the verb of a report about what was deleted, or would be."""
    return "would be deleted" if is_dry_run else "deleted"


def of_former_files(table: str, sizes: Mapping[str, int]) -> TableVacuum:
    """Return the counts of deleted files that former rows named, among them metadata of other engines.

    Args:
        sizes: Path, relative to the table's location or complete → size in bytes.
    """
    metadata = [size for path, size in sizes.items() if path.startswith(f"{METADATA}/")]
    return TableVacuum(
        table,
        retired_files=len(sizes) - len(metadata),
        retired_bytes=sum(sizes.values()) - sum(metadata),
        metadata_files=len(metadata),
        metadata_bytes=sum(metadata),
    )


@dataclass(frozen=True)
class VacuumReport:
    """The report of a vacuum.

    Attributes:
        is_dry_run: Nothing was deleted; the counts describe what would be deleted.
        tables: The tables with deleted files, sorted by name.
        purged: Dropped tables and partitions whose purge was finished.
        operations_cleaned: The number of operations that have no files left to delete.
        problems: What could not be read or deleted, with reasons; the next vacuum tries again.
    """

    is_dry_run: bool
    tables: tuple[TableVacuum, ...]
    purged: tuple[str, ...]
    operations_cleaned: int
    problems: tuple[str, ...]

    @property
    def total(self) -> TableVacuum:
        """The sum of all tables."""
        return sum(self.tables, TableVacuum("all"))

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "dry_run": self.is_dry_run,
            "tables": [table.as_json() for table in self.tables],
            "purged": list(self.purged),
            "operations_cleaned": self.operations_cleaned,
            "problems": list(self.problems),
        }

    def __str__(self) -> str:
        """Return the report as text, one line per table."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        for table in self.tables:
            yield from (f"{table.table}: {outcome}" for outcome in table.outcomes(is_dry_run=self.is_dry_run))
        for name in self.purged:
            yield f"{name}, dropped with PURGE: {deleted(is_dry_run=self.is_dry_run)}: the remaining files"
        if not self.tables and not self.purged and not self.problems:
            yield "Nothing to delete. Files of dropped tables and partitions stay unless they are dropped with PURGE."


@dataclass(frozen=True)
class ExpiryReport:
    """The report of the expiry of operations.

    Attributes:
        is_dry_run: Nothing was changed; the counts describe what would be changed.
        abandoned: Abandoned operations, which are FAILED now.
        removed: The number of ended operations removed from the journal.
        kept: The number of equally old operations that stay because files of theirs exist.
        problems: What could not be read, with reasons; all operations stay then.
        quality_checks, quality_pages: The numbers of old quality checks and of their pages that were removed.
    """

    is_dry_run: bool
    abandoned: tuple[str, ...]
    removed: int
    kept: int
    problems: tuple[str, ...]
    quality_checks: int = 0
    quality_pages: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "dry_run": self.is_dry_run,
            "abandoned": list(self.abandoned),
            "removed": self.removed,
            "kept": self.kept,
            "quality_checks": self.quality_checks,
            "quality_pages": self.quality_pages,
            "problems": list(self.problems),
        }


class Tally:
    """Totals of deleted files, table by table."""

    def __init__(self) -> None:
        """Create empty totals."""
        self._tables: dict[str, TableVacuum] = {}
        self.problems: list[str] = []

    def add(self, deleted: TableVacuum) -> None:
        """Add deleted files of a table."""
        self._tables[deleted.table] = self._tables.get(deleted.table, TableVacuum(deleted.table)) + deleted

    @property
    def tables(self) -> tuple[TableVacuum, ...]:
        """The tables with deleted files, sorted by name."""
        return tuple(table for _, table in sorted(self._tables.items()) if table != TableVacuum(table.table))
