"""`Migrations`: the steps that turn Hive tables into Iceberg tables without changing data files, and reverts.

plan      returns the resulting columns and partitions, or refuses the table; changes nothing
begin     journals the operation, which reserves the table against loads and other changes
stage     a Spark job lists the folders, reads the footers and writes the manifests; then the first metadata are written
verify    a Spark job compares the rows that both sides read, if requested
flip      switches the pointer and the state of the table to Iceberg, in one transaction
revert    restores the Hive table as it was

The same steps create an Iceberg snapshot of a Hive table, and add a Hive table's files to an Iceberg table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from catalog.errors import (
    CatalogError,
    FencedError,
    MigrationConflictError,
    NestedFolderError,
    VerificationFailedError,
)
from catalog.migration.flipping import REVERT, Flipper
from catalog.migration.late_files import digest_of, late_report, listed_files
from catalog.migration.planning import MigrationPlan, make_plan
from catalog.migration.requests import MigrationOperation, MigrationRequest
from catalog.migration.reverting import OPERATION_MARK
from catalog.migration.source_entries import ChangedEntry, SourceEntries, require_entry
from catalog.migration.sources import SourceFolder, source_folders
from catalog.migration.staging import (
    ListingDigest,
    Staged,
    attempt_metadata,
    attempt_name,
    is_staged,
    read_staged,
    require_complete,
    write_staged,
)
from catalog.migration.targets import (
    Target,
    find_target,
    refuse_taken_metadata_folder,
    skipped_folders,
    table_properties,
)
from catalog.model import Table
from catalog.operations.confirmation import Confirmation
from catalog.operations.failpoints import Point, reached
from catalog.operations.journal import Operations
from catalog.operations.records import JobState, Operation, OperationKind
from catalog.storage import Storage
from catalog.storage.bulk import batched
from catalog.tables.definitions import Definitions

if TYPE_CHECKING:
    from catalog.iceberg.layout import Layout

STAGE, VERIFY, FLIP, LATE = "stage", "verify", "flip", "late_files"
"""The steps of a migration; the last one reports files that arrived during its commit."""

_REPORTED = 1_000
"""The number of unusable files that a report names; it counts all of them."""

_USUAL_REQUEST = MigrationRequest()


class Migrations:
    """The migrations of one catalog."""

    def __init__(self, storage: Storage, definitions: Definitions, operations: Operations) -> None:
        """Set the storage, the definitions in it, and the journal."""
        self._storage = storage
        self._definitions = definitions
        self._operations = operations
        self._flipper = Flipper(storage, definitions, operations)
        self._sources = SourceEntries(definitions, operations)

    # --- plan -------------------------------------------------------------------------------------------------------

    def plan(
        self, table: str, request: MigrationRequest = _USUAL_REQUEST, *, operation_id: str | None = None
    ) -> MigrationPlan:
        """Return the plan of a migration, without changing anything.

        Args:
            operation_id: The id of the migrating operation, if it has reserved the table already.

        Raises:
            TableNotFoundError: The table does not exist.
            NotATableError, UnsupportedFormatError, UnsupportedChangeError, MigrationRefusedError: It cannot become an
                Iceberg table; subclasses tell the reason.
            UnsupportedIcebergTypeError, ReservedColumnError, DuplicateColumnError, PartitionValueError: Iceberg does
                not support its columns, or the values of its partitions.
            OperationConflictError: Another operation is running on it.
        """
        return self._planned(table, request, operation_id)[0]

    def _planned(self, table: str, request: MigrationRequest, operation_id: str | None) -> tuple[MigrationPlan, Target]:
        with self._storage.read() as connection:
            definition = self._definitions.get_table(table, connection)
            self._operations.refuse_if_held(connection, definition.full_name, operation_id)
            target = find_target(connection, self._definitions, definition, request)
            plan = make_plan(connection, definition, request, target.layout, target.selection)
        refuse_taken_metadata_folder(definition, request)
        if request.flip_source:
            require_entry(definition)
        return plan, target

    def begin(
        self,
        operation_id: str,
        table: str,
        request: MigrationRequest = _USUAL_REQUEST,
        *,
        requested_by: str | None = None,
    ) -> Operation:
        """Journal the operation, which reserves the table; return an existing operation of the same id.

        The current plan must have the fingerprint `request.fingerprint`, if that is set.

        Raises:
            MigrationConflictError: The plan has another fingerprint.
            OperationConflictError: Another operation is running on the table.
            CatalogError: As for `plan`; nothing was journaled.
        """
        known = self._operations.find(operation_id)
        # After the commit, planning again would refuse the table, because it is an Iceberg table now.
        if known is not None and known.is_committed:
            return known
        plan, target = self._planned(table, request, operation_id)
        if request.fingerprint not in (None, plan.fingerprint):
            raise MigrationConflictError(
                f"table {plan.table.full_name} changed after its migration was planned (fingerprint "
                f"{request.fingerprint}, now {plan.fingerprint}); nothing was changed. Make a new plan"
            )
        return self._operations.begin(
            operation_id,
            request.kind,
            plan.table.full_name,
            replace(plan.request, location=target.location).as_json(),
            is_exclusive=True,
            requested_by=requested_by,
        )

    def get(self, operation_id: str) -> MigrationOperation:
        """Return the operation of a migration.

        Raises:
            OperationNotFoundError: It does not exist.
            OperationReusedError: It is of another kind.
        """
        return MigrationOperation.of(self._operations.get(operation_id))

    # --- stage ------------------------------------------------------------------------------------------------------

    def target(self, operation: MigrationOperation) -> Target:
        """Return the target table of an operation.

        Raises:
            CatalogError: As for `plan`.
        """
        with self._storage.read() as connection:
            return self._target(connection, operation)

    def layout(self, operation: MigrationOperation) -> Layout:
        """Return the schema and partition spec under which the target table reads the files."""
        return self.target(operation).layout

    def folders(self, operation: MigrationOperation, page_size: int = 1_000) -> Iterator[Sequence[SourceFolder]]:
        """Yield pages of the folders to list, in the order of the typed partition values.

        A table without partition keys is one folder. All pages show one state of the catalog, and no connection stays
        open while the caller works on them.
        """
        with self._storage.read() as connection:
            table = self._definitions.get_hive_table(operation.table, connection)
            selection = self._target(connection, operation).selection
            folders = source_folders(connection, table, selection)
            # Sorting reads all folders before the first one is yielded, so the connection can be closed after it.
            first = list(islice(folders, 1))
        yield from batched(chain(first, folders), page_size)

    def skipped_folders(self, operation: MigrationOperation) -> frozenset[str]:
        """Return the folders that listings of the table's files skip."""
        return skipped_folders(self._definitions.get_table(operation.table))

    def manifest_prefix(self, operation: MigrationOperation, attempt: int) -> str:
        """Return the prefix of the paths of all manifests of an attempt at the stage; it ends with a slash."""
        target = self.target(operation)
        return f"{target.location}/{attempt_name(target.metadata_folder, operation, attempt)}/"

    def is_staged(self, operation_id: str) -> bool:
        """Return whether the latest attempt at the stage of an operation succeeded, and its files still exist."""
        job = self._operations.get_job(operation_id, STAGE)
        if job is None or job.state is not JobState.SUCCEEDED:
            return False
        return is_staged(job.result["location"], job.result["folder"])

    def record_staged(self, operation_id: str, attempt: int, staged: Staged) -> dict[str, Any]:
        """Write the first metadata for the staged manifests, and end the attempt; readers do not see them yet.

        If files are added to an existing table, its metadata are written only with the commit.

        Returns:
            The report of the stage: `location` and `folder` of the written files, `metadata_location`, `listing`,
            `files`, `rows`, `bytes`, `partitions`, `manifests`, and `problems`, the files that are not part of it.

        Raises:
            UnusableFilesError: Some files cannot be part of the table, and the request does not skip them.
            VerificationFailedError: Manifests and totals differ.
            FencedError: The attempt is fenced.
        """
        from catalog.iceberg.appending import layout_digest

        operation = self.get(operation_id)
        request = operation.parsed_request
        require_complete(operation.table, request, staged)
        table = self._definitions.get_table(operation.table)
        target = self.target(operation)
        name = attempt_name(target.metadata_folder, operation, attempt)
        metadata_location = None
        if request.kind is not OperationKind.ADD_FILES:
            metadata_location = self._write_metadata(operation, table, target, staged, name)
            reached(Point.METADATA_WRITTEN)
        write_staged(target.location, name, staged, metadata_location)
        result = {
            "location": target.location,
            "folder": name,
            "metadata_location": metadata_location,
            "fingerprint": request.fingerprint,
            "layout": layout_digest(target.layout),
            "listing": staged.listing,
            "files": staged.file_count,
            "rows": staged.row_count,
            "bytes": staged.size_bytes,
            "partitions": staged.partition_count,
            "manifests": len(staged.manifests),
            "warnings": staged.warnings,
            "problem_count": staged.count_problems(),
            "problems": [
                {"path": file.path, "problem": file.problem, "message": file.message}
                for file in staged.problems[:_REPORTED]
            ],
        }
        self._operations.finish_job(operation_id, STAGE, attempt, result)
        return result

    @staticmethod
    def _write_metadata(operation: MigrationOperation, table: Table, target: Target, staged: Staged, name: str) -> str:
        from catalog.iceberg.metadata import AddedFiles, write_table

        is_snapshot = operation.parsed_request.kind is OperationKind.SNAPSHOT
        return write_table(
            target.layout,
            target.location,
            staged.manifests,
            table_properties(table, target.location, is_snapshot=is_snapshot) | staged.reading_properties,
            target.layout.name_mapping(staged.spellings, staged.unknown),
            AddedFiles(staged.size_bytes, staged.partition_count, {OPERATION_MARK: str(operation.number)}),
            folder=f"{target.location}/{name}",
            metadata_location=f"{target.location}/{attempt_metadata(target.location, name)}",
        )

    def staged(self, operation_id: str) -> tuple[Staged, str | None]:
        """Return the result of an operation's stage, and the location of its metadata.

        Raises:
            VerificationFailedError: The result is missing, or belongs to another request.
        """
        return self._staged(self.get(operation_id))

    def _staged(self, operation: MigrationOperation) -> tuple[Staged, str | None]:
        job = self._operations.get_job(operation.id, STAGE)
        fingerprint = operation.parsed_request.fingerprint
        if job is None or job.state is not JobState.SUCCEEDED or job.result["fingerprint"] != fingerprint:
            raise VerificationFailedError(
                f"table {operation.table}: its files were not staged for this migration; nothing was changed. Run the "
                "operation from its step stage on"
            )
        return read_staged(job.result["location"], job.result["folder"])

    # --- flip -------------------------------------------------------------------------------------------------------

    def flip(
        self,
        operation_id: str,
        *,
        listing: str | None = None,
        relist: bool = True,
        report: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Commit the switch to Iceberg in one transaction; repeated, return the same report.

        If the table changed after the plan was made, the operation becomes FAILED and releases the table.

        Args:
            listing: The digest of the table's files as listed by the caller just now, for instance in executors.
            relist: List the files in this process if `listing` is None; False to trust the staged listing.
            report: Further fields for the operation's report.

        Returns:
            The report; `late_files` describes the files that arrived between the listing and the commit, which the
            Iceberg table does not have: `count`, `paths` and `advice`. To find them, files are listed again after the
            commit; if this call is killed before, the next one does so.

        Raises:
            MigrationConflictError: The table, its partitions or its files changed after the plan was made; make a new
                plan.
            VerificationFailedError: The files were not staged, or a requested verification has not succeeded.
            DuplicateFilesError: The target table already has some of the files to add.
            FencedError: The attempt is fenced.
            SourceError, SourceEntryChangedError: The table is an Iceberg table in the catalog, but its entry in the
                metastore could not be switched; call again to retry only that.
        """
        operation = self.get(operation_id)
        flipped = self._flipped(operation, listing, relist, report)
        late = self._late_report(operation_id) if listing is not None or relist else operation.report.get(LATE)
        if operation.parsed_request.flip_source:
            self._sources.flip(operation_id)
        return {**flipped, LATE: late} if late and late["count"] else flipped

    def _flipped(
        self, operation: MigrationOperation, listing: str | None, relist: bool, report: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        operation_id = operation.id
        if operation.is_committed:
            return dict(operation.report[FLIP])
        try:
            return self._flip(operation, listing, relist, report)
        except CatalogError as error:
            current = self._operations.get(operation_id)
            if current.is_committed:
                # Another process that runs the same operation has committed it meanwhile.
                return dict(current.report[FLIP])
            if isinstance(error, MigrationConflictError):
                self.discard_staged(operation_id, str(error))
            self._let_go(operation_id, error)
            raise

    def _flip(
        self, operation: MigrationOperation, listing: str | None, relist: bool, report: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        with self._operations.attempt(operation.id, FLIP) as attempt:
            staged, metadata_location = self._staged(operation)
            self._require_verified(operation, metadata_location)
            if operation.parsed_request.flip_source:
                assert metadata_location is not None
                self._sources.prepare(operation, metadata_location)
            target = self.target(operation)
            # List as late as possible before the commit, because files that arrive afterwards are missed.
            if listing is None and relist:
                listing = self._list_now(operation)
            if listing is not None and listing != staged.listing:
                raise MigrationConflictError(
                    f"the files of table {operation.table} changed since they were listed ({staged.listing}, now "
                    f"{listing}); nothing was changed. Make a new plan"
                )
            return self._flipper.flip(operation, attempt, target, staged, metadata_location, report)

    def _late_report(self, operation_id: str) -> Mapping[str, Any] | None:
        """Return the report of late files; compute and journal it unless an earlier call has done so."""
        operation = self.get(operation_id)
        if LATE in operation.report:
            return dict(operation.report[LATE])
        if not self.is_staged(operation_id):
            return None
        staged, _ = self._staged(operation)
        with self._storage.read() as connection:
            late = late_report(connection, self._definitions, operation, staged)
        if late is not None:
            with self._operations.attempt(operation_id, LATE) as attempt:
                self._operations.finish_job(operation_id, LATE, attempt, late)
        return late

    def _list_now(self, operation: MigrationOperation) -> str:
        try:
            return str(self.list_again(operation))
        except NestedFolderError as error:
            raise MigrationConflictError(
                f"the files of table {operation.table} changed since they were listed: {error}; nothing was changed. "
                "Make a new plan"
            ) from error

    def discard_staged(self, operation_id: str, reason: str) -> None:
        """Mark the stage of an operation as failed, so that the next run stages its files again."""
        attempt = self._operations.start_job(operation_id, STAGE)
        self._operations.fail_job(operation_id, STAGE, attempt, MigrationConflictError.__name__, reason)

    def list_again(self, operation: MigrationOperation) -> ListingDigest:
        """List the table's files in this process, and return their digest."""
        with self._storage.read() as connection:
            table = self._definitions.get_hive_table(operation.table, connection)
            target = self._target(connection, operation)
            return digest_of(listed_files(connection, table, operation.parsed_request, target))

    def _require_verified(self, operation: MigrationOperation, metadata_location: str | None) -> None:
        if not operation.parsed_request.verify:
            return
        job = self._operations.get_job(operation.id, VERIFY)
        if (
            job is None
            or job.state is not JobState.SUCCEEDED
            or job.result.get("metadata_location") != metadata_location
        ):
            raise VerificationFailedError(
                f"table {operation.table}: the rows of the Iceberg table were not compared with those of the Hive "
                "table; nothing was changed. Run the step verify, or migrate without it"
            )

    def revert(
        self,
        operation_id: str,
        table: str,
        *,
        lose_data: bool = False,
        requested_by: str | None = None,
        confirmation: Confirmation | None = None,
    ) -> dict[str, Any]:
        """Turn a migrated table back into its former Hive table, with its partitions and indexes.

        No file is changed: files that Iceberg wrote since the migration stay, but are no longer read. Repeated, it
        returns the same report. If the migration switched the table's entry in a metastore, that entry is restored.

        Args:
            lose_data: Revert even if Iceberg commits, including those through the metastore, have added or deleted
                rows, which the Hive table does not have.
            confirmation: Asked before the commit.

        Returns:
            `metadata_location` of the Iceberg table, and `lost`, what was written since the migration.

        Raises:
            NotIcebergTableError: It is not an Iceberg table, or never was a Hive table.
            DataWrittenError: Rows would be lost, and `lose_data` is false.
            SourceEntryChangedError: The entry in the metastore was changed since, and `lose_data` is false.
            OperationConflictError: Another operation is running on the table.
        """
        definition = self._definitions.get_table(table)
        flip = self._sources.flip_of(definition)
        operation = self._operations.find(operation_id)
        if operation is not None and operation.is_committed:
            if flip is not None:
                self._sources.restore(flip, is_forced=lose_data)
            return dict(operation.report[REVERT])
        # Check before the operation begins, so that a refused revert does not reserve the table.
        self._flipper.check_revert(table, lose_data=lose_data)
        if flip is not None and not lose_data:
            self._sources.check_restore(flip)
        name = definition.full_name
        self._operations.begin(
            operation_id,
            OperationKind.REVERT,
            name,
            {"lose_data": lose_data},
            is_exclusive=True,
            requested_by=requested_by,
        )
        try:
            with self._operations.attempt(operation_id, REVERT) as attempt:
                report = self._flipper.revert(
                    operation_id, attempt, name, lose_data=lose_data, confirmation=confirmation
                )
        except CatalogError as error:
            self._let_go(operation_id, error)
            raise
        if flip is not None:
            self._sources.restore(flip, is_forced=lose_data)
        return report

    def changed_entry(self, table: Table) -> ChangedEntry | None:
        """Return a table's entry in its metastore if it was changed since a migration switched it.

        Commits through that entry are not in the catalog.

        Raises:
            SourceUnavailableError: The metastore does not answer.
        """
        flip = self._sources.flip_of(table)
        return None if flip is None else self._sources.changed_since(flip)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _let_go(self, operation_id: str, error: CatalogError) -> None:
        """Mark an operation as FAILED, which releases its table, unless a retry can continue it."""
        is_retryable = isinstance(error, FencedError | VerificationFailedError) or error.retryable
        if isinstance(error, MigrationConflictError) or not is_retryable:
            self._operations.fail(operation_id, type(error).__name__, str(error))

    def _target(self, connection: Connection, operation: MigrationOperation) -> Target:
        table = self._definitions.get_table(operation.table, connection)
        return find_target(connection, self._definitions, table, operation.parsed_request)
