"""Validation of a load: parse the source files and check their partitions before anything is written."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog import Catalog, IndexDefinition, NewPartition, Table
from catalog.errors import InvalidPartitionError, InvalidTableError, NotFoundError, RefusedPartition
from catalog.model import ICEBERG, Column, FileFormat, IndexState, LoadMode, PartitionIndex
from catalog.model.identifiers import TableName
from catalog.operations.job_requests import ValidateSourceJob
from catalog.operations.records import OperationState
from catalog.tables.checks import require_replaceable, require_value_rows
from spark_jobs.reading.bad_rows import bad_count, unreadable_lines, with_places
from spark_jobs.reading.source_keys import refuse_missing_keys
from spark_jobs.reading.sources import FILE, Source, read_source, source_errors
from spark_jobs.sessions.session import run_job

_SHOWN = 20

log = logging.getLogger("spark_jobs.validate_source")


def validate_source(spark: SparkSession, catalog: Catalog, job: ValidateSourceJob) -> dict[str, Any]:
    """Check a load; create its table and indexes if the table does not exist and this is no dry run.

    Returns:
        The report: files, rows and partitions that would be added, and the partitions that the indexes refuse.

    Raises:
        SourceFileError: A file cannot be parsed; the message names it and the line.
        InvalidTableError: The table is new, and the request names no partition keys.
        InvalidPartitionError: An index does not admit a partition, and the request does not say to skip it.
        PartitionAlreadyExistsError: The table has one of the partitions, and the mode is `new`.
        UnsupportedChangeError: The mode is `replace`, and the table is not stored as Iceberg.
    """
    operation = catalog.operations.get(job.operation_id)
    if operation.is_committed:
        return dict(operation.report.get(job.step, {}))
    files = catalog.loading.source_files(operation)
    table = _existing_table(catalog, job.table)
    if table is None and not job.keys:
        raise InvalidTableError(f"table {job.table} is new and has no partition keys; name them with their types")
    with source_errors():
        source = read_source(spark, files, job, table)
        keys = list(job.key_types) if table is None else list(table.key_names)
        partitions = _count_partitions(source, keys)
        if not partitions.where(" OR ".join(f"`{key}` IS NULL" for key in keys)).isEmpty():
            refuse_missing_keys(spark, source, job, keys)
    table, indexes = _table_to_be(catalog, job, table, source)
    report = _check(catalog, job, table, indexes, partitions, source)
    log.info(
        "%s: %d files would add %d partitions with %d rows; the indexes refuse %d",
        *(table.full_name, len(files), report["partitions"], report["rows"], report["refused"]),
    )
    if source.missing:
        log.warning("%s: files lack %s, which is null in their rows", table.full_name, ", ".join(source.missing))
    if job.dry_run:
        with catalog.storage.write() as connection:
            catalog.operations.guard(connection, job.operation_id, job.step, job.attempt)
            catalog.operations.advance(connection, job.operation_id, OperationState.CLEANED)
    elif not table.id:
        _create_table(catalog, job, table)
    return {"files": len(files), "missing_columns": list(source.missing), **report}


def _existing_table(catalog: Catalog, name: str) -> Table | None:
    try:
        table = catalog.get_table(name)
    except NotFoundError:
        return None
    require_value_rows(table)
    return table


def _count_partitions(source: Source, keys: list[str]) -> DataFrame:
    """Return one row for each partition: its key values and `row_count`.

    Raises:
        SourceFileError: A line cannot be parsed.
    """
    names = [f"`{name}`" for name in source.rows.columns if name != FILE]
    counted = (
        # Spark writes an empty value to Hive's null partition, so it counts as null here.
        source.rows.withColumns({key: f.nullif(f.col(f"`{key}`"), f.lit("")) for key in keys})
        .groupBy(*[f"`{key}`" for key in keys])
        .agg(
            f.count(f.lit(1)).alias("row_count"),
            bad_count(source).alias("bad_count"),
            # Uses all columns, because Spark parses only the columns in use and would miss errors in the others.
            f.bit_xor(f.xxhash64(*names)).alias("digest"),
        )
        .coalesce(1)  # read twice, the second time row by row, for which one task is best
        .persist()
    )
    if counted.agg(f.sum("bad_count")).first()[0]:  # type: ignore[index]
        raise unreadable_lines(source)
    return counted.drop("bad_count", "digest")


def _table_to_be(
    catalog: Catalog, job: ValidateSourceJob, table: Table | None, source: Source
) -> tuple[Table, list[PartitionIndex]]:
    """Return the target table and its indexes; the table's id is 0 if it is not in the catalog yet."""
    if table is not None:
        return table, [
            index for index in catalog.get_partition_indexes(job.table) if index.state is not IndexState.FAILED
        ]
    name = TableName.parse(job.table)
    columns = tuple(Column(column.name, column.type) for column in source.columns)
    keys = tuple(Column(key, text) for key, text in job.key_types.items())
    indexes = [PartitionIndex(index, tuple(names), IndexState.CREATING) for index, names in job.indexes.items()]
    file_format = FileFormat.PARQUET if job.format == ICEBERG else FileFormat(job.format)
    return Table(name.database, name.name, columns, keys, file_format, ""), indexes


def _check(
    catalog: Catalog,
    job: ValidateSourceJob,
    table: Table,
    indexes: list[PartitionIndex],
    partitions: DataFrame,
    source: Source,
) -> dict[str, Any]:
    counts, mode = {"rows": 0, "partitions": 0}, LoadMode.of(job.mode, table)
    if mode is LoadMode.REPLACE:
        is_to_be = not table.id and job.format == ICEBERG
        require_replaceable(table.full_name, is_stored_as_iceberg=table.is_stored_as_iceberg or is_to_be)

    def new_partitions() -> Iterator[NewPartition]:
        for *values, row_count in partitions.toLocalIterator():
            counts["rows"] += row_count
            counts["partitions"] += 1
            yield NewPartition(values, row_count=row_count)

    refused_count, shown = 0, list[RefusedPartition]()
    for refused in catalog.loading.check(table, indexes, new_partitions(), mode):
        refused_count += 1
        if len(shown) < _SHOWN:
            shown.append(refused)
    if shown:
        with source_errors():
            shown = with_places(source, shown)
    if refused_count and job.invalid_partitions == "fail":
        raise InvalidPartitionError(table.full_name, shown, count=refused_count)
    return {**counts, "refused": refused_count, "refused_reasons": [str(partition) for partition in shown]}


def _create_table(catalog: Catalog, job: ValidateSourceJob, table: Table) -> None:
    catalog.create_database(table.database, if_not_exists=True)
    catalog.create_table(
        table.full_name,
        columns=table.columns,
        partition_keys=table.partition_keys,
        format=job.format,
        indexes=[IndexDefinition(name, tuple(keys)) for name, keys in job.indexes.items()],
    )


if __name__ == "__main__":
    raise SystemExit(run_job(ValidateSourceJob, validate_source))
