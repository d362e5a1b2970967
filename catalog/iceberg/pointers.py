"""Pointers: where the metadata of each Iceberg table is.

They are the rows that PyIceberg's SqlCatalog and Iceberg's JDBC catalog read and commit to, but here in transactions of
this catalog, with whatever else they change. An engine finds the tables when it calls its catalog `calve`.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, delete, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from catalog.errors import InvalidTableError, TableAlreadyExistsError
from catalog.files.locations import comparable
from catalog.storage.schema import IcebergTableRow, SharedLocationRow

CATALOG = "calve"
"""What the catalog is called in the rows of its tables."""

_TABLE = "TABLE"
_LONGEST = 1_000
"""Characters of a metadata location. Source: the columns of PyIceberg's and Iceberg's catalogs."""


@dataclass(frozen=True)
class Pointer:
    """An Iceberg table of any catalog that has its rows in this database.

    Attributes:
        location: Of the current metadata.
        previous: Of the metadata before; None when it has none.
    """

    catalog: str
    database: str
    name: str
    location: str
    previous: str | None = None

    @property
    def full_name(self) -> str:
        """`database.name`, with the catalog before it if that is another one."""
        name = f"{self.database}.{self.name}"
        return name if self.catalog == CATALOG else f"{self.catalog}.{name}"


def all_pointers(connection: Connection) -> list[Pointer]:
    """Return all Iceberg tables, those of other catalogs in the same database included."""
    row = IcebergTableRow
    query = select(
        row.catalog_name, row.table_namespace, row.table_name, row.metadata_location, row.previous_metadata_location
    ).where(_is_table())
    return [
        Pointer(catalog, database, name, location, previous)
        for catalog, database, name, location, previous in connection.execute(query)
        if location
    ]


def find_pointer(connection: Connection, database: str, table: str) -> str | None:
    """Return the metadata location of an Iceberg table; None when there is no such table."""
    query = select(IcebergTableRow.metadata_location).where(_is_table(), *_named(database, table))
    return connection.scalar(query)


def pointer_locations(connection: Connection) -> dict[tuple[str, str], str]:
    """Return the metadata locations of all Iceberg tables: database and name → location."""
    row = IcebergTableRow
    query = select(row.table_namespace, row.table_name, row.metadata_location).where(
        row.catalog_name == CATALOG, _is_table()
    )
    return {(database, name): location for database, name, location in connection.execute(query) if location}


def insert_pointer(connection: Connection, database: str, table: str, metadata_location: str) -> None:
    """Make an Iceberg table known.

    Raises:
        TableAlreadyExistsError: There is an Iceberg table or view of this name.
        InvalidTableError: The location is longer than what the catalogs keep.
    """
    check_length(metadata_location)
    row = insert(IcebergTableRow).values(
        catalog_name=CATALOG,
        table_namespace=database,
        table_name=table,
        metadata_location=metadata_location,
        iceberg_type=_TABLE,
    )
    try:
        connection.execute(row)
    except IntegrityError:
        raise TableAlreadyExistsError(
            f"there is an Iceberg table or view {database}.{table} in the catalog; choose another name, or drop it "
            "first"
        ) from None


def move_pointer(connection: Connection, database: str, table: str, before: str, after: str) -> bool:
    """Let an Iceberg table have other metadata, as a commit does; return whether it had the expected ones.

    Raises:
        InvalidTableError: The location is longer than what the catalogs keep.
    """
    check_length(after)
    moved = connection.execute(
        update(IcebergTableRow)
        .where(_is_table(), *_named(database, table), IcebergTableRow.metadata_location == before)
        .values(metadata_location=after, previous_metadata_location=before)
    )
    return moved.rowcount == 1


def delete_pointer(connection: Connection, database: str, table: str, metadata_location: str | None = None) -> bool:
    """Forget an Iceberg table and what it shares; return whether there was one, with these metadata if they are given.

    Its files stay.
    """
    conditions = [_is_table(), *_named(database, table)]
    if metadata_location is not None:
        conditions.append(IcebergTableRow.metadata_location == metadata_location)
    held = update(IcebergTableRow).where(*conditions).values(catalog_name=CATALOG)
    if not connection.execute(held).rowcount:
        return False
    # First, because a trigger guards the pointers of tables that share files.
    connection.execute(
        delete(SharedLocationRow).where(
            SharedLocationRow.table_namespace == database, SharedLocationRow.table_name == table
        )
    )
    connection.execute(delete(IcebergTableRow).where(*conditions))
    return True


def share_location(connection: Connection, database: str, table: str, location: str) -> None:
    """Record that an Iceberg table has data files below a location that is another table's.

    Args:
        location: As `catalog.files.locations.comparable` writes it.
    """
    values = {"location": location, "table_namespace": database, "table_name": table}
    row = SharedLocationRow
    known = select(row.location).filter_by(**values)
    if connection.scalar(known) is None:
        connection.execute(insert(row).values(**values))


def shared_locations(connection: Connection) -> list[tuple[str, str, str]]:
    """Return what Iceberg tables share: location, database and name of the table, while that is there."""
    shared, pointer = SharedLocationRow, IcebergTableRow
    query = select(shared.location, shared.table_namespace, shared.table_name).join(
        pointer,
        (pointer.table_namespace == shared.table_namespace)
        & (pointer.table_name == shared.table_name)
        & (pointer.catalog_name == CATALOG),
    )
    return [(comparable(location), database, name) for location, database, name in connection.execute(query)]


def check_length(metadata_location: str) -> None:
    """Refuse a metadata location that the catalogs of others could not keep.

    Raises:
        InvalidTableError: It is too long.
    """
    if len(metadata_location) > _LONGEST:
        raise InvalidTableError(
            f"the metadata location {metadata_location} has {len(metadata_location):,} characters, and Iceberg's "
            f"catalogs keep {_LONGEST:,}; choose a shorter location"
        )


def _named(database: str, table: str) -> tuple[ColumnElement[bool], ...]:
    row = IcebergTableRow
    return row.catalog_name == CATALOG, row.table_namespace == database, row.table_name == table


def _is_table() -> ColumnElement[bool]:
    # Iceberg's JDBC catalog wrote no type before it knew views.
    return or_(IcebergTableRow.iceberg_type == _TABLE, IcebergTableRow.iceberg_type.is_(None))
