"""Operators that announce new and changed partitions as events of their tables' assets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from calve_airflow.assets import MAX_KEYS, Change, announce, announcement_batches
from calve_airflow.batches import map_limit
from calve_airflow.catalog_access import open_catalog
from calve_airflow.forms.operator import FormOperator
from calve_airflow.forms.templates import for_mapped_tasks
from calve_airflow.lineage import LineageOperator, table_dataset
from calve_airflow.operators.approval import operation_of
from calve_airflow.outcomes import outcome_of, report_outcome

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog.operations.records import Operation

_MOST_OUTCOMES = 100
_MOST_PARTITIONS = 20_000
"""The number of partitions after which a run claims no more; the next run claims the others."""


class ClaimChangesOperator(FormOperator):
    """Task that claims the changed partitions that nobody has announced, for this run.

    Returns:
        The numbers of the batches that `AnnounceChangesOperator` announces, also those that an earlier try has claimed.

    Raises:
        AirflowSkipException: Nothing is to be announced.
    """

    @for_mapped_tasks
    def execute(self, context: Context) -> list[int]:
        """Claim the changes."""
        with open_catalog() as catalog:
            batches = catalog.announcements.claim(
                operation_of(context), batch_size=MAX_KEYS, most=_MOST_PARTITIONS, most_batches=map_limit()
            )
        if not batches:
            raise AirflowSkipException("no partition has changed since the last announcement")
        return batches


class AnnounceChangesOperator(BaseOperator):
    """Task that emits an asset event for each partition of a batch that the run has claimed.

    Args:
        number: The batch; no template.

    Returns:
        The number of events.

    Raises:
        AirflowSkipException: The run has announced the batch, or its table was dropped.
    """

    template_fields = ()

    def __init__(self, *, number: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.number = number

    def execute(self, context: Context) -> int:
        """Emit the events."""
        from catalog.settings.fields import whole_number

        with open_catalog() as catalog:
            number = whole_number("number", self.number, 2**62)
            batch = catalog.announcements.get(operation_of(context), number)
        if batch is None:
            raise AirflowSkipException("the partitions of this batch were announced, or their table was dropped")
        kind = "dropped" if batch.is_dropped else "added, changed or released"
        self.log.info("%s: %d partition(s) were %s, such as %s", batch.table, len(batch.names), kind, batch.names[0])
        announce(context, batch.table, batch.names, is_dropped=batch.is_dropped)
        return len(batch.names)


class FinishAnnouncementsOperator(BaseOperator):
    """Task that forgets the batches of a run after all of them were announced; a cleared run then repeats none.

    Returns:
        The number of batches.
    """

    def execute(self, context: Context) -> int:
        """Delete the batches."""
        with open_catalog() as catalog:
            return catalog.announcements.finish(operation_of(context))


class AnnounceNewPartitionsOperator(BaseOperator):
    """Task that emits an event of the table's asset for each partition that a load has added or changed.

    Other DAGs run once for each. It also emits one event of the load with its counts (`change_asset`).

    Of more than `MAX_KEYS` partitions, it returns the others.

    Args:
        operation_id: The load (templated).

    Returns:
        The names of further partitions, in batches for `AnnouncePartitionsOperator`; usually none.
    """

    template_fields: Sequence[str] = ("operation_id",)

    def __init__(self, *, operation_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.operation_id = operation_id

    @for_mapped_tasks
    def execute(self, context: Context) -> list[list[str]]:
        """Emit the first events, and return batches of partition names."""
        from catalog import PartitionState

        with open_catalog() as catalog:
            operation = catalog.operations.get(self.operation_id)
            table = catalog.get_table(operation.table)
            names = [
                partition.name(table)
                for partition in catalog.operation_partitions(self.operation_id)
                if partition.state is PartitionState.VISIBLE
            ]
            names += catalog.announcements.changed_by(self.operation_id)
            batches = announcement_batches(dict.fromkeys(names))
            catalog.announcements.finish(self.operation_id)
            quarantined = catalog.count_quarantined([operation]).get(operation.id, 0)
        first, *others = batches or [[]]
        announce(context, table.full_name, first)
        if operation.is_committed:
            report = {**_publication(operation), "quarantined": quarantined}
            report_outcome(context, Change.LOADED, operation, report)
        return others


class AnnouncePartitionsOperator(BaseOperator):
    """Task that emits an event of the table's asset for each partition of a batch.

    Args:
        operation_id: The load (templated).
        partitions: A batch of `AnnounceNewPartitionsOperator` (templated).
    """

    template_fields: Sequence[str] = ("operation_id", "partitions")

    def __init__(self, *, operation_id: str, partitions: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.operation_id = operation_id
        self.partitions = partitions

    def execute(self, context: Context) -> int:
        """Emit the events and return their number."""
        with open_catalog() as catalog:
            table = catalog.operations.get(self.operation_id).table
        announce(context, table, self.partitions)
        return len(self.partitions)


def _publication(load: Operation) -> Mapping[str, Any]:
    """Return the report of the step that made a load visible, see `Loading.publish`."""
    return next((report for report in load.report.values() if "partitions_extended" in report), {})


class FindOutcomesOperator(FormOperator):
    """Task that finds the loads, rebalances, migrations and reverts that no task has reported.

    These are those of statements, of the command line and of the API, about a minute after they have ended.

    Returns:
        The ids of the operations, for `ReportOutcomeOperator`.

    Raises:
        AirflowSkipException: There is none.
    """

    @for_mapped_tasks
    def execute(self, context: Context) -> list[str]:
        """Find the operations."""
        with open_catalog() as catalog:
            found = [operation.id for operation in catalog.outcomes.list(limit=min(_MOST_OUTCOMES, map_limit()))]
        if not found:
            raise AirflowSkipException("no operation has ended without a report")
        return found


class ReportOutcomeOperator(LineageOperator):
    """Task that reports one operation as the task that makes such a change would: as event, metrics and lineage.

    Args:
        operation: The operation's id; no template.

    Returns:
        The reported change.

    Raises:
        AirflowSkipException: It was reported already.
    """

    template_fields = ()

    def __init__(self, *, operation: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.operation = operation

    def execute(self, context: Context) -> str:
        """Report the operation."""
        from catalog.errors import NotFoundError
        from catalog.settings.fields import text

        operation_id = text("operation", self.operation)
        with open_catalog() as catalog:
            if not catalog.outcomes.is_pending(operation_id):
                raise AirflowSkipException(f"operation {operation_id} was reported, or is none that is")
            operation = catalog.operations.get(operation_id)
            change, report, name = outcome_of(operation)
            try:
                table = catalog.get_table(name)
            except NotFoundError:
                self.log.info("The table %s was dropped since, so there is no lineage", name)
            else:
                self.lineage.outputs.append(table_dataset(table, rows=report.get("row_count", report.get("rows"))))
        report_outcome(context, change, operation, report, name, until_ms=operation.heartbeat_at_ms)
        self.log.info("%s: %s, by operation %s", name, change, operation.id)
        return change.value
