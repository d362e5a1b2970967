"""List the files of a table that becomes an Iceberg table, compare their footers with it, and write the manifests.

The driver tells tasks what to do and adds up what they answer; it sees neither files nor partitions, but for a page of
partitions at a time. Executors list the folders, then read the footers of some hundred files each, whatever the
folders are, and write a manifest of them. Nobody sees any of it before the flip.

Tasks are functions over RDDs: what Spark passes along are a few lines about hundreds of files each, so a DataFrame
(`mapInArrow`, `mapInPandas`) would only add its planning.
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
from catalog.errors import CatalogError, SharedLocationError
from catalog.files.filesystem import Folder
from catalog.migration.requests import MigrationRequest
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
from spark_jobs.reading.sources import read_path
from spark_jobs.sessions.session import Progress, reporting, run_job

if TYPE_CHECKING:
    from catalog.migration.sources import SourceFolder

log = logging.getLogger("spark_jobs.stage_migration")

_LISTING_TASKS_A_CORE = 16
_FOOTER_TASKS_A_CORE = 4
_FEWEST_FILES, _MOST_FILES = 500, 4_000
"""Files of a task: fewer than that, and manifests get small; more, and a manifest would be divided."""
_SHOWN = 5


def stage_migration(spark: SparkSession, catalog: Catalog, job: StageMigrationJob) -> dict[str, Any] | None:
    """Write what the Iceberg table of an operation consists of, where nobody looks; of a dry run, only say what it is.

    Returns:
        Of a dry run `files`, `rows`, `bytes`, `partitions`, `warnings`, `problem_count` and `problems`. None
        otherwise: the result is recorded with what was written.

    Raises:
        NestedFolderError: A folder has a folder inside, and it was not said what to do with those.
        UnusableFilesError: Files cannot be part of the table, and are not to be passed over.
        SharedLocationError: A file belongs to two partitions.
        FencedError: The attempt was given up.
    """
    from catalog.iceberg.folders import Recursion

    operation = catalog.operations.get(job.operation_id)
    request = MigrationRequest.from_json(operation.request)
    migrations = catalog.migrations
    table, target = catalog.get_table(job.table), migrations.target(operation)
    settings = StageSettings(
        folder=migrations.manifest_prefix(operation, job.attempt).rstrip("/"),
        layout=json.dumps(target.layout.as_json()),
        recursion=Recursion(request.recursive_directory),
        skip=migrations.skipped_folders(operation),
        writes_manifests=not job.dry_run,
        is_compared=request.verify,
        threads=job.threads,
    )
    usual = UsualLocation(table.location, table.key_names)
    try:
        staged = stage_files(spark, settings, migrations.folders(operation), usual, job.files_a_task)
        if not job.dry_run:
            migrations.record_staged(job.operation_id, job.attempt, staged)
    except CatalogError:
        # Whatever cannot be migrated has nothing new in its folder.
        Folder(settings.folder).delete("")
        raise
    if job.dry_run:
        Folder(settings.folder).delete("")
        return _dry_report(staged)
    log.info("%s: %d manifests of %d files", job.table, len(staged.manifests), staged.file_count)
    return None


def stage_files(
    spark: SparkSession,
    settings: StageSettings,
    pages: Iterable[Sequence[SourceFolder]],
    usual: UsualLocation,
    files_a_task: int | None = None,
) -> Staged:
    """List folders, read the footers of the files in them, and write the manifests; the folder then has nothing else.

    Raises:
        NestedFolderError: A folder has a folder inside, and it was not said what to do with those.
        SharedLocationError: A file belongs to two partitions.
    """
    cores = spark.sparkContext.defaultParallelism
    folders = write_folders(settings.folder, pages, usual)
    listed = run_tasks(spark, partial(list_folders, settings), listing_tasks(folders, _LISTING_TASKS_A_CORE * cores))
    file_count = sum(sum(each.group_sizes) for each in listed)
    log.info("%d files in %d folders", file_count, folders.folder_count)
    if folders.elsewhere_count:
        _refuse_shared_files(spark, settings, listed)
    size = files_a_task or min(max(file_count // (_FOOTER_TASKS_A_CORE * cores), _FEWEST_FILES), _MOST_FILES)
    counter = spark.sparkContext.accumulator(0)
    tasks = list(file_ranges(listed, size))
    counts = {task.number: task.file_count for task in tasks}
    with reporting(Progress(lambda: counter.value, file_count, "files")):
        found = run_tasks(spark, partial(_read, settings), tasks, lambda done: counts[done[0]], counter)
    staged = _added_up(listed, [each for _, each in found])
    for warning in staged.warnings:
        log.warning("%s", warning)
    kept = {each.path.removeprefix(f"{settings.folder}/") for each in staged.manifests}
    Folder(settings.folder).delete_except(kept | {each.totals for _, each in found if each.totals})
    return staged


def _read(settings: StageSettings, files: FileRange) -> tuple[int, StagedFiles]:
    return files.number, read_footers(settings, files)


def listing_tasks(folders: FolderList, most: int) -> list[ListingTask]:
    """Return tasks of row groups side by side, at most so many."""
    size = max(1, -(-folders.group_count // most))
    return [
        ListingTask(number, first, min(first + size, folders.group_count))
        for number, first in enumerate(range(0, folders.group_count, size))
    ]


def file_ranges(listed: Iterable[ListedFiles], size: int) -> Iterator[FileRange]:
    """Yield tasks of about so many files each: row groups side by side, through all listings."""
    number = count = 0
    parts: dict[str, list[int]] = {}
    for each in listed:
        for group, group_size in enumerate(each.group_sizes):
            parts.setdefault(each.name, []).append(group)
            count += group_size
            if count >= size:
                yield _file_range(number, parts, count)
                number, count, parts = number + 1, 0, {}
    if count:
        yield _file_range(number, parts, count)


def _file_range(number: int, parts: dict[str, list[int]], count: int) -> FileRange:
    return FileRange(number, tuple((name, tuple(groups)) for name, groups in parts.items()), count)


def _refuse_shared_files(spark: SparkSession, settings: StageSettings, listed: Sequence[ListedFiles]) -> None:
    """Refuse files that two partitions have, one of which lies inside the other's folder."""
    if not any(each.group_sizes for each in listed):
        return
    paths = [read_path(f"{settings.folder}/{file.name}") for file in listed if file.group_sizes]
    rows = spark.read.schema("ordinal bigint, path string").parquet(*paths)
    # A location may be given as a path and as a URI.
    path = f.regexp_replace(f.col("path"), "^file:/+", "/")
    shared = rows.groupBy(path.alias("path")).agg(f.count("*").alias("count")).where("count > 1").limit(_SHOWN)
    if found := sorted(row.path for row in shared.collect()):
        raise SharedLocationError(
            f"files belong to two partitions, because one lies in the folder of another: {', '.join(found)}; nothing "
            "was changed. Give each partition a folder of its own first, or drop one of them"
        )


def _added_up(listed: Sequence[ListedFiles], found: Sequence[StagedFiles]) -> Staged:
    problems = Problems()
    partition_count, last = 0, None
    for each in found:
        problems.add_all(each.problems)
        # A partition may go on in the next task.
        partition_count += each.partition_count - (last is not None and each.first_ordinal == last)
        last = last if each.last_ordinal is None else each.last_ordinal
    digest = ListingDigest()
    for part in listed:
        digest += ListingDigest(part.digest)
    return Staged(
        manifests=[manifest for each in found for manifest in each.manifests],
        totals=(),
        listing=str(digest),
        spellings=merged_spellings(spelling for each in found for spelling in each.spellings),
        problems=[file for _, files in sorted(problems.shown.items()) for file in files],
        counted=Counted(
            sum(each.file_count for each in found),
            sum(each.row_count for each in found),
            sum(each.size_bytes for each in found),
            partition_count,
            TOTALS,
        ),
        unknown=sorted({each for part in found for each in part.unknown}),
        unvectorized=sorted({name for part in found for name in part.unvectorized}),
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
        "problems": [{"path": each.path, "problem": each.problem, "message": each.message} for each in staged.problems],
    }


if __name__ == "__main__":
    raise SystemExit(run_job(StageMigrationJob, stage_migration))
