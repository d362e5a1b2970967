"""Files and folders on the file systems of PyArrow: local disks, HDFS, S3, GCS, Azure."""

from __future__ import annotations

import errno
import fnmatch
import io
import os
import posixpath
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import pyarrow
from pyarrow import fs

from catalog.files import object_stores
from catalog.files.connecting import connect
from catalog.files.failures import with_catalog_errors
from catalog.files.locations import is_local, local_path
from catalog.files.s3_requests import abort_upload, delete_marker, unfinished_uploads

_THREADS = 16
REMOTE_THREADS = 32
"""Number of files or folders to open concurrently in remote storage, which takes some 20 ms to answer."""

_UNFINISHED_A_THREAD = 16
"""Calls per thread that `in_parallel` starts or queues before it yields the first result."""
_COPIED = ".calve-"
_WITHOUT_FOLDERS = (fs.S3FileSystem, fs.GcsFileSystem)
"""Object stores, where a folder is only the common part of names: to create one costs requests and leaves an object."""
_TOO_LONG = errno.ENAMETOOLONG
"""Error for names that are too long for the file system; a partition value can be, so its folder does not exist."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class FileInfo:
    """A file and its metadata.

    Attributes:
        path: In the form in which its folder was given: a plain path or a URI.
    """

    path: str
    size_bytes: int
    modified_at_ms: int


def is_hidden(name: str) -> bool:
    """Return whether readers skip a file or folder of this name: `_…` or `.…`, but not a partition such as `_k=1`.

    Source: Spark's `HadoopFSUtils.shouldFilterOutPathName`.
    """
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def in_parallel(function: Callable[[T], R], items: Iterable[T], threads: int = _THREADS) -> Iterator[R]:
    """Yield a function's results in the order of the items; only some of them are in memory at once.

    Args:
        threads: Number of concurrent calls; with one, calls run in the caller's thread.
    """
    if threads == 1:
        yield from map(function, items)
        return
    pending: deque[Future[R]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                pending.append(pool.submit(function, item))
                if len(pending) >= _UNFINISHED_A_THREAD * threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for call in pending:
                call.cancel()


@with_catalog_errors
class Folder:
    """A folder of a file system, given by a plain path or a URI.

    Public methods raise the catalog's errors (`storage_errors`): `MissingFileError` for a file or folder that does not
    exist, unless they say otherwise, and `StorageError` for a missing bucket, missing rights or a server that is down.
    """

    def __init__(self, location: str) -> None:
        """Connect to the file system without reading.

        Raises:
            InvalidLocationError: No file system is known for the location.
            StorageError: The file system cannot be reached.
        """
        self.location = location.rstrip("/")
        if is_local(location):
            self._files, self._root = fs.LocalFileSystem(), local_path(self.location)
        else:
            self._files, self._root = connect(self.location)

    def _path(self, name: str) -> str:
        return posixpath.join(self._root, name) if name else self._root

    def inside(self, name: str) -> Folder:
        """Return a subfolder, with the same connection."""
        folder = copy(self)
        folder.location, folder._root = f"{self.location}/{name}", self._path(name)
        return folder

    def at(self, location: str) -> Folder:
        """Return the folder of a location, with the same connection if it is inside this one."""
        if location == self.location:
            return self
        if location.startswith(f"{self.location}/"):
            return self.inside(location.removeprefix(f"{self.location}/"))
        return _elsewhere(location)

    def exists(self, name: str = "") -> bool:
        """Return whether a file or folder exists."""
        try:
            is_there = bool(self._files.get_file_info(self._path(name)).type != fs.FileType.NotFound)
            if not is_there:
                self._require_bucket()
            return is_there
        except OSError as error:
            if error.errno != _TOO_LONG:
                raise
            return False

    @property
    def keeps_empty_folders(self) -> bool:
        """Whether empty folders are kept, because PyArrow would also delete files that arrive during the deletion."""
        return not isinstance(self._files, (fs.LocalFileSystem, fs.S3FileSystem))

    def is_link(self, name: str) -> bool:
        """Return whether a file or folder is a symbolic link on a local disk."""
        return isinstance(self._files, fs.LocalFileSystem) and os.path.islink(self._path(name))

    def is_empty(self, name: str) -> bool:
        """Return whether a folder is empty or does not exist."""
        return not self._listed(name)

    def folders(self, name: str) -> list[str]:
        """Return the names of the direct subfolders of a folder; an empty list when it does not exist."""
        return sorted(info.base_name for info in self._listed(name) if info.type == fs.FileType.Directory)

    def partition_folders(self, name: str) -> list[str | None]:
        """Return the names of the direct subfolders that are not hidden; None for a name that is not UTF-8."""
        folders = (info for info in self._listed(name) if info.type == fs.FileType.Directory)
        return [name for name in map(_name, folders) if name is None or not is_hidden(name)]

    def visible_names(self, name: str) -> set[str]:
        """Return the names of the files and folders directly inside a folder that are not hidden."""
        return {info.base_name for info in self._listed(name) if not is_hidden(info.base_name)}

    def files(self, pattern: str = "*") -> list[FileInfo]:
        """Return the files below the folder, sorted by path, without hidden files and folders at any depth.

        Args:
            pattern: Glob that the first parts of a path must match, part by part: `*` does not match across slashes,
                but all files below a matching folder are included.
        """
        files = []
        for info in self._files.get_file_info(fs.FileSelector(self._root, recursive=True)):
            name = self._name_of(info)
            hidden = any(map(is_hidden, name.split("/")))
            if info.type == fs.FileType.File and not hidden and _matches(name, pattern):
                files.append(self._info(f"{self.location}/{name}", info))
        return sorted(files, key=lambda file: file.path)

    def entries(self, *, recursive: bool) -> Iterator[tuple[FileInfo, bool]]:
        """Yield the files and folders inside, including hidden ones, each with whether it is a folder.

        Nothing is yielded if the folder does not exist.

        Args:
            recursive: Include the contents of subfolders.
        """
        for info in self._listed("", recursive=recursive):
            name = self._name_of(info)
            yield self._info(f"{self.location}/{name}", info), info.type == fs.FileType.Directory

    def file(self) -> FileInfo | None:
        """Return the entry of the location itself, if it is a file; otherwise None."""
        info = self._files.get_file_info(self._root)
        return self._info(self.location, info) if info.type == fs.FileType.File else None

    def file_info(self, name: str) -> FileInfo | None:
        """Return a file by its path below this folder; None when it does not exist."""
        info = self._files.get_file_info(self._path(name))
        return self._info(name, info) if info.type == fs.FileType.File else None

    def _listed(self, name: str, *, recursive: bool = False) -> list[fs.FileInfo]:
        """Return the files and folders inside a folder; an empty list when it does not exist."""
        path = self._path(name)
        selector = fs.FileSelector(path, allow_not_found=True, recursive=recursive)
        try:
            if not (found := list(self._files.get_file_info(selector))):
                self._require_bucket()
            if not isinstance(self._files, fs.S3FileSystem):
                return found
            # PyArrow lists the folder itself in itself if the name of an object continues with another slash.
            return [info for info in found if info.path != path]
        except OSError as error:
            if error.errno != _TOO_LONG:
                raise
            return []

    def _name_of(self, info: fs.FileInfo) -> str:
        """Return the path of a listed file or folder below this one; object stores resolve neither dots nor slashes."""
        if isinstance(self._files, fs.LocalFileSystem):
            return posixpath.relpath(info.path, self._root)
        return str(info.path).removeprefix(self._root).removeprefix("/")

    def _require_bucket(self) -> None:
        """Check that the bucket exists: PyArrow takes a missing one for an empty one.

        Raises:
            OSError: It does not.
        """
        if isinstance(self._files, fs.S3FileSystem):
            object_stores.require_bucket(self._files, self._root.partition("/")[0])

    @staticmethod
    def _info(path: str, info: fs.FileInfo) -> FileInfo:
        return FileInfo(path, info.size or 0, int((info.mtime_ns or 0) // 1_000_000))

    def open(self, name: str) -> Any:
        """Open a file for random reads; the result is PyArrow's, and a context manager."""
        return self._files.open_input_file(self._path(name))

    def open_text(self, name: str = "", encoding: str = "utf-8") -> io.TextIOWrapper:
        """Open a file as text; invalid bytes are replaced."""
        return io.TextIOWrapper(self._files.open_input_stream(self._path(name)), encoding, errors="replace", newline="")

    @contextmanager
    def writing(self, name: str) -> Iterator[io.TextIOBase]:
        """Write a file as UTF-8 text in parts; missing parent folders are created."""
        path = self._path(name)
        self._create_folder_of(path)
        with io.TextIOWrapper(self._files.open_output_stream(path), "utf-8", newline="") as text:
            yield text

    def rows(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of the Parquet files in a folder, with one batch in memory at a time."""
        # Imported late, like the other parts of PyArrow: importing all of them takes as long as running a statement.
        import pyarrow.dataset

        dataset = pyarrow.dataset.dataset(self._path(name), format="parquet", filesystem=self._files)
        for batch in dataset.to_batches(batch_size=10_000):
            yield from batch.to_pylist()

    def write_rows(self, name: str, rows: pyarrow.Table) -> None:
        """Write rows as a Parquet file; its folder is created."""
        import pyarrow.parquet

        self._create_folder_of(self._path(name))
        pyarrow.parquet.write_table(rows, self._path(name), filesystem=self._files)

    @contextmanager
    def writing_rows(self, name: str, schema: pyarrow.Schema) -> Iterator[pyarrow.parquet.ParquetWriter]:
        """Write a Parquet file with one row group per table passed to the writer; its folder is created."""
        import pyarrow.parquet

        self._create_folder_of(self._path(name))
        with pyarrow.parquet.ParquetWriter(self._path(name), schema, filesystem=self._files) as writer:
            yield writer

    def row_groups(self, name: str, numbers: Sequence[int]) -> pyarrow.Table:
        """Return the rows of some row groups of a Parquet file."""
        import pyarrow.parquet

        with self._files.open_input_file(self._path(name)) as file:
            return pyarrow.parquet.ParquetFile(file).read_row_groups(list(numbers), use_threads=False)

    def write_bytes(self, name: str, content: bytes) -> None:
        """Write a file at once; its folder is created."""
        path = self._path(name)
        self._create_folder_of(path)
        with self._files.open_output_stream(path) as stream:
            stream.write(content)

    def _create_folder_of(self, path: str) -> None:
        """Create the folder of a file, on a file system that has folders."""
        if not isinstance(self._files, _WITHOUT_FOLDERS):
            self._files.create_dir(posixpath.dirname(path), recursive=True)

    def write_empty(self, name: str) -> None:
        """Write an empty file, for instance to mark a folder as complete."""
        self._files.open_output_stream(self._path(name)).close()

    def row_count(self, name: str, file_format: str) -> int:
        """Return the row count in the footer of a Parquet or ORC file."""
        import pyarrow.orc
        import pyarrow.parquet

        if file_format == "orc":
            with self._files.open_input_file(self._path(name)) as file:
                return int(pyarrow.orc.ORCFile(file).nrows)
        return int(pyarrow.parquet.read_metadata(self._path(name), filesystem=self._files).num_rows)

    def delete_files(self, names: Iterable[str]) -> None:
        """Delete files that `move_files` has moved here, completely or in part."""
        for name in names:
            for moved in (name, _COPIED + name):
                if self.exists(moved):
                    self.delete_file(moved)

    def delete_if_empty(self) -> bool:
        """Delete the folder itself if it is empty; a file that arrives meanwhile is kept.

        Returns:
            Whether the folder is gone. A link to a folder is not, nor is a folder on a store that deletes folders only
            with their contents (`keeps_empty_folders`).
        """
        if isinstance(self._files, fs.S3FileSystem):
            is_gone = self.is_empty("")
            if is_gone:
                delete_marker(self._files, self._root)
            return is_gone
        if self.keeps_empty_folders:
            return not self.exists()
        try:
            os.rmdir(self._root)
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, _TOO_LONG):
                raise
            return error.errno == _TOO_LONG
        return True

    def abort_uploads(self, before_ms: int, *, is_dry_run: bool = False) -> int:
        """Abort the uploads inside the folder that began before a time and are not finished; return their number.

        Only S3 has such uploads: parts of files that a writer, perhaps killed, has not completed.

        Args:
            before_ms: Time in milliseconds since 1970.
            is_dry_run: Only count them.
        """
        if not isinstance(self._files, fs.S3FileSystem):
            return 0
        uploads = unfinished_uploads(self._files, self._root, before_ms)
        if not is_dry_run:
            bucket = self._root.partition("/")[0]
            for _ in in_parallel(lambda upload: abort_upload(self._files, bucket, upload), uploads):
                pass
        return len(uploads)

    def delete(self, name: str) -> None:
        """Delete a folder and its contents; do nothing when it does not exist."""
        if self.exists(name):
            with suppress(FileNotFoundError):
                self._files.delete_dir(self._path(name))

    def delete_file(self, name: str) -> None:
        """Delete a file; do nothing when it does not exist."""
        with suppress(FileNotFoundError):
            self._files.delete_file(self._path(name))

    def all_files(self, name: str) -> list[FileInfo]:
        """Return all files inside a folder, hidden ones too, by path below this folder; empty if it does not exist."""
        files = (info for info in self._listed(name, recursive=True) if info.type == fs.FileType.File)
        return [self._info(self._name_of(info), info) for info in files]

    def delete_except(self, kept: Iterable[str]) -> None:
        """Delete the folder itself and its contents, except some paths below it; it may be gone already."""
        kept = set(kept)
        if not kept:
            self.delete("")
            return
        above = {""} | {"/".join(parts[:n]) for parts in (path.split("/") for path in kept) for n in range(len(parts))}
        rest = [""]
        while rest:
            name = rest.pop()
            for info in self._listed(name):
                inside = posixpath.join(name, info.base_name)
                if inside in above:
                    rest.append(inside)
                elif inside not in kept:
                    delete = self._files.delete_dir if info.type == fs.FileType.Directory else self._files.delete_file
                    delete(info.path)

    def move_files(
        self, source: str, target: Folder, names: Iterable[str], *, is_source_deleted_later: bool = False
    ) -> None:
        """Move files of a subfolder into another folder, perhaps on another file system.

        Files that were moved before are skipped, so an interrupted move can be repeated. The target must have no other
        files of these names. A file that has to be copied is hidden until the copy is complete.

        Args:
            is_source_deleted_later: The caller deletes the subfolder. On S3, which has no renames, the files are then
                only copied: to delete them one by one takes more requests than the copies.
        """
        target._create_folder_of(f"{target._root}/")
        is_copied = (
            is_source_deleted_later and isinstance(self._files, fs.S3FileSystem) and self._files == target._files
        )
        move = self._copy_on_s3 if is_copied else self._move_file
        for name in names:
            try:
                move(f"{source}/{name}", target, name)
            except FileNotFoundError:
                # Another process may have moved it.
                if not target.exists(name):
                    raise

    def copy_files(self, target: Folder, names: Iterable[str]) -> None:
        """Copy files of this folder into another one, which has no other files of these names.

        An interrupted copy can be repeated. A file is hidden until its copy is complete.
        """
        target._create_folder_of(f"{target._root}/")
        for name in names:
            if isinstance(self._files, fs.S3FileSystem) and self._files == target._files:
                self._copy_on_s3(name, target, name)
                continue
            self._copy_file(name, target, name)

    def _copy_on_s3(self, source: str, target: Folder, name: str) -> None:
        try:
            self._files.copy_file(self._path(source), target._path(name))
        except OSError as error:
            if not object_stores.is_missing_key(error):
                raise
            raise self._is_gone(source, target) from error

    def _is_gone(self, source: str, target: Folder) -> FileNotFoundError:
        return FileNotFoundError(f"{self.location}/{source} is gone, and not in {target.location}")

    def _move_file(self, source: str, target: Folder, name: str) -> None:
        path = self._path(source)
        if self._files.get_file_info(path).type == fs.FileType.NotFound:
            raise self._is_gone(source, target)
        if self._files == target._files:
            self._files.move(path, target._path(name))
            return
        self._copy_file(source, target, name)
        self._files.delete_file(path)

    def _copy_file(self, source: str, target: Folder, name: str) -> None:
        hidden = target._path(_COPIED + name)
        fs.copy_files(self._path(source), hidden, source_filesystem=self._files, destination_filesystem=target._files)
        target._files.move(hidden, target._path(name))


def _name(info: fs.FileInfo) -> str | None:
    try:
        return str(info.base_name)
    except UnicodeDecodeError:
        return None


@lru_cache(maxsize=64)
def _elsewhere(location: str) -> Folder:
    return Folder(location)


def _matches(name: str, pattern: str) -> bool:
    parts, patterns = name.split("/"), pattern.split("/")
    return len(parts) >= len(patterns) and all(map(fnmatch.fnmatchcase, parts, patterns))
