"""Waiting for partition indexes without holding a worker slot."""

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
    """Return the named indexes of a table, or with `index=None` all that are not being deleted.

    Raises:
        NotFoundError: The table or the named index does not exist.
    """
    from catalog import Catalog
    from catalog.model import IndexState

    with Catalog.open() as catalog:
        if index is not None:
            names = [index] if isinstance(index, str) else index
            return [catalog.get_partition_index(table, name) for name in names]
        return [found for found in catalog.get_partition_indexes(table) if found.state is not IndexState.DELETING]


def is_waiting_over(table: str, index: IndexNames) -> bool:
    """Return whether no index is being built any more, or one of them cannot become ACTIVE."""
    from catalog.errors import CatalogError
    from catalog.model import IndexState

    try:
        states = {found.state for found in read_indexes(table, index)}
    except CatalogError as error:
        # The sensor meets the same error again and reports it where the user looks for it.
        return not error.retryable
    return IndexState.CREATING not in states or not states <= {IndexState.CREATING, IndexState.ACTIVE}


class PartitionIndexTrigger(BaseTrigger):
    """Fires once when the indexes of a table are worth a second look: all settled, one failed, or one gone."""

    def __init__(self, table: str, index: IndexNames, poll_seconds: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow is not typed here
        self.table = table
        self.index = index
        self.poll_seconds = poll_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments from which the triggerer makes this trigger again."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {"table": self.table, "index": self.index, "poll_seconds": self.poll_seconds},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look at the catalog every `poll_seconds`, beside the event loop, until the waiting is over."""
        while not await asyncio.to_thread(is_waiting_over, self.table, self.index):
            await asyncio.sleep(self.poll_seconds)
        yield TriggerEvent({"table": self.table, "index": self.index})  # type: ignore[no-untyped-call]  # Airflow is not typed here
