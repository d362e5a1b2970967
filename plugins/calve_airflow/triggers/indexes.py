"""Trigger that waits for partition indexes without a worker slot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

if TYPE_CHECKING:
    from catalog.model import PartitionIndex


IndexNames = str | Sequence[str] | None
"""One index, several, or all of a table."""


def read_indexes(table: str, index: IndexNames) -> list[PartitionIndex]:
    """Return the named indexes of a table, or with `index=None` all except those being deleted.

    Raises:
        NotFoundError: The table or the named index does not exist.
    """
    from catalog import Catalog
    from catalog.model import IndexState

    with Catalog.open() as catalog:
        if index is not None:
            names = [index] if isinstance(index, str) else index
            return [catalog.get_partition_index(table, name) for name in names]
        indexes = catalog.get_partition_indexes(table)
        return [existing for existing in indexes if existing.state is not IndexState.DELETING]


def is_waiting_over(table: str, index: IndexNames) -> bool:
    """Return whether no index is being built any longer, or one of them cannot become ACTIVE."""
    from catalog.errors import CatalogError
    from catalog.model import IndexState

    try:
        states = {existing.state for existing in read_indexes(table, index)}
    except CatalogError as error:
        # The sensor gets the same error again and reports it in the task's log.
        return not error.retryable
    return IndexState.CREATING not in states or not states <= {IndexState.CREATING, IndexState.ACTIVE}


class PartitionIndexTrigger(BaseTrigger):
    """Trigger that fires once when all indexes are built, or one has failed or is missing."""

    def __init__(self, table: str, index: IndexNames, poll_seconds: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow is not typed here
        self.table = table
        self.index = index
        self.poll_seconds = poll_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments from which the triggerer recreates this trigger."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {"table": self.table, "index": self.index, "poll_seconds": self.poll_seconds},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll the catalog every `poll_seconds`, outside the event loop, and yield one event when the wait is over."""
        while not await asyncio.to_thread(is_waiting_over, self.table, self.index):
            await asyncio.sleep(self.poll_seconds)
        yield TriggerEvent({"table": self.table, "index": self.index})  # type: ignore[no-untyped-call]  # Airflow is not typed here
