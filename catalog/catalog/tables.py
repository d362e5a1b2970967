"""The methods of `Catalog` for tables and views."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from catalog.catalog.core import Core
from catalog.errors import (
    CatalogLockedError,
    ConflictError,
    StorageError,
    TableAlreadyExistsError,
    UnreadableMetadataError,
    UnsupportedCommitError,
)
from catalog.model import ICEBERG, Buckets, FileFormat, IndexDefinition, Table, TableKind
from catalog.model.identifiers import TableName, normalise_identifier
from catalog.operations.failpoints import Point, reached
from catalog.tables.normalising import ColumnLike

if TYPE_CHECKING:
    from catalog.engine_tables.names import Identifier
    from catalog.engine_tables.tables import EngineTables
    from catalog.operations.confirmation import Confirmation
    from catalog.partitions.counting import TableSize
    from catalog.schemes.model import Scheme
    from catalog.tables.dropping import TableDrop
    from catalog.tables.own_files import PurgedFiles


log = logging.getLogger(__name__)


class TableMethods(Core):
    """Creation, change and drop of tables and views."""

    def create_table(
        self,
        name: str,
        *,
        columns: Iterable[ColumnLike],
        partition_keys: Iterable[ColumnLike] = (),
        format: str = "parquet",
        location: str | None = None,
        properties: Mapping[str, str] | None = None,
        indexes: Sequence[IndexDefinition] = (),
        scheme: Scheme | None = None,
        description: str | None = None,
        is_external: bool = False,
        buckets: Buckets | None = None,
        folder_name: str | None = None,
    ) -> Table:
        """Create a table with up to 3 partition indexes, all or nothing.

        Args:
            columns: The columns inside the data files.
            partition_keys: The partition keys, in the order of the path.
            format: parquet, orc, avro or csv; or textfile, sequencefile, rcfile or jsonfile, which are only recorded.
                With iceberg, the data files are Parquet, and the table is an Iceberg table whose identity partitions
                are the partition keys.
            location: The folder of the data files; by default `<database's folder>/<table>`.
            scheme: A partition scheme, which places rows by one of the columns, instead of partition keys.
            is_external: Others own the files, so they stay when the table is dropped. A table is always external if its
                folder is not empty, or if `location` names a folder of an object store.
            buckets: Hive's buckets, which are only recorded.
            folder_name: The name of the default folder, if the table will get this name when it has its rows
                (`CREATED_AS`).

        Raises:
            DatabaseNotFoundError: The database does not exist.
            TableAlreadyExistsError: A table of this name exists.
            InvalidRequestError: A name, a type, the format or an index is invalid.
            LimitExceededError: There are more than 3 indexes.
        """
        from catalog.datafiles.publishing import publish
        from catalog.indexes.definitions import create_index
        from catalog.tables.checks import check_stored_as_iceberg
        from catalog.tables.own_properties import CREATED_AS, check_own_properties

        check_own_properties(properties)
        if folder_name is not None:
            properties = {**(properties or {}), CREATED_AS: folder_name}
        is_published = scheme is not None
        if format.strip().lower() == ICEBERG:
            check_stored_as_iceberg(name, scheme, buckets)
            is_published, format = True, FileFormat.PARQUET
        with self.storage.write() as connection:
            table = self._definitions.insert_table(
                connection,
                TableName.parse(name),
                columns=columns,
                partition_keys=partition_keys,
                format=format,
                location=location,
                properties=properties,
                scheme=scheme,
                kind=TableKind.EXTERNAL if is_external else TableKind.MANAGED,
                description=description,
                buckets=buckets,
                folder_name=folder_name,
            )
            for definition in indexes:
                create_index(connection, table, definition)
            if is_published:
                publish(connection, table)
        return self.get_table(table.full_name) if is_published else table

    def create_view(
        self,
        name: str,
        sql: str,
        *,
        columns: Iterable[ColumnLike] = (),
        description: str | None = None,
        properties: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
    ) -> Table:
        """Create a view: a named SELECT without partitions, files and location.

        Args:
            sql: The SELECT, stored without being parsed.
            columns: The columns of the view, as far as they are known.
            if_not_exists: Return an existing table or view, unchanged.

        Raises:
            DatabaseNotFoundError: The database does not exist.
            TableAlreadyExistsError: A table or view of this name exists, and `if_not_exists` is false.
            InvalidRequestError: A name is not allowed.
        """
        from catalog.tables.own_properties import check_own_properties

        check_own_properties(properties)
        try:
            with self.storage.write() as connection:
                return self._definitions.insert_table(
                    connection,
                    TableName.parse(name),
                    columns=columns,
                    partition_keys=(),
                    format=FileFormat.PARQUET,
                    location=None,
                    properties=properties,
                    kind=TableKind.VIEW,
                    description=description,
                    view_text=sql,
                )
        except TableAlreadyExistsError:
            if if_not_exists:
                return self.get_table(name)
            raise

    def get_table(self, name: str, *, is_strict: bool = False) -> Table:
        """Return a table or view, after taking in what other engines have committed to it, if Calve can follow.

        Args:
            is_strict: Refuse commits that Calve cannot follow; otherwise a warning is logged.

        Raises:
            TableNotFoundError, DatabaseNotFoundError: It does not exist.
            UnsupportedCommitError, UnreadableMetadataError, StorageError: Calve cannot follow.
        """
        table = self._definitions.get_table(name)
        if table.is_only_iceberg:
            from catalog.iceberg.live_columns import as_engines_see_it

            return as_engines_see_it(table)
        if table.live_location == table.published_location:
            return table
        from catalog.datafiles.intake import catch_up_or_warn

        errors = (UnsupportedCommitError, UnreadableMetadataError, StorageError, CatalogLockedError)
        catch_up_or_warn(self.storage, self._definitions, table, () if is_strict else errors)
        return self._definitions.get_table(name)

    @cached_property
    def iceberg(self) -> EngineTables:
        """Namespaces, tables and views as engines see, make and change them through Iceberg's REST protocol."""
        from catalog.engine_tables.tables import EngineTables

        return EngineTables(self.storage, self._definitions, self.operations, self)

    def list_tables(self, database: str | None = None) -> list[Table]:
        """Return the tables and views of one database, or of all databases, sorted by name.

        Iceberg tables that an engine made have no columns here, because only their metadata have them.

        Raises:
            DatabaseNotFoundError: The database does not exist.
        """
        return self._definitions.list_tables(database)

    def table_names(self, database: str, *, after: str | None = None, limit: int | None = None) -> list[str]:
        """Return the names of the tables and views of a database, without reading their definitions.

        They are in the order of the catalog's SQL database, and may be names of Iceberg tables that no statement of
        Calve can write.

        Args:
            after: Only those after this name, for the next page.
            limit: The maximum number of names; None for all.

        Raises:
            DatabaseNotFoundError: The database does not exist.
        """
        return self._definitions.table_names(database, after, limit)

    def table_sizes(self) -> dict[int, TableSize]:
        """Return the sizes of all tables that have partitions or data files in the catalog, by `Table.id`.

        Reads the rows of all partitions and files, in two statements.
        """
        from catalog.partitions.counting import measure_tables

        return measure_tables(self.storage)

    def alter_table(
        self,
        name: str,
        *,
        rename_to: str | None = None,
        add_columns: Iterable[ColumnLike] = (),
        change_columns: Mapping[str, ColumnLike] | None = None,
        drop_columns: Iterable[str] = (),
        column_order: Sequence[str] | None = None,
        key_order: Sequence[str] | None = None,
        properties: Mapping[str, str | None] | None = None,
        location: str | None = None,
        description: str | None = None,
    ) -> Table:
        """Change a table: its name (in the same database), columns, keys, properties, location or description.

        A view supports only changes of name, properties and description. No file is changed: Calve identifies columns
        by ids, and reads each file by the names that it was written with (`catalog.tables.columns`). Other engines read
        the folders of a Hive-style table by its present names, so once it has Parquet, ORC or Avro files, its columns
        keep their names. Folders of partitions keep the old name of a renamed key.

        Args:
            add_columns: New columns, added after the others, but before the partition column of a scheme. A new column
                does not inherit values from a renamed or dropped column of the same name. An operation that is
                rewriting rows of a table published as Iceberg has to be repeated.
            change_columns: Name of a column or partition key → its new definition: name, type and comment. The type of
                a column can only be widened (`catalog.tables.columns.check_type_change`). With an index on the table,
                keys cannot be renamed and indexed keys cannot be retyped. The type of a key changes only if all values
                of its partitions stay the same, as with int → bigint, or string → varchar(9) if none is longer.
            drop_columns: Columns to drop; those by which rows are placed, sorted or bucketed cannot be dropped. Files
                keep them.
            column_order: All columns in a new order, by their new names; the partition column of a scheme stays last.
            key_order: All partition keys in a new order; only for a table without partitions, because folders follow
                the order. Indexed keys cannot move.
            properties: Properties to set, or to remove (None). Those that start with `calve.` are Calve's own records,
                except the settings (`catalog.tables.own_properties`).
            location: Only for a table without partitions, because default folders are relative to the location. A
                folder that is not empty turns a managed table into an external one.

        Raises:
            TableNotFoundError: It does not exist.
            TableAlreadyExistsError: The new name is taken.
            InvalidTableError: A column's new name is taken, a column is unknown, or existing partitions prevent the
                change.
            UnsupportedChangeError: Existing files cannot be read as a column's new type, other engines would not find
                a renamed column in them, a new column has the name of a former one there, or the table needs a column
                that would be dropped.
            StorageError: The folder of an unpartitioned table cannot be listed.
            InvalidKeyTypeError: A partition key cannot have this type.
            IndexedKeyError: A partition index prevents the change of a key.
            NotATableError: It is a view, which does not support the change.
            ConflictError: An operation is changing the table, and the change affects more than properties or new
                columns.
        """
        from catalog.datafiles.intake import lock_current
        from catalog.datafiles.publishing import delete_metadata, publish_altered
        from catalog.tables.altering import TableChange, alter_table

        change = TableChange(
            rename_to=rename_to,
            add_columns=add_columns,
            change_columns=change_columns,
            drop_columns=drop_columns,
            column_order=column_order,
            key_order=key_order,
            properties=properties,
            location=location,
            description=description,
        )
        if rename_to is not None and change.is_only_rename and (engines := self._engines_table(name)) is not None:
            target = replace(engines, name=normalise_identifier(rename_to, "table"), shown=rename_to)
            self.iceberg.rename(engines, target)
            return self.get_table(f"{engines.namespace}.{target.name}")
        with self.storage.write() as connection:
            table = lock_current(connection, self._definitions, name)
            new_name = alter_table(connection, self._definitions, table, change)
            if table.is_published:
                publish_altered(
                    connection, table, self._definitions.get_table(f"{table.database}.{new_name}", connection)
                )
        altered = self.get_table(f"{table.database}.{new_name}")
        if table.is_published and altered.location != table.location:
            delete_metadata(table)
        return altered

    def drop_table(
        self,
        name: str,
        *,
        purge: bool = False,
        confirmation: Confirmation | None = None,
        unused_id: int | None = None,
        all_files: bool = False,
    ) -> PurgedFiles:
        """Drop a table with its partitions and indexes, or a view.

        An Iceberg table is dropped with its pointer and with its former Hive table; its files stay, unless an engine
        made it: then a purge deletes those that its metadata name, in its folder. The table
        disappears for all readers at once. If it has many partitions, their rows are deleted after the commit in short
        transactions; `vacuum` finishes interrupted deletions.

        Args:
            purge: After the commit, delete the files that Calve wrote into the folder of a managed table
                (`catalog.tables.own_files`), except those of other tables and their partitions. Nothing is deleted if
                the folder lies inside another table's location. Files of partitions outside the folder and of external
                tables stay, as in Hive. Until the deletion ends, no table or partition can get a location in the
                folder.
            confirmation: Asked before a purge.
            all_files: A purge also deletes the files that Calve did not write, as a metastore does.
            unused_id: Only drop the table with this id, if it has never had a partition or a data file, and no
                operation holds it.

        Returns:
            What a purge has deleted, and the files that it has kept, because Calve did not write them.

        Raises:
            TableNotFoundError: It does not exist.
            ConflictError: An operation is changing it, other than a vacuum that ends soon, or it is not `unused_id`, or
                is in use.
            FilesNeededError: A purge would delete files of an Iceberg table.
            UnreadableMetadataError: Which files an Iceberg table needs is unknown.
            FilesNotDeletedError: The table is dropped, but the file system refused to delete files.
        """
        from catalog.datafiles.publishing import delete_metadata
        from catalog.operations.patience import after_vacuum
        from catalog.tables.dropping import finish_drop
        from catalog.tables.own_files import PurgedFiles
        from catalog.tables.purging import refuse_needed_files, refuse_reached_files

        if (engines := self._engines_table(name)) is not None:
            if unused_id is not None:
                raise ConflictError(f"table {name} is in use; it was not dropped")
            return self.iceberg.drop_engines(engines, purge=purge, confirmation=confirmation)
        if purge:
            with self.storage.read() as connection:
                table = self._definitions.get_table(name, connection)
                refuse_needed_files(connection, table)
            refuse_reached_files(self.storage, table)

        def act() -> TableDrop:
            with self.storage.write() as connection:
                table = self._definitions.lock_table(connection, name, exclusive=True, or_iceberg=True)
                if unused_id is not None:
                    self._require_unused(connection, table, unused_id)
                if purge:
                    refuse_needed_files(connection, table)
                    if confirmation is not None:
                        confirmation.drop_table(table)
                with_files = purge and table.kind is TableKind.MANAGED
                return self._drop_table(connection, table, with_files=with_files, all_files=all_files)

        drop = after_vacuum(self.operations, act)
        reached(Point.COMMITTED)
        if drop.has_metadata_only:
            delete_metadata(drop.table)
        if drop.operation_id is None:
            return PurgedFiles()
        return finish_drop(self.storage, self.operations, self.operations.get(drop.operation_id))

    def _engines_table(self, name: str) -> Identifier | None:
        """Return the identifier of an Iceberg table that an engine made; None for other tables."""
        table = self._definitions.get_table(name)
        if not table.is_only_iceberg:
            return None
        from catalog.engine_tables.names import Identifier, Namespace

        return Identifier.of(Namespace.of([table.database]), table.name)

    def _require_unused(self, connection: Connection, table: Table, table_id: int) -> None:
        self._definitions.refuse_if_busy(connection, table)
        self.operations.refuse_if_held(connection, table.full_name)
        is_same = table.id == table_id and table.live_location == table.published_location
        if not is_same or self._definitions.has_partitions(connection, table):
            raise ConflictError(f"table {table.full_name} is in use; it was not dropped")

    def _drop_table(
        self, connection: Connection, table: Table, *, with_files: bool, all_files: bool = False
    ) -> TableDrop:
        """Drop a table that the caller has locked exclusively, in the caller's transaction."""
        from catalog.iceberg.pointers import delete_pointer
        from catalog.tables.dropping import TableDrop, drop_table

        is_empty = (
            table.is_published
            and table.live_location == table.published_location
            and not self._definitions.has_partitions(connection, table)
        )
        operation_id = drop_table(
            connection, self._definitions, self.operations, table, with_files=with_files, all_files=all_files
        )
        if table.is_iceberg or table.is_published:
            delete_pointer(connection, table.database, table.name)
        return TableDrop(table, operation_id, has_metadata_only=is_empty and not with_files)
