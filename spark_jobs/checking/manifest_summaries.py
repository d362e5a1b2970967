"""Comparison of the summaries in an Iceberg table's manifest list with the entries of its manifests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from spark_jobs.checking.file_metrics import SHOWN, WrongMetric
from spark_jobs.migrating.tasks import run_tasks

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import ManifestFile

    from catalog.iceberg.entries import Partitioning

_LOCAL_MANIFESTS = 8
"""Maximum number of manifests that are read in this process, which is faster than starting tasks."""


def wrong_summaries(spark: SparkSession, metadata_location: str) -> list[WrongMetric]:
    """Return the first partition values and counts that the manifest list does not describe correctly."""
    from catalog.iceberg.metadata import current_manifests, read_metadata

    count = len(current_manifests(read_metadata(metadata_location)))
    if count <= _LOCAL_MANIFESTS:
        return _wrong_of_manifests(metadata_location, range(count))[:SHOWN]
    size = max(1, count // (4 * spark.sparkContext.defaultParallelism))
    tasks = [range(first, min(first + size, count)) for first in range(0, count, size)]
    wrong = run_tasks(spark, partial(_wrong_of_manifests, metadata_location), tasks)
    return [metric for metrics in wrong for metric in metrics][:SHOWN]


def _wrong_of_manifests(metadata_location: str, positions: Sequence[int]) -> list[WrongMetric]:
    from catalog.iceberg.entries import Partitioning
    from catalog.iceberg.metadata import current_manifests, read_metadata
    from catalog.iceberg.storage import file_io

    metadata = read_metadata(metadata_location)
    manifests = current_manifests(metadata)
    schema, specs = metadata.schema(), metadata.specs()
    wrong: list[WrongMetric] = []
    for position in positions:
        manifest = manifests[position]
        partitioning = Partitioning.of(specs[manifest.partition_spec_id], schema)
        wrong += _wrong(file_io(metadata_location), manifest, partitioning)
    return wrong[:SHOWN]


def _wrong(io: FileIO, manifest: ManifestFile, partitioning: Partitioning) -> Iterator[WrongMetric]:
    from catalog.iceberg.manifest_summaries import FieldSummary, SummaryCheck

    check = SummaryCheck(
        manifest.manifest_path,
        _sum(manifest.added_files_count, manifest.existing_files_count),
        _sum(manifest.added_rows_count, manifest.existing_rows_count),
        [
            FieldSummary(summary.contains_null, summary.contains_nan, summary.lower_bound, summary.upper_bound)
            for summary in manifest.partitions or ()
        ],
        partitioning.type,
    )
    found = [wrong for file in _files(io, manifest, partitioning) for wrong in check.add(*file)]
    for wrong in (*check.counts(), *found):
        fact = f"{wrong.fact} in the manifest list"
        yield WrongMetric(wrong.path, wrong.key, fact, wrong.declared, wrong.actual)


def _sum(added: int | None, existing: int | None) -> int | None:
    return None if added is None or existing is None else added + existing


def _files(
    io: FileIO, manifest: ManifestFile, partitioning: Partitioning
) -> Iterator[tuple[str, int, tuple[Any, ...]]]:
    """Yield path, row count and partition record of each live file."""
    from catalog.iceberg.entries import read_content, read_entries

    if partitioning.has_doubles:
        for entry in read_entries(io, manifest, read_content(manifest), partitioning):
            yield entry.path, entry.row_count, entry.partition
        return
    for file in (entry.data_file for entry in manifest.fetch_manifest_entry(io)):
        yield file.file_path, file.record_count, partitioning.record_of(file)
