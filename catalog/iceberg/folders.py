"""The data files below a location, as Hive and its readers see them: without hidden files and folders."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from enum import StrEnum

from catalog.errors import NestedFolderError
from catalog.files.filesystem import FileInfo, Folder, is_hidden
from catalog.iceberg.footers.tails import is_local, local_path


class Recursion(StrEnum):
    """What happens to folders inside a location; the spelling of Trino's `recursive_directory`."""

    TRUE = "true"
    """Their files belong to it, at any depth."""
    FALSE = "false"
    """Their files do not."""
    FAIL = "fail"
    """There must be none."""


def data_files(location: str, recursion: Recursion, skip: Collection[str] = ()) -> Iterator[FileInfo]:
    """Yield the data files of a location by path; none when nothing is there.

    Whether something is hidden is judged by the part of its path below the location.

    Args:
        skip: Folders to leave out with all inside, as full paths in the form of the location.

    Raises:
        NestedFolderError: A folder is inside that is neither hidden nor skipped, and `recursion` is FAIL.
    """
    location = location.rstrip("/")
    left_out = frozenset(each.rstrip("/") for each in skip)
    walk = _local if is_local(location) else _remote
    yield from sorted(walk(location, recursion, left_out), key=lambda file: file.path)


def _local(location: str, recursion: Recursion, skip: frozenset[str]) -> Iterator[FileInfo]:
    pending = [(location, local_path(location) or "/")]
    while pending:
        shown, path = pending.pop()
        try:
            entries = os.scandir(path)
        except FileNotFoundError:
            # Gone since its parent was read, or never there.
            continue
        nested = []
        with entries:
            for entry in entries:
                name = entry.name
                if is_hidden(name):
                    continue
                if entry.is_dir():
                    nested.append(name)
                elif entry.is_file():
                    status = entry.stat()
                    yield FileInfo(f"{shown}/{name}", status.st_size, status.st_mtime_ns // 1_000_000)
        inside = [(f"{shown}/{name}", f"{path}/{name}") for name in nested if f"{shown}/{name}" not in skip]
        if inside and recursion is Recursion.FAIL:
            raise NestedFolderError(location, min(inside)[0])
        if recursion is Recursion.TRUE:
            pending.extend(inside)


def _remote(location: str, recursion: Recursion, skip: frozenset[str]) -> Iterator[FileInfo]:
    # All below in one answer, page by page, is what object stores are quick at.
    entries = Folder(location).entries(recursive=recursion is Recursion.TRUE)
    for file, is_folder in sorted(entries, key=lambda entry: entry[0].path):
        parts = file.path[len(location) + 1 :].split("/")
        if any(map(is_hidden, parts)) or _is_inside(file.path, skip):
            continue
        if not is_folder:
            yield file
        elif recursion is Recursion.FAIL:
            raise NestedFolderError(location, file.path)


def _is_inside(path: str, folders: frozenset[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)
