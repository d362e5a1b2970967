"""A report on the catalog itself: where it differs from the files, and what hinders its work. Nothing is changed.

| finding | how it is found |
| --- | --- |
| UNREADABLE_METADATA | Iceberg's metadata files, manifest lists and manifests of all snapshots are read |
| WRONG_SUMMARIES | the current manifest list is compared with the entries of its manifests |
| COMMIT_NOT_FOLLOWED | what other engines have committed is taken in, in a transaction that is undone |
| MISSING_FILES, CHANGED_FILES, DOUBLED_FILES, UNKNOWN_FILES | the folders of Iceberg's files are listed |
| MISSING_FILE_ROWS, EXTRA_FILE_ROWS, DOUBLED_FILE_ROWS, WRONG_FILE_ROWS | file rows are compared with the snapshot |
| MISSING_PARTITIONS, MISKEYED_PARTITIONS, STALE_COUNTS | partitions are compared with the file rows |
| FOLDER_WITHOUT_PARTITION, PARTITION_WITHOUT_FOLDER | folders of Hive-style tables are listed, as by MSCK REPAIR |
| STALE_COUNTS, CHANGED_FILES | of Hive-style tables, the files of partitions are listed, or read |
| UNKNOWN_COUNTS | partitions that the catalog has no counts of |
| WRONG_STATISTICS | column statistics are compared with the partitions |
| SHARED_LOCATION | locations of tables and partitions are compared |
| ORPHAN_FILES | a dry run of vacuum |
| INDEX_DIFFERS, INDEX_FAILED, INDEX_NOT_BUILT | ACTIVE indexes are verified; states of the others |
| SMALL_FILES | the plan of a compaction, by the counts in the catalog |
| NO_NEW_PARTITIONS | tables whose freshness is learned, by the times of their checks |
| SLOW_DATABASE | settings of PostgreSQL are compared with the recommended ones |
| ABANDONED_OPERATION | operations without a heartbeat |
| NOT_CHECKED | what could not be read, with the reason |

Of Hive-style tables with more partitions than a limit, a random sample of partitions is listed, and no index is
verified, unless the contents of files are checked, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from catalog.datafiles.intake import find_refusal
from catalog.errors import CatalogError, ConflictError, TableNotFoundError
from catalog.iceberg.pointers import CATALOG, Pointer, all_pointers, require_metadata
from catalog.indexes.definitions import list_indexes
from catalog.indexes.verifying import verify
from catalog.loading.late_tables import late_tables
from catalog.loading.repairing import Repairs
from catalog.maintenance.checks.database import find_slow_settings
from catalog.maintenance.checks.partitions import compare_identities, compare_statistics, compare_with_file_rows
from catalog.maintenance.checks.places import find_shared_places
from catalog.maintenance.compaction import is_compacted, plan_compaction, rules_of
from catalog.maintenance.findings import CatalogReport, Depth, Finding, FindingKind, found, not_checked
from catalog.model import IndexState, Table
from catalog.operations.journal import Operations
from catalog.partitions.counting import TableSize, measure_tables
from catalog.settings.learning_rules import LearningRule
from catalog.settings.own_rules import freshness_rules
from catalog.storage import Storage
from catalog.tables.definitions import Definitions

if TYPE_CHECKING:
    from catalog.maintenance.checks.iceberg_files import IcebergCheck
    from catalog.maintenance.reports import VacuumReport

MOST_PARTITIONS = 10_000
"""Default of the number of partitions up to which all folders of a table are listed and its indexes verified."""

SAMPLE = 200
"""The number of partitions of a larger table whose files are looked up."""


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
        depth: Depth,
    ) -> None:
        """Set what is checked, up to which size, and how far data files are looked into."""
        # Imported late: importing PyIceberg takes longer than answering a statement.
        from catalog.maintenance.checks.iceberg_files import IcebergCheck

        self._storage = storage
        self._definitions = definitions
        self._operations = operations
        self._repairs = repairs
        self._most_partitions = most_partitions
        self._sample = sample
        self._depth = depth
        self._freshness: Mapping[str, LearningRule] | None = None
        self._iceberg: IcebergCheck = IcebergCheck(storage, definitions, depth)

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
            size = sizes.get(table.id or 0, TableSize())
            findings += _gathered(table.full_name, (part(table, size) for part in self._parts(table)))
        others = [] if name is not None else self._other_pointers(tables)
        for pointer in others:
            findings += _gathered(pointer.full_name, [self._of_engines(pointer)])
        if name is None:
            findings += self._iceberg.shared_locations()
            findings += find_slow_settings(self._storage)
        findings += _orphans(vacuum())
        findings += self._abandoned(name)
        return CatalogReport(len(tables) + len(others), tuple(findings))

    def _parts(self, table: Table) -> Iterator[Callable[[Table, TableSize], Iterator[Finding]]]:
        """Yield the parts of the check that are made of a table of this kind."""
        if table.is_iceberg or table.has_file_rows:
            yield self._iceberg_files
        if table.is_only_iceberg:
            return
        if not table.is_iceberg:
            yield from (self._hive_files, self._partitions, self._places, self._small_files)
        yield from (self._indexes, self._late)

    def _is_small(self, size: TableSize) -> bool:
        return size.partitions + size.quarantined <= self._most_partitions or self._depth > Depth.SIZES

    def _is_busy(self, table: Table) -> bool:
        return self._operations.oldest_unfinished_ms(table) is not None

    # --- tables of Iceberg ---------------------------------------------------------------------------------------

    def _iceberg_files(self, table: Table, _size: TableSize) -> Iterator[Finding]:
        from catalog.maintenance.checks.iceberg_files import IcebergTable

        if table.is_published and table.live_location is None:
            place = f"the Iceberg catalog has no table {table.full_name}: an engine has dropped or renamed it"
            remedy = f"Register {table.published_location} again by the engine, or DROP TABLE {table.full_name}"
            yield from found(FindingKind.UNREADABLE_METADATA, table, [place], remedy)
            return
        if table.is_published and (refusal := find_refusal(self._storage, self._definitions, table)) is not None:
            yield from found(FindingKind.COMMIT_NOT_FOLLOWED, table, [refusal.finding], refusal.remedy)
        if table.is_iceberg and table.metadata_location is None:
            try:
                require_metadata(table)
            except TableNotFoundError as error:
                yield from found(FindingKind.UNREADABLE_METADATA, table, ["it is gone"], str(error))
            return
        location = table.metadata_location or table.live_location
        if location is not None:
            pointer = Pointer(CATALOG, table.database, table.name, location)
            own = None if table.is_only_iceberg else table
            yield from self._iceberg(IcebergTable(pointer, own), is_busy=self._is_busy(table))

    def _other_pointers(self, tables: Iterable[Table]) -> list[Pointer]:
        """Return the Iceberg tables that are in no database of Calve's, or in another catalog."""
        names = {(CATALOG, table.database, table.name) for table in tables}
        with self._storage.read() as connection:
            pointers = all_pointers(connection)
        return [pointer for pointer in pointers if (pointer.catalog, pointer.database, pointer.name) not in names]

    def _of_engines(self, pointer: Pointer) -> Iterator[Finding]:
        from catalog.maintenance.checks.iceberg_files import IcebergTable

        yield from self._iceberg(IcebergTable(pointer), is_busy=False)

    # --- tables of Calve -----------------------------------------------------------------------------------------

    def _hive_files(self, table: Table, size: TableSize) -> Iterator[Finding]:
        # Imported late, like `IcebergCheck`.
        from catalog.maintenance.checks.hive_files import compare_files, compare_folders, read_unpartitioned

        if table.has_file_rows:
            return
        if not table.partition_keys:
            if self._depth > Depth.SIZES:
                yield from self._unless_busy(table, read_unpartitioned(table, self._depth))
            return
        yield from found(
            FindingKind.UNKNOWN_COUNTS,
            table,
            (),
            "Their sizes are unknown to compactions and proposals; `calve batch update` sets counts",
            size.uncounted,
        )
        is_small = self._is_small(size)
        if is_small:
            yield from self._unless_busy(table, compare_folders(self._repairs, table))
        sample = None if is_small else self._sample
        files = compare_files(self._storage, table, self._depth, sample, is_listed=is_small)
        yield from self._unless_busy(table, files)

    def _unless_busy(self, table: Table, findings: Iterator[Finding]) -> Iterator[Finding]:
        """Yield findings about files, unless an operation may have written files that are not registered yet."""
        was_busy = self._is_busy(table)
        if (made := list(findings)) and (was_busy or self._is_busy(table)):
            reason = "an operation is running, whose files are not registered yet"
            yield not_checked(table, reason, "Check again when it has ended")
        else:
            yield from made

    def _partitions(self, table: Table, size: TableSize) -> Iterator[Finding]:
        if table.has_file_rows:
            yield from compare_with_file_rows(self._storage, table)
        if table.partition_keys:
            if self._is_small(size):
                yield from compare_identities(self._storage, table)
            yield from compare_statistics(self._storage, table)

    def _places(self, table: Table, _size: TableSize) -> Iterator[Finding]:
        yield from find_shared_places(self._storage, table)

    def _indexes(self, table: Table, size: TableSize) -> Iterator[Finding]:
        with self._storage.read() as connection:
            indexes = list_indexes(connection, table.id or 0)
        for index in indexes:
            if index.state is IndexState.FAILED:
                advice = f"DROP the index, or correct {index.failure_code} and create it again"
                yield Finding(FindingKind.INDEX_FAILED, table.full_name, 1, (index.name,), advice)
            elif index.state is IndexState.CREATING and not self._is_busy(table):
                advice = "No operation builds it: run the DAG build_partition_index, or calve create-index"
                yield Finding(FindingKind.INDEX_NOT_BUILT, table.full_name, 1, (index.name,), advice)
            elif index.state is IndexState.ACTIVE and self._is_small(size):
                try:
                    verification = verify(self._storage, table, index)
                except ConflictError:
                    continue
                count = verification.findings.counts.total()
                places = [f"{index.name} {difference}" for difference in verification.findings.differences]
                remedy = f"`calve verify {table.full_name} {index.name} --repair` corrects it"
                yield from found(FindingKind.INDEX_DIFFERS, table, places, remedy, count)

    def _small_files(self, table: Table, _size: TableSize) -> Iterator[Finding]:
        if is_compacted(table):
            plan = plan_compaction(self._storage, self._operations, table, rules_of(table))
            yield from found(
                FindingKind.SMALL_FILES,
                table,
                [f"{partition.name} ({partition.file_count:,} files)" for partition in plan.partitions],
                f"ALTER TABLE {table.full_name} COMPACT, or `compaction` in its entry, writes fewer files",
                len(plan.partitions) + plan.left,
            )

    def _late(self, table: Table, _size: TableSize) -> Iterator[Finding]:
        if self._freshness is None:
            self._freshness = freshness_rules()
        rule = self._freshness.get(table.full_name)
        for late in late_tables(self._storage, self._definitions, {table.full_name: rule}) if rule else ():
            remedy = "Look at its source and at the runs of its load; without `learn`, it is not expected"
            yield Finding(FindingKind.NO_NEW_PARTITIONS, table.full_name, 1, (str(late),), remedy)

    # --- the journal ---------------------------------------------------------------------------------------------

    def _abandoned(self, name: str | None) -> Iterator[Finding]:
        abandoned = [operation for operation in self._operations.abandoned() if name in (None, operation.table)]
        places = [f"{operation.id} of {operation.table}" for operation in abandoned]
        remedy = "catalog_maintenance ends them; `calve give-up ID` does so at once"
        yield from found(FindingKind.ABANDONED_OPERATION, name, places, remedy)


def _gathered(name: str, parts: Iterable[Iterator[Finding]]) -> list[Finding]:
    """Return the findings of all parts of a check, and why one could not be made: it does not affect the others."""
    findings: list[Finding] = []
    for part in parts:
        try:
            findings.extend(part)
        except TableNotFoundError:
            continue
        except (CatalogError, OSError, ValueError) as error:
            findings.append(not_checked(name, str(error)))
    return findings


def _orphans(report: VacuumReport) -> Iterator[Finding]:
    for table in report.tables:
        remedy = f"{table.orphan_bytes:,} bytes; `calve vacuum {table.table}` deletes them"
        yield from found(FindingKind.ORPHAN_FILES, table.table, (), remedy, table.orphan_files)
    for problem in report.problems:
        yield not_checked(None, problem)
