"""Intake of the commits of other engines: the file rows of the catalog follow the live snapshot.

Engines append, delete and overwrite through the Iceberg catalog, which moves the pointer of a table. Before Calve
changes the table, in the same transaction, and before it reads it, the difference between the published and the live
snapshot is applied to the file rows. A file that fits into one partition by its bounds gets that partition; the others
are `UNPLACED`, and every scan includes them.

PyIceberg is imported late: that takes longer than answering a statement.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, select, update

from catalog.datafiles.files import NewFile, insert_files, retire_files
from catalog.datafiles.history import (
    Recorded,
    file_ids,
    nearest_recorded,
    record_changed_partitions,
    record_revision,
    recorded_revisions,
    restore,
    with_paths,
)
from catalog.datafiles.pruning import partitions_of_file
from catalog.datafiles.publishing import (
    correct_names,
    ensure_recorded,
    own_properties,
    published_definition,
    translated_errors,
)
from catalog.datafiles.refusals import warn
from catalog.errors import (
    CatalogError,
    CatalogLockedError,
    ConflictError,
    InvalidRequestError,
    LocationNotAllowedError,
    UnreadableMetadataError,
    UnsupportedCommitError,
)
from catalog.files.locations import complete_path
from catalog.iceberg.pointers import hold_pointer
from catalog.model import Table
from catalog.operations.failpoints import Point, reached
from catalog.schemes.model import UNPLACED
from catalog.settings.places import require_files, require_properties
from catalog.storage import Storage
from catalog.storage.bulk import batched
from catalog.storage.schema import DataFileRow, TableRow
from catalog.tables.columns import TableColumns, with_columns
from catalog.tables.definitions import Definitions
from catalog.types.column_types import parse_column_type
from catalog.types.key_types import KeyType

if TYPE_CHECKING:
    from catalog.iceberg.differences import Base, Difference, LiveFile

log = logging.getLogger(__name__)


READER_MS = 200
"""How long a reader waits for writers before it reads what is committed without taking it in."""


def lock_current(connection: Connection, definitions: Definitions, name: str | Table) -> Table:
    """Lock a table exclusively, take in what other engines have committed, and return the table.

    Raises:
        UnsupportedCommitError: Calve cannot follow a commit.
        TableNotFoundError, IcebergTableError: See `Definitions.lock_table`.
        StorageError, UnreadableMetadataError: The metadata cannot be read.
    """
    table = definitions.lock_table(connection, name, exclusive=True)
    return take_in(connection, definitions, table)


def lock_as_read(connection: Connection, definitions: Definitions, name: str | Table, read_from: str | None) -> None:
    """Lock a table whose rows were read to replace others; it must not have been changed since then.

    Args:
        read_from: The metadata of which the rows were read; None if none were: nothing is done.

    Raises:
        ConflictError: Somebody has committed to the table since then.
        TableNotFoundError, IcebergTableError: See `Definitions.lock_table`.
    """
    if read_from is not None:
        table = definitions.lock_table(connection, name, exclusive=True)
        require_as_read(table, hold_pointer(connection, table.database, table.name), read_from)


def require_as_read(table: Table, location: str | None, read_from: str | None) -> None:
    """Check that a table has the metadata of which rows were read that are to replace others.

    Raises:
        ConflictError: It has not.
    """
    if read_from not in (None, location):
        raise ConflictError(
            f"another engine has committed to table {table.full_name} since the statement has read its rows, to "
            "overwrite others with them; nothing was changed. Run the statement again"
        )


def catch_up(storage: Storage, definitions: Definitions, table: Table, *, lock_ms: int | None = None) -> None:
    """Take in what other engines have committed, in a transaction of its own; nothing is done if nothing was.

    Args:
        lock_ms: How long to wait for writers; None for the usual time.

    Raises:
        CatalogLockedError: They have held the table or its pointer for longer.
        CatalogError: See `lock_current`.
    """
    if table.live_location != table.published_location:
        with storage.write(lock_ms=lock_ms) as connection:
            lock_current(connection, definitions, table)
            reached(Point.CHANGED)
        reached(Point.COMMITTED)


def catch_up_or_warn(
    storage: Storage, definitions: Definitions, table: Table, errors: tuple[type[CatalogError], ...]
) -> None:
    """Take in what other engines have committed, for a reader, who does not wait for writers.

    Args:
        errors: Those that are logged as warnings, because the reader can go on.

    Raises:
        CatalogError: As for `catch_up`, unless it is among the errors.
    """
    try:
        catch_up(storage, definitions, table, lock_ms=READER_MS)
    except errors as error:
        warn(error)


def find_refusal(storage: Storage, definitions: Definitions, table: Table) -> UnsupportedCommitError | None:
    """Return why Calve cannot take in what other engines have committed; None if it can. Nothing is changed.

    Raises:
        CatalogError: See `lock_current`.
    """
    if table.live_location == table.published_location:
        return None
    with storage.write() as connection:
        trial = connection.begin_nested()
        try:
            lock_current(connection, definitions, table)
        except UnsupportedCommitError as error:
            return error
        finally:
            trial.rollback()
    return None


def lock_to_roll_back(connection: Connection, definitions: Definitions, name: str | Table) -> Table:
    """Lock a table as `lock_current`; one that Calve cannot follow keeps the files that it had.

    It has its live metadata, unless it is stored as Iceberg without a scheme.

    Raises:
        UnsupportedCommitError: A roll-back does not help.
        CatalogError: See `lock_current`.
    """
    table = definitions.lock_table(connection, name, exclusive=True)
    try:
        return take_in(connection, definitions, table)
    except UnsupportedCommitError as error:
        if not error.can_be_rolled_back:
            raise
    live = hold_pointer(connection, table.database, table.name)
    table = replace(table, live_location=live)
    if table.is_stored_as_iceberg:
        # Its files follow from the difference to the published ones.
        return table
    connection.execute(update(TableRow).where(TableRow.id == table.id).values(published_location=live))
    return replace(table, published_location=live)


@contextmanager
def reading_current(
    storage: Storage, definitions: Definitions, name: str, *, is_strict: bool = False
) -> Iterator[tuple[Connection, Table]]:
    """Open a reading transaction with a table, after taking in what other engines have committed to it.

    Args:
        is_strict: Wait for writers, and refuse commits that Calve cannot follow. Otherwise a warning is logged if the
            commits cannot be taken in now, and the table has an `engine_location`: what is committed is read as it is.

    Raises:
        UnsupportedCommitError: Calve cannot follow a commit.
        CatalogError: See `lock_current`.
    """
    with storage.read() as connection:
        table = definitions.get_hive_table(name, connection)
        if table.live_location == table.published_location:
            yield connection, table
            return
    if is_strict:
        catch_up(storage, definitions, table)
    else:
        catch_up_or_warn(storage, definitions, table, (UnsupportedCommitError, CatalogLockedError))
    with storage.read() as connection:
        yield connection, definitions.get_hive_table(name, connection)


def take_in(connection: Connection, definitions: Definitions, table: Table) -> Table:
    """Take in what other engines have committed to a table that the caller's transaction has locked exclusively.

    The pointer is locked, too: an engine that commits later waits, and then tries again on top of the caller's commit.

    Returns:
        The table afterwards.

    Raises:
        UnsupportedCommitError: Calve cannot follow a commit; the transaction must be rolled back.
        StorageError, UnreadableMetadataError: The metadata cannot be read.
    """
    if table.published_location is None:
        return table
    live = hold_pointer(connection, table.database, table.name)
    if live is None or live == table.published_location:
        return table
    from catalog.iceberg.differences import Versions
    from catalog.iceberg.named_files import UnreadableFileError

    with suppress(UnreadableMetadataError):
        # Without it, files are compared below.
        ensure_recorded(connection, table)
    versions = Versions(table.published_location, live)
    with translated_errors(table):
        recorded = nearest_recorded(connection, table, versions.lineage)
        try:
            if recorded is not None and versions.before.current_snapshot_id is None:
                # An engine had removed the branch main, so the catalog has no files, whatever was recorded before that.
                recorded = replace(recorded, is_latest=False)
            # Without a known ancestor, because an engine expired it, files are compared with the published ones.
            base_id = versions.before.current_snapshot_id if recorded is None else recorded.snapshot_id
            if table.is_stored_as_iceberg:
                # Partitions follow from the files, also after a roll-back, so no earlier state needs to be restored.
                base_id = versions.before.current_snapshot_id
            commits = versions.since(base_id)
        except UnreadableFileError as error:
            # An engine has deleted them, or expired the snapshot: the catalog's rows tell the rest.
            log.info("%s: its former metadata cannot be read: %s", table.full_name, error)
            recorded = recorded if recorded is not None and recorded.is_latest else None
            commits = versions.since_files(_base(connection, table), _known_paths(connection, table))
    # A caller may go on after a refusal.
    with connection.begin_nested():
        table = _followed(connection, definitions, table, recorded, commits)
    connection.execute(
        update(TableRow)
        .where(TableRow.id == table.id)
        .values(published_location=live, delete_file_count=commits.delete_file_count)
    )
    is_recorded = recorded is not None and recorded.is_latest and recorded.snapshot_id == commits.snapshot_id
    if commits.snapshot_id is not None and not is_recorded:
        record_revision(connection, table, commits.snapshot_id, table.scheme)
    table = definitions.get_table(table.full_name, connection)
    if correct_names(connection, table, commits.before.properties, commits.after.properties):
        return definitions.get_table(table.full_name, connection)
    return table


def _base(connection: Connection, table: Table) -> Base:
    """Return a table as it was published last, without its metadata."""
    from catalog.iceberg.differences import Base

    revisions = recorded_revisions(connection, table)
    snapshot_id = revisions[-1].snapshot_id if revisions else None
    properties = published_definition(connection, table).properties
    return Base(snapshot_id, properties, table.last_column_id)


def _known_paths(connection: Connection, table: Table) -> list[str]:
    """Return the complete paths of a table's files as the catalog knows them."""
    paths = connection.scalars(select(DataFileRow.path).where(DataFileRow.table_id == table.id))
    return [complete_path(table.location, path) for path in paths]


def _followed(
    connection: Connection, definitions: Definitions, table: Table, recorded: Recorded | None, commits: Difference
) -> Table:
    """Change a table as other engines have changed it, and return it with its columns and scheme afterwards.

    Args:
        recorded: The state before the commits.

    Raises:
        UnsupportedCommitError: Calve cannot follow a commit.
        StorageError: The file system refused.
    """
    _require_followable(table, commits)
    columns = _followed_columns(table, commits)
    after = table if columns is None else with_columns(table, columns)
    added = _usable_files(after, commits)
    changed = _followed_properties(definitions, table, commits)
    is_restored = recorded is not None and not recorded.is_latest and not table.is_stored_as_iceberg
    if recorded is not None and is_restored:
        # Somebody has rolled the table back, and may have committed on top.
        after = replace(after, scheme=restore(connection, table, recorded.revision))
    if columns is not None:
        changed["columns"] = columns
    if changed:
        definitions.update_table(connection, table, **changed)
    _refuse_repeated(connection, after, commits)
    removed = [path.removeprefix(f"{table.location}/") for path in commits.removed]
    if table.is_stored_as_iceberg:
        _follow_partitions(connection, definitions, after, commits, added, removed)
    else:
        _remove(connection, after, removed)
        new = list(placed_files(after, added))
        insert_files(connection, after, new, None)
        assert after.scheme is not None
        filled = None if is_restored else {file.partition_id for file in new}
        record_changed_partitions(connection, table, after.scheme, filled)
    return after


def _require_followable(table: Table, commits: Difference) -> None:
    """Check that Calve can follow commits, apart from their columns and files.

    Raises:
        UnsupportedCommitError: It cannot.
    """
    if (obstacle := commits.obstacle) is not None:
        remedies = [] if commits.is_spec_undone else ["Undo the change by its engine"]
        if commits.other_spec_id is not None:
            call = f"rewrite_data_files(table => '{table.full_name}', options => map('rewrite-all', 'true'))"
            remedies.append(f"Rewrite the files that were written since: CALL spark_catalog.system.{call} in Spark")
        raise UnsupportedCommitError(table.full_name, obstacle, commits.snapshot_id, ". ".join(remedies))


def _refusal(table: Table, commits: Difference, finding: str) -> UnsupportedCommitError:
    """Return the refusal of a snapshot."""
    before, remedy = commits.before.snapshot_id, "Undo the commit by its engine"
    if before is not None and before != commits.snapshot_id and commits.after.snapshot_by_id(before) is not None:
        remedy = f"Roll it back: CALL calve.system.rollback_to_snapshot('{table.full_name}', {before})"
    return UnsupportedCommitError(table.full_name, finding, commits.snapshot_id, remedy, can_be_rolled_back=True)


def _followed_columns(table: Table, commits: Difference) -> TableColumns | None:
    """Return the columns of a table as other engines have changed them; None if they have not.

    Raises:
        UnsupportedCommitError: Calve cannot follow a change.
    """
    from catalog.datafiles.engine_columns import ColumnsError, followed_columns

    try:
        if not table.is_stored_as_iceberg:
            return followed_columns(table, commits)
        columns = followed_columns(table.in_files, commits)
        return None if columns is None else _without_keys(table, columns)
    except ColumnsError as error:
        remedy = (
            "Undo the change by its engine, or make it with ALTER TABLE in Calve if it is allowed there; a column of "
            "which fields were changed can also be dropped by its engine"
        )
        raise UnsupportedCommitError(table.full_name, str(error), commits.snapshot_id, remedy) from error


def _without_keys(table: Table, columns: TableColumns) -> TableColumns:
    """Return columns whose partition keys are apart.

    Raises:
        ColumnsError: A partition key has changed.
    """
    from catalog.datafiles.engine_columns import ColumnsError

    known = {column.id: column for column in columns.columns}
    keys = []
    for key in table.partition_keys:
        followed = known.pop(key.id, None)
        if followed is None or followed != key:
            raise ColumnsError(f"its partition key {key.name} has changed")
        keys.append(followed)
    return replace(columns, columns=tuple(known.values()), keys=tuple(keys))


def _usable_files(table: Table, commits: Difference) -> list[LiveFile]:
    """Return the added files of commits, with how they are read.

    Raises:
        UnsupportedCommitError: Calve cannot read a file.
        StorageError: The file system refused.
    """
    from catalog.datafiles.engine_files import FilesError, usable_files

    try:
        require_files(commits.delete_paths, [table.location], "delete file")
        return usable_files(table, commits)
    except (FilesError, LocationNotAllowedError) as error:
        raise _refusal(table, commits, str(error)) from error


def _refuse_repeated(connection: Connection, table: Table, commits: Difference) -> None:
    """Refuse data files that are more than once in a snapshot: Iceberg's readers read them more than once.

    Raises:
        UnsupportedCommitError: There is one.
    """
    repeated = commits.repeated
    for chunk in batched(file.path.removeprefix(f"{table.location}/") for file in commits.added):
        known = select(DataFileRow.path).where(with_paths(connection, DataFileRow, table, chunk))
        if (path := connection.scalar(known.limit(1))) is not None:
            repeated = f"{table.location}/{path}"
    if repeated is not None:
        raise _refusal(table, commits, f"the snapshot has the data file {repeated} more than once")


def _followed_properties(definitions: Definitions, table: Table, commits: Difference) -> dict[str, Any]:
    """Return the properties and the description of a table as other engines have changed them, for `update_table`.

    Properties that Calve sets itself stay.

    Raises:
        UnsupportedCommitError: The catalog cannot have a property, or the settings do not allow its location.
    """
    before, after, own = commits.before.properties, commits.after.properties, own_properties(table)
    names = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} - own
    if not names:
        return {}
    changes = {name: after.get(name) for name in names}
    values: dict[str, Any] = {}
    if "comment" in changes and "comment" not in table.properties:
        values["description"] = changes.pop("comment")
    try:
        require_properties({name: value for name, value in changes.items() if value is not None})
        return {**values, "properties": definitions.changed_properties(table, changes)}
    except InvalidRequestError as error:
        remedy = "Change the property, or the comment, by its engine"
        finding = f"its properties are now {', '.join(sorted(names))}: {error}"
        raise UnsupportedCommitError(table.full_name, finding, commits.snapshot_id, remedy) from error


def placed_files(table: Table, files: Iterable[LiveFile]) -> Iterator[NewFile]:
    """Yield files of other engines with their statistics, and with their partition if there is only one."""
    from catalog.datafiles.bounds import bounds_statistics

    scheme = table.scheme
    assert scheme is not None
    columns = compared_columns(table)
    for file in files:
        statistics = bounds_statistics(file, columns)
        possible = partitions_of_file(scheme, statistics, scheme.ids)
        partition_id = possible.pop() if len(possible) == 1 else UNPLACED
        path = file.path.removeprefix(f"{table.location}/")
        by_id = file.is_read_by_id
        yield NewFile(partition_id, path, file.row_count, file.size_bytes, statistics, is_read_by_id=by_id)


def compared_columns(table: Table) -> dict[str, tuple[int, KeyType]]:
    """Return the columns by which files are pruned: name → field id and type."""
    scheme = table.scheme
    assert scheme is not None
    columns: dict[str, tuple[int, KeyType]] = {}
    for column in table.columns:
        value_type = parse_column_type(column.type)
        if column.name in (scheme.column, *scheme.sort_columns) and value_type is not None:
            columns[column.name] = column.id, value_type
    return columns


def _follow_partitions(
    connection: Connection,
    definitions: Definitions,
    table: Table,
    commits: Difference,
    added: Sequence[LiveFile],
    removed: Sequence[str],
) -> None:
    """Change the partitions of a table stored as Iceberg as other engines have changed its files.

    Raises:
        UnsupportedCommitError: The catalog cannot have one of the partitions.
    """
    assert definitions.follow_files is not None
    try:
        definitions.follow_files(connection, definitions, table, added, removed)
    except (InvalidRequestError, ConflictError) as error:
        raise _refusal(table, commits, str(error)) from error


def _remove(connection: Connection, table: Table, paths: Sequence[str]) -> None:
    """Remove the rows of files that other engines have removed."""
    retire_files(connection, table, file_ids(connection, table, paths))
