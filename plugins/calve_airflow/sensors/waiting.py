"""Base of the sensors that wait in the triggerer."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseSensorOperator

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.triggers.base import BaseTrigger


class WaitingSensor(BaseSensorOperator):
    """Sensor that waits in the triggerer, without a worker slot; in all `timeout` seconds, however often it looks."""

    _until: float | None = None

    def wait_for(self, trigger: BaseTrigger) -> NoReturn:
        """Defer until a trigger fires, or until the sensor's time is over.

        Raises:
            TaskDeferred: Always; it frees the worker slot.
        """
        now = time.time()
        until = now + self.timeout if self._until is None else max(self._until, now)
        left = timedelta(seconds=until - now)
        self.defer(trigger=trigger, method_name="execute_complete", kwargs={"until": until}, timeout=left)

    def execute_complete(self, context: Context, event: dict[str, Any], until: float | None = None) -> Any:
        """Look again: the event only says that a state has changed.

        Args:
            until: The time at which the sensor's time is over, in seconds since 1970.
        """
        self._until = until
        return self.execute(context)
