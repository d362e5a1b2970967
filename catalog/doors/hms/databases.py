"""Calls about catalogs and databases."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from hive_metastore import ttypes
from hive_metastore.ttypes import (
    InvalidObjectException,
    InvalidOperationException,
    MetaException,
    NoSuchObjectException,
)

from catalog.doors.hms import release_4
from catalog.doors.hms.base import Base
from catalog.doors.hms.names import CATALOG, VALID_NAME, matching, parse_database
from catalog.doors.hms.structures import database_from, to_database, unqualified
from catalog.errors import DatabaseNotEmptyError
from catalog.files.folders import make_folders, remove_folders
from catalog.model.identifiers import DEFAULT_DATABASE

# ruff: noqa: D102 - the calls are those of the protocol, and have its names


_DATABASE_FIELDS = (
    *("description", "locationUri", "parameters", "ownerName", "ownerType", "catalogName", "managedLocationUri"),
)
"""Fields of a database that the request to create it has, too."""


class DatabaseCalls(Base):
    """Creation, change and drop of databases; the one catalog."""

    # --- catalogs -----------------------------------------------------------------------------------------------

    def get_catalogs(self) -> Any:
        return ttypes.GetCatalogsResponse(names=[CATALOG])

    def get_catalog(self, request: Any) -> Any:
        name = self._given(request, "catalog").name
        if (name or "").lower() != CATALOG:
            raise NoSuchObjectException(f"there is no catalog {name!r}; the only one is {CATALOG}")
        catalog = ttypes.Catalog(name=CATALOG, description="Calve", locationUri=self._warehouse())
        return ttypes.GetCatalogResponse(catalog=catalog)

    def create_catalog(self, request: Any) -> None:
        raise MetaException(f"catalogs cannot be created; the only one is {CATALOG}, create a database in it")

    def alter_catalog(self, request: Any) -> None:
        raise InvalidOperationException("catalogs cannot be changed; change the databases")

    def drop_catalog(self, request: Any) -> None:
        raise InvalidOperationException("catalogs cannot be dropped; drop the databases")

    # --- databases ----------------------------------------------------------------------------------------------

    def get_all_databases(self) -> list[str]:
        return self.get_databases(None)

    def get_databases(self, pattern: str | None) -> list[str]:
        name = parse_database(pattern)
        if name.catalog.lower() != CATALOG:
            return []
        return matching((database.name for database in self.entries.databases()), name.database)

    def get_databases_req(self, request: Any) -> Any:
        self.is_of_release_4 = True
        if (request.catalogName or CATALOG).lower() != CATALOG:
            return release_4.GetDatabaseObjectsResponse(databases=[])
        known = {database.name: database for database in self.entries.databases()}
        found = matching(known, parse_database(request.pattern).database)
        return release_4.GetDatabaseObjectsResponse(databases=[to_database(known[name]) for name in found])

    def get_database(self, name: str | None) -> Any:
        return to_database(self.entries.database(self._database(name)))

    def get_database_req(self, request: Any) -> Any:
        self.is_of_release_4 = True
        return to_database(self.entries.database(self._database(request.name, request.catalogName)))

    def create_database(self, database: Any) -> None:
        name = self._given(database.name, "name of the database")
        try:
            self._database(name, database.catalogName)
        except NoSuchObjectException as error:
            raise InvalidObjectException(error.message) from None
        if not VALID_NAME.fullmatch(name.rpartition("#")[2]):
            raise InvalidObjectException(f"{name} is not a valid database name")
        entry = replace(database_from(database), created_at=int(time.time()))
        if entry.location is None:
            # As Hive names the folder.
            entry = replace(entry, location=f"{self.catalog.table_entries.database_folder(entry.name, None)}.db")
        made = make_folders([self.catalog.table_entries.database_folder(entry.name, entry.location)])
        try:
            self.entries.create_database(entry)
        except BaseException:
            remove_folders(made)
            raise

    def create_database_req(self, request: Any) -> None:
        self.is_of_release_4 = True
        fields = {name: getattr(request, name) for name in _DATABASE_FIELDS}
        self.create_database(ttypes.Database(name=request.databaseName, **fields))

    def alter_database_req(self, request: Any) -> None:
        self.is_of_release_4 = True
        self.alter_database(request.oldDbName, request.newDb)

    def alter_database(self, name: str | None, database: Any) -> None:
        known = self._database(name)
        before = self.entries.database(known)
        after = database_from(self._given(database, "database"))
        # As Hive, which keeps what an older client does not know.
        after = replace(
            after,
            name=known,
            location=unqualified(after.location, before.location) or before.location,
            description=before.description if after.description is None else after.description,
            owner_type=after.owner_type or before.owner_type,
            created_at=before.created_at,
            extra=after.extra or before.extra,
        )
        self.entries.alter_database(known, after)

    def drop_database(self, name: str | None, delete_data: bool, cascade: bool) -> None:
        self._drop_database(self._database(name), bool(delete_data), bool(cascade))

    def drop_database_req(self, request: Any) -> None:
        self.is_of_release_4 = True
        try:
            name = self._database(request.name, request.catalogName)
            self._drop_database(name, request.deleteData, request.cascade)
        except NoSuchObjectException:
            if not request.ignoreUnknownDb:
                raise

    def _drop_database(self, name: str, delete_data: bool, cascade: bool) -> None:
        if name == DEFAULT_DATABASE:
            raise MetaException(f"database {DEFAULT_DATABASE} cannot be dropped; clients expect it")
        functions = self.get_functions(name, "*")
        if functions and not cascade:
            raise InvalidOperationException(f"database {name} is not empty; it has functions")
        try:
            self.entries.drop_database(name, cascade=cascade, delete_data=delete_data)
        except DatabaseNotEmptyError:
            raise InvalidOperationException(f"Database {name} is not empty. One or more tables exist.") from None

    def get_functions(self, database: str | None, pattern: str | None) -> list[str]:
        raise NotImplementedError
