"""Hive's own reader of Parquet files, whose classes are among Spark's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def hive_rows(spark: SparkSession, path: Path, columns: Mapping[str, str]) -> list[list[str]]:
    """Return the values of a file as Hive reads them, as strings.

    Args:
        columns: Name → Hive type.
    """
    jvm: Any = spark.sparkContext._jvm
    settings = jvm.org.apache.hadoop.mapred.JobConf()
    for name, value in {
        "columns": ",".join(columns),
        "columns.types": ":".join(columns.values()),
        "hive.io.file.readcolumn.ids": ",".join(map(str, range(len(columns)))),
        "hive.io.file.read.all.columns": "true",
    }.items():
        settings.set(name, value)
    jvm.org.apache.hadoop.mapred.FileInputFormat.setInputPaths(settings, str(path))
    source = jvm.org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat()
    rows = []
    for split in source.getSplits(settings, 1):
        reader = source.getRecordReader(split, settings, jvm.org.apache.hadoop.mapred.Reporter.NULL)
        key, row = reader.createKey(), reader.createValue()
        while reader.next(key, row):
            rows.append([_text(value) for value in row.get()])
        reader.close()
    return rows


def _text(value: Any) -> str:
    """Return a value of Hive as a string, with the parts of arrays, maps and structs in brackets."""
    if value is None:
        return "null"
    if value.getClass().getSimpleName() == "ArrayWritable":
        return f"[{','.join(map(_text, value.get()))}]"
    return str(value.toString())
