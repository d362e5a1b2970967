"""Errors about names and paths that are longer than a file system allows: requests are wrong, not the storage."""

from __future__ import annotations

import errno

from catalog.errors import InvalidLocationError


def is_too_long(error: Exception) -> bool:
    """Return whether a file system refuses a path because it, or a name in it, is too long."""
    return isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG


def too_long(location: str) -> InvalidLocationError:
    """Return the error for such a path."""
    longest = max(len(name.encode()) for name in location.split("/"))
    return InvalidLocationError(
        f"{location[:100]}… has {len(location.encode())} bytes, and a name of {longest} bytes, which is longer than "
        "its file system allows; use shorter names"
    )
