"""`Rebalancing`: plan a change of a table's partitions, and commit it.

plan      which files are read, written anew, or only counted elsewhere; nothing is changed
begin     the operation holds the table against loads and other changes
write     a Spark job writes the new files of the plan (`spark_jobs.writing.rebalancing`); not for all changes
verify    a Spark job compares the new files with the old ones, where that is asked for
commit    scheme and files change in one transaction; the old files stay for readers at work until vacuum
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from catalog.datafiles.committing import Committer, FileChange
from catalog.datafiles.files import count_files, read_files
from catalog.datafiles.manifest import has_manifest
from catalog.errors import InvalidSchemeError, PlanConflictError, VerificationFailedError
from catalog.model import Table
from catalog.operations.journal import Operations
from catalog.operations.records import JobState, Operation, OperationKind
from catalog.rebalancing.advising import Advice, advise
from catalog.rebalancing.changes import PartitionChange, change_from_json
from catalog.rebalancing.contents import ValueCount, contents_of
from catalog.rebalancing.planning import RebalancePlan, make_plan, target_file_bytes
from catalog.rebalancing.totals import TOTALS, concerned_partitions, partition_totals
from catalog.settings.rebalance_rules import RebalanceRules
from catalog.storage import Storage
from catalog.tables.definitions import Definitions

COMMIT = "commit"
"""The step of the operation that changes the catalog."""

REWRITE, VERIFY = "rewrite_partitions", "verify_rewrite"
"""The steps before, where jobs of their own write the new files and compare them with the old ones."""


class Rebalancing:
    """Changes of the partitions of one catalog's tables."""

    def __init__(self, storage: Storage, definitions: Definitions, operations: Operations) -> None:
        """Take the database, the definitions in it, and the journal."""
        self._storage = storage
        self._definitions = definitions
        self._operations = operations
        self._committer = Committer(storage, definitions, operations)

    def plan(self, table: str, change: PartitionChange) -> RebalancePlan:
        """Return how a change would be done; this is its dry run.

        Raises:
            TableNotFoundError: There is no such table.
            PartitionNotFoundError, InvalidSchemeError: The change does not fit the table; subclasses say why.
        """
        with self._storage.read() as connection:
            return make_plan(connection, self._definitions.get_hive_table(table, connection), change)

    def advise(
        self,
        table: str,
        rules: RebalanceRules | None = None,
        counts: Mapping[int, Sequence[ValueCount]] | None = None,
    ) -> Advice:
        """Return what should be changed about a table's partitions, by what the catalog knows of its files.

        Args:
            rules: When partitions count as badly cut; None for the usual.
            counts: The values of the partitions that an earlier advice named; they are read by
                `spark_jobs.count_values`.

        Raises:
            TableNotFoundError: There is no such table.
            InvalidSchemeError: It has no partition scheme.
        """
        with self._storage.read() as connection:
            definition = self._definitions.get_hive_table(table, connection)
            scheme = definition.scheme
            if scheme is None:
                raise InvalidSchemeError(
                    f"table {definition.full_name} has no partition scheme, so nothing can be said of its partitions"
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
        """Journal the operation that makes a change, and let it hold the table; or return it when it was begun before.

        Args:
            fingerprint: Of the plan that was agreed to; None for whatever plan there is then.

        Raises:
            OperationConflictError: Another operation is at work on the table.
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
            PlanConflictError: It is another one than was agreed to.
            CatalogError: As `plan`.
        """
        request = dict(operation.request)
        agreed = request.pop("fingerprint")
        plan = self.plan(operation.table, change_from_json(request))
        if agreed is not None and plan.fingerprint != agreed:
            raise PlanConflictError(
                f"table {operation.table} changed since the plan of {plan.change} was made (fingerprint {agreed}, now "
                f"{plan.fingerprint}); nothing was changed. Make a new plan"
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
    ) -> dict[str, Any]:
        """Make a change visible in one transaction.

        Args:
            folder: Where the rows of the plan's rewritten files were written, below the table's location.
            report: What else the operation's report shall say.

        Returns:
            The operation's report.

        Raises:
            FencedError: The attempt was given up.
            PlanConflictError: The table is not any more as the plan expects it.
            VerificationFailedError: The new files do not hold as many rows as the old ones.
        """
        before = plan.table.scheme
        assert before is not None
        change = FileChange(
            before,
            plan.scheme,
            folder,
            plan.moved.row_count,
            plan.relabelled,
            [each.id for each in (*plan.rewritten, *plan.deleted)],
            # Another operation cannot have come between, unless this one was given up and begun again.
            lambda connection, table: make_plan(connection, table, plan.change).fingerprint == plan.fingerprint,
        )
        concerned = concerned_partitions(plan)
        with self._storage.read() as connection:
            earlier = count_files(connection, plan.table, concerned)

        def full_report(connection: Connection, table: Table) -> dict[str, Any]:
            totals = partition_totals(plan, earlier, count_files(connection, table, concerned))
            return {**plan.as_json(), TOTALS: totals, **(report or {})}

        return self._committer.commit(operation_id, step, attempt, change, full_report)

    def commit_verified(
        self,
        operation_id: str,
        report: Mapping[str, Any] | None = None,
        *,
        confirm_deletion: Callable[[str], object] | None = None,
    ) -> dict[str, Any]:
        """Commit the change of an operation, with the files that were verified if rows have to be moved.

        Done again, it returns the same report.

        Args:
            report: What else the operation's report shall say.
            confirm_deletion: Called with the plan's fingerprint before any row is deleted; what it raises refuses that.

        Raises:
            OperationNotFoundError: It was never begun.
            OperationConflictError: It was given up, and another is at work on the table.
            PlanConflictError: The table is not any more as the plan expects it.
            VerificationFailedError: No files of this plan were verified.
        """
        operation = self._operations.get(operation_id)
        if operation.is_committed:
            return dict(operation.report[COMMIT])
        with self._operations.attempt(operation_id, COMMIT) as attempt:
            plan = self.plan_of(operation)
            if plan.is_destructive and confirm_deletion is not None:
                confirm_deletion(plan.fingerprint)
            folder = self._verified_folder(operation, plan) if plan.needs_spark else None
            return self.commit(operation_id, COMMIT, attempt, plan, folder, report)

    def _verified_folder(self, operation: Operation, plan: RebalancePlan) -> str:
        job = self._operations.get_job(operation.id, VERIFY)
        if job is None or job.state is not JobState.SUCCEEDED or job.result["fingerprint"] != plan.fingerprint:
            raise VerificationFailedError(
                f"table {operation.table}: the new files of {plan.change} were not verified; nothing was changed. "
                "Write and verify them again"
            )
        return str(job.result["folder"])

    def written_folder(self, operation_id: str) -> str | None:
        """Return the folder of the new files that the latest attempt has written; None when it has not, or failed."""
        job = self._operations.get_job(operation_id, REWRITE)
        return None if job is None or job.state is not JobState.SUCCEEDED else str(job.result["folder"])

    def is_written(self, operation_id: str) -> bool:
        """Say whether the latest attempt at writing the new files of an operation succeeded, and they are there."""
        folder = self.written_folder(operation_id)
        if folder is None:
            return False
        return has_manifest(self._definitions.get_table(self._operations.get(operation_id).table), folder)

    def discard_written(self, operation_id: str, reason: str) -> None:
        """Let the new files of an operation be written again, because those that there are cannot be used."""
        attempt = self._operations.start_job(operation_id, REWRITE)
        self._operations.fail_job(operation_id, REWRITE, attempt, VerificationFailedError.__name__, reason)

    def change_catalog(
        self, operation_id: str, table: str, change: PartitionChange, *, requested_by: str | None = None
    ) -> dict[str, Any] | None:
        """Make a change that moves no row, without Spark; done again, it returns the same report.

        Returns:
            The report; None, and nothing has changed, when rows have to be moved, which a Spark job does under the
            same id.

        Raises:
            OperationConflictError: Another operation is at work on the table.
            CatalogError: As `plan`.
        """
        # Once it is made, the change does not fit the table any more.
        known = self._operations.find(operation_id)
        if known is not None and known.is_committed:
            return dict(known.report[COMMIT])
        if self.plan(table, change).needs_spark:
            return None
        operation = self.begin(operation_id, table, change, requested_by=requested_by)
        if operation.is_committed:
            return dict(operation.report[COMMIT])
        with self._operations.attempt(operation_id, COMMIT) as attempt:
            plan = self.plan_of(operation)
            return None if plan.needs_spark else self.commit(operation_id, COMMIT, attempt, plan)
