"""Write the data files of a load to its staging folder, and a list of them beside them."""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from catalog import Catalog, Table
from catalog.errors import VerificationFailedError
from catalog.operations.job_requests import WritePartitionsJob
from catalog.operations.staging import STAGED_DATA
from catalog.tables.checks import require_readable_format
from spark_jobs.reading.sources import bad_count, read_source, source_errors, spark_path, unreadable_lines
from spark_jobs.rows.file_formats import as_stored, writer_options
from spark_jobs.rows.observing import metrics
from spark_jobs.sessions.session import run_job
from spark_jobs.writing.staged_files import list_staged

log = logging.getLogger("spark_jobs.write_partitions")


def write_partitions(spark: SparkSession, catalog: Catalog, job: WritePartitionsJob) -> dict[str, Any]:
    """Write the rows of a load's source files, one folder a partition, where no reader looks.

    Each attempt has a staging folder of its own; what earlier loads left behind is undone first.

    Returns:
        The report: the staging folder, and the rows in it.

    Raises:
        SourceFileError: A file cannot be parsed.
        VerificationFailedError: The files written do not hold as many rows as were read.
    """
    operation = catalog.operations.get(job.operation_id)
    if operation.is_committed:
        return dict(operation.report.get(job.step, {}))
    table = catalog.get_table(operation.table)
    require_readable_format(table)
    staging = catalog.loading.staging_name(operation, job.attempt)
    catalog.loading.discard_staging(table, (job.operation_id, job.step, job.attempt), keep=staging)
    folder = spark_path(f"{table.location}/{staging}")
    read = Observation()
    with source_errors():
        source = read_source(spark, catalog.loading.source_files(operation), job, table)
        rows = source.rows.observe(read, f.count(f.lit(1)).alias("rows"), bad_count(source).alias("bad"))
        _write(rows, table, f"{folder}/{STAGED_DATA}", writer_options(catalog, table.format))
    found = metrics(read)
    if found.get("bad"):
        raise unreadable_lines(source)
    read_rows = found.get("rows", 0)
    written = list_staged(spark, table, staging, read_rows)
    if written != read_rows:
        raise VerificationFailedError(
            f"table {table.full_name}: {read_rows:,} rows were read from the source and {written:,} are in the "
            f"files written to {folder}; nothing was added. Run the load again"
        )
    log.info("%s: %d rows are staged in %s", table.full_name, written, folder)
    return {"staging": staging, "rows": written}


def _write(rows: DataFrame, table: Table, folder: str, options: dict[str, str]) -> None:
    """Write the rows, each partition in as few files as its size allows."""
    keys = [f"`{key}`" for key in table.key_names]
    # In the order of files, whatever the source's is: readers of CSV go by position.
    values = {column.name: f.col(f"`{column.name}`") for column in table.columns}
    rows = rows.select(*as_stored(table, values), *keys)
    (
        rows.hint("rebalance", *[f.col(key) for key in keys])
        .write.partitionBy(*table.key_names)
        .format(table.format)
        .options(**options)
        .save(folder)
    )


if __name__ == "__main__":
    raise SystemExit(run_job(WritePartitionsJob, write_partitions))
