"""Adding rows to tables without a partition scheme: to partitions that exist, new ones, and unpartitioned tables."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog import Catalog, FileFormat, Table
from catalog.appending import DATA, FILES, FILES_SCHEMA
from catalog.columns import file_layout
from catalog.errors import FencedError, InvalidRowsError, VerificationFailedError
from catalog.files import Folder, in_parallel
from catalog.key_types import FloatingType, parse_key_type
from catalog.operations import OperationKind
from catalog.partition_names import parse_partition_path
from catalog.table_checks import require_value_rows
from spark_jobs.file_formats import as_stored, file_options, spark_type, writer_options
from spark_jobs.reading import reader_errors
from spark_jobs.session import attempt_here, require_attempt
from spark_jobs.sources import spark_path
from spark_jobs.value_checks import CheckedColumn, RowCheck, first_problem, shaped_rows

log = logging.getLogger("spark_jobs.value_loading")

APPEND = "append_rows"
"""The step of the operation that an append is."""

_FEW_ROWS = 1_000
"""Rows up to which the files are counted in this process: there are no more files than rows."""


def append_rows(
    spark: SparkSession,
    catalog: Catalog,
    operation_id: str,
    table: str,
    frame: DataFrame,
    *,
    requested_by: str | None = None,
) -> dict[str, Any]:
    """Add rows to a table, in one operation; done again, it returns the same report.

    Partitions that exist get further files, and new ones are added with their index items, when all files are in their
    places. A reader that lists the folder of a partition, or of a table without partitions, may see some of the new
    files before that, and until an append that was interrupted is undone, which the next load of the table begins with.
    New partitions are seen as a whole or not at all.

    A new partition whose default folder has files that the catalog does not know, as a dropped one leaves them, gets a
    folder beside it, so that it has just the rows that were added.

    Args:
        frame: The table's columns and partition keys by name, in any order and case; a column that it lacks is null.
            An empty text in a key is Hive's null.

    Returns:
        The report: `rows`, `files`, `bytes`, `partitions_added` and `partitions_extended`.

    Raises:
        TableNotFoundError: There is no such table.
        NotATableError, UnsupportedFormatError, UnsupportedChangeError: Nothing can be added to it like this.
        InvalidRowsError: The rows lack a key, have a column that the table does not have, or a value of another type.
        InvalidPartitionError: A partition index does not admit a new partition.
        OperationConflictError: Another operation is at work on the table.
        ConflictError: A partition is quarantined, or was added by somebody else meanwhile.
    """
    definition = catalog.get_table(table)
    _refuse_others(definition)
    rows, columns = shaped_rows(definition, frame)
    operation = catalog.operations.begin(
        operation_id, OperationKind.APPEND_ROWS, table, is_exclusive=True, requested_by=requested_by
    )
    if operation.is_committed:
        job = catalog.operations.get_job(operation_id, APPEND)
        attempt = 0 if job is None else job.attempt
        staging = catalog.loading.staging_name(operation, attempt)
        return catalog.loading.publish(operation_id, APPEND, attempt, staging, append=True)
    with attempt_here(catalog, operation, APPEND) as attempt:
        catalog.loading.discard_staging(definition)
        try:
            staging = catalog.loading.staging_name(operation, attempt)
            _stage(spark, catalog, definition, staging, rows, columns)
            return catalog.loading.publish(operation_id, APPEND, attempt, staging, append=True)
        except FencedError:
            raise
        except Exception:
            require_attempt()
            # No other operation is at work on the table, so nobody needs what this attempt has written.
            catalog.loading.discard_staging(definition)
            raise


def _refuse_others(table: Table) -> None:
    require_value_rows(table)
    if not table.columns:
        raise InvalidRowsError(f"table {table.full_name} has only partition keys, so there is nothing to write")


# --- the rows -------------------------------------------------------------------------------------------------------


def _written(table: Table, columns: Sequence[CheckedColumn]) -> Iterator[SparkColumn]:
    """Yield what is written: the columns as files have them, then each partition key as the text of a path."""
    yield from as_stored(table, {checked.column.name: checked.value for checked in columns})
    keys = [checked for checked in columns if checked.column.name in table.key_names]
    yield from (_key_text(checked).alias(checked.column.name) for checked in keys)


def _key_text(checked: CheckedColumn) -> SparkColumn:
    """Return a key's value as Hive writes it into a path."""
    key_type = parse_key_type(checked.column.type)
    # Spark writes both zeros into folders of their own; what is added to zero has no sign.
    is_float = isinstance(key_type, FloatingType)
    value = checked.value + f.lit(0.0).cast(str(key_type)) if is_float else checked.value
    return f.nullif(value.cast("string"), f.lit(""))


# --- staging --------------------------------------------------------------------------------------------------------


def _stage(
    spark: SparkSession,
    catalog: Catalog,
    table: Table,
    staging: str,
    rows: DataFrame,
    columns: Sequence[CheckedColumn],
) -> None:
    """Write the rows where no reader looks, and the list of the files beside them.

    Raises:
        InvalidRowsError: A value is not of its column's type.
        VerificationFailedError: The files do not hold as many rows as were given.
    """
    check = RowCheck(table, first_problem(columns))
    written = check.observe(rows).select(*_written(table, columns))
    folder = f"{spark_path(table.location)}/{staging}"
    keys = [f.col(f"`{key}`") for key in table.key_names]
    writer = (written.hint("rebalance", *keys) if keys else written).write
    if keys:
        writer = writer.partitionBy(*table.key_names)
    with reader_errors(spark, table):
        writer.format(table.format).options(**writer_options(catalog, table.format)).save(f"{folder}/{DATA}")
    given_rows = check.finish()
    listed = _list_files(spark, table, staging, given_rows)
    if listed != given_rows:
        raise VerificationFailedError(
            f"table {table.full_name}: {given_rows:,} rows were given and {listed:,} are in the files written to "
            f"{folder}; nothing was added. Append them again"
        )
    log.info("%s: %d rows are staged in %s", table.full_name, listed, folder)


def _list_files(spark: SparkSession, table: Table, staging: str, row_count: int) -> int:
    """Write the list of what is staged; return how many rows that is."""
    if row_count <= _FEW_ROWS and table.format in (FileFormat.PARQUET, FileFormat.ORC):
        folder = Folder(f"{table.location}/{staging}")
        rows = list(_listed_here(table, folder))
        folder.write_rows(f"{FILES}/part.parquet", pa.Table.from_pylist(rows, FILES_SCHEMA))
        folder.write_empty(f"{FILES}/_SUCCESS")
        return sum(row["row_count"] for row in rows)
    target = f"{spark_path(table.location)}/{staging}/{FILES}"
    _listed_by_spark(spark, table, f"{spark_path(table.location)}/{staging}/{DATA}").coalesce(1).write.parquet(target)
    return int(spark.read.parquet(target).agg(f.sum("row_count")).first()[0] or 0)  # type: ignore[index]


def _listed_here(table: Table, folder: Folder) -> Iterator[dict[str, Any]]:
    data = folder.inside(DATA)
    files = [(each, each.path.removeprefix(f"{data.location}/")) for each in data.files()]
    counts = in_parallel(lambda each: data.row_count(each[1], table.format), files)
    counted = [(path, file.size_bytes, count) for (file, path), count in zip(files, counts, strict=True) if count]
    for parent, group in groupby(counted, key=lambda each: each[0].rpartition("/")[0]):
        some = list(group)
        yield {
            "values": [value for _, value in parse_partition_path(parent)],
            "files": [path.rpartition("/")[2] for path, _, _ in some],
            "row_count": sum(count for _, _, count in some),
            "size_bytes": sum(size for _, size, _ in some),
        }


def _listed_by_spark(spark: SparkSession, table: Table, folder: str) -> DataFrame:
    keys = [f"`{key}`" for key in table.key_names]
    schema = [f"`{column.name}` {spark_type(column.type)}" for column in file_layout(table, table.format)]
    reader = spark.read.format(table.format).options(**file_options(table.format))
    # Whatever they look like, the keys are texts.
    written = reader.schema(", ".join([*schema, *[f"{key} string" for key in keys]])).load(folder)
    files = written.groupBy(
        *keys, f.col("_metadata.file_name").alias("file"), f.col("_metadata.file_size").alias("size")
    ).agg(f.count(f.lit(1)).alias("rows"))
    return (
        files.groupBy(*keys)
        .agg(f.collect_list("file").alias("files"), f.sum("rows").alias("row_count"), f.sum("size").alias("size_bytes"))
        .select(
            f.array(*keys).cast("array<string>").alias("values"),
            "files",
            "row_count",
            "size_bytes",
        )
    )
