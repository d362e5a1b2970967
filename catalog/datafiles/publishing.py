"""Publication of tables whose files the catalog records as Iceberg tables, which other engines read.

The file rows of the catalog are its index of the table's current snapshot. Each change of these rows, of the scheme or
of the definition publishes new metadata in the same transaction. Metadata of transactions that were rolled back are
left to vacuum.

PyIceberg is imported late: that takes longer than answering a statement.
"""

from __future__ import annotations

import json
import logging
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import Connection, select, update

from catalog.datafiles.files import NewFile
from catalog.datafiles.history import has_recorded, record_revision
from catalog.errors import PlanConflictError, StorageError
from catalog.files.failures import storage_errors
from catalog.files.filesystem import Folder
from catalog.iceberg.documents.tables import NAME_MAPPING
from catalog.iceberg.places import METADATA
from catalog.iceberg.pointers import CATALOG, Pointer, hold_pointer, insert_pointer, move_pointer, rename_pointer
from catalog.model import Table
from catalog.storage.clock import read_clock_ms
from catalog.storage.schema import CatalogRow, TableRow
from catalog.tables.schemes import scheme_from_json

if TYPE_CHECKING:
    from catalog.iceberg.layout import Layout
    from catalog.iceberg.manifests import WrittenManifest
    from catalog.iceberg.named_files import Expired
    from catalog.iceberg.snapshots import AddedFile, Definition, SnapshotChange, Snapshots

log = logging.getLogger(__name__)

SCHEME_PROPERTY = "calve.scheme"
"""The table property with the partition scheme, as JSON (`Scheme.as_json`)."""

_DELETION = "gc.enabled"
"""The table property that allows engines to delete files."""

_BOUND_MODE = "truncate(128)"
"""Iceberg's metrics mode of the columns by which files are pruned: bounds are exact up to this number of characters."""


@dataclass(frozen=True)
class PreparedFiles:
    """Manifests of data files, written before the transaction that publishes them."""

    manifests: Sequence[WrittenManifest]
    size_bytes: int


@dataclass(frozen=True)
class FileSwap:
    """The data files that a change adds to a table and removes from it.

    Attributes:
        prepared: Added files whose manifests are written already.
        removed: Paths relative to the table's location.
        marks: Entries for the snapshot's summary.
        is_overwrite: Other rows replace the removed ones (`SnapshotChange.is_overwrite`).
    """

    added: Iterable[NewFile] = ()
    prepared: PreparedFiles | None = None
    removed: Sequence[str] = ()
    marks: Mapping[str, str] | None = None
    is_overwrite: bool = False


def publish(
    connection: Connection,
    table: Table,
    swap: FileSwap | None = None,
    *,
    rolled_back_to: int | None = None,
    has_moved: bool = False,
) -> None:
    """Publish the current state of a table that the caller's transaction has locked or created.

    The file rows are recorded as those of a new snapshot, or of the one that the table is rolled back to.

    Args:
        table: The table after the change, with the metadata location from before.
        swap: The change of its files, for a new snapshot; None if only the definition changed.
        rolled_back_to: The snapshot that has the table's files now, without a swap.
        has_moved: The table, which has no files, has another folder than before.

    Raises:
        UnsupportedIcebergTypeError, ReservedColumnError: Iceberg has no such columns.
        TableAlreadyExistsError: A new table has the name of an Iceberg table or view.
        PlanConflictError: The published files are not those of the catalog.
        UnreadableMetadataError: The current metadata are damaged.
        StorageError: The metadata cannot be read or written.
    """
    from catalog.iceberg.snapshots import write_next

    before, definition = table.published_location, published_definition(connection, table)
    change = None if swap is None else _snapshot_change(table, swap)
    has_new_files = swap is not None or rolled_back_to is not None
    if has_new_files:
        ensure_recorded(connection, table)
    with translated_errors(table):
        written = write_next(before, definition, change, rolled_back_to=rolled_back_to, has_moved=has_moved)
    _show(connection, table, written.location, has_previous=not has_moved)
    if rolled_back_to is not None or (table.delete_file_count and swap is not None):
        from catalog.iceberg.deletes import delete_file_count

        with translated_errors(table):
            count = delete_file_count(written.location)
        connection.execute(update(TableRow).where(TableRow.id == table.id).values(delete_file_count=count))
    if has_new_files and written.snapshot_id is not None:
        record_revision(connection, table, written.snapshot_id, table.scheme)


def correct_names(connection: Connection, table: Table, before: Mapping[str, str], after: Mapping[str, str]) -> bool:
    """Publish a table if others have given a column names that another one has in files without field ids.

    Iceberg's libraries do so where a column gets the name of a dropped one, whose values would come back.

    Args:
        before, after: The properties of the table's metadata before and after their commits.

    Returns:
        Whether it was published. A reader may not be allowed to write metadata; then the next change publishes it.

    Raises:
        CatalogError: As for `publish`.

    Source: Iceberg's `MappingUtil.update`.
    """
    from catalog.iceberg.layout import mapped_ids

    given = after.get(NAME_MAPPING, "[]")
    if given == before.get(NAME_MAPPING):
        return False
    known = dict[tuple[str, ...], int]()
    with suppress(ValueError):
        known = mapped_ids(given)
    if mapped_ids(published_layout(table).name_mapping()).items() <= known.items():
        return False
    try:
        publish(connection, table)
    except StorageError as error:
        log.warning("table %s keeps the name mapping of an engine for now: %s", table.full_name, error)
        return False
    return True


def ensure_recorded(connection: Connection, table: Table) -> None:
    """Record the published snapshot of a table whose rows are of an earlier version, as revision 0.

    Raises:
        UnreadableMetadataError: The current metadata are damaged.
        StorageError: The metadata cannot be read.
    """
    if table.published_location is None or has_recorded(connection, table):
        return
    published = published_snapshots(table)
    if published.current_id is not None:
        scheme = scheme_from_json(json.loads(published.properties[SCHEME_PROPERTY]))
        record_revision(connection, table, published.current_id, scheme, revision=0)


def published_snapshots(table: Table) -> Snapshots:
    """Return the snapshots of a published table.

    Raises:
        UnreadableMetadataError: The current metadata are damaged.
        StorageError: The metadata cannot be read.
    """
    from catalog.iceberg.snapshots import snapshots_of

    assert table.published_location is not None
    with translated_errors(table):
        return snapshots_of(table.published_location)


def live_history(table: Table) -> list[tuple[int, int]]:
    """Return the existing snapshots that are or were current for engines: id and time since when, in order.

    Raises:
        UnreadableMetadataError: The current metadata are damaged.
        StorageError: The metadata cannot be read.
    """
    from catalog.iceberg.rolling_back import current_snapshots

    assert table.live_location is not None
    with translated_errors(table):
        return current_snapshots(table.live_location)


def point_to_snapshot(connection: Connection, table: Table, snapshot_id: int) -> None:
    """Make an earlier snapshot the current one for all engines, as an engine does; the caller takes this in.

    Args:
        table: Locked by the caller's transaction.

    Raises:
        UnreadableMetadataError: The current metadata are damaged.
        StorageError: The metadata cannot be read or written.
    """
    from catalog.iceberg.rolling_back import write_rolled_back

    live = hold_pointer(connection, table.database, table.name)
    assert live is not None
    with translated_errors(table):
        after = write_rolled_back(live, published_definition(connection, table), snapshot_id)
    if after != live:
        move_pointer(connection, table.database, table.name, live, after)


def files_with_deletes(table: Table) -> frozenset[str]:
    """Return the paths, relative to a table's location, of the files of which delete files may delete rows.

    Raises:
        UnreadableMetadataError: The current metadata are damaged.
        StorageError: The metadata cannot be read.
    """
    if not table.delete_file_count or table.published_location is None:
        return frozenset()
    from catalog.iceberg.deletes import files_with_deletes

    with translated_errors(table):
        paths = files_with_deletes(table.published_location)
    return frozenset(path.removeprefix(f"{table.location}/") for path in paths)


def are_deletes_changed(
    table: Table, before: str | None, paths: Sequence[str], *, had_deletes: bool, is_serializable: bool
) -> bool:
    """Return whether other engines may have deleted other rows of data files since a table had some metadata.

    Args:
        before: The metadata with which the files were read; None if they were not read.
        paths: Relative to the table's location.
        had_deletes: Whether there were delete files then.
        is_serializable: Whether rows of all other files count, too, that are no longer deleted.

    Raises:
        UnreadableMetadataError: The current metadata are damaged.
        StorageError: The metadata cannot be read.
    """
    after = table.published_location
    if before is None or after is None or before == after or not (had_deletes or table.delete_file_count):
        return False
    from catalog.iceberg.deletes import have_changed

    complete = {f"{table.location}/{path}" for path in paths}
    with translated_errors(table):
        return have_changed(before, after, complete, is_serializable=is_serializable)


def _show(connection: Connection, table: Table, after: str, *, has_previous: bool = True) -> None:
    """Make new metadata those of a table.

    Args:
        has_previous: Whether the pointer also names the metadata before.
    """
    before = table.published_location
    if after == before:
        return
    connection.execute(update(TableRow).where(TableRow.id == table.id).values(published_location=after))
    if before is None:
        insert_pointer(connection, table.database, table.name, after)
    elif not move_pointer(connection, table.database, table.name, before, after, has_previous=has_previous):
        raise _conflict(table, f"its metadata are not {before} any more")


def find_expired(table: Table, cutoff_ms: int) -> Expired:
    """Return the snapshots and metadata of a published table that were replaced before a time.

    Raises:
        UnreadableMetadataError: The metadata are damaged.
        StorageError: The metadata cannot be read.
    """
    from catalog.iceberg.expiring import find_expired

    assert table.published_location is not None
    with translated_errors(table):
        return find_expired(table.published_location, cutoff_ms)


def expire(connection: Connection, table: Table, expired: Expired) -> None:
    """Publish a table without expired snapshots; the caller's transaction has locked it.

    Raises:
        PlanConflictError: The table was changed in the Iceberg catalog.
        UnreadableMetadataError: The metadata are damaged.
        StorageError: The metadata cannot be read or written.
    """
    from catalog.iceberg.expiring import write_expired

    before, definition = table.published_location, published_definition(connection, table)
    assert before is not None
    with translated_errors(table):
        after = write_expired(before, definition, expired)
    _show(connection, table, after)


def publish_altered(connection: Connection, before: Table, after: Table) -> None:
    """Publish a changed definition of a table that the caller's transaction has locked.

    Raises:
        TableAlreadyExistsError: An Iceberg table or view has the new name.
        UnsupportedIcebergTypeError, ReservedColumnError: Iceberg has no such columns.
        StorageError: The metadata cannot be written.
    """
    if before.published_location is None:
        return
    if before.name != after.name:
        rename_pointer(connection, before.database, before.name, after.name)
    publish(connection, after, has_moved=before.location != after.location)


def published_layout(table: Table) -> Layout:
    """Return the layout of a table whose files the catalog records as an Iceberg table.

    Raises:
        UnsupportedIcebergTypeError, ReservedColumnError: Iceberg has no such columns.
    """
    from catalog.iceberg.layout import layout_of

    table = replace(table, properties={**table.properties, **_metrics_properties(table)})
    # The files have the partition keys, so former names of keys are names in files, too.
    return replace(layout_of(table), file_names=layout_of(table.in_files).file_names)


def delete_metadata(table: Table) -> None:
    """Delete the metadata of a dropped or moved table without data files, so that its folder is empty, if possible.

    Only files that these metadata refer to are deleted: a new table may have the folder already.
    """
    from catalog.iceberg.named_files import UnreadableFileError, metadata_paths

    assert table.published_location is not None
    folder = Folder(f"{table.location}/{METADATA}")
    try:
        pointer = Pointer(CATALOG, table.database, table.name, table.published_location)
        for path in list(metadata_paths(pointer)):
            folder.delete_file(posixpath.basename(path))
        if folder.delete_if_empty():
            Folder(table.location).delete_if_empty()
    except (StorageError, UnreadableFileError) as error:
        log.warning("the metadata of table %s stay in %s: %s", table.full_name, table.location, error)


def published_definition(connection: Connection, table: Table) -> Definition:
    """Return what the metadata of a table say besides its snapshots."""
    from catalog.iceberg.snapshots import Definition

    properties = {
        **table.properties,
        **_metrics_properties(table),
        # Only vacuum knows which files unfinished operations still need.
        _DELETION: "false",
    }
    if table.description is not None:
        properties.setdefault("comment", table.description)
    sort_columns: tuple[str, ...] = ()
    if (scheme := table.scheme) is not None:
        properties[SCHEME_PROPERTY] = json.dumps(scheme.as_json(), separators=(",", ":"))
        # Only the requested order: DuckDB refuses to write into a table that has one.
        sort_columns = tuple(dict.fromkeys(scheme.sort_columns))
    writer = str(connection.scalar(select(CatalogRow.identity)))
    at_ms = read_clock_ms(connection)
    return Definition(published_layout(table), table.location, writer, at_ms, sort_columns, properties)


def own_properties(table: Table) -> frozenset[str]:
    """Return the names of the properties that Calve sets in the metadata of a table with a partition scheme."""
    return frozenset((SCHEME_PROPERTY, _DELETION, NAME_MAPPING, *_metrics_properties(table)))


def _metrics_properties(table: Table) -> dict[str, str]:
    if table.scheme is None:
        return {}
    columns = (table.scheme.column, *table.scheme.sort_columns)
    return {f"write.metadata.metrics.column.{name}": _BOUND_MODE for name in columns}


def written_manifests(definition: Definition, table: Table, files: Iterable[NewFile]) -> PreparedFiles:
    """Write the manifests of data files for a later publication.

    Raises:
        StorageError: The file system refused.
    """
    from catalog.iceberg.snapshots import write_manifests

    manifests, size_bytes = write_manifests(definition, _added(table, files))
    return PreparedFiles(manifests, size_bytes)


def _added(table: Table, files: Iterable[NewFile]) -> Iterator[AddedFile]:
    from catalog.iceberg.manifests import NO_METRICS
    from catalog.iceberg.snapshots import AddedFile

    record = cache(published_layout(table).partition_record)
    for file in files:
        metrics = NO_METRICS if file.metrics is None else file.metrics
        path = f"{table.location}/{file.path}"
        yield AddedFile(path, file.row_count, file.size_bytes, metrics, record(file.values))


def _snapshot_change(table: Table, swap: FileSwap) -> SnapshotChange:
    from catalog.iceberg.snapshots import SnapshotChange

    prepared = swap.prepared or PreparedFiles((), 0)
    return SnapshotChange(
        _added(table, swap.added),
        [f"{table.location}/{path}" for path in swap.removed],
        prepared.manifests,
        prepared.size_bytes,
        swap.marks or {},
        swap.is_overwrite,
    )


@contextmanager
def translated_errors(table: Table) -> Iterator[None]:
    """Translate errors of reading and writing a table's metadata.

    Raises:
        PlanConflictError: The published files are not those of the catalog.
        UnreadableMetadataError: The current metadata are damaged.
        StorageError: The file system refused.
    """
    from catalog.iceberg.named_files import UnreadableFileError
    from catalog.iceberg.snapshots import FilesChangedError

    try:
        with storage_errors(table.location):
            yield
    except FilesChangedError as error:
        raise _conflict(table, str(error)) from error
    except UnreadableFileError as error:
        raise error.of_table(table.full_name) from error


def _conflict(table: Table, reason: str) -> PlanConflictError:
    return PlanConflictError(
        f"table {table.full_name} was changed in the Iceberg catalog: {reason}; nothing was changed. Run the operation "
        "again"
    )
