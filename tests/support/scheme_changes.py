"""Changes of partitions without Spark: PyArrow rewrites the rows of a plan."""

from __future__ import annotations

from collections.abc import Callable

from catalog import Catalog
from catalog.operations.attempts import attempt_folder
from catalog.rebalancing.changes import PartitionChange
from catalog.rebalancing.rebalancing import COMMIT
from tests.support.killed_changes import rewrite


def change(
    catalog: Catalog,
    operation: str,
    table: str,
    partitions: PartitionChange,
    *,
    before_commit: Callable[[], object] = lambda: None,
) -> None:
    """Make a change, with the rewriting that it needs.

    Args:
        before_commit: Called after the rows are rewritten.
    """
    begun = catalog.rebalancing.begin(operation, table, partitions)
    with catalog.operations.attempt(operation, COMMIT) as attempt:
        plan = catalog.rebalancing.plan_of(catalog.operations.get(operation))
        folder = attempt_folder(begun, attempt) if plan.needs_spark else None
        if folder is not None:
            rewrite(plan, folder)
        before_commit()
        catalog.rebalancing.commit(operation, COMMIT, attempt, plan, folder)
