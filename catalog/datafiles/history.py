"""History of the data files of tables: the rows of each revision that a table can be rolled back to.

A revision is a state of a table's files that was published as an Iceberg snapshot. The rows as of revision r are the
data file rows with `revision` <= r, and the former file rows with `revision` <= r < `until_revision`. A file keeps its
id in all its rows. Changes of rows belong to the revision after the last recorded one (`next_revision`), which the
transaction that makes them records; vacuum removes revisions together with their snapshots.

All functions run in the transaction of a caller that has locked the table exclusively.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Insert,
    Select,
    and_,
    delete,
    func,
    insert,
    literal,
    select,
    update,
)

from catalog.model import Table
from catalog.operations.changes import record_changed, record_dropped
from catalog.schemes.model import UNPLACED, NumberedScheme, Scheme
from catalog.storage.bulk import among, batched, insert_rows
from catalog.storage.clock import CurrentMs
from catalog.storage.schema import DataFileRow, FormerFileRow, RevisionRow, TableRow
from catalog.tables.schemes import scheme_from_json

File = TypeVar("File")

_FACTS = ("table_id", "partition_id", "path", "row_count", "size_bytes", "statistics", "operation_number")
"""The columns that data file rows and former file rows have in common, besides ids and revisions."""


@dataclass(frozen=True)
class Recorded:
    """A recorded revision of a table.

    Attributes:
        is_latest: The file rows of the catalog are those of this revision.
        at_ms: Its time by the catalog's clock.
    """

    revision: int
    snapshot_id: int
    is_latest: bool
    at_ms: int


def next_revision(connection: Connection, table: Table) -> int:
    """Return the revision of changes that are not recorded yet; 1 for a table without any recorded revision."""
    last = select(func.max(RevisionRow.revision)).where(RevisionRow.table_id == table.id)
    recorded: int | None = connection.scalar(last)
    return 1 if recorded is None else recorded + 1


def has_recorded(connection: Connection, table: Table) -> bool:
    """Return whether any revision of a table is recorded; after an upgrade none is until the next change."""
    return connection.scalar(select(RevisionRow.revision).where(RevisionRow.table_id == table.id).limit(1)) is not None


def paths_read_by_id(connection: Connection, table: Table) -> set[str]:
    """Return the paths of the present and former files of a table whose columns are found by field ids.

    They are relative to the table's location, or complete if they are elsewhere.
    """
    paths = set[str]()
    for row in (DataFileRow, FormerFileRow):
        query = select(row.path).where(row.table_id == table.id, row.operation_number.is_(None))
        paths.update(connection.scalars(query))
    return paths


def record_revision(
    connection: Connection, table: Table, snapshot_id: int, scheme: Scheme | None, revision: int | None = None
) -> int:
    """Record the current file rows as those of a snapshot, and return their revision.

    Args:
        scheme: The table's scheme in this state; None for a table without one.
        revision: By default the next one; 0 for rows that an earlier version has written.
    """
    revision = next_revision(connection, table) if revision is None else revision
    stored = None if scheme is None else scheme.as_json()
    row = insert(RevisionRow).values(
        table_id=table.id, revision=revision, snapshot_id=snapshot_id, scheme=stored, at_ms=CurrentMs()
    )
    connection.execute(row)
    return revision


def nearest_recorded(connection: Connection, table: Table, snapshot_ids: Iterable[int]) -> Recorded | None:
    """Return the latest revision of the first of some snapshots that has any; None if none of them has.

    Args:
        snapshot_ids: For instance the current snapshot and its ancestors, in this order.
    """
    last = select(func.max(RevisionRow.revision)).where(RevisionRow.table_id == table.id).scalar_subquery()
    row = RevisionRow
    for chunk in batched(snapshot_ids):
        query = select(row.snapshot_id, row.revision, row.revision == last, row.at_ms).where(
            row.table_id == table.id, among(connection, row.snapshot_id, chunk)
        )
        # Later revisions of a snapshot replace earlier ones.
        known = {found[0]: found for found in connection.execute(query.order_by(row.revision))}
        for snapshot_id in chunk:
            if snapshot_id in known:
                _, revision, is_latest, at_ms = known[snapshot_id]
                return Recorded(revision, snapshot_id, bool(is_latest), at_ms)
    return None


def recorded_revisions(connection: Connection, table: Table) -> list[Recorded]:
    """Return all recorded revisions of a table, in order."""
    row = RevisionRow
    query = select(row.revision, row.snapshot_id, row.at_ms).where(row.table_id == table.id).order_by(row.revision)
    rows = connection.execute(query).all()
    return [Recorded(*found[:2], number == len(rows), found.at_ms) for number, found in enumerate(rows, 1)]


def record_changed_partitions(
    connection: Connection,
    table: Table,
    scheme: Scheme,
    filled: Iterable[int] | None = None,
    operation_number: int | None = None,
) -> None:
    """Record, to be announced, which partitions have other files than in the last recorded revision, or are dropped.

    Args:
        table: The table before the change.
        scheme: Its scheme afterwards.
        filled: The partitions that have got files; None to look for them among all files.
        operation_number: The operation that makes the change, if there is one.
    """
    assert table.scheme is not None
    before, after, revision = {*table.scheme.ids}, {*scheme.ids}, next_revision(connection, table)
    row, former = DataFileRow, FormerFileRow
    if filled is None:
        filled = connection.scalars(
            select(row.partition_id).where(row.table_id == table.id, row.revision == revision).distinct()
        )
    emptied = select(former.partition_id).where(former.table_id == table.id, former.until_revision == revision)
    changed = {*filled, *connection.scalars(emptied.distinct()), *(after - before)}
    record_changed(connection, table, changed & after, operation_number)
    record_dropped(connection, table, [str(number) for number in sorted(before - after)], operation_number)


# --- changes of rows --------------------------------------------------------------------------------------------------


def close_rows(connection: Connection, table: Table, file_ids: Sequence[int]) -> list[str]:
    """Remove files from a table, and keep their rows for earlier revisions; return the paths of those it had."""
    chosen = _chosen(connection, table, file_ids)
    # Rows of this very revision are kept, too: vacuum finds the files by them.
    connection.execute(_closing(connection, table, chosen))
    removed = delete(DataFileRow).where(chosen).returning(DataFileRow.path)
    return list(connection.scalars(removed))


def move_rows(connection: Connection, table: Table, file_ids: Sequence[int], partition_id: int) -> int:
    """Assign files to a partition, and keep their rows for earlier revisions; return the number of those it had."""
    revision = next_revision(connection, table)
    chosen = _chosen(connection, table, file_ids)
    connection.execute(_closing(connection, table, and_(chosen, DataFileRow.revision < revision)))
    moved = update(DataFileRow).where(chosen).values(partition_id=partition_id, revision=revision)
    return int(connection.execute(moved).rowcount)


def _chosen(connection: Connection, table: Table, file_ids: Sequence[int]) -> ColumnElement[bool]:
    return and_(DataFileRow.table_id == table.id, among(connection, DataFileRow.id, file_ids))


def _closing(connection: Connection, table: Table, chosen: ColumnElement[bool]) -> Insert:
    """Return the statement that copies data file rows as former ones until the next revision."""
    until = literal(next_revision(connection, table))
    rows = select(
        *(getattr(DataFileRow, name) for name in _FACTS), DataFileRow.id, DataFileRow.revision, until, CurrentMs()
    ).where(chosen)
    return insert(FormerFileRow).from_select([*_FACTS, "file_id", "revision", "until_revision", "retired_at_ms"], rows)


def restore(connection: Connection, table: Table, revision: int) -> Scheme:
    """Restore the file rows and the scheme of a revision, as a change of the next one; return the scheme.

    New partitions still get ids that no partition of the table ever had.

    Args:
        table: A table with a partition scheme, as it is now.
    """
    restore_rows(connection, table, revision)
    recorded = select(RevisionRow.scheme).where(RevisionRow.table_id == table.id, RevisionRow.revision == revision)
    scheme = scheme_from_json(connection.execute(recorded).scalar_one())
    if isinstance(scheme, NumberedScheme) and isinstance(table.scheme, NumberedScheme):
        scheme = replace(scheme, next_id=max(scheme.next_id, table.scheme.next_id))
    connection.execute(update(TableRow).where(TableRow.id == table.id).values(scheme=scheme.as_json()))
    return scheme


def restore_rows(connection: Connection, table: Table, revision: int) -> None:
    """Restore the file rows of a revision, as a change of the next one; the statements are independent of their number.

    Rows that were the same in all revisions since then stay as they are.
    """
    is_later = and_(DataFileRow.table_id == table.id, DataFileRow.revision > revision)
    # Former rows that this closes are not those of the revision: they began after it.
    connection.execute(_closing(connection, table, is_later))
    connection.execute(delete(DataFileRow).where(is_later))
    former = FormerFileRow
    rows = select(
        *(getattr(former, name) for name in _FACTS), former.file_id, literal(next_revision(connection, table))
    ).where(former.table_id == table.id, former.revision <= revision, former.until_revision > revision)
    connection.execute(insert(DataFileRow).from_select([*_FACTS, "id", "revision"], rows))


# --- the end of revisions ---------------------------------------------------------------------------------------------


def ended_revisions(connection: Connection, table: Table, kept_snapshot_ids: Collection[int]) -> list[int]:
    """Return the revisions of snapshots that no longer exist, except the latest revision."""
    return [
        recorded.revision
        for recorded in recorded_revisions(connection, table)
        if not recorded.is_latest and recorded.snapshot_id not in kept_snapshot_ids
    ]


def forget_revisions(connection: Connection, table: Table, revisions: Iterable[int]) -> None:
    """Remove revisions, to which the table can then not be rolled back."""
    for chunk in batched(revisions):
        chosen = among(connection, RevisionRow.revision, chunk)
        connection.execute(delete(RevisionRow).where(RevisionRow.table_id == table.id, chosen))


def former_files(
    connection: Connection, table_id: int, cutoff_ms: int, kept_snapshot_ids: Collection[int] | None = None
) -> Select[int, int, str, int, bool]:
    """Return a query of the former rows, closed before a time, that no revision has; in the order of their index.

    A row has the column `is_live`: the table has the file again, or still, in another row.

    Args:
        table_id: 0 for tables that were dropped by an earlier version.
        kept_snapshot_ids: Only revisions of these snapshots count; None for all that are recorded.
    """
    row, live = FormerFileRow, DataFileRow
    has_row = and_(
        RevisionRow.table_id == row.table_id,
        RevisionRow.revision >= row.revision,
        RevisionRow.revision < row.until_revision,
    )
    if kept_snapshot_ids is not None:
        has_row = and_(has_row, among(connection, RevisionRow.snapshot_id, sorted(kept_snapshot_ids)))
    is_live = select(live.id).where(live.id == row.file_id, live.table_id == row.table_id).exists()
    return (
        select(row.number, row.until_revision, row.path, row.size_bytes, is_live.label("is_live"))
        .where(row.table_id == table_id, row.retired_at_ms <= cutoff_ms)
        .where(~select(RevisionRow.revision).where(has_row).exists())
        .order_by(row.until_revision, row.number)
    )


def with_paths(
    connection: Connection, row: type[DataFileRow | FormerFileRow], table: Table, paths: Sequence[str]
) -> ColumnElement[bool]:
    """Return the condition that rows are those of some files of a table.

    Args:
        paths: Relative to the table's location; not more than fit into one statement.
    """
    # An index on the path exists for live files only. SQLite, without statistics, would prefer that on the table, and
    # read all rows of the table: an expression is no column of an index.
    of_table = row.table_id + 0 if row is DataFileRow else row.table_id
    return and_(of_table == table.id, among(connection, row.path, paths))


def file_ids(connection: Connection, table: Table, paths: Iterable[str]) -> list[int]:
    """Return the ids of a table's files, by their paths relative to its location; those without a row are left out."""
    return [
        file_id
        for chunk in batched(paths)
        for file_id in connection.scalars(
            select(DataFileRow.id).where(with_paths(connection, DataFileRow, table, chunk))
        )
    ]


def unknown_files(connection: Connection, table: Table, files: Mapping[str, File]) -> dict[str, File]:
    """Return the files, of some, that no row of a table names.

    Args:
        files: Relative path → anything; not more than fit into one statement.
    """
    unknown = dict(files)
    for row in (DataFileRow, FormerFileRow):
        named = select(row.path).where(with_paths(connection, row, table, list(files)))
        for path in connection.scalars(named):
            unknown.pop(path, None)
    return unknown


def add_former_files(connection: Connection, table: Table, sizes: Mapping[str, int], retired_at_ms: int) -> None:
    """Add rows of files that are in no recorded revision, so that vacuum deletes them when no metadata refer to them.

    Args:
        sizes: Relative path → size.
    """
    columns = (*_FACTS, "file_id", "revision", "until_revision", "retired_at_ms")
    rows = ((table.id, UNPLACED, path, 0, size, "{}", None, 0, 0, 0, retired_at_ms) for path, size in sizes.items())
    insert_rows(connection, FormerFileRow, columns, rows)


def forget_files(connection: Connection, numbers: Sequence[int]) -> None:
    """Remove former rows by their numbers."""
    connection.execute(delete(FormerFileRow).where(among(connection, FormerFileRow.number, numbers)))
