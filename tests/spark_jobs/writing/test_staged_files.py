"""The list of the files that a load has staged on an object store."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pyarrow

from catalog import FileFormat, Table
from catalog.files.filesystem import Folder
from catalog.model import Column
from catalog.operations.staging import data_folder, read_staged
from tests.support.object_store import ObjectStore, counted_requests

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = 40
STAGING = "_calve_staging/attempt"
NO_SPARK = cast("SparkSession", None)
"""A few files are listed without tasks."""


def test_listing_takes_two_requests_a_file_and_none_a_folder(object_store: ObjectStore) -> None:
    from spark_jobs.writing.staged_files import list_staged

    table = Table("shop", "orders", (Column("id", "int"),), (Column("day", "int"),), FileFormat.PARQUET, "s3://lake/t")
    folder = Folder(table.location)
    for day in range(FILES):
        folder.write_rows(f"{data_folder(table, STAGING)}/day={day}/a.parquet", pyarrow.table({"id": [1] * day}))
    with counted_requests(object_store) as take_counts:
        assert list_staged(NO_SPARK, table, STAGING) == sum(range(FILES))
        counts = take_counts()
    assert (counts["HEAD"], counts["GET"], counts["LIST"]) == (FILES, FILES, 1)
    staged = sorted(read_staged(folder, STAGING), key=lambda partition: partition.row_count)
    # A file without rows is not part of the load.
    assert [(partition.values, partition.files, partition.row_count) for partition in staged] == [
        ((str(day),), ("a.parquet",), day) for day in range(1, FILES)
    ]
