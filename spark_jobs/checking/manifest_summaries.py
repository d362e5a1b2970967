"""Comparison of the summaries in an Iceberg table's manifest list with the entries of its manifests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from spark_jobs.checking.file_metrics import SHOWN
from spark_jobs.migrating.tasks import run_tasks

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.types import StructType

    from catalog.iceberg.manifest_summaries import WrongSummary

_LOCAL_MANIFESTS = 8
"""Maximum number of manifests that are read in this process, which is faster than starting tasks."""


def wrong_summaries(spark: SparkSession, metadata_location: str) -> list[WrongSummary]:
    """Return the first partition values and counts that the manifest list does not describe correctly."""
    from catalog.iceberg.metadata import current_manifests, read_metadata

    count = len(current_manifests(read_metadata(metadata_location)))
    if count <= _LOCAL_MANIFESTS:
        return _wrong_of_manifests(metadata_location, range(count))[:SHOWN]
    size = max(1, count // (4 * spark.sparkContext.defaultParallelism))
    tasks = [range(first, min(first + size, count)) for first in range(0, count, size)]
    wrong = run_tasks(spark, partial(_wrong_of_manifests, metadata_location), tasks)
    return [summary for summaries in wrong for summary in summaries][:SHOWN]


def _wrong_of_manifests(metadata_location: str, positions: Sequence[int]) -> list[WrongSummary]:
    from catalog.iceberg.metadata import current_manifests, read_metadata
    from catalog.iceberg.storage import file_io

    metadata = read_metadata(metadata_location)
    manifests = current_manifests(metadata)
    schema, specs = metadata.schema(), metadata.specs()
    wrong: list[WrongSummary] = []
    for position in positions:
        manifest = manifests[position]
        partition_type = specs[manifest.partition_spec_id].partition_type(schema)
        wrong += _wrong(file_io(metadata_location), manifest, partition_type)
    return wrong[:SHOWN]


def _wrong(io: FileIO, manifest: ManifestFile, partition_type: StructType) -> list[WrongSummary]:
    from catalog.iceberg.manifest_summaries import FieldSummary, ManifestSummary, SummaryCheck

    summary = ManifestSummary(
        manifest.manifest_path,
        (manifest.added_files_count, manifest.existing_files_count),
        (manifest.added_rows_count, manifest.existing_rows_count),
        [
            FieldSummary(field.contains_null, field.contains_nan, field.lower_bound, field.upper_bound)
            for field in manifest.partitions or ()
        ],
    )
    check = SummaryCheck(summary, partition_type)
    hidden = [wrong for file in _files(io, manifest) for wrong in check.add(*file)]
    return [*check.counts(), *hidden]


def _files(io: FileIO, manifest: ManifestFile) -> Iterator[tuple[str, int, tuple[Any, ...]]]:
    """Yield path, row count and partition record of each live file."""
    from catalog.iceberg.avro import manifest_entries, values_of

    for file in (entry.data_file for entry in manifest_entries(io, manifest)):
        yield file.file_path, file.record_count, values_of(file.partition)
