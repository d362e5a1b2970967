"""The folders in which Iceberg tables have files, kept in the catalog.

A deletion asks only the tables that may have files in the deleted folders. To find these, only metadata are read that
were committed since the last time: manifests never change, and the folders of earlier ones are kept. The folders that
are kept may be too many, never too few.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from sqlalchemy import and_, delete, insert, select

from catalog.files.locations import LONGEST_KEY, folders_above, is_within, reach_key
from catalog.iceberg.named_files import UnreadableFileError, added_paths, home
from catalog.iceberg.pointers import Pointer
from catalog.storage import Storage
from catalog.storage.locks import hold
from catalog.storage.schema import IcebergPlacesRow, IcebergTableRow

_MOST_FOLDERS = 100
"""Of more folders of a table, parents are kept."""

_MOST_NAMES = 100
"""Names in the path of a folder; of a longer path, the folder around is kept: all folders around it need memory."""

_BUCKET = len("//")
"""The number of slashes in the shortest folder that is kept, a bucket."""

_USER = re.compile(r"^((?:s3[an]?|gs|https?|hdfs|webhdfs)://)[^/@]*@", re.IGNORECASE)
_LOCK = "calve iceberg places"
_NAMES = ("catalog_name", "table_namespace", "table_name")


class FilePlaces:
    """The folders in which Iceberg tables have files, at the time of construction.

    Attributes:
        unreadable: Tables whose metadata cannot be read, and the first file that could not; they are not among others.
    """

    def __init__(self, storage: Storage, pointers: Sequence[Pointer]) -> None:
        """Read what is kept, and the metadata that were committed since then.

        Args:
            pointers: All Iceberg tables.
        """
        self.unreadable: dict[Pointer, UnreadableFileError] = {}
        with storage.read() as connection:
            row = IcebergPlacesRow
            query = select(
                *(getattr(row, name) for name in _NAMES), row.metadata_location, row.snapshot_ids, row.folders
            )
            kept = {tuple(found[:3]): _Places(found[3], found[4], found[5]) for found in connection.execute(query)}
        places = {pointer: kept.get(_names(pointer)) for pointer in pointers}
        changed = [pointer for pointer, own in places.items() if own is None or own.location != pointer.location]
        for pointer in changed:
            try:
                places[pointer] = _read(pointer, places[pointer])
            except UnreadableFileError as error:
                self.unreadable[pointer] = error
        self._holders: dict[str, set[Pointer]] = {}
        self._inside: dict[str, set[Pointer]] = {}
        for pointer, own in places.items():
            if own is not None and pointer not in self.unreadable:
                self._add(pointer, own.folders)
        if changed:
            _keep(storage, {pointer: own for pointer in changed if (own := places[pointer]) is not None})

    def _add(self, pointer: Pointer, folders: Iterable[str]) -> None:
        metadata = (home(location) for location in (pointer.location, pointer.previous) if location is not None)
        for folder in {*metadata, *(_key(folder) for folder in folders)}:
            self._holders.setdefault(folder, set()).add(pointer)
            for above in folders_above(folder):
                self._inside.setdefault(above, set()).add(pointer)

    def near(self, keys: Iterable[str]) -> set[Pointer]:
        """Return the tables that may have files at or inside of some paths, given as `reach_key` returns them."""
        near = set[Pointer]()
        for key in keys:
            near.update(self._inside.get(key, ()), *(self._holders.get(above, ()) for above in folders_above(key)))
        return near


class _Places:
    def __init__(self, location: str, snapshot_ids: Collection[int], folders: Collection[str]) -> None:
        self.location, self.snapshot_ids, self.folders = location, frozenset(snapshot_ids), frozenset(folders)


def _names(pointer: Pointer) -> tuple[str, str, str]:
    return pointer.catalog, pointer.database, pointer.name


def _key(folder: str) -> str:
    """Return the key of a folder; links are followed now, because they may lead elsewhere than before."""
    return reach_key(f"{folder}/_").rpartition("/")[0]


def _read(pointer: Pointer, before: _Places | None) -> _Places:
    """Return the places of a table's files now.

    Args:
        before: Its places under earlier metadata; None if they are not known.

    Raises:
        UnreadableFileError: Metadata cannot be read.
    """
    known = frozenset[int]() if before is None else before.snapshot_ids
    own, folders = home(pointer.location), set[str]() if before is None else set(before.folders)
    paths, snapshot_ids = added_paths(pointer, known)
    folders.update(_folders_outside(paths, own))
    while len(folders) > _MOST_FOLDERS:
        deepest = max(folder.count("/") for folder in folders)
        if deepest <= _BUCKET:
            break
        folders = {folder.rpartition("/")[0] if folder.count("/") == deepest else folder for folder in folders}
    return _Places(pointer.location, snapshot_ids, folders)


def _folders_outside(paths: Iterable[str], own: str) -> Iterator[str]:
    """Yield the folders of files that are not in a table's own folder."""
    for path in paths:
        if not is_within(reach_key(path), own):
            # Another user's name and password is no other place.
            yield _near(_USER.sub(r"\1", path.rpartition("/")[0]))


def _near(folder: str) -> str:
    """Return a folder, or one around it if a writer has made the path longer than it needs to be."""
    if len(folder) > LONGEST_KEY:
        folder = folder[:LONGEST_KEY].rpartition("/")[0]
    return "/".join(folder.split("/")[:_MOST_NAMES])


def _keep(storage: Storage, places: dict[Pointer, _Places]) -> None:
    """Keep the places of tables, and forget those of tables that are gone."""
    row, table = IcebergPlacesRow, IcebergTableRow
    same = and_(*(getattr(table, name) == getattr(row, name) for name in _NAMES))
    with storage.write() as connection:
        hold(connection, _LOCK)
        connection.execute(delete(row).where(~select(table.table_name).where(same).exists()))
        for pointer, own in places.items():
            names = dict(zip(_NAMES, _names(pointer), strict=True))
            connection.execute(delete(row).filter_by(**names))
            connection.execute(
                insert(row).values(
                    **names,
                    metadata_location=own.location,
                    snapshot_ids=sorted(own.snapshot_ids),
                    folders=sorted(own.folders),
                )
            )
