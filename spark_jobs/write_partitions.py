"""Writing of a load's data files and their manifest to its staging folder."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from catalog import Catalog, Table
from catalog.errors import SourceFileError, VerificationFailedError
from catalog.files.filesystem import FileInfo, Folder, in_parallel
from catalog.loading.registering import MOVES_ROWS, REPLACED
from catalog.loading.schemes import CHANGE, COUNTS, load_counts
from catalog.model import LoadMode
from catalog.operations.job_requests import ValidateSourceJob, WritePartitionsJob
from catalog.operations.records import Operation
from catalog.operations.staging import begin_staging
from catalog.settings.load_keys import CHANGING_FUNCTIONS
from catalog.tables.checks import require_readable_format
from catalog.tables.evolution import Evolution
from spark_jobs.changing.changed_rows import check_alone
from spark_jobs.changing.merging import merge_into_files, merge_rows
from spark_jobs.reading.bad_files import cached
from spark_jobs.reading.bad_rows import bad_count, naming_bad_rows, unreadable_lines
from spark_jobs.reading.discards import kept_good_rows, kept_rows
from spark_jobs.reading.paths import spark_path
from spark_jobs.reading.sources import Source, read_source, source_errors
from spark_jobs.rows.file_formats import as_stored, writer_options, writer_settings
from spark_jobs.rows.observing import metrics
from spark_jobs.rows.value_checks import CheckedColumn, checked_column
from spark_jobs.sessions.kept_rows import dropping, kept_for
from spark_jobs.sessions.session import run_job
from spark_jobs.writing.file_sizes import changed_settings
from spark_jobs.writing.scheme_loading import SchemeRows, write_scheme_rows
from spark_jobs.writing.snapshot_files import write_partition_files
from spark_jobs.writing.staged_files import list_staged
from spark_jobs.writing.value_loading import partitions_without_rows, stage_rows, staged_partitions

_SHOWN = 10

log = logging.getLogger("spark_jobs.write_partitions")


def write_partitions(spark: SparkSession, catalog: Catalog, job: WritePartitionsJob) -> dict[str, Any]:
    """Write the rows of a load's source files to a staging folder, with one folder for each partition.

    Each attempt has its own staging folder. Leftovers of earlier loads are removed first.

    Returns:
        The report: the staging folder and its number of rows; with mode `merge` these are all rows of the partitions
        that it changes, `removed` has those that have none left (id → values), and `moves_rows` is whether rows move to
        new partitions. `evolution` is what the table gets with the files.

    Raises:
        SourceFileError: A file cannot be parsed, or changed since it was found.
        ConflictError: The table was changed since the load was validated.
        VerificationFailedError: The written files have another number of rows than were read.
    """
    operation = catalog.operations.get(job.operation_id)
    if operation.is_committed:
        return dict(operation.report.get(job.step, {}))
    table = catalog.get_table(operation.table)
    require_readable_format(table)
    for expression in job.key_expressions.values():
        check_alone(spark, expression, without=CHANGING_FUNCTIONS)
    evolution = Evolution.from_json(operation.report.get(ValidateSourceJob.script, {}).get("evolution"))
    table = evolution.of(table)
    # The validation has set the bad files aside, and planned how the table evolves.
    contract = job.schema_contract
    job = replace(job, bad_files="fail", contract=contract.after_evolution().as_json())
    with dropping():
        report = _write_rows(spark, catalog, job, table)
    _require_unchanged(catalog.loading.source_files(operation))
    return {**report, "evolution": evolution.as_json()}


def _write_rows(spark: SparkSession, catalog: Catalog, job: WritePartitionsJob, table: Table) -> dict[str, Any]:
    operation = catalog.operations.get(job.operation_id)
    if table.scheme is not None:
        return _write_placed(spark, catalog, job, table)
    if job.mode == LoadMode.MERGE:
        return _write_merged(spark, catalog, job, table)
    staging = catalog.loading.files_folder(table, operation, job.attempt)
    catalog.loading.discard_staging(table, (job.operation_id, job.step, job.attempt), keep=staging)
    folder = spark_path(f"{table.location}/{staging}")
    read = Observation()
    with source_errors():
        source, is_placed = _parsed(spark, catalog, operation, job, table)
        # Rows that the validation has kept have been counted, and none of them is bad.
        rows = kept_rows(source) if is_placed else _observed(source, read)
        if table.is_stored_as_iceberg:
            written = write_partition_files(rows, table, _checked(rows, table), staging, is_placed=is_placed)
        else:
            data = spark_path(f"{table.location}/{begin_staging(table, staging)}")
            _write(rows, table, data, writer_options(catalog, table), is_placed=is_placed)
    validated = operation.report.get(ValidateSourceJob.script, {})
    read_rows = validated["rows"] if is_placed else _rows_read(source, read)
    if not table.is_stored_as_iceberg:
        written = list_staged(spark, table, staging)
    if written != read_rows:
        raise VerificationFailedError(
            f"table {table.full_name}: {read_rows:,} rows were read from the source, but {written:,} are in the "
            f"files written to {folder}; nothing was added. Run the load again"
        )
    log.info("%s: staged %d rows in %s", table.full_name, written, folder)
    return {"staging": staging, "rows": written}


def _parsed(
    spark: SparkSession, catalog: Catalog, operation: Operation, job: WritePartitionsJob, table: Table
) -> tuple[Source, bool]:
    """Return the rows of a load, and whether the validation has kept them, shuffled to their partitions."""
    source = read_source(spark, catalog.loading.source_files(operation), job, table)
    rows = kept_for(job.operation_id).find(source.rows)
    return (source, False) if rows is None else (replace(source, rows=rows), True)


def _observed(source: Source, read: Observation) -> DataFrame:
    """Return the rows to load, which are counted while Spark reads them."""
    return kept_rows(source).observe(read, f.count(f.lit(1)).alias("rows"), bad_count(source).alias("bad"))


def _rows_read(source: Source, read: Observation) -> int:
    """Return the number of rows that Spark has read.

    Raises:
        SourceFileError: Some of them cannot be loaded.
    """
    counts = metrics(read)
    if counts.get("bad"):
        raise unreadable_lines(source)
    return int(counts.get("rows", 0))


def _write_merged(spark: SparkSession, catalog: Catalog, job: WritePartitionsJob, table: Table) -> dict[str, Any]:
    """Write the rows of all partitions that a merge changes."""
    operation = catalog.operations.get(job.operation_id)
    staging = catalog.loading.files_folder(table, operation, job.attempt)
    catalog.loading.discard_staging(table, (job.operation_id, job.step, job.attempt), keep=staging)
    with source_errors(), cached() as persist:
        source, _ = _parsed(spark, catalog, operation, job, table)
        read = Observation()
        new = _observed(source, read)
        columns = _checked(new, table)
        merged, moves_rows = merge_rows(spark, catalog, table, new, columns, job.merge_rule, persist)
        written = stage_rows(spark, catalog, staging, merged)
    concerned = merged.replaced or ()
    read_rows = _rows_read(source, read)
    log.info(
        "%s: merged %d rows into %d existing partitions, which have %d rows in %s now",
        *(table.full_name, read_rows, len(concerned), written, staging),
    )
    removed = partitions_without_rows(table, concerned, staged_partitions(table, staging)) if concerned else {}
    files = merged.replaced_files
    replaced = None if files is None else files.as_json()
    return {"staging": staging, "rows": written, "removed": removed, REPLACED: replaced, MOVES_ROWS: moves_rows}


def _write_placed(spark: SparkSession, catalog: Catalog, job: WritePartitionsJob, table: Table) -> dict[str, Any]:
    """Write the rows of a load into a table with a partition scheme, and with them those of the files they replace."""
    operation = catalog.operations.get(job.operation_id)
    folder = catalog.loading.files_folder(table, operation, job.attempt)
    with source_errors(), cached() as persist:
        source, _ = _parsed(spark, catalog, operation, job, table)
        with naming_bad_rows(source):
            rows = kept_good_rows(source)
            columns = _checked(rows, table)
            if job.mode == LoadMode.MERGE:
                new = merge_into_files(spark, catalog, table, rows, columns, job.merge_rule, persist)
            else:
                is_replacing = job.mode == LoadMode.REPLACE
                new = SchemeRows(
                    rows, columns, may_extend=True, replaces_partitions=is_replacing, is_overwrite=is_replacing
                )
            change, report = write_scheme_rows(spark, catalog, table, folder, new)
    log.info("%s: wrote %d rows to %s", table.full_name, report["rows_loaded"], folder)
    counts = load_counts(table, change, report)
    return {"staging": folder, "rows": report["rows_loaded"], CHANGE: change.as_json(), COUNTS: counts}


def _require_unchanged(files: Sequence[FileInfo]) -> None:
    """Check that files are as the load has found them, as which it records them.

    Raises:
        SourceFileError: One is not.
    """
    found = in_parallel(lambda file: Folder(file.path).file(), files)
    changed = [
        file.path
        for file, now in zip(files, found, strict=True)
        if now is None or (now.size_bytes, now.modified_at_ms) != (file.size_bytes, file.modified_at_ms)
    ]
    if changed:
        raise SourceFileError(
            f"{len(changed):,} source file(s) changed while they were loaded: {', '.join(changed[:_SHOWN])}. Nothing "
            "was added; run the load again when they are complete"
        )


def _checked(rows: DataFrame, table: Table) -> list[CheckedColumn]:
    """Return the columns of a source, which have the table's types, and its partition keys, which are strings."""
    columns = [CheckedColumn(column, f.col(f"`{column.name}`")) for column in table.columns]
    keys = [checked_column(key, f.col(f"`{key.name}`"), rows.schema[key.name].dataType) for key in table.partition_keys]
    return [*columns, *keys]


def _write(rows: DataFrame, table: Table, folder: str, options: dict[str, str], *, is_placed: bool) -> None:
    """Write the rows, each partition in as few files as its size allows.

    Args:
        is_placed: Whether the rows of a partition are together already.
    """
    keys = [f"`{key}`" for key in table.key_names]
    # In the table's column order and not the source's, because readers of CSV files go by position.
    values = {column.name: f.col(f"`{column.name}`") for column in table.columns}
    rows = rows.select(*as_stored(table, values), *keys)
    if not is_placed:
        rows = rows.hint("rebalance", *[f.col(key) for key in keys])
    with changed_settings(rows.sparkSession, writer_settings(table)):
        rows.write.partitionBy(*table.key_names).format(table.format).options(**options).save(folder)


if __name__ == "__main__":
    raise SystemExit(run_job(WritePartitionsJob, write_partitions))
