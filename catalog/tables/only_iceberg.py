"""Iceberg tables that engines made: the catalog has their pointers, and no definition of its own."""

from __future__ import annotations

from contextlib import suppress

from sqlalchemy import Connection, Select, bindparam, delete, exists, or_, select

from catalog.errors import DatabaseNotEmptyError, InvalidIdentifierError, TableAlreadyExistsError
from catalog.iceberg.pointers import CATALOG, find_entry, is_table
from catalog.model import FileFormat, Table, TableKind, TableType
from catalog.model.identifiers import TableName
from catalog.storage.schema import DatabaseRow, IcebergNamespaceRow, IcebergTableRow, TableRow

ICEBERG_NAME = (
    select(IcebergTableRow.table_name)
    .where(
        IcebergTableRow.catalog_name == CATALOG,
        IcebergTableRow.table_namespace == bindparam("database"),
        IcebergTableRow.table_name == bindparam("name"),
    )
    .exists()
)
"""The condition that an Iceberg table or view has the name of the parameters `database` and `name`."""

_ONLY_ICEBERG = (
    select(IcebergTableRow.table_namespace, IcebergTableRow.table_name, IcebergTableRow.metadata_location)
    .join(DatabaseRow, DatabaseRow.name == IcebergTableRow.table_namespace)
    .where(
        IcebergTableRow.catalog_name == CATALOG,
        is_table(),
        ~exists().where(TableRow.database_id == DatabaseRow.id, TableRow.name == IcebergTableRow.table_name),
    )
)


def find_only_iceberg(connection: Connection, name: TableName) -> Table | None:
    """Return the Iceberg table of a name that is not among Calve's own; None when there is none."""
    entry = find_entry(connection, *name)
    return None if entry is None or entry.is_view else _table(name, entry.location)


def only_iceberg_names(database: str) -> Select[str]:
    """Return the query of the names of a database's Iceberg tables, also of those that are among Calve's own."""
    row = IcebergTableRow
    has_metadata = row.metadata_location.is_not(None)
    return select(row.table_name.label("name")).where(
        row.catalog_name == CATALOG, is_table(), row.table_namespace == database, has_metadata
    )


def list_only_iceberg(connection: Connection, database: str | None = None) -> list[Table]:
    """Return the Iceberg tables of one database, or of all, that engines made; without columns.

    Those with names that no statement can write are left out.
    """
    query = _ONLY_ICEBERG if database is None else _ONLY_ICEBERG.where(DatabaseRow.name == database)
    tables = []
    for row in connection.execute(query):
        with suppress(InvalidIdentifierError):
            name = TableName(row.table_namespace, row.table_name)
            if row.metadata_location and name == TableName.parse(str(name)):
                tables.append(_table(name, row.metadata_location))
    return tables


def _table(name: TableName, metadata_location: str) -> Table:
    """Return a table as far as the catalog's rows tell; its metadata have the rest."""
    return Table(
        *name,
        columns=(),
        partition_keys=(),
        format=FileFormat.PARQUET,
        location=metadata_location.rpartition("/")[0].removesuffix("/metadata"),
        kind=TableKind.EXTERNAL,
        table_type=TableType.ICEBERG,
        metadata_location=metadata_location,
    )


def refuse_iceberg_name(connection: Connection, name: TableName) -> None:
    """Check that no Iceberg table or view has a name.

    Raises:
        TableAlreadyExistsError: One has.
    """
    if connection.scalar(select(ICEBERG_NAME), name._asdict()):
        raise TableAlreadyExistsError(
            f"there is an Iceberg table or view {name} in the catalog; choose another name, or drop it first"
        )


def refuse_iceberg_objects(connection: Connection, database: str) -> None:
    """Check that only Calve's own tables are in a database.

    Raises:
        DatabaseNotEmptyError: It has Iceberg tables, views or namespaces of engines.
    """
    tables, spaces, inside = IcebergTableRow, IcebergNamespaceRow, f"{database}."
    has_tables = exists().where(
        tables.catalog_name == CATALOG,
        or_(tables.table_namespace == database, tables.table_namespace.startswith(inside, autoescape=True)),
    )
    has_spaces = exists().where(spaces.catalog_name == CATALOG, spaces.namespace.startswith(inside, autoescape=True))
    if connection.scalar(select(or_(has_tables, has_spaces))):
        raise DatabaseNotEmptyError(
            f"database {database} still has Iceberg tables, views or namespaces of engines; drop these first"
        )


def delete_iceberg_views(connection: Connection, database: str) -> None:
    """Delete the views of a database that engines made; their metadata files stay, as after DROP VIEW."""
    row = IcebergTableRow
    is_view = (row.catalog_name == CATALOG, row.table_namespace == database, ~is_table())
    connection.execute(delete(row).where(*is_view))


def delete_namespace_rows(connection: Connection, database: str) -> None:
    """Delete what Iceberg's SQL catalogs have stored about a database."""
    row = IcebergNamespaceRow
    connection.execute(delete(row).where(row.catalog_name == CATALOG, row.namespace == database))
