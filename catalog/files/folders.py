"""Empty folders, which file systems with folders have, and object stores do not."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress

from catalog.errors import CatalogError, InvalidLocationError, LocationNotEmptyError, MissingFileError, StorageError
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


def _make(path: str, made: list[str]) -> None:
    try:
        # Most folders are new, and the folder around them exists.
        os.mkdir(path)
    except FileNotFoundError:
        with suppress(FileExistsError):
            _make(os.path.dirname(path), made)
        os.mkdir(path)
    made.append(path)


def move_folder(location: str, target: str, *, must_exist: bool = False) -> bool:
    """Move a folder on a local disk, with its contents; return whether anything was moved.

    Safe to repeat: a folder that is not there any longer, while the target is, was moved before.

    Args:
        must_exist: Refuse to move a folder that does not exist; else its target is made.

    Raises:
        MissingFileError: Neither the folder nor its target exists.
        LocationNotEmptyError: The target has files, which are not those of the folder.
        InvalidLocationError: A name in the target is longer than the file system allows.
        StorageError: The folder cannot be moved for another reason.
    """
    before, after = local_path(location), local_path(target)
    try:
        if not os.path.isdir(before):
            if must_exist and not os.path.isdir(after):
                raise MissingFileError(f"{location} does not exist, so it cannot be moved to {target}")
            os.makedirs(after, exist_ok=True)
            return False
        if os.path.isdir(after) and os.listdir(after):
            raise LocationNotEmptyError(f"{location} cannot be moved to {target}, which has files; choose another name")
        os.makedirs(os.path.dirname(after), exist_ok=True)
        os.rename(before, after)
    except CatalogError:
        # Errors of storage are errors of the system, too.
        raise
    except OSError as error:
        if is_too_long(error):
            raise too_long(target) from None
        raise StorageError(f"{location} cannot be moved to {target}: {error.strerror}") from None
    return True


def remove_folders(paths: Sequence[str]) -> None:
    """Remove folders that `make_folders` has created, unless they have files meanwhile."""
    for path in reversed(paths):
        try:
            os.rmdir(path)
        except OSError:
            continue
