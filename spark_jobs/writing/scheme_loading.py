"""Atomic loading of rows into a table with a partition scheme."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from sqlalchemy import Connection

from catalog import Catalog, Table
from catalog.datafiles.committing import FileChange
from catalog.datafiles.files import DataFile, Total
from catalog.datafiles.pruning import FileScan, Placing, place_files
from catalog.operations.attempts import attempt_folder
from catalog.operations.patience import planned_again
from catalog.operations.records import Operation, OperationKind
from catalog.rebalancing.planning import new_partition_limit, target_file_bytes
from catalog.schemes.model import DEFAULT_PARTITION, MAXIMUM_PARTITIONS, UNPLACED, Scheme, SchemeType
from catalog.schemes.ranges import IntervalScheme
from catalog.tables.checks import require_scheme
from catalog.tables.own_properties import NEW_PARTITIONS_PROPERTY
from catalog.types.key_types import KeyValue, TimestampType
from spark_jobs.reading.iceberg import read_live_rows
from spark_jobs.rows.placement import literal_sql, partition_id, value_sql
from spark_jobs.rows.value_checks import CheckedColumn, RowCheck, first_problem, shaped_rows
from spark_jobs.sessions.session import attempt_here
from spark_jobs.writing.scheme_files import write_rows

log = logging.getLogger("spark_jobs.writing.scheme_loading")

_IN_DEFAULT = f"_partition_id = {DEFAULT_PARTITION}"

_USUAL_BYTES = 1_000_000
"""Size from which rows, and not the footer, make up nearly all of a file."""

LOAD = "load"
"""The step of a load's operation."""


def load_rows(
    spark: SparkSession,
    catalog: Catalog,
    operation_id: str,
    table: str,
    rows: DataFrame,
    *,
    request: Mapping[str, Any] | None = None,
    requested_by: str | None = None,
) -> dict[str, Any]:
    """Add rows to a table with a partition scheme, in one operation; a repeated call returns the same report.

    For a RANGE_INTERVAL table, the partitions for rows beyond the last bound are created in the same transaction, up to
    `catalog.rebalancing.planning.new_partition_limit`. Rows beyond this limit stay in the default partition, 0.

    Args:
        rows: Rows with the table's columns, by name; each value must be exactly convertible to its column's type
            (`spark_jobs.rows.value_checks`).
        request: What the journal keeps of the request.

    Returns:
        The report: `rows_loaded`, `files_written`, `rows_written`, `bytes_written`, `partitions_created`; for rows
        beyond the limit also `rows_outside` and a `warning`.

    Raises:
        TableNotFoundError: The table does not exist.
        InvalidSchemeError: The table has no partition scheme.
        OperationConflictError: Another operation works on the table.
        InvalidRowsError: The rows lack a column, or have a value that does not fit its column.
    """
    operation = catalog.operations.begin(
        operation_id, OperationKind.LOAD_ROWS, table, request, is_exclusive=True, requested_by=requested_by
    )
    if operation.is_committed:
        return dict(operation.report[LOAD])

    def load() -> dict[str, Any]:
        with attempt_here(catalog, operation, LOAD) as attempt:
            definition = require_scheme(catalog.get_table(table))
            new = SchemeRows(*shaped_rows(definition, rows), may_extend=True)
            return publish_scheme_rows(spark, catalog, operation, (LOAD, attempt), definition, new)

    return planned_again(load)


@dataclass(frozen=True)
class SchemeRows:
    """Rows to write to a table with a partition scheme, and the files that they replace.

    Attributes:
        rows, columns: As `shaped_rows` returns them; None for no rows.
        retired: The files whose rows are among the new ones, or are deleted.
        read_from: The metadata of the table when these files were read.
        had_deletes: Whether there were delete files then.
        where, revision: As in `FileChange`.
        may_extend: Whether a RANGE_INTERVAL table gets partitions for rows beyond the last bound.
        replaces_partitions: The rows replace those of their partitions; of a HASH table, all rows.
        is_overwrite, is_of_itself: As in `FileChange`.
    """

    rows: DataFrame | None = None
    columns: Sequence[CheckedColumn] = ()
    retired: Sequence[DataFile] = ()
    read_from: str | None = None
    may_extend: bool = False
    replaces_partitions: bool = False
    is_overwrite: bool = False
    is_of_itself: bool = False
    had_deletes: bool = False
    where: str | None = None
    revision: int | None = None

    @classmethod
    def instead_of(cls, files: Sequence[DataFile], scan: FileScan, *, is_serializable: bool = True) -> SchemeRows:
        """Return a change that removes some files of a scan, without any new rows.

        Args:
            is_serializable: Whether it depends on all rows that meet the filter of the scan.
        """
        table = scan.table
        return cls(
            retired=files,
            read_from=table.published_location,
            had_deletes=table.delete_file_count > 0,
            where=scan.expression,
            revision=scan.revision if is_serializable else None,
        )

    def removal(self, scheme: Scheme) -> FileChange:
        """Return the change that removes the retired files of a table with a scheme, whose rows are all deleted."""
        return FileChange(
            scheme,
            scheme,
            retired=[file.id for file in self.retired],
            read_from=self.read_from,
            is_overwrite=self.is_overwrite,
            had_deletes=self.had_deletes,
            where=self.where,
            revision=self.revision,
        )


def publish_scheme_rows(
    spark: SparkSession,
    catalog: Catalog,
    operation: Operation,
    attempt: tuple[str, int],
    table: Table,
    new: SchemeRows,
    report: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write rows to files, and make these visible in place of others in one transaction; return the report.

    Args:
        operation: It has reserved the table.
        attempt: The step and the number of the attempt.
        report: Further fields of the report.

    Returns:
        The report of `load_rows`, with `files_removed`.

    Raises:
        InvalidRowsError: A value does not fit its column.
        PlanConflictError: Another engine has changed the retired files meanwhile.
    """
    folder = attempt_folder(operation, attempt[1])
    change, own_report = write_scheme_rows(spark, catalog, table, folder, new)
    full_report = {**own_report, **(report or {})}

    def noted(connection: Connection, changed: Table) -> Mapping[str, Any]:
        catalog.loading.note_statement(connection, changed, operation)
        return full_report

    return catalog.committer.commit(operation.id, *attempt, change, noted)


def write_scheme_rows(
    spark: SparkSession, catalog: Catalog, table: Table, folder: str, new: SchemeRows
) -> tuple[FileChange, dict[str, Any]]:
    """Write rows to files in a folder, with a manifest; return the change that makes them visible, and a report.

    Args:
        table: The table as it is after the change; it may have columns that its present files do not have.
        folder: The folder of an attempt, relative to the table's location.

    Returns:
        The change, for `Committer.commit`, and the report of `load_rows`, with `files_removed`.

    Raises:
        InvalidRowsError: A value does not fit its column.
    """
    before = table.scheme
    assert before is not None
    if new.rows is None:
        return new.removal(before), {"rows_loaded": 0, "files_removed": len(new.retired)}
    check = RowCheck(table, first_problem(new.columns))
    values = [checked.value.alias(checked.column.name) for checked in new.columns]
    given = new.rows.select(*values)
    extension = _extended(before, given, new_partition_limit(table)) if new.may_extend else _Extension(before)
    after = extension.scheme
    current = catalog.scan_files(table.full_name, None if new.replaces_partitions else _IN_DEFAULT)
    concerned = _concerned_files(current.files, new, before, after, given)
    rows, among = check.observe(new.rows).select(*values), extension.partition_ids
    if concerned.moved:
        old = read_live_rows(spark, current.table, concerned.moved)
        if concerned.replaced:
            old = old.where(~partition_id(after).isin(list(concerned.replaced)))
        rows = rows.unionByName(old, allowMissingColumns=True)
        among = None if any(file.partition_id == UNPLACED for file in concerned.moved) else among
    row_count = write_rows(rows, table, after, folder, among=among, size=_usual_size(catalog, table))
    rows_loaded = check.finish()
    if not current.table.delete_file_count and not concerned.replaced:
        rows_loaded = row_count - Total.of(concerned.moved).row_count
    change = FileChange(
        before,
        after,
        folder,
        row_count,
        concerned.relabelled,
        concerned.retired,
        {} if before == after else {DEFAULT_PARTITION: _out_of_default_ids(before, after)},
        new.read_from or current.table.published_location,
        new.is_overwrite,
        new.is_of_itself,
        new.had_deletes or current.table.delete_file_count > 0,
        new.where,
        new.revision,
    )
    return change, {
        "rows_loaded": rows_loaded,
        "partitions_created": len(after.ids) - len(before.ids),
        "files_removed": len(concerned.retired),
        **extension.report(table),
    }


@dataclass(frozen=True)
class _ConcernedFiles:
    """The existing files that new rows concern.

    Attributes:
        retired: Ids of the files that are removed.
        moved: Those of these files whose rows are written again, to the partitions that they have now.
        relabelled: File → its new partition.
        replaced: The partitions whose rows go.
    """

    retired: Sequence[int]
    moved: Sequence[DataFile]
    relabelled: Mapping[int, int]
    replaced: Collection[int] = ()


def _concerned_files(
    files: Sequence[DataFile], new: SchemeRows, before: Scheme, after: Scheme, given: DataFrame
) -> _ConcernedFiles:
    """Return the files that new rows concern.

    Args:
        files: Those of the default partition; if the rows replace partitions, all of the table.
        given: The new rows, with the table's columns.
    """
    retired = [file.id for file in new.retired]
    known = frozenset(retired)
    placing = _out_of_default([file for file in files if file.id not in known], before, after)
    moved, relabelled = placing.rewritten, placing.relabelled
    if not new.replaces_partitions:
        return _ConcernedFiles([*retired, *(file.id for file in moved)], moved, relabelled)
    replaced = _partitions_of(given, after)
    moved = [*moved, *(file for file in files if file.partition_id == UNPLACED)]
    kept = {file.id for file in moved}
    partition_of = {file.id: relabelled.get(file.id, file.partition_id) for file in files if file.id not in kept}
    gone = [file_id for file_id, number in partition_of.items() if number in replaced]
    relabelled = {file_id: number for file_id, number in relabelled.items() if number not in replaced}
    return _ConcernedFiles([*gone, *kept], moved, relabelled, replaced)


def _partitions_of(rows: DataFrame, scheme: Scheme) -> frozenset[int]:
    """Return the partitions whose rows are replaced by others: those of the others, or all of a HASH table."""
    if scheme.type is SchemeType.HASH:
        return frozenset(scheme.ids)
    return frozenset(number for (number,) in rows.select(partition_id(scheme)).distinct().toLocalIterator())


def _usual_size(catalog: Catalog, table: Table) -> Total | None:
    """Return the table's total, from which the size of a row follows; None if its files are too small for that.

    Without this size, Spark does not limit the files that a task writes: a task with many rows of one partition, for
    instance from a file that cannot be split, would write all of them to one file.
    """
    total = sum(
        (
            Total(partition.file_count, partition.row_count, partition.size_bytes)
            for partition in catalog.scheme_partitions(table.full_name)
        ),
        Total(),
    )
    is_usual = total.size_bytes >= total.file_count * min(target_file_bytes(table) // 4, _USUAL_BYTES)
    return total if total.file_count and is_usual else None


@dataclass(frozen=True)
class _Extension:
    """A scheme extended with partitions for the rows of a load.

    Attributes:
        scheme: The scheme with the new partitions.
        partition_ids: The partitions that the rows, and those of the default partition, may belong to; None for all.
        rows_outside: Number of rows beyond the limit of new partitions.
        farthest: The maximum of their values, as a string.
    """

    scheme: Scheme
    partition_ids: frozenset[int] | None = None
    rows_outside: int = 0
    farthest: str | None = None

    def report(self, table: Table) -> dict[str, Any]:
        """Return the fields of a load's report about rows outside; empty if there are none."""
        if not self.rows_outside:
            return {}
        warning = (
            f"table {table.full_name}: {self.rows_outside:,} row(s) with {self.scheme.column} up to {self.farthest} "
            f"are in the default partition, {DEFAULT_PARTITION}, because a load adds at most "
            f"{new_partition_limit(table):,} partitions and a table has at most {MAXIMUM_PARTITIONS:,}. Correct the "
            f"values, raise the property {NEW_PARTITIONS_PROPERTY}, or use ALTER TABLE … ADD PARTITION"
        )
        log.warning("%s", warning)
        return {"rows_outside": self.rows_outside, "warning": warning}


def _extended(scheme: Scheme, rows: DataFrame, limit: int) -> _Extension:
    """Return the scheme with partitions for all rows within the limit, if loads extend this scheme."""
    if not isinstance(scheme, IntervalScheme):
        return _Extension(scheme)
    value, reach = f.expr(value_sql(scheme.column, scheme.value_type)), scheme.reach(limit)
    is_inside = value < f.expr(literal_sql(scheme.value_type, reach))
    inside = f.when(is_inside, value)
    read: Any = rows.agg(
        _plain(scheme, f.min(inside)),
        _plain(scheme, f.max(inside)),
        f.count_if(~is_inside),
        f.max(value).cast("string"),
    ).first()
    least, greatest, rows_outside, farthest = read
    if greatest is None:
        return _Extension(scheme, frozenset([DEFAULT_PARTITION]), rows_outside, farthest)
    after = scheme.extended_to(_typed(scheme, greatest))
    first, last = (after.ids.index(after.partition_of(_typed(scheme, text))) for text in (least, greatest))
    # Rows of the default partition that now have a range belong to new partitions.
    possible = {DEFAULT_PARTITION, *after.ids[first : last + 1], *after.ids[len(scheme.ids) :]}
    return _Extension(after, frozenset(possible), rows_outside, farthest)


def _plain(scheme: Scheme, value: SparkColumn) -> SparkColumn:
    # Timestamps as numbers, because a string would depend on the session's time zone.
    return f.unix_micros(value) if isinstance(scheme.value_type, TimestampType) else value.cast("string")


def _typed(scheme: Scheme, plain: str | int) -> KeyValue:
    return scheme.typed(plain) if isinstance(plain, str) else plain


def _out_of_default(files: Sequence[DataFile], before: Scheme, after: Scheme) -> Placing:
    """Return the placing of the default partition's files, among others, in the extended scheme."""
    if before == after:
        return Placing([], {})
    files = [file for file in files if file.partition_id == DEFAULT_PARTITION]
    return place_files(after, files, {DEFAULT_PARTITION: _out_of_default_ids(before, after)})


def _out_of_default_ids(before: Scheme, after: Scheme) -> tuple[int, ...]:
    """Return the partitions of an extended scheme that rows of the default partition may belong to."""
    return (DEFAULT_PARTITION, *(partition_id for partition_id in after.ids if partition_id not in before.ids))
