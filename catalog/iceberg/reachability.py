"""Find all files that the Iceberg tables of a catalog can reach, wherever they are.

Every deletion of files checks this first. Current metadata reference their previous metadata, statistics, and through
all snapshots (including those of branches and tags) manifest lists, manifests, data files and delete files. Paths are
compared by `catalog.files.locations.reach_key`. If metadata cannot be read, their references are unknown, so nothing is
deleted where their table has, or had, files.

Only the tables that may have files at the queried paths are asked (`catalog.iceberg.file_places`). Memory holds the
queried paths and the manifests of one table, but never the files of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from sqlalchemy import select

from catalog.errors import UnreadableMetadataError
from catalog.files.locations import folders_above, overlap, reach_key
from catalog.iceberg.file_places import FilePlaces
from catalog.iceberg.named_files import UnreadableFileError, data_paths, home, known_folders, metadata_paths
from catalog.iceberg.pointers import Pointer, all_pointers, shared_locations
from catalog.storage import Storage
from catalog.storage.schema import DatabaseRow, OperationRow, TableRow


@dataclass(frozen=True)
class Unreadable:
    """Metadata of a table that cannot be read.

    Attributes:
        path: Of the file.
        roots: Folders in which the table has, or had, files; as `reach_key` returns them.
    """

    table: str
    path: str
    reason: str
    roots: frozenset[str]


class Reachability:
    """The files that Iceberg tables reach from their metadata pointers at the time of construction."""

    def __init__(self, storage: Storage) -> None:
        """Read the pointers; metadata are read by the first query."""
        self._storage = storage
        with storage.read() as connection:
            self._pointers = all_pointers(connection)
        self._unreadable: dict[Pointer, Unreadable] = {}

    @cached_property
    def _places(self) -> FilePlaces:
        """The folders in which the tables have files."""
        places = FilePlaces(self._storage, self._pointers)
        for pointer, error in places.unreadable.items():
            self._unreadable[pointer] = self._describe(pointer, error)
        return places

    def reached(
        self, paths: Iterable[str], spared: Iterable[str] = (), *, besides: Collection[str] = ()
    ) -> dict[str, str]:
        """Return the given files and folders that are referenced, or contain referenced files → a table that does.

        Args:
            spared: Folders inside the given ones that are ignored, because nothing in them will be deleted.
            besides: Tables whose references do not count, `database.name`: the catalog knows their files.

        Raises:
            UnreadableMetadataError: Metadata of a table that may reference them cannot be read.
        """
        keys: dict[str, list[str]] = {}
        for path in paths:
            keys.setdefault(reach_key(path), []).append(path)
        question = _Question(keys, map(reach_key, spared))
        # Usually the queried metadata files are all referenced by their own table's metadata.
        around = {folder for key in keys for folder in folders_above(key)}
        others = [pointer for pointer in self._pointers if pointer.full_name not in besides]
        self._ask([pointer for pointer in others if home(pointer.location) in around], question, metadata_paths)
        if question.rest:
            near = self._places.near(question.rest)
            candidates = [pointer for pointer in others if pointer in near]
            self._ask(candidates, question, metadata_paths)
            self._ask(candidates, question, data_paths)
        if question.rest:
            self._refuse_unreadable(question.rest, besides)
        return {path: table for key, table in question.reached.items() for path in keys[key]}

    @property
    def unreadable(self) -> list[Unreadable]:
        """The tables whose metadata could not be read so far; unreached paths were checked against all tables."""
        return list(self._unreadable.values())

    def _ask(self, pointers: Iterable[Pointer], question: _Question, names: Callable[[Pointer], Iterator[str]]) -> None:
        for pointer in pointers:
            if not question.rest:
                return
            if pointer in self._unreadable:
                continue
            try:
                for path in names(pointer):
                    question.answer(reach_key(path), pointer)
                    if not question.rest:
                        return
            except UnreadableFileError as error:
                self._unreadable[pointer] = self._describe(pointer, error)

    def _refuse_unreadable(self, keys: Collection[str], besides: Collection[str]) -> None:
        for pointer, unreadable in self._unreadable.items():
            if pointer.full_name in besides:
                continue
            for key in keys:
                if any(overlap(key, root) for root in unreadable.roots):
                    raise UnreadableMetadataError(unreadable.table, unreadable.path, unreadable.reason)

    def _describe(self, pointer: Pointer, error: UnreadableFileError) -> Unreadable:
        """Return the unreadable file, with all folders that the catalog associates with the table."""
        name = f"{pointer.database}.{pointer.name}"
        roots = {home(pointer.location), *({} if pointer.previous is None else {home(pointer.previous)})}
        with self._storage.read() as connection:
            own = (
                select(TableRow.location)
                .join(DatabaseRow, TableRow.database_id == DatabaseRow.id)
                .where(DatabaseRow.name == pointer.database, TableRow.name == pointer.name)
            )
            roots.update(map(reach_key, connection.scalars(own)))
            for location, database, table in shared_locations(connection):
                if (database, table) == (pointer.database, pointer.name):
                    roots.add(reach_key(location))
            target = OperationRow.request["target"].as_string()
            written = select(OperationRow.request).where((OperationRow.table_name == name) | (target == name))
            for request in connection.scalars(written):
                if location := request.get("location"):
                    roots.add(reach_key(location))
        known = known_folders(pointer)
        return Unreadable(pointer.full_name, error.path, error.reason, frozenset(roots | known))


class _Question:
    """Paths that are each answered when metadata reference the path, or a file inside it."""

    def __init__(self, keys: Iterable[str], spared: Iterable[str] = ()) -> None:
        self.rest = set(keys)
        self.reached: dict[str, str] = {}
        self._spared = frozenset(spared)

    def answer(self, key: str, pointer: Pointer) -> None:
        folders = _folders(key.rpartition("/")[0])
        if not self._spared.isdisjoint(folders):
            return
        for answered in self.rest.intersection((key, *folders)):
            self.rest.discard(answered)
            self.reached[answered] = pointer.full_name


@lru_cache(maxsize=1_024)
def _folders(key: str) -> tuple[str, ...]:
    """Return a folder and its parents; cached, because data files come folder by folder."""
    return tuple(folders_above(key))
