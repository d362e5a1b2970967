"""The files of partitions' folders at one time, to find what others put there, change or delete afterwards.

A file is recorded by a digest of its name and size.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from catalog.files.filesystem import FileInfo, Folder, is_hidden

_LENGTH = 8


def visible_files(folder: Folder) -> dict[str, FileInfo]:
    """Return the visible files directly in a folder, by name; none if it does not exist."""
    entries = folder.entries(recursive=False)
    named = ((file.path.rpartition("/")[2], file) for file, is_folder in entries if not is_folder)
    return {name: file for name, file in named if not is_hidden(name)}


def digest_files(files: Mapping[str, FileInfo]) -> bytes:
    """Return the sorted digests of files, given by name."""
    return b"".join(sorted(_digest(name, file) for name, file in files.items()))


def others_than(recorded: bytes, files: Mapping[str, FileInfo]) -> list[str]:
    """Return the names of those files that are not among recorded ones, with their sizes."""
    known = {recorded[start : start + _LENGTH] for start in range(0, len(recorded), _LENGTH)}
    return [name for name, file in sorted(files.items()) if _digest(name, file) not in known]


def names_among(recorded: bytes, files: Mapping[str, FileInfo]) -> set[str]:
    """Return the names of those files that are among recorded ones, with their sizes."""
    return files.keys() - set(others_than(recorded, files))


def _digest(name: str, file: FileInfo) -> bytes:
    return sha256(f"{name}\0{file.size_bytes}".encode(errors="surrogateescape")).digest()[:_LENGTH]
