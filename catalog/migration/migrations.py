"""`Migrations`: turn Hive tables into Iceberg tables without touching a data file, and back.

plan      what becomes of columns and partitions, and why a table cannot become one; nothing is changed
begin     the operation holds the table against loads and other changes
stage     a Spark job lists the folders, reads the footers, and writes the manifests; the first metadata are written
verify    a Spark job compares what both sides read, where that is asked for
flip      pointer and state of the table change in one transaction; from then on it is an Iceberg table
revert    the Hive table again, as it was

The same steps make an Iceberg table beside a Hive one, and add a Hive table's files to an Iceberg table.
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
    FileProblem,
    MigrationConflictError,
    NestedFolderError,
    UnusableFilesError,
    VerificationFailedError,
)
from catalog.iceberg.places import path_properties
from catalog.migration.flipping import REVERT, Flipper
from catalog.migration.late_files import digest_of, late_report, listed_files
from catalog.migration.planning import MigrationPlan, make_plan
from catalog.migration.requests import MigrationRequest, OnUnusable
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
    write_staged,
)
from catalog.migration.targets import Target, find_target, refuse_taken_metadata_folder, skipped_folders
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
"""The steps of a migration; the last one reports files that came while it committed."""

_SKIPPABLE = (FileProblem.EMPTY, FileProblem.FOREIGN)
_REPORTED = 1_000
"""Files that cannot be a table's, up to which a report names them; all are counted."""

_NOT_COPIED = ("path", "transient_lastddltime", "serialization.format")
_USUAL_REQUEST = MigrationRequest()


class Migrations:
    """Migrations of one catalog's tables."""

    def __init__(self, storage: Storage, definitions: Definitions, operations: Operations) -> None:
        """Take the database, the definitions in it, and the journal."""
        self._storage = storage
        self._definitions = definitions
        self._operations = operations
        self._flipper = Flipper(storage, definitions, operations)
        self._sources = SourceEntries(definitions, operations)

    # --- plan -------------------------------------------------------------------------------------------------------

    def plan(
        self, table: str, request: MigrationRequest = _USUAL_REQUEST, *, operation_id: str | None = None
    ) -> MigrationPlan:
        """Return what a migration would do; this is its dry run.

        Args:
            operation_id: Of the operation that does it, and holds the table; None for none.

        Raises:
            TableNotFoundError: There is no such table.
            NotATableError, UnsupportedFormatError, UnsupportedChangeError, MigrationRefusedError: It cannot become an
                Iceberg table; the subclasses say why.
            UnsupportedIcebergTypeError, ReservedColumnError, DuplicateColumnError, PartitionValueError: Iceberg cannot
                have its columns, or the values of its partitions.
            OperationConflictError: Another operation is at work on it.
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
        """Journal the operation, and let it hold the table; or return it when it was begun before.

        Only for the plan of `request.fingerprint`; without one, for the plan that there is now.

        Raises:
            MigrationConflictError: The plan is another one than was agreed to.
            OperationConflictError: Another operation is at work on the table.
            CatalogError: As `plan`; nothing was journaled.
        """
        known = self._operations.find(operation_id)
        # Once it is made, the table does not fit the request any more.
        if known is not None and known.is_committed:
            return known
        plan, target = self._planned(table, request, operation_id)
        if request.fingerprint not in (None, plan.fingerprint):
            raise MigrationConflictError(
                f"table {plan.table.full_name} changed since the plan of its migration was made (fingerprint "
                f"{request.fingerprint}, now {plan.fingerprint}); nothing was changed, and the plan has to be made anew"
            )
        return self._operations.begin(
            operation_id,
            request.kind,
            plan.table.full_name,
            replace(plan.request, location=target.location).as_json(),
            is_exclusive=True,
            requested_by=requested_by,
        )

    # --- stage ------------------------------------------------------------------------------------------------------

    def target(self, operation: Operation) -> Target:
        """Return the Iceberg table of an operation that was begun.

        Raises:
            CatalogError: As `plan`.
        """
        with self._storage.read() as connection:
            return self._target(connection, operation)

    def layout(self, operation: Operation) -> Layout:
        """Return the layout by which the files become the Iceberg table's."""
        return self.target(operation).layout

    def folders(self, operation: Operation, page_size: int = 1_000) -> Iterator[Sequence[SourceFolder]]:
        """Yield what has to be listed, in the order of the typed partition values, a page at a time.

        A table without partition keys is one folder. All pages are of one state of the catalog, and no connection is
        held while the caller works on them.
        """
        with self._storage.read() as connection:
            table = self._definitions.get_hive_table(operation.table, connection)
            selection = self._target(connection, operation).selection
            folders = source_folders(connection, table, selection)
            # They are sorted, so that all have been read when the first one comes.
            first = list(islice(folders, 1))
        yield from batched(chain(first, folders), page_size)

    def skipped_folders(self, operation: Operation) -> frozenset[str]:
        """Return the folders that no listing of the table's files looks into."""
        return skipped_folders(self._definitions.get_table(operation.table))

    def manifest_prefix(self, operation: Operation, attempt: int) -> str:
        """Return what the path of each manifest of an attempt at the stage begins with; it ends with a slash."""
        target = self.target(operation)
        return f"{target.location}/{attempt_name(target.metadata_folder, operation, attempt)}/"

    def is_staged(self, operation_id: str) -> bool:
        """Say whether the latest attempt at the stage of an operation succeeded, and what it wrote is there."""
        job = self._operations.get_job(operation_id, STAGE)
        if job is None or job.state is not JobState.SUCCEEDED:
            return False
        return is_staged(job.result["location"], job.result["folder"])

    def record_staged(self, operation_id: str, attempt: int, staged: Staged) -> dict[str, Any]:
        """Write the first metadata over what a stage has written, and end its attempt; nobody sees any of it yet.

        Metadata that are added to another table's are only written with the commit.

        Returns:
            The report of the stage: `location` and `folder` of what was written, `metadata_location`, `listing`,
            `files`, `rows`, `bytes`, `partitions`, `manifests`, and `problems`, the files that are not part of it.

        Raises:
            UnusableFilesError: Files cannot be part of the table, and are not to be passed over.
            VerificationFailedError: Manifests and totals do not agree.
            FencedError: The attempt was given up.
        """
        from catalog.iceberg.appending import layout_digest

        operation = self._operations.get(operation_id)
        request = MigrationRequest.from_json(operation.request)
        _check(operation.table, request, staged)
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
                {"path": each.path, "problem": each.problem, "message": each.message}
                for each in staged.problems[:_REPORTED]
            ],
        }
        self._operations.finish_job(operation_id, STAGE, attempt, result)
        return result

    @staticmethod
    def _write_metadata(operation: Operation, table: Table, target: Target, staged: Staged, name: str) -> str:
        from catalog.iceberg.metadata import AddedFiles, write_table

        request = MigrationRequest.from_json(operation.request)
        return write_table(
            target.layout,
            target.location,
            staged.manifests,
            table_properties(table, target.location, is_snapshot=request.kind is OperationKind.SNAPSHOT)
            | staged.reading_properties,
            target.layout.name_mapping(staged.spellings, staged.unknown),
            AddedFiles(staged.size_bytes, staged.partition_count, {OPERATION_MARK: str(operation.number)}),
            folder=f"{target.location}/{name}",
            metadata_location=f"{target.location}/{attempt_metadata(target.location, name)}",
        )

    def staged(self, operation_id: str) -> tuple[Staged, str | None]:
        """Return what the stage of an operation has left, and the location of its metadata.

        Raises:
            VerificationFailedError: It is not there, or not of this request.
        """
        operation = self._operations.get(operation_id)
        job = self._operations.get_job(operation_id, STAGE)
        request = MigrationRequest.from_json(operation.request)
        if job is None or job.state is not JobState.SUCCEEDED or job.result["fingerprint"] != request.fingerprint:
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
        """Let the table be an Iceberg table, in one transaction; done again, it returns the same report.

        When the table is not any more as it was planned, the operation has FAILED then, and holds the table no longer.

        Args:
            listing: The digest of the table's files as they were listed anew just now, for instance in executors.
            relist: List them in this process when `listing` is not given; False to take them as they were staged.
            report: What else the operation's report shall say.

        Returns:
            The report; under `late_files` the files that came between the listing and the commit, which the Iceberg
            table does not have: `count`, `paths` and `advice`. Files are listed once more after the commit for that,
            by the next call if this one is killed before.

        Raises:
            MigrationConflictError: The table, its partitions or its files changed since, and the plan has to be made
                anew.
            VerificationFailedError: The files were not staged, or not verified where that was asked for.
            DuplicateFilesError: An Iceberg table has files already that should be added.
            FencedError: The attempt was given up.
            SourceError, SourceEntryChangedError: The table is an Iceberg table here, and its entry in the metastore
                could not be flipped; done again, only that is tried.
        """
        operation = self._operations.get(operation_id)
        flipped = self._flipped(operation, listing, relist, report)
        late = self._late_report(operation_id) if listing is not None or relist else operation.report.get(LATE)
        if MigrationRequest.from_json(operation.request).flip_source:
            self._sources.flip(operation_id)
        return {**flipped, LATE: late} if late and late["count"] else flipped

    def _flipped(
        self, operation: Operation, listing: str | None, relist: bool, report: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        operation_id = operation.id
        if operation.is_committed:
            return dict(operation.report[FLIP])
        try:
            return self._flip(operation, listing, relist, report)
        except CatalogError as error:
            now = self._operations.get(operation_id)
            if now.is_committed:
                # By another run of the same operation, meanwhile.
                return dict(now.report[FLIP])
            if isinstance(error, MigrationConflictError):
                self.discard_staged(operation_id, str(error))
            self._let_go(operation_id, error)
            raise

    def _flip(
        self, operation: Operation, listing: str | None, relist: bool, report: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        with self._operations.attempt(operation.id, FLIP) as attempt:
            staged, metadata_location = self.staged(operation.id)
            self._require_verified(operation, metadata_location)
            if MigrationRequest.from_json(operation.request).flip_source:
                assert metadata_location is not None
                self._sources.prepare(operation, metadata_location)
            target = self.target(operation)
            # The last thing before the commit: a file that arrives afterwards is missed.
            if listing is None and relist:
                listing = self._list_now(operation)
            if listing is not None and listing != staged.listing:
                raise MigrationConflictError(
                    f"table {operation.table}: its files changed since they were listed ({staged.listing}, now "
                    f"{listing}); nothing was changed, and the plan has to be made anew"
                )
            return self._flipper.flip(operation, attempt, target, staged, metadata_location, report)

    def _late_report(self, operation_id: str) -> Mapping[str, Any] | None:
        """Return the report of late files, which is made once and journaled, also when a crash follows the commit."""
        operation = self._operations.get(operation_id)
        if LATE in operation.report:
            return dict(operation.report[LATE])
        if not self.is_staged(operation_id):
            return None
        staged, _ = self.staged(operation_id)
        with self._storage.read() as connection:
            late = late_report(connection, self._definitions, operation, staged)
        if late is not None:
            with self._operations.attempt(operation_id, LATE) as attempt:
                self._operations.finish_job(operation_id, LATE, attempt, late)
        return late

    def _list_now(self, operation: Operation) -> str:
        try:
            return str(self.list_again(operation))
        except NestedFolderError as error:
            raise MigrationConflictError(
                f"table {operation.table}: its files changed since they were listed: {error}; nothing was changed, and "
                "the plan has to be made anew"
            ) from error

    def discard_staged(self, operation_id: str, reason: str) -> None:
        """Let the files of an operation be staged again, because what was staged is not what is there."""
        attempt = self._operations.start_job(operation_id, STAGE)
        self._operations.fail_job(operation_id, STAGE, attempt, MigrationConflictError.__name__, reason)

    def list_again(self, operation: Operation) -> ListingDigest:
        """Return the digest of the table's files as they are now, listed in this process."""
        request = MigrationRequest.from_json(operation.request)
        with self._storage.read() as connection:
            table = self._definitions.get_hive_table(operation.table, connection)
            return digest_of(listed_files(connection, table, request, self._target(connection, operation)))

    def _require_verified(self, operation: Operation, metadata_location: str | None) -> None:
        if not MigrationRequest.from_json(operation.request).verify:
            return
        job = self._operations.get_job(operation.id, VERIFY)
        if (
            job is None
            or job.state is not JobState.SUCCEEDED
            or job.result.get("metadata_location") != metadata_location
        ):
            raise VerificationFailedError(
                f"table {operation.table}: what the Iceberg table would read was not compared with what the Hive table "
                "reads; nothing was changed. Run the step verify, or migrate without it"
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
        """Let an Iceberg table be the Hive table again that it was, with its partitions and indexes.

        No file is touched: those that Iceberg wrote since stay, and nobody reads them. Done again, it returns the same
        report. If the migration flipped the table's entry in a metastore, that becomes again what it was.

        Args:
            lose_data: Also when Iceberg commits have added or deleted rows since, which the Hive table does not know;
                those through the metastore included.
            confirmation: Is asked before the commit.

        Returns:
            `metadata_location`, of the Iceberg table that it was; and `lost`, what was written since.

        Raises:
            NotIcebergTableError: It is none, or never was a Hive table.
            DataWrittenError: Rows would be lost, and are not to be.
            SourceEntryChangedError: The entry in the metastore was changed since, and that is not to be lost.
            OperationConflictError: Another operation is at work on the table.
        """
        definition = self._definitions.get_table(table)
        flip = self._sources.flip_of(definition)
        operation = self._operations.find(operation_id)
        if operation is not None and operation.is_committed:
            if flip is not None:
                self._sources.restore(flip, is_forced=lose_data)
            return dict(operation.report[REVERT])
        # What is refused now holds no table.
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
        """Return a table's entry in its metastore if somebody has changed it since a migration flipped it.

        What was committed through it is not in the catalog.

        Raises:
            SourceUnavailableError: The metastore does not answer.
        """
        flip = self._sources.flip_of(table)
        return None if flip is None else self._sources.changed_since(flip)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _let_go(self, operation_id: str, error: CatalogError) -> None:
        """Let an operation that cannot go on as it is hold its table no longer; one that is tried again goes on."""
        goes_on = isinstance(error, FencedError | VerificationFailedError) or error.retryable
        if isinstance(error, MigrationConflictError) or not goes_on:
            self._operations.fail(operation_id, type(error).__name__, str(error))

    def _target(self, connection: Connection, operation: Operation) -> Target:
        request = MigrationRequest.from_json(operation.request)
        table = self._definitions.get_table(operation.table, connection)
        return find_target(connection, self._definitions, table, request)


def table_properties(table: Table, location: str, *, is_snapshot: bool) -> dict[str, str]:
    """Return the properties of the Iceberg table that a Hive table becomes.

    All of the Hive table's, but for three that Hive itself sets. Source: Trino's `MigrateProcedure` and
    Iceberg's `MigrateTableSparkAction`, `SnapshotTableSparkAction`.

    Args:
        location: Of the Iceberg table.
    """
    kept = {name: value for name, value in table.properties.items() if name.lower() not in _NOT_COPIED}
    if table.description is not None:
        kept.setdefault("comment", table.description)
    kept["write.format.default"] = table.format.value
    kept |= path_properties(location, is_partitioned=bool(table.partition_keys))
    if is_snapshot:
        return {**kept, "snapshot": "true", "gc.enabled": "false"}
    return {**kept, "migrated": "true"}


def _check(table: str, request: MigrationRequest, staged: Staged) -> None:
    is_skipped = request.unusable_files is OnUnusable.SKIP
    skippable = _SKIPPABLE if is_skipped else ()
    if refused := [each for each in staged.problems if each.problem not in skippable]:
        raise UnusableFilesError(table, refused, staged.count_problems(except_for=skippable))
    files = sum(each.file_count for each in staged.manifests)
    rows = sum(each.row_count for each in staged.manifests)
    if (files, rows) != (staged.file_count, staged.row_count):
        raise VerificationFailedError(
            f"table {table}: the manifests have {files:,} file(s) with {rows:,} row(s), and {staged.file_count:,} with "
            f"{staged.row_count:,} were counted; nothing was changed. Run the operation again"
        )
