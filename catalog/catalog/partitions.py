"""The methods of `Catalog` that change partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from catalog.catalog.searches import SearchMethods
from catalog.errors import InvalidRequestError
from catalog.model import AddResult, NewPartition, OnInvalid, Partition, RepairMode, Table
from catalog.model.batches import BatchChange, PartitionKey, PartitionUpdate
from catalog.operations.patience import planned_again
from catalog.operations.records import OperationKind
from catalog.tables.normalising import parse_format

if TYPE_CHECKING:
    from catalog.loading.repairing import RepairReport
    from catalog.operations.confirmation import Confirmation
    from catalog.partitions.purging import PartitionPurge
    from catalog.partitions.specs import PartitionSpec


class PartitionMethods(SearchMethods):
    """Addition, change, drop and deletion of partitions."""

    def add_partitions(
        self,
        table: str,
        partitions: Iterable[NewPartition],
        *,
        if_not_exists: bool = False,
        on_invalid: OnInvalid = OnInvalid.REFUSE,
    ) -> AddResult:
        """Add partitions, each with its item in every index of the table, in one transaction.

        The iterable is consumed completely before anything is locked, into a temporary file if it is long: a slow
        iterable blocks no other transaction, and a million partitions need little memory. While more than 10,000
        partitions, or partitions with custom locations, are being added, other changes of the table's partitions wait.

        Args:
            if_not_exists: Skip existing partitions, instead of refusing the batch.
            on_invalid: REFUSE: refuse the whole batch if a value is not of its key's type, or an index does not admit a
                partition. SKIP: add the others, and name the skipped ones in the result.

        Raises:
            TableNotFoundError: The table does not exist.
            InvalidPartitionError: A value is not of its key's type, an index does not admit a partition, it has more
                values than the table has keys, or its location is not that of the partition which exists already with
                the same values in another spelling (`k=7`, `k=007`).
            PartitionAlreadyExistsError: A partition exists or is named twice, and `if_not_exists` is false.
            LocationInUseError: Another table or partition uses a partition's folder, a load is about to use it, or a
                purge is deleting it.
        """
        from catalog.partitions.adding import PartitionAdder, require_partition_keys
        from catalog.partitions.spooling import is_here, taken_in
        from catalog.tables.checks import refuse_stored_as_iceberg

        if not is_here(partitions):
            # Fail before a long iterable is consumed.
            require_partition_keys(self._definitions.get_hive_table(table))
        with taken_in(partitions) as buffer, self.storage.write() as connection:
            adder = PartitionAdder(connection, self._definitions, table, is_bulk=buffer.is_bulk)
            refuse_stored_as_iceberg(
                adder.table, "adding partitions without rows", "Add rows with INSERT INTO or LOAD DATA"
            )
            return adder.add(buffer.partitions, if_not_exists=if_not_exists, on_invalid=on_invalid)

    def alter_partition(
        self,
        table: str,
        spec: PartitionSpec | Sequence[str | None],
        *,
        location: str | None = None,
        format: str | None = None,
        properties: Mapping[str, str | None] | None = None,
        rename_to: PartitionSpec | Sequence[str | None] | None = None,
        row_count: int | None = None,
        file_count: int | None = None,
        size_bytes: int | None = None,
    ) -> Partition:
        """Change one partition, visible or quarantined, and its index items, in one transaction.

        Files are neither changed nor read. A renamed partition keeps its folder, unlike a managed one in Hive: moving
        the folder would break running readers, and a kill between the move and the commit would leave a partition
        without files. A partition that is added later under the old values needs another folder; `append_rows` chooses
        one.

        Args:
            spec: All keys → values, or the values in the order of the keys.
            location: The new folder of its files; this makes its counts of rows and files unknown.
            format: The new format of its files, for instance orc; the table's format removes the partition's own.
            properties: Properties to set, or to remove (None).
            rename_to: Its new values, in either form.
            row_count, file_count, size_bytes: What its files have, for callers that have changed them; no file is read.

        Returns:
            The changed partition; a renamed one has a new id.

        Raises:
            TableNotFoundError, PartitionNotFoundError: The table or partition does not exist.
            InvalidPartitionSpecError: A name is not a partition key.
            PartialPartitionSpecError: A key has no value.
            InvalidTableError: The format is unknown.
            InvalidRequestError: A count is not a whole number, 0 or more.
            UnsupportedChangeError: The table is stored as Iceberg, and more than properties would change.
            InvalidPartitionError: A new value is not of its key's type, a partition index does not admit it, or the
                partition is encrypted.
            PartitionAlreadyExistsError: Another partition has the new values.
            LocationInUseError: Another table or partition uses the new location, a load is about to use it, or a purge
                is deleting it.
        """
        from catalog.partitions.altering import PartitionChange, alter_partition
        from catalog.partitions.specs import whole_values

        # An engine may have added the partition.
        self.get_table(table)
        with self.storage.write() as connection:
            is_bulk = location is not None
            held = self._definitions.lock_table(connection, table, exclusive=False, is_bulk=is_bulk)
            change = PartitionChange(
                location,
                None if format is None else parse_format(format),
                properties,
                None if rename_to is None else whole_values(held, rename_to),
                {"row_count": row_count, "file_count": file_count, "size_bytes": size_bytes},
            )
            values = alter_partition(connection, held, whole_values(held, spec), change)
        return self._scanner.get(held, values)

    def batch_update_partitions(self, table: str, updates: Iterable[PartitionUpdate]) -> BatchChange:
        """Change many partitions, in one transaction for each thousand; a bad member does not affect the others.

        Values of partitions are changed one by one (`alter_partition`).

        Returns:
            The number of changed partitions, and the others with the reasons, which are those of `alter_partition`.

        Raises:
            TableNotFoundError: The table does not exist.
        """
        from catalog.partitions.batches import update_batch

        return update_batch(self.storage, self._definitions, self.get_table(table).full_name, updates)

    def batch_delete_partitions(self, table: str, partitions: Iterable[PartitionKey]) -> BatchChange:
        """Drop many partitions by their values, with their index items; their files stay, as with `drop_partitions`.

        Args:
            partitions: As for `batch_get_partitions`.

        Returns:
            The number of dropped partitions, and by themselves those that do not exist, are named twice, or have a key
            too few or too many.

        Raises:
            TableNotFoundError: The table does not exist.
        """
        from catalog.partitions.batches import find_batch

        definition = self._definitions.get_hive_table(self.get_table(table).full_name)
        with self.storage.read() as connection:
            ids, failures = find_batch(connection, definition, list(partitions))
        return BatchChange(self._drop(definition, ids), failures)

    def drop_partition(self, table: str, spec: PartitionSpec, *, if_exists: bool = False) -> int:
        """Drop the partition that a spec names or, with fewer keys, all that match it; otherwise as `drop_partitions`.

        Quarantined partitions are dropped, too.

        Args:
            spec: Partition key → value, unescaped; None is Hive's null.
            if_exists: Do not fail if no partition matches.

        Returns:
            The number of dropped partitions.

        Raises:
            TableNotFoundError: The table does not exist.
            InvalidPartitionSpecError: The spec is empty, names an unknown key, or names a key twice.
            PartitionNotFoundError: No partition matches, and `if_exists` is false.
        """
        definition = self.get_table(table)
        return self._drop(definition, self._scanner.find_by_spec(definition, spec, or_none=if_exists))

    def drop_partitions(self, table: str, expression: str | None = None) -> int:
        """Drop the visible partitions that match an expression, with their index items; their files stay.

        Each transaction drops up to 10,000 partitions, so that others do not wait long. With more partitions, readers
        may see some of them dropped before the others. After an interruption the same call drops the rest.

        Args:
            expression: The filter; None drops all partitions.

        Returns:
            The number of dropped partitions.

        Raises:
            TableNotFoundError: The table does not exist.
            ExpressionError: The expression is invalid.
            InvalidRequestError: The expression is empty.
        """
        _refuse_blank(expression)
        ids = [partition.id for partition in self.get_partitions(table, expression)]
        return self._drop(self.get_table(table), ids)

    def _drop(self, table: Table, ids: Sequence[int]) -> int:
        from catalog.partitions.changing import drop_partitions_in_batches
        from catalog.partitions.snapshots import drop_partition_files

        drop = drop_partition_files if table.is_stored_as_iceberg else drop_partitions_in_batches
        return drop(self.storage, self._definitions, table.full_name, ids)

    def delete_partitions(
        self,
        operation_id: str,
        table: str,
        expression: str | None = None,
        *,
        spec: PartitionSpec | None = None,
        requested_by: str | None = None,
    ) -> int:
        """Delete the rows of the visible partitions that match an expression, without reading them.

        The partitions are dropped in one transaction; of a Hive-style table, their folders become empty after the grace
        period (`catalog.partitions.versions`). A repeated call returns the same number.

        Args:
            operation_id: The operation, which reserves the table.
            expression: The filter; None for all partitions.
            spec: Values of some keys, instead of a filter; quarantined partitions with these values are dropped, too.
            requested_by: The requester, for the journal.

        Returns:
            The number of partitions that were dropped.

        Raises:
            TableNotFoundError: The table does not exist.
            ExpressionError: The expression is invalid.
            InvalidPartitionSpecError: The spec does not fit the table.
            OperationConflictError: Another operation works on the table.
            PlanConflictError: Other processes have dropped or renamed such partitions during each of several attempts.
        """
        definition, kind, step = self.get_table(table), OperationKind.CHANGE_ROWS, "delete_partitions"
        request = {"change": "delete", "where": expression, "spec": dict(spec or {})}
        self.operations.begin(operation_id, kind, table, request, is_exclusive=True, requested_by=requested_by)

        def remove() -> int:
            found = self.partitions_of(table, spec) if spec else self.get_partitions(table, expression)
            return self.loading.remove(operation_id, step, definition, found)

        return planned_again(remove)

    def purge_partitions(
        self,
        table: str,
        expression: str | None = None,
        *,
        values: Iterable[Sequence[str | None]] | None = None,
        confirmation: Confirmation | None = None,
        all_files: bool = False,
    ) -> PartitionPurge:
        """Drop the visible partitions that match an expression, as `drop_partitions` does, and delete their files.

        Deletes only files that Calve wrote (`catalog.tables.own_files`), in folders inside that of a managed table, and
        no files of other tables or partitions; the result tells what stays and why. Running readers of the partitions
        fail. `vacuum` finishes an interrupted purge.

        Args:
            expression: The filter; None drops all partitions.
            values: The values of the partitions, instead of a filter; those that do not exist are skipped.
            all_files: Also delete the files that Calve did not write, as a metastore does.
            confirmation: Asked before any partition is dropped. Partitions that change afterwards are not dropped.

        Raises:
            TableNotFoundError: The table does not exist.
            ExpressionError: The expression is invalid.
            InvalidRequestError: The expression is empty.
            FilesNeededError: An Iceberg table reads files of the table; nothing was dropped.
            UnreadableMetadataError: Which files an Iceberg table needs is unknown; nothing was dropped.
            ConflictError: A partition was changed after the confirmation.
            FilesNotDeletedError: The partitions are dropped, but the file system refused to delete files.
        """
        from catalog.operations.confirmation import PurgedPartition
        from catalog.partitions.purging import purge_partitions
        from catalog.tables.checks import refuse_stored_as_iceberg

        _refuse_blank(expression)
        definition = self.get_table(table)
        refuse_stored_as_iceberg(
            definition, "PURGE", "Drop the partitions without PURGE; vacuum deletes their files when snapshots expire"
        )
        found = self.get_partitions(table, expression)
        if values is not None:
            found = iter(self.batch_get_partitions(table, values).partitions)
        partitions = [PurgedPartition.of(partition) for partition in found]
        return purge_partitions(
            self.storage,
            self._definitions,
            self.operations,
            definition,
            partitions,
            confirmation,
            all_files=all_files,
        )

    def repair_table(
        self,
        table: str,
        *,
        mode: RepairMode = RepairMode.ADD,
        operation_id: str | None = None,
        requested_by: str | None = None,
    ) -> RepairReport:
        """Register the partitions whose folders lie below the table's location, as Hive's MSCK REPAIR TABLE does.

        Every folder `k=v/k2=v2` counts as a partition, whatever it contains; escaped values are decoded, and hidden
        folders are skipped. Folders that do not fit are reported and skipped: those with other names, with a value that
        an index does not admit, or of a partition that has another location. A repair is an exclusive operation, as
        loads are, and first undoes interrupted loads. Repeat it after an interruption to continue.

        Args:
            mode: ADD adds new partitions; DROP drops those whose folders do not exist; SYNC does both.
            operation_id: The id of the operation, for callers that retry.

        Raises:
            TableNotFoundError: The table does not exist.
            NotATableError, InvalidPartitionError: It is a view, or has no partition keys.
            OperationConflictError: Another operation is running on the table.
            VerificationFailedError: DROP or SYNC was requested, but the table's location does not exist.
        """
        return self._repairs.repair(table, mode, operation_id=operation_id, requested_by=requested_by)


def _refuse_blank(expression: str | None) -> None:
    if expression is not None and not expression.strip():
        raise InvalidRequestError("the filter is empty, and would drop all partitions; leave it out to drop them all")
