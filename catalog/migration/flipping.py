"""Commits of migrations and reverts: one transaction switches a table between Hive and Iceberg."""

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
from catalog.migration.requests import MigrationOperation, OnDuplicate
from catalog.migration.reverting import OPERATION_MARK, Written, written_since_migration
from catalog.migration.staging import Staged
from catalog.migration.targets import Target
from catalog.model import Table, TableKind, TableType
from catalog.operations.confirmation import Confirmation
from catalog.operations.failpoints import Point, reached
from catalog.operations.journal import Operations
from catalog.operations.records import OperationKind, OperationState
from catalog.storage import Storage
from catalog.storage.schema import PartitionRow, TableRow
from catalog.tables.definitions import Definitions
from catalog.tables.own_properties import SNAPSHOT_OF

FLIP, REVERT = "flip", "revert"
"""The steps that change the state of a table."""

_TRIES = 20
"""The number of attempts at an append while other writers commit to the same Iceberg table."""

_Report = dict[str, Any]


class Flipper:
    """Commits the switches of one catalog's tables between Hive and Iceberg."""

    def __init__(self, storage: Storage, definitions: Definitions, operations: Operations) -> None:
        """Set the storage, the definitions in it, and the journal."""
        self._storage = storage
        self._definitions = definitions
        self._operations = operations

    def flip(
        self,
        operation: MigrationOperation,
        attempt: int,
        target: Target,
        staged: Staged,
        metadata_location: str | None,
        report: Mapping[str, Any] | None,
    ) -> _Report:
        """Commit the change, the report and the state of an operation, all or nothing; see `Migrations.flip`."""
        request = operation.parsed_request
        full_report: _Report = {
            "target": target.full_name,
            "files": staged.file_count,
            "rows": staged.row_count,
            "bytes": staged.size_bytes,
            **(report or {}),
        }
        if request.kind is OperationKind.ADD_FILES:
            return self._append(operation, attempt, target, staged, full_report)
        assert metadata_location is not None
        changes: dict[OperationKind, Callable[[Connection, Table, Target, str], None]] = {
            OperationKind.MIGRATE: self._become_iceberg,
            OperationKind.SNAPSHOT: self._make_snapshot,
        }
        with self._storage.write() as connection:
            self._operations.guard(connection, operation.id, FLIP, attempt)
            table = self._hold_as_planned(connection, operation)
            changes[request.kind](connection, table, target, metadata_location)
            full_report["metadata_location"] = metadata_location
            self._end(connection, operation.id, FLIP, attempt, full_report)
        reached(Point.COMMITTED)
        return full_report

    def _end(self, connection: Connection, operation_id: str, step: str, attempt: int, report: _Report) -> None:
        self._operations.finish_job(operation_id, step, attempt, report, connection=connection)
        self._operations.advance(connection, operation_id, OperationState.COMMITTED)
        reached(Point.CHANGED)

    def _hold_as_planned(self, connection: Connection, operation: MigrationOperation) -> Table:
        """Return the table, locked until the transaction ends, after checking that it is still as planned.

        Raises:
            MigrationConflictError: The table changed after the plan was made.
        """
        request = operation.parsed_request
        table = self._definitions.get_hive_table(operation.table, connection)
        # Locking checks the version again, because a transaction that held the lock before may have changed the table.
        is_held = self._storage.lock_table(connection, table.id, exclusive=True, version=table.version)
        if not is_held or fingerprint_of(connection, table, request) != request.fingerprint:
            raise MigrationConflictError(
                f"the definition, indexes or partitions of table {table.full_name} changed after its migration was "
                "planned; nothing was changed. Make a new plan"
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
        """Record the folders of the Hive table whose files the Iceberg table shares."""
        root = comparable(table.location)
        query = select(PartitionRow.location).where(
            PartitionRow.table_id == table.id, PartitionRow.location.is_not(None)
        )
        elsewhere = {comparable(location) for location in connection.scalars(query) if location is not None}
        for location in (root, *sorted(folder for folder in elsewhere if not is_within(folder, root))):
            share_location(connection, *target.name, location)

    def _append(
        self, operation: MigrationOperation, attempt: int, target: Target, staged: Staged, report: _Report
    ) -> _Report:
        """Add files to an Iceberg table on its current metadata, as engines do; retry after conflicting commits."""
        from catalog.iceberg.appending import completed_mapping, fits, layout_digest, mapping_of
        from catalog.iceberg.documents.tables import NAME_MAPPING
        from catalog.iceberg.metadata import AddedFiles, read_metadata, write_append

        request = operation.parsed_request
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
                    f"the columns or the partition spec of Iceberg table {target.full_name} changed since the files of "
                    f"{operation.table} were staged for it; nothing was added. Stage the files again"
                )
            manifests, duplicate_count = list(staged.manifests), 0
            size_bytes = staged.size_bytes
            if request.duplicate_files is not OnDuplicate.ADD:
                path = f"{folder}/kept-{attempt}-{tried}"
                new = new_files(target, staged, metadata, request.duplicate_files, path)
                manifests, size_bytes, duplicate_count = list(new.manifests), new.size_bytes, new.duplicate_count
            properties = staged.reading_properties
            mapping = completed_mapping(metadata, target.layout, staged.spellings, staged.unknown)
            if mapping != mapping_of(metadata):
                properties[NAME_MAPPING] = mapping
            marks = {OPERATION_MARK: str(operation.number)}
            added = AddedFiles(size_bytes, staged.partition_count, marks)
            after = write_append(before, manifests, added, folder, properties)
            reached(Point.METADATA_WRITTEN)
            full_report = {
                **report,
                "metadata_location": after,
                "files": sum(manifest.file_count for manifest in manifests),
                "rows": sum(manifest.row_count for manifest in manifests),
                "bytes": size_bytes,
                "duplicates": duplicate_count,
            }
            if self._commit_append(operation, attempt, target, before, after, full_report):
                reached(Point.COMMITTED)
                return full_report
        raise MigrationConflictError(
            f"Iceberg table {target.full_name} no longer exists, or others committed to it {_TRIES} times while the "
            f"files of {operation.table} were being added; nothing was added. Try again"
        )

    def _commit_append(
        self, operation: MigrationOperation, attempt: int, target: Target, before: str, after: str, report: _Report
    ) -> bool:
        with self._storage.write() as connection:
            self._operations.guard(connection, operation.id, FLIP, attempt)
            table = self._hold_as_planned(connection, operation)
            if not move_pointer(connection, *target.name, before, after):
                # Locking the table has increased its version; restore it, or the next attempt would see a conflict.
                connection.execute(update(TableRow).where(TableRow.id == table.id).values(version=table.version))
                return False
            self._share(connection, table, target)
            self._end(connection, operation.id, FLIP, attempt, report)
        return True

    # --- revert -----------------------------------------------------------------------------------------------------

    def check_revert(self, name: str, *, lose_data: bool) -> tuple[Table, Written]:
        """Return an Iceberg table that can be reverted, and the writes that a revert would lose.

        Raises:
            NotIcebergTableError: It is not an Iceberg table, or never was a Hive table.
            DataWrittenError: Rows would be lost, and `lose_data` is false.
        """
        table = self._definitions.get_table(name)
        if not table.is_iceberg:
            raise NotIcebergTableError(f"{table.full_name} is not an Iceberg table, so there is nothing to revert")
        if table.is_only_iceberg:
            raise NotIcebergTableError(
                f"table {table.full_name} is an Iceberg table that another engine made, and never was a Hive table, so "
                "there is nothing to revert"
            )
        if SNAPSHOT_OF in table.properties:
            raise NotIcebergTableError(
                f"table {table.full_name} is a snapshot of {table.properties[SNAPSHOT_OF]} and never was a Hive table; "
                f"drop it: DROP TABLE {table.full_name}"
            )
        location = table.metadata_location
        written = Written(is_traceable=False) if location is None else written_since_migration(location)
        if not (written.is_nothing or lose_data):
            raise DataWrittenError(
                f"table {table.full_name}: {written}; the Hive table would lose this, so nothing was changed. "
                "Revert with lose_data => true to accept the loss"
            )
        return table, written

    def revert(
        self, operation_id: str, attempt: int, name: str, *, lose_data: bool, confirmation: Confirmation | None = None
    ) -> _Report:
        """Commit a revert; see `Migrations.revert`."""
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
                    # If an engine has committed since the check, this deletes nothing, and the loop tries again.
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
            f"Iceberg table {name} was committed to {_TRIES} times while it was being reverted; nothing was changed. "
            "Stop its writers, then revert again"
        )
