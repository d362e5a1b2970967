"""The methods of `Catalog` for what loads have added, and for what is kept out of readers' sight."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from catalog.catalog.searches import SearchMethods
from catalog.model import Partition, PartitionState, SetAsideFile
from catalog.operations.records import Operation, OperationKind, OperationState

if TYPE_CHECKING:
    from catalog.partitions.quarantine import LoadedPartitions


class LoadMethods(SearchMethods):
    """Partitions by the operations that added them, quarantined partitions, and files that are set aside."""

    def operation_partitions(self, operation_id: str) -> Iterator[Partition]:
        """Yield the partitions that an operation added, visible or quarantined.

        Of a table stored as Iceberg or with a partition scheme, those that it added or extended, with the counts and
        the folder of the new files.

        Raises:
            OperationNotFoundError: The operation does not exist.
        """
        operation = self.operations.get(operation_id)
        if self.get_table(operation.table).has_file_rows:
            return iter(self.loaded_partitions(operation_id).partitions)
        return self._scanner.of_operation(operation.table, operation.number)

    def loaded_partitions(self, operation_id: str, *, is_whole: bool = False) -> LoadedPartitions:
        """Return the partitions of `operation_partitions`, and the files of a table whose files the catalog knows.

        These are tables that are stored as Iceberg or have a partition scheme.

        Args:
            is_whole: With all files of these partitions; otherwise, of such tables, with only the files and counts of
                the load.

        Raises:
            OperationNotFoundError: The operation does not exist.
        """
        from catalog.datafiles.intake import reading_current
        from catalog.partitions.quarantine import LoadedPartitions, loaded_partitions

        operation = self.operations.get(operation_id)
        table = self.get_table(operation.table)
        if not table.has_file_rows:
            return LoadedPartitions(table, list(self._scanner.of_operation(operation.table, operation.number)))
        with reading_current(self.storage, self._definitions, operation.table) as (connection, definition):
            return loaded_partitions(connection, definition, operation.number, is_whole=is_whole)

    def set_aside_files(self, table: str | None = None) -> list[SetAsideFile]:
        """Return the source files that loads have set aside because they cannot be loaded, by table and path.

        Args:
            table: None for all tables.

        Raises:
            TableNotFoundError: The table does not exist.
        """
        return self.loading.set_aside_files(None if table is None else self.get_table(table))

    def count_quarantined(self, operations: Sequence[Operation]) -> dict[str, int]:
        """Return, by operation id, how many partitions of a load failed their quality check and are still hidden.

        Operations without such partitions are missing.
        """
        from catalog.partitions.hidden import count_hidden

        with self.storage.read() as connection:
            return count_hidden(connection, operations)

    def count_quarantined_partitions(self) -> dict[str, int]:
        """Return, by full table name, how many partitions are quarantined; tables without such are missing."""
        from catalog.partitions.hidden import count_by_table

        with self.storage.read() as connection:
            return count_by_table(connection)

    def release_partitions(
        self,
        table: str,
        expression: str | None = None,
        *,
        ids: Collection[int] | None = None,
        reason: str | None = None,
        requested_by: str | None = None,
    ) -> int:
        """Make the quarantined partitions that match an expression visible; return their number.

        Args:
            ids: Release only these (`Partition.id`); others, also those released before, are ignored.
            reason: Why they are released; the journal records it, and partitions that failed their check count as
                released by a person, for whom waits go on. None to record nothing.
            requested_by: The requester, for the journal.

        Raises:
            TableNotFoundError: The table does not exist.
            ExpressionError: The expression is invalid.
            InvalidRequestError: The reason has characters that databases cannot store.
        """
        from catalog.partitions.quarantine import lock_to_release, quarantined_ids, record_release, release_partitions
        from catalog.storage.texts import require_storable

        if reason:
            require_storable(reason)
        if expression or ids is None:
            quarantined = self.get_partitions(table, expression, state=PartitionState.QUARANTINED)
            ids = [partition.id for partition in quarantined if ids is None or partition.id in ids]
        with self.storage.write() as connection:
            held = lock_to_release(connection, self._definitions, table)
            chosen = quarantined_ids(connection, held, ids)
            released = release_partitions(connection, self._definitions, held, chosen)
            if reason and released:
                request = {"reason": reason, "partitions": released}
                operation_id = f"release-partitions-{held.full_name}-{uuid4().hex}"
                kind = OperationKind.RELEASE_PARTITIONS
                operation = self.operations.record(
                    connection, operation_id, kind, held, request, requested_by=requested_by
                )
                record_release(connection, chosen, operation.number)
                self.operations.advance(connection, operation_id, OperationState.CLEANED)
            return released
