"""Reads of byte ranges of a data file: local files through the operating system, others through PyArrow."""

from __future__ import annotations

import os
from functools import lru_cache

from catalog.files.filesystem import FileInfo, Folder
from catalog.files.locations import is_local, local_path

_LOCAL_BYTES, _REMOTE_BYTES = 1 << 14, 1 << 16
"""A footer of 50 columns has 3 to 12 KiB. Over a network, more bytes are cheaper than a second request."""


def read_range(file: FileInfo, start: int, length: int) -> bytes:
    """Return a byte range of a file; fewer bytes if the file ends before.

    Raises:
        FileNotFoundError: The file does not exist.
    """
    if is_local(file.path):
        descriptor = os.open(local_path(file.path), os.O_RDONLY)
        try:
            return os.pread(descriptor, length, start)
        finally:
            os.close(descriptor)
    head, name = _split(file.path)
    with _folder(head).open(name) as opened:
        return bytes(opened.read_at(length, start))


def read_tail(file: FileInfo, length: int | None = None) -> bytes:
    """Return the last bytes of a file: the given number, by default as many as usually contain a footer."""
    if length is None:
        length = _LOCAL_BYTES if is_local(file.path) else _REMOTE_BYTES
    start = max(0, file.size_bytes - length)
    return read_range(file, start, file.size_bytes - start)


def _split(path: str) -> tuple[str, str]:
    """Return the start of a URI up to its first folder, and the rest."""
    scheme, _, rest = path.partition("://")
    authority, _, rest = rest.partition("/")
    first, _, rest = rest.partition("/")
    return f"{scheme}://{authority}/{first}", rest


@lru_cache(maxsize=64)
def _folder(location: str) -> Folder:
    return Folder(location)
