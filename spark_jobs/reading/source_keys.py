"""Check for records of source files that lack a partition key.

In CSV files, the header shows a missing column. A JSON record may omit a field, and each Parquet or ORC file has its
own columns: Spark reads a missing one as null, which would put the row into the NULL partition.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog.errors import SourceFileError
from catalog.files.filesystem import Folder, in_parallel
from catalog.operations.job_requests import SourceJob
from spark_jobs.reading.sources import CORRUPT, FILE, Source, plain_path, quoted, read_path

_SHOWN = 100
"""Maximum number of characters of a record in an error."""


def refuse_missing_keys(spark: SparkSession, source: Source, job: SourceJob, keys: Sequence[str]) -> None:
    """Refuse a source with a record that has neither a value nor an explicit null for a partition key.

    Args:
        keys: Names of the required columns, in lower case.

    Raises:
        SourceFileError: A file or a JSON record lacks a key; the message names it.
    """
    keys = [key for key in keys if key not in source.folder_keys]
    if not keys or job.source_format == "csv":
        return
    if job.source_format == "json":
        _refuse_records(spark, source, job, keys)
    else:
        _refuse_files(source, job.source_format, keys)


def _refuse_records(spark: SparkSession, source: Source, job: SourceJob, keys: Sequence[str]) -> None:
    """Refuse JSON records without a key; read as variants, which distinguish null from a missing field."""
    reader = spark.read.format("json").options(**job.source_options)
    reader = reader.options(singleVariantColumn="content", mode="PERMISSIVE")
    records = _records(reader.load([read_path(file.path) for file in source.files]))
    lacking = {key: _is_missing(source, key) for key in keys}
    named = f.concat_ws(", ", *[f.when(is_missing, f.lit(key)) for key, is_missing in lacking.items()])
    row = (
        records.select("file", f.to_json("record").alias("text"), named.alias("keys"))
        .where(f.col("keys") != "")
        .first()
    )
    if row is None:
        return
    text = row["text"] if len(row["text"]) <= _SHOWN else f"{row['text'][:_SHOWN]}…"
    raise _missing(plain_path(row["file"]), f"the record {text} has no field", row["keys"])


def _records(frame: DataFrame) -> DataFrame:
    """Return one row for each record; a top-level array contains records, as Spark reads it."""
    array = f.expr("coalesce(try_variant_get(content, '$', 'array<variant>'), array(content))")
    files = frame.where("content IS NOT NULL").select(f.col("_metadata.file_path").alias("file"), "content")
    return files.select("file", f.explode(array).alias("record"))


def _is_missing(source: Source, key: str) -> SparkColumn:
    name = source.names[key].replace("\\", "\\\\").replace("'", "\\'")
    return f.expr(f"variant_get(record, '$[\"{name}\"]', 'variant') IS NULL")


def _refuse_files(source: Source, source_format: str, keys: Sequence[str]) -> None:
    """Refuse files without a key's column; only files without any value of the key are inspected."""
    counts = [f.count(f.col(quoted(key))).alias(f"count_{number}") for number, key in enumerate(keys)]
    by_file = source.rows.drop(CORRUPT).groupBy(f.col(FILE).alias("file")).agg(*counts)
    is_empty = " OR ".join(f"count_{number} = 0" for number in range(len(keys)))
    suspects = (plain_path(row["file"]) for row in by_file.where(is_empty).select("file").toLocalIterator())

    def columns(path: str) -> tuple[str, list[str]]:
        return path, _column_names(path, source_format)

    for path, names in in_parallel(columns, suspects):
        if missing := [key for key in keys if key not in names]:
            raise _missing(path, "the file has no column", ", ".join(missing))


def _column_names(path: str, source_format: str) -> list[str]:
    import pyarrow.orc
    import pyarrow.parquet

    folder, _, name = path.rpartition("/")
    with Folder(folder or "/").open(name) as file:
        schema = pyarrow.orc.ORCFile(file).schema if source_format == "orc" else pyarrow.parquet.read_schema(file)
    return [column.lower() for column in schema.names]


def _missing(path: str, what: str, keys: str) -> SourceFileError:
    return SourceFileError(
        f"source {path}: {what} {keys}, which the table is partitioned by. Nothing was loaded. Provide it with a "
        "value, or with null for the NULL partition"
    )
