"""Verification of a migration: compare the Hive table with the staged Iceberg table before it becomes visible."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import DataType

from catalog import Catalog, Table
from catalog.errors import VerificationFailedError
from catalog.errors.base import first_of
from catalog.files.filesystem import Folder
from catalog.migration.migrations import STAGE
from catalog.model import FileFormat, Partition, PartitionState
from catalog.model.partition_names import partition_path
from catalog.operations.job_requests import VerifyMigrationJob
from spark_jobs.checking.file_metrics import FILE, FileMetrics
from spark_jobs.checking.filtered_questions import LostRows, lost_rows
from spark_jobs.checking.manifest_summaries import wrong_summaries
from spark_jobs.checking.table_digests import Comparison, compare
from spark_jobs.reading.files import Nested, read_partitions
from spark_jobs.reading.iceberg import read_metadata_file
from spark_jobs.sessions.session import run_job

if TYPE_CHECKING:
    from catalog.iceberg.layout import Layout
    from catalog.migration.requests import MigrationOperation
    from catalog.migration.sources import SourceFolder
    from catalog.migration.staging import Staged

log = logging.getLogger("spark_jobs.verify_migration")

_NAMES = ("the Hive table", "the Iceberg table")
_ASKED_PARTITIONS = 4
"""Number of partitions of each file format whose rows filters must find."""
_READING = {"split-size": str(128 << 20)}
"""Bytes of the Iceberg table that a task reads: by default, Iceberg makes at least as many tasks as there are cores,
even for very few bytes, and each task has a start-up cost."""
_SHOWN = 10
"""Maximum number of reported differences in one partition."""


def verify_migration(spark: SparkSession, catalog: Catalog, job: VerifyMigrationJob) -> dict[str, Any]:
    """Compare rows by partition, the metrics of each file with its rows, and the results of filters.

    Files to be added to an existing Iceberg table are compared as a separate, invisible table.

    Returns:
        `metadata_location` as the stage reported it, `partitions` and `rows` that were compared, `partitions_total`,
        and `row_counts`: of the first partitions, the name, and the rows of the Hive and of the Iceberg table.

    Raises:
        VerificationFailedError: The tables differ, or the files were not staged.
        InvalidConfigurationError: Spark does not have Iceberg's runtime or a reader of the table's format.
    """
    operation = catalog.migrations.get(job.operation_id)
    table = catalog.get_table(job.table)
    staged, metadata_location = catalog.migrations.staged(job.operation_id)
    chosen, total = _chosen(catalog, operation, job.partitions if table.partition_keys else None)
    with _readable(catalog, operation, staged, metadata_location) as location:
        both = _Both(table, catalog.migrations.layout(operation), chosen, is_sample=len(chosen) < total)
        comparison = both.compare(spark, location, _nested(catalog, operation))
    log.info(
        "%s: %d rows in %d partitions are equal", table.full_name, comparison.row_count, comparison.partition_count
    )
    return {
        "metadata_location": metadata_location,
        "partitions": comparison.partition_count,
        "partitions_total": total,
        "rows": comparison.row_count,
        "row_counts": [
            [partition_path(both.keys, counted.values) if both.keys else "", counted.first, counted.second]
            for counted in comparison.row_counts
        ],
    }


def _chosen(catalog: Catalog, operation: MigrationOperation, count: int | None) -> tuple[list[SourceFolder], int]:
    """Return the partitions to compare, evenly spread, and the number of all partitions."""
    migrations = catalog.migrations
    if count is None:
        folders = [folder for page in migrations.folders(operation) for folder in page]
        return folders, len(folders)
    total = sum(len(page) for page in migrations.folders(operation))
    ordinals = {number * total // count for number in range(count)} if count < total else range(total)
    return [folder for page in migrations.folders(operation) for folder in page if folder.ordinal in ordinals], total


def _nested(catalog: Catalog, operation: MigrationOperation) -> Nested | None:
    match operation.parsed_request.recursive_directory:
        case "fail":
            # The stage refuses tables with subfolders under this rule.
            return None
        case rule:
            return Nested(rule == "true", catalog.migrations.skipped_folders(operation))


@contextmanager
def _readable(
    catalog: Catalog, operation: MigrationOperation, staged: Staged, metadata_location: str | None
) -> Iterator[str]:
    """Yield the location of metadata that describes exactly the staged files."""
    if metadata_location is not None:
        yield metadata_location
        return
    from catalog.iceberg.metadata import write_table

    target = catalog.migrations.target(operation)
    stage = catalog.operations.get_job(operation.id, STAGE)
    assert stage is not None
    folder = f"{stage.result['location']}/{stage.result['folder']}/verify"
    mapping = target.layout.name_mapping(staged.spellings, staged.unknown)
    try:
        yield write_table(
            target.layout,
            target.location,
            staged.manifests,
            staged.reading_properties,
            mapping,
            folder=folder,
            metadata_location=f"{folder}/00000-verify.metadata.json",
        )
    finally:
        Folder(folder).delete("")


class _Both:
    """A Hive table and its staged Iceberg table."""

    def __init__(self, table: Table, layout: Layout, chosen: Sequence[SourceFolder], *, is_sample: bool) -> None:
        names = [field.name for field in layout.schema.fields]
        self._table = table
        self._columns, self.keys = names[: len(names) - layout.key_count], names[len(names) - layout.key_count :]
        self._chosen = chosen
        self._is_sample = is_sample

    def compare(self, spark: SparkSession, metadata_location: str, nested: Nested | None) -> Comparison:
        """Compare the tables and return the result.

        Raises:
            VerificationFailedError: The tables differ.
        """
        from catalog.iceberg.metadata import read_metadata

        hive = read_partitions(spark, self._table, map(self._partition, self._chosen), nested)
        iceberg = read_metadata_file(spark, metadata_location, options=_READING).select("*", f.col("_file").alias(FILE))
        files = read_metadata_file(spark, metadata_location, "files")
        schema = read_metadata(metadata_location).schema()
        metrics = FileMetrics(schema, files, is_complete=not self._is_sample)
        chosen = iceberg.where(self._is_chosen(iceberg)) if self._is_sample else iceberg
        comparison = compare(
            self._without_blanks(hive),
            self._without_blanks(chosen),
            self._columns,
            self.keys,
            metrics,
        )
        if comparison.difference_count:
            raise VerificationFailedError(
                f"table {self._table.full_name}: the Iceberg table would not have the rows of the Hive table: "
                f"{'; '.join(self._described(comparison))}. Nothing was changed. Run the operation again; if it fails "
                "again, check whether the files can be read"
            )
        if comparison.wrong_file_count:
            raise self._unfilterable(
                f"the metrics in its manifests do not match the rows in {comparison.wrong_file_count:,} file(s)",
                comparison.wrong_metrics,
            )
        if summaries := wrong_summaries(spark, metadata_location):
            raise self._unfilterable("its manifest list does not describe its manifests", summaries)
        if lost := self._lost_rows(spark, iceberg, nested):
            raise self._unfilterable("filters do not find rows that the Hive table has", lost)
        return comparison

    def _unfilterable(self, problem: str, details: Iterable[object]) -> VerificationFailedError:
        return VerificationFailedError(
            f"table {self._table.full_name}: filters on the Iceberg table would lose rows, because {problem}: "
            f"{'; '.join(map(str, details))}. Nothing was changed. Rewrite the files and run the operation again"
        )

    def _lost_rows(self, spark: SparkSession, iceberg: DataFrame, nested: Nested | None) -> list[LostRows]:
        """Return rows of some evenly spread partitions that filters do not find."""
        sampled = [partition for folders in self._by_format() for partition in map(self._partition, _spread(folders))]
        groups = [[partition] for partition in sampled] if self.keys else [sampled]
        samples = [
            self._without_blanks(read_partitions(spark, self._table, group, nested)) for group in groups if group
        ]
        if not samples:
            return []
        names = [*self.keys, *self._columns]
        return lost_rows(samples, self._without_blanks(iceberg.drop(FILE)), names, len(self.keys))

    def _by_format(self) -> Iterable[Sequence[SourceFolder]]:
        by_format: dict[FileFormat, list[SourceFolder]] = {}
        for folder in self._chosen:
            by_format.setdefault(folder.format, []).append(folder)
        return by_format.values()

    def _partition(self, folder: SourceFolder) -> Partition:
        by_name = dict(zip((name.lower() for name in self.keys), folder.values, strict=True))
        values = tuple(by_name[name] for name in self._table.key_names)
        unknown = None
        return Partition(
            folder.ordinal,
            values,
            folder.location,
            unknown,
            unknown,
            unknown,
            {},
            PartitionState.VISIBLE,
            0,
            folder.format,
        )

    def _without_blanks(self, rows: DataFrame) -> DataFrame:
        """Return rows with partition keys of type char(n) without trailing blanks, as Hive compares them."""
        sized = [key.name for key in self._table.partition_keys if key.type.lower().startswith("char")]
        return rows.withColumns({name: f.rtrim(f.col(f"`{name}`")) for name in sized}) if sized else rows

    def _is_chosen(self, iceberg: DataFrame) -> Column:
        types = {field.name: field.dataType for field in iceberg.schema}

        def has_values(folder: SourceFolder) -> Column:
            values = zip(self.keys, folder.values, strict=True)
            return reduce(and_, (_is(f.col(f"`{name}`"), text, types[name]) for name, text in values))

        return reduce(or_, map(has_values, self._chosen), f.lit(False))

    def _described(self, comparison: Comparison) -> Iterator[str]:
        for difference in comparison.differences:
            where = f"partition {partition_path(self.keys, difference.values)}: " if self.keys else ""
            parts = list(difference.describe(self._columns, _NAMES))
            yield f"{where}{first_of(parts, _SHOWN)}"
        if comparison.difference_count > len(comparison.differences):
            yield f"and {comparison.difference_count - len(comparison.differences):,} more partitions"


def _spread(folders: Sequence[SourceFolder]) -> Sequence[SourceFolder]:
    """Return some evenly spread folders of a table."""
    step = max(1, len(folders) // _ASKED_PARTITIONS)
    return folders[step // 2 :: step][:_ASKED_PARTITIONS]


def _is(key: Column, text: str | None, data_type: DataType) -> Column:
    return key.isNull() if text is None else key == f.lit(text).cast(data_type)


if __name__ == "__main__":
    raise SystemExit(run_job(VerifyMigrationJob, verify_migration))
