"""Locations compared in one spelling, and the rule that a location belongs to one table.

A table's location is kept a second time as a key (`calve_table.location_key`): bytes that end with a slash, so that the
tables inside a folder are one range of the index, and those around it are found by the folders above.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator

_LOCAL = re.compile("file:/+")
_SAME_SCHEMES = {"s3a": "s3", "s3n": "s3"}


def location_key(location: str) -> bytes:
    """Return a location in one spelling, with a slash at its end: the same bytes for the same folder.

    `s3`, `s3a` and `s3n` are one scheme; `file:/a`, `file:///a` and `/a` one path. Repeated slashes, `.` and `..` are
    resolved, as are the symbolic links of local paths that exist.
    """
    scheme, mark, rest = location.partition("://")
    if mark and scheme.lower() != "file":
        scheme, (authority, _, path) = scheme.lower(), rest.partition("/")
        path = posixpath.normpath(f"/{path}").lstrip("/")
        text = f"{_SAME_SCHEMES.get(scheme, scheme)}://{authority}/{path}"
    else:
        text = os.path.realpath(_LOCAL.sub("/", location, count=1))
    return f"{text.rstrip('/')}/".encode()


def keys_above(key: bytes) -> Iterator[bytes]:
    """Yield the keys of the folders around a location, and its own."""
    end = key.find(b"//") + 2 if b"://" in key else 0
    while end := key.find(b"/", end) + 1:
        yield key[:end]


def end_of_keys_inside(key: bytes) -> bytes:
    """Return the least bytes that are greater than the keys of all locations inside one."""
    return key[:-1] + b"0"  # The character after the slash.
