"""Deletion of rows for good: from a table, and from all files in its folders that it no longer has.

    delete    the partitions with such rows, visible and quarantined, get new files in one transaction
    remove    at once, or after the grace period by the maintenance: the former files, and with them the snapshots,
              versions and refused copies that had the rows
    prove     all files in the folders of the table are searched for such rows (`spark_jobs.changing.remaining`)

The search reserves the table, because the files of a load that is not committed yet look like those of dropped
partitions. The statement can be repeated: it deletes what is left, and proves it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

from pyspark.sql import SparkSession

from catalog import Catalog, Table
from catalog.files.filesystem import Folder, in_parallel
from catalog.files.locations import location_key, location_keys
from catalog.iceberg.reachability import Reachability
from catalog.maintenance.folders_in_use import folders_in_use
from catalog.maintenance.reports import TableVacuum
from catalog.operations.failpoints import Point, reached
from catalog.operations.records import UNFINISHED, OperationKind
from catalog.operations.staging import REJECTED
from catalog.tables.own_files import is_own_file
from spark_jobs.changing.iceberg_forgetting import (
    FORGET,
    SEARCH,
    begin_search,
    finish_search,
    forget_in_iceberg,
    search_id,
)
from spark_jobs.changing.remaining import Holders, find_holders
from spark_jobs.changing.row_changes import delete_rows, rows_with
from spark_jobs.sessions.session import attempt_here

_ROUNDS = 3
"""Vacuum settles versions in one round, and deletes their folders in the next one."""
_SHOWN = 5


def forget_rows(
    spark: SparkSession,
    catalog: Catalog,
    operation_id: str,
    table: str,
    where: str,
    *,
    at_once: bool = False,
    requested_by: str | None = None,
) -> dict[str, Any]:
    """Delete the rows that meet a condition, and all copies of them in the table's folders.

    Args:
        where: A Spark SQL condition on the table's columns, without other tables.
        at_once: Delete the former files now, although running readers may need them, and files that this catalog wrote
            for partitions that were dropped.

    Returns:
        The report: `rows_deleted`, of visible partitions; `partitions_changed`; `files_deleted`; `files_searched`;
        `files_left`, which have or may have such rows; `rows_left`, those that were found; `left`, why files are left:
        lists of a reason, the number of files, and some of their paths; and `problems` of the vacuum.

    Raises:
        OperationConflictError: The rows are deleted, but another operation began before the search. The call can be
            repeated.
        CatalogError: See `delete_rows`.
    """
    _end_interrupted(catalog, operation_id)
    # Samples of failing rows may have values of the rows; the next check makes others.
    catalog.quality.remove_samples(table)
    if catalog.get_table(table).is_iceberg:
        return forget_in_iceberg(spark, catalog, operation_id, table, where, at_once=at_once, requested_by=requested_by)
    found = rows_with(spark, catalog, table, where)
    deletion = delete_rows(
        spark,
        catalog,
        operation_id,
        table,
        where,
        with_hidden=True,
        change=FORGET,
        row_count=found,
        requested_by=requested_by,
    )
    definition, operation = catalog.get_table(table), catalog.operations.get(operation_id)
    if FORGET in operation.report:
        return dict(operation.report[FORGET])
    with attempt_here(catalog, operation, FORGET) as attempt:
        removed, problems = _vacuumed(catalog, table) if at_once else (0, [])
        reached(Point.FILES_DELETED)
        search = begin_search(catalog, operation)
        with attempt_here(catalog, search, SEARCH) as search_attempt:
            if not definition.has_file_rows:
                # Interrupted loads, which could go on with files that are deleted here.
                catalog.loading.discard_staging(definition, (search.id, SEARCH, search_attempt))
            holders = find_holders(spark, catalog, definition, where)
            left = _Left(catalog, definition, at_once)
            doomed = left.unneeded(holders.rows)
            holders.rows |= dict.fromkeys(holders.unreadable, 0)
            folder = Folder(definition.location)
            for _ in in_parallel(folder.delete_file, [left.name_of(path) for path in doomed]):
                pass
            for path in doomed:
                del holders.rows[path]
            report = {
                # Not `found`, which are the rows that arrived since then if the call is repeated.
                "rows_deleted": operation.request["rows"],
                "partitions_changed": deletion["partitions_replaced"] + deletion.get("partitions_removed", 0),
                "files_deleted": removed + len(doomed),
                "files_searched": holders.searched - len(doomed),
                "files_left": len(holders.rows),
                "rows_left": sum(holders.rows.values()),
                "left": list(left.reasons(holders)),
                "problems": problems,
            }
            finish_search(catalog, (operation, attempt), (search, search_attempt), report)
    return report


def _end_interrupted(catalog: Catalog, operation_id: str) -> None:
    """Fail the operations that a killed call began after the deletion, which would hold the table until abandoned.

    A vacuum of another process that settles the table at the same time is fenced, too; this call does its work.
    """
    job = catalog.operations.get_job(operation_id, FORGET) if catalog.operations.find(operation_id) else None
    if job is None or not job.is_alive:
        return
    operation = catalog.operations.get(operation_id)
    for other in catalog.operations.list(operation.table, states=UNFINISHED):
        is_settling = other.kind is OperationKind.SETTLE_VERSIONS and other.number > operation.number
        if is_settling or other.id == search_id(operation_id):
            catalog.operations.fail(other.id, "INTERRUPTED", f"operation {operation_id} is run again")


def _vacuumed(catalog: Catalog, table: str) -> tuple[int, list[str]]:
    """Delete all files that the table does not need; return their number, and what could not be deleted."""
    total, problems = TableVacuum(table), []
    for _ in range(_ROUNDS):
        report = catalog.vacuum(table, grace=timedelta(0))
        total += report.total
        problems = list(report.problems[:_SHOWN])
        if report.total == TableVacuum("all"):
            break
    return total.retired_files + total.orphan_files + total.metadata_files, problems


class _Left:
    """The files outside of the table that have such rows, and what becomes of them."""

    def __init__(self, catalog: Catalog, table: Table, at_once: bool) -> None:
        self._table, self._at_once = table, at_once
        self._storage = catalog.storage
        self._is_hive_style = not table.has_file_rows
        self._in_use: set[str] = set()
        self._readers: dict[str, str] = {}
        self._current: set[bytes] = set()
        self._waiting: set[bytes] = set()
        if self._is_hive_style:
            partitions = catalog.get_partitions(table.full_name, state=None)
            self._current = set(location_keys(partition.location for partition in partitions))
            self._waiting = set(location_keys(catalog.folders_of_versions(table.full_name))) - self._current

    def name_of(self, path: str) -> str:
        """Return a file's path relative to the table's location, or the path itself if it is elsewhere."""
        return path.removeprefix(f"{self._table.location}/")

    def unneeded(self, paths: Iterable[str]) -> list[str]:
        """Return the copies among some files that this catalog wrote, and that no partition, version or table needs.

        Raises:
            UnreadableMetadataError: Metadata of an Iceberg table that may have such files cannot be read.
        """
        own = [path for path in paths if self._is_own(path)]
        if not own:
            return []
        # Reads the metadata of other tables once for both questions.
        reachability = Reachability(self._storage)
        self._readers = reachability.reached(own, besides=(self._table.full_name,))
        if self._is_hive_style:
            folders = {path.rpartition("/")[0] for path in own}
            self._in_use = folders_in_use(self._storage, reachability, self._table, folders)
        return [path for path in own if self._is_copy(path) and path not in self._readers]

    def _is_copy(self, path: str) -> bool:
        if self.name_of(path).startswith(f"{REJECTED}/"):
            return True
        folder = path.rpartition("/")[0]
        key = location_key(folder)
        is_needed = folder in self._in_use or key in self._current or key in self._waiting
        return self._at_once and self._is_hive_style and not is_needed

    def reasons(self, holders: Holders) -> Iterator[tuple[str, int, list[str]]]:
        """Yield the reasons why files are left, each with their number and some of their paths."""
        by_reason: dict[str, list[str]] = {}
        for path in sorted(holders.rows):
            reason = self._reason(path)
            if not holders.rows[path]:
                reason = f"that cannot be read, so that they may have such rows, {reason}"
            by_reason.setdefault(reason, []).append(path)
        for reason, paths in by_reason.items():
            yield reason, len(paths), paths[:_SHOWN]

    def _reason(self, path: str) -> str:
        folder = path.rpartition("/")[0]
        key = location_key(folder)
        if key in self._current:
            return "of the table, whose rows arrived meanwhile; run the statement again"
        if (reader := self._readers.get(path)) is not None:
            return f"that the Iceberg table {reader} reads; delete the rows there, too, and run the statement again"
        if not self._is_own(path):
            return "that Calve did not write; delete them yourself, and run the statement again"
        if folder in self._in_use:
            return (
                "of another table or of a load that has not ended; run the statement for that table, or when the load "
                "has ended"
            )
        if self._is_hive_style and key not in self._waiting:
            return "of dropped partitions; delete them with at_once => true"
        if self._at_once:
            return (
                "of quarantined partitions, of snapshots that other engines keep, or that could not be deleted; "
                "release or drop these partitions, expire these snapshots, and run the statement again"
            )
        return (
            "that running readers may need; vacuum deletes them after the grace period; run the statement again then "
            "to prove it, or now with at_once => true"
        )

    def _is_own(self, path: str) -> bool:
        name = self.name_of(path)
        return name != path and is_own_file(name, self._storage.identity)
