"""Staging of a migration: list the table's files, compare their footers with the table, and write the manifests.

The driver distributes tasks and merges their results; it holds no files and only one page of partitions at a time. The
executors list the folders, and then each task reads the footers of some hundred files, independent of folders, and
writes a manifest for them. None of it is visible before the flip.

Tasks are functions over RDDs: Spark passes only a few records about hundreds of files each, so a DataFrame
(`mapInArrow`, `mapInPandas`) would only add planning time.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from catalog import Catalog
from catalog.errors import CatalogError, CommitOutcomeUnknownError, SharedLocationError
from catalog.files.filesystem import Folder
from catalog.migration.staging import Counted, ListingDigest, Staged, merged_spellings
from catalog.operations.job_requests import StageMigrationJob
from spark_jobs.migrating.footers import TOTALS, FileRange, Problems, StagedFiles, read_footers
from spark_jobs.migrating.listing import (
    FolderList,
    ListedFiles,
    ListingTask,
    StageSettings,
    UsualLocation,
    list_folders,
    write_folders,
)
from spark_jobs.migrating.tasks import run_tasks
from spark_jobs.reading.paths import read_path
from spark_jobs.sessions.session import Progress, reporting, run_job

if TYPE_CHECKING:
    from catalog.migration.sources import SourceFolder

log = logging.getLogger("spark_jobs.stage_migration")

_LISTING_TASKS_A_CORE = 16
_FOOTER_TASKS_A_CORE = 4
_FEWEST_FILES, _MOST_FILES = 500, 4_000
"""Bounds of the number of files of a task: fewer make small manifests, and more would split a manifest."""
_SHOWN = 5


def stage_migration(spark: SparkSession, catalog: Catalog, job: StageMigrationJob) -> dict[str, Any] | None:
    """Stage the manifests of an operation's Iceberg table; in a dry run, only report them.

    Returns:
        In a dry run `files`, `rows`, `bytes`, `partitions`, `warnings`, `problem_count` and `problems`; otherwise None,
        because the result is recorded together with the staged files.

    Raises:
        NestedFolderError: A folder has a subfolder, and the request does not say how to treat subfolders.
        UnusableFilesError: Files cannot be part of the table, and the request does not skip them.
        SharedLocationError: A file belongs to two partitions.
        FencedError: The attempt is fenced.
    """
    from catalog.iceberg.folders import Recursion

    migrations = catalog.migrations
    operation = migrations.get(job.operation_id)
    table, target = catalog.get_table(job.table), migrations.target(operation)
    settings = StageSettings(
        folder=migrations.manifest_prefix(operation, job.attempt).rstrip("/"),
        layout=json.dumps(target.layout.as_json()),
        recursion=Recursion(operation.parsed_request.recursive_directory),
        skip=migrations.skipped_folders(operation),
        writes_manifests=not job.dry_run,
        is_compared=operation.parsed_request.verify,
        threads=job.threads,
    )
    usual = UsualLocation(table.location, table.key_names)
    try:
        staged = stage_files(spark, settings, migrations.folders(operation), usual, job.files_a_task)
        if not job.dry_run:
            migrations.record_staged(job.operation_id, job.attempt, staged)
    except CommitOutcomeUnknownError:
        # The files may be staged: the next attempt uses them, or vacuum removes them.
        raise
    except CatalogError:
        # A refused migration leaves nothing behind.
        Folder(settings.folder).delete("")
        raise
    if job.dry_run:
        Folder(settings.folder).delete("")
        return _dry_report(staged)
    log.info("%s: staged %d manifests of %d files", job.table, len(staged.manifests), staged.file_count)
    return None


def stage_files(
    spark: SparkSession,
    settings: StageSettings,
    pages: Iterable[Sequence[SourceFolder]],
    usual: UsualLocation,
    files_a_task: int | None = None,
) -> Staged:
    """List folders, read the footers of their files, and write the manifests; delete all other files of the folder.

    Raises:
        NestedFolderError: A folder has a subfolder, and the request does not say how to treat subfolders.
        SharedLocationError: A file belongs to two partitions.
    """
    cores = spark.sparkContext.defaultParallelism
    folders = write_folders(settings.folder, pages, usual)
    listed = run_tasks(spark, partial(list_folders, settings), listing_tasks(folders, _LISTING_TASKS_A_CORE * cores))
    file_count = sum(sum(listing.group_sizes) for listing in listed)
    log.info("Listed %d files in %d folders", file_count, folders.folder_count)
    if folders.elsewhere_count:
        _refuse_shared_files(spark, settings, listed)
    size = files_a_task or min(max(file_count // (_FOOTER_TASKS_A_CORE * cores), _FEWEST_FILES), _MOST_FILES)
    counter = spark.sparkContext.accumulator(0)
    tasks = list(file_ranges(listed, size))
    counts = {task.number: task.file_count for task in tasks}
    with reporting(Progress(lambda: counter.value, file_count, "files")):
        results = run_tasks(spark, partial(_read, settings), tasks, lambda done: counts[done[0]], counter)
    staged = _merged(listed, [files for _, files in results])
    for warning in staged.warnings:
        log.warning("%s", warning)
    kept = {manifest.path.removeprefix(f"{settings.folder}/") for manifest in staged.manifests}
    Folder(settings.folder).delete_except(kept | {files.totals for _, files in results if files.totals})
    return staged


def _read(settings: StageSettings, files: FileRange) -> tuple[int, StagedFiles]:
    return files.number, read_footers(settings, files)


def listing_tasks(folders: FolderList, most: int) -> list[ListingTask]:
    """Return at most `most` tasks of adjacent row groups."""
    size = max(1, -(-folders.group_count // most))
    return [
        ListingTask(number, first, min(first + size, folders.group_count))
        for number, first in enumerate(range(0, folders.group_count, size))
    ]


def file_ranges(listed: Iterable[ListedFiles], size: int) -> Iterator[FileRange]:
    """Yield tasks of about `size` files each, of adjacent row groups across all listings."""
    number = count = 0
    parts: dict[str, list[int]] = {}
    for listing in listed:
        for group, group_size in enumerate(listing.group_sizes):
            parts.setdefault(listing.name, []).append(group)
            count += group_size
            if count >= size:
                yield _file_range(number, parts, count)
                number, count, parts = number + 1, 0, {}
    if count:
        yield _file_range(number, parts, count)


def _file_range(number: int, parts: dict[str, list[int]], count: int) -> FileRange:
    return FileRange(number, tuple((name, tuple(groups)) for name, groups in parts.items()), count)


def _refuse_shared_files(spark: SparkSession, settings: StageSettings, listed: Sequence[ListedFiles]) -> None:
    """Refuse files that belong to two partitions, because the folder of one is inside that of the other."""
    if not any(listing.group_sizes for listing in listed):
        return
    paths = [read_path(f"{settings.folder}/{file.name}") for file in listed if file.group_sizes]
    rows = spark.read.schema("ordinal bigint, path string").parquet(*paths)
    # A location may be given as a path and as a URI, and in several spellings of its scheme.
    path = f.regexp_replace(f.regexp_replace(f.col("path"), "^file:/+", "/"), "^s3[an]://", "s3://")
    shared = rows.groupBy(path.alias("path")).agg(f.count("*").alias("count")).where("count > 1").limit(_SHOWN)
    if shared_paths := sorted(row.path for row in shared.collect()):
        raise SharedLocationError(
            "files belong to two partitions, because one partition is in the folder of another: "
            f"{', '.join(shared_paths)}; nothing was changed. First move each partition to its own folder, or drop one "
            "of them"
        )


def _merged(listed: Sequence[ListedFiles], results: Sequence[StagedFiles]) -> Staged:
    problems = Problems()
    partition_count, last = 0, None
    for files in results:
        problems.add_all(files.problems)
        # The files of a partition may continue in the next task.
        partition_count += files.partition_count - (last is not None and files.first_ordinal == last)
        last = last if files.last_ordinal is None else files.last_ordinal
    digest = ListingDigest()
    for part in listed:
        digest += ListingDigest(part.digest)
    return Staged(
        manifests=[manifest for files in results for manifest in files.manifests],
        totals=(),
        listing=str(digest),
        spellings=merged_spellings(spelling for files in results for spelling in files.spellings),
        problems=[file for _, unusable_files in sorted(problems.shown.items()) for file in unusable_files],
        counted=Counted(
            sum(files.file_count for files in results),
            sum(files.row_count for files in results),
            sum(files.size_bytes for files in results),
            partition_count,
            TOTALS,
        ),
        unknown=sorted({name for files in results for name in files.unknown}),
        unvectorized=sorted({name for files in results for name in files.unvectorized}),
        problem_counts={str(problem): count for problem, count in problems.counts.items()},
    )


def _dry_report(staged: Staged) -> dict[str, Any]:
    return {
        "dry_run": True,
        "files": staged.file_count,
        "rows": staged.row_count,
        "bytes": staged.size_bytes,
        "partitions": staged.partition_count,
        "listing": staged.listing,
        "warnings": staged.warnings,
        "problem_count": staged.count_problems(),
        "problems": [{"path": file.path, "problem": file.problem, "message": file.message} for file in staged.problems],
    }


if __name__ == "__main__":
    raise SystemExit(run_job(StageMigrationJob, stage_migration))
