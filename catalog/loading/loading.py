"""Loads of source files into a table: discovery of new files, staging, and publication as partitions.

    discover  finds the source files that the table does not have yet (`catalog.loading.source_files`)
    stage     a Spark job writes data files, and a list of them, below `_calve_staging`, which readers ignore
    publish   moves the files to their destinations; then one transaction adds the partitions, records the source files,
              and sets the operation to COMMITTED (`catalog.loading.publishing`)

A load that was interrupted in `publish` is finished by running `publish` again. A load that is not continued is
undone by `discard_staging`, with which the next load of the table starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, select

from catalog.datafiles.intake import lock_current
from catalog.datafiles.publishing import FileSwap, publish
from catalog.errors import InvalidPartitionError, PartitionAlreadyExistsError, RefusedPartition, UnsupportedChangeError
from catalog.files.filesystem import Folder
from catalog.loading.attempts import PublishAttempt, PublishOptions
from catalog.loading.publishing import Publication, staged_attempts, withdraw
from catalog.loading.replaced_folders import ReplacedFolders
from catalog.loading.replacing import Removed, remove, require_same
from catalog.loading.schemes import SchemePublication
from catalog.loading.snapshots import SnapshotPublication
from catalog.loading.source_files import Attempt, SourceFiles
from catalog.loading.uncommitted import Mark, UncommittedFiles, find_mark, uncommitted_files
from catalog.model import LoadMode, NewPartition, OnInvalid, Partition, PartitionIndex, Table
from catalog.model.partition_names import partition_path
from catalog.operations.attempts import AttemptName, attempt_folder, attempts_among, withdraw_attempt
from catalog.operations.failpoints import Point, reached
from catalog.operations.records import Operation, OperationState
from catalog.operations.staging import STAGING, delete_staging, incomplete, staging_name
from catalog.partitions.adding import registered
from catalog.partitions.snapshots import ReplacedFiles, remove_partitions
from catalog.partitions.spooling import RowSpool, taken_in
from catalog.storage.bulk import batched
from catalog.storage.schema import TableRow
from catalog.storage.values import ValueEncoder
from catalog.tables.evolution import Evolution


class Loading(SourceFiles):
    """The loads of one catalog."""

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

    def uncommitted(self, table: Table) -> UncommittedFiles:
        """Return the files that readers of a table's folders have to leave out; see `uncommitted_mark`."""
        return uncommitted_files(self._storage, table)

    def uncommitted_mark(self, table: Table) -> Mark:
        """Return the state of a table's publications: what readers list is one version if it stays the same."""
        return find_mark(self._storage, table)

    def withdraw(self, table: Table, staged: AttemptName) -> None:
        """Undo an attempt that can no longer be published; see `publishing.withdraw`."""
        withdraw(self._storage, self._operations, table, staged)

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
        removed: Removed | None = None,
        evolution: Evolution | None = None,
        replaced: ReplacedFiles | None = None,
        read_from: str | None = None,
        replaces_others: bool = False,
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
            removed: The partitions that are dropped in the same transaction, with their rows: id → values.
            evolution: The columns that the table gets in the same transaction, with which the files were written.
            replaced, read_from, replaces_others: As in `PublishOptions`.

        Returns:
            The report: counts of added partitions, rows, files and bytes, and of refused ones.

        Raises:
            FencedError: The attempt is fenced, or a later attempt stages the load.
            ConflictError, UnsupportedFormatError: A partition does not accept appended files, or the columns of the
                table were changed since the evolution was planned.
            PlanConflictError: Another engine's commit concerns the `replaced` files, or rows that they depend on; or
                another process dropped or renamed a partition that was read or is removed; or files that replace others
                lack a column that the table has now.
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
        options = PublishOptions(
            on_invalid=on_invalid,
            is_quarantined=is_quarantined,
            mode=mode or default_mode,
            is_load=is_load,
            removed=removed or {},
            evolution=evolution,
            replaced=replaced,
            read_from=read_from,
            replaces_others=replaces_others,
        )
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
        delete_staging(table, staging)
        # Not with its contents: the next load of the table may have begun to stage its files.
        folder.inside(STAGING).delete_if_empty()
        with self._storage.write() as connection:
            self._operations.advance(connection, operation_id, OperationState.CLEANED)
        return dict(self._operations.get(operation_id).report[step])

    def remove(self, operation_id: str, step: str, table: Table, partitions: Iterable[Partition]) -> int:
        """Drop partitions with their rows, in one transaction; repeated, return the same number.

        Readers through the catalog see the rows before or after. The files stay for the grace period: of a Hive-style
        table as `catalog.partitions.versions` describes, of a table stored as Iceberg until its snapshots expire.

        Args:
            operation_id: An operation that has reserved the table.
            partitions: As they were looked up.

        Returns:
            The number of partitions.

        Raises:
            FencedError: A later attempt removes them.
            PlanConflictError: One was dropped or renamed since it was looked up; nothing was changed.
        """
        operation = self._operations.get(operation_id)
        if operation.is_committed:
            return int(operation.report[step]["partitions_removed"])
        values = {partition.id: partition.values for partition in partitions}
        with self._operations.attempt(operation_id, step) as attempt:
            self.discard_staging(table, (operation_id, step, attempt))
            replaced = ReplacedFolders(self._storage, table, operation)
            if not table.is_stored_as_iceberg:
                replaced.find(values)
            with self._storage.write() as connection:
                operation = self._operations.guard(connection, operation_id, step, attempt)
                self._remove(connection, table, values, attempt_folder(operation, attempt), replaced)
                removed = len(values)
                report = {"partitions_removed": removed}
                self._operations.finish_job(operation_id, step, attempt, report, connection=connection)
                self._operations.advance(connection, operation_id, OperationState.COMMITTED)
                self._operations.advance(connection, operation_id, OperationState.CLEANED)
                reached(Point.CHANGED)
        return removed

    def _remove(
        self, connection: Connection, table: Table, removed: Removed, attempt: str, replaced: ReplacedFolders
    ) -> None:
        if not table.is_stored_as_iceberg:
            held = self._definitions.lock_table(connection, table, exclusive=False)
            remove(connection, held, removed, attempt, replaced.found)
            return
        current = lock_current(connection, self._definitions, table)
        require_same(connection, current, removed)
        if paths := remove_partitions(connection, current, removed):
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
