"""Pointers: the metadata location of each Iceberg table.

They are rows that PyIceberg's SqlCatalog and Iceberg's JDBC catalog read and commit to; here they are written in the
catalog's transactions, together with other changes. An engine finds the tables if its catalog is named `calve`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    ScalarSelect,
    SQLColumnExpression,
    delete,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from catalog.errors import InvalidTableError, TableAlreadyExistsError, TableNotFoundError
from catalog.files.locations import comparable
from catalog.model import Table
from catalog.storage.schema import IcebergTableRow, SharedLocationRow

CATALOG = "calve"
"""The catalog's name in the rows of its tables."""

_TABLE, _VIEW = "TABLE", "VIEW"
_LONGEST = 1_000
"""Maximum length of a metadata location. Source: the columns of PyIceberg's and Iceberg's catalogs."""


@dataclass(frozen=True)
class Pointer:
    """An Iceberg table of any catalog with rows in this database.

    Attributes:
        location: Of the current metadata.
        previous: Of the previous metadata; None when there is none.
    """

    catalog: str
    database: str
    name: str
    location: str
    previous: str | None = None

    @property
    def full_name(self) -> str:
        """`database.name`, prefixed with the catalog's name if it is another catalog."""
        name = f"{self.database}.{self.name}"
        return name if self.catalog == CATALOG else f"{self.catalog}.{name}"


def all_pointers(connection: Connection) -> list[Pointer]:
    """Return all Iceberg tables, including those of other catalogs in the same database."""
    return list(find_pointers(connection))


def find_pointers(
    connection: Connection, *conditions: ColumnElement[bool], with_views: bool = False
) -> Iterator[Pointer]:
    """Yield Iceberg tables, and perhaps views, whose rows meet conditions, of all catalogs in the database."""
    row = IcebergTableRow
    query = select(
        row.catalog_name, row.table_namespace, row.table_name, row.metadata_location, row.previous_metadata_location
    ).where(*conditions)
    if not with_views:
        query = query.where(is_table())
    for catalog, database, name, location, previous in connection.execute(query):
        if location:
            yield Pointer(catalog, database, name, location, previous)


def find_pointer(connection: Connection, database: str, table: str, catalog: str = CATALOG) -> str | None:
    """Return the metadata location of an Iceberg table; None when there is no such table."""
    query = select(IcebergTableRow.metadata_location).where(is_table(), *_named(database, table, catalog))
    return connection.scalar(query)


def require_metadata(table: Table) -> str:
    """Return the location of the current metadata of an Iceberg table.

    Raises:
        TableNotFoundError: Another engine has dropped or renamed it.
    """
    if table.metadata_location is None:
        raise TableNotFoundError(
            f"another engine has dropped or renamed the Iceberg table {table.full_name}; drop it here, too: DROP TABLE "
            f"{table.full_name}; or bring its Hive table back: CALL iceberg.system.revert(schema_name => "
            f"'{table.database}', table_name => '{table.name}', lose_data => true)"
        )
    return table.metadata_location


def previous_location(connection: Connection, database: str, table: str) -> str | None:
    """Return the metadata location of an Iceberg table before its latest commit; None if there is none."""
    query = select(IcebergTableRow.previous_metadata_location).where(is_table(), *_named(database, table))
    return connection.scalar(query)


@dataclass(frozen=True)
class Entry:
    """A row of an Iceberg table or view in the catalog `calve`, as it is stored."""

    database: str
    name: str
    location: str
    is_view: bool


def find_entry(connection: Connection, database: str, name: str) -> Entry | None:
    """Return the Iceberg table or view of a name; None when there is none."""
    row = IcebergTableRow
    query = select(row.metadata_location, row.iceberg_type).where(*_named(database, name))
    found = connection.execute(query).one_or_none()
    if found is None or not found.metadata_location:
        return None
    return Entry(database, name, found.metadata_location, found.iceberg_type == _VIEW)


def list_names(
    connection: Connection, database: str, *, is_view: bool = False, after: str | None = None, limit: int | None = None
) -> list[str]:
    """Return the names of the Iceberg tables or views of a namespace, in order.

    Args:
        after: Only those after this name.
    """
    row = IcebergTableRow
    query = select(row.table_name).where(_is(is_view), row.catalog_name == CATALOG, row.table_namespace == database)
    if after is not None:
        query = query.where(row.table_name > after)
    return list(connection.scalars(query.order_by(row.table_name).limit(limit)))


def pointer_of(database: SQLColumnExpression[str], table: SQLColumnExpression[str]) -> ScalarSelect[Any]:
    """Return a subquery for the metadata location of the Iceberg table that has the names in a row of the query."""
    row = IcebergTableRow
    names = row.table_namespace == database, row.table_name == table
    query = select(row.metadata_location).where(row.catalog_name == CATALOG, is_table(), *names)
    return query.correlate_except(row).scalar_subquery()


def hold_pointer(connection: Connection, database: str, table: str) -> str | None:
    """Return the metadata location of an Iceberg table, and lock it against other commits until the transaction ends.

    SQLite has one writer at a time anyway.
    """
    query = select(IcebergTableRow.metadata_location).where(is_table(), *_named(database, table))
    return connection.scalar(query.with_for_update())


def insert_pointer(
    connection: Connection, database: str, table: str, metadata_location: str, *, is_view: bool = False
) -> None:
    """Insert the pointer of a new Iceberg table or view.

    Raises:
        TableAlreadyExistsError: An Iceberg table or view of this name exists.
        InvalidTableError: The location is too long for the catalogs.
    """
    check_length(metadata_location)
    row = insert(IcebergTableRow).values(
        catalog_name=CATALOG,
        table_namespace=database,
        table_name=table,
        metadata_location=metadata_location,
        iceberg_type=_VIEW if is_view else _TABLE,
    )
    try:
        with connection.begin_nested():
            connection.execute(row)
    except IntegrityError:
        raise TableAlreadyExistsError(
            f"there is an Iceberg table or view {database}.{table} in the catalog; choose another name, or drop it "
            "first"
        ) from None


def move_pointer(
    connection: Connection,
    database: str,
    table: str,
    before: str,
    after: str,
    *,
    has_previous: bool = True,
    is_view: bool = False,
) -> bool:
    """Replace the metadata of an Iceberg table or view, as a commit does; return whether it had the expected metadata.

    Args:
        has_previous: Whether the pointer also names the metadata before.

    Raises:
        InvalidTableError: The location is too long for the catalogs.
    """
    check_length(after)
    moved = connection.execute(
        update(IcebergTableRow)
        .where(_is(is_view), *_named(database, table), IcebergTableRow.metadata_location == before)
        .values(metadata_location=after, previous_metadata_location=before if has_previous else None)
    )
    return moved.rowcount == 1


def rename_pointer(
    connection: Connection,
    database: str,
    table: str,
    new_name: str,
    *,
    new_database: str | None = None,
    is_view: bool = False,
) -> bool:
    """Rename an Iceberg table or view, in its database or into another; return whether it existed.

    Raises:
        TableAlreadyExistsError: An Iceberg table or view has the new name.
    """
    new_database = database if new_database is None else new_database
    renamed = update(IcebergTableRow).where(_is(is_view), *_named(database, table))
    try:
        with connection.begin_nested():
            changed = connection.execute(renamed.values(table_namespace=new_database, table_name=new_name))
            return changed.rowcount == 1
    except IntegrityError:
        raise TableAlreadyExistsError(
            f"there is an Iceberg table or view {new_database}.{new_name} in the catalog; choose another name, or drop "
            "it first"
        ) from None


def delete_pointer(
    connection: Connection, database: str, table: str, metadata_location: str | None = None, *, is_view: bool = False
) -> bool:
    """Delete the pointer of an Iceberg table or view and its shared locations; return whether it existed.

    Its files are kept.

    Args:
        metadata_location: Delete it only if this is its metadata; None for any.
    """
    conditions = [_is(is_view), *_named(database, table)]
    if metadata_location is not None:
        conditions.append(IcebergTableRow.metadata_location == metadata_location)
    held = update(IcebergTableRow).where(*conditions).values(catalog_name=CATALOG)
    if not connection.execute(held).rowcount:
        return False
    # Deleted first, because a trigger protects the pointers of tables that share files.
    connection.execute(
        delete(SharedLocationRow).where(
            SharedLocationRow.table_namespace == database, SharedLocationRow.table_name == table
        )
    )
    connection.execute(delete(IcebergTableRow).where(*conditions))
    return True


def name_of_metadata(connection: Connection, location: str) -> str | None:
    """Return the full name of a table whose current metadata are in a file; None if there is none."""
    found = next(find_pointers(connection, IcebergTableRow.metadata_location == location), None)
    return None if found is None else found.full_name


def share_location(connection: Connection, database: str, table: str, location: str) -> None:
    """Record that an Iceberg table has data files below a location of another table.

    Args:
        location: As returned by `catalog.files.locations.comparable`.
    """
    values = {"location": location, "table_namespace": database, "table_name": table}
    row = SharedLocationRow
    known = select(row.location).filter_by(**values)
    if connection.scalar(known) is None:
        connection.execute(insert(row).values(**values))


def shared_locations(connection: Connection) -> list[tuple[str, str, str]]:
    """Return the shared locations of existing Iceberg tables: location, database and table name."""
    shared, pointer = SharedLocationRow, IcebergTableRow
    query = select(shared.location, shared.table_namespace, shared.table_name).join(
        pointer,
        (pointer.table_namespace == shared.table_namespace)
        & (pointer.table_name == shared.table_name)
        & (pointer.catalog_name == CATALOG),
    )
    return [(comparable(location), database, name) for location, database, name in connection.execute(query)]


def check_length(metadata_location: str) -> None:
    """Check that a metadata location fits into the columns of Iceberg's catalogs.

    Raises:
        InvalidTableError: It is too long.
    """
    if len(metadata_location) > _LONGEST:
        raise InvalidTableError(
            f"the metadata location {metadata_location} has {len(metadata_location):,} characters; Iceberg's "
            f"catalogs allow {_LONGEST:,}. Choose a shorter location"
        )


def _named(database: str, table: str, catalog: str = CATALOG) -> tuple[ColumnElement[bool], ...]:
    row = IcebergTableRow
    return row.catalog_name == catalog, row.table_namespace == database, row.table_name == table


def _is(is_view: bool) -> ColumnElement[bool]:
    return IcebergTableRow.iceberg_type == _VIEW if is_view else is_table()


def is_table() -> ColumnElement[bool]:
    """Return the condition that a row is that of a table."""
    # Iceberg's JDBC catalog wrote no type before it supported views.
    return or_(IcebergTableRow.iceberg_type == _TABLE, IcebergTableRow.iceberg_type.is_(None))
