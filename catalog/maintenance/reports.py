"""What maintenance did, or in a dry run would do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class TableVacuum:
    """What vacuum deleted of one table.

    Attributes:
        table: `database.name`, at the time when its files were retired.
        retired_files, retired_bytes: Files that were replaced, or went with their partitions.
        orphan_files, orphan_bytes: Files that no table knows: of attempts that did not commit, and of jobs' own.
        staging_folders: Folders of loads that were given up, or were interrupted after their commit.
    """

    table: str
    retired_files: int = 0
    retired_bytes: int = 0
    orphan_files: int = 0
    orphan_bytes: int = 0
    staging_folders: int = 0

    def __add__(self, other: TableVacuum) -> TableVacuum:
        """Return both together, under the name of this one."""
        names = [each.name for each in fields(self) if each.name != "table"]
        return TableVacuum(self.table, **{name: getattr(self, name) + getattr(other, name) for name in names})

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True)
class VacuumReport:
    """What vacuum did.

    Attributes:
        is_dry_run: Nothing was deleted, and the counts say what would be.
        tables: The tables of which something was deleted, by name.
        purged: Dropped tables whose folder was still there.
        operations_cleaned: Operations of which nothing is left to clear up.
        problems: What could not be looked at or deleted, and why; the next vacuum tries again.
    """

    is_dry_run: bool
    tables: tuple[TableVacuum, ...]
    purged: tuple[str, ...]
    operations_cleaned: int
    problems: tuple[str, ...]

    @property
    def total(self) -> TableVacuum:
        """Of all tables together."""
        return sum(self.tables, TableVacuum("all"))

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "dry_run": self.is_dry_run,
            "tables": [each.as_json() for each in self.tables],
            "purged": list(self.purged),
            "operations_cleaned": self.operations_cleaned,
            "problems": list(self.problems),
        }

    def __str__(self) -> str:
        """Return the report as text, a line a table."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        done = "would be deleted" if self.is_dry_run else "deleted"
        for each in self.tables:
            facts = [
                f"{each.retired_files:,} replaced file(s), {each.retired_bytes:,} bytes" * bool(each.retired_files),
                f"{each.orphan_files:,} orphan(s), {each.orphan_bytes:,} bytes" * bool(each.orphan_files),
                f"{each.staging_folders:,} staging folder(s)" * bool(each.staging_folders),
            ]
            yield f"{each.table}: {done}: {'; '.join(fact for fact in facts if fact)}"
        for name in self.purged:
            yield f"{name}, dropped with PURGE: {done}: the files left"
        if not self.tables and not self.purged:
            yield "Nothing to delete. Files of dropped tables and partitions stay unless they are dropped with PURGE."


@dataclass(frozen=True)
class ExpiryReport:
    """What became of old operations.

    Attributes:
        is_dry_run: Nothing was changed, and the counts say what would be.
        abandoned: Operations that nobody worked on any more, and that have FAILED now.
        removed: Ended operations that are not in the journal any more.
        kept: Ended operations that are as old, and stay because files of theirs are there.
        problems: What could not be looked at, and why; operations that may concern it stay.
    """

    is_dry_run: bool
    abandoned: tuple[str, ...]
    removed: int
    kept: int
    problems: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "dry_run": self.is_dry_run,
            "abandoned": list(self.abandoned),
            "removed": self.removed,
            "kept": self.kept,
            "problems": list(self.problems),
        }


class Tally:
    """Adds up what is deleted, table by table."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._tables: dict[str, TableVacuum] = {}
        self.problems: list[str] = []

    def add(self, deleted: TableVacuum) -> None:
        """Count what was deleted of a table."""
        self._tables[deleted.table] = self._tables.get(deleted.table, TableVacuum(deleted.table)) + deleted

    @property
    def tables(self) -> tuple[TableVacuum, ...]:
        """What was deleted, by table; those of which nothing was are left out."""
        return tuple(each for _, each in sorted(self._tables.items()) if each != TableVacuum(each.table))
