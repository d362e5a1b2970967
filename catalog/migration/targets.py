"""Target tables of migrations: the table itself, a new snapshot, or an existing Iceberg table."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from catalog.errors import (
    NotFoundError,
    NotIcebergTableError,
    ReservedFolderError,
    SharedLocationError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedChangeError,
)
from catalog.files.filesystem import Folder
from catalog.iceberg.places import METADATA, metadata_folder, path_properties
from catalog.iceberg.pointers import find_pointer
from catalog.migration.refusals import refuse_shared_location, refuse_table
from catalog.migration.requests import MigrationRequest
from catalog.migration.sources import Selection
from catalog.migration.staging import staged_folders
from catalog.model import Table
from catalog.model.identifiers import TableName
from catalog.operations.records import OperationKind
from catalog.settings.places import require_location
from catalog.tables.definitions import Definitions
from catalog.tables.normalising import normalise_location

if TYPE_CHECKING:
    from catalog.iceberg.layout import Layout

_METADATA_FILE = re.compile(
    r".*\.metadata\.json(\.gz)?|snap-.*\.avro|.*-m\d+\.avro|.*\.(stats|puffin)|version-hint\.text"
)
"""The names of Iceberg's metadata files."""

_NOT_COPIED = ("path", "transient_lastddltime", "serialization.format")


@dataclass(frozen=True)
class Target:
    """The Iceberg table of a migration.

    Attributes:
        location: The folder that contains its metadata.
        layout: The schema and partition spec for the files.
        selection: The partitions of the Hive table to include.
        metadata_location: The metadata of an existing table; None for a new one.
    """

    name: TableName
    location: str
    layout: Layout
    selection: Selection
    metadata_location: str | None = None

    @property
    def full_name(self) -> str:
        """`database.name`."""
        return str(self.name)

    @property
    def metadata_folder(self) -> str:
        """The metadata folder, relative to its location."""
        return metadata_folder(is_partitioned=self.layout.key_count > 0)


def find_target(connection: Connection, definitions: Definitions, table: Table, request: MigrationRequest) -> Target:
    """Return the target of a migration.

    Raises:
        UnsupportedIcebergTypeError, ReservedColumnError, DuplicateColumnError: Iceberg does not support the table's
            columns.
        TableAlreadyExistsError, SharedLocationError: A new target exists already, or its location is in use.
        TableNotFoundError, NotIcebergTableError, ColumnsDifferError: An existing target is missing, is not an Iceberg
            table, or has other columns.
        UnsupportedChangeError: The catalog records the files of an existing target, which are in its own folder.
    """
    from catalog.iceberg.layout import TypeRules, layout_of

    refuse_table(connection, table, or_target=request.kind is OperationKind.MIGRATE)
    layout = layout_of(table, TypeRules(request.timestamps))
    if request.target is None:
        return Target(TableName(table.database, table.name), table.location, layout, Selection(table))
    name = TableName.parse(request.target)
    if request.kind is OperationKind.SNAPSHOT:
        return _new_target(connection, definitions, table, replace(request, target=str(name)), layout)
    _refuse_own_files(connection, definitions, table, name)
    return _known_target(connection, definitions, table, request, layout, name)


def committed_target(
    connection: Connection, definitions: Definitions, table: Table, request: MigrationRequest
) -> Target:
    """Return the target of a committed migration, without refusing it because it exists.

    Raises:
        TableNotFoundError, NotIcebergTableError, ColumnsDifferError: As for `find_target`.
    """
    from catalog.iceberg.layout import TypeRules, layout_of

    layout = layout_of(table, TypeRules(request.timestamps))
    name = TableName(table.database, table.name) if request.target is None else TableName.parse(request.target)
    if request.kind is OperationKind.ADD_FILES:
        return _known_target(connection, definitions, table, request, layout, name)
    return Target(name, request.location or table.location, layout, Selection(table))


def _new_target(
    connection: Connection, definitions: Definitions, table: Table, request: MigrationRequest, layout: Layout
) -> Target:
    name = TableName.parse(request.target or "")
    try:
        definitions.get_table(name, connection)
    except TableNotFoundError:
        pass
    else:
        raise TableAlreadyExistsError(f"table {name} exists; choose another name for the snapshot, or drop it first")
    if metadata_location := find_pointer(connection, name.database, name.name):
        raise TableAlreadyExistsError(
            f"the catalog has an Iceberg table {name} (metadata: {metadata_location}); choose another name for the "
            "snapshot"
        )
    usual = f"{definitions.database_location(connection, name.database)}/{name.name}"
    location = normalise_location(request.target_location or usual)
    if location != usual:
        require_location(location)
    try:
        refuse_shared_location(
            connection, replace(table, id=0, database=name.database, name=name.name, location=location), {}
        )
    except SharedLocationError as error:
        raise SharedLocationError(f"{error}; or give the snapshot another location") from None
    return Target(name, location, layout, Selection(table))


def _refuse_own_files(connection: Connection, definitions: Definitions, source: Table, name: TableName) -> None:
    try:
        target = definitions.get_table(name, connection)
    except NotFoundError:
        # Namespaces of engines need no database.
        return
    if target.has_file_rows:
        raise UnsupportedChangeError(
            f"files cannot be added to table {name}: its files are in its own folder, and have its partition keys; "
            f"copy the rows of {source.full_name} instead: INSERT INTO {name} SELECT … FROM {source.full_name}"
        )


def _known_target(
    connection: Connection,
    definitions: Definitions,
    table: Table,
    request: MigrationRequest,
    layout: Layout,
    name: TableName,
) -> Target:
    from catalog.iceberg.appending import target_layout
    from catalog.iceberg.metadata import read_metadata, require_version

    metadata_location = find_pointer(connection, name.database, name.name)
    if metadata_location is None:
        definitions.get_table(name, connection)
        raise NotIcebergTableError(
            f"table {name} is a Hive table, but files can only be added to Iceberg tables; migrate it first, or add "
            f"partitions: ALTER TABLE {name} ADD PARTITION …"
        )
    metadata = read_metadata(metadata_location)
    require_version(metadata, metadata_location)
    into = target_layout(table, layout, str(name), metadata)
    first_key = len(into.schema.fields) - into.key_count
    order = [table.key_names.index(field.name.lower()) for field in into.schema.fields[first_key:]]
    location = metadata.location.rstrip("/")
    return Target(name, location, into, Selection(table, request.partitions, order), metadata_location)


def refuse_taken_metadata_folder(table: Table, request: MigrationRequest) -> None:
    """Refuse a table with data files in the folder of Iceberg's metadata, which listings skip.

    Raises:
        ReservedFolderError: The folder contains such files.
    """
    if table.partition_keys or request.recursive_directory == "false":
        return
    location = Folder(table.location)
    staged = tuple(f"{name}/" for name in staged_folders(location))
    for file in location.all_files(METADATA):
        name = posixpath.basename(file.path)
        is_hidden = any(part.startswith(("_", ".")) for part in file.path.split("/"))
        if not (is_hidden or _METADATA_FILE.fullmatch(name) or file.path.startswith(staged)):
            raise ReservedFolderError(
                f"table {table.full_name}: {table.location}/{file.path} lies in the folder {METADATA}, which "
                "is reserved for Iceberg's metadata and would be skipped; move the table's files out of it first"
            )


def skipped_folders(table: Table) -> frozenset[str]:
    """Return the folders that listings of a table's files skip."""
    return frozenset((f"{table.location}/{METADATA}",))


def table_properties(table: Table, location: str, *, is_snapshot: bool) -> dict[str, str]:
    """Return the properties of a migrated table or snapshot.

    These are the Hive table's, except three that Hive sets itself. Source: Trino's `MigrateProcedure` and
    Iceberg's `MigrateTableSparkAction`, `SnapshotTableSparkAction`.

    Args:
        location: The location of the Iceberg table.
    """
    kept = {name: value for name, value in table.properties.items() if name.lower() not in _NOT_COPIED}
    if table.description is not None:
        kept.setdefault("comment", table.description)
    kept["write.format.default"] = table.format.value
    kept |= path_properties(location, is_partitioned=bool(table.partition_keys))
    if is_snapshot:
        return {**kept, "snapshot": "true", "gc.enabled": "false"}
    return {**kept, "migrated": "true"}
