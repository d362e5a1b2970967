"""List of the files that a load has staged, with their row counts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog import FileFormat, Table
from catalog.files.filesystem import Folder
from catalog.model.partition_names import parse_partition_path
from catalog.operations.staging import STAGED_FILES, STAGED_SCHEMA, data_folder
from catalog.storage.bulk import batched
from catalog.tables.columns import file_layout
from spark_jobs.reading.paths import read_path, spark_path
from spark_jobs.rows.file_formats import file_options, spark_type
from spark_jobs.sessions.footer_tasks import row_counts

_BATCH = 1_000


def list_staged(spark: SparkSession, table: Table, staging: str) -> int:
    """Write the list of the staged files; return their number of rows."""
    if table.format not in (FileFormat.PARQUET, FileFormat.ORC):
        return _list_by_rows(spark, table, staging)
    folder, data = Folder(f"{table.location}/{staging}"), Folder(f"{table.location}/{data_folder(table, staging)}")
    row_count = 0
    with folder.writing_rows(f"{STAGED_FILES}/part.parquet", STAGED_SCHEMA) as writer:
        for batch in batched(_by_footers(spark, table, data), _BATCH):
            row_count += sum(partition["row_count"] for partition in batch)
            writer.write_table(pa.Table.from_pylist(batch, STAGED_SCHEMA))
    folder.write_empty(f"{STAGED_FILES}/_SUCCESS")
    return row_count


def _by_footers(spark: SparkSession, table: Table, data: Folder) -> Iterator[dict[str, Any]]:
    files = [(file.path.removeprefix(f"{data.location}/"), file.size_bytes) for file in data.files()]
    counts = row_counts(spark, data.location, [f"{data.location}/{path}" for path, _ in files], table.format)
    counted = ((path, size, count) for (path, size), count in zip(files, counts, strict=True) if count)
    for parent, group in groupby(counted, key=lambda file: file[0].rpartition("/")[0]):
        folder_files = list(group)
        yield {
            "values": [value for _, value in parse_partition_path(parent)],
            "files": [path.rpartition("/")[2] for path, _, _ in folder_files],
            "row_count": sum(count for _, _, count in folder_files),
            "size_bytes": sum(size for _, size, _ in folder_files),
        }


def _list_by_rows(spark: SparkSession, table: Table, staging: str) -> int:
    """List files whose format has no row count, by reading their rows."""
    path = spark_path(table.location)
    target = f"{path}/{staging}/{STAGED_FILES}"
    _listed_by_spark(spark, table, read_path(f"{path}/{data_folder(table, staging)}")).coalesce(1).write.parquet(target)
    return int(spark.read.parquet(read_path(target)).agg(f.sum("row_count")).first()[0] or 0)  # type: ignore[index]


def _listed_by_spark(spark: SparkSession, table: Table, folder: str) -> DataFrame:
    keys = [f"`{key}`" for key in table.key_names]
    schema = [f"`{column.name}` {spark_type(column.type)}" for column in file_layout(table, table.format)]
    reader = spark.read.format(table.format).options(**file_options(table.format))
    # The keys are read as strings, because Spark would infer other types from the paths.
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
