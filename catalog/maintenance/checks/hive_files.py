"""Checks of Hive-style tables: their folders, and the files in the folders of their partitions."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from sqlalchemy import ColumnElement
from sqlalchemy.orm import InstrumentedAttribute

from catalog.files.filesystem import FileInfo, Folder, in_parallel
from catalog.loading.repairing import Repairs
from catalog.maintenance.checks.contents import ContentReader, Expected
from catalog.maintenance.findings import SHOWN, Depth, Finding, FindingKind, found
from catalog.model import Partition, Table
from catalog.partitions.versions import is_version
from catalog.storage import Storage
from catalog.storage.partition_rows import PartitionFactory, partition_query
from catalog.storage.schema import PartitionRow

_PRIME = 2**31 - 1
"""Products of two smaller numbers fit into the databases' integers."""


@dataclass
class _Problems:
    """The number of problems of one kind, and the first of them."""

    count: int = 0
    texts: tuple[str, ...] = ()

    def add(self, texts: Sequence[str]) -> None:
        self.count += len(texts)
        self.texts = (*self.texts, *texts)[:SHOWN]


@dataclass(frozen=True)
class _PartitionProblems:
    """The damage of one partition: its wrong counts, if there are any, and some of its damaged files."""

    counts: str | None
    files: Sequence[str] = ()


def compare_folders(repairs: Repairs, table: Table) -> Iterator[Finding]:
    """Yield the differences between a table's partitions and its folders."""
    compared = repairs.compare(table.full_name)
    repair = f"MSCK REPAIR TABLE {table.full_name}"
    yield from found(
        FindingKind.FOLDER_WITHOUT_PARTITION,
        table,
        compared.folders,
        f"{repair} ADD PARTITIONS registers them",
        compared.without_partition,
    )
    yield from found(
        FindingKind.PARTITION_WITHOUT_FOLDER,
        table,
        compared.partitions,
        f"Restore the folders, or let {repair} DROP PARTITIONS drop these partitions",
        compared.without_folder,
    )


def compare_files(
    storage: Storage, table: Table, depth: Depth, sample: int | None, *, is_listed: bool
) -> Iterator[Finding]:
    """Yield the differences between the counts of partitions and their files.

    Args:
        sample: The number of partitions to look at, chosen at random; None for all.
        is_listed: `compare_folders` has found partitions whose folder does not exist.
    """
    reader = ContentReader(depth)
    compare = partial(_problems_of, table, reader, depth, is_listed=is_listed)
    looked_at, counts, files = 0, _Problems(), _Problems()
    for partition, problems in in_parallel(compare, _partitions(storage, table, depth, sample)):
        looked_at += 1
        if problems.counts is not None:
            counts.add([f"{partition.name(table)} {problems.counts}"])
        files.add([f"{partition.name(table)}/{text}" for text in problems.files])
    within = "" if sample is None else f"In a sample of {looked_at:,} partition(s); "
    remedy = f"{within}restore the files, or, if another program has changed them, set the counts: `calve batch update`"
    yield from found(FindingKind.STALE_COUNTS, table, counts.texts, remedy, counts.count)
    yield from found(
        FindingKind.CHANGED_FILES, table, files.texts, f"{within}restore the files from a backup", files.count
    )


def read_unpartitioned(table: Table, depth: Depth) -> Iterator[Finding]:
    """Yield the files of a table without partition keys that cannot be read; the catalog has no counts of them."""
    reader, files, folder = ContentReader(depth), _Problems(), Folder(table.location)

    def read(file: FileInfo) -> str | None:
        problem = reader.problem_of(_expected(file, table.format))
        return problem and f"{file.path.removeprefix(f'{table.location}/')} {problem}"

    for problem in in_parallel(read, folder.files() if folder.exists() else ()):
        files.add([problem] if problem else [])
    yield from found(FindingKind.CHANGED_FILES, table, files.texts, "Restore the files from a backup", files.count)


def _problems_of(
    table: Table, reader: ContentReader, depth: Depth, partition: Partition, *, is_listed: bool
) -> tuple[Partition, _PartitionProblems]:
    folder = Folder(partition.location)
    exists = folder.exists()
    # The folder of a version was not listed, only its home, which may exist.
    if is_listed and not exists and not is_version(partition.location):
        return partition, _PartitionProblems(None)
    files = folder.files() if exists else []
    difference = None if partition.file_count is None else _difference(partition, files)
    if difference is not None or depth is Depth.SIZES:
        return partition, _PartitionProblems(difference)
    measured = [(file, reader.measure(_expected(file, partition.format or table.format))) for file in files]
    problems = [f"{file.path.rpartition('/')[2]} {problem}" for file, (_, problem) in measured if problem is not None]
    rows = [count for _, (count, _) in measured if count is not None]
    if not problems and len(rows) == len(files) and partition.row_count not in (None, sum(rows)):
        difference = f"has {sum(rows):,} row(s), registered are {partition.row_count:,}"
    return partition, _PartitionProblems(difference, problems)


def _expected(file: FileInfo, file_format: str) -> Expected:
    # Hive's writers leave files without any byte for buckets without rows.
    return Expected(file.path, str(file_format) if file.size_bytes else "", file.size_bytes)


def _difference(partition: Partition, files: Sequence[FileInfo]) -> str | None:
    """Return how the files of a partition differ from its counts; None if they do not."""
    size = sum(file.size_bytes for file in files)
    if len(files) != partition.file_count:
        return f"has {len(files):,} file(s), registered are {partition.file_count:,}"
    if partition.size_bytes is not None and size != partition.size_bytes:
        return f"has {size:,} bytes, registered are {partition.size_bytes:,}"
    return None


def _partitions(storage: Storage, table: Table, depth: Depth, sample: int | None) -> Iterator[Partition]:
    """Yield the partitions to look at: those with counts, or all if their files are read."""
    row, factory = PartitionRow, PartitionFactory(table)
    query = partition_query(table)
    if depth is Depth.SIZES:
        query = query.where(row.file_count.is_not(None))
    if sample is not None:
        with storage.read() as connection:
            rows = connection.execute(query.order_by(_shuffled(row.id)).limit(sample)).all()
        yield from sorted(factory.make_all(rows), key=lambda partition: partition.id)
        return
    after = 0
    while True:
        with storage.read() as connection:
            rows = connection.execute(query.where(row.id > after).order_by(row.id).limit(10_000)).all()
        if not rows:
            return
        after = rows[-1].id
        yield from factory.make_all(rows)


def _shuffled(number: InstrumentedAttribute[int]) -> ColumnElement[int]:
    """Return an expression by which ids are in random order, another one each time."""
    # Whatever the distance between the ids is, because the modulus is a prime.
    return (number % _PRIME) * random.randrange(1, _PRIME) % _PRIME
