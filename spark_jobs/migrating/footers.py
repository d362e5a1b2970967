"""What one task of a migration's stage does in an executor to read footers and to write manifests."""

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
"""Files with the same problem, up to which a stage names them; all are counted."""

_TOTAL_SCHEMA = pyarrow.schema(
    [(name, pyarrow.int64()) for name in ("ordinal", "file_count", "row_count", "size_bytes")]
)


@dataclass(frozen=True)
class FileRange:
    """Files for one task to read: row groups of listings, in the order of the partitions.

    Attributes:
        parts: The name of a listing, and which of its row groups.
    """

    number: int
    parts: tuple[tuple[str, tuple[int, ...]], ...]
    file_count: int


@dataclass
class Problems:
    """The files that cannot be the table's: some with what is wrong, all counted.

    Attributes:
        counts: What is wrong → how many files.
        shown: Of each problem the first files.
    """

    counts: Counter[FileProblem] = field(default_factory=Counter)
    shown: dict[FileProblem, list[RefusedFile]] = field(default_factory=dict)

    def add(self, error: UnusableFileError) -> None:
        """Count a file."""
        self.counts[error.problem] += 1
        self._show(error.problem, [RefusedFile.of(error)])

    def add_all(self, others: Problems) -> None:
        """Count the files of a task that comes behind."""
        self.counts += others.counts
        for problem, files in others.shown.items():
            self._show(problem, files)

    def _show(self, problem: FileProblem, files: Sequence[RefusedFile]) -> None:
        shown = self.shown.setdefault(problem, [])
        shown += files[: SHOWN - len(shown)]


@dataclass
class StagedFiles:
    """What one task has made of its files.

    Attributes:
        spellings: Field ids, with other names that files use for them.
        unknown: Columns that the table does not have, as in `catalog.iceberg.footers.columns.Match`.
        unvectorized: As in `catalog.iceberg.footers.facts.FileFacts`.
        totals: The file of row counts, below the attempt's folder; None when there is none.
        first_ordinal, last_ordinal: Of the partitions that have data files here; None when none has.
        partition_count: How many those are.
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
    """Read the footers of some files, and write the manifests of those that can be the table's.

    Row counts by partition go into a Parquet file beside the manifests.
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
        self._found = StagedFiles()
        self._totals: dict[int, list[int]] = {}
        self.writer = self._open_writer() if settings.writes_manifests else None

    def _open_writer(self) -> ManifestWriter:
        from catalog.iceberg.manifests import ManifestWriter

        return ManifestWriter(self._layout, f"{self._settings.folder}/{self._name}")

    def facts(self) -> Iterator[tuple[SourceFolder, FileInfo, FileFacts | UnusableFileError]]:
        """Yield each file with its folder, and its facts or what is wrong with it, in order."""
        listed = [
            each for name, groups in self._files.parts for each in read_files(self._settings.folder, name, groups)
        ]
        if not listed:
            return
        wanted = {ordinal for ordinal, _ in listed}
        groups = sorted({ordinal // FOLDERS_A_GROUP for ordinal in wanted})
        folders = {each.ordinal: each for each in read_folders(self._settings.folder, groups) if each.ordinal in wanted}
        for each in {folder.format for folder in folders.values()}:
            self._readers[each] = _reader(self._settings.reader, self._settings.layout, each)
        threads = max(self._settings.threads_for(each.location) for each in folders.values())
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
        """Count a file, and write its entry."""
        found = self._found
        if not isinstance(facts, UnusableFileError) and facts.undated and not self._settings.is_compared:
            facts = unknown_values(file.path, facts.undated, is_comparable=True)
        if isinstance(facts, UnusableFileError):
            found.problems.add(facts)
            return
        found.spellings.update(facts.spellings)
        found.unknown.update(facts.unknown)
        found.unvectorized.update(facts.unvectorized)
        total = self._totals.setdefault(folder.ordinal, [0, 0, 0])
        total[0] += 1
        total[1] += facts.row_count
        total[2] += file.size_bytes
        if self.writer is not None:
            if self._records[0] != folder.ordinal:
                self._records = folder.ordinal, self._layout.partition_record(folder.values)
            self.writer.add(self._records[1], folder.format, file, facts)

    def staged(self) -> StagedFiles:
        """Write the row counts, and return the rest; the manifests are complete."""
        found, totals = self._found, self._totals
        if self.writer is not None:
            found.manifests = list(self.writer.manifests)
        if not totals:
            return found
        found.partition_count = len(totals)
        found.first_ordinal, found.last_ordinal = min(totals), max(totals)
        found.file_count, found.row_count, found.size_bytes = map(sum, zip(*totals.values(), strict=True))
        if self._settings.writes_manifests:
            columns: Sequence[Sequence[int]] = [list(totals), *map(list, zip(*totals.values(), strict=True))]
            rows = pyarrow.table(columns, schema=_TOTAL_SCHEMA)
            found.totals = f"{TOTALS}/{self._name}.parquet"
            Folder(self._settings.folder).write_rows(found.totals, rows)
        return found


@lru_cache(maxsize=4)
def _layout(text: str) -> Layout:
    import json

    from catalog.iceberg.layout import Layout

    return Layout.from_json(json.loads(text))


@lru_cache(maxsize=16)
def _reader(kind: Callable[[Layout, FileFormat], FooterReader] | None, layout: str, own: FileFormat) -> FooterReader:
    from catalog.iceberg.footers.facts import FooterReader

    return (kind or FooterReader)(_layout(layout), own)
