"""A report on the catalog itself: where it differs from the files, and what hinders its work. Nothing is changed.

| finding | how it is found |
| --- | --- |
| FOLDER_WITHOUT_PARTITION, PARTITION_WITHOUT_FOLDER | folders of Hive-style tables are listed, as by MSCK REPAIR |
| STALE_COUNTS, MISSING_FILES | the files of a random sample of partitions, or of data files, are looked up |
| UNKNOWN_COUNTS | partitions that the catalog has no counts of |
| ORPHAN_FILES | a dry run of vacuum |
| INDEX_DIFFERS, INDEX_FAILED, INDEX_NOT_BUILT | ACTIVE indexes are verified; states of the others |
| SMALL_FILES | the plan of a compaction, by the counts in the catalog |
| NO_NEW_PARTITIONS | tables whose freshness is learned, by the times of their checks |
| ABANDONED_OPERATION | operations without a heartbeat |
| NOT_CHECKED | what could not be read, with the reason |

Of tables with more partitions than a limit, no folder is listed and no index is verified: other commands do so.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import InstrumentedAttribute

from catalog.errors import CatalogError, ConflictError, TableNotFoundError
from catalog.files.filesystem import Folder, in_parallel
from catalog.indexes.definitions import list_indexes
from catalog.indexes.verifying import verify
from catalog.loading.late_tables import late_tables
from catalog.loading.repairing import Repairs
from catalog.maintenance.compaction import is_compacted, plan_compaction, rules_of
from catalog.model import IndexState, Partition, Table
from catalog.operations.journal import Operations
from catalog.partitions.counting import TableSize, measure_tables
from catalog.settings.learning_rules import LearningRule
from catalog.settings.own_rules import freshness_rules
from catalog.storage import Storage
from catalog.storage.partition_rows import PartitionFactory, partition_query
from catalog.storage.schema import DataFileRow, PartitionRow
from catalog.tables.definitions import Definitions

if TYPE_CHECKING:
    from catalog.maintenance.reports import VacuumReport

MOST_PARTITIONS = 10_000
"""Default of the number of partitions up to which the folders of a table are listed and its indexes verified."""

SAMPLE = 200
"""The number of partitions, or of data files, of a table whose files are looked up."""

_SHOWN = 10
_PRIME = 2**31 - 1
"""Products of two smaller numbers fit into the databases' integers."""

_AGAIN = "Correct this, and check again"


class FindingKind(StrEnum):
    """The kinds of findings."""

    FOLDER_WITHOUT_PARTITION = "FOLDER_WITHOUT_PARTITION"
    PARTITION_WITHOUT_FOLDER = "PARTITION_WITHOUT_FOLDER"
    MISSING_FILES = "MISSING_FILES"
    ORPHAN_FILES = "ORPHAN_FILES"
    STALE_COUNTS = "STALE_COUNTS"
    UNKNOWN_COUNTS = "UNKNOWN_COUNTS"
    INDEX_DIFFERS = "INDEX_DIFFERS"
    INDEX_FAILED = "INDEX_FAILED"
    INDEX_NOT_BUILT = "INDEX_NOT_BUILT"
    SMALL_FILES = "SMALL_FILES"
    NO_NEW_PARTITIONS = "NO_NEW_PARTITIONS"
    ABANDONED_OPERATION = "ABANDONED_OPERATION"
    NOT_CHECKED = "NOT_CHECKED"

    @property
    def is_damage(self) -> bool:
        """Whether readers may get wrong answers; the others are hints."""
        return self in (
            FindingKind.PARTITION_WITHOUT_FOLDER,
            FindingKind.MISSING_FILES,
            FindingKind.STALE_COUNTS,
            FindingKind.INDEX_DIFFERS,
        )


@dataclass(frozen=True)
class Finding:
    """Something that was found, in one table or in the catalog.

    Attributes:
        table: `database.table`; None for the catalog as a whole.
        count: How many were found; of a sample, only those in it.
        examples: The first ones.
        advice: What to do.
    """

    kind: FindingKind
    table: str | None
    count: int
    examples: tuple[str, ...]
    advice: str

    def __str__(self) -> str:
        """Return the finding as one line."""
        place = f"{self.table}: " if self.table else ""
        more = f" and {self.count - len(self.examples):,} more" if self.count > len(self.examples) > 0 else ""
        shown = f": {', '.join(self.examples)}{more}" if self.examples else ""
        return f"{place}{self.kind}, {self.count:,}{shown}. {self.advice}"


@dataclass(frozen=True)
class CatalogReport:
    """The findings, table by table, and the number of the tables that were looked at."""

    tables: int
    findings: tuple[Finding, ...]

    @property
    def has_damage(self) -> bool:
        """Whether readers may get wrong answers."""
        return any(finding.kind.is_damage for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        findings = [{**asdict(finding), "examples": list(finding.examples)} for finding in self.findings]
        return {"tables": self.tables, "has_damage": self.has_damage, "findings": findings}

    def __str__(self) -> str:
        """Return the report as text, one line for each finding."""
        if not self.findings:
            return f"{self.tables:,} table(s) checked: nothing was found."
        return "\n".join(map(str, self.findings))


class CatalogCheck:
    """One check of a catalog."""

    def __init__(
        self,
        storage: Storage,
        definitions: Definitions,
        operations: Operations,
        repairs: Repairs,
        *,
        most_partitions: int,
        sample: int,
    ) -> None:
        """Set what is checked, and up to which size."""
        self._storage = storage
        self._definitions = definitions
        self._operations = operations
        self._repairs = repairs
        self._most_partitions = most_partitions
        self._sample = sample
        self._freshness: Mapping[str, LearningRule] | None = None

    def __call__(self, name: str | None, vacuum: Callable[[], VacuumReport]) -> CatalogReport:
        """Check one table, or all tables and the journal.

        Args:
            vacuum: A dry run of the vacuum of the same tables.
        """
        chosen = self._definitions.list_tables() if name is None else [self._definitions.get_table(name)]
        tables = [table for table in chosen if not table.is_view]
        sizes = measure_tables(self._storage)
        self._freshness = None
        findings: list[Finding] = []
        for table in tables:
            for check in (self._folders, self._counts, self._files, self._indexes, self._small_files, self._late):
                findings += self._found(check, table, sizes.get(table.id or 0, TableSize()))
        findings += _orphans(vacuum())
        if name is None:
            abandoned = [f"{operation.id} of {operation.table}" for operation in self._operations.abandoned()]
            findings += _finding(
                FindingKind.ABANDONED_OPERATION,
                None,
                abandoned,
                "catalog_maintenance ends them; `calve give-up ID` does so at once",
            )
        return CatalogReport(len(tables), tuple(findings))

    def _found(
        self, check: Callable[[Table, TableSize], Iterator[Finding]], table: Table, size: TableSize
    ) -> list[Finding]:
        """Return the findings of one check, or why it could not be made: one table does not affect the others."""
        try:
            return list(check(table, size))
        except TableNotFoundError:
            return []
        except (CatalogError, OSError, ValueError) as error:
            return [
                Finding(FindingKind.NOT_CHECKED, table.full_name, 1, (str(error),), "Correct this, and check again")
            ]

    def _folders(self, table: Table, size: TableSize) -> Iterator[Finding]:
        if not table.partition_keys or table.has_file_rows or table.is_iceberg:
            return
        if size.partitions + size.quarantined > self._most_partitions:
            return
        if self._is_busy(table):
            yield _unchecked(table, "folders")
            return
        compared = self._repairs.compare(table.full_name)
        repair = f"MSCK REPAIR TABLE {table.full_name}"
        yield from _finding(
            FindingKind.FOLDER_WITHOUT_PARTITION,
            table,
            compared.folders,
            f"{repair} ADD PARTITIONS registers them",
            compared.without_partition,
        )
        yield from _finding(
            FindingKind.PARTITION_WITHOUT_FOLDER,
            table,
            compared.partitions,
            f"Restore the folders, or let {repair} DROP PARTITIONS drop these partitions",
            compared.without_folder,
        )

    def _counts(self, table: Table, size: TableSize) -> Iterator[Finding]:
        advice = "Their sizes are unknown to compactions and proposals; `calve batch update` sets counts"
        yield from _finding(FindingKind.UNKNOWN_COUNTS, table, (), advice, size.uncounted)

    def _files(self, table: Table, size: TableSize) -> Iterator[Finding]:
        if table.has_file_rows:
            yield from self._data_files(table)
        elif table.partition_keys and not table.is_iceberg:
            was_busy = self._is_busy(table)
            partitions = self._sampled_partitions(table)
            # Missing folders of smaller tables are findings of their own.
            is_listed = size.partitions + size.quarantined <= self._most_partitions
            counted = in_parallel(partial(_difference_of_counts, is_listed=is_listed), partitions)
            stale = [f"{partition.name(table)} {difference}" for partition, difference in counted if difference]
            if stale and (was_busy or self._is_busy(table)):
                yield _unchecked(table, "files")
                return
            yield from _finding(
                FindingKind.STALE_COUNTS,
                table,
                stale,
                f"In a sample of {len(partitions):,} partition(s); another program has changed the files: `calve batch "
                "update` sets counts",
            )

    def _is_busy(self, table: Table) -> bool:
        return self._operations.oldest_unfinished_ms(table) is not None

    def _sampled_partitions(self, table: Table) -> list[Partition]:
        row = PartitionRow
        query = partition_query(table).where(row.file_count.is_not(None)).order_by(_shuffled(row.id))
        with self._storage.read() as connection:
            rows = connection.execute(query.limit(self._sample)).all()
        return sorted(PartitionFactory(table).make_all(rows), key=lambda partition: partition.id)

    def _data_files(self, table: Table) -> Iterator[Finding]:
        row = DataFileRow
        query = select(row.path, row.size_bytes).where(row.table_id == table.id).order_by(_shuffled(row.id))
        with self._storage.read() as connection:
            files = sorted(connection.execute(query.limit(self._sample)).all())
        folder = Folder(table.location)
        infos = in_parallel(folder.file_info, [file.path for file in files])
        missing = [file.path for file, info in zip(files, infos, strict=True) if info is None]
        yield from _finding(
            FindingKind.MISSING_FILES,
            table,
            missing,
            f"In a sample of {len(files):,} file(s); restore them, or roll the table back",
        )

    def _indexes(self, table: Table, size: TableSize) -> Iterator[Finding]:
        with self._storage.read() as connection:
            indexes = list_indexes(connection, table.id or 0)
        is_small = size.partitions + size.quarantined <= self._most_partitions
        for index in indexes:
            if index.state is IndexState.FAILED:
                advice = f"DROP the index, or correct {index.failure_code} and create it again"
                yield Finding(FindingKind.INDEX_FAILED, table.full_name, 1, (index.name,), advice)
            elif index.state is IndexState.CREATING and not self._is_busy(table):
                advice = "No operation builds it: run the DAG build_partition_index, or calve create-index"
                yield Finding(FindingKind.INDEX_NOT_BUILT, table.full_name, 1, (index.name,), advice)
            elif index.state is IndexState.ACTIVE and is_small:
                try:
                    verification = verify(self._storage, table, index)
                except ConflictError:
                    continue
                count = verification.findings.counts.total()
                examples = [f"{index.name} {difference}" for difference in verification.findings.differences]
                advice = f"`calve verify {table.full_name} {index.name} --repair` corrects it"
                yield from _finding(FindingKind.INDEX_DIFFERS, table, examples, advice, count)

    def _small_files(self, table: Table, size: TableSize) -> Iterator[Finding]:
        if is_compacted(table):
            plan = plan_compaction(self._storage, self._operations, table, rules_of(table))
            yield from _finding(
                FindingKind.SMALL_FILES,
                table,
                [f"{partition.name} ({partition.file_count:,} files)" for partition in plan.partitions],
                f"ALTER TABLE {table.full_name} COMPACT, or `compaction` in its entry, writes fewer files",
                len(plan.partitions) + plan.left,
            )

    def _late(self, table: Table, size: TableSize) -> Iterator[Finding]:
        if self._freshness is None:
            self._freshness = freshness_rules()
        rule = self._freshness.get(table.full_name)
        for late in late_tables(self._storage, self._definitions, {table.full_name: rule}) if rule else ():
            advice = "Look at its source and at the runs of its load; without `learn`, it is not expected"
            yield Finding(FindingKind.NO_NEW_PARTITIONS, table.full_name, 1, (str(late),), advice)


def _difference_of_counts(partition: Partition, *, is_listed: bool) -> tuple[Partition, str]:
    """Return how the files of a partition differ from its counts, as text; empty if they do not.

    Args:
        is_listed: A folder that does not exist is no difference.
    """
    folder = Folder(partition.location)
    exists = folder.exists()
    if is_listed and not exists:
        return partition, ""
    files = folder.files() if exists else []
    size = sum(file.size_bytes for file in files)
    if len(files) != partition.file_count:
        return partition, f"has {len(files):,} file(s), registered are {partition.file_count:,}"
    if partition.size_bytes is not None and size != partition.size_bytes:
        return partition, f"has {size:,} bytes, registered are {partition.size_bytes:,}"
    return partition, ""


def _orphans(report: VacuumReport) -> Iterator[Finding]:
    for table in report.tables:
        advice = f"{table.orphan_bytes:,} bytes; `calve vacuum {table.table}` deletes them"
        yield from _finding(FindingKind.ORPHAN_FILES, table.table, (), advice, table.orphan_files)
    for problem in report.problems:
        yield Finding(FindingKind.NOT_CHECKED, None, 1, (problem,), _AGAIN)


def _unchecked(table: Table, what: str) -> Finding:
    reason = f"an operation is running, whose {what} are not registered yet"
    return Finding(FindingKind.NOT_CHECKED, table.full_name, 1, (reason,), "Check again when it has ended")


def _shuffled(number: InstrumentedAttribute[int]) -> ColumnElement[int]:
    """Return an expression by which ids are in random order, another one each time."""
    # Whatever the distance between the ids is, because the modulus is a prime.
    return (number % _PRIME) * random.randrange(1, _PRIME) % _PRIME


def _finding(
    kind: FindingKind, table: Table | str | None, examples: Sequence[str], advice: str, count: int | None = None
) -> Iterator[Finding]:
    """Yield a finding, if there is one."""
    count = len(examples) if count is None else count
    if count:
        name = table.full_name if isinstance(table, Table) else table
        yield Finding(kind, name, count, tuple(examples[:_SHOWN]), advice)
