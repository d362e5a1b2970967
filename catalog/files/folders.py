"""Empty folders, which file systems with folders have, and object stores do not."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress

from catalog.errors import StorageError
from catalog.files.locations import is_local, local_path


def make_folders(locations: Iterable[str]) -> Sequence[str]:
    """Create the folders that do not exist yet on local disks; return their paths, and those of folders around them.

    Raises:
        StorageError: A folder cannot be created; those created before are removed again.
    """
    made: list[str] = []
    for location in locations:
        if not is_local(location):
            continue
        path = local_path(location)
        try:
            _make(path, made)
        except FileExistsError:
            if os.path.isdir(path):
                continue
            remove_folders(made)
            raise StorageError(f"{location} is a file, not a folder; choose another location") from None
        except (OSError, ValueError) as error:
            remove_folders(made)
            reason = error.strerror if isinstance(error, OSError) else error
            raise StorageError(f"folder {location} cannot be created: {reason}") from None
    return made


def _make(path: str, made: list[str]) -> None:
    try:
        # Most folders are new, and the folder around them exists.
        os.mkdir(path)
    except FileNotFoundError:
        with suppress(FileExistsError):
            _make(os.path.dirname(path), made)
        os.mkdir(path)
    made.append(path)


def remove_folders(paths: Sequence[str]) -> None:
    """Remove folders that `make_folders` has created, unless they have files meanwhile."""
    for path in reversed(paths):
        try:
            os.rmdir(path)
        except OSError:
            continue
