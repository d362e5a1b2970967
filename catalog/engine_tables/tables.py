"""Iceberg tables and views as engines create them and commit to them, by Iceberg's REST protocol.

A commit reads the current metadata, checks the client's requirements, writes new metadata, and moves the pointer if it
still names the metadata that were read; otherwise all of that is repeated. Several tables move in one transaction.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import quote
from uuid import uuid4

from sqlalchemy import Connection, select

from catalog.engine_tables.claims import claim_folders, new_folders, own_id, refuse_folders
from catalog.engine_tables.entries import EngineEntries, find
from catalog.engine_tables.model import Also, Commit, Loaded, NewTable
from catalog.engine_tables.names import Identifier, Namespace
from catalog.engine_tables.obsolete import delete_obsolete
from catalog.engine_tables.places import check_manifests, check_places, writing_folders_of
from catalog.engine_tables.successors import require_successor
from catalog.errors import (
    CatalogError,
    CommitOutcomeUnknownError,
    ConflictError,
    EntryModifiedError,
    InvalidRequestError,
    StorageError,
)
from catalog.files.filesystem import Folder
from catalog.files.folders import has_only_empty_folders, make_folders
from catalog.files.locations import is_local
from catalog.iceberg.clock import now_ms
from catalog.iceberg.documents.consistency import check_consistency, check_written
from catalog.iceberg.documents.files import delete_documents, read_document, write_document
from catalog.iceberg.documents.new_tables import new_document
from catalog.iceberg.documents.requirements import check_requirements, is_create
from catalog.iceberg.documents.schemas import Json
from catalog.iceberg.documents.shapes import check_table, check_view
from catalog.iceberg.documents.tables import NAME_MAPPING, normalised, written
from catalog.iceberg.documents.updates import apply_updates
from catalog.iceberg.documents.views import apply_view_updates, new_view
from catalog.iceberg.pointers import (
    check_length,
    insert_pointer,
    move_pointer,
    name_of_metadata,
)
from catalog.model.identifiers import TableName
from catalog.operations.tables import name_lock, refuse_awaited_name
from catalog.settings.places import require_location
from catalog.storage.locks import hold
from catalog.storage.schema import TableRow
from catalog.tables.entries import TableEntries
from catalog.tables.normalising import normalise_location
from catalog.tables.ownership import LOCATIONS

log = logging.getLogger(__name__)

_ATTEMPTS = 10
_PAUSE_SECONDS = 0.02


@dataclass
class _Prepared:
    """A change with its new metadata; `base` is None for a new table, `document` if nothing changes."""

    identifier: Identifier
    base: Loaded | None
    document: Json | None
    location: str | None = None

    @property
    def result(self) -> Loaded:
        """The table or view after the change."""
        if self.document is None:
            assert self.base is not None
            return self.base
        return Loaded(self.location, self.document)


class _Overtaken(Exception):
    """Another commit came first."""


class EngineTables(EngineEntries):
    """The Iceberg tables and views of one catalog, as engines see them."""

    # --- Creation -----------------------------------------------------------------------------------------------------

    def stage(self, identifier: Identifier, new: NewTable) -> Loaded:
        """Return the metadata of a table that a later commit will create; nothing is stored in the catalog.

        On a local disk its folders are made, as DuckDB, which writes into them before that commit, needs them.

        Raises:
            TableAlreadyExistsError: A table or view has the name.
            CatalogError: As for `create`.
        """
        self._require_new(identifier)
        document = self._new_document(identifier, new)
        with self._storage.write() as connection:
            self._claim(connection, identifier, document, is_view=False)
        # An engine may be allowed to make a folder that the server cannot make.
        with suppress(StorageError):
            make_folders(writing_folders_of(document))
        return Loaded(None, document)

    def _require_new(self, identifier: Identifier) -> None:
        with self._storage.read() as connection:
            self._refuse_taken(connection, identifier, is_view=False)
            self.namespaces.require(connection, identifier.namespace)

    def create(self, identifier: Identifier, new: NewTable, also: Also | None = None) -> Loaded:
        """Create a table.

        Raises:
            DatabaseNotFoundError: The namespace does not exist.
            TableAlreadyExistsError: A table or view has the name.
            LocationInUseError: A table of Calve has files in the location.
            InvalidRequestError: The definition is invalid, or a location is not allowed.
            StorageError: The metadata cannot be written.
        """
        self._require_new(identifier)
        document = self._new_document(identifier, new)
        return self._publish([_Prepared(identifier, None, document)], is_view=False, also=also)[0]

    def create_view(
        self,
        identifier: Identifier,
        schema: Json,
        version: Json,
        location: str | None = None,
        properties: Mapping[str, str] | None = None,
        also: Also | None = None,
    ) -> Loaded:
        """Create a view.

        Args:
            version: Its first version, in Iceberg's JSON.
            location: None for a folder below that of the namespace.

        Raises:
            CatalogError: As for `create`.
        """
        with self._storage.read() as connection:
            self._refuse_taken(connection, identifier, is_view=True)
            self.namespaces.require(connection, identifier.namespace)
        document = new_view(schema, version, self._location(identifier, location), properties or {})
        check_places([], document)
        return self._publish([_Prepared(identifier, None, document)], is_view=True, also=also)[0]

    def register(
        self,
        identifier: Identifier,
        location: str,
        *,
        overwrite: bool = False,
        is_view: bool = False,
        is_rename: bool = False,
    ) -> Loaded:
        """Make a metadata file a table or view.

        Args:
            overwrite: Replace the metadata of an existing table.
            is_rename: Another table may have these metadata: clients of Glue rename a table by creating one of the new
                name, and then dropping the one of the former name.

        Raises:
            CatalogError: As for `create`.
        """
        document = self._written_document(location, is_view=is_view)
        with self._storage.write() as connection:
            entry = find(connection, identifier)
            if entry is not None and overwrite and not entry.is_view and not self._is_own(connection, identifier):
                claim_folders(connection, identifier, None, document, location)
                if not move_pointer(connection, entry.database, entry.name, entry.location, location):
                    raise ConflictError(f"{identifier}: another commit came first; register the metadata again")
            else:
                former = name_of_metadata(connection, location) if is_rename else None
                self._claim(connection, identifier, document, is_view=is_view, location=location, former=former)
                insert_pointer(connection, identifier.namespace.stored, identifier.name, location, is_view=is_view)
        return Loaded(location, document)

    @staticmethod
    def _written_document(location: str, *, is_view: bool = False, before: Json | None = None) -> Json:
        """Return the metadata that an engine has written, after checking them.

        Args:
            before: The metadata that they replace; None for those of a new table or view.
        """
        require_location(location, "metadata-location")
        check_length(location)
        document = read_document(location)
        if is_view:
            check_view(document)
        else:
            document = normalised(document)
            check_table(document)
            check_consistency(document)
            check_written(document, latest_ms=max(now_ms(), (before or {}).get("last-updated-ms", 0)))
        check_places([], document)
        return document

    def point(self, identifier: Identifier, location: str, *, expected: str, folder: str | None) -> None:
        """Move a table to metadata that an engine has written, if it still has the expected ones.

        Args:
            folder: The location of the table in the entry that names the metadata; None for the one that it has.

        Raises:
            InvalidRequestError: The metadata are those of another table.
            TableNotFoundError: It does not exist.
            EntryModifiedError: It has other metadata.
            CatalogError: As for `create`.
        """
        before = self.load(identifier)
        document = self._written_document(location, before=before.document)
        if before.location != expected:
            raise EntryModifiedError(str(identifier), "metadata_location", before.location, expected)
        require_successor(identifier, before, document, folder)
        known = {snapshot["snapshot-id"] for snapshot in before.document["snapshots"]}
        new = (snapshot for snapshot in document["snapshots"] if snapshot["snapshot-id"] not in known)
        check_manifests(({"action": "add-snapshot", "snapshot": snapshot} for snapshot in new), before.document)
        with self._storage.write() as connection:
            claim_folders(connection, identifier, before, document, location)
            self._require_followed_version(connection, identifier, before.document, document)
            names = identifier.namespace.stored, identifier.name
            if not move_pointer(connection, *names, expected, location):
                raise EntryModifiedError(str(identifier), "metadata_location", before.location, expected)

    def become_iceberg(
        self, entries: TableEntries, name: TableName, location: str, properties: Mapping[str, str], former: Json
    ) -> None:
        """Make a Hive-style table an Iceberg table with metadata that an engine has written over its files.

        As after a migration, the catalog keeps the former definition and partitions.

        Args:
            properties: The properties of the definition that is kept.
            former: The entry of the table, which becomes a version.

        Raises:
            TableNotFoundError: It does not exist.
            TableAlreadyExistsError: There is an Iceberg table or view of this name.
            IcebergTableError: It is an Iceberg table.
            ConflictError: An operation is changing the table.
            CatalogError: As for `create`.
        """
        document = self._written_document(location)
        check_manifests({"action": "add-snapshot", "snapshot": snapshot} for snapshot in document["snapshots"])
        with self._storage.write() as connection:
            claim_folders(connection, Identifier.of(Namespace.of([name.database]), name.name), None, document, location)
        entries.become_iceberg(name, location, properties, former)

    def _new_document(self, identifier: Identifier, new: NewTable) -> Json:
        location = self._location(identifier, new.location)
        document = new_document(new.schema, location, spec=new.spec, order=new.order, properties=new.properties)
        check_places([], document)
        return document

    def _location(self, identifier: Identifier, location: str | None) -> str:
        if location is not None:
            require_location(location)
            return normalise_location(location)
        folder = self.namespaces.load(identifier.namespace).get("location")
        if folder is None:
            levels = (level.replace(".", "%2E") for level in identifier.namespace.levels)
            folder = self._definitions.usual_location(quote(".".join(levels), safe="%"))
        usual = f"{folder.rstrip('/')}/{_folder_name(identifier)}"
        # A renamed or dropped table may have left its files there.
        is_free = Folder(usual).is_empty("") or (is_local(usual) and has_only_empty_folders(usual))
        return usual if is_free else f"{usual}-{uuid4().hex[:12]}"

    def _claim(
        self,
        connection: Connection,
        identifier: Identifier,
        document: Json,
        *,
        is_view: bool,
        location: str | None = None,
        former: str | None = None,
    ) -> None:
        """Lock the name of a new table or view, and check that it and its folders are free.

        Args:
            location: Of its metadata; None if they are not written.
            former: The full name of a table that may have the same folders.
        """
        self.namespaces.lock(connection, identifier.namespace)
        hold(connection, LOCATIONS, name_lock(f"{identifier.namespace.stored}.{identifier.name}"))
        self._refuse_taken(connection, identifier, is_view=is_view)
        if identifier.table is not None:
            refuse_awaited_name(connection, str(identifier.table))
        claim_folders(connection, identifier, None, document, location, former)

    # --- Commits ------------------------------------------------------------------------------------------------------

    def commit(self, commits: Sequence[Commit], also: Also | None = None, *, is_view: bool = False) -> list[Loaded]:
        """Commit to one or several tables, or to a view: all changes, or none.

        Raises:
            TableNotFoundError: A table does not exist.
            RequirementFailedError: A requirement does not hold.
            ConflictError: Others commit faster.
            InvalidRequestError: An update is invalid, or names a location that is not allowed.
            StorageError: Metadata cannot be read or written.
            CommitOutcomeUnknownError: The connection to the database was lost during the commit.
        """
        identifiers = [commit.identifier for commit in commits]
        if repeated := next((name for name in identifiers if identifiers.count(name) > 1), None):
            raise InvalidRequestError(f"table {repeated} has more than one change; combine them in one")
        for attempt in range(_ATTEMPTS):
            prepared = [self._prepare(commit, is_view=is_view) for commit in commits]
            if attempt == 0:
                for commit, change in zip(commits, prepared, strict=True):
                    check_manifests(commit.updates, None if change.base is None else change.base.document)
            with suppress(_Overtaken):
                return self._publish(prepared, is_view=is_view, also=also)
            time.sleep(random.uniform(0, _PAUSE_SECONDS * (attempt + 1)))
        raise ConflictError(
            f"{', '.join(map(str, identifiers))}: other commits came first {_ATTEMPTS} times; try again later"
        )

    def _prepare(self, commit: Commit, *, is_view: bool) -> _Prepared:
        """Return the new metadata of a change, which are not written yet."""
        creates = not is_view and is_create(commit.requirements)
        base = None
        if not creates or self.exists(commit.identifier):
            base = self.load(commit.identifier, is_view=is_view)
        check_requirements(None if base is None else base.document, commit.requirements, is_view=is_view)
        check_places(commit.updates)
        if is_view:
            assert base is not None
            return _Prepared(commit.identifier, base, apply_view_updates(base.document, commit.updates))
        document = None if base is None else base.document
        location = None if base is None else base.location
        updated = apply_updates(document, _with_location(self, commit, base), location=location)
        if document is not None and updated is not None:
            self._keep_names(commit.identifier, document, updated)
        return _Prepared(commit.identifier, base, updated)

    def _keep_names(self, identifier: Identifier, before: Json, after: Json) -> None:
        """Keep the names that columns of a table which Calve follows have in files without field ids.

        Iceberg's libraries change them with the name of each column, and thus give the values of a dropped column to
        the next one of its name. Calve publishes the names of new columns when it follows the commit.
        """
        names = before["properties"].get(NAME_MAPPING)
        if names is None or after["properties"].get(NAME_MAPPING) == names:
            return
        with self._storage.read() as connection:
            if self._published_location(connection, identifier) is not None:
                after["properties"] = {**after["properties"], NAME_MAPPING: names}

    def _published_location(self, connection: Connection, identifier: Identifier) -> str | None:
        """Return the metadata up to which Calve has followed a table; None for a table that it does not follow."""
        table_id = own_id(connection, identifier)
        return connection.scalar(select(TableRow.published_location).where(TableRow.id == table_id))

    def default_location(self, identifier: Identifier) -> str:
        """Return the location of a new table whose client names none."""
        return self._location(identifier, None)

    def _publish(self, prepared: Sequence[_Prepared], *, is_view: bool, also: Also | None) -> list[Loaded]:
        """Write the metadata of changes, and move the pointers.

        Raises:
            _Overtaken: Another commit came first; nothing has changed.
        """
        changed = [change for change in prepared if change.document is not None]
        results: list[Loaded] = []
        self._refuse_early(changed)
        try:
            for change in changed:
                assert change.document is not None
                before = None if change.base is None else change.base.location
                document = change.document if is_view else written(change.document)
                change.location = write_document(document, before)
                check_length(change.location)
            results = [change.result for change in prepared]
            with self._storage.write() as connection:
                # In one order, because each name and each pointer is locked until the end.
                changed.sort(key=lambda change: str(change.identifier))
                for change in changed:
                    self._claim_change(connection, change, is_view=is_view)
                for change in changed:
                    self._point(connection, change, is_view=is_view)
                if also is not None:
                    also(connection, results)
        except CommitOutcomeUnknownError:
            # The pointers may name the new metadata.
            raise
        except BaseException:
            delete_documents(change.location for change in changed if change.location is not None)
            raise
        for change in changed:
            if change.base is not None and not is_view:
                self._delete_obsolete(change)
        return results

    def _refuse_early(self, changed: Sequence[_Prepared]) -> None:
        """Refuse changes that would be refused after their metadata are written: what is refused writes nothing."""
        for change in changed:
            assert change.document is not None
            if new_folders(change.base, change.document):
                with self._storage.read() as connection:
                    refuse_folders(connection, change.identifier, change.base, change.document)

    def _claim_change(self, connection: Connection, change: _Prepared, *, is_view: bool) -> None:
        assert change.document is not None
        if change.base is None:
            self._claim(connection, change.identifier, change.document, is_view=is_view, location=change.location)
        else:
            claim_folders(connection, change.identifier, change.base, change.document, change.location)
        if change.base is not None and not is_view:
            self._require_followed_version(connection, change.identifier, change.base.document, change.document)

    def _require_followed_version(
        self, connection: Connection, identifier: Identifier, before: Json, after: Json
    ) -> None:
        """Refuse another format version of a table whose snapshots Calve follows: no engine could undo it."""
        version, new = before["format-version"], after["format-version"]
        if new == version:
            return
        if self._published_location(connection, identifier) is not None:
            raise InvalidRequestError(
                f"table {identifier} has the format version {version}, which Calve follows; leave out the upgrade to "
                f"{new}, which cannot be undone"
            )

    @staticmethod
    def _point(connection: Connection, change: _Prepared, *, is_view: bool) -> None:
        assert change.location is not None
        names = change.identifier.namespace.stored, change.identifier.name
        if change.base is None:
            insert_pointer(connection, *names, change.location, is_view=is_view)
            return
        assert change.base.location is not None
        if not move_pointer(connection, *names, change.base.location, change.location, is_view=is_view):
            raise _Overtaken

    def _delete_obsolete(self, change: _Prepared) -> None:
        assert change.base is not None
        assert change.location is not None
        assert change.document is not None
        try:
            with self._storage.read() as connection:
                if self._is_own(connection, change.identifier):
                    # Calve follows such a table from metadata to metadata; vacuum deletes what it no longer needs.
                    return
            delete_obsolete(self._storage, change.base.document, change.document, change.location)
        except CatalogError as error:
            # The commit has succeeded, which its client must learn.
            log.warning("obsolete metadata files of table %s stay: %s", change.identifier, error)


def _folder_name(identifier: Identifier) -> str:
    if identifier.table is not None:
        return identifier.name
    # The names `.` and `..` would be other folders.
    return quote(identifier.name, safe="") if identifier.name.strip(".") else identifier.name.replace(".", "%2E")


def _with_location(tables: EngineTables, commit: Commit, base: Loaded | None) -> Sequence[Json]:
    updates = list(commit.updates)
    if base is None and all(update.get("action") != "set-location" for update in updates):
        updates.append({"action": "set-location", "location": tables.default_location(commit.identifier)})
    return updates
