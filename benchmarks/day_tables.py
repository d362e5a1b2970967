"""Hive-style tables with many small files, one in each partition, loaded by Spark like by the DAG, and migrated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow

from benchmarks.figures import BenchmarkError
from benchmarks.migrating import migrate_table
from catalog import Catalog
from catalog.files.filesystem import Folder
from catalog.operations.job_requests import WritePartitionsJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEYS = [("day", "int")]
_COLUMNS = [("id", "bigint"), ("amount", "double")]
_ROWS_A_FILE = 20
_SOURCE, _REGISTER = "source", "register"


class DayTable:
    """A table of days, each of which becomes one file, and its load."""

    def __init__(self, spark: SparkSession, catalog: Catalog, name: str, place: str, day_count: int) -> None:
        """Write the raw file, and create the table.

        Args:
            name: The table's full name.
            place: The folder of raw file and table, local or on S3.
            day_count: The number of files.
        """
        self.name = name
        self._spark, self._catalog, self._day_count = spark, catalog, day_count
        self._load = f"load {name}"
        numbers = range(day_count * _ROWS_A_FILE)
        rows = {
            "id": pyarrow.array(numbers, pyarrow.int64()),
            "amount": pyarrow.array(map(float, numbers)),
            "day": pyarrow.array([number % day_count for number in numbers], pyarrow.int32()),
        }
        Folder(place).write_rows(f"{_SOURCE}/rows.parquet", pyarrow.table(rows))
        catalog.create_table(name, columns=_COLUMNS, partition_keys=_KEYS, location=f"{place}/table")
        catalog.loading.discover(self._load, name, f"{place}/{_SOURCE}")

    def write(self) -> None:
        """Write the files to the staging folder, with Spark."""
        from spark_jobs.write_partitions import write_partitions

        step = WritePartitionsJob.script
        with self._catalog.operations.attempt(self._load, step) as attempt:
            job = WritePartitionsJob(
                operation_id=self._load,
                step=step,
                attempt=attempt,
                table=self.name,
                source_format="parquet",
                keys=_KEYS,
            )
            report = write_partitions(self._spark, self._catalog, job)
            self._catalog.operations.finish_job(self._load, step, attempt, report)

    def register(self) -> None:
        """Move the files to their partitions, and add these in one transaction.

        Raises:
            BenchmarkError: The number of files is not that of the days.
        """
        staging = self._catalog.operations.get(self._load).report[WritePartitionsJob.script]["staging"]
        with self._catalog.operations.attempt(self._load, _REGISTER) as attempt:
            report = self._catalog.loading.publish(self._load, _REGISTER, attempt, staging)
        if report["file_count"] != self._day_count:
            raise BenchmarkError(f"{self.name}: {report['file_count']} files were loaded, expected {self._day_count}")

    def migrate(self) -> None:
        """Migrate the table to Iceberg, without a comparison of its rows."""
        migrate_table(self._spark, self._catalog, self.name)
