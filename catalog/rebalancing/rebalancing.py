"""`Rebalancing`: planning and committing of changes of a table's partitions.

plan      determines the files to rewrite and to reassign to another partition; changes nothing
begin     the operation locks the table against loads and other changes
write     a Spark job writes the new files of the plan (`spark_jobs.writing.rebalancing`), if rows have to move
verify    a Spark job compares the new files with the old ones, if the caller runs it
commit    scheme and files change in one transaction; the old files stay for running readers until vacuum
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import Connection

from catalog.datafiles.committing import Committer, FileChange
from catalog.datafiles.files import count_files, read_files
from catalog.datafiles.intake import reading_current
from catalog.datafiles.manifest import has_manifest
from catalog.errors import (
    CatalogError,
    InvalidSchemeError,
    PlanConflictError,
    VerificationFailedError,
    WrongFieldError,
)
from catalog.model import Table
from catalog.operations.journal import Operations
from catalog.operations.records import JobState, Operation, OperationKind
from catalog.rebalancing.advising import Advice, advise
from catalog.rebalancing.changes import PartitionChange, change_from_json
from catalog.rebalancing.contents import ValueCount, contents_of
from catalog.rebalancing.planning import RebalancePlan, last_file_id, make_plan, target_file_bytes
from catalog.rebalancing.points import SplitPoints, split_points
from catalog.rebalancing.requests import RebalanceRequest
from catalog.rebalancing.totals import TOTALS, concerned_partitions, partition_totals
from catalog.schemes.ranges import RangeScheme
from catalog.settings.rebalance_rules import RebalanceRules
from catalog.storage import Storage
from catalog.tables.definitions import Definitions

COMMIT = "commit"
"""The step of the operation that changes the catalog."""

REWRITE, VERIFY = "rewrite_partitions", "verify_rewrite"
"""The earlier steps, in which Spark jobs write the new files and compare them with the old ones."""


class Rebalancing:
    """Changes of the partitions of one catalog's tables."""

    def __init__(self, storage: Storage, definitions: Definitions, operations: Operations) -> None:
        """Use a database, the definitions in it, and its journal."""
        self._storage = storage
        self._definitions = definitions
        self._operations = operations
        self._committer = Committer(storage, definitions, operations)

    def plan(self, table: str, change: PartitionChange) -> RebalancePlan:
        """Return the plan of a change, without changing anything.

        Raises:
            TableNotFoundError: The table does not exist.
            PartitionNotFoundError, InvalidSchemeError: The change does not fit the table; subclasses say why.
        """
        with self._reading(table) as (connection, definition):
            return make_plan(connection, definition, change)

    def plan_request(self, request: RebalanceRequest) -> RebalancePlan:
        """Return the plan of a form's request, without changing anything.

        Raises:
            WrongFieldError: The request does not fit the table; it names the field, and the class of the error.
            CatalogError: The catalog cannot be read now.
        """
        try:
            return self.plan(request.table, request.change)
        except CatalogError as error:
            if error.retryable:
                raise
            is_of_scheme = isinstance(error, InvalidSchemeError)
            has_scheme = not is_of_scheme or self._definitions.get_table(request.table).scheme is not None
            field = request.field_of(error, has_scheme=has_scheme)
            raise WrongFieldError(field, f"{type(error).__name__}: {error}") from error

    def split_points(self, table: str, partition_id: int, limit: int = 200) -> SplitPoints:
        """Return the values at which a range can be split; for the default partition, those that ADD can divide.

        Args:
            limit: The number of points of each kind.

        Raises:
            TableNotFoundError: The table does not exist.
            PartitionNotFoundError: There is no such partition.
            InvalidSchemeError: The table has no ranges.
        """
        with self._reading(table) as (connection, definition):
            scheme = definition.scheme
            if not isinstance(scheme, RangeScheme):
                raise InvalidSchemeError(f"table {definition.full_name} has no ranges, so there are no values to split")
            scheme.check_exists([partition_id])
            contents = contents_of(scheme, read_files(connection, definition, [partition_id]))
        content = next(content for content in contents if content.partition_id == partition_id)
        return split_points(scheme, content, limit)

    def _reading(self, table: str) -> AbstractContextManager[tuple[Connection, Table]]:
        return reading_current(self._storage, self._definitions, table, is_strict=True)

    def advise(
        self,
        table: str,
        rules: RebalanceRules | None = None,
        counts: Mapping[int, Sequence[ValueCount]] | None = None,
    ) -> Advice:
        """Return proposed changes of a table's partitions, from the file statistics in the catalog.

        Args:
            rules: Limits of the partition sizes; None for the defaults.
            counts: The value counts of the partitions that an earlier advice named; `spark_jobs.count_values` computes
                them.

        Raises:
            TableNotFoundError: The table does not exist.
            InvalidSchemeError: The table has no partition scheme.
        """
        with self._reading(table) as (connection, definition):
            scheme = definition.scheme
            if scheme is None:
                raise InvalidSchemeError(
                    f"table {definition.full_name} has no partition scheme, so its partitions cannot be advised on"
                )
            contents = contents_of(scheme, read_files(connection, definition), counts)
        return advise(definition.full_name, scheme, contents, rules or RebalanceRules(), target_file_bytes(definition))

    def begin(
        self,
        operation_id: str,
        table: str,
        change: PartitionChange,
        *,
        fingerprint: str | None = None,
        requested_by: str | None = None,
    ) -> Operation:
        """Journal the operation of a change and lock the table; return the operation if it was begun before.

        Args:
            fingerprint: The fingerprint of the approved plan; None to accept any plan.

        Raises:
            OperationConflictError: Another operation works on the table.
        """
        return self._operations.begin(
            operation_id,
            OperationKind.REBALANCE,
            table,
            {**change.as_json(), "fingerprint": fingerprint},
            is_exclusive=True,
            requested_by=requested_by,
        )

    def plan_of(self, operation: Operation) -> RebalancePlan:
        """Return the plan of an operation that was begun.

        Raises:
            PlanConflictError: The plan is not the approved one.
            CatalogError: As `plan`.
        """
        request = dict(operation.request)
        approved = request.pop("fingerprint")
        with self._reading(operation.table) as (connection, definition):
            until = None if approved is None else last_file_id(approved)
            plan = make_plan(connection, definition, change_from_json(request), until)
        if approved is not None and plan.fingerprint != approved:
            raise PlanConflictError(
                f"table {operation.table} changed since the plan of {plan.change} was made (fingerprint {approved}, "
                f"now {plan.fingerprint}); nothing was changed. Make a new plan"
            )
        return plan

    def commit(
        self,
        operation_id: str,
        step: str,
        attempt: int,
        plan: RebalancePlan,
        folder: str | None = None,
        report: Mapping[str, Any] | None = None,
        *,
        row_count: int | None = None,
        reading: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Make a change visible in one transaction.

        Args:
            folder: The folder of the new files, below the table's location.
            report: Additional fields of the operation's report.
            row_count: The number of rows that were read of the rewritten files; it is that of the files, if no row of
                them is deleted in another file.
            reading: The state in which these rows were read (`RebalancePlan.reading`); None for that of the plan.

        Returns:
            The operation's report.

        Raises:
            FencedError: The attempt is fenced.
            PlanConflictError: The table changed after the plan was made.
            VerificationFailedError: The new files do not have as many rows as the old ones.
        """
        before = plan.table.scheme
        assert before is not None
        change = FileChange(
            before,
            plan.scheme,
            folder,
            row_count if plan.has_deletes else plan.moved.row_count,
            plan.relabelled,
            [file.id for file in (*plan.rewritten, *plan.deleted)],
            plan.possible,
            **(reading or plan.reading),
        )
        affected = concerned_partitions(plan)
        with self._storage.read() as connection:
            earlier = count_files(connection, plan.table, affected)

        def full_report(connection: Connection, table: Table) -> dict[str, Any]:
            totals = partition_totals(plan, earlier, count_files(connection, table, affected))
            return {**plan.as_json(), TOTALS: totals, **(report or {})}

        return self._committer.commit(operation_id, step, attempt, change, full_report)

    def commit_verified(
        self,
        operation_id: str,
        report: Mapping[str, Any] | None = None,
        *,
        confirm_deletion: Callable[[str], object] | None = None,
    ) -> dict[str, Any]:
        """Commit the change of an operation, with the verified files if rows have to move.

        A repeated call returns the same report.

        Args:
            report: Additional fields of the operation's report.
            confirm_deletion: Called with the plan's fingerprint before any row is deleted; it raises to refuse.

        Raises:
            OperationNotFoundError: The operation was not begun.
            OperationConflictError: The operation has failed, and another one is running on the table.
            PlanConflictError: The table changed after the plan was made.
            VerificationFailedError: No files of this plan were verified.
        """
        operation = self._operations.get(operation_id)
        if operation.is_committed:
            return dict(operation.report[COMMIT])
        with self._operations.attempt(operation_id, COMMIT) as attempt:
            plan = self.plan_of(operation)
            if plan.is_destructive and confirm_deletion is not None:
                confirm_deletion(plan.fingerprint)
            if not plan.needs_spark:
                return self.commit(operation_id, COMMIT, attempt, plan, None, report)
            verified = self._verified(operation, plan)
            row_count, reading = int(verified["rows"]), verified.get("reading")
            folder = str(verified["folder"])
            return self.commit(
                operation_id, COMMIT, attempt, plan, folder, report, row_count=row_count, reading=reading
            )

    def _verified(self, operation: Operation, plan: RebalancePlan) -> Mapping[str, Any]:
        """Return the report of the verification of the new files."""
        job = self._operations.get_job(operation.id, VERIFY)
        if job is None or job.state is not JobState.SUCCEEDED or job.result["fingerprint"] != plan.fingerprint:
            raise VerificationFailedError(
                f"table {operation.table}: the new files of {plan.change} were not verified; nothing was changed. "
                "Write and verify them again"
            )
        return job.result

    def written_folder(self, operation_id: str) -> str | None:
        """Return the folder of the new files of the latest attempt; None if it has not succeeded."""
        job = self._operations.get_job(operation_id, REWRITE)
        return None if job is None or job.state is not JobState.SUCCEEDED else str(job.result["folder"])

    def is_written(self, operation_id: str) -> bool:
        """Return whether the latest attempt at writing the new files of an operation succeeded and the files exist."""
        folder = self.written_folder(operation_id)
        if folder is None:
            return False
        return has_manifest(self._definitions.get_table(self._operations.get(operation_id).table), folder)

    def discard_written(self, operation_id: str, reason: str) -> None:
        """Discard the new files of an operation, which cannot be used, so that they are written again."""
        attempt = self._operations.start_job(operation_id, REWRITE)
        self._operations.fail_job(operation_id, REWRITE, attempt, VerificationFailedError.__name__, reason)

    def change_catalog(
        self, operation_id: str, table: str, change: PartitionChange, *, requested_by: str | None = None
    ) -> dict[str, Any] | None:
        """Make a change that moves no row, without Spark; a repeated call returns the same report.

        Returns:
            The report; None, with nothing changed, if rows have to move, which a Spark job does under the same id.

        Raises:
            OperationConflictError: Another operation works on the table.
            CatalogError: As `plan`.
        """
        # Checked first, because a committed change can no longer be planned.
        earlier = self._operations.find(operation_id)
        if earlier is not None and earlier.is_committed:
            return dict(earlier.report[COMMIT])
        if self.plan(table, change).needs_spark:
            return None
        operation = self.begin(operation_id, table, change, requested_by=requested_by)
        if operation.is_committed:
            return dict(operation.report[COMMIT])
        with self._operations.attempt(operation_id, COMMIT) as attempt:
            plan = self.plan_of(operation)
            return None if plan.needs_spark else self.commit(operation_id, COMMIT, attempt, plan)
