"""A task of a migration's stage that lists folders in an executor, and its settings.

The driver writes the folders to a Parquet file in the order of the partitions' typed values; the tasks write the files
to Parquet files in the same order, some hundred in each row group. So nothing has to be sorted or shuffled, no row
passes through the JVM, and the driver's memory grows only with the number of row groups.

A separate module with few imports, because the Python process of an executor starts without modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow
from pyspark import TaskContext

from catalog.files.filesystem import REMOTE_THREADS, FileInfo, Folder, in_parallel
from catalog.files.locations import is_local
from catalog.migration.sources import SourceFolder
from catalog.migration.staging import ListingDigest
from catalog.model import FileFormat

if TYPE_CHECKING:
    from catalog.iceberg.folders import Recursion
    from catalog.iceberg.footers.facts import FooterReader
    from catalog.iceberg.layout import Layout

FOLDERS_A_GROUP = 500
FILES_A_GROUP = 250

FOLDERS = "folders.parquet"
LISTING = "listing"

_FOLDER_SCHEMA = pyarrow.schema(
    [
        ("location", pyarrow.string()),
        ("values", pyarrow.list_(pyarrow.string())),
        ("format", pyarrow.string()),
    ]
)
_FILE_SCHEMA = pyarrow.schema(
    [
        ("ordinal", pyarrow.int64()),
        ("path", pyarrow.string()),
        ("size_bytes", pyarrow.int64()),
        ("modified_at_ms", pyarrow.int64()),
    ]
)


@dataclass(frozen=True)
class StageSettings:
    """The settings of all tasks of a stage.

    Attributes:
        folder: The attempt's folder, where the tasks write.
        layout: The Iceberg table's layout, as JSON of `Layout.as_json`.
        recursion: How subfolders of a partition's folder are treated.
        skip: Folders that are not listed.
        writes_manifests: False for a dry run.
        is_compared: Whether the rows of both tables are compared afterwards, which shows what footers do not.
        threads: Number of files that a task opens concurrently; None to choose by their location.
        reader: The reader of footers, for benchmarks of other readers; None for Calve's.
    """

    folder: str
    layout: str
    recursion: Recursion
    skip: frozenset[str]
    writes_manifests: bool = True
    is_compared: bool = True
    threads: int | None = None
    reader: Callable[[Layout, FileFormat], FooterReader] | None = None

    def threads_for(self, location: str) -> int:
        """Return the number of files of a location to open concurrently."""
        if self.threads is not None:
            return self.threads
        return 1 if is_local(location) else REMOTE_THREADS


@dataclass(frozen=True)
class FolderList:
    """The folders to list.

    Attributes:
        elsewhere_count: Number of folders that are not in the default location of their partition; only these can share
            files with others.
    """

    folder_count: int
    elsewhere_count: int

    @property
    def group_count(self) -> int:
        """The number of their row groups."""
        return -(-self.folder_count // FOLDERS_A_GROUP)


def write_folders(folder: str, pages: Iterable[Sequence[SourceFolder]], usual: UsualLocation) -> FolderList:
    """Write the folders to list, with one page in memory at a time.

    Args:
        usual: Returns the default location of a partition with the given values.
    """
    count = elsewhere = 0
    rest: list[SourceFolder] = []
    with Folder(folder).writing_rows(FOLDERS, _FOLDER_SCHEMA) as writer:
        for page in pages:
            rest += page
            count += len(page)
            elsewhere += sum(listed.location != usual(listed.values) for listed in page)
            while len(rest) >= FOLDERS_A_GROUP:
                writer.write_table(_folder_rows(rest[:FOLDERS_A_GROUP]))
                rest = rest[FOLDERS_A_GROUP:]
        if rest:
            writer.write_table(_folder_rows(rest))
    return FolderList(count, elsewhere)


class UsualLocation:
    """The default locations of partitions."""

    def __init__(self, root: str, key_names: Sequence[str]) -> None:
        """Use the table's location, and its partition keys in the order of the values."""
        self._root = root
        self._key_names = key_names

    def __call__(self, values: Sequence[str | None]) -> str:
        """Return the default location of a partition with these values."""
        from catalog.model.partition_names import partition_path

        return f"{self._root}/{partition_path(self._key_names, values)}" if self._key_names else self._root


def _folder_rows(folders: Sequence[SourceFolder]) -> pyarrow.Table:
    columns = [
        [folder.location for folder in folders],
        [list(folder.values) for folder in folders],
        [str(folder.format) for folder in folders],
    ]
    return pyarrow.table(columns, schema=_FOLDER_SCHEMA)


def read_folders(folder: str, groups: Sequence[int]) -> Iterator[SourceFolder]:
    """Yield the folders of some row groups, in order."""
    rows = Folder(folder).row_groups(FOLDERS, groups)
    ordinals = (
        ordinal for group in groups for ordinal in range(group * FOLDERS_A_GROUP, (group + 1) * FOLDERS_A_GROUP)
    )
    columns = (rows.column(name).to_pylist() for name in _FOLDER_SCHEMA.names)
    for ordinal, location, values, own_format in zip(ordinals, *columns, strict=False):
        yield SourceFolder(ordinal, location, tuple(values), FileFormat(own_format))


@dataclass(frozen=True)
class ListingTask:
    """The folders that one task lists: row groups from `first_group` to `end_group`, exclusive."""

    number: int
    first_group: int
    end_group: int


@dataclass(frozen=True)
class ListedFiles:
    """The files that one task has listed.

    Attributes:
        name: Name of the Parquet file, below the attempt's folder.
        group_sizes: Number of files in each of its row groups.
        digest: Digest of all files, as `ListingDigest` writes it.
    """

    name: str
    group_sizes: tuple[int, ...]
    digest: str


def list_folders(settings: StageSettings, task: ListingTask) -> ListedFiles:
    """List some folders, and write their files by partition and path.

    Raises:
        NestedFolderError: A folder has a subfolder, and the request does not say how to treat subfolders.
    """
    folders = list(read_folders(settings.folder, range(task.first_group, task.end_group)))
    name = f"{LISTING}/{task.number:06d}-{attempt_id()}.parquet"
    digest = ListingDigest()
    sizes: list[int] = []
    with Folder(settings.folder).writing_rows(name, _FILE_SCHEMA) as writer:
        for group in _in_groups(_listed(settings, folders)):
            for _, file in group:
                digest.add(file)
            writer.write_table(_file_rows(group))
            sizes.append(len(group))
    return ListedFiles(name, tuple(sizes), str(digest))


def _listed(settings: StageSettings, folders: Sequence[SourceFolder]) -> Iterator[tuple[int, FileInfo]]:
    threads = max((settings.threads_for(folder.location) for folder in folders), default=1)
    files_by_folder = in_parallel(partial(_files, settings), folders, threads)
    for folder, files in zip(folders, files_by_folder, strict=True):
        for file in files:
            yield folder.ordinal, file


def _files(settings: StageSettings, folder: SourceFolder) -> list[FileInfo]:
    from catalog.iceberg.folders import data_files

    return list(data_files(folder.location, settings.recursion, settings.skip))


def _in_groups(files: Iterable[tuple[int, FileInfo]]) -> Iterator[list[tuple[int, FileInfo]]]:
    group: list[tuple[int, FileInfo]] = []
    for file in files:
        group.append(file)
        if len(group) == FILES_A_GROUP:
            yield group
            group = []
    if group:
        yield group


def _file_rows(files: Sequence[tuple[int, FileInfo]]) -> pyarrow.Table:
    columns = [
        [ordinal for ordinal, _ in files],
        [file.path for _, file in files],
        [file.size_bytes for _, file in files],
        [file.modified_at_ms for _, file in files],
    ]
    return pyarrow.table(columns, schema=_FILE_SCHEMA)


def read_files(folder: str, name: str, groups: Sequence[int]) -> Iterator[tuple[int, FileInfo]]:
    """Yield the files of some row groups of a listing, each with its partition's ordinal."""
    rows = Folder(folder).row_groups(name, groups)
    for ordinal, path, size, modified in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        yield ordinal, FileInfo(path, size, modified)


def attempt_id() -> int:
    """Return the number of this attempt at a task, which is unique in the job, because two attempts may run at once."""
    context = TaskContext.get()
    return 0 if context is None else context.taskAttemptId()
