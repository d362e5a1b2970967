"""Deletion of the files of a dropped Iceberg table that an engine made, by what its metadata name.

Only files in the table's folder are deleted, and none that another Iceberg table reaches. The metadata file goes last,
so that an interrupted purge finds the other files again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial

from catalog.errors import CatalogError, FilesNotDeletedError
from catalog.files.filesystem import Folder, in_parallel
from catalog.files.locations import OwnFiles, comparable, is_local, is_within
from catalog.operations.records import Operation
from catalog.storage import Storage
from catalog.storage.bulk import batched
from catalog.tables.neighbours import find_neighbour
from catalog.tables.own_files import SHOWN, PurgedFiles

log = logging.getLogger(__name__)


def purge_named_files(storage: Storage, operation: Operation) -> PurgedFiles:
    """Delete the files that the metadata of a dropped table name; safe to repeat.

    Returns:
        The files outside of the table's folder, which stay, and what was deleted; sizes are unknown.

    Raises:
        FilesNotDeletedError: The file system refused, or another table may need the files.
    """
    request = operation.request
    root, location = request["folder"], request["metadata_location"]
    with storage.read() as connection:
        neighbour = find_neighbour(connection, root)
    if neighbour is not None:
        raise FilesNotDeletedError(
            f"table {operation.table} is dropped, but its files stay, because table {neighbour.table} has files in "
            f"{neighbour.location}; delete the others by hand"
        )
    try:
        return _purge(storage, root, location)
    except (CatalogError, OSError, ValueError) as error:
        raise FilesNotDeletedError(
            f"table {operation.table} is dropped, but its files in {root} could not be deleted: {error}; delete them "
            "by hand, or fix the cause and run vacuum"
        ) from error


def _purge(storage: Storage, root: str, location: str) -> PurgedFiles:
    from catalog.iceberg.reachability import Reachability

    folder, inside, purged = Folder(root), comparable(root), PurgedFiles()
    if Folder(location).file() is None:
        return purged
    reachability = Reachability(storage)
    for batch in batched(_named(location)):
        paths = list(dict.fromkeys(batch))
        own = {path: None for path in OwnFiles([root]).among(paths) if is_within(comparable(path), inside)}
        others = [path for path in paths if path not in own]
        reached = reachability.reached(own)
        unreached = [path for path in own if path not in reached]
        names = (comparable(path).removeprefix(f"{inside}/") for path in unreached)
        for _ in in_parallel(partial(delete_with_checksum, folder), names):
            pass
        purged += PurgedFiles(len(others), tuple(others[:SHOWN]), deleted=len(unreached))
    _delete_empty_folders(folder)
    return purged


def delete_with_checksum(folder: Folder, name: str) -> None:
    """Delete a file, and the checksum that Hadoop has written beside it on a local disk; both may be missing."""
    folder.delete_file(name)
    if is_local(folder.location):
        parent, slash, base = name.rpartition("/")
        folder.delete_file(f"{parent}{slash}.{base}.crc")


def _delete_empty_folders(folder: Folder) -> None:
    inside = [entry.path for entry, is_folder in folder.entries(recursive=True) if is_folder]
    for path in sorted(inside, reverse=True):
        Folder(path).delete_if_empty()
    folder.delete_if_empty()


def _named(location: str) -> Iterator[str]:
    """Yield the files that metadata name, each before the file that names it."""
    from catalog.iceberg.named_files import UnreadableFileError, data_paths, metadata_paths
    from catalog.iceberg.pointers import CATALOG, Pointer

    pointer = Pointer(CATALOG, "", "", location)
    try:
        yield from data_paths(pointer)
    except UnreadableFileError as error:
        # A purge before this one has deleted manifests, after the files in them; or the table was damaged.
        log.warning("files of a dropped table that only %s names stay: %s", error.path, error.reason)
    named = []
    try:
        named += [path for path in metadata_paths(pointer) if path != location]
    except UnreadableFileError as error:
        log.warning("files of a dropped table that only %s names stay: %s", error.path, error.reason)
    yield from reversed(dict.fromkeys(named))
    yield location
