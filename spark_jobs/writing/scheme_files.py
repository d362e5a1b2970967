"""Writing of data files and manifests of tables with a partition scheme."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from catalog.datafiles.files import NewFile, Total
from catalog.datafiles.footers import DataFileReader, column_types
from catalog.datafiles.manifest import write_manifest
from catalog.errors import VerificationFailedError
from catalog.files.filesystem import Folder
from catalog.model import Table
from catalog.operations.failpoints import Point, reached
from catalog.rebalancing.planning import target_file_bytes
from catalog.schemes.model import Scheme
from catalog.tables.schemes import PARTITION_FOLDER
from spark_jobs.reading.paths import spark_path
from spark_jobs.rows.file_formats import as_stored
from spark_jobs.rows.observing import metrics
from spark_jobs.rows.placement import partition_id
from spark_jobs.sessions.footer_tasks import in_threads, read_footers
from spark_jobs.writing.file_sizes import changed_settings, size_settings

log = logging.getLogger("spark_jobs.writing.scheme_files")

_OPEN_FILES = 4
"""Number of files that a task may write at a time without sorting its rows by partition; each needs memory."""

SizedFile = tuple[str, int]
"""A written file: its path relative to the folder of the job, and its size in bytes."""

_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
_WRITERS = "spark.sql.maxConcurrentOutputFileWriters"


def write_rows(
    rows: DataFrame,
    table: Table,
    scheme: Scheme,
    folder: str,
    *,
    shuffle: bool = True,
    is_counted: bool = True,
    among: Collection[int] | None = None,
    size: Total | None = None,
) -> int:
    """Write rows as sorted data files of their partitions, with a manifest.

    Args:
        rows: Rows with the table's columns.
        scheme: The scheme, which may differ from the table's current one.
        folder: A folder below the table's location that does not exist yet.
        shuffle: Shuffle rows by partition first, so that each partition has as few files as its size allows; a large
            partition is spread over several tasks. Without it, each task writes the rows that it reads, which suits a
            few large files of a few partitions.
        is_counted: Also count the rows as they are written; a caller that knows their number does not need it.
        among: The partitions that the rows may belong to, if known.
        size: The total of the rows' source files, to compute how many rows make a file of the target size.

    Returns:
        The number of counted rows, or else of the rows in the files.

    Raises:
        VerificationFailedError: A row belongs to a partition that is not in `among`.
    """
    spark, observed = rows.sparkSession, Observation() if is_counted else None
    values = {column.name: f.col(f"`{column.name}`") for column in table.columns}
    placed = rows.select(*as_stored(table, values), partition_id(scheme, among).alias(PARTITION_FOLDER))
    if shuffle:
        placed = placed.hint("rebalance", f.col(PARTITION_FOLDER))
    if observed is not None:
        placed = placed.observe(observed, f.count(f.lit(1)).alias("rows"))
    is_sorted = shuffle or bool(scheme.sort_columns)
    if is_sorted:
        placed = placed.sortWithinPartitions(PARTITION_FOLDER, *[f"`{name}`" for name in scheme.sort_columns])
    writer = placed.write.partitionBy(PARTITION_FOLDER)
    if size is not None and size.size_bytes:
        most = max(1, target_file_bytes(table) * size.row_count // size.size_bytes)
        # A file that is slightly too large is better than an additional tiny file.
        writer = writer.option("maxRecordsPerFile", most + most // 4)
    with writer_settings(spark, table, is_sorted=is_sorted):
        writer.parquet(f"{spark_path(table.location)}/{folder}")
    reached(Point.FILES_WRITTEN)
    written = 0

    def files() -> Iterator[NewFile]:
        nonlocal written
        for file in written_files(spark, table, folder, partial(_footers, table, scheme, folder)):
            if among is not None and file.partition_id not in among:
                raise VerificationFailedError(
                    f"table {table.full_name}: {file.path} has rows that belong to none of the partitions "
                    f"{', '.join(map(str, sorted(among)))}, so one of their source files is in a wrong partition; "
                    "nothing was changed"
                )
            written += file.row_count
            yield file

    write_manifest(table, folder, files())
    return written if observed is None else int(metrics(observed).get("rows", 0))


@contextmanager
def writer_settings(spark: SparkSession, table: Table, *, is_sorted: bool) -> Iterator[None]:
    """Set the size of files, and a timestamp type for which footers have statistics."""
    settings = {
        **size_settings(target_file_bytes(table)),
        _TIMESTAMPS: "TIMESTAMP_MICROS",
        # With more files than this, Spark sorts the remaining rows again, by partition only.
        _WRITERS: "0" if is_sorted else str(_OPEN_FILES),
    }
    with changed_settings(spark, settings):
        yield


def written_files(
    spark: SparkSession, table: Table, folder: str, footers: Callable[[Sequence[SizedFile]], Iterator[NewFile]]
) -> Iterable[NewFile]:
    """Return the files in a folder with the facts of their footers; Spark tasks read the footers of many files.

    Args:
        footers: Reads the footers of files.
    """
    location = Folder(f"{table.location}/{folder}")
    files = [(file.path.removeprefix(f"{location.location}/"), file.size_bytes) for file in location.files()]
    return read_footers(spark, files, footers)


def _footers(table: Table, scheme: Scheme, folder: str, files: Sequence[SizedFile]) -> Iterator[NewFile]:
    types = {column.name: column.type for column in table.columns}
    reader = DataFileReader(table, column_types((scheme.column, *scheme.sort_columns), types))

    def footer(file: SizedFile) -> NewFile:
        path, size_bytes = file
        number = int(path.split("/", 1)[0].removeprefix(f"{PARTITION_FOLDER}="))
        return reader.read(f"{folder}/{path}", size_bytes, number)

    return in_threads(footer, files, table.location)
