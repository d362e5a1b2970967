"""A task of a migration's stage that reads footers and writes manifests in an executor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow

from catalog.errors import FileProblem, RefusedFile, UnusableFileError
from catalog.files.filesystem import FileInfo, Folder, in_parallel
from catalog.iceberg.footers.calendars import unknown_values
from spark_jobs.migrating.listing import FOLDERS_A_GROUP, StageSettings, attempt_id, read_files, read_folders

if TYPE_CHECKING:
    from catalog.iceberg.footers.facts import FileFacts, FooterReader
    from catalog.iceberg.layout import Layout
    from catalog.iceberg.manifests import ManifestWriter, WrittenManifest
    from catalog.migration.sources import SourceFolder
    from catalog.model import FileFormat

TOTALS = "totals"
SHOWN = 200
"""Maximum number of files with the same problem that a stage names; all are counted."""

_TOTAL_SCHEMA = pyarrow.schema(
    [(name, pyarrow.int64()) for name in ("ordinal", "file_count", "row_count", "size_bytes")]
)


@dataclass(frozen=True)
class FileRange:
    """The files of one task: row groups of listings, in the order of the partitions.

    Attributes:
        parts: The names of listings, each with its row groups.
    """

    number: int
    parts: tuple[tuple[str, tuple[int, ...]], ...]
    file_count: int


@dataclass
class Problems:
    """The files that cannot be part of the table: all are counted, and some are named.

    Attributes:
        counts: Problem → number of files.
        shown: Problem → the first files.
    """

    counts: Counter[FileProblem] = field(default_factory=Counter)
    shown: dict[FileProblem, list[RefusedFile]] = field(default_factory=dict)

    def add(self, error: UnusableFileError) -> None:
        """Count a file."""
        self.counts[error.problem] += 1
        self._show(error.problem, [RefusedFile.of(error)])

    def add_all(self, others: Problems) -> None:
        """Count the files of a later task."""
        self.counts += others.counts
        for problem, files in others.shown.items():
            self._show(problem, files)

    def _show(self, problem: FileProblem, files: Sequence[RefusedFile]) -> None:
        shown = self.shown.setdefault(problem, [])
        shown += files[: SHOWN - len(shown)]


@dataclass
class StagedFiles:
    """The result of one task.

    Attributes:
        spellings: Field ids with other names that files use for them.
        unknown: Columns that the table does not have, as in `catalog.iceberg.footers.columns.Match`.
        unvectorized: As in `catalog.iceberg.footers.facts.FileFacts`.
        totals: The file of row counts, below the attempt's folder; None if there is none.
        first_ordinal, last_ordinal: The first and the last partition with data files in this task; None if none has.
        partition_count: Number of partitions with data files in this task.
    """

    manifests: list[WrittenManifest] = field(default_factory=list)
    spellings: set[tuple[int, str]] = field(default_factory=set)
    unknown: set[tuple[int, tuple[str, ...]]] = field(default_factory=set)
    unvectorized: set[str] = field(default_factory=set)
    problems: Problems = field(default_factory=Problems)
    file_count: int = 0
    row_count: int = 0
    size_bytes: int = 0
    partition_count: int = 0
    totals: str | None = None
    first_ordinal: int | None = None
    last_ordinal: int | None = None


def read_footers(settings: StageSettings, files: FileRange) -> StagedFiles:
    """Read the footers of some files, and write manifests of the usable ones.

    Row counts by partition are written to a Parquet file beside the manifests.
    """
    work = _Work(settings, files)
    with work.writer or nullcontext():
        for folder, file, facts in work.facts():
            work.take(folder, file, facts)
    return work.staged()


class _Work:
    def __init__(self, settings: StageSettings, files: FileRange) -> None:
        self._settings = settings
        self._files = files
        self._layout = _layout(settings.layout)
        self._name = f"{files.number:06d}-{attempt_id()}"
        self._readers: dict[FileFormat, FooterReader] = {}
        self._records: tuple[int, Any] = (-1, ())
        self._result = StagedFiles()
        self._totals: dict[int, list[int]] = {}
        self.writer = self._open_writer() if settings.writes_manifests else None

    def _open_writer(self) -> ManifestWriter:
        from catalog.iceberg.manifests import ManifestWriter

        return ManifestWriter(self._layout, f"{self._settings.folder}/{self._name}")

    def facts(self) -> Iterator[tuple[SourceFolder, FileInfo, FileFacts | UnusableFileError]]:
        """Yield each file, in order, with its folder and its facts or its problem."""
        listed = [
            file for name, groups in self._files.parts for file in read_files(self._settings.folder, name, groups)
        ]
        if not listed:
            return
        used_ordinals = {ordinal for ordinal, _ in listed}
        groups = sorted({ordinal // FOLDERS_A_GROUP for ordinal in used_ordinals})
        all_folders = read_folders(self._settings.folder, groups)
        folders = {folder.ordinal: folder for folder in all_folders if folder.ordinal in used_ordinals}
        for file_format in {folder.format for folder in folders.values()}:
            self._readers[file_format] = _reader(self._settings.reader, self._settings.layout, file_format)
        threads = max(self._settings.threads_for(folder.location) for folder in folders.values())
        items = [(folders[ordinal], file) for ordinal, file in listed]
        answers = in_parallel(lambda item: self._read(*item), items, threads)
        for (folder, file), facts in zip(items, answers, strict=True):
            yield folder, file, facts

    def _read(self, folder: SourceFolder, file: FileInfo) -> FileFacts | UnusableFileError:
        try:
            return self._readers[folder.format].read(file)
        except UnusableFileError as error:
            return error

    def take(self, folder: SourceFolder, file: FileInfo, facts: FileFacts | UnusableFileError) -> None:
        """Count a file, and write its manifest entry."""
        result = self._result
        if not isinstance(facts, UnusableFileError) and facts.undated and not self._settings.is_compared:
            facts = unknown_values(file.path, facts.undated, is_comparable=True)
        if isinstance(facts, UnusableFileError):
            result.problems.add(facts)
            return
        result.spellings.update(facts.spellings)
        result.unknown.update(facts.unknown)
        result.unvectorized.update(facts.unvectorized)
        total = self._totals.setdefault(folder.ordinal, [0, 0, 0])
        total[0] += 1
        total[1] += facts.row_count
        total[2] += file.size_bytes
        if self.writer is not None:
            if self._records[0] != folder.ordinal:
                self._records = folder.ordinal, self._layout.partition_record(folder.values)
            self.writer.add(self._records[1], folder.format, file, facts)

    def staged(self) -> StagedFiles:
        """Write the row counts and return the task's result; the manifests must be complete."""
        result, totals = self._result, self._totals
        if self.writer is not None:
            result.manifests = list(self.writer.manifests)
        if not totals:
            return result
        result.partition_count = len(totals)
        result.first_ordinal, result.last_ordinal = min(totals), max(totals)
        result.file_count, result.row_count, result.size_bytes = map(sum, zip(*totals.values(), strict=True))
        if self._settings.writes_manifests:
            columns: Sequence[Sequence[int]] = [list(totals), *map(list, zip(*totals.values(), strict=True))]
            rows = pyarrow.table(columns, schema=_TOTAL_SCHEMA)
            result.totals = f"{TOTALS}/{self._name}.parquet"
            Folder(self._settings.folder).write_rows(result.totals, rows)
        return result


@lru_cache(maxsize=4)
def _layout(text: str) -> Layout:
    import json

    from catalog.iceberg.layout import Layout

    return Layout.from_json(json.loads(text))


@lru_cache(maxsize=16)
def _reader(kind: Callable[[Layout, FileFormat], FooterReader] | None, layout: str, own: FileFormat) -> FooterReader:
    from catalog.iceberg.footers.facts import FooterReader

    return (kind or FooterReader)(_layout(layout), own)
