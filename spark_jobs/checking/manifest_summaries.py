"""Comparison of the summaries in an Iceberg table's manifest list with the entries of its manifests.

Readers skip whole manifests by the summaries of partition keys and by the file counts in the list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import SparkSession

from spark_jobs.checking.file_metrics import SHOWN, WrongMetric
from spark_jobs.migrating.tasks import run_tasks

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import ManifestFile, PartitionFieldSummary
    from pyiceberg.types import IcebergType

    from catalog.iceberg.entries import Partitioning

_LOCAL_MANIFESTS = 8
"""Maximum number of manifests that are read in this process, which is faster than starting tasks."""


class _Key(NamedTuple):
    name: str
    type: IcebergType


class _File(NamedTuple):
    path: str
    row_count: int
    partition: tuple[Any, ...]


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
        keys = [_Key(field.name, field.field_type) for field in partitioning.type.fields]
        wrong += _wrong(manifest, keys, _files(file_io(metadata_location), manifest, partitioning))
    return wrong[:SHOWN]


def _files(io: FileIO, manifest: ManifestFile, partitioning: Partitioning) -> list[_File]:
    from catalog.iceberg.entries import read_content, read_entries

    if partitioning.has_doubles:
        entries = read_entries(io, manifest, read_content(manifest), partitioning)
        return [_File(entry.path, entry.row_count, entry.partition) for entry in entries]
    files = [entry.data_file for entry in manifest.fetch_manifest_entry(io)]
    return [_File(file.file_path, file.record_count, partitioning.record_of(file)) for file in files]


def _wrong(manifest: ManifestFile, keys: Sequence[_Key], files: Sequence[_File]) -> Iterator[WrongMetric]:
    counts = (
        ("file count", (manifest.added_files_count, manifest.existing_files_count), len(files)),
        (
            "row count",
            (manifest.added_rows_count, manifest.existing_rows_count),
            sum(file.row_count for file in files),
        ),
    )
    for fact, (added, existing), actual in counts:
        if added is not None and existing is not None and added + existing != actual:
            declared = str(added + existing)
            yield WrongMetric(manifest.manifest_path, None, f"{fact} in the manifest list", declared, str(actual))
    for position, (key, summary) in enumerate(zip(keys, manifest.partitions or (), strict=False)):
        yield from _wrong_of_key(key, summary, position, files)


def _wrong_of_key(
    key: _Key, summary: PartitionFieldSummary, position: int, files: Sequence[_File]
) -> Iterator[WrongMetric]:
    from pyiceberg.conversions import from_bytes

    low, high = (
        None if bound is None else from_bytes(key.type, bound)  # type: ignore[arg-type]
        for bound in (summary.lower_bound, summary.upper_bound)
    )
    for file in files:
        value = file.partition[position]
        if value is None:
            wrong = ("contains null", "False", "null") if summary.contains_null is False else None
        elif value != value:
            wrong = ("contains NaN", "False", "NaN") if summary.contains_nan is False else None
        elif low is None or value < low:
            wrong = ("lower bound", str(low), str(value))
        else:
            wrong = ("upper bound", str(high), str(value)) if high is None or value > high else None
        if wrong is not None:
            fact, declared, actual = wrong
            yield WrongMetric(file.path, key.name, f"{fact} in the manifest list", declared, actual)
