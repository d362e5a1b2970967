"""Loading source files into a table: what is new, where its data files are staged, and how they become partitions.

    discover  the source files that the table does not have yet
    stage     a Spark job writes data files, and a list of them, below `_calve_staging`, which no reader looks into
    publish   the files move to their places, and then, in one transaction, the partitions are added, the source files
              are noted, and the operation is COMMITTED (`catalog.loading.publishing`)

A load that was interrupted in `publish` is finished by doing it again; one that is given up is undone by
`discard_staging`, which the next load of the table begins with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from catalog.errors import (
    InvalidPartitionError,
    NotFoundError,
    OperationReusedError,
    PartitionAlreadyExistsError,
    RefusedPartition,
    SourceFileError,
)
from catalog.files.filesystem import FileInfo, Folder
from catalog.loading.publishing import Publication, PublishOptions, staged_attempts, withdraw
from catalog.model import NewPartition, OnInvalid, PartitionIndex, Table
from catalog.model.identifiers import TableName
from catalog.model.partition_names import partition_path
from catalog.operations.attempts import AttemptName, attempts_among, withdraw_attempt
from catalog.operations.failpoints import Point, reached
from catalog.operations.journal import Operations
from catalog.operations.records import Operation, OperationKind, OperationState
from catalog.operations.staging import STAGING, incomplete, staging_name
from catalog.partitions.adding import registered
from catalog.partitions.spooling import RowSpool, taken_in
from catalog.settings.places import allowed_files
from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.schema import SourceFileRow, TableRow
from catalog.storage.values import ValueEncoder
from catalog.tables.checks import require_value_rows
from catalog.tables.definitions import Definitions

DISCOVER = "discover"
_SHOWN = 20

Attempt = tuple[str, str, int]
"""An attempt at a step: the operation's id, the step, and the attempt's number."""


class Loading:
    """Loads into the tables of one catalog."""

    def __init__(self, storage: Storage, definitions: Definitions, operations: Operations) -> None:
        """Take the database, the definitions in it, and the journal."""
        self._storage = storage
        self._definitions = definitions
        self._operations = operations

    # --- discover -----------------------------------------------------------------------------------------------

    def discover(
        self,
        operation_id: str,
        table: str,
        source: str,
        *,
        reload: bool = False,
        is_dry_run: bool = False,
        settings: Mapping[str, Any] | None = None,
        requested_by: str | None = None,
    ) -> list[FileInfo]:
        """Return the source files to load, and journal the operation that loads them; nothing is journaled for none.

        A retry looks again, unless the operation has committed.

        Args:
            source: A file, a folder, or a glob.
            reload: Take files too that were loaded before, or have changed since.
            settings: What the load's later steps are told (`settings_of`); JSON-able.

        Raises:
            NotATableError, UnsupportedFormatError, UnsupportedChangeError: The table is not loaded like this.
            LocationNotAllowedError: The source is below no allowed folder.
            SourceFileError: The source is not there, or a file changed after it was loaded.
            OperationConflictError: Another operation is at work on the table.
            OperationReusedError: The operation has loaded something else.
        """
        known = self._known_table(table)
        files = allowed_files(source)
        operation = self._operations.find(operation_id)
        asked = {"source": source, "reload": reload, "dry_run": is_dry_run}
        if operation is not None and operation.is_committed:
            is_same = TableName.parse(table) == TableName.parse(operation.table)
            if not is_same or asked.items() - {(name, operation.request.get(name)) for name in asked}:
                raise OperationReusedError(
                    operation_id, f"loading {operation.table} from {operation.request.get('source')}"
                )
            return self.source_files(operation)
        if known is not None and not reload:
            files = self._new_files(known, source, files)
        if files:
            request = {**asked, "files": [asdict(file) for file in files], "settings": dict(settings or {})}
            self._operations.begin(
                operation_id,
                OperationKind.ADD_PARTITIONS,
                table,
                request,
                is_exclusive=not is_dry_run,
                requested_by=requested_by,
            )
        elif operation is not None:
            self._operations.fail(operation_id, "NOTHING_TO_LOAD", f"every file of {source} is loaded by now")
        return files

    def settings_of(self, operation_id: str) -> dict[str, Any]:
        """Return the settings that `discover` has journaled with a load."""
        return dict(self._operations.get(operation_id).request.get("settings") or {})

    def _known_table(self, name: str) -> Table | None:
        try:
            table = self._definitions.get_hive_table(name)
        except NotFoundError:
            return None
        require_value_rows(table)
        return table

    def _new_files(self, table: Table, source: str, files: Sequence[FileInfo]) -> list[FileInfo]:
        known: dict[str, Any] = {}
        with self._storage.read() as connection:
            for batch in batched(files):
                query = select(SourceFileRow.__table__).where(
                    SourceFileRow.table_id == table.id,
                    among(connection, SourceFileRow.path, [each.path for each in batch]),
                )
                known.update((row.path, row) for row in connection.execute(query))
        changed = [
            each.path
            for each in files
            if (row := known.get(each.path))
            and (row.size_bytes, row.modified_at_ms) != (each.size_bytes, each.modified_at_ms)
        ]
        if changed:
            raise SourceFileError(
                f"source {source}: {len(changed)} file(s) changed after they were loaded into {table.full_name}: "
                f"{', '.join(changed[:_SHOWN])}. Deliver new rows in new files; or drop the partitions that the file "
                "made and load it with `reload`"
            )
        return [each for each in files if each.path not in known]

    @staticmethod
    def source_files(operation: Operation) -> list[FileInfo]:
        """Return the source files of a load."""
        return [FileInfo(**each) for each in operation.request["files"]]

    # --- check --------------------------------------------------------------------------------------------------

    def check(
        self, table: Table, indexes: Sequence[PartitionIndex], partitions: Iterable[NewPartition]
    ) -> Iterator[RefusedPartition]:
        """Yield the partitions whose values do not fit their keys or the indexes; the table may not exist yet.

        Raises:
            InvalidPartitionError: One partition comes in two spellings, such as `01` and `1` for an int.
            PartitionAlreadyExistsError: The table has one of the partitions.
        """
        encoder = ValueEncoder(table, indexes, every_key=True)
        for batch in batched(partitions):
            fitting: dict[bytes, NewPartition] = {}
            for partition in batch:
                encoded = encoder.encode(partition.values)
                if isinstance(encoded, RefusedPartition):
                    yield encoded
                elif (twin := fitting.setdefault(encoded.identity, partition)) is not partition:
                    spellings = [partition_path(table.key_names, each.values) for each in (twin, partition)]
                    raise InvalidPartitionError(
                        table.full_name,
                        reason=f"the source files write one partition in two ways, {spellings[0]} and {spellings[1]}; "
                        "deliver its rows under one spelling",
                    )
            with self._storage.read() as connection:
                known = registered(connection, table, list(fitting))
            if known:
                names = [partition_path(table.key_names, fitting[identity].values) for identity in sorted(known)]
                raise PartitionAlreadyExistsError(
                    f"table {table.full_name} already has {len(names):,} of the partitions that the source files would "
                    f"make, for instance {', '.join(names[:5])}. Deliver their rows under other key values, or drop "
                    "these partitions first"
                )

    # --- stage --------------------------------------------------------------------------------------------------

    @staticmethod
    def staging_name(operation: Operation, attempt: int) -> str:
        """Return the staging folder of an attempt, below the table's location."""
        return staging_name(operation, attempt)

    def discard_staging(self, table: Table, attempt: Attempt, *, keep: str | None = None) -> None:
        """Undo what abandoned loads left below the table's location, except the staging folder `keep`.

        What another catalog has staged in the same folder stays.

        Args:
            attempt: The attempt that does so; its operation holds the table, so no other load is at work.

        Raises:
            FencedError: The attempt was given up.
        """
        for staged in staged_attempts(self._storage, table):
            staging = f"{STAGING}/{staged.name}"
            if staging != keep and self._is_of(table, staged.number):
                with self._storage.write() as connection:
                    own = self._operations.guard(connection, *attempt)
                    # Of its own operation, only what the latest attempt stages is published.
                    if staged.number != own.number:
                        withdraw_attempt(connection, staged, staging)
                reached(Point.WITHDRAWN)
                withdraw(self._storage, self._operations, table, staged)

    def _is_of(self, table: Table, number: int) -> bool:
        """Return whether an operation is one of a table, or not known, or of a table that was dropped."""
        operation = self._operations.find_by_number(number)
        if operation is None or operation.table_id in (None, table.id):
            return True
        with self._storage.read() as connection:
            return connection.scalar(select(TableRow.id).where(TableRow.id == operation.table_id)) is None

    def withdraw(self, table: Table, staged: AttemptName) -> None:
        """Undo what an attempt has staged and moved, and nobody can publish any longer; see `publishing.withdraw`."""
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
        append: bool = False,
    ) -> dict[str, Any]:
        """Make a staged load visible in one transaction; done again after its commit, it returns the same report.

        Nothing is locked while the files move. Until the commit nobody else can add the load's partitions.

        Args:
            staging: The staging folder that the Spark job reported.
            is_quarantined: The partitions stay invisible until a quality check releases them.
            append: What is staged are files for partitions that may exist (`catalog.loading.appending`); nothing is
                quarantined or left out then. Until the commit, and if it does not come until the append is undone,
                readers that list the folders of these partitions may see some of the files.

        Returns:
            The report: partitions, rows, files and bytes added, and what was refused.

        Raises:
            FencedError: The attempt was given up, or another one stages the load.
            ConflictError, UnsupportedFormatError: Nothing can be appended to one of the partitions.
            InvalidPartitionError, PartitionAlreadyExistsError: As `Catalog.add_partitions`.
            LocationNotEmptyError: Files that the catalog does not know are where a partition should go.
            VerificationFailedError: The staging folder is not complete, or not there.
        """
        operation = self._operations.get(operation_id)
        table = self._definitions.get_table(operation.table)
        folder = Folder(table.location)
        if not operation.is_committed:
            staged = next(attempts_among(self._storage, [staging.removeprefix(f"{STAGING}/")]), None)
            if staged is None or staged.number != operation.number:
                raise incomplete(folder, staging, table.full_name)
            options = PublishOptions(on_invalid, is_quarantined, append)
            publication = Publication(
                self._storage, self._definitions, self._operations, (operation, step, attempt), table, staged, options
            )
            self._publish(publication, step, attempt)
        folder.delete(staging)
        if folder.is_empty(STAGING):
            folder.delete(STAGING)
        with self._storage.write() as connection:
            self._operations.advance(connection, operation_id, OperationState.CLEANED)
        return dict(self._operations.get(operation_id).report[step])

    def _publish(self, publication: Publication, step: str, attempt: int) -> None:
        publication.reserve()
        reached(Point.RESERVED)
        with RowSpool() as extensions, taken_in(publication.move(extensions)) as new:
            reached(Point.MOVED)
            with self._storage.write() as connection:
                operation = publication.commit(connection, new.partitions, extensions)
                if not publication.options.append:
                    self._note_sources(connection, publication.table, operation)
                report = publication.report()
                self._operations.finish_job(operation.id, step, attempt, report, connection=connection)
                self._operations.advance(connection, operation.id, OperationState.COMMITTED)
                reached(Point.CHANGED)
        reached(Point.COMMITTED)

    def _note_sources(self, connection: Connection, table: Table, operation: Operation) -> None:
        for batch in batched(self.source_files(operation)):
            connection.execute(
                delete(SourceFileRow).where(
                    SourceFileRow.table_id == table.id,
                    among(connection, SourceFileRow.path, [each.path for each in batch]),
                )
            )
            connection.execute(
                insert(SourceFileRow),
                [{"table_id": table.id, "operation_number": operation.number, **asdict(each)} for each in batch],
            )
