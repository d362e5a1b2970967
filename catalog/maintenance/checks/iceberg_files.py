"""Checks of tables with Iceberg's metadata: the metadata, the file rows that mirror them, and the files themselves.

All kinds of tables are checked in one way: the files that the live metadata name are compared with the file rows, if
the catalog has any, and with the storage. File rows are not compared while an engine's commit is still to be taken in.
"""

from __future__ import annotations

import json
import marshal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, select

from catalog.datafiles.bounds import bounds_statistics
from catalog.datafiles.files import ColumnStatistics
from catalog.datafiles.intake import compared_columns
from catalog.datafiles.pruning import partitions_of_file
from catalog.errors import PartitionValueError
from catalog.files.filesystem import in_parallel
from catalog.files.locations import complete_path, reach_key
from catalog.iceberg.documents.tables import NAME_MAPPING
from catalog.iceberg.layout import mapped_ids
from catalog.iceberg.pointers import Pointer, find_pointer
from catalog.iceberg.trees import DATA, ListedFile, MetadataTree
from catalog.maintenance.checks.contents import ContentReader, Expected
from catalog.maintenance.checks.ledgers import Found, Ledger, Listed, Recorded
from catalog.maintenance.checks.storage_files import add_stored_files, find_unknown_files
from catalog.maintenance.findings import SHOWN, Depth, Finding, FindingKind, found, not_checked
from catalog.model import Table
from catalog.partitions.records import values_of
from catalog.partitions.snapshots import UNPARTITIONED
from catalog.schemes.model import UNPLACED, Scheme
from catalog.storage import Storage
from catalog.storage.schema import DataFileRow, PartitionRow
from catalog.storage.values import ValueEncoder
from catalog.tables.definitions import Definitions

_CUT_BYTES = 128
"""Bounds of this length may be cut in one of two places, so they are not compared."""

_ONLY_IDENTITY, _NO_PARTITION, _OTHER_PARTITION = b"", b"no partition", b"another partition"
"""Identities of files whose partition is known by its id only, and of those in a partition that does not exist."""

_IS_DATA = f"l.is_live AND l.content = {DATA}"


_ROWS_DIFFER = "(r.row_count != l.row_count OR r.size_bytes != l.size_bytes OR r.identity != l.identity)"

_ROW_QUERIES = {
    FindingKind.MISSING_FILE_ROWS: f"""
        SELECT l.path FROM listed l
        WHERE {_IS_DATA} AND NOT EXISTS (SELECT 1 FROM recorded r WHERE r.key = l.key)""",
    FindingKind.EXTRA_FILE_ROWS: f"""
        SELECT r.path FROM recorded r
        WHERE NOT EXISTS (SELECT 1 FROM listed l WHERE l.key = r.key AND {_IS_DATA})""",
    FindingKind.DOUBLED_FILE_ROWS: "SELECT min(path) FROM recorded GROUP BY key HAVING count(*) > 1",
    FindingKind.WRONG_FILE_ROWS: f"""
        SELECT r.path || CASE
            WHEN r.row_count != l.row_count THEN ' with ' || r.row_count || ' row(s) instead of ' || l.row_count
            WHEN r.size_bytes != l.size_bytes THEN ' with ' || r.size_bytes || ' byte(s) instead of ' || l.size_bytes
            ELSE ' in another partition' END
        FROM recorded r JOIN listed l ON l.key = r.key
        WHERE {_IS_DATA} AND {_ROWS_DIFFER}""",
}


@dataclass(frozen=True)
class IcebergTable:
    """A table with Iceberg's metadata.

    Attributes:
        own: Its definition in the catalog; None for a table that only engines know.
    """

    pointer: Pointer
    own: Table | None = None

    @property
    def name(self) -> str:
        """Its name, as findings have it."""
        return self.pointer.full_name

    @property
    def has_file_rows(self) -> bool:
        """Whether the catalog has a row for each of its data files."""
        return self.own is not None and self.own.has_file_rows


class IcebergCheck:
    """The check of tables with Iceberg's metadata in one catalog."""

    def __init__(self, storage: Storage, definitions: Definitions, depth: Depth) -> None:
        """Set the storage, the definitions in it, and how far data files are looked into."""
        self._storage = storage
        self._definitions = definitions
        self._depth = depth
        self._locations: list[tuple[str, IcebergTable]] = []

    def __call__(self, table: IcebergTable, *, is_busy: bool) -> Iterator[Finding]:
        """Yield the findings of one table.

        Args:
            is_busy: An operation may be writing files that nothing names yet.
        """
        findings = list(self._findings(table, is_busy=is_busy))
        pointer = table.pointer
        with self._storage.read() as connection:
            location = find_pointer(connection, pointer.database, pointer.name, pointer.catalog)
        if findings and location != pointer.location:
            yield not_checked(table.name, "it was changed during the check", "Check again")
        else:
            yield from findings

    def _findings(self, table: IcebergTable, *, is_busy: bool) -> Iterator[Finding]:
        with Ledger() as ledger:
            is_mirrored = table.has_file_rows and self._record(ledger, table)
            tree = MetadataTree(table.pointer.location, reads_partitions=is_mirrored)
            ledger.add("listed", self._listed(table, tree, is_mirrored=is_mirrored))
            ledger.index()
            yield from _unreadable(table, tree)
            yield from _hidden(table, tree)
            is_complete = tree.document is not None and tree.is_complete
            if is_mirrored and is_complete:
                yield from _compare_rows(table, ledger)
            if is_mirrored and not is_complete:
                # The rows name the files that the metadata no longer do.
                ledger.list_recorded()
            location = table.own.location if table.own is not None else (tree.document or {}).get("location")
            if location is not None:
                self._locations.append((f"{reach_key(location)}/", table))
            add_stored_files(ledger, location)
            yield from _compare_storage(table, ledger, location or "")
            if self._depth > Depth.SIZES:
                yield from self._contents(table, ledger, tree, location or "")
            if is_complete and not is_busy and location:
                yield from find_unknown_files(self._storage, ledger, table.name, table.own, location)

    def shared_locations(self) -> Iterator[Finding]:
        """Yield the tables of engines whose folder is, contains, or lies in that of another checked table."""
        around: list[tuple[str, IcebergTable]] = []
        for key, table in sorted(self._locations, key=itemgetter(0)):
            while around and not key.startswith(around[-1][0]):
                around.pop()
            if around and None in (table.own, around[-1][1].own):
                place = f"{key[:-1]} overlaps {around[-1][0][:-1]} of table {around[-1][1].name}"
                remedy = "Set another location by the engine, and rewrite the files, or drop one without its files"
                yield from found(FindingKind.SHARED_LOCATION, table.name, [place], remedy)
            around.append((key, table))

    def _record(self, ledger: Ledger, table: IcebergTable) -> bool:
        """Add the file rows of a table to a ledger; return whether they mirror the live metadata."""
        assert table.own is not None
        with self._storage.read() as connection:
            own = self._definitions.get_table(table.own.full_name, connection)
            ledger.add("recorded", recorded_files(connection, own))
        return own.id == table.own.id and own.published_location == table.pointer.location

    def _listed(self, table: IcebergTable, tree: MetadataTree, *, is_mirrored: bool) -> Iterator[Listed]:
        entry_of = Entries(table.own if is_mirrored else None, keeps_bounds=self._depth > Depth.SIZES)
        return map(entry_of, tree.files())

    def _contents(self, table: IcebergTable, ledger: Ledger, tree: MetadataTree, location: str) -> Iterator[Finding]:
        """Read the files that have the recorded sizes."""
        reader = ContentReader(self._depth, _names_in_files(tree))
        rows = ledger.rows(
            "SELECT DISTINCT l.path, l.format, l.size_bytes, l.row_count, l.bounds FROM listed l "
            "JOIN stored s ON s.key = l.key AND s.size_bytes = l.size_bytes WHERE l.is_live AND l.content >= 0"
        )

        def read(file: Expected) -> tuple[str, str | None]:
            return file.path, reader.problem_of(file)

        files = (Expected(path, form.lower(), *facts) for path, form, *facts in rows)
        problems = _first((path, problem) for path, problem in in_parallel(read, files) if problem is not None)
        yield from _of_files(FindingKind.CHANGED_FILES, table, problems, location, _restore(table))


class Entries:
    """Converter of the files that metadata list to rows of a ledger."""

    def __init__(self, mirrored: Table | None, *, keeps_bounds: bool) -> None:
        """Set the table whose file rows are compared, if any, and whether footers will be compared."""
        self._keeps_bounds = keeps_bounds
        self._is_mirrored = mirrored is not None
        self._columns = {} if mirrored is None or mirrored.scheme is None else compared_columns(mirrored)
        self._has_keys = mirrored is not None and mirrored.is_stored_as_iceberg and bool(mirrored.partition_keys)
        if mirrored is not None and self._has_keys:
            encoder, table = ValueEncoder(mirrored), mirrored

            @lru_cache(maxsize=10_000)
            def identity(record: tuple[Any, ...]) -> bytes:
                try:
                    return encoder.encode_all([values_of(table, record)]).identities[0]
                except PartitionValueError:
                    return b"none that the catalog can have"

            self._identity = identity

    def __call__(self, listed: ListedFile) -> Listed:
        """Return the row of a file."""
        file = listed.file
        is_compared = listed.is_live and listed.content == DATA
        identity = None
        if is_compared and self._is_mirrored:
            identity = self._identity(file.partition) if self._has_keys else _ONLY_IDENTITY
        statistics = None
        if is_compared and self._columns:
            known = bounds_statistics(file, self._columns)
            statistics = json.dumps({name: column.as_json() for name, column in known.items()}, separators=(",", ":"))
        bounds = None
        if is_compared and self._keeps_bounds:
            bounds = marshal.dumps((dict(file.lower_bounds), dict(file.upper_bounds)))
        return Listed(
            reach_key(file.path),
            file.path,
            file.path.rpartition("/")[0],
            listed.content,
            listed.is_live,
            file.format,
            file.row_count,
            file.size_bytes,
            identity,
            statistics,
            bounds,
        )


def _may_be_in(scheme: Scheme, statistics_json: str, partition_id: int) -> bool:
    """Return whether rows of a file with these statistics may be in a partition; a file may be in none yet."""
    if partition_id == UNPLACED:
        return True
    stored = json.loads(statistics_json).get(scheme.column)
    known = {} if stored is None else {scheme.column: ColumnStatistics.from_json(stored)}
    return bool(partitions_of_file(scheme, known, [partition_id]))


def recorded_files(connection: Connection, table: Table) -> Iterator[Recorded]:
    """Yield the file rows of a table."""
    row, known_ids = DataFileRow, {UNPARTITIONED} if table.scheme is None else {UNPLACED, *table.scheme.ids}
    facts = row.path, row.row_count, row.size_bytes, row.statistics, row.partition_id
    query = select(*facts, PartitionRow.identity).outerjoin(
        PartitionRow, (PartitionRow.id == row.partition_id) & (PartitionRow.table_id == row.table_id)
    )
    rows = connection.execute(query.where(row.table_id == table.id), execution_options={"yield_per": 10_000})
    for path, row_count, size_bytes, statistics, partition_id, identity in rows:
        complete = complete_path(table.location, path)
        own = bytes(identity or _NO_PARTITION)
        if table.scheme is not None or not table.partition_keys:
            own = _ONLY_IDENTITY if partition_id in known_ids else _NO_PARTITION
        if (
            table.scheme is not None
            and own == _ONLY_IDENTITY
            and not _may_be_in(table.scheme, statistics, partition_id)
        ):
            own = _OTHER_PARTITION
        known = None if table.scheme is None else statistics
        yield Recorded(reach_key(complete), complete, complete.rpartition("/")[0], row_count, size_bytes, own, known)


def _unreadable(table: IcebergTable, tree: MetadataTree) -> Iterator[Finding]:
    remedy = (
        "Restore the files from a backup. Snapshots that need them can be expired; if the current one does, register "
        "earlier metadata, or roll the table back: CALL "
        f"calve.system.rollback_to_snapshot('{table.name}', SNAPSHOT_ID)"
    )
    yield from found(FindingKind.UNREADABLE_METADATA, table.name, list(map(str, tree.damaged)), remedy)


def _hidden(table: IcebergTable, tree: MetadataTree) -> Iterator[Finding]:
    remedy = f"Filters miss these files: rewrite the manifests by Spark, CALL system.rewrite_manifests('{table.name}')"
    places = list(map(str, tree.hidden))
    yield from found(FindingKind.WRONG_SUMMARIES, table.name, places, remedy, tree.hidden_count)


def _compare_rows(table: IcebergTable, ledger: Ledger) -> Iterator[Finding]:
    """Compare the file rows with the files of the current snapshot."""
    assert table.own is not None
    remedy, location = f"`calve check {table.name} --repair` renews them from the snapshot", table.own.location
    for kind, query in _ROW_QUERIES.items():
        yield from _of_files(kind, table, ledger.found(query), location, remedy)
    wrong = _first((path, "with other bounds") for _, path in _with_other_bounds(ledger))
    yield from _of_files(FindingKind.WRONG_FILE_ROWS, table, wrong, location, remedy)


def _with_other_bounds(ledger: Ledger) -> Iterator[tuple[str, str]]:
    """Yield the keys and paths of file rows whose statistics exclude values that the files have."""
    differing = ledger.rows(
        "SELECT r.key, r.path, r.statistics, l.statistics FROM recorded r JOIN listed l ON l.key = r.key "
        f"WHERE {_IS_DATA} AND r.statistics != l.statistics"
    )
    return ((key, path) for key, path, own, listed in differing if _excludes(own, listed))


def find_wrong_keys(ledger: Ledger) -> Iterator[str]:
    """Yield the keys of files whose rows are missing, superfluous, repeated or wrong, some more than once."""
    for query in (
        f"SELECT l.key FROM listed l WHERE {_IS_DATA} AND NOT EXISTS (SELECT 1 FROM recorded r WHERE r.key = l.key)",
        f"SELECT key FROM recorded r WHERE NOT EXISTS (SELECT 1 FROM listed l WHERE l.key = r.key AND {_IS_DATA})",
        "SELECT key FROM recorded GROUP BY key HAVING count(*) > 1",
        f"SELECT r.key FROM recorded r JOIN listed l ON l.key = r.key WHERE {_IS_DATA} AND {_ROWS_DIFFER}",
    ):
        yield from (key for (key,) in ledger.rows(query))
    yield from (key for key, _ in _with_other_bounds(ledger))


def _excludes(recorded: str, listed: str) -> bool:
    """Return whether statistics of a file row exclude values that the file has."""
    claimed: Mapping[str, Any] = json.loads(recorded)
    for name, stored in json.loads(listed).items():
        if name in claimed and _is_narrower(
            ColumnStatistics.from_json(claimed[name]), ColumnStatistics.from_json(stored)
        ):
            return True
    return False


def _is_narrower(own: ColumnStatistics, listed: ColumnStatistics) -> bool:
    if listed.null_count and own.null_count == 0:
        return True
    if listed.low is None or listed.high is None:
        return False
    if own.low is None or own.high is None:
        return True
    if max(map(len, (own.low, own.high, listed.low, listed.high))) >= _CUT_BYTES:
        return False
    return own.low > listed.low or own.high < listed.high


def _compare_storage(table: IcebergTable, ledger: Ledger, location: str) -> Iterator[Finding]:
    """Compare the files that the metadata name with those that exist."""
    missing = (
        "SELECT DISTINCT l.path FROM listed l WHERE l.is_live AND NOT EXISTS (SELECT 1 FROM stored s "
        "WHERE s.key = l.key)"
    )
    changed = (
        "SELECT DISTINCT l.path || ' has ' || s.size_bytes || ' byte(s), ' || l.size_bytes || ' are recorded' "
        "FROM listed l JOIN stored s ON s.key = l.key WHERE l.is_live AND l.size_bytes != s.size_bytes"
    )
    doubled = f"SELECT min(l.path) FROM listed l WHERE {_IS_DATA} GROUP BY l.key HAVING count(*) > 1"
    yield from _of_files(FindingKind.MISSING_FILES, table, ledger.found(missing), location, _restore(table))
    yield from _of_files(FindingKind.CHANGED_FILES, table, ledger.found(changed), location, _restore(table))
    remedy = "Readers return their rows more than once: delete the rows, and insert them again"
    yield from _of_files(FindingKind.DOUBLED_FILES, table, ledger.found(doubled), location, remedy)


def _restore(table: IcebergTable) -> str:
    return (
        "Restore them from a backup, or roll the table back to a snapshot without them: CALL "
        f"calve.system.rollback_to_snapshot('{table.name}', SNAPSHOT_ID)"
    )


def _names_in_files(tree: MetadataTree) -> dict[str, int]:
    """Return the field ids of columns by their names in files without field ids."""
    text = (tree.document or {}).get("properties", {}).get(NAME_MAPPING, "[]")
    try:
        return {path[0]: field_id for path, field_id in mapped_ids(text).items() if len(path) == 1 and field_id}
    except ValueError:
        return {}


def _first(problems: Iterator[tuple[str, str]]) -> Found:
    """Return the number of problems of files, and the first of them."""
    count, texts = 0, list[str]()
    for path, problem in problems:
        count += 1
        if len(texts) < SHOWN:
            texts.append(f"{path} {problem}")
    return Found(count, tuple(texts))


def _of_files(kind: FindingKind, table: IcebergTable, files: Found, location: str, remedy: str) -> Iterator[Finding]:
    """Yield the finding about some files, whose paths are shown relative to the table's location."""
    yield from found(kind, table.name, [text.removeprefix(f"{location}/") for text in files.texts], remedy, files.count)
