"""Loading source files into a table: what is new, where its data files are staged, and how they become partitions.

    discover  the source files that the table does not have yet
    stage     a Spark job writes data files and a manifest below `_calve_staging`, which no reader looks into
    publish   in one transaction: the partitions are added, the folders move to their places, the source files are
              noted, the operation is COMMITTED. Folders move before the commit, so a visible partition has its files.

A load that was interrupted in `publish` is finished by doing it again; one that is given up is undone by
`discard_staging`, which the next load of the table begins with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from catalog.appending import FILES, publish_append, undo_append
from catalog.attempts import attempt_folder, attempts_among
from catalog.definitions import Definitions
from catalog.errors import (
    InvalidPartitionError,
    LocationNotEmptyError,
    NotFoundError,
    PartitionAlreadyExistsError,
    RefusedPartition,
    SourceFileError,
    VerificationFailedError,
)
from catalog.files import FileInfo, Folder
from catalog.model import NewPartition, OnInvalid, PartitionIndex, Table
from catalog.operations import Operation, OperationKind, Operations, OperationState
from catalog.partition_names import partition_path
from catalog.partitions.adding import PartitionAdder, registered
from catalog.places import allowed_files
from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.schema import SourceFileRow, TableRow
from catalog.table_checks import require_value_rows
from catalog.values import ValueEncoder

STAGING = "_calve_staging"
REJECTED = "_calve_rejected"
STAGED_DATA = "data"
STAGED_MANIFEST = "manifest"
DISCOVER = "discover"
_COMPLETE = f"{STAGED_MANIFEST}/_SUCCESS"
_SHOWN = 20


@dataclass(frozen=True)
class StagedPartition:
    """A partition in a load's manifest, which has one row with these columns (but `path`) for each.

    Attributes:
        path: Its Hive-style path, below the staging folder now and below the table's location later.
    """

    path: str
    values: tuple[str | None, ...]
    file_count: int
    row_count: int
    size_bytes: int


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
        requested_by: str | None = None,
    ) -> list[FileInfo]:
        """Return the source files to load, and journal the operation that loads them; nothing is journaled for none.

        A retry looks again, unless the operation has committed.

        Args:
            source: A file, a folder, or a glob.
            reload: Take files too that were loaded before, or have changed since.

        Raises:
            NotATableError, UnsupportedFormatError, UnsupportedChangeError: The table is not loaded like this.
            LocationNotAllowedError: The source is below no allowed folder.
            SourceFileError: The source is not there, or a file changed after it was loaded.
            OperationConflictError: Another operation is at work on the table.
        """
        known = self._known_table(table)
        files = allowed_files(source)
        operation = self._operations.find(operation_id)
        if operation is not None and operation.is_committed:
            return self.source_files(operation)
        if known is not None and not reload:
            files = self._new_files(known, source, files)
        if files:
            request = {"source": source, "reload": reload, "dry_run": is_dry_run, "files": [asdict(f) for f in files]}
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
        return f"{STAGING}/{attempt_folder(operation, attempt)}"

    def discard_staging(self, table: Table, *, keep: str | None = None) -> None:
        """Undo what abandoned loads left below the table's location, except the staging folder `keep`.

        Only for the operation that holds the table, because no other load may be at work. What another catalog has
        staged in the same folder stays.
        """
        folder = Folder(table.location)
        for name, number, _ in list(attempts_among(self._storage, folder.folders(STAGING))):
            if f"{STAGING}/{name}" != keep and self._is_of(table, number):
                self.withdraw(table, name, number)
                folder.delete(f"{STAGING}/{name}")

    def _is_of(self, table: Table, number: int) -> bool:
        """Return whether an operation is one of a table, or not known, or of a table that was dropped."""
        operation = self._operations.find_by_number(number)
        if operation is None or operation.table_id in (None, table.id):
            return True
        with self._storage.read() as connection:
            return connection.scalar(select(TableRow.id).where(TableRow.id == operation.table_id)) is None

    def withdraw(self, table: Table, name: str, number: int) -> None:
        """Undo what an abandoned load has moved; after that nobody can publish its staging folder.

        Only for a caller that keeps others from publishing.

        Args:
            name: The staging folder.
            number: Its operation.
        """
        folder, staging = Folder(table.location), f"{STAGING}/{name}"
        operation = self._operations.find_by_number(number)
        # What a committed load moved is where it belongs, also when its partitions were dropped since.
        if operation is not None and not operation.is_committed:
            self._undo_moves(table, folder, staging)
            with self._storage.read() as connection:
                undo_append(connection, table, folder, staging)
            folder.delete(f"{REJECTED}/{operation.folder}")
        # Without these, an interrupted deletion does not look like data that was moved.
        for listed in (STAGED_MANIFEST, FILES):
            folder.delete(f"{staging}/{listed}")

    def _undo_moves(self, table: Table, folder: Folder, staging: str) -> None:
        """Delete the folders that an interrupted publish moved without registering their partitions."""
        for batch in batched(self._manifest(table, folder, staging)):
            moved = [
                each
                for each in batch
                if not folder.exists(f"{staging}/{STAGED_DATA}/{each.path}") and folder.exists(each.path)
            ]
            encoder = ValueEncoder(table)
            identities = {encoder.identity(each.values): each for each in moved}
            with self._storage.read() as connection:
                unregistered = identities.keys() - registered(connection, table, list(identities))
            for identity in unregistered:
                folder.delete(identities[identity].path)

    @staticmethod
    def _manifest(table: Table, folder: Folder, staging: str) -> Iterator[StagedPartition]:
        if folder.exists(f"{staging}/{_COMPLETE}"):
            for row in folder.rows(f"{staging}/{STAGED_MANIFEST}"):
                values = tuple(row.pop("values"))
                yield StagedPartition(partition_path(table.key_names, values), values, **row)

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

        Args:
            staging: The staging folder that the Spark job reported.
            is_quarantined: The partitions stay invisible until a quality check releases them.
            append: What is staged are files for partitions that may exist (`catalog.appending`); nothing is
                quarantined or left out then. Until the commit, and if it does not come until the append is undone,
                readers that list the folders of these partitions may see some of the files.

        Returns:
            The report: partitions, rows, files and bytes added, and what was refused.

        Raises:
            FencedError: The attempt was given up.
            ConflictError, UnsupportedFormatError: Nothing can be appended to one of the partitions.
            InvalidPartitionError, PartitionAlreadyExistsError: As `Catalog.add_partitions`.
            LocationNotEmptyError: Files that the catalog does not know are where a partition should go.
            VerificationFailedError: The staging folder is not complete, or not there.
        """
        operation = self._operations.get(operation_id)
        table = self._definitions.get_table(operation.table)
        folder = Folder(table.location)
        if not operation.is_committed:
            with self._storage.write() as connection:
                operation = self._operations.guard(connection, operation_id, step, attempt)
                if append:
                    report = publish_append(connection, self._definitions, operation, folder, staging)
                else:
                    report = self._publish(connection, operation, table, folder, staging, on_invalid, is_quarantined)
                self._operations.finish_job(operation_id, step, attempt, report, connection=connection)
                self._operations.advance(connection, operation_id, OperationState.COMMITTED)
        folder.delete(staging)
        if folder.is_empty(STAGING):
            folder.delete(STAGING)
        with self._storage.write() as connection:
            self._operations.advance(connection, operation_id, OperationState.CLEANED)
        return dict(self._operations.get(operation_id).report[step])

    def _publish(
        self,
        connection: Connection,
        operation: Operation,
        table: Table,
        folder: Folder,
        staging: str,
        on_invalid: OnInvalid,
        is_quarantined: bool,
    ) -> dict[str, Any]:
        if not folder.exists(f"{staging}/{_COMPLETE}"):
            raise VerificationFailedError(
                f"table {table.full_name}: {folder.location}/{staging} has no complete manifest of what was written; "
                "nothing was added. Run the load again from its start"
            )
        totals = {"row_count": 0, "file_count": 0, "size_bytes": 0}

        def staged() -> Iterator[NewPartition]:
            for each in self._manifest(table, folder, staging):
                yield NewPartition(each.values, None, each.file_count, each.row_count, each.size_bytes)

        adder = PartitionAdder(
            connection,
            self._definitions,
            operation.table,
            is_quarantined=is_quarantined,
            operation_number=operation.number,
            is_bulk=True,
            every_key=True,
        )
        result = adder.add(staged(), if_not_exists=False, on_invalid=on_invalid)
        refused = {each.partition for each in result.refused}
        refused_rows = 0
        for each in self._manifest(table, folder, staging):
            if each.path in refused:
                refused_rows += each.row_count
            else:
                for name in totals:
                    totals[name] += getattr(each, name)
        self._move(table, folder, staging, refused, operation)
        self._note_sources(connection, table, operation)
        return {
            "partitions": result.added,
            **totals,
            "refused": len(refused),
            "refused_rows": refused_rows,
            "refused_reasons": [str(each) for each in result.refused[:_SHOWN]],
            "refused_folder": f"{folder.location}/{REJECTED}/{operation.folder}" if refused else None,
        }

    def _move(self, table: Table, folder: Folder, staging: str, refused: set[str], operation: Operation) -> None:
        def moves() -> Iterator[tuple[str, str]]:
            for each in self._manifest(table, folder, staging):
                above = f"{REJECTED}/{operation.folder}/" if each.path in refused else ""
                yield f"{staging}/{STAGED_DATA}/{each.path}", f"{above}{each.path}"

        try:
            for _ in folder.move_all(moves()):
                pass
        except FileExistsError as error:
            raise LocationNotEmptyError(
                f"folder {error} has files that the catalog does not know; nothing was added. Move them away, or "
                f"register them as a partition of {operation.table}, and run the load again"
            ) from None

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
