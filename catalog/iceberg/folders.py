"""Listing of the data files below a location as Hive's readers see them: without hidden files and folders."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from enum import StrEnum

from catalog.errors import NestedFolderError
from catalog.files.filesystem import FileInfo, Folder, is_hidden
from catalog.files.locations import is_local, local_path


class Recursion(StrEnum):
    """How to treat folders inside a location; the values of Trino's `recursive_directory`."""

    TRUE = "true"
    """Include their files, at any depth."""
    FALSE = "false"
    """Ignore their files."""
    FAIL = "fail"
    """Refuse them."""


def data_files(location: str, recursion: Recursion, skip: Collection[str] = ()) -> Iterator[FileInfo]:
    """Yield the data files of a location by path; nothing when the location does not exist.

    Only the part of a path below the location decides whether a file is hidden.

    Args:
        skip: Folders to skip with their contents, as full paths in the form of the location.

    Raises:
        NestedFolderError: There is a folder that is neither hidden nor skipped, and `recursion` is FAIL.
    """
    location = location.rstrip("/")
    skipped = frozenset(folder.rstrip("/") for folder in skip)
    walk = _local if is_local(location) else _remote
    yield from sorted(walk(location, recursion, skipped), key=lambda file: file.path)


def _local(location: str, recursion: Recursion, skip: frozenset[str]) -> Iterator[FileInfo]:
    pending = [(location, local_path(location) or "/")]
    while pending:
        shown, path = pending.pop()
        try:
            entries = os.scandir(path)
        except FileNotFoundError:
            # Deleted since its parent was listed, or never existed.
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
    # Object stores are fast at a recursive listing, page by page.
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
