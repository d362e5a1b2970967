"""Trigger of an asset watcher that fires while changed partitions are still to be announced."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from calve_airflow.triggers.polling import call_catalog

if TYPE_CHECKING:
    from catalog import Catalog

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 300.0
"""The time after which the trigger fires again for changes that no run has claimed, for instance because none ran."""


class PartitionChangesTrigger(BaseEventTrigger):
    """Trigger that fires when partitions have changed, through whichever door, and nobody has announced them.

    It also fires for operations that nobody has reported (`catalog.operations.outcomes`).

    It only calls a run of the DAG `announce_changes`, which claims the changes in a transaction. So an event that is
    lost with the triggerer, or repeated by another one, neither loses nor repeats an announcement. A catalog that
    cannot be read is polled again.

    Args:
        poll_seconds: Seconds between two polls.
    """

    def __init__(self, poll_seconds: float = 10.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow is not typed here
        self.poll_seconds = poll_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments from which the triggerer recreates this trigger."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {"poll_seconds": self.poll_seconds}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll the catalog, and yield an event for each change that is seen first, and again for one that stays."""
        # Not in the event loop, which the import would block for a second.
        await asyncio.to_thread(import_module, "catalog")
        from catalog.errors import CatalogError

        last, fired_at = (0, 0), 0.0
        while True:
            try:
                newest = await call_catalog(_pending)
            except CatalogError as error:
                log.warning("Changed partitions cannot be read: %s", error)
                newest = (0, 0)
            number = max(newest)
            is_new = any(now > before for now, before in zip(newest, last, strict=True))
            if number and (is_new or time.monotonic() >= fired_at + _AGAIN_SECONDS):
                last, fired_at = (max(newest[0], last[0]), max(newest[1], last[1])), time.monotonic()
                yield TriggerEvent({"number": number})  # type: ignore[no-untyped-call]  # Airflow is not typed here
            await asyncio.sleep(self.poll_seconds)


def _pending(catalog: Catalog) -> tuple[int, int]:
    """Return the newest change of a partition and the newest operation to be reported; 0 for none."""
    return catalog.announcements.pending() or 0, catalog.outcomes.pending() or 0
