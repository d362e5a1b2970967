"""Files and folders, on whatever PyArrow's file systems reach: local disks, HDFS, S3, GCS, Azure."""

from __future__ import annotations

import errno
import fnmatch
import inspect
import io
import os
import posixpath
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any, TypeVar
from urllib.parse import quote

import pyarrow
from pyarrow import fs

from catalog.errors import InvalidLocationError, MissingFileError, SourceFileError, StorageError
from catalog.files.s3_markers import delete_marker

_GLOB_CHARACTERS = "*?["
_THREADS = 16
_UNFINISHED_A_THREAD = 16
"""Calls that `in_parallel` has begun, or will begin next, before it yields the first one's answer."""
_FILE_SCHEME = re.compile("^file:/+")
_COPIED = ".calve-"
_TOO_LONG = errno.ENAMETOOLONG
"""Error of names that the file system does not support. A partition value can be longer: its folder does not exist."""
_SCHEMES = {"s3a": "s3", "s3n": "s3"}
"""Hadoop's scheme → PyArrow's."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class FileInfo:
    """A file as it was found.

    Attributes:
        path: In the form in which its folder was given: a plain path, or a URI.
    """

    path: str
    size_bytes: int
    modified_at_ms: int


def is_hidden(name: str) -> bool:
    """Say whether readers pass over a file or folder of this name: `_…` or `.…`, and no partition such as `_k=1`.

    Source: Spark's `HadoopFSUtils.shouldFilterOutPathName`.
    """
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def in_parallel(function: Callable[[T], R], items: Iterable[T], threads: int = _THREADS) -> Iterator[R]:
    """Yield a function's answers in the order of the items; of many, only some are in memory at once.

    Args:
        threads: How many calls run at once; one thread is that of the caller.
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
            for each in pending:
                each.cancel()


@contextmanager
def storage_errors(location: str) -> Iterator[None]:
    """Raise the catalog's errors for those of disks, object stores and PyArrow.

    Raises:
        MissingFileError: A file or folder is not there.
        StorageError: Anything else went wrong. `FileExistsError` stays, for it tells what to do.
    """
    try:
        yield
    except (StorageError, FileExistsError):
        raise
    except FileNotFoundError as error:
        raise MissingFileError(f"{location}: {_said(error)}; check the path") from error
    except (OSError, pyarrow.ArrowException) as error:
        raise StorageError(
            f"{location} cannot be read or written: {_said(error)}; correct that and try again"
        ) from error


def _said(error: Exception) -> str:
    """Return one line of an error; PyArrow adds its own C++ source lines."""
    reason = getattr(error, "strerror", None)
    return (str(reason or error).strip() or type(error).__name__).splitlines()[0].rstrip(".;")


def _translating(method: Callable[..., Any]) -> Callable[..., Any]:
    inner = getattr(method, "__wrapped__", None)
    if inner is not None:
        return contextmanager(_translating(inner))
    if inspect.isgeneratorfunction(method):

        @wraps(method)
        def generate(folder: Folder, *args: Any, **kwargs: Any) -> Iterator[Any]:
            with storage_errors(folder.location):
                yield from method(folder, *args, **kwargs)

        return generate

    @wraps(method)
    def call(folder: Folder, *args: Any, **kwargs: Any) -> Any:
        with storage_errors(folder.location):
            return method(folder, *args, **kwargs)

    return call


def _with_catalog_errors(cls: type[T]) -> type[T]:
    """Wrap the public methods of a folder class so that they raise the catalog's errors."""
    for name, method in vars(cls).copy().items():
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(cls, name, _translating(method))
    return cls


@_with_catalog_errors
class Folder:
    """A folder of a file system, by a plain path or a URI."""

    def __init__(self, location: str) -> None:
        """Reach the file system; nothing is read yet."""
        self.location = location.rstrip("/")
        if "://" in location and not location.startswith("file:"):
            self._files, self._root = _file_system(self.location)
        else:
            self._files, self._root = fs.LocalFileSystem(), _FILE_SCHEME.sub("/", self.location)

    def _path(self, name: str) -> str:
        return posixpath.join(self._root, name) if name else self._root

    def inside(self, name: str) -> Folder:
        """Return a folder inside this one, through the same connection."""
        folder = copy(self)
        folder.location, folder._root = f"{self.location}/{name}", self._path(name)
        return folder

    def at(self, location: str) -> Folder:
        """Return the folder of a location, through the same connection if it is inside this one."""
        if location == self.location:
            return self
        if location.startswith(f"{self.location}/"):
            return self.inside(location.removeprefix(f"{self.location}/"))
        return _elsewhere(location)

    def exists(self, name: str = "") -> bool:
        """Say whether a file or folder is there."""
        try:
            return bool(self._files.get_file_info(self._path(name)).type != fs.FileType.NotFound)
        except OSError as error:
            if error.errno != _TOO_LONG:
                raise
            return False

    @property
    def keeps_empty_folders(self) -> bool:
        """Whether no empty folder is deleted, because PyArrow would delete what arrives in it meanwhile, too."""
        return not isinstance(self._files, (fs.LocalFileSystem, fs.S3FileSystem))

    def is_link(self, name: str) -> bool:
        """Return whether a file or folder is a symbolic link of the local disk."""
        return isinstance(self._files, fs.LocalFileSystem) and os.path.islink(self._path(name))

    def is_empty(self, name: str) -> bool:
        """Say whether a folder holds nothing, or is not there."""
        return not self._listed(name)

    def folders(self, name: str) -> list[str]:
        """Return the names of the folders directly inside one; none when it is not there."""
        return sorted(info.base_name for info in self._listed(name) if info.type == fs.FileType.Directory)

    def partition_folders(self, name: str) -> list[str | None]:
        """Return the names of the folders directly inside one that are not hidden; None for a name that is no UTF-8."""
        found = (info for info in self._listed(name) if info.type == fs.FileType.Directory)
        return [name for name in map(_name, found) if name is None or not is_hidden(name)]

    def visible_names(self, name: str) -> set[str]:
        """Return the names of the files and folders directly inside a folder that are not hidden."""
        return {info.base_name for info in self._listed(name) if not is_hidden(info.base_name)}

    def files(self, pattern: str = "*") -> list[FileInfo]:
        """Return the files below the folder, by path; hidden parts are left out, at any depth.

        Args:
            pattern: What the first parts of a path have to match, part by part: `*` does not reach into a folder, but
                a folder that matches comes with everything inside.
        """
        found = []
        for info in self._files.get_file_info(fs.FileSelector(self._root, recursive=True)):
            name = posixpath.relpath(info.path, self._root)
            hidden = any(map(is_hidden, name.split("/")))
            if info.type == fs.FileType.File and not hidden and _matches(name, pattern):
                found.append(self._info(f"{self.location}/{name}", info))
        return sorted(found, key=lambda each: each.path)

    def entries(self, *, recursive: bool) -> Iterator[tuple[FileInfo, bool]]:
        """Yield the files and folders inside, hidden ones too, and of each whether it is a folder; nothing if none is.

        Args:
            recursive: Also what is inside its folders.
        """
        for info in self._listed("", recursive=recursive):
            name = posixpath.relpath(info.path, self._root)
            yield self._info(f"{self.location}/{name}", info), info.type == fs.FileType.Directory

    def file(self) -> FileInfo | None:
        """Return the folder's own entry if it is a file after all."""
        info = self._files.get_file_info(self._root)
        return self._info(self.location, info) if info.type == fs.FileType.File else None

    def file_info(self, name: str) -> FileInfo | None:
        """Return a file by its path below this folder; None when it is not there."""
        info = self._files.get_file_info(self._path(name))
        return self._info(name, info) if info.type == fs.FileType.File else None

    def _listed(self, name: str, *, recursive: bool = False) -> list[fs.FileInfo]:
        """Return the files and folders inside a folder; none when it is not there."""
        selector = fs.FileSelector(self._path(name), allow_not_found=True, recursive=recursive)
        try:
            return list(self._files.get_file_info(selector))
        except OSError as error:
            if error.errno != _TOO_LONG:
                raise
            return []

    @staticmethod
    def _info(path: str, info: fs.FileInfo) -> FileInfo:
        return FileInfo(path, info.size or 0, int((info.mtime_ns or 0) // 1_000_000))

    def open(self, name: str) -> Any:
        """Open a file for reading from any place; the result is PyArrow's, and a context manager."""
        return self._files.open_input_file(self._path(name))

    def open_text(self, name: str = "") -> io.TextIOWrapper:
        """Open a file as UTF-8 text; bytes that are none are replaced."""
        return io.TextIOWrapper(self._files.open_input_stream(self._path(name)), "utf-8", errors="replace", newline="")

    @contextmanager
    def writing(self, name: str) -> Iterator[io.TextIOBase]:
        """Write a file as UTF-8 text, a part at a time; folders above it that are not there are made."""
        path = self._path(name)
        self._files.create_dir(posixpath.dirname(path), recursive=True)
        with io.TextIOWrapper(self._files.open_output_stream(path), "utf-8", newline="") as text:
            yield text

    def rows(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of the Parquet files in a folder, a batch in memory at a time."""
        # Imported late, as the other parts of PyArrow: together they take as long as answering a statement.
        import pyarrow.dataset

        dataset = pyarrow.dataset.dataset(self._path(name), format="parquet", filesystem=self._files)
        for batch in dataset.to_batches(batch_size=10_000):
            yield from batch.to_pylist()

    def write_rows(self, name: str, rows: pyarrow.Table) -> None:
        """Write rows as a Parquet file, and its folder with it."""
        import pyarrow.parquet

        self._files.create_dir(posixpath.dirname(self._path(name)), recursive=True)
        pyarrow.parquet.write_table(rows, self._path(name), filesystem=self._files)

    @contextmanager
    def writing_rows(self, name: str, schema: pyarrow.Schema) -> Iterator[pyarrow.parquet.ParquetWriter]:
        """Write rows as a Parquet file, a row group for each table that the writer is given; and its folder with it."""
        import pyarrow.parquet

        self._files.create_dir(posixpath.dirname(self._path(name)), recursive=True)
        with pyarrow.parquet.ParquetWriter(self._path(name), schema, filesystem=self._files) as writer:
            yield writer

    def row_groups(self, name: str, numbers: Sequence[int]) -> pyarrow.Table:
        """Return the rows of some row groups of a Parquet file."""
        import pyarrow.parquet

        with self._files.open_input_file(self._path(name)) as file:
            return pyarrow.parquet.ParquetFile(file).read_row_groups(list(numbers), use_threads=False)

    def write_bytes(self, name: str, content: bytes) -> None:
        """Write a file in one piece, and its folder with it."""
        path = self._path(name)
        self._files.create_dir(posixpath.dirname(path), recursive=True)
        with self._files.open_output_stream(path) as stream:
            stream.write(content)

    def write_empty(self, name: str) -> None:
        """Write an empty file, for instance to say that a folder is complete."""
        self._files.open_output_stream(self._path(name)).close()

    def row_count(self, name: str, file_format: str) -> int:
        """Return how many rows a Parquet or ORC file says that it has."""
        import pyarrow.orc
        import pyarrow.parquet

        if file_format == "orc":
            with self._files.open_input_file(self._path(name)) as file:
                return int(pyarrow.orc.ORCFile(file).nrows)
        return int(pyarrow.parquet.read_metadata(self._path(name), filesystem=self._files).num_rows)

    def delete_files(self, names: Iterable[str]) -> None:
        """Delete files that `move_files` has moved here, as far as it came."""
        for name in names:
            for each in (name, _COPIED + name):
                if self.exists(each):
                    self.delete_file(each)

    def delete_if_empty(self) -> bool:
        """Delete the folder itself if it holds nothing; a file that arrives meanwhile stays.

        Returns:
            Whether the folder is gone: a link to one is not, nor is one on a store that deletes folders only with what
            is in them (`keeps_empty_folders`).
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

    def delete(self, name: str) -> None:
        """Delete a folder with what is inside; does nothing when it is not there."""
        if self.exists(name):
            with suppress(FileNotFoundError):
                self._files.delete_dir(self._path(name))

    def delete_file(self, name: str) -> None:
        """Delete a file; does nothing when it is not there."""
        with suppress(FileNotFoundError):
            self._files.delete_file(self._path(name))

    def all_files(self, name: str) -> list[FileInfo]:
        """Return every file inside a folder, hidden ones too, by its path below this folder; none without a folder."""
        found = (info for info in self._listed(name, recursive=True) if info.type == fs.FileType.File)
        return [self._info(posixpath.relpath(info.path, self._root), info) for info in found]

    def delete_except(self, kept: Iterable[str]) -> None:
        """Delete the folder itself with what is inside, except some paths below it; it may be gone already."""
        kept = set(kept)
        if not kept:
            self.delete("")
            return
        above = {""} | {"/".join(parts[:n]) for parts in (each.split("/") for each in kept) for n in range(len(parts))}
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

    def move_files(self, source: str, target: Folder, names: Iterable[str]) -> None:
        """Move files of a folder inside into another folder, perhaps of another file system.

        A file that was moved before is left alone, so a move that was interrupted can be done again. Their names must
        be none that the target has. A file that has to be copied is hidden until it is whole.
        """
        target._files.create_dir(target._root, recursive=True)
        for name in names:
            try:
                self._move_file(f"{source}/{name}", target, name)
            except FileNotFoundError:
                # Another process may have moved it before, or just now.
                if not target.exists(name):
                    raise

    def _move_file(self, source: str, target: Folder, name: str) -> None:
        path = self._path(source)
        if self._files.get_file_info(path).type == fs.FileType.NotFound:
            raise FileNotFoundError(f"{self.location}/{source} is gone, and not in {target.location}")
        if self._files == target._files:
            self._files.move(path, target._path(name))
            return
        fs.copy_files(
            path,
            target._path(_COPIED + name),
            source_filesystem=self._files,
            destination_filesystem=target._files,
        )
        target._files.move(target._path(_COPIED + name), target._path(name))
        self._files.delete_file(path)


def _name(info: fs.FileInfo) -> str | None:
    try:
        return str(info.base_name)
    except UnicodeDecodeError:
        return None


@lru_cache(maxsize=64)
def _elsewhere(location: str) -> Folder:
    return Folder(location)


def _file_system(location: str) -> tuple[fs.FileSystem, str]:
    try:
        file_system, path = fs.FileSystem.from_uri(_escaped_uri(location))
    except (pyarrow.ArrowInvalid, ValueError) as error:
        raise InvalidLocationError(
            f"location {location!r}: no file system is known for it ({_said(error)}); write an absolute path, or a URI "
            "such as s3://bucket/folder"
        ) from error
    except OSError as error:
        raise StorageError(f"{location} cannot be reached: {_said(error)}; correct that and try again") from error
    return file_system, path


def _escaped_uri(location: str) -> str:
    """Return a location as a URI: as Hadoop has it, a `%` in a location is only a `%`, and no escape."""
    head, mark, query = location.partition("?")
    scheme, _, rest = head.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{_SCHEMES.get(scheme, scheme)}://{authority}{slash}{quote(path)}{mark}{query}"


def _matches(name: str, pattern: str) -> bool:
    parts, wanted = name.split("/"), pattern.split("/")
    return len(parts) >= len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))


def find_files(source: str) -> list[FileInfo]:
    """Return the files of a source: a file, a folder (hidden parts left out), or a glob of files or folders.

    Raises:
        SourceFileError: There is nothing of this name, or nothing matches.
    """
    parts = source.split("/")
    first_glob = next((n for n, part in enumerate(parts) if any(c in part for c in _GLOB_CHARACTERS)), None)
    if first_glob is not None:
        root = "/" if source.startswith("/") else "."
        folder, pattern = Folder("/".join(parts[:first_glob]) or root), "/".join(parts[first_glob:])
    else:
        folder, pattern = Folder(source), "*"
        if (single := folder.file()) is not None:
            return [single]
    if not folder.exists():
        raise SourceFileError(f"source {source}: {folder.location} does not exist; check the path")
    found = folder.files(pattern)
    if not found:
        raise SourceFileError(f"source {source}: no file is there; deliver one, or correct the path")
    return found
