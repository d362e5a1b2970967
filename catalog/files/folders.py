"""Empty folders, which file systems with folders have, and object stores do not."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress

from catalog.errors import InvalidLocationError, LocationNotEmptyError, StorageError
from catalog.files.locations import is_local, local_path
from catalog.files.long_names import is_too_long, too_long


def make_folders(locations: Iterable[str]) -> Sequence[str]:
    """Create the folders that do not exist yet on local disks; return their paths, and those of folders around them.

    Raises:
        InvalidLocationError: It is a file, or a name is longer than the file system allows.
        StorageError: A folder cannot be created for another reason; those created before are removed again.
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
            raise InvalidLocationError(f"{location} is a file, not a folder; choose another location") from None
        except (OSError, ValueError) as error:
            remove_folders(made)
            if is_too_long(error):
                raise too_long(location) from None
            reason = error.strerror if isinstance(error, OSError) else error
            raise StorageError(f"folder {location} cannot be created: {reason}") from None
    return made


def missing_folders(locations: Iterable[str]) -> list[str]:
    """Return those of many folders on local disks that do not exist."""
    return [location for location in locations if is_local(location) and not os.path.isdir(local_path(location))]


def has_only_empty_folders(location: str) -> bool:
    """Return whether a folder on a local disk contains folders without anything in them, and nothing else.

    Raises:
        OSError: The file system refused.
    """
    with os.scandir(local_path(location)) as entries:
        return all(entry.is_dir(follow_symlinks=False) and not os.listdir(entry.path) for entry in entries)


def _make(path: str, made: list[str]) -> None:
    try:
        # Most folders are new, and the folder around them exists.
        os.mkdir(path)
    except FileNotFoundError:
        with suppress(FileExistsError):
            _make(os.path.dirname(path), made)
        os.mkdir(path)
    made.append(path)


def node_of(location: str) -> int | None:
    """Return the number by which a local disk knows a folder, which moves with it; None if there is no folder."""
    path = local_path(location)
    try:
        return os.stat(path).st_ino if os.path.isdir(path) else None
    except OSError:
        return None


def move_folder(location: str, target: str) -> None:
    """Move a folder on a local disk, with its contents; make the target of a folder that does not exist.

    Raises:
        LocationNotEmptyError: The target has files.
        InvalidLocationError: A name in the target is longer than the file system allows.
        StorageError: The folder cannot be moved for another reason.
    """
    before, after = local_path(location), local_path(target)
    try:
        if os.path.isdir(after) and os.listdir(after):
            raise LocationNotEmptyError(f"{location} cannot be moved to {target}, which has files; choose another name")
        if not os.path.isdir(before):
            os.makedirs(after, exist_ok=True)
            return
        os.makedirs(os.path.dirname(after), exist_ok=True)
        os.rename(before, after)
    except OSError as error:
        if is_too_long(error):
            raise too_long(target) from None
        raise StorageError(f"{location} cannot be moved to {target}: {error.strerror}") from None


def move_folder_back(location: str, target: str) -> None:
    """Move a folder from its target back to where it was; what is there meanwhile stays.

    Safe to repeat, and to run in several processes at once.

    Raises:
        LocationNotEmptyError: Both folders have a file of the same name.
        StorageError: The folder cannot be moved.
    """
    before, after = local_path(location), local_path(target)
    try:
        os.makedirs(os.path.dirname(before), exist_ok=True)
        _merge(after, before)
    except FileNotFoundError:
        # Another process has moved it, or a part of it.
        return
    except OSError as error:
        raise StorageError(f"{target} cannot be moved back to {location}: {error.strerror}") from None


def _merge(source: str, target: str) -> None:
    try:
        os.rename(source, target)
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not os.path.isdir(source):
            raise
    for name in os.listdir(source):
        path, taken = os.path.join(source, name), os.path.join(target, name)
        if os.path.isdir(path) and not os.path.islink(path) and os.path.isdir(taken):
            _merge(path, taken)
        elif os.path.lexists(taken):
            raise LocationNotEmptyError(
                f"{source} cannot be moved back to {target}, because both have a file {name}; rename one of the files"
            )
        else:
            os.rename(path, taken)
    os.rmdir(source)


def remove_folders(paths: Sequence[str]) -> None:
    """Remove folders that `make_folders` has created, unless they have files meanwhile."""
    for path in reversed(paths):
        try:
            os.rmdir(path)
        except OSError:
            continue
