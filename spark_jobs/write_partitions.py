"""Write the data files of a load to its staging folder, and a manifest of the partitions beside them."""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from catalog import Catalog, FileFormat, Table
from catalog.columns import file_layout
from catalog.errors import VerificationFailedError
from catalog.jobs import WritePartitionsJob
from catalog.loading import STAGED_DATA, STAGED_MANIFEST
from catalog.table_checks import require_readable_format
from spark_jobs.file_formats import as_stored, file_options, spark_type, writer_options
from spark_jobs.observing import metrics
from spark_jobs.session import run_job
from spark_jobs.sources import bad_count, read_source, source_errors, spark_path, unreadable_lines

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
    catalog.loading.discard_staging(table, keep=staging)
    folder = spark_path(f"{table.location}/{staging}")
    read = Observation()
    with source_errors():
        source = read_source(spark, catalog.loading.source_files(operation), job, table)
        rows = source.rows.observe(read, f.count(f.lit(1)).alias("rows"), bad_count(source).alias("bad"))
        _write(rows, table, f"{folder}/{STAGED_DATA}", writer_options(catalog, table.format))
    found = metrics(read)
    if found.get("bad"):
        raise unreadable_lines(source)
    manifest = _manifest(spark, table, f"{folder}/{STAGED_DATA}")
    manifest.coalesce(1).write.parquet(f"{folder}/{STAGED_MANIFEST}")
    written = spark.read.parquet(f"{folder}/{STAGED_MANIFEST}").agg(f.sum("row_count")).first()[0]  # type: ignore[index]
    read_rows = found.get("rows", 0)
    if (written or 0) != read_rows:
        raise VerificationFailedError(
            f"table {table.full_name}: {read_rows:,} rows were read from the source and {written or 0:,} are in the "
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


def _manifest(spark: SparkSession, table: Table, folder: str) -> DataFrame:
    """Return one row for each partition written: values, file_count, row_count, size_bytes."""
    keys = [f"`{key}`" for key in table.key_names]
    layout = file_layout(table, table.format)
    schema = ", ".join(f"`{column.name}` {spark_type(column.type)}" for column in layout) or None
    reader = spark.read.format(table.format).options(**file_options(table.format))
    written = (reader.schema(schema) if schema and table.format is FileFormat.CSV else reader).load(folder)
    files = written.groupBy(
        *keys, f.col("_metadata.file_path").alias("file"), f.col("_metadata.file_size").alias("size")
    ).agg(f.count(f.lit(1)).alias("rows"))
    return (
        files.groupBy(*keys)
        .agg(f.count(f.lit(1)).alias("file_count"), f.sum("rows").alias("row_count"), f.sum("size").alias("size_bytes"))
        .select(f.array(*keys).alias("values"), "file_count", "row_count", "size_bytes")
    )


if __name__ == "__main__":
    raise SystemExit(run_job(WritePartitionsJob, write_partitions))
