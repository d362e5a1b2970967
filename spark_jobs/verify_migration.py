"""Compare what a Hive table reads with what the Iceberg table would read that it becomes, before anybody sees that."""

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
from catalog.files.filesystem import Folder
from catalog.migration.migrations import STAGE
from catalog.migration.requests import MigrationRequest
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
    from catalog.migration.sources import SourceFolder
    from catalog.migration.staging import Staged
    from catalog.operations.records import Operation

log = logging.getLogger("spark_jobs.verify_migration")

_NAMES = ("the Hive table", "the Iceberg table")
_ASKED_PARTITIONS = 4
"""Partitions of one file format of whose rows some are asked for by filters."""
_READING = {"split-size": str(128 << 20)}
"""What a task reads of the Iceberg table: without it, Iceberg makes as many tasks as there are cores, or more, of
however few bytes, and each task costs a start."""
_SHOWN = 10
"""What differs in one partition, up to which it is told."""


def verify_migration(spark: SparkSession, catalog: Catalog, job: VerifyMigrationJob) -> dict[str, Any]:
    """Compare rows by partition, the metrics of each file with its rows, and answers to filters with both.

    Files that are added to an Iceberg table are compared as a table of their own, which nobody sees.

    Returns:
        `metadata_location`, as the stage reported it; `partitions` and `rows` that were compared; and
        `partitions_total`.

    Raises:
        VerificationFailedError: They differ, or the files were not staged.
        InvalidConfigurationError: Spark does not have Iceberg's runtime, or cannot read the table's format.
    """
    operation = catalog.operations.get(job.operation_id)
    table = catalog.get_table(job.table)
    staged, metadata_location = catalog.migrations.staged(job.operation_id)
    chosen, total = _chosen(catalog, operation, job.partitions if table.partition_keys else None)
    with _readable(catalog, operation, staged, metadata_location) as location:
        both = _Both(table, catalog.migrations.layout(operation), chosen, is_sample=len(chosen) < total)
        found = both.compare(spark, location, _nested(catalog, operation))
    log.info("%s: %d rows in %d partitions are the same", table.full_name, found.row_count, found.partition_count)
    return {
        "metadata_location": metadata_location,
        "partitions": found.partition_count,
        "partitions_total": total,
        "rows": found.row_count,
    }


def _chosen(catalog: Catalog, operation: Operation, count: int | None) -> tuple[list[SourceFolder], int]:
    """Return the partitions to compare, as many as asked for and evenly spread, and how many there are."""
    migrations = catalog.migrations
    if count is None:
        found = [folder for page in migrations.folders(operation) for folder in page]
        return found, len(found)
    total = sum(len(page) for page in migrations.folders(operation))
    wanted = {number * total // count for number in range(count)} if count < total else range(total)
    return [folder for page in migrations.folders(operation) for folder in page if folder.ordinal in wanted], total


def _nested(catalog: Catalog, operation: Operation) -> Nested | None:
    match MigrationRequest.from_json(operation.request).recursive_directory:
        case "fail":
            # The stage has found none.
            return None
        case rule:
            return Nested(rule == "true", catalog.migrations.skipped_folders(operation))


@contextmanager
def _readable(catalog: Catalog, operation: Operation, staged: Staged, metadata_location: str | None) -> Iterator[str]:
    """Yield where metadata are that describe just the staged files."""
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
    """A table as Hive has it, and as Iceberg would."""

    def __init__(self, table: Table, layout: Layout, chosen: Sequence[SourceFolder], *, is_sample: bool) -> None:
        names = [each.name for each in layout.schema.fields]
        self._table = table
        self._columns, self._keys = names[: len(names) - layout.key_count], names[len(names) - layout.key_count :]
        self._chosen = chosen
        self._is_sample = is_sample

    def compare(self, spark: SparkSession, metadata_location: str, nested: Nested | None) -> Comparison:
        """Return how they compare, if there is no difference.

        Raises:
            VerificationFailedError: There is one.
        """
        from catalog.iceberg.metadata import read_metadata

        hive = read_partitions(spark, self._table, map(self._partition, self._chosen), nested)
        iceberg = read_metadata_file(spark, metadata_location, options=_READING).select("*", f.col("_file").alias(FILE))
        files = read_metadata_file(spark, metadata_location, "files")
        schema = read_metadata(metadata_location).schema()
        metrics = FileMetrics(schema, files, is_complete=not self._is_sample)
        chosen = iceberg.where(self._is_chosen(iceberg)) if self._is_sample else iceberg
        found = compare(
            self._without_blanks(hive),
            self._without_blanks(chosen),
            self._columns,
            self._keys,
            metrics,
        )
        if found.difference_count:
            raise VerificationFailedError(
                f"table {self._table.full_name}: the Iceberg table would not have the rows of the Hive table: "
                f"{'; '.join(self._told(found))}. Nothing was changed. Run the operation again; if it fails again, "
                "look whether the files can be read"
            )
        if found.wrong_file_count:
            raise self._unfilterable(
                f"the metrics in its manifests are not those of the rows in {found.wrong_file_count:,} file(s)",
                found.wrong_metrics,
            )
        if summaries := wrong_summaries(spark, metadata_location):
            raise self._unfilterable("its manifest list does not describe its manifests", summaries)
        if lost := self._lost_rows(spark, iceberg, nested):
            raise self._unfilterable("filters do not find rows that the Hive table has", lost)
        return found

    def _unfilterable(self, problem: str, details: Iterable[object]) -> VerificationFailedError:
        return VerificationFailedError(
            f"table {self._table.full_name}: filters on the Iceberg table would lose rows, because {problem}: "
            f"{'; '.join(map(str, details))}. Nothing was changed. Write the files again, and run the operation again"
        )

    def _lost_rows(self, spark: SparkSession, iceberg: DataFrame, nested: Nested | None) -> list[LostRows]:
        """Return rows that filters do not find, of some partitions that are evenly spread."""
        asked = [partition for folders in self._by_format() for partition in map(self._partition, _spread(folders))]
        groups = [[partition] for partition in asked] if self._keys else [asked]
        samples = [
            self._without_blanks(read_partitions(spark, self._table, group, nested)) for group in groups if group
        ]
        if not samples:
            return []
        names = [*self._keys, *self._columns]
        return lost_rows(samples, self._without_blanks(iceberg.drop(FILE)), names, len(self._keys))

    def _by_format(self) -> Iterable[Sequence[SourceFolder]]:
        by_format: dict[FileFormat, list[SourceFolder]] = {}
        for folder in self._chosen:
            by_format.setdefault(folder.format, []).append(folder)
        return by_format.values()

    def _partition(self, folder: SourceFolder) -> Partition:
        by_name = dict(zip((name.lower() for name in self._keys), folder.values, strict=True))
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
        """Return rows with partition keys of type char(n) as Hive compares them."""
        sized = [key.name for key in self._table.partition_keys if key.type.lower().startswith("char")]
        return rows.withColumns({name: f.rtrim(f.col(f"`{name}`")) for name in sized}) if sized else rows

    def _is_chosen(self, iceberg: DataFrame) -> Column:
        types = {each.name: each.dataType for each in iceberg.schema}

        def has_values(folder: SourceFolder) -> Column:
            values = zip(self._keys, folder.values, strict=True)
            return reduce(and_, (_is(f.col(f"`{name}`"), text, types[name]) for name, text in values))

        return reduce(or_, map(has_values, self._chosen), f.lit(False))

    def _told(self, found: Comparison) -> Iterator[str]:
        for difference in found.differences:
            where = f"partition {partition_path(self._keys, difference.values)}: " if self._keys else ""
            parts = list(difference.describe(self._columns, _NAMES))
            more = f", and {len(parts) - _SHOWN} more" if len(parts) > _SHOWN else ""
            yield f"{where}{', '.join(parts[:_SHOWN])}{more}"
        if found.difference_count > len(found.differences):
            yield f"and {found.difference_count - len(found.differences):,} more partitions"


def _spread(folders: Sequence[SourceFolder]) -> Sequence[SourceFolder]:
    """Return some folders from all over the table."""
    step = max(1, len(folders) // _ASKED_PARTITIONS)
    return folders[step // 2 :: step][:_ASKED_PARTITIONS]


def _is(key: Column, text: str | None, data_type: DataType) -> Column:
    return key.isNull() if text is None else key == f.lit(text).cast(data_type)


if __name__ == "__main__":
    raise SystemExit(run_job(VerifyMigrationJob, verify_migration))
