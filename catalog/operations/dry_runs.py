"""Plans of dry runs, kept in the journal for people who look at them afterwards.

The operation of a dry run never runs: it is FAILED with the code `DRY_RUN`, and its report has the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.operations.journal import Operations
from catalog.operations.records import DRY_RUN, Operation, OperationKind

PLAN = "plan"
"""The step whose result is the plan."""


def keep_plan(
    operations: Operations,
    operation_id: str,
    kind: OperationKind,
    table: str,
    plan: Mapping[str, Any],
    *,
    request: Mapping[str, Any] | None = None,
    requested_by: str | None = None,
) -> None:
    """Journal the plan of a dry run; a repeated call replaces the plan.

    Args:
        kind: The kind of the operation that would make the change.
        table: `database.table`.
        plan: JSON values.
        request: The request of that operation.

    Raises:
        OperationReusedError: The operation was started on another table or with another kind.
        TableNotFoundError: The table was dropped.
    """
    operations.begin(operation_id, kind, table, request, requested_by=requested_by)
    with operations.attempt(operation_id, PLAN) as attempt:
        operations.finish_job(operation_id, PLAN, attempt, plan)
    operations.fail(operation_id, DRY_RUN, "this was a dry run; nothing was changed")


def plan_of(operation: Operation) -> Mapping[str, Any] | None:
    """Return the plan that a dry run made; None for other operations."""
    return operation.report.get(PLAN) if operation.failure_code == DRY_RUN else None
