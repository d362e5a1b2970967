"""Entries of tables and views."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from catalog.doors.entries.databases import DatabaseMethods, is_purgeable, matcher
from catalog.doors.entries.forms import (
    OF_PARTITIONS,
    details_of,
    entry_of,
    hive_table,
    pinned_storage,
    table_from_json,
    table_json,
)
from catalog.doors.entries.storages import without_columns
from catalog.errors import EntryModifiedError
from catalog.metastores.types import HiveTable
from catalog.model import IndexDefinition, Table
from catalog.model.identifiers import TableName, normalise_identifier
from catalog.partitions.descriptors import change_descriptors
from catalog.tables.entries import TableAlteration
from catalog.tables.table_versions import current_version


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

    def table_names(self, database: str, pattern: str | None = None, kind: str | None = None) -> list[str]:
        """Return the names of a database's tables and views, sorted.

        Args:
            pattern: As for `matcher`.
            kind: Only tables of this type, for instance `VIRTUAL_VIEW`.

        Raises:
            DatabaseNotFoundError: The database does not exist.
        """
        matches = matcher(pattern)
        tables = (table for table in self.catalog.list_tables(database) if matches(table.name))
        return [table.name for table in tables if kind is None or hive_table(table).table_type == kind]

    def table(self, name: TableName) -> HiveTable:
        """Return a table or view.

        Raises:
            DatabaseNotFoundError, TableNotFoundError: It does not exist.
        """
        return hive_table(self._table(name))

    def tables(self, names: Iterable[TableName]) -> list[HiveTable]:
        """Return those of many tables that exist, in the order of the names."""
        wanted = [normalised(name) for name in names]
        found: dict[str, Table] = {}
        for database in dict.fromkeys(name.database for name in wanted):
            if any(known.name == database for known in self.catalog.list_databases()):
                found |= {table.full_name: table for table in self.catalog.list_tables(database)}
        return [hive_table(found[str(name)]) for name in dict.fromkeys(wanted) if str(name) in found]

    def create_table(self, given: HiveTable, *, indexes: Sequence[IndexDefinition] = ()) -> HiveTable:
        """Create a table or view, and its folder; with partition indexes, all or nothing.

        Raises:
            DatabaseNotFoundError: The database does not exist.
            TableAlreadyExistsError: A table or view of this name exists.
            InvalidRequestError: A name, parameter, location or index is not allowed.
            LimitExceededError: There are too many indexes.
            LocationInUseError: The location overlaps that of another table.
        """
        given = replace(given, name=normalised(given.name))
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
            expected: A parameter and its value, without which nothing changes; None as the value of none.
            cascade: Partitions get the new columns, too; otherwise they keep those that they have.
            check: Called with the table, which is locked; its errors prevent the change.
            keeps_former: Keep the former definition as a version.

        Raises:
            TableNotFoundError, DatabaseNotFoundError: The table, or the new database, does not exist.
            TableAlreadyExistsError: The new name is taken.
            EntryModifiedError: The parameter has another value.
            InvalidRequestError: A name, parameter or location is not allowed, or a key cannot change.
            IndexedKeyError: A partition index prevents the change of a key.
        """
        given = replace(given, name=normalised(given.name))

        def decide(table: Table, has_partitions: bool) -> TableAlteration:
            if check is not None:
                check(table)
            change = _alteration(table, given, expected, cascade, has_partitions)
            return change if keeps_former else replace(change, former=None)

        return hive_table(self.catalog.table_entries.alter(normalised(name), decide))

    def versions(self, name: TableName) -> list[TableVersion]:
        """Return the versions of a table, the current one first, then former ones that `alter_table` has replaced.

        Raises:
            DatabaseNotFoundError, TableNotFoundError: It does not exist.
        """
        table = self._table(name)
        former = self.catalog.table_versions.list(table)
        current = TableVersion(current_version(table), hive_table(table), None)
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


def _alteration(
    table: Table, given: HiveTable, expected: tuple[str, str | None] | None, cascade: bool, has_partitions: bool
) -> TableAlteration:
    before = hive_table(table)
    if expected is not None and (actual := before.parameters.get(expected[0])) != expected[1]:
        raise EntryModifiedError(table.full_name, expected[0], actual, expected[1])
    given = replace(
        given,
        location=before.location if given.location is None else given.location,
        created_at=before.created_at if given.created_at is None else given.created_at,
    )
    entry = entry_of(given)
    if given.location == before.location:
        entry = replace(entry, location=None)
    pinned = pinned_storage(table, before, given, cascade=cascade) if has_partitions else None

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
