"""Findings of a check of the catalog: the damage, where it is, and how to repair it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum, StrEnum
from typing import Any

from catalog.errors.base import first_of
from catalog.model import Table

SHOWN = 10
"""The number of places that a finding names."""


class Depth(IntEnum):
    """How far a check looks into data files."""

    SIZES = 0
    """Their existence and sizes."""
    FOOTERS = 1
    """Also their footers: row counts and bounds."""
    ROWS = 2
    """Also all their rows."""


class FindingKind(StrEnum):
    """The kinds of findings."""

    UNREADABLE_METADATA = "UNREADABLE_METADATA"
    WRONG_SUMMARIES = "WRONG_SUMMARIES"
    COMMIT_NOT_FOLLOWED = "COMMIT_NOT_FOLLOWED"
    MISSING_FILES = "MISSING_FILES"
    CHANGED_FILES = "CHANGED_FILES"
    DOUBLED_FILES = "DOUBLED_FILES"
    UNKNOWN_FILES = "UNKNOWN_FILES"
    ORPHAN_FILES = "ORPHAN_FILES"
    MISSING_FILE_ROWS = "MISSING_FILE_ROWS"
    EXTRA_FILE_ROWS = "EXTRA_FILE_ROWS"
    DOUBLED_FILE_ROWS = "DOUBLED_FILE_ROWS"
    WRONG_FILE_ROWS = "WRONG_FILE_ROWS"
    FOLDER_WITHOUT_PARTITION = "FOLDER_WITHOUT_PARTITION"
    PARTITION_WITHOUT_FOLDER = "PARTITION_WITHOUT_FOLDER"
    MISSING_PARTITIONS = "MISSING_PARTITIONS"
    MISKEYED_PARTITIONS = "MISKEYED_PARTITIONS"
    STALE_COUNTS = "STALE_COUNTS"
    UNKNOWN_COUNTS = "UNKNOWN_COUNTS"
    WRONG_STATISTICS = "WRONG_STATISTICS"
    INDEX_DIFFERS = "INDEX_DIFFERS"
    INDEX_FAILED = "INDEX_FAILED"
    INDEX_NOT_BUILT = "INDEX_NOT_BUILT"
    SHARED_LOCATION = "SHARED_LOCATION"
    ABANDONED_OPERATION = "ABANDONED_OPERATION"
    SMALL_FILES = "SMALL_FILES"
    NO_NEW_PARTITIONS = "NO_NEW_PARTITIONS"
    SLOW_DATABASE = "SLOW_DATABASE"
    NOT_CHECKED = "NOT_CHECKED"

    @property
    def is_damage(self) -> bool:
        """Whether readers may get wrong answers, or writers wait; the others are hints."""
        return self not in _HINTS


_HINTS = frozenset(
    {
        FindingKind.UNKNOWN_FILES,
        FindingKind.ORPHAN_FILES,
        FindingKind.FOLDER_WITHOUT_PARTITION,
        FindingKind.UNKNOWN_COUNTS,
        FindingKind.INDEX_FAILED,
        FindingKind.INDEX_NOT_BUILT,
        FindingKind.SMALL_FILES,
        FindingKind.NO_NEW_PARTITIONS,
        FindingKind.SLOW_DATABASE,
        FindingKind.NOT_CHECKED,
    }
)


@dataclass(frozen=True)
class Finding:
    """Something that was found, in one table or in the catalog.

    Attributes:
        table: `database.table`; None for the catalog as a whole.
        count: How many were found; of a sample, only those in it.
        where: The first ones.
        remedy: What to do: the statement or command, if there is one.
    """

    kind: FindingKind
    table: str | None
    count: int
    where: tuple[str, ...]
    remedy: str

    @property
    def places(self) -> str:
        """The first places, and the number of the others."""
        return first_of(self.where, SHOWN, count=self.count) if self.where else ""

    def __str__(self) -> str:
        """Return the finding as one line."""
        place = f"{self.table}: " if self.table else ""
        shown = f": {self.places}" if self.where else ""
        return f"{place}{self.kind}, {self.count:,}{shown}. {self.remedy}"


@dataclass(frozen=True)
class CatalogReport:
    """The findings, table by table, and the number of the tables that were looked at."""

    tables: int
    findings: tuple[Finding, ...]

    @property
    def damage(self) -> int:
        """The number of findings that are damage."""
        return sum(finding.kind.is_damage for finding in self.findings)

    @property
    def has_damage(self) -> bool:
        """Whether readers may get wrong answers, or writers wait."""
        return self.damage > 0

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        findings = [
            {**asdict(finding), "where": list(finding.where), "is_damage": finding.kind.is_damage}
            for finding in self.findings
        ]
        return {"tables": self.tables, "has_damage": self.has_damage, "findings": findings}

    def __str__(self) -> str:
        """Return the report as text, one line for each finding."""
        if not self.findings:
            return f"{self.tables:,} table(s) checked: nothing was found."
        return "\n".join(map(str, self.findings))


def found(
    kind: FindingKind, table: Table | str | None, where: Sequence[str], remedy: str, count: int | None = None
) -> Iterator[Finding]:
    """Yield a finding, if there is one.

    Args:
        count: By default the number of places; of these, the first are kept.
    """
    count = len(where) if count is None else count
    if count:
        name = table.full_name if isinstance(table, Table) else table
        yield Finding(kind, name, count, tuple(where[:SHOWN]), remedy)


def not_checked(table: Table | str | None, reason: str, remedy: str = "Correct this, and check again") -> Finding:
    """Return the finding that something could not be checked."""
    name = table.full_name if isinstance(table, Table) else table
    return Finding(FindingKind.NOT_CHECKED, name, 1, (reason,), remedy)
