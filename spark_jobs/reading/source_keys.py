"""Check for JSON records that lack a partition key.

In other files, the header or the schema shows a missing column. A JSON record may omit a field: Spark reads a missing
one as null, which would put the row into the NULL partition where nulls are allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog.errors import SourceFileError
from catalog.operations.job_requests import SourceJob
from spark_jobs.reading.json_documents import by_layout, with_layout
from spark_jobs.reading.paths import plain_path, read_path, text_literal
from spark_jobs.reading.sources import Source, reader_options

_SHOWN = 100
"""Maximum number of characters of a record in an error."""


def refuse_missing_keys(spark: SparkSession, source: Source, job: SourceJob, keys: Sequence[str]) -> None:
    """Refuse a source with a JSON record that has neither a value nor an explicit null for a partition key.

    Args:
        keys: Names of the required columns, in lower case.

    Raises:
        SourceFileError: A record lacks a key; the message names it.
    """
    keys = [key for key in keys if key not in source.folder_keys and key not in source.computed_keys]
    if not keys or job.source_format != "json":
        return
    # As variants, which distinguish null from a missing field.
    reader = spark.read.format("json").options(singleVariantColumn="content", mode="PERMISSIVE")
    frames = [
        _records(
            reader.options(**reader_options(with_layout(job, is_document=is_document))).load(
                [read_path(file.path) for file in files]
            )
        )
        for files, is_document in by_layout(source.files, job)
    ]
    records = reduce(DataFrame.unionAll, frames)
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
    raise SourceFileError(
        f"source {plain_path(row['file'])}: the record {text} has no field {row['keys']}, which the table is "
        "partitioned by. Nothing was loaded. Provide it with a value, or with null for the NULL partition"
    )


def _records(frame: DataFrame) -> DataFrame:
    """Return one row for each record; a top-level array contains records, as Spark reads it."""
    array = f.expr("coalesce(try_variant_get(content, '$', 'array<variant>'), array(content))")
    files = frame.where("content IS NOT NULL").select(f.col("_metadata.file_path").alias("file"), "content")
    return files.select("file", f.explode(array).alias("record"))


def _is_missing(source: Source, key: str) -> SparkColumn:
    path = text_literal(f'$["{source.names[key]}"]')
    return f.expr(f"variant_get(record, {path}, 'variant') IS NULL")
