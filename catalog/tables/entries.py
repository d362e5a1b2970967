"""Definitions of tables as metastores' protocols give them: with details that Calve itself does not use.

`details` is JSON that only the front doors read (`catalog.doors.entries`). It is stored in the transaction that creates
or changes the table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, delete, func, select, update

from catalog.errors import (
    FilesNeededError,
    InvalidTableError,
    UnreadableMetadataError,
    UnsupportedChangeError,
)
from catalog.files.filesystem import Folder
from catalog.files.folders import make_folders
from catalog.files.locations import OwnFiles, comparable, file_spellings, folder_keys, is_local, is_within
from catalog.iceberg.own_folders import tables_near
from catalog.iceberg.pointers import insert_pointer
from catalog.indexes.definitions import create_index, maintained_indexes
from catalog.model import Buckets, Column, Database, FileFormat, IndexDefinition, Table, TableKind, TableType
from catalog.model.identifiers import TableName, normalise_identifier
from catalog.operations.journal import Operations
from catalog.settings.places import is_own_place
from catalog.storage import Storage
from catalog.storage.schema import ColumnStatisticsRow, DatabaseRow, PartitionRow, PartitionVersionRow, TableRow
from catalog.tables.altering import pin_formats, prepare_key_changes
from catalog.tables.buckets import buckets_json
from catalog.tables.checks import refuse_view
from catalog.tables.columns import TableColumns
from catalog.tables.definitions import Definitions
from catalog.tables.moving import FolderMoves, Move
from catalog.tables.neighbours import neighbours
from catalog.tables.normalising import check_columns, normalise_columns, normalise_location
from catalog.tables.own_files import PurgedFiles, delete_own_files
from catalog.tables.own_properties import check_own_properties, without_records
from catalog.tables.ownership import is_own_folder
from catalog.tables.purging import refuse_reached_folders
from catalog.tables.table_versions import VERSION, add_version

log = logging.getLogger(__name__)

Details = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class TableEntry:
    """A table or view as a protocol defines it, in Calve's terms.

    Attributes:
        location: None for the default folder, and for views.
        details: Returns the details of the table as it is stored.
    """

    columns: tuple[Column, ...]
    partition_keys: tuple[Column, ...] = ()
    format: FileFormat = FileFormat.PARQUET
    location: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    kind: TableKind = TableKind.MANAGED
    description: str | None = None
    view_text: str | None = None
    buckets: Buckets | None = None
    details: Callable[[Table], Details]


@dataclass(frozen=True, kw_only=True)
class TableAlteration:
    """A change of a table.

    Attributes:
        name: The name after the change.
        entry: The definition after the change; its location is None if the table keeps its own.
        former: The entry before the change as JSON values, which becomes a version; None to keep none.
        then: Called in the transaction with the changed table.
    """

    name: TableName
    entry: TableEntry
    former: Details | None
    then: Callable[[Connection, Table], None] | None = None


class TableEntries:
    """Creates and changes tables by entries of metastores' protocols."""

    def __init__(self, storage: Storage, definitions: Definitions, operations: Operations) -> None:
        """Set the storage, the definitions in it, and the journal."""
        self._storage = storage
        self._definitions = definitions
        self._moves = FolderMoves(storage, definitions, operations)

    def find(self, names: Collection[TableName]) -> list[Table]:
        """Return those of many tables that Calve has, with one statement, in no particular order."""
        with self._storage.read() as connection:
            return self._definitions.get_tables(connection, names)

    def create(self, name: TableName, entry: TableEntry, indexes: Sequence[IndexDefinition] = ()) -> Table:
        """Create a table or view, with any columns and keys, and with partition indexes; make its folder.

        Raises:
            DatabaseNotFoundError: The database does not exist.
            TableAlreadyExistsError: A table or view of this name exists.
            InvalidRequestError: A name, property, location or index is not allowed.
            LimitExceededError: There are too many indexes.
            LocationInUseError: The location overlaps that of another table.
            StorageError: The folder cannot be created.
        """
        check_own_properties(entry.properties)
        with self._storage.write() as connection:
            table = self._definitions.insert_table(
                connection,
                name,
                columns=entry.columns,
                partition_keys=entry.partition_keys,
                format=entry.format,
                location=entry.location,
                properties=entry.properties,
                kind=entry.kind,
                description=entry.description,
                view_text=entry.view_text,
                buckets=entry.buckets,
                is_recorded=True,
            )
            table = self._with_details(connection, table, entry)
            for index in indexes:
                create_index(connection, table, index)
            if not table.is_view:
                make_folders([table.location])
        return table

    def alter(self, name: TableName, decide: Callable[[Table, bool], TableAlteration]) -> Table:
        """Replace the definition of a table or view, and keep the former one as a version.

        A managed table that is renamed moves to the usual folder of its new name, with the partitions inside, if its
        folder is the usual one and on a local disk (`catalog.tables.moving`).

        Args:
            decide: Called with the table, which is locked, and whether it has partitions.

        Raises:
            DatabaseNotFoundError, TableNotFoundError: The table, or the new database, does not exist.
            TableAlreadyExistsError: The new name is taken.
            IcebergTableError: It is an Iceberg table.
            InvalidTableError: Its partitions prevent the change of a key.
            IndexedKeyError: A partition index prevents the change of a key.
            LocationInUseError: The new location overlaps that of another table.
            ConflictError: An operation is changing the table.
            LocationNotEmptyError: The folder of the new name has files.
            StorageError: The folder cannot be moved.
        """

        def change(connection: Connection, tables: Sequence[Table]) -> tuple[Table, Sequence[Move]]:
            (table,) = tables
            alteration = decide(table, self._definitions.has_partitions(connection, table))
            move = self._move_of(connection, table, alteration)
            return self._alter(connection, table, alteration, move), [] if move is None else [move]

        return self._moves.run([name], change, exclusive=True)

    def _alter(self, connection: Connection, table: Table, change: TableAlteration, move: Move | None) -> Table:
        entry = change.entry
        check_own_properties(entry.properties)
        if table.is_view is not (entry.kind is TableKind.VIEW):
            raise InvalidTableError(f"{table.full_name} cannot change between a view and a table; drop and create it")
        location = table.location if table.is_view or entry.location is None else normalise_location(entry.location)
        if change.name != (table.database, table.name) or location != table.location:
            self._definitions.refuse_if_busy(connection, table)
        columns = self._columns(connection, table, entry, location)
        if entry.format is not table.format and not table.is_view:
            pin_formats(connection, table)
        if move is not None:
            location = move.target
            _move_partitions(connection, table, move)
        records = {
            key: value for key, value in table.properties.items() if key not in without_records(table.properties)
        }
        values = {
            "columns": columns,
            "format": entry.format,
            "location": location,
            "kind": self._kind(table, entry, location),
            "description": entry.description,
            "view_text": entry.view_text,
            "buckets": buckets_json(table.full_name, columns.columns, entry.buckets),
            "properties": {**records, **entry.properties},
        }
        self._rename(connection, table, change.name, values)
        _forget_statistics(connection, table, columns)
        number = add_version(connection, table, change.former)
        altered = self._definitions.get_table(change.name, connection)
        altered = self._with_details(connection, altered, entry, {VERSION: number})
        if change.then is not None:
            change.then(connection, altered)
        return altered

    def _columns(self, connection: Connection, table: Table, entry: TableEntry, location: str) -> TableColumns:
        """Return the new columns and keys, after preparing partitions for new keys and a new location."""
        columns = normalise_columns(entry.columns, is_recorded=True)
        keys = normalise_columns(entry.partition_keys, is_recorded=True)
        check_columns(table.full_name, columns, keys, is_recorded=True)
        before = TableColumns.of(table)
        if len(keys) == len(table.partition_keys):
            by_name = {old.name: new for old, new in zip(table.partition_keys, keys, strict=True)}
            prepare_key_changes(connection, self._definitions, table, by_name, location=location)
            return before.following(columns, keys)
        if self._definitions.has_partitions(connection, table) or maintained_indexes(connection, table.id):
            raise InvalidTableError(
                f"table {table.full_name} has partitions or partition indexes by {', '.join(table.key_names)}; drop "
                "them before you change the number of partition keys"
            )
        return replace(before.following(columns, table.partition_keys), keys=keys).numbered()

    @staticmethod
    def _kind(table: Table, entry: TableEntry, location: str) -> TableKind:
        """Return the kind of a changed table: no table gets the files of others, which a drop would delete."""
        if entry.kind is not TableKind.MANAGED or (table.kind is TableKind.MANAGED and location == table.location):
            return entry.kind
        is_own = table.kind is TableKind.MANAGED and is_own_folder(location, is_usual=False)
        return TableKind.MANAGED if is_own or is_own_folder(location, is_usual=True) else TableKind.EXTERNAL

    def _rename(self, connection: Connection, table: Table, name: TableName, values: dict[str, Any]) -> None:
        if name == (table.database, table.name):
            self._definitions.update_table(connection, table, **values)
            return
        if table.is_published and name.database != table.database:
            raise UnsupportedChangeError(
                f"table {table.full_name} is an Iceberg table for other engines, and stays in its database; create a "
                f"table {name}, and copy the rows with INSERT INTO … SELECT"
            )
        self._definitions.rename_table(connection, table, name, **values)

    def _move_of(self, connection: Connection, table: Table, change: TableAlteration) -> Move | None:
        """Return the folder to move; None if the folder of the table stays."""
        name = change.name
        if name == (table.database, table.name) or table.kind is not TableKind.MANAGED or table.is_published:
            return None
        usual = f"{self._definitions.database_location(connection, table.database)}/{table.name}"
        if change.entry.location is not None or not is_local(usual) or comparable(table.location) != comparable(usual):
            return None
        versions = select(PartitionVersionRow.number).where(PartitionVersionRow.table_id == table.id)
        if connection.scalar(versions.limit(1)) is not None:
            # Files of replaced partitions are found by their present folders.
            return None
        return Move(table.location, f"{self._definitions.database_location(connection, name.database)}/{name.name}")

    @staticmethod
    def _with_details(connection: Connection, table: Table, entry: TableEntry, more: Details | None = None) -> Table:
        details = {**entry.details(table), **(more or {})}
        connection.execute(update(TableRow).where(TableRow.id == table.id).values(details=details))
        return replace(table, details=details)

    def become_iceberg(
        self, name: TableName, metadata_location: str, properties: Mapping[str, str], former: Details
    ) -> None:
        """Make a Hive-style table an Iceberg table; see `EngineTables.become_iceberg`."""
        with self._storage.write() as connection:
            table = self._definitions.lock_table(connection, name, exclusive=True)
            refuse_view(table, "has no files of its own to migrate")
            self._definitions.refuse_if_busy(connection, table)
            number = add_version(connection, table, former)
            insert_pointer(connection, table.database, table.name, metadata_location)
            values = {
                "table_type": TableType.ICEBERG,
                "properties": dict(properties),
                "details": {**(table.details or {}), VERSION: number},
            }
            connection.execute(update(TableRow).where(TableRow.id == table.id).values(**values))

    def database_folder(self, name: str, location: str | None) -> str:
        """Return the folder of a database, as it is stored, for which a location is requested, or None for the default.

        Raises:
            InvalidRequestError: The name or the location is not allowed.
        """
        return self._definitions.database_folder(normalise_identifier(name, "database"), location)

    def delete_database_folder(self, location: str) -> PurgedFiles:
        """Delete the folder of a dropped database: inside the warehouse, with the files of all writers.

        Folders outside the warehouse, or with sources or quality pages in or around them, which others may use, are
        deleted only if they are empty. Files of tables and views that lie in the folder, and of other databases, stay.

        Raises:
            StorageError: The file system refused.
        """
        folder, warehouse = comparable(location), self._definitions.warehouse
        is_inside = warehouse is not None and location in OwnFiles([warehouse]) and folder != comparable(warehouse)
        if not is_inside or not is_own_place(location):
            Folder(location).delete_if_empty()
            return PurgedFiles()
        try:
            refuse_reached_folders(self._storage, location, [location])
        except (FilesNeededError, UnreadableMetadataError) as error:
            log.warning("kept the folder of a dropped database: %s", error)
            return PurgedFiles()
        with self._storage.read() as connection:
            # Views have files that no table reaches.
            if any(tables_near(connection, folder_keys([location]), without="")):
                return PurgedFiles()
            others = [near.path for near in neighbours(connection, [location])]
            databases = map(comparable, connection.scalars(select(DatabaseRow.location)))
            others += [place[len(folder) + 1 :] for place in databases if is_within(place, folder)]
        kept = [path for path in others if path]
        return PurgedFiles() if len(kept) < len(others) else delete_own_files(location, None, kept)

    def alter_database(self, name: str, database: Database) -> Database:
        """Replace the location, description, properties and details of a database.

        Raises:
            DatabaseNotFoundError: It does not exist.
            LocationNotAllowedError: The new location is not allowed.
        """
        name = normalise_identifier(name, "database")
        before = self._definitions.get_database(name)
        location = before.location
        if database.location != location:
            location = self._definitions.database_folder(name, database.location)
        values = {
            "location": location,
            "description": database.description,
            "properties": dict(database.properties),
            "details": None if database.details is None else dict(database.details),
        }
        with self._storage.write() as connection:
            connection.execute(update(DatabaseRow).where(DatabaseRow.name == name).values(**values))
        return self._definitions.get_database(name)


def _move_partitions(connection: Connection, table: Table, move: Move) -> None:
    """Change the locations of partitions inside a folder that moves; default locations follow the table's."""
    row = PartitionRow
    for before, after in zip(file_spellings(move.location), file_spellings(move.target), strict=True):
        connection.execute(
            update(row)
            .where(row.table_id == table.id, row.location >= f"{before}/", row.location < f"{before}0")
            .values(location=after + func.substr(row.location, len(before) + 1))
        )


def _forget_statistics(connection: Connection, table: Table, columns: TableColumns) -> None:
    """Delete the statistics of columns that a changed table has no longer, or has with another type."""
    after = {(column.name, column.type) for column in (*columns.columns, *columns.keys)}
    before = {(column.name, column.type) for column in (*table.columns, *table.partition_keys)}
    if gone := sorted(name for name, _ in before - after):
        row = ColumnStatisticsRow
        connection.execute(delete(row).where(row.table_id == table.id, row.column_name.in_(gone)))
