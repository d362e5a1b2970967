"""Trigger that waits for a Spark job without a worker slot."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async

from calve_airflow.submitting.attempts import FollowedAttempt, Liveness, cancel
from calve_airflow.triggers.polling import CatalogTrigger, call_catalog

if TYPE_CHECKING:
    from catalog import Catalog
    from catalog.operations.records import JobRun


_CANCELLATIONS: set[asyncio.Task[None]] = set()
"""The event loop itself does not keep tasks from being removed as garbage."""


class SparkJobTrigger(CatalogTrigger[tuple[str, str], "JobRun"]):
    """Trigger that fires once when an attempt at a Spark job has ended, is lost or replaced, or its time is over.

    A user who ends the deferred task, or clears it, cancels the attempt.

    Args:
        attempt: The attempt, as `FollowedAttempt.as_json` returns it.
    """

    def __init__(self, operation_id: str, step: str, attempt: Mapping[str, Any], poll_seconds: float) -> None:
        super().__init__(poll_seconds)
        self.operation_id = operation_id
        self.step = step
        self.attempt = FollowedAttempt.from_json(attempt)
        self._liveness = Liveness(poll_seconds)

    @property
    def key(self) -> tuple[str, str]:
        """The operation and the step."""
        return self.operation_id, self.step

    @classmethod
    def read(cls, catalog: Catalog, keys: Collection[tuple[str, str]]) -> Mapping[tuple[str, str], JobRun]:
        """Return the latest attempts at many steps."""
        return catalog.operations.get_jobs(keys)

    def is_over(self, state: JobRun | None) -> bool:
        """Return whether the attempt has ended, is lost or replaced, or its time is over."""
        if state is None or state.attempt != self.attempt.number or not state.is_alive:
            return True
        return self.attempt.is_overdue or not self._liveness.is_running(state, self.attempt.process)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments from which the triggerer recreates this trigger."""
        return {
            "operation_id": self.operation_id,
            "step": self.step,
            "attempt": self.attempt.as_json(),
            "poll_seconds": self.poll_seconds,
        }

    async def on_kill(self) -> None:
        """Cancel the attempt, so that it can no longer commit, and end its process if it runs on this host.

        Airflow also calls this when it assigns the trigger to another triggerer; the task is still deferred then.
        """
        cancellation = asyncio.create_task(self._cancel())
        _CANCELLATIONS.add(cancellation)
        cancellation.add_done_callback(_CANCELLATIONS.discard)
        # Continues after Airflow's time limit: its first answer about the task may take longer on a busy host.
        await asyncio.shield(cancellation)

    async def _cancel(self) -> None:
        if await self._is_task_deferred():
            return
        try:
            await call_catalog(lambda catalog: cancel(catalog, self.operation_id, self.step, self.attempt.number))
        finally:
            await asyncio.to_thread(self.attempt.process.terminate)

    async def _is_task_deferred(self) -> bool:
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

        task = self.task_instance
        assert task is not None
        states = await sync_to_async(RuntimeTaskInstance.get_task_states)(
            dag_id=task.dag_id, task_ids=[task.task_id], run_ids=[task.run_id], map_index=task.map_index
        )
        return any("deferred" in of_run.values() for of_run in states.values())
