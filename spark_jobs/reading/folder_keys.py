"""Partition keys of source files from the names of the folders above them, `k=v`, as Hive and Spark write them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as f

from catalog.files.filesystem import FileInfo
from catalog.model import Column
from catalog.model.partition_names import NULL_VALUE, folder_start
from spark_jobs.rows.file_formats import spark_type
from spark_jobs.rows.key_spellings import without_null_texts
from spark_jobs.rows.value_checks import CheckedColumn


def keys_of_folders(keys: Iterable[str], files: Sequence[FileInfo]) -> list[str]:
    """Return the keys, in lower case, for which every file lies in a folder `key=…`, in any case."""
    patterns = {key: re.compile(f"/{re.escape(folder_start(key))}[^/]*/", re.IGNORECASE) for key in keys}
    return [key for key, pattern in patterns.items() if all(pattern.search(file.path) for file in files)]


def key_of_folder(key: Column, file: SparkColumn, given: SparkColumn | None) -> CheckedColumn:
    """Return the values of a key, as strings, from the folders of files.

    The innermost folder `key=…` counts. A value in a file's column has to be equal; it may be spelled otherwise.

    Args:
        key: A key and its type.
        file: The URIs of the files.
        given: The column of the files, in any type; None if they have none.
    """
    path = _decoded(file)
    # Java's quotation: the name has no quotation marks, as identifiers have none.
    text = _decoded(f.regexp_extract(path, rf"(?is).*/\Q{folder_start(key.name)}\E([^/]*)/", 1))
    value = f.when(text.isin("", NULL_VALUE), None).otherwise(text)
    as_string = Column(key.name, "string")
    if given is None:
        return CheckedColumn(as_string, value)
    column = without_null_texts(given.cast("string"))
    in_file, in_folder = column.try_cast(spark_type(key.type)), value.try_cast(spark_type(key.type))
    is_same = f.when(in_file.isNull() | in_folder.isNull(), column == value).otherwise(in_file == in_folder)
    problem = f.concat(
        *(f.lit(f"partition key {key.name} is '"), column, f.lit("' in the file, and '"), f.coalesce(value, f.lit(""))),
        f.lit("' in the name of its folder"),
    )
    # A column's value in the folder of the null partition differs, too.
    is_other = column.isNotNull() & ~f.coalesce(is_same, f.lit(False))
    return CheckedColumn(as_string, value, f.when(is_other, problem))


def _decoded(text: SparkColumn) -> SparkColumn:
    """Return text in which each `%` and two hexadecimal digits are decoded; a plus is no blank, as in a form."""
    return f.coalesce(f.try_url_decode(f.replace(text, f.lit("+"), f.lit("%2B"))), text)
