"""Storage of databases and tables: create, update, drop, look up."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from typing import Any

from sqlalchemy import Connection, Row, bindparam, exists, insert, select, union, update
from sqlalchemy.exc import IntegrityError

from catalog.errors import (
    DatabaseNotFoundError,
    OperationConflictError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from catalog.files.locations import keys_above
from catalog.iceberg.pointers import hold_pointer, pointer_of
from catalog.model import FileFormat, Table, TableKind, TableType
from catalog.model.identifiers import TableName, normalise_identifier
from catalog.operations.tables import (
    adopt_operations,
    has_waiting,
    hold_operations,
    name_lock,
    refuse_awaited_name,
)
from catalog.schemes.model import Scheme
from catalog.settings.places import refuse_around_warehouse, require_location, require_properties
from catalog.storage.bulk import among, batched
from catalog.storage.clock import CurrentMs
from catalog.storage.locks import hold
from catalog.storage.schema import (
    DatabaseRow,
    DataFileRow,
    FormerFileRow,
    IcebergTableRow,
    OperationRow,
    PartitionRow,
    TableRow,
)
from catalog.tables.buckets import buckets_from_json, buckets_json
from catalog.tables.checks import refuse_iceberg
from catalog.tables.columns import TableColumns, column_from_json, column_json, scheme_column_last
from catalog.tables.databases import DatabaseDefinitions, changed_properties
from catalog.tables.normalising import check_columns, normalise_columns, parse_format
from catalog.tables.only_iceberg import (
    ICEBERG_NAME,
    find_only_iceberg,
    list_only_iceberg,
    only_iceberg_names,
    refuse_iceberg_name,
)
from catalog.tables.ownership import LOCATIONS, claim_held_location, claim_location, new_kind, new_location
from catalog.tables.schemes import check_table_of_scheme, scheme_from_json

_POINTER = pointer_of(DatabaseRow.name, TableRow.name).label("pointer")
_TABLE = (
    select(TableRow.__table__, _POINTER)
    .join(DatabaseRow, TableRow.database_id == DatabaseRow.id)
    .where(DatabaseRow.name == bindparam("database"), TableRow.name == bindparam("name"))
)
_NAME = select(
    _TABLE.exists().label("is_taken"),
    ICEBERG_NAME.label("is_taken_by_iceberg"),
    has_waiting(bindparam("full_name")).label("is_awaited"),
)
_NEW_TABLE = insert(TableRow).values(created_at_ms=CurrentMs()).returning(TableRow.__table__)
# Built once, because building a statement takes as long as running it.


class Definitions(DatabaseDefinitions):
    """The databases and tables of one catalog.

    Attributes:
        follow_files: `catalog.partitions.records.follow_files`; set by `Catalog`, because partitions are above tables.
    """

    follow_files: Callable[..., object] | None = None

    def insert_table(self, connection: Connection, table: TableName, **definition: Any) -> Table:
        """Insert a table's row in the caller's transaction; see `Catalog.create_table`."""
        is_recorded = definition.get("is_recorded", False)
        columns = normalise_columns(definition["columns"], is_recorded=is_recorded)
        keys = normalise_columns(definition["partition_keys"], is_recorded=is_recorded)
        kind: TableKind = definition.get("kind", TableKind.MANAGED)
        # A view may have no columns here, because only Spark can determine them.
        if columns or kind is not TableKind.VIEW:
            check_columns(str(table), columns, keys, is_recorded=is_recorded)
        scheme: Scheme | None = definition.get("scheme")
        file_format = definition["format"]
        if scheme is not None:
            check_table_of_scheme(scheme, columns, keys, definition["format"])
            columns = scheme_column_last(columns, scheme.column)
        numbered = TableColumns(columns, keys).numbered()
        # Lock the database: otherwise two transactions could both see that the name is free.
        database = self._database_row(connection, table.database, lock=True)
        hold(connection, LOCATIONS, name_lock(str(table)))
        name = connection.execute(_NAME, {**table._asdict(), "full_name": str(table)}).one()
        if name.is_taken or name.is_taken_by_iceberg:
            what = "Iceberg table or view" if name.is_taken_by_iceberg else "table"
            raise TableAlreadyExistsError(f"{what} {table} exists; choose another name, or drop it first")
        properties = changed_properties({}, definition["properties"])
        require_properties(properties)
        folder = definition.get("folder_name") or table.name
        usual = f"{database.location}/{folder}"
        location = new_location(usual, definition["location"], kind)
        location_key = claim_held_location(connection, location, str(table))
        row = connection.execute(
            _NEW_TABLE,
            {
                "database_id": database.id,
                "name": table.name,
                "columns": [column_json(column) for column in numbered.columns],
                "partition_keys": [column_json(key) for key in numbered.keys],
                "last_column_id": numbered.last_id,
                "format": FileFormat.OTHER if file_format is FileFormat.OTHER else parse_format(file_format),
                "location": location,
                "properties": properties,
                "location_key": location_key,
                "scheme": None if scheme is None else scheme.as_json(),
                "kind": new_kind(usual, location, kind, owns_usual=is_recorded),
                "description": definition.get("description"),
                "view_text": definition.get("view_text"),
                "buckets": buckets_json(str(table), columns, definition.get("buckets")),
                "table_type": definition.get("table_type", TableType.HIVE),
            },
        ).one()
        if name.is_awaited:
            adopt_operations(connection, row.id, str(table))
        return _table(table.database, row)

    def get_table(self, name: str | TableName, connection: Connection | None = None) -> Table:
        """Return a table; see `Catalog.get_table`."""
        table = TableName.parse(name) if isinstance(name, str) else name
        if connection is None:
            with self._storage.read() as connection:
                return self.get_table(table, connection)
        row = connection.execute(_TABLE, table._asdict()).one_or_none()
        if row is None:
            try:
                self._database_row(connection, table.database)
            except DatabaseNotFoundError:
                raise DatabaseNotFoundError.of_table(*table) from None
            if (engines := find_only_iceberg(connection, table)) is not None:
                return engines
            raise TableNotFoundError.named(str(table))
        return _table(table.database, row, row.pointer)

    def get_hive_table(self, name: str | TableName, connection: Connection | None = None) -> Table:
        """Return a table whose partitions, indexes and files the catalog manages.

        Raises:
            IcebergTableError: It is an Iceberg table.
        """
        table = self.get_table(name, connection)
        refuse_iceberg(table)
        return table

    def lock_table(
        self,
        connection: Connection,
        name: str | TableName | Table,
        *,
        exclusive: bool,
        or_iceberg: bool = False,
        is_bulk: bool = False,
    ) -> Table:
        """Return a table, and lock its row until the transaction ends; folders of interrupted moves return first.

        Args:
            name: Its name; or the table as it was read before, so that another table of the same name is refused.
            is_bulk: See `Storage.lock_table`.
            or_iceberg: Accept an Iceberg table, too.

        Raises:
            IcebergTableError: It is an Iceberg table, and `or_iceberg` is false.
            TableNotFoundError: It does not exist, or was renamed or dropped meanwhile.
        """
        expected = name if isinstance(name, Table) else None
        name = TableName(name.database, name.name) if isinstance(name, Table) else name
        table = self.get_table(name, connection)
        if not or_iceberg:
            refuse_iceberg(table)
        if table.is_only_iceberg:
            # The pointer stands for the row that such a table does not have.
            hold_pointer(connection, table.database, table.name)
            return self.get_table(name, connection)
        expected = expected or table
        if not self._storage.lock_table(connection, table.id, exclusive=exclusive, is_bulk=is_bulk):
            raise TableNotFoundError(f"table {table.full_name} was dropped meanwhile")
        # Imported late, because commands that only read do not need it.
        from catalog.tables.moving import settle_table

        settle_table(connection, table, exclusive=exclusive)
        table = self.get_table(name, connection)
        if table.id != expected.id:
            raise TableNotFoundError(f"table {expected.full_name} was renamed or dropped meanwhile; look it up again")
        if not or_iceberg:
            refuse_iceberg(table)
        return table

    def list_tables(self, database: str | None = None, joined: Connection | None = None) -> list[Table]:
        """Return the tables of one database, or of all databases, sorted by name.

        Args:
            joined: The caller's transaction.
        """
        query = select(DatabaseRow.name.label("database_name"), TableRow.__table__, _POINTER).join(
            DatabaseRow, TableRow.database_id == DatabaseRow.id
        )
        if database is not None:
            database = self.get_database(database).name
            query = query.where(DatabaseRow.name == database)
        with self._storage.read() if joined is None else nullcontext(joined) as connection:
            rows = connection.execute(query.order_by(DatabaseRow.name, TableRow.name)).all()
            engines = list_only_iceberg(connection, database)
        tables = [_table(row.database_name, row, row.pointer) for row in rows]
        return sorted([*tables, *engines], key=lambda table: (table.database, table.name)) if engines else tables

    def table_names(self, name: str, after: str | None = None, limit: int | None = None) -> list[str]:
        """Return the names of the tables and views of a database in the order of the SQL database.

        Args:
            after: Only those after this name.
            limit: The number of names after which to stop; None for all.

        Raises:
            DatabaseNotFoundError: The database does not exist.
        """
        with self._storage.read() as connection:
            database = self._database_row(connection, normalise_identifier(name, "database"))
            own = select(TableRow.name.label("name")).where(TableRow.database_id == database.id)
            engines = only_iceberg_names(database.name)
            if after is not None:
                own, engines = own.where(TableRow.name > after), engines.where(IcebergTableRow.table_name > after)
            # Each in the order of its index, whose entries are then read up to the limit.
            parts = (part.order_by("name").limit(limit).subquery() for part in (own, engines))
            names = union(*(select(part.c.name) for part in parts)).subquery()
            return list(connection.scalars(select(names.c.name).order_by(names.c.name).limit(limit)))

    def get_tables(self, connection: Connection, names: Collection[TableName]) -> list[Table]:
        """Return those of many tables that exist, with one statement."""
        query = select(DatabaseRow.name.label("database_name"), TableRow.__table__, _POINTER).join(
            DatabaseRow, TableRow.database_id == DatabaseRow.id
        )
        rows = connection.execute(
            query.where(
                among(connection, DatabaseRow.name, list({name.database for name in names})),
                among(connection, TableRow.name, list({name.name for name in names})),
            )
        ).all()
        return [
            _table(row.database_name, row, row.pointer)
            for row in rows
            if TableName(row.database_name, row.name) in names
        ]

    def tables_around(self, connection: Connection, keys: Iterable[bytes]) -> list[Table]:
        """Return the tables whose locations contain or equal one of the folders.

        Args:
            keys: The folders' keys from `catalog.files.locations.location_key`.
        """
        above = sorted({around for key in keys for around in keys_above(key)})
        row = TableRow.__table__
        query = select(DatabaseRow.name.label("database_name"), row).join(
            DatabaseRow, TableRow.database_id == DatabaseRow.id
        )
        return [
            _table(owner.database_name, owner)
            for batch in batched(above)
            for owner in connection.execute(query.where(among(connection, TableRow.location_key, batch)))
        ]

    def update_table(self, connection: Connection, table: Table, **values: Any) -> None:
        """Store changed fields of a table that the caller has locked.

        Args:
            values: New values by column of `calve_table`; `columns` is a `TableColumns` with all columns and keys.

        Raises:
            TableAlreadyExistsError: The new name is taken.
            OperationConflictError: An operation that will create a table has reserved the new name.
            LocationNotAllowedError: The new location, or one in a new property, is not allowed.
            LocationInUseError: The new location equals, contains or lies inside another table's location.
        """
        require_properties(dict((values.get("properties") or {}).items() - table.properties.items()))
        if "columns" in values:
            columns: TableColumns = values["columns"]
            values |= {
                "columns": list(map(column_json, columns.columns)),
                "partition_keys": list(map(column_json, columns.keys)),
                "dropped_columns": list(map(column_json, columns.dropped)) or None,
                "last_column_id": columns.last_id,
            }
        if (location := values.get("location", table.location)) != table.location:
            require_location(location)
            refuse_around_warehouse(location)
            values["location_key"] = claim_location(connection, location, table.full_name, table.id)
        try:
            connection.execute(update(TableRow).where(TableRow.id == table.id).values(**values))
        except IntegrityError:
            raise TableAlreadyExistsError(f"table {table.full_name} cannot get a name that another table has") from None
        if "database_id" not in values and (name := values.get("name", table.name)) != table.name:
            if not table.is_published:
                refuse_iceberg_name(connection, TableName(table.database, name))
            refuse_awaited_name(connection, f"{table.database}.{name}")

    def rename_table(self, connection: Connection, table: Table, name: TableName, **values: Any) -> None:
        """Store a new name, perhaps in another database, and changed fields; see `update_table`.

        Raises:
            DatabaseNotFoundError: The new database does not exist.
        """
        database = self._database_row(connection, name.database, lock=True)
        if connection.scalar(select(_TABLE.exists()), name._asdict()):
            raise TableAlreadyExistsError(f"table {name} exists; choose another name, or drop it first")
        self.update_table(connection, table, **values, name=name.name, database_id=database.id)
        if not table.is_published:
            refuse_iceberg_name(connection, name)
        refuse_awaited_name(connection, str(name))

    def changed_properties(self, table: Table, changes: Mapping[str, str | None] | None) -> dict[str, str]:
        """Return a table's properties after a change; None removes a property."""
        return changed_properties(table.properties, changes)

    @staticmethod
    def refuse_if_busy(connection: Connection, table: Table) -> None:
        """Refuse to change a table's name or location while an exclusive operation runs on it.

        Raises:
            OperationConflictError: Such an operation is running.
        """
        hold_operations(connection, table.id)
        busy = connection.scalar(
            select(OperationRow.id).where(
                OperationRow.table_id == table.id,
                OperationRow.is_exclusive,
                OperationRow.state == "RUNNING",
            )
        )
        if busy:
            raise OperationConflictError(
                f"operation {busy} is changing table {table.full_name}; wait for it, or cancel it: "
                f"calve give-up '{busy}'",
                busy,
            )

    def has_partitions(self, connection: Connection, table: Table) -> bool:
        """Return whether a table has any partition or, if the catalog records its files, any data file, now or before.

        Such a table has its earlier files until vacuum deletes them.
        """
        rows = (PartitionRow, DataFileRow, FormerFileRow) if table.has_file_rows else (PartitionRow,)
        return any(connection.scalar(select(exists().where(row.table_id == table.id))) for row in rows)


def _table(database: str, row: Row[Any], pointer: str | None = None) -> Table:
    """Return a table.

    Args:
        pointer: The metadata location in the Iceberg catalog.
    """
    table_type = TableType(row.table_type)
    return Table(
        database=database,
        name=row.name,
        columns=tuple(map(column_from_json, row.columns)),
        partition_keys=tuple(map(column_from_json, row.partition_keys)),
        format=FileFormat(row.format),
        location=row.location,
        properties=row.properties,
        scheme=None if row.scheme is None else scheme_from_json(row.scheme),
        id=row.id,
        version=row.version,
        kind=TableKind(row.kind),
        description=row.description,
        view_text=row.view_text,
        buckets=buckets_from_json(row.buckets),
        table_type=table_type,
        metadata_location=pointer if table_type is TableType.ICEBERG else None,
        dropped_columns=tuple(map(column_from_json, row.dropped_columns or ())),
        last_column_id=row.last_column_id,
        published_location=row.published_location,
        live_location=pointer or row.published_location if row.published_location else None,
        delete_file_count=row.delete_file_count,
        created_at_ms=row.created_at_ms,
        details=row.details,
    )
