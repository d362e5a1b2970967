"""The files of a source: a file, a folder or a glob."""

from __future__ import annotations

from collections.abc import Iterable

from catalog.errors import SourceFileError
from catalog.files import object_stores
from catalog.files.filesystem import FileInfo, Folder
from catalog.files.locations import has_plain_names

_GLOB_CHARACTERS = "*?["


def find_files(source: str) -> list[FileInfo]:
    """Return the files of a source: a file, a folder (without hidden parts), or a glob of files or folders.

    Raises:
        SourceFileError: The source does not exist, has no files, or names that not all readers find.
    """
    _require_plain_names(source, [source.rstrip("/")])
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
    files = folder.files(pattern)
    if not files:
        raise SourceFileError(f"source {source}: no files found; deliver one, or correct the path")
    _require_plain_names(source, [file.path for file in files])
    return files


def _require_plain_names(source: str, paths: Iterable[str]) -> None:
    """Check that PyArrow and Hadoop find the same objects: Hadoop takes two slashes for one, and resolves `..`."""
    if not object_stores.is_on_s3(source):
        return
    if path := next((path for path in paths if not has_plain_names(path)), None):
        raise SourceFileError(
            f"source {source}: {path!r} has an empty name, '.' or '..' in it, which readers take for another path; "
            "correct the source, or rename the object"
        )
