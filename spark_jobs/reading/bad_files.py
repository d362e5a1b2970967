"""Files of a source that cannot be loaded, found in one pass over the data, so that the others are.

The pass counts the rows of each file by partition, and its bad rows with one of their problems. It is repeated without
the bad files in two cases: for a new table, or one that evolves, whose columns are those of the good files only; and if
Spark could not read a file to its end. Then all files are read by one job of Python tasks, which finds all such files
at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog.errors import RefusedPartition, SourceFileError, StorageError
from catalog.files.filesystem import FileInfo, Folder
from catalog.model import PARTITION_ID, PartitionIndex, SetAsideFile, Table
from catalog.operations.job_requests import SKIP, SourceJob
from catalog.storage.values import ValueEncoder
from spark_jobs.reading.bad_rows import (
    MOST_SHOWN,
    BadRow,
    bad_count,
    bad_rows,
    first_problem_of,
    is_bad,
    rows_of_refused,
)
from spark_jobs.reading.discards import discard_counts, discard_report, is_kept
from spark_jobs.reading.paths import plain_path, quoted
from spark_jobs.reading.source_checks import FILE, TEXT_FORMATS
from spark_jobs.reading.sources import NoGoodFileError, Source, read_source, unreadable_file
from spark_jobs.rows.key_spellings import without_null_texts
from spark_jobs.rows.placement import partition_id
from spark_jobs.sessions.kept_rows import KeptRows
from spark_jobs.sessions.python_tasks import in_tasks

_CHUNK = 1 << 20
_FILES_A_TASK = 200
_CHANGED = (
    "changed after it was loaded. Deliver new rows in new files; or set `mode` to replace, to replace its partitions; "
    "or drop its partitions and load it with `reload`"
)


@dataclass
class BadFile:
    """A file that is left out of a load.

    Attributes:
        problem: What is wrong with it, or with one of its rows.
        rows: Number of its bad rows; None if it is wrong as a whole.
        uri: As in `FILE`; empty if it is wrong as a whole.
        partition: The partition of a row whose key is refused.
    """

    problem: str
    rows: int | None = None
    uri: str = ""
    partition: RefusedPartition | None = None

    @property
    def reason(self) -> str:
        """The problem as a sentence about the file."""
        if self.rows is None:
            return f"it {self.problem}"
        return f"{self.rows:,} of its rows cannot be loaded, for instance because: {self.problem}"

    def reason_with(self, example: BadRow | None) -> str:
        """Return `reason` with the line of a bad row."""
        if self.rows is None or example is None:
            return self.reason
        return f"{self.rows:,} of its rows cannot be loaded, for instance line {example.line}: {example.problem}"


@dataclass
class GoodFiles:
    """The files of a source that can be loaded, and those that cannot.

    Attributes:
        source: The rows of the good files; for a table that exists, also those of bad files.
        partitions: Partition keys and `row_count` of the rows of the good files that are loaded.
        by_file: As `count_rows` returns it, also with `FILE` if files are skipped or rows or values discarded.
        bad: Path → the bad file.
        shown: Some bad rows and files.
    """

    source: Source
    partitions: DataFrame
    by_file: DataFrame
    bad: dict[str, BadFile] = field(default_factory=dict)
    shown: list[BadRow] = field(default_factory=list)

    def discard_report(self) -> dict[str, Any]:
        """Return what the contract of the load leaves out of the good files."""
        return discard_report(self.source, self.by_file, [file.uri for file in self.bad.values() if file.uri])

    def set_aside(self, files: Iterable[FileInfo]) -> list[SetAsideFile]:
        """Return the bad files among the files of the source, as the catalog records them."""
        return bad_among(files, self.bad, self.shown)


class NoGoodFilesError(SourceFileError):
    """No file of a source can be loaded.

    Attributes:
        bad: Path → the bad file.
        shown: Some bad rows and files.
    """

    def __init__(self, bad: dict[str, BadFile], shown: list[BadRow]) -> None:
        """Build the message, which shows some rows and files."""
        self.bad, self.shown = bad, shown
        super().__init__(
            f"none of the {len(bad):,} source file(s) can be loaded: {'; '.join(map(str, shown))}. They are set aside "
            "until they change; correct them, or the types and options of the table's entry"
        )


def bad_among(files: Iterable[FileInfo], bad: dict[str, BadFile], shown: Sequence[BadRow]) -> list[SetAsideFile]:
    """Return bad files as the catalog records them, with the line of a bad row if it is among those that are shown."""
    examples = {row.file: row for row in reversed(shown) if row.line is not None}
    return [
        SetAsideFile(
            file.path,
            file.size_bytes,
            file.modified_at_ms,
            bad[file.path].reason_with(examples.get(file.path)),
            bad[file.path].rows,
        )
        for file in files
        if file.path in bad
    ]


Persist = Callable[[DataFrame], DataFrame]


@contextmanager
def cached() -> Iterator[Persist]:
    """Yield a function that caches a frame until the end of the block.

    In a session that lives on, a later load of files with the same names would find the rows of this one.
    """
    frames: list[DataFrame] = []

    def persist(frame: DataFrame) -> DataFrame:
        frames.append(frame.persist())
        return frames[-1]

    try:
        yield persist
    finally:
        for frame in frames:
            frame.unpersist()


def parsed_once(source: Source, kept: KeptRows, keys: Sequence[str], *, by_file: bool) -> Source:
    """Return the source with rows that are kept for the next step, if they are parsed from text.

    Args:
        keys: See `place_names`.
        by_file: Whether the rows are counted by `FILE`; without, kept rows do not have it.
    """
    if source.job.source_format not in TEXT_FORMATS:
        return source
    scheme = None if source.table is None else source.table.scheme
    names = keys if scheme is None else [scheme.column]
    return replace(source, rows=kept.keep(source.rows, source.files, names, *([] if by_file else [FILE])))


def good_files(
    spark: SparkSession,
    files: Sequence[FileInfo],
    job: SourceJob,
    table: Table | None,
    table_to_be: Callable[[Source], tuple[Table, list[PartitionIndex]]],
    persist: Persist,
    kept: KeptRows,
    changed: Iterable[str] = (),
) -> GoodFiles:
    """Return the files that can be loaded, with the partitions of their rows.

    Args:
        changed: The paths of files that cannot, because they changed after they were loaded.
        persist: See `cached`.
        kept: Keeps the rows for the next step.
        table: None if it does not exist yet.
        table_to_be: Returns the table for a source, with its indexes.

    Raises:
        NoGoodFilesError: No file can be loaded.
    """
    bad = {path: BadFile(_CHANGED) for path in changed}
    shown = _shown(None, bad)
    if len(bad) == len(files):
        raise NoGoodFilesError(bad, shown)
    while True:
        left = [file for file in files if file.path not in bad]
        try:
            source = read_source(spark, left, job, table)
            refused = {path: BadFile(reason) for path, reason in source.refused.items()}
            definition, indexes = table_to_be(source)
            places = place_names(definition)
            parsed = parsed_once(source, kept, places, by_file=True)
            by_file = persist(count_rows(parsed, places, f.col(FILE)))
            found = _bad_files(source, by_file, ValueEncoder(definition, indexes, every_key=True), job)
        except NoGoodFileError as error:
            refused = {path: BadFile(reason) for path, reason in error.refused.items()}
            raise NoGoodFilesError(bad | refused, [*shown, *_shown(None, refused)][:MOST_SHOWN]) from None
        except (PySparkException, Py4JJavaError) as error:
            if not (unreadable := _unreadable_files(spark, left, job, error)):
                raise
            bad |= unreadable
            shown = [*shown, *_shown(None, unreadable)][:MOST_SHOWN]
            if len(bad) == len(files):
                raise NoGoodFilesError(bad, shown) from None
            continue
        bad |= refused | found
        # Before the next pass, which does not read the bad files.
        shown = [*shown, *_shown(source, refused | found)][:MOST_SHOWN]
        if len(bad) == len(files):
            raise NoGoodFilesError(bad, shown)
        if not found or (table is not None and source.table == table):
            partitions = persist(partitions_of(_without(spark, by_file, found), places))
            return GoodFiles(source, partitions, by_file, bad, shown)


def place_names(table: Table) -> Sequence[str]:
    """Return the columns by which the rows of a source are counted: the partition keys, or the id in a scheme."""
    return table.key_names if table.scheme is None else (PARTITION_ID,)


def count_rows(source: Source, keys: Sequence[str], *others: SparkColumn) -> DataFrame:
    """Return one row for each partition, in one task.

    Its columns are the keys (`place_names`), `others`, `row_count` of the rows that are loaded, `bad_count`, and the
    counts of what the contract leaves out. All are numbers: for a string, Spark would sort all rows.
    """
    if source.table is not None and source.table.scheme is not None:
        places = {PARTITION_ID: partition_id(source.table.scheme)}
    else:
        # Spark writes an empty value to Hive's null partition, so it counts as null here.
        places = {key: without_null_texts(f.col(quoted(key))) for key in keys}
    return (
        source.rows.withColumns(places)
        .groupBy(*map(quoted, keys), *others)
        .agg(
            f.count_if(is_kept(source)).alias("row_count"),
            *discard_counts(source),
            bad_count(source).alias("bad_count"),
            _digest(source),
        )
        .coalesce(1)  # read twice, the second time row by row, for which one task is best
    )


def _digest(source: Source) -> SparkColumn:
    """Return a digest of all columns: Spark parses only the columns in use, and would miss errors in the others."""
    names = [quoted(name) for name in source.rows.columns if name != FILE]
    return f.bit_xor(f.xxhash64(*names)).alias("digest")


def _problems(source: Source, uris: Iterable[str]) -> dict[str, str]:
    """Return a problem of the rows of each of some files, as in `FILE`, that have rows which cannot be loaded."""
    rows = source.rows.where(f.col(FILE).isin(list(uris)) & is_bad(source))
    found = rows.groupBy(FILE).agg(first_problem_of(source).alias("problem"), _digest(source))
    return {uri: problem for uri, problem, _ in found.toLocalIterator()}


def _bad_files(source: Source, by_file: DataFrame, encoder: ValueEncoder, job: SourceJob) -> dict[str, BadFile]:
    bad: dict[str, BadFile] = {}
    key_count, has_keys = len(encoder.table.key_names), encoder.table.scheme is None
    with_bad_rows = {row[FILE] for row in by_file.where("bad_count > 0").select(FILE).distinct().toLocalIterator()}
    problems = _problems(source, with_bad_rows) if with_bad_rows else {}
    for *values, uri, row_count, _, _, bad_row_count, _ in by_file.toLocalIterator():
        count, problem, partition = bad_row_count, problems.get(uri, ""), None
        if has_keys and row_count and not bad_row_count and job.invalid_partitions != SKIP:
            encoded = encoder.encode(values[:key_count])
            if isinstance(encoded, RefusedPartition):
                count, problem, partition = row_count, str(encoded), encoded
        if count:
            file = bad.setdefault(plain_path(uri), BadFile(problem, 0, uri, partition))
            file.rows = (file.rows or 0) + count
    return bad


def _without(spark: SparkSession, by_file: DataFrame, bad: dict[str, BadFile]) -> DataFrame:
    """Return the counts of the good files."""
    if not bad:
        return by_file
    uris = spark.createDataFrame([(file.uri,) for file in bad.values()], f"`{FILE}` string")
    return by_file.join(f.broadcast(uris), FILE, "left_anti")


def partitions_of(counted: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the partitions that are loaded, with `row_count`; a partition may be counted in several rows."""
    counts = counted.groupBy(*map(quoted, keys)).agg(f.sum("row_count").alias("row_count"))
    return counts.where("row_count > 0").coalesce(1)


def _shown(source: Source | None, bad: dict[str, BadFile]) -> list[BadRow]:
    """Return some bad rows and files."""
    first = list(bad.items())[:MOST_SHOWN]
    shown = [BadRow(path, None, f"the file {file.problem}") for path, file in first if file.rows is None]
    if source is None:
        return shown
    shown += bad_rows(source, [file.uri for _, file in first if file.rows and file.partition is None])
    refused = [file.partition for _, file in first if file.partition is not None]
    shown += [row for row in rows_of_refused(source, refused) if row is not None]
    return shown[:MOST_SHOWN]


def _unreadable_files(
    spark: SparkSession, files: Sequence[FileInfo], job: SourceJob, error: Exception
) -> dict[str, BadFile]:
    """Return the files that cannot be read to their end; if Python can read all, the one that Spark's error names."""
    paths = [file.path for file in files]
    tasks = in_tasks(spark, paths, -(-len(paths) // _FILES_A_TASK), partial(_unreadable, job.source_format))
    found = {path: BadFile(f"cannot be read: {reason}") for path, reason in tasks.toLocalIterator()}
    if not found and (named := unreadable_file(error)) is not None and named[0] in paths:
        found[named[0]] = BadFile(f"cannot be read: {named[1]}")
    return found


def _unreadable(source_format: str, paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    for path in paths:
        try:
            _read_whole(path, source_format)
        except (OSError, ValueError, EOFError, pyarrow.ArrowException, StorageError) as error:
            yield path, str(error).strip().split("\n")[0]


def _read_whole(path: str, source_format: str) -> None:
    """Read a file to its end."""
    import pyarrow.orc
    import pyarrow.parquet

    folder, _, name = path.rpartition("/")
    if source_format == "parquet":
        with Folder(folder or "/").open(name) as file:
            for _batch in pyarrow.parquet.ParquetFile(file).iter_batches():
                pass
    elif source_format == "orc":
        with Folder(folder or "/").open(name) as file:
            content = pyarrow.orc.ORCFile(file)
            for number in range(content.nstripes):
                content.read_stripe(number)
    elif source_format == "avro":
        import fastavro

        with Folder(folder or "/").open(name) as file:
            for _record in fastavro.reader(file):
                pass
    else:
        with Folder(path).open_text() as text:
            while text.buffer.read(_CHUNK):
                pass
