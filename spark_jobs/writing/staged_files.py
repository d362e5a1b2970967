"""List of the files that a load has staged, with their row counts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog import FileFormat, Table
from catalog.files.filesystem import Folder, in_parallel
from catalog.model.partition_names import parse_partition_path
from catalog.operations.staging import STAGED_DATA, STAGED_FILES, STAGED_SCHEMA
from catalog.tables.columns import file_layout
from spark_jobs.reading.sources import read_path, spark_path
from spark_jobs.rows.file_formats import file_options, spark_type

_FEW_ROWS = 1_000
"""Maximum number of rows for which files are listed in this process: there are at most as many files as rows."""


def list_staged(spark: SparkSession, table: Table, staging: str, row_count: int) -> int:
    """Write the list of the staged files; return their number of rows."""
    if row_count <= _FEW_ROWS and table.format in (FileFormat.PARQUET, FileFormat.ORC):
        folder = Folder(f"{table.location}/{staging}")
        rows = list(_listed_here(table, folder))
        folder.write_rows(f"{STAGED_FILES}/part.parquet", pa.Table.from_pylist(rows, STAGED_SCHEMA))
        folder.write_empty(f"{STAGED_FILES}/_SUCCESS")
        return sum(row["row_count"] for row in rows)
    path = f"{spark_path(table.location)}/{staging}"
    target = f"{path}/{STAGED_FILES}"
    _listed_by_spark(spark, table, read_path(f"{path}/{STAGED_DATA}")).coalesce(1).write.parquet(target)
    return int(spark.read.parquet(read_path(target)).agg(f.sum("row_count")).first()[0] or 0)  # type: ignore[index]


def _listed_here(table: Table, folder: Folder) -> Iterator[dict[str, Any]]:
    data = folder.inside(STAGED_DATA)
    files = [(file, file.path.removeprefix(f"{data.location}/")) for file in data.files()]
    counts = in_parallel(lambda listed: data.row_count(listed[1], table.format), files)
    counted = [(path, file.size_bytes, count) for (file, path), count in zip(files, counts, strict=True) if count]
    for parent, group in groupby(counted, key=lambda file: file[0].rpartition("/")[0]):
        folder_files = list(group)
        yield {
            "values": [value for _, value in parse_partition_path(parent)],
            "files": [path.rpartition("/")[2] for path, _, _ in folder_files],
            "row_count": sum(count for _, _, count in folder_files),
            "size_bytes": sum(size for _, size, _ in folder_files),
        }


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
