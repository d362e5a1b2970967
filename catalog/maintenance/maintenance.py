"""`Maintenance`: removes obsolete files and records. All methods can be killed at any point and repeated."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from catalog.errors import CatalogError, FilesNeededError, FilesNotDeletedError, InvalidRequestError, TableNotFoundError
from catalog.files.filesystem import Folder
from catalog.indexes import building
from catalog.loading.loading import Loading
from catalog.loading.quality_pages import QualityPages
from catalog.loading.quality_results import QualityResults
from catalog.loading.repairing import Repairs
from catalog.maintenance.checking import MOST_PARTITIONS, SAMPLE, CatalogCheck
from catalog.maintenance.compaction import CompactionPlan, plan_compaction, require_compacted, rules_of
from catalog.maintenance.expiry import expire_operations
from catalog.maintenance.findings import CatalogReport, Depth
from catalog.maintenance.former_files import delete_former_files
from catalog.maintenance.iceberg_attempts import delete_old_metadata
from catalog.maintenance.judging import usual_cutoff_ms
from catalog.maintenance.orphans import delete_orphans
from catalog.maintenance.reports import ExpiryReport, TableVacuum, Tally, VacuumReport
from catalog.maintenance.snapshots import expire_table
from catalog.maintenance.staging import discard_old_staging
from catalog.maintenance.versions import Versions
from catalog.model import GRACE, Table
from catalog.operations.journal import Operations
from catalog.operations.records import OperationKind
from catalog.partitions.purging import finish_partition_purge
from catalog.settings.compaction_rules import CompactionRules
from catalog.settings.environment import quality_days, quality_pages
from catalog.storage import Storage
from catalog.tables.definitions import Definitions
from catalog.tables.dropping import finish_drop
from catalog.tables.moving import settle_all

if TYPE_CHECKING:
    from catalog.iceberg.reachability import Reachability
    from catalog.maintenance.renewing import Renewed

RETENTION = timedelta(days=90)
"""The time that ended operations stay in the journal."""


class Maintenance:
    """Maintenance of one catalog and its files."""

    def __init__(self, storage: Storage, definitions: Definitions, operations: Operations, loading: Loading) -> None:
        """Set the storage, the definitions in it, the journal, and the loads."""
        self._storage = storage
        self._definitions = definitions
        self._operations = operations
        self._loading = loading

    def vacuum(self, table: str | None = None, *, grace: timedelta = GRACE, dry_run: bool = False) -> VacuumReport:
        """Delete obsolete files that are older than a grace period; see `Catalog.vacuum`."""
        cutoff_ms = self._storage.now_ms() - _milliseconds("the grace period", grace)
        chosen = None if table is None else self._definitions.get_table(table)
        tally = Tally()
        if not dry_run:
            try:
                settle_all(self._storage)
            except CatalogError as error:
                tally.problems.append(f"the folder of an interrupted rename could not return: {error}")
        purged = self._finish_purges(table, tally, dry_run)
        if chosen is None:
            tables = [candidate for candidate in self._definitions.list_tables() if not candidate.is_view]
        else:
            tables = [chosen]
        kept = self._expire_snapshots(tables, cutoff_ms, tally, dry_run)
        # Imported late: importing PyIceberg takes longer than answering a statement.
        from catalog.iceberg.reachability import Reachability

        reachability = Reachability(self._storage)
        owners: list[tuple[Table | None, Collection[int]]] = [*kept, *([(None, ())] if chosen is None else [])]
        for owner, snapshot_ids in owners:
            delete_former_files(
                *(self._storage, reachability, owner, cutoff_ms, tally),
                kept_snapshot_ids=snapshot_ids,
                is_dry_run=dry_run,
            )
        cleaned = sum(self._vacuum_location(other, reachability, cutoff_ms, tally, dry_run) for other in tables)
        return VacuumReport(dry_run, tally.tables, tuple(purged), cleaned, tuple(tally.problems))

    def _expire_snapshots(
        self, tables: Iterable[Table], cutoff_ms: int, tally: Tally, is_dry_run: bool
    ) -> list[tuple[Table, Collection[int]]]:
        """Return the tables with a partition scheme and the snapshots that are left; without tables that failed."""
        kept: list[tuple[Table, Collection[int]]] = []
        for table in tables:
            if not table.has_file_rows:
                continue
            try:
                snapshot_ids = expire_table(
                    self._storage, self._definitions, table, cutoff_ms, tally, is_dry_run=is_dry_run
                )
            except TableNotFoundError:
                # It was dropped or renamed meanwhile; the next vacuum finds what it left.
                continue
            except Exception as error:
                tally.problems.append(f"{table.full_name}: its snapshots could not be expired: {error}")
            else:
                kept.append((table, snapshot_ids))
        return kept

    def _finish_purges(self, table: str | None, tally: Tally, is_dry_run: bool) -> list[str]:
        if table is not None:
            return []
        purged = []
        for operation in self._operations.committed(OperationKind.DROP_TABLE):
            try:
                if not is_dry_run:
                    finish_drop(self._storage, self._operations, operation)
                if operation.request["location"] is not None or "metadata_location" in operation.request:
                    purged.append(operation.table)
            except FilesNotDeletedError as error:
                tally.problems.append(str(error))
        for operation in self._operations.committed(OperationKind.DROP_PARTITIONS):
            try:
                if not is_dry_run:
                    finish_partition_purge(self._storage, self._definitions, self._operations, operation)
                purged.append(f"{operation.table} (partitions)")
            except (FilesNotDeletedError, FilesNeededError) as error:
                tally.problems.append(str(error))
        return purged

    def _vacuum_location(
        self, table: Table, reachability: Reachability, cutoff_ms: int, tally: Tally, is_dry_run: bool
    ) -> int:
        """Delete obsolete files below a table's location; return the number of CLEANED operations.

        Failures are recorded, so that one table does not affect others.
        """
        if table.is_view:
            return 0
        try:
            if not table.is_only_iceberg:
                self._abort_uploads(table, cutoff_ms, tally, is_dry_run)
            delete_old_metadata(self._storage, reachability, table, cutoff_ms, tally, is_dry_run=is_dry_run)
            if table.is_iceberg:
                self._vacuum_versions(table, reachability, cutoff_ms, tally, is_dry_run)
                return 0
            if table.has_file_rows:
                self._delete_leftovers(table, cutoff_ms, tally, is_dry_run)
                return delete_orphans(
                    self._storage, self._operations, reachability, table, cutoff_ms, tally, is_dry_run=is_dry_run
                )
            cleaned = discard_old_staging(
                self._storage, self._operations, self._loading, table, cutoff_ms, tally, is_dry_run=is_dry_run
            )
            self._vacuum_versions(table, reachability, cutoff_ms, tally, is_dry_run)
            return cleaned
        except (OSError, ValueError, CatalogError) as error:
            tally.problems.append(f"{table.full_name}: {table.location} could not be vacuumed: {error}")
            return 0

    def _delete_leftovers(self, table: Table, cutoff_ms: int, tally: Tally, is_dry_run: bool) -> None:
        from catalog.maintenance.iceberg_files import delete_leftovers

        files = delete_leftovers(self._storage, table, cutoff_ms, is_dry_run=is_dry_run)
        size_bytes = sum(file.size_bytes for file in files)
        tally.add(TableVacuum(table.full_name, orphan_files=len(files), orphan_bytes=size_bytes))

    def _vacuum_versions(
        self, table: Table, reachability: Reachability, cutoff_ms: int, tally: Tally, is_dry_run: bool
    ) -> None:
        services = self._storage, self._definitions, self._operations, reachability
        Versions(*services, table, tally).vacuum(cutoff_ms, is_dry_run=is_dry_run)

    def _abort_uploads(self, table: Table, cutoff_ms: int, tally: Tally, is_dry_run: bool) -> None:
        # An upload does not name the attempt that makes it, so a short grace period does not apply: it may be running.
        before_ms = usual_cutoff_ms(self._storage, cutoff_ms)
        if (began_ms := self._operations.oldest_unfinished_ms(table)) is not None:
            # Hadoop's committer completes the uploads of all tasks when the job ends, perhaps days later.
            before_ms = min(before_ms, began_ms)
        count = Folder(table.location).abort_uploads(before_ms, is_dry_run=is_dry_run)
        tally.add(TableVacuum(table.full_name, unfinished_uploads=count))

    def expire_operations(self, *, older_than: timedelta = RETENTION, dry_run: bool = False) -> ExpiryReport:
        """End abandoned operations, and remove operations that ended long ago, and old quality checks with their pages.

        Abandoned operations (`Operations.abandoned`) become FAILED with the code ABANDONED; a retry continues them.
        Ended operations are removed with their jobs, in batches, unless vacuum still needs them to judge their files.
        How long the history and the pages of quality checks stay is the setting `CALVE_QUALITY_DAYS`.

        Args:
            older_than: The minimum time since the last heartbeat or change of removed operations.
            dry_run: Only report what would be changed.

        Raises:
            InvalidRequestError: The time is negative.
            InvalidConfigurationError: The setting is not a whole number.
        """
        now_ms = self._storage.now_ms()
        before_ms = now_ms - _milliseconds("the time that operations are kept", older_than)
        checked_before_ms = now_ms - _milliseconds("CALVE_QUALITY_DAYS", timedelta(days=quality_days()))
        report = expire_operations(self._storage, self._definitions, self._operations, before_ms, is_dry_run=dry_run)
        results = QualityResults(self._storage, self._definitions, self._operations)
        checks = results.expire(checked_before_ms, is_dry_run=dry_run)
        pages, problems = 0, report.problems
        try:
            pages = QualityPages(quality_pages()).delete_older(checked_before_ms, is_dry_run=dry_run)
        except CatalogError as error:
            problems = (*problems, f"old pages of quality checks could not be removed: {error}")
        return replace(report, quality_checks=checks, quality_pages=pages, problems=problems)

    def plan_compaction(self, table: str, rules: CompactionRules | None = None) -> CompactionPlan:
        """Return the partitions with small files to compact now, by a policy; changes nothing.

        Args:
            rules: The policy; None for that of the table's entry in the list, or the defaults.

        Raises:
            TableNotFoundError: The table does not exist.
            UnsupportedChangeError: It has no partitions that Calve compacts.
            InvalidConfigurationError: The list of tables cannot be read.
        """
        definition = self._definitions.get_table(table)
        require_compacted(definition)
        return plan_compaction(self._storage, self._operations, definition, rules or rules_of(definition))

    def check(
        self,
        table: str | None = None,
        *,
        most_partitions: int = MOST_PARTITIONS,
        sample: int = SAMPLE,
        depth: Depth = Depth.SIZES,
    ) -> CatalogReport:
        """Report where the catalog differs from the files, and what hinders its work; changes nothing.

        Args:
            table: The only table to check; None for all tables and the journal.
            most_partitions: All folders are listed, and indexes verified, of Hive-style tables with at most so many
                partitions, and of all if data files are read.
            sample: The number of partitions of each larger table whose files are looked up.
            depth: How far data files are looked into.

        Raises:
            TableNotFoundError: The table does not exist.
            InvalidRequestError: A number is negative, or the sample is empty.
        """
        if most_partitions < 0 or sample < 1:
            raise InvalidRequestError(
                f"most_partitions is {most_partitions} and sample {sample}; set them to at least 0 and 1"
            )
        repairs = Repairs(self._storage, self._definitions, self._operations, self._loading)
        services = self._storage, self._definitions, self._operations, repairs
        check = CatalogCheck(*services, most_partitions=most_partitions, sample=sample, depth=depth)
        return check(table, lambda: self.vacuum(table, dry_run=True))

    def renew(self, table: str) -> Renewed:
        """Renew rows of a table that are not as its snapshot, its partitions' values and its files' totals say.

        What `check` finds about file rows, partitions and index items of the table is corrected; no file is written.

        Raises:
            CatalogError: See `catalog.maintenance.renewing.renew_rows`.
        """
        # Imported late: importing PyIceberg takes longer than answering a statement.
        from catalog.maintenance.renewing import renew_rows

        return renew_rows(self._storage, self._definitions, table)

    def clear_failed_builds(self, *, dry_run: bool = False) -> dict[str, list[str]]:
        """Remove leftovers of index builds: DELETING indexes, items of FAILED ones, and old FAILED ones.

        Returns:
            Table → names of the indexes that had leftovers.
        """
        leftovers = {}
        for table in self._definitions.list_tables():
            if (
                table.partition_keys
                and not table.is_iceberg
                and (names := building.ended_leftovers(self._storage, table))
            ):
                leftovers[table.full_name] = names
                if not dry_run:
                    building.clear_ended(self._storage, table)
        return leftovers


def _milliseconds(what: str, time: timedelta) -> int:
    if time < timedelta(0):
        raise InvalidRequestError(f"{what} is {time}; set it to 0 or more")
    return time // timedelta(milliseconds=1)
