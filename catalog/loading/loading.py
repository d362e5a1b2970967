"""Loads of source files into a table: discovery of new files, staging, and publication as partitions.

    discover  finds the source files that the table does not have yet
    stage     a Spark job writes data files, and a list of them, below `_calve_staging`, which readers ignore
    publish   moves the files to their destinations; then one transaction adds the partitions, records the source files,
              and sets the operation to COMMITTED (`catalog.loading.publishing`)

A load that was interrupted in `publish` is finished by running `publish` again. A load that is not continued is
undone by `discard_staging`, with which the next load of the table starts.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from catalog.datafiles.intake import lock_current
from catalog.datafiles.publishing import FileSwap, publish
from catalog.errors import (
    InvalidPartitionError,
    NotFoundError,
    OperationReusedError,
    PartitionAlreadyExistsError,
    RefusedPartition,
    SourceFileError,
    UnsupportedChangeError,
)
from catalog.files.filesystem import FileInfo, Folder
from catalog.files.locations import file_spellings
from catalog.loading.attempts import PublishAttempt, PublishOptions
from catalog.loading.publishing import Publication, staged_attempts, withdraw
from catalog.loading.replacing import remove
from catalog.loading.schemes import SchemePublication, require_scheme_settings
from catalog.loading.set_aside import files_set_aside, not_set_aside, paths_set_aside_by, set_aside
from catalog.loading.snapshots import SnapshotPublication
from catalog.model import LoadMode, NewPartition, OnInvalid, PartitionIndex, SetAsideFile, Table
from catalog.model.identifiers import TableName
from catalog.model.partition_names import partition_path
from catalog.operations.attempts import AttemptName, attempt_folder, attempts_among, withdraw_attempt
from catalog.operations.failpoints import Point, reached
from catalog.operations.job_requests import SKIP
from catalog.operations.journal import Operations
from catalog.operations.records import Operation, OperationKind, OperationState
from catalog.operations.staging import STAGING, incomplete, staging_name
from catalog.partitions.adding import registered
from catalog.partitions.snapshots import remove_partitions
from catalog.partitions.spooling import RowSpool, taken_in
from catalog.settings.places import allowed_files
from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.schema import SourceFileRow, TableRow
from catalog.storage.values import ValueEncoder
from catalog.tables.checks import require_loadable
from catalog.tables.definitions import Definitions
from catalog.tables.evolution import Evolution

log = logging.getLogger(__name__)

DISCOVER = "discover"
STATEMENT_FILES = "source_files"
"""The field of an operation's request with the files of LOAD DATA."""
_SHOWN = 20
_PATHS = 1_000
"""Number of files in one statement, each with the paths under which it may be recorded."""

_Known = dict[str, set[tuple[int, int]]]
"""Path of a loaded file → the sizes and times with which it was loaded."""

Attempt = tuple[str, str, int]
"""An attempt at a step: the operation's id, the step, and the attempt's number."""


class Loading:
    """The loads of one catalog."""

    def __init__(self, storage: Storage, definitions: Definitions, operations: Operations) -> None:
        """Set the storage, the definitions in it, and the journal."""
        self._storage = storage
        self._definitions = definitions
        self._operations = operations

    # --- discover -----------------------------------------------------------------------------------------------

    def discover(
        self,
        operation_id: str,
        table: str,
        source: str | Sequence[str],
        *,
        reload: bool = False,
        mode: LoadMode | None = None,
        is_dry_run: bool = False,
        settings: Mapping[str, Any] | None = None,
        requested_by: str | None = None,
    ) -> list[FileInfo]:
        """Return the source files to load, and journal the operation unless there are none.

        A retry lists the source again, unless the operation has committed.

        Args:
            source: A file, a folder, or a glob; or several of them.
            reload: Include files that were loaded before, even if they have changed since.
            mode: With REPLACE and MERGE, files that changed after they were loaded are loaded again, and named in the
                log.
            is_dry_run: Do not reserve the table for the operation.
            settings: Settings for the load's later steps (`settings_of`), as JSON values; `request` has the fields of
                `SourceJob`. Files that were set aside with the same ones, and have not changed since, are left out.

        Raises:
            NotATableError, UnsupportedFormatError: The table cannot be loaded.
            UnsupportedChangeError: The table has a partition scheme, and the settings are not for such a table.
            LocationNotAllowedError: The source lies outside all allowed folders.
            SourceFileError: The source does not exist, or a file changed after it was loaded, and bad files are not
                skipped.
            OperationConflictError: Another operation is running on the table.
            OperationReusedError: The operation id belongs to another load, which has committed.
        """
        known = self._known_table(table)
        if known is not None and known.scheme is not None and settings:
            require_scheme_settings(known, settings)
        sources = [source] if isinstance(source, str) else list(source)
        files = list({file.path: file for part in sources for file in allowed_files(part)}.values())
        changed: list[str] = []
        operation = self._operations.find(operation_id)
        arguments = {"source": source if isinstance(source, str) else sources, "reload": reload, "dry_run": is_dry_run}
        if operation is not None and operation.is_committed:
            is_same = TableName.parse(table) == TableName.parse(operation.table)
            if not is_same or arguments.items() - {(name, operation.request.get(name)) for name in arguments}:
                raise OperationReusedError(
                    operation_id, f"loading {operation.table} from {operation.request.get('source')}"
                )
            return self.source_files(operation)
        if known is not None and not reload:
            named = ", ".join(sources)
            read_as = (settings or {}).get("request", {})
            files, changed = self._new_files(known, named, files, mode, sets_aside=read_as.get("bad_files") == SKIP)
            files = self._not_set_aside(known, named, files, read_as)
        if files:
            found = {file.path for file in files}
            request = {
                **arguments,
                "files": [asdict(file) for file in files],
                "changed": [path for path in changed if path in found],
                "settings": dict(settings or {}),
            }
            self._operations.begin(
                operation_id,
                OperationKind.ADD_PARTITIONS,
                table,
                request,
                is_exclusive=not is_dry_run,
                requested_by=requested_by,
            )
        elif operation is not None:
            self._operations.fail(operation_id, "NOTHING_TO_LOAD", f"all files of {', '.join(sources)} are loaded")
        return files

    def new_for_statement(self, table: Table, source: str, files: Sequence[FileInfo]) -> list[FileInfo]:
        """Return the files that a statement LOAD DATA loads: those that the table does not have yet.

        Raises:
            SourceFileError: It has all of them, or one of them changed after it was loaded.
        """
        known = self._known_files(table, files)
        what = f"source {source}: {{:,}} file(s) {{}} loaded into {table.full_name}: {{}}"
        todo = "replaces their partitions, and OPTIONS('RELOAD'='true') adds their rows again"
        if changed := _changed(known, files):
            said = what.format(len(changed), "changed after they were", ", ".join(changed[:_SHOWN]))
            raise SourceFileError(f"{said}. Deliver new rows in new files; LOAD DATA with OVERWRITE {todo}")
        new = [file for file in files if _same_path(file.path) not in known]
        if files and not new:
            said = what.format(len(files), "were already", ", ".join(file.path for file in files[:_SHOWN]))
            raise SourceFileError(f"{said}. LOAD DATA with OVERWRITE {todo}")
        return new

    @staticmethod
    def files_of_statement(operation: Operation) -> list[FileInfo] | None:
        """Return the files that a statement LOAD DATA loads; None for other statements."""
        files = operation.request.get(STATEMENT_FILES)
        return None if files is None else [FileInfo(**fields) for fields in files]

    def settings_of(self, operation_id: str) -> dict[str, Any]:
        """Return the settings that `discover` has journaled with a load."""
        return dict(self._operations.get(operation_id).request.get("settings") or {})

    def needs_packages(self, request: Mapping[str, Any]) -> bool:
        """Return whether a job of a load needs Spark's packages: to read Avro files, or what other engines deleted.

        Args:
            request: With `table`, and `source_format` and `format` if it reads source files.
        """
        if "avro" in (request.get("source_format"), request.get("format")):
            return True
        known = self._known_table(request["table"])
        return known is not None and known.engine_location is not None

    def _known_table(self, name: str) -> Table | None:
        try:
            table = self._definitions.get_hive_table(name)
        except NotFoundError:
            return None
        require_loadable(table)
        return table

    def _new_files(
        self, table: Table, source: str, files: Sequence[FileInfo], mode: LoadMode | None, *, sets_aside: bool
    ) -> tuple[list[FileInfo], list[str]]:
        """Return the files that are not loaded in their present state, and the paths of those to set aside.

        Args:
            sets_aside: Whether bad files are set aside; files that changed after they were loaded are bad, unless the
                mode says what becomes of their former rows.
        """
        known = self._known_files(table, files)
        changed = _changed(known, files)
        again = set(changed)
        new = [file for file in files if file.path in again or _same_path(file.path) not in known]
        what = f"{len(changed):,} file(s) changed after they were loaded into {table.full_name}"
        if changed and mode in (LoadMode.REPLACE, LoadMode.MERGE):
            done = "their partitions are replaced" if mode is LoadMode.REPLACE else "they are merged again"
            log.warning("%s; %s: %s", what, done, ", ".join(changed[:_SHOWN]))
        elif changed and not sets_aside:
            raise SourceFileError(
                f"source {source}: {what}: {', '.join(changed[:_SHOWN])}. Deliver new rows in new files; or drop the "
                "partitions with rows of these files and load them with `reload`; or set `mode` to replace, to replace "
                "their partitions; or set `bad_files` to skip, to load the other files"
            )
        elif changed:
            return new, changed
        return new, []

    def _known_files(self, table: Table, files: Sequence[FileInfo]) -> _Known:
        """Return those of the files that were loaded, by their normalized paths."""
        known: _Known = {}
        with self._storage.read() as connection:
            for batch in batched(files, _PATHS):
                query = select(SourceFileRow.__table__).where(
                    SourceFileRow.table_id == table.id, among(connection, SourceFileRow.path, _spellings(batch))
                )
                for row in connection.execute(query):
                    known.setdefault(_same_path(row.path), set()).add((row.size_bytes, row.modified_at_ms))
        return known

    def _not_set_aside(
        self, table: Table, source: str, files: list[FileInfo], request: Mapping[str, Any]
    ) -> list[FileInfo]:
        to_try = not_set_aside(self._storage, table, files, request)
        if len(to_try) < len(files):
            log.warning(
                "%s: %d file(s) of %s are set aside until they, or the settings to read them, change",
                *(table.full_name, len(files) - len(to_try), source),
            )
        return to_try

    @staticmethod
    def discovered_files(operation: Operation) -> list[FileInfo]:
        """Return the source files that a load has found, including those that it sets aside."""
        return [FileInfo(**fields) for fields in operation.request["files"]]

    @staticmethod
    def changed_files(operation: Operation) -> list[str]:
        """Return the paths of the source files that a load has found, and sets aside, because they had changed."""
        return list(operation.request.get("changed", ()))

    def source_files(self, operation: Operation, connection: Connection | None = None) -> list[FileInfo]:
        """Return the source files of a load, without those that it has set aside."""
        with nullcontext(connection) if connection is not None else self._storage.read() as own:
            aside = paths_set_aside_by(own, operation)
        return [file for file in self.discovered_files(operation) if file.path not in aside]

    def set_aside(
        self, table: Table, attempt: Attempt, refused: Sequence[SetAsideFile], request: Mapping[str, Any]
    ) -> None:
        """Record which files of a load are set aside; a repeated call replaces what the load recorded before.

        Args:
            refused: The files; the other files of the load are no longer set aside.
            request: The fields of `SourceJob` with which they were read.

        Raises:
            FencedError: The attempt is fenced.
        """
        with self._storage.write() as connection:
            operation = self._operations.guard(connection, *attempt)
            set_aside(connection, table, operation, self.discovered_files(operation), refused, request)

    def set_aside_files(self, table: Table | None) -> list[SetAsideFile]:
        """Return the files that loads of a table, or of all tables, have set aside, by table and path."""
        with self._storage.read() as connection:
            return files_set_aside(connection, table)

    # --- check --------------------------------------------------------------------------------------------------

    def check(
        self,
        table: Table,
        indexes: Sequence[PartitionIndex],
        partitions: Iterable[NewPartition],
        mode: LoadMode | None = None,
    ) -> Iterator[RefusedPartition]:
        """Yield the partitions whose values the key types or the indexes do not admit; the table need not exist yet.

        Args:
            mode: By default, that of the table's format.

        Raises:
            InvalidPartitionError: A partition occurs in two spellings, such as `01` and `1` for an int.
            PartitionAlreadyExistsError: The mode is NEW, and the table already has one of the partitions.
        """
        mode = mode or LoadMode.of("", table)
        encoder = ValueEncoder(table, indexes, every_key=True)
        for batch in batched(partitions):
            fitting: dict[bytes, NewPartition] = {}
            for partition in batch:
                encoded = encoder.encode(partition.values)
                if isinstance(encoded, RefusedPartition):
                    yield encoded
                elif (twin := fitting.setdefault(encoded.identity, partition)) is not partition:
                    spellings = [partition_path(table.key_names, spelling.values) for spelling in (twin, partition)]
                    raise InvalidPartitionError(
                        table.full_name,
                        reason=f"the source files write one partition in two ways, {spellings[0]} and {spellings[1]}; "
                        "deliver its rows under one spelling",
                    )
            if mode is not LoadMode.NEW:
                continue
            with self._storage.read() as connection:
                known = registered(connection, table, list(fitting))
            if known:
                names = [partition_path(table.key_names, fitting[identity].values) for identity in sorted(known)]
                raise PartitionAlreadyExistsError(
                    f"table {table.full_name} already has {len(names):,} of the partitions that the source files would "
                    f"add, for instance {', '.join(names[:5])}. Set the load's `mode` to append to add their rows to "
                    "these partitions, or drop these partitions first"
                )

    # --- stage --------------------------------------------------------------------------------------------------

    @staticmethod
    def staging_name(operation: Operation, attempt: int) -> str:
        """Return the staging folder of an attempt, relative to the table's location."""
        return staging_name(operation, attempt)

    @classmethod
    def files_folder(cls, table: Table, operation: Operation, attempt: int) -> str:
        """Return the folder of an attempt's new files, relative to the table's location."""
        is_final = table.has_file_rows
        return attempt_folder(operation, attempt) if is_final else cls.staging_name(operation, attempt)

    def discard_staging(self, table: Table, attempt: Attempt, *, keep: str | None = None) -> None:
        """Undo unfinished loads of a table, except that of the staging folder `keep`.

        Keeps staging folders of other catalogs.

        Args:
            attempt: The calling attempt; its operation has reserved the table, so no other load is running.

        Raises:
            FencedError: The attempt is fenced.
        """
        for staged in staged_attempts(self._storage, table):
            staging = f"{STAGING}/{staged.name}"
            if staging != keep and self._is_of(table, staged.number):
                with self._storage.write() as connection:
                    own = self._operations.guard(connection, *attempt)
                    # Other attempts of the same operation cannot publish: only the latest one can.
                    if staged.number != own.number:
                        withdraw_attempt(connection, staged, staging)
                reached(Point.WITHDRAWN)
                withdraw(self._storage, self._operations, table, staged)

    def _is_of(self, table: Table, number: int) -> bool:
        """Return whether an operation belongs to a table or to a dropped table, or is unknown."""
        operation = self._operations.find_by_number(number)
        if operation is None or operation.table_id in (None, table.id):
            return True
        with self._storage.read() as connection:
            return connection.scalar(select(TableRow.id).where(TableRow.id == operation.table_id)) is None

    def withdraw(self, table: Table, staged: AttemptName) -> None:
        """Undo an attempt that can no longer be published; see `publishing.withdraw`."""
        withdraw(self._storage, self._operations, table, staged)

    # --- publish ------------------------------------------------------------------------------------------------

    def publish(
        self,
        operation_id: str,
        step: str,
        attempt: int,
        staging: str,
        *,
        on_invalid: OnInvalid = OnInvalid.REFUSE,
        is_quarantined: bool = False,
        mode: LoadMode | None = None,
        is_load: bool = True,
        removed: Collection[int] = (),
        evolution: Evolution | None = None,
    ) -> dict[str, Any]:
        """Make a staged load visible in one transaction; repeated after its commit, return the same report.

        No locks are held while files are moved. Until the commit, no other transaction can add the load's partitions.

        Args:
            staging: The folder that the Spark job reported; of a table with a partition scheme, it has also reported
                the change of files (`catalog.loading.schemes`), which depends on the mode.
            on_invalid: Whether to refuse the load, or to skip partitions that an index does not admit.
            is_quarantined: Hide the partitions until a quality check releases them.
            mode: With APPEND, the staged files may belong to existing partitions (`catalog.loading.appending`). Until
                the commit, or until a failed append is undone, readers that list the folders of these partitions may
                see some of the files. With REPLACE, the partitions have only the staged files afterwards: in a snapshot
                of a table stored as Iceberg, or as versions (`catalog.partitions.versions`). By default, that of the
                table's format (`LoadMode.of`), and APPEND for a statement.
            is_load: The rows are those of source files that `discover` has found; otherwise, those of a statement,
                whose attempt has written the files itself.
            removed: The ids of partitions that are dropped in the same transaction, with their rows.
            evolution: The columns that the table gets in the same transaction, with which the files were written.

        Returns:
            The report: counts of added partitions, rows, files and bytes, and of refused ones.

        Raises:
            FencedError: The attempt is fenced, or a later attempt stages the load.
            ConflictError, UnsupportedFormatError: A partition does not accept appended files, or the columns of the
                table were changed since the evolution was planned.
            UnsupportedChangeError: The mode is REPLACE, and the table has no partition keys and is not stored as
                Iceberg.
            InvalidPartitionError, PartitionAlreadyExistsError: As for `Catalog.add_partitions`.
            LocationNotEmptyError: The folder of a new partition contains files that the catalog does not know.
            VerificationFailedError: The staging folder is incomplete or missing.
        """
        operation = self._operations.get(operation_id)
        table = self._definitions.get_table(operation.table)
        if mode is LoadMode.MERGE:
            # The attempt has merged the rows, so its files have all rows of their partitions.
            mode = LoadMode.REPLACE
        if mode is LoadMode.REPLACE and not (table.partition_keys or table.has_file_rows):
            raise UnsupportedChangeError(
                f"table {table.full_name} has no partition keys, and readers list its folder, so its rows cannot be "
                "replaced at once for all readers; create it with format iceberg to replace them"
            )
        default_mode = LoadMode.of("", table) if is_load else LoadMode.APPEND
        options = PublishOptions(on_invalid, is_quarantined, mode or default_mode, is_load, removed, evolution)
        own = PublishAttempt(
            self._storage, self._definitions, self._operations, operation, step, attempt, table, staging, options
        )
        if table.scheme is not None:
            if not operation.is_committed:
                SchemePublication(own).commit(self._note_load)
            return dict(self._operations.get(operation_id).report[step])
        if table.is_stored_as_iceberg:
            if not operation.is_committed:
                self._publish_snapshot(own)
            return dict(self._operations.get(operation_id).report[step])
        folder = Folder(table.location)
        if not operation.is_committed:
            staged = next(attempts_among(self._storage, [staging.removeprefix(f"{STAGING}/")]), None)
            if staged is None or staged.number != operation.number:
                raise incomplete(folder, staging, table.full_name)
            self._publish(own, staged)
        folder.delete(staging)
        # Not with its contents: the next load of the table may have begun to stage its files.
        folder.inside(STAGING).delete_if_empty()
        with self._storage.write() as connection:
            self._operations.advance(connection, operation_id, OperationState.CLEANED)
        return dict(self._operations.get(operation_id).report[step])

    def remove(self, operation_id: str, step: str, table: Table, ids: Collection[int]) -> int:
        """Drop partitions with their rows, in one transaction; repeated, return the same number.

        Readers through the catalog see the rows before or after. The files stay for the grace period: of a Hive-style
        table as `catalog.partitions.versions` describes, of a table stored as Iceberg until its snapshots expire.

        Args:
            operation_id: An operation that has reserved the table.

        Returns:
            The number of partitions.

        Raises:
            FencedError: A later attempt removes them.
        """
        operation = self._operations.get(operation_id)
        if operation.is_committed:
            return int(operation.report[step]["partitions_removed"])
        with self._operations.attempt(operation_id, step) as attempt:
            self.discard_staging(table, (operation_id, step, attempt))
            with self._storage.write() as connection:
                operation = self._operations.guard(connection, operation_id, step, attempt)
                self._remove(connection, table, ids, attempt_folder(operation, attempt))
                removed = len(ids)
                report = {"partitions_removed": removed}
                self._operations.finish_job(operation_id, step, attempt, report, connection=connection)
                self._operations.advance(connection, operation_id, OperationState.COMMITTED)
                self._operations.advance(connection, operation_id, OperationState.CLEANED)
                reached(Point.CHANGED)
        return removed

    def _remove(self, connection: Connection, table: Table, ids: Collection[int], attempt: str) -> None:
        if not table.is_stored_as_iceberg:
            remove(connection, self._definitions.lock_table(connection, table, exclusive=False), ids, attempt)
            return
        current = lock_current(connection, self._definitions, table)
        if paths := remove_partitions(connection, current, ids):
            publish(connection, current, FileSwap(removed=paths))

    def _publish(self, attempt: PublishAttempt, staged: AttemptName) -> None:
        publication = Publication(attempt, staged)
        publication.reserve()
        reached(Point.RESERVED)
        with RowSpool() as extensions, taken_in(publication.move(extensions)) as new:
            reached(Point.MOVED)
            with self._storage.write() as connection:
                operation = publication.commit(connection, new.partitions, extensions)
                self._finish(connection, attempt, operation, publication.report())
        reached(Point.COMMITTED)

    def _publish_snapshot(self, attempt: PublishAttempt) -> None:
        publication = SnapshotPublication(attempt)
        publication.set_aside()
        with self._storage.write() as connection:
            operation, report = publication.commit(connection)
            self._finish(connection, attempt, operation, report)
        reached(Point.COMMITTED)

    def _finish(
        self, connection: Connection, attempt: PublishAttempt, operation: Operation, report: dict[str, Any]
    ) -> None:
        """Note that a load is published, in the transaction that publishes it."""
        if attempt.options.is_load:
            self._note_load(connection, attempt.table, operation)
        else:
            self.note_statement(connection, attempt.table, operation)
        self._operations.finish_job(operation.id, attempt.step, attempt.number, report, connection=connection)
        self._operations.advance(connection, operation.id, OperationState.COMMITTED)
        reached(Point.CHANGED)

    def _note_load(self, connection: Connection, table: Table, operation: Operation) -> None:
        self._note_sources(connection, table, operation, self.source_files(operation, connection))

    def note_statement(self, connection: Connection, table: Table, operation: Operation) -> None:
        """Record the files of a statement LOAD DATA as loaded, in the transaction that makes its rows visible."""
        self._note_sources(connection, table, operation, self.files_of_statement(operation) or ())

    def _note_sources(
        self, connection: Connection, table: Table, operation: Operation, files: Iterable[FileInfo]
    ) -> None:
        for batch in batched(files, _PATHS):
            connection.execute(
                delete(SourceFileRow).where(
                    SourceFileRow.table_id == table.id, among(connection, SourceFileRow.path, _spellings(batch))
                )
            )
            connection.execute(
                insert(SourceFileRow),
                [{"table_id": table.id, "operation_number": operation.number, **asdict(file)} for file in batch],
            )


def _changed(known: _Known, files: Iterable[FileInfo]) -> list[str]:
    """Return the paths of the files that changed after they were loaded."""
    return [
        file.path
        for file in files
        if (versions := known.get(_same_path(file.path))) and (file.size_bytes, file.modified_at_ms) not in versions
    ]


def _same_path(path: str) -> str:
    """Return the normalized spelling of a file's path: a source may be spelled in another way than before."""
    return file_spellings(path)[0]


def _spellings(files: Iterable[FileInfo]) -> list[str]:
    """Return all paths under which files may be recorded."""
    return list({spelling for file in files for spelling in (file.path, *file_spellings(file.path))})
