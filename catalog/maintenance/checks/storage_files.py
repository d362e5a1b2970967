"""The files that exist, folder by folder, and those of them that nothing names."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import select

from catalog.files.filesystem import Folder, in_parallel, is_hidden
from catalog.files.locations import complete_path, reach_key
from catalog.iceberg.places import HIDDEN, METADATA
from catalog.iceberg.reachability import Reachability
from catalog.maintenance.checks.ledgers import Found, Ledger, Stored
from catalog.maintenance.findings import SHOWN, Finding, FindingKind, found
from catalog.model import GRACE, Table
from catalog.operations.attempts import attempts_among
from catalog.settings.places import require_location
from catalog.storage import Storage
from catalog.storage.bulk import batched
from catalog.storage.schema import FormerFileRow

_LISTED_AT_ONCE = 256


def add_stored_files(ledger: Ledger, location: str | None) -> None:
    """Add the files in a table's folder, and in all other folders of its live files, to a ledger.

    Args:
        location: The table's folder; None if it is unknown.

    Raises:
        StorageError: A folder cannot be listed.
        LocationNotAllowedError: Live files are outside the allowed folders.
    """
    if location is not None:
        require_location(location)
        ledger.add("stored", _walk(location))
    inside = "" if location is None else f"{location}/"
    folders = ledger.rows(
        "SELECT DISTINCT folder FROM listed WHERE is_live AND substr(folder || '/', 1, length(?)) != ?", inside, inside
    )
    elsewhere = (
        folder for (folder,) in folders if not inside or not f"{reach_key(folder)}/".startswith(_key(location))
    )
    ledger.add("stored", _files_of(elsewhere))


def _key(location: str | None) -> str:
    return "" if location is None else f"{reach_key(location)}/"


def _files_of(folders: Iterator[str]) -> Iterator[Stored]:
    def listed(folder: str) -> list[Stored]:
        require_location(folder)
        return [
            Stored(reach_key(info.path), info.path, info.size_bytes, info.modified_at_ms)
            for info, is_folder in Folder(folder).entries(recursive=False)
            if not is_folder
        ]

    for files in in_parallel(listed, folders):
        yield from files


def _walk(location: str) -> Iterator[Stored]:
    """Yield the files below a folder; the names of some folders are in memory at once, and the files of some."""
    root = Folder(location)

    def listed(name: str) -> tuple[list[str], list[Stored]]:
        folders, files = [], []
        for info, is_folder in (root.inside(name) if name else root).entries(recursive=False):
            base = info.path.rpartition("/")[2]
            if not is_folder:
                files.append(Stored(reach_key(info.path), info.path, info.size_bytes, info.modified_at_ms))
            else:
                folders.append(f"{name}/{base}" if name else base)
        return folders, files

    pending = [""]
    while pending:
        names, pending = pending[-_LISTED_AT_ONCE:], pending[:-_LISTED_AT_ONCE]
        for folders, files in in_parallel(listed, names):
            pending += folders
            yield from files


def find_unknown_files(
    storage: Storage, ledger: Ledger, name: str, own: Table | None, location: str
) -> Iterator[Finding]:
    """Yield the finding of files in a table's folder that no table has, or had, and that no operation has written.

    Files of operations that did not commit are left to vacuum, and those younger than the grace period to writers.
    """
    if own is not None:
        with storage.read() as connection:
            query = select(FormerFileRow.path).where(FormerFileRow.table_id == own.id)
            paths = connection.scalars(query, execution_options={"yield_per": 10_000})
            ledger.add("former", ((reach_key(complete_path(location, path)),) for path in paths))
    before_ms = storage.now_ms() - int(GRACE.total_seconds() * 1000)
    rows = ledger.rows(
        "SELECT s.path FROM stored s WHERE s.modified_at_ms < ? AND NOT EXISTS (SELECT 1 FROM listed l WHERE "
        "l.key = s.key) AND NOT EXISTS (SELECT 1 FROM recorded r WHERE r.key = s.key) AND NOT EXISTS (SELECT 1 FROM "
        "former f WHERE f.key = s.key) ORDER BY s.path",
        before_ms,
    )
    candidates = (path for (path,) in rows if not _is_working_file(storage, path.removeprefix(f"{location}/")))
    remedy = "Nothing reads them. Look at them, and delete them if nobody needs them"
    unknown = _unreached(storage, candidates, location)
    yield from found(FindingKind.UNKNOWN_FILES, name, unknown.texts, remedy, unknown.count)


def _is_working_file(storage: Storage, path: str) -> bool:
    """Return whether a file, given relative to the table's folder, belongs to metadata, an attempt, or a writer."""
    parts = path.split("/")
    if parts[0] == HIDDEN:
        parts = parts[1:]
    if parts[0] == METADATA or any(map(is_hidden, parts)):
        return True
    return any(attempts_among(storage, parts[:1]))


def _unreached(storage: Storage, paths: Iterator[str], location: str) -> Found:
    """Return those of some files that no Iceberg table reaches."""
    count, texts, reachability = 0, list[str](), None
    for batch in batched(paths):
        reachability = reachability or Reachability(storage)
        reached = reachability.reached(batch)
        for path in batch:
            if path not in reached:
                count += 1
                if len(texts) < SHOWN:
                    texts.append(path.removeprefix(f"{location}/"))
    return Found(count, tuple(texts))
