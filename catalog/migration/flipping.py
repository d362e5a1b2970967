"""The one transaction in which a table changes between Hive and Iceberg."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Connection, select, update

from catalog.errors import (
    DataWrittenError,
    MigrationConflictError,
    NotIcebergTableError,
)
from catalog.files.locations import comparable, is_within
from catalog.iceberg.pointers import delete_pointer, find_pointer, insert_pointer, move_pointer, share_location
from catalog.migration.duplicates import new_files
from catalog.migration.planning import fingerprint_of
from catalog.migration.requests import MigrationRequest, OnDuplicate
from catalog.migration.reverting import OPERATION_MARK, Written, written_since_migration
from catalog.migration.staging import Staged
from catalog.migration.targets import Target
from catalog.model import Table, TableKind, TableType
from catalog.operations.confirmation import Confirmation
from catalog.operations.failpoints import Point, reached
from catalog.operations.journal import Operations
from catalog.operations.records import Operation, OperationKind, OperationState
from catalog.storage import Storage
from catalog.storage.schema import PartitionRow, TableRow
from catalog.tables.definitions import Definitions
from catalog.tables.own_properties import SNAPSHOT_OF

FLIP, REVERT = "flip", "revert"
"""The steps that change the catalog."""

_TRIES = 20
"""How often an append is tried while others commit to the same Iceberg table."""

_Report = dict[str, Any]


class Flipper:
    """Changes what the tables of one catalog are."""

    def __init__(self, storage: Storage, definitions: Definitions, operations: Operations) -> None:
        """Take the database, the definitions in it, and the journal."""
        self._storage = storage
        self._definitions = definitions
        self._operations = operations

    def flip(
        self,
        operation: Operation,
        attempt: int,
        target: Target,
        staged: Staged,
        metadata_location: str | None,
        report: Mapping[str, Any] | None,
    ) -> _Report:
        """Commit an operation with its only change, its report and its state, all or nothing; see `Migrations.flip`."""
        request = MigrationRequest.from_json(operation.request)
        said: _Report = {
            "target": target.full_name,
            "files": staged.file_count,
            "rows": staged.row_count,
            "bytes": staged.size_bytes,
            **(report or {}),
        }
        if request.kind is OperationKind.ADD_FILES:
            return self._append(operation, attempt, target, staged, said)
        assert metadata_location is not None
        changes: dict[OperationKind, Callable[[Connection, Table, Target, str], None]] = {
            OperationKind.MIGRATE: self._become_iceberg,
            OperationKind.SNAPSHOT: self._make_snapshot,
        }
        with self._storage.write() as connection:
            self._operations.guard(connection, operation.id, FLIP, attempt)
            table = self._hold_as_planned(connection, operation)
            changes[request.kind](connection, table, target, metadata_location)
            said["metadata_location"] = metadata_location
            self._end(connection, operation.id, FLIP, attempt, said)
        reached(Point.COMMITTED)
        return said

    def _end(self, connection: Connection, operation_id: str, step: str, attempt: int, report: _Report) -> None:
        self._operations.finish_job(operation_id, step, attempt, report, connection=connection)
        self._operations.advance(connection, operation_id, OperationState.COMMITTED)
        reached(Point.CHANGED)

    def _hold_as_planned(self, connection: Connection, operation: Operation) -> Table:
        """Return the table, held until the transaction ends.

        Raises:
            MigrationConflictError: It is not as it was planned.
        """
        request = MigrationRequest.from_json(operation.request)
        table = self._definitions.get_hive_table(operation.table, connection)
        # The version is looked at again while it is held: whoever held it before has changed it.
        is_held = self._storage.lock_table(connection, table.id, exclusive=True, version=table.version)
        if not is_held or fingerprint_of(connection, table, request) != request.fingerprint:
            raise MigrationConflictError(
                f"table {table.full_name}: its definition, indexes or partitions changed since its migration was "
                "planned; nothing was changed, and the plan has to be made anew"
            )
        return table

    @staticmethod
    def _become_iceberg(connection: Connection, table: Table, _target: Target, metadata_location: str) -> None:
        insert_pointer(connection, table.database, table.name, metadata_location)
        connection.execute(update(TableRow).where(TableRow.id == table.id).values(table_type=TableType.ICEBERG))

    def _make_snapshot(self, connection: Connection, table: Table, target: Target, metadata_location: str) -> None:
        self._definitions.insert_table(
            connection,
            target.name,
            columns=table.columns,
            partition_keys=table.partition_keys,
            format=table.format,
            location=target.location,
            properties={SNAPSHOT_OF: table.full_name},
            description=table.description,
            kind=TableKind.EXTERNAL,
            table_type=TableType.ICEBERG,
        )
        insert_pointer(connection, *target.name, metadata_location)
        self._share(connection, table, target)

    @staticmethod
    def _share(connection: Connection, table: Table, target: Target) -> None:
        """Record where the Iceberg table has files that are the Hive table's."""
        root = comparable(table.location)
        query = select(PartitionRow.location).where(
            PartitionRow.table_id == table.id, PartitionRow.location.is_not(None)
        )
        elsewhere = {comparable(location) for location in connection.scalars(query) if location is not None}
        for location in (root, *sorted(each for each in elsewhere if not is_within(each, root))):
            share_location(connection, *target.name, location)

    def _append(self, operation: Operation, attempt: int, target: Target, staged: Staged, said: _Report) -> _Report:
        """Add files to an Iceberg table, as a commit of any engine does: on the metadata that it has just then."""
        from catalog.iceberg.appending import completed_mapping, fits, layout_digest, mapping_of
        from catalog.iceberg.metadata import NAME_MAPPING, AddedFiles, read_metadata, write_append

        request = MigrationRequest.from_json(operation.request)
        stage = operation.report["stage"]
        folder = f"{stage['location']}/{stage['folder']}"
        for tried in range(_TRIES):
            with self._storage.read() as connection:
                before = find_pointer(connection, *target.name)
            if before is None:
                break
            metadata = read_metadata(before)
            if stage.get("layout") != layout_digest(target.layout) or not fits(target.layout, metadata):
                raise MigrationConflictError(
                    f"Iceberg table {target.full_name}: its columns or its partition spec changed since the files of "
                    f"{operation.table} were staged for it; nothing was added. The files have to be staged again"
                )
            manifests, left_out = list(staged.manifests), 0
            size_bytes = staged.size_bytes
            if request.duplicate_files is not OnDuplicate.ADD:
                path = f"{folder}/kept-{attempt}-{tried}"
                new = new_files(target, staged, metadata, request.duplicate_files, path)
                manifests, size_bytes, left_out = list(new.manifests), new.size_bytes, new.duplicate_count
            properties = staged.reading_properties
            mapping = completed_mapping(metadata, target.layout, staged.spellings, staged.unknown)
            if mapping != mapping_of(metadata):
                properties[NAME_MAPPING] = mapping
            marks = {OPERATION_MARK: str(operation.number)}
            added = AddedFiles(size_bytes, staged.partition_count, marks)
            after = write_append(before, manifests, added, folder, properties)
            reached(Point.METADATA_WRITTEN)
            full = {
                **said,
                "metadata_location": after,
                "files": sum(each.file_count for each in manifests),
                "rows": sum(each.row_count for each in manifests),
                "bytes": size_bytes,
                "duplicates": left_out,
            }
            if self._commit_append(operation, attempt, target, before, after, full):
                reached(Point.COMMITTED)
                return full
        raise MigrationConflictError(
            f"Iceberg table {target.full_name} is not there any more, or others committed to it {_TRIES} times while "
            f"the files of {operation.table} were being added; nothing was added. Try again"
        )

    def _commit_append(
        self, operation: Operation, attempt: int, target: Target, before: str, after: str, report: _Report
    ) -> bool:
        with self._storage.write() as connection:
            self._operations.guard(connection, operation.id, FLIP, attempt)
            table = self._hold_as_planned(connection, operation)
            if not move_pointer(connection, *target.name, before, after):
                # The table has another version now, which nobody but this transaction would have seen.
                connection.execute(update(TableRow).where(TableRow.id == table.id).values(version=table.version))
                return False
            self._share(connection, table, target)
            self._end(connection, operation.id, FLIP, attempt, report)
        return True

    # --- revert -----------------------------------------------------------------------------------------------------

    def check_revert(self, name: str, *, lose_data: bool) -> tuple[Table, Written]:
        """Return an Iceberg table that can be the Hive table again, and what would be lost.

        Raises:
            NotIcebergTableError: It is none, or never was a Hive table.
            DataWrittenError: Rows would be lost, and are not to be.
        """
        table = self._definitions.get_table(name)
        if not table.is_iceberg:
            raise NotIcebergTableError(f"{table.full_name} is no Iceberg table, so there is nothing to take back")
        if SNAPSHOT_OF in table.properties:
            raise NotIcebergTableError(
                f"table {table.full_name} was made beside {table.properties[SNAPSHOT_OF]} and never was a Hive table; "
                f"drop it: DROP TABLE {table.full_name}"
            )
        location = table.metadata_location
        written = Written(is_traceable=False) if location is None else written_since_migration(location)
        if not (written.is_nothing or lose_data):
            raise DataWrittenError(
                f"table {table.full_name}: {written}; the Hive table would not have it, and nothing was changed. "
                "Revert with lose_data => true to lose it"
            )
        return table, written

    def revert(
        self, operation_id: str, attempt: int, name: str, *, lose_data: bool, confirmation: Confirmation | None = None
    ) -> _Report:
        """Commit the way back; see `Migrations.revert`."""
        for _ in range(_TRIES):
            table, written = self.check_revert(name, lose_data=lose_data)
            if confirmation is not None:
                confirmation.revert(table)
            report = {"metadata_location": table.metadata_location, "lost": written.as_json()}
            with self._storage.write() as connection:
                self._operations.guard(connection, operation_id, REVERT, attempt)
                held = self._definitions.lock_table(connection, name, exclusive=True, or_iceberg=True)
                is_same = held.metadata_location == table.metadata_location
                if is_same and table.metadata_location is not None:
                    # An engine may commit between the look and the deletion, which then deletes nothing.
                    is_same = delete_pointer(connection, table.database, table.name, table.metadata_location)
                if is_same:
                    connection.execute(
                        update(TableRow).where(TableRow.id == table.id).values(table_type=TableType.HIVE)
                    )
                    self._end(connection, operation_id, REVERT, attempt, report)
            if is_same:
                reached(Point.COMMITTED)
                return report
        raise MigrationConflictError(
            f"Iceberg table {name} was committed to {_TRIES} times while it was being taken back; nothing was changed. "
            "Stop what writes into it"
        )
