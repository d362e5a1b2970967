"""Names and folders that engines' tables may have beside those of Calve and of others."""

from __future__ import annotations

from sqlalchemy import Connection, select

from catalog.engine_tables.model import Loaded
from catalog.engine_tables.names import Identifier
from catalog.engine_tables.places import folders_of
from catalog.errors import InvalidRequestError
from catalog.files.locations import comparable, is_within
from catalog.iceberg.documents.schemas import Json
from catalog.iceberg.own_folders import folders_elsewhere, keep_folders
from catalog.iceberg.storage import table_folder
from catalog.settings.places import require_location, require_own_folder
from catalog.storage.locks import hold
from catalog.storage.schema import DatabaseRow, TableRow
from catalog.tables.ownership import LOCATIONS, claim_held_location


def own_id(connection: Connection, identifier: Identifier) -> int | None:
    """Return the id of a table or view of this name that Calve itself manages; None if there is none."""
    name = identifier.table
    if name is None:
        return None
    own = select(TableRow.id).join(DatabaseRow, TableRow.database_id == DatabaseRow.id)
    return connection.scalar(own.where(TableRow.name == name.name, DatabaseRow.name == name.database))


def claim_folders(
    connection: Connection,
    identifier: Identifier,
    before: Loaded | None,
    after: Json,
    location: str | None,
    former: str | None = None,
) -> None:
    """Check the folders of new metadata as `refuse_folders`, until the commit, and make them the table's.

    Args:
        location: Of the new metadata, whose folders become the table's; None if they are not written.

    Raises:
        CatalogError: As for `refuse_folders`.
        LocationNotAllowedError: The folder of the metadata is not allowed.
    """
    around = [] if location is None else _new_home(before, after, location)
    if around or new_folders(before, after):
        hold(connection, LOCATIONS)
    refuse_folders(connection, identifier, before, after, former)
    for folder in around:
        require_location(folder, "folder of metadata")
        _claim(connection, identifier, own_id(connection, identifier), folder, former)
    if location is not None:
        elsewhere = folders_elsewhere(location, folders_of(after))
        if before is None or elsewhere or folders_elsewhere(str(before.location), folders_of(before.document)):
            keep_folders(connection, identifier.namespace.stored, identifier.name, elsewhere)


def refuse_folders(
    connection: Connection, identifier: Identifier, before: Loaded | None, after: Json, former: str | None = None
) -> None:
    """Check that no folder which new metadata of a table name, and those before do not, is one of others, as of now.

    Args:
        former: The full name of a table that may have the same folders.

    Raises:
        LocationInUseError: One is a table's.
        LocationNotAllowedError: One is the warehouse, or overlaps a folder of sources.
        InvalidRequestError: The location of a table that Calve manages would change.
    """
    folders, new = new_folders(before, after), after["location"]
    old = new if before is None else before.document["location"]
    if not folders and old == new:
        return
    table_id = own_id(connection, identifier)
    if table_id is not None and comparable(old) != comparable(new):
        raise InvalidRequestError(
            f"table {identifier} is managed by Calve, and its location cannot become {new}; keep {old}"
        )
    for folder in folders:
        _claim(connection, identifier, table_id, folder, former)


def _claim(
    connection: Connection, identifier: Identifier, table_id: int | None, folder: str, former: str | None
) -> None:
    require_own_folder(folder)
    stored_name = former or f"{identifier.namespace.stored}.{identifier.name}"
    claim_held_location(connection, folder, str(identifier), table_id or 0, stored_name=stored_name)


def _new_home(before: Loaded | None, after: Json, location: str) -> list[str]:
    """Return the folder that counts as a table's because of the place of its metadata, if nothing else names it."""
    home = table_folder(location)
    is_known = before is not None and before.location is not None and home == table_folder(before.location)
    return [] if is_known or is_within(comparable(home), comparable(after["location"])) else [home]


def new_folders(before: Loaded | None, after: Json) -> list[str]:
    """Return the folders that new metadata of a table name, and those before do not."""
    known = set[str]() if before is None else set(folders_of(before.document))
    return [folder for folder in folders_of(after) if folder not in known]
