"""Entries of tables and views."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from catalog.doors.entries.csv_tables import own_form
from catalog.doors.entries.databases import DatabaseMethods, is_purgeable
from catalog.doors.entries.forms import (
    OF_PARTITIONS,
    details_of,
    entry_of,
    hive_table,
    pinned_storage,
    table_from_json,
    table_json,
)
from catalog.doors.entries.iceberg import (
    METADATA,
    PREVIOUS,
    iceberg_entry,
    identifier_of,
    is_shown_as_iceberg,
    metadata_of,
    without_pointer,
)
from catalog.doors.entries.serde_columns import with_known_columns
from catalog.doors.entries.storages import without_columns
from catalog.errors import (
    DatabaseNotFoundError,
    EntryModifiedError,
    StorageError,
    TableNotFoundError,
    UnreadableMetadataError,
)
from catalog.iceberg.live_columns import metastore_parameters, with_live_columns
from catalog.iceberg.pointers import previous_location
from catalog.metastores.types import HiveTable
from catalog.model import IndexDefinition, Table
from catalog.model.identifiers import TableName, normalise_identifier
from catalog.partitions.descriptors import change_descriptors
from catalog.tables.entries import TableAlteration
from catalog.tables.table_versions import current_version

log = logging.getLogger(__name__)


class TableVersion(NamedTuple):
    """A version of a table.

    Attributes:
        replaced_at: The time until which it was current, in seconds since 1970 UTC; None for the current one.
    """

    number: int
    entry: HiveTable
    replaced_at: int | None


class TableMethods(DatabaseMethods):
    """Creation, change and drop of tables and views."""

    def table_names(self, database: str, kind: str | None = None) -> list[str]:
        """Return the names of a database's tables and views, sorted.

        Args:
            kind: Only tables of this type, for instance `VIRTUAL_VIEW`.

        Raises:
            DatabaseNotFoundError: The database does not exist.
        """
        tables = self.catalog.list_tables(database)
        return [table.name for table in tables if kind is None or _type_of(table) == kind]

    def table(self, name: TableName) -> HiveTable:
        """Return a table or view.

        Raises:
            DatabaseNotFoundError, TableNotFoundError: It does not exist.
        """
        return self.entry(self._table(name))

    def entry(self, table: Table) -> HiveTable:
        """Return the entry of a table or view that was read before."""
        if not is_shown_as_iceberg(table):
            return hive_table(table)
        derived = dict[str, str]()
        if table.is_iceberg:
            try:
                table = table if table.is_only_iceberg else with_live_columns(table)
                derived = metastore_parameters(table)
            except (UnreadableMetadataError, StorageError) as error:
                log.warning("%s", error)
        with self.catalog.storage.read() as connection:
            previous = previous_location(connection, table.database, table.name)
        return iceberg_entry(table, previous, derived)

    def tables(self, names: Iterable[TableName]) -> list[HiveTable]:
        """Return those of many tables that exist, in the order of the names."""
        wanted = list(dict.fromkeys(normalised(name) for name in names))
        found = {table.full_name: table for table in self.catalog.table_entries.find(wanted)}
        entries = []
        for name in wanted:
            # Iceberg tables of engines are not among Calve's own.
            with suppress(TableNotFoundError, DatabaseNotFoundError):
                entries.append(self.entry(found.get(str(name)) or self._table(name)))
        return entries

    def create_table(self, given: HiveTable, *, indexes: Sequence[IndexDefinition] = ()) -> HiveTable:
        """Create a table or view, and its folder; of an Iceberg table, the pointer to the metadata that it names.

        Args:
            indexes: The partition indexes of a table that is not an Iceberg table; all is created or nothing.

        Raises:
            DatabaseNotFoundError: The database does not exist.
            TableAlreadyExistsError: A table or view of this name exists.
            InvalidRequestError: A name, parameter, location or index is not allowed.
            LimitExceededError: There are too many indexes.
            LocationInUseError: The location overlaps that of another table.
            StorageError: The folder cannot be created, or the metadata of an Iceberg table cannot be read.
        """
        given = own_form(replace(given, name=normalised(given.name)))
        if (metadata := metadata_of(given)) is not None:
            self.catalog.iceberg.register(identifier_of(given.name), metadata, is_rename=True)
            return self.table(given.name)
        return hive_table(self.catalog.table_entries.create(given.name, entry_of(given), indexes))

    def alter_table(
        self,
        name: TableName,
        given: HiveTable,
        *,
        expected: tuple[str, str | None] | None = None,
        cascade: bool = False,
        check: Callable[[Table], object] | None = None,
        keeps_former: bool = True,
    ) -> HiveTable:
        """Replace all that an entry says of a table or view, perhaps its name and its database, too.

        A renamed managed table moves to the usual folder of its new name (`TableEntries.alter`). Without a location or
        a time of creation, the table keeps its own.

        Args:
            expected: A parameter and its value, without which nothing changes; None as the value of none. An Iceberg
                table moves to the metadata that the entry names, if it still has the previous ones; all else of the
                entry, except the name, is in the metadata.
            cascade: Partitions get the new columns, too; otherwise they keep those that they have.
            check: Called with the table, which is locked unless it is an Iceberg table; its errors prevent the change.
            keeps_former: Keep the former definition as a version.

        Raises:
            TableNotFoundError, DatabaseNotFoundError: The table, or the new database, does not exist.
            TableAlreadyExistsError: The new name is taken.
            EntryModifiedError: The parameter has another value.
            InvalidRequestError: A name, parameter or location is not allowed, or a key cannot change.
            IndexedKeyError: A partition index prevents the change of a key.
        """
        given = replace(given, name=normalised(given.name))
        table = self._table(name)
        if is_shown_as_iceberg(table):
            if check is not None:
                check(table)
            return self._alter_iceberg(table, given, expected)
        if (metadata := metadata_of(given)) is not None:
            if check is not None:
                check(table)
            _require_expected(self.entry(table), expected)
            former = hive_table(table)
            former = replace(former, parameters=without_pointer(former.parameters))
            properties = without_pointer(table.properties)
            self.catalog.iceberg.become_iceberg(
                self.catalog.table_entries, normalised(name), metadata, properties, table_json(former)
            )
            return self.table(name)

        def decide(table: Table, has_partitions: bool) -> TableAlteration:
            if check is not None:
                check(table)
            change = _alteration(table, given, expected, cascade, has_partitions)
            return change if keeps_former else replace(change, former=None)

        return hive_table(self.catalog.table_entries.alter(normalised(name), decide))

    def _alter_iceberg(self, table: Table, given: HiveTable, expected: tuple[str, str | None] | None) -> HiveTable:
        name, current = TableName(table.database, table.name), self.entry(table)
        _require_expected(current, expected)
        metadata = given.parameters.get(METADATA)
        if metadata is not None and metadata != current.parameters[METADATA]:
            # Without previous metadata, the table is one that was read before its second commit.
            base = given.parameters.get(PREVIOUS)
            if base is None and PREVIOUS not in current.parameters:
                base = current.parameters[METADATA]
            if expected is not None and expected[0] == METADATA and expected[1] is not None:
                base = expected[1]
            if base is None:
                raise EntryModifiedError(str(name), METADATA, current.parameters[METADATA], metadata)
            self.catalog.iceberg.point(identifier_of(name), metadata, expected=base, folder=given.location)
        if given.name != name:
            self.catalog.iceberg.rename(identifier_of(name), identifier_of(given.name))
        return self.table(given.name)

    def versions(self, name: TableName) -> list[TableVersion]:
        """Return the versions of a table, the current one first, then former ones that `alter_table` has replaced.

        Raises:
            DatabaseNotFoundError, TableNotFoundError: It does not exist.
        """
        table = self._table(name)
        former = {} if table.is_only_iceberg else self.catalog.table_versions.list(table)
        current = TableVersion(current_version(table), self.entry(table), None)
        return [
            current,
            *(TableVersion(number, table_from_json(entry), at // 1000) for number, (entry, at) in former.items()),
        ]

    def delete_version(self, name: TableName, number: int) -> None:
        """Delete a former version of a table.

        Raises:
            DatabaseNotFoundError, TableNotFoundError: The table, or the version, does not exist.
        """
        self.catalog.table_versions.delete(self._table(name), number)

    def drop_table(self, name: TableName, *, delete_data: bool = False) -> None:
        """Drop a table with its partitions and indexes, or a view.

        Args:
            delete_data: Delete the files in the folder of a managed table, of all writers, after the commit, except
                those of other tables.

        Raises:
            DatabaseNotFoundError, TableNotFoundError: It does not exist.
            FilesNeededError: An Iceberg table needs the files; nothing was dropped.
            FilesNotDeletedError: The table is dropped, but the file system refused to delete files.
        """
        table = self._table(name)
        self.catalog.drop_table(table.full_name, purge=delete_data and is_purgeable(table), all_files=True)

    def _table(self, name: TableName) -> Table:
        return self.catalog.get_table(str(normalised(name)))


def normalised(name: TableName) -> TableName:
    """Return a name as Calve has it, in lower case.

    Raises:
        InvalidIdentifierError: It is not allowed.
    """
    return TableName(normalise_identifier(name.database, "database"), normalise_identifier(name.name, "table"))


def _type_of(table: Table) -> str | None:
    return "EXTERNAL_TABLE" if is_shown_as_iceberg(table) else hive_table(table).table_type


def _require_expected(entry: HiveTable, expected: tuple[str, str | None] | None) -> None:
    if expected is not None and (actual := entry.parameters.get(expected[0])) != expected[1]:
        raise EntryModifiedError(str(entry.name), expected[0], actual, expected[1])


def _alteration(
    table: Table, given: HiveTable, expected: tuple[str, str | None] | None, cascade: bool, has_partitions: bool
) -> TableAlteration:
    before = hive_table(table)
    _require_expected(before, expected)
    given = replace(
        given,
        location=before.location if given.location is None else given.location,
        created_at=before.created_at if given.created_at is None else given.created_at,
    )
    given = own_form(with_known_columns(given, before), before)
    entry = entry_of(given)
    if given.location == before.location:
        entry = replace(entry, location=None)
    pinned = pinned_storage(table, own_form(before, before), given, cascade=cascade) if has_partitions else None

    def details(altered: Table) -> dict[str, Any]:
        # A table that has moved with its name has the location of its definition.
        has_moved = entry.location is None and altered.location != table.location
        stored = details_of(replace(given, location=None) if has_moved else given, altered)
        return stored if pinned is None else {**stored, OF_PARTITIONS: pinned}

    return TableAlteration(
        name=given.name,
        entry=replace(entry, details=details),
        former=table_json(before),
        then=partial(change_descriptors, change=without_columns) if cascade and has_partitions else None,
    )
