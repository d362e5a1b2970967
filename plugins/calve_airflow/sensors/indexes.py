"""Sensor for partition indexes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from calve_airflow.catalog_access import catalog_errors
from calve_airflow.sensors.waiting import WaitingSensor
from calve_airflow.triggers.indexes import IndexNames, PartitionIndexTrigger, read_indexes

if TYPE_CHECKING:
    from airflow.sdk import Context


class PartitionIndexSensor(WaitingSensor):
    """Sensor that waits in the triggerer until partition indexes are ACTIVE; fails at once if one cannot become ACTIVE.

    Args:
        table: `database.name` (templated).
        index: Name of the index, or a list of names (templated); None for all indexes of the table, which may have
            none.
        poke_interval: Seconds between two polls of the catalog.
        timeout: Seconds after which the task fails.

    Returns:
        Index name → `ACTIVE`.

    Raises:
        AirflowFailException: An index FAILED (with code and detail), is being deleted, or does not exist.
        AirflowSensorTimeout: An index is still being built after `timeout`.
    """

    template_fields: Sequence[str] = ("table", "index")

    def __init__(self, *, table: str, index: IndexNames = None, poke_interval: float = 5.0, **kwargs: Any) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.table = table
        self.index = index

    def execute(self, context: Context) -> dict[str, str]:
        """Return if there is nothing to wait for; otherwise defer, which frees the worker slot."""
        from catalog.model import IndexState

        with catalog_errors():
            indexes = read_indexes(self.table, self.index)
        for index in indexes:
            if index.state is IndexState.FAILED:
                raise AirflowFailException(
                    f"partition index {index.name} of {self.table} FAILED: {index.failure_code}: {index.failure_detail}"
                )
            if index.state is IndexState.DELETING:
                raise AirflowFailException(f"partition index {index.name} of {self.table} is being deleted")
        if any(index.state is IndexState.CREATING for index in indexes):
            self.wait_for(PartitionIndexTrigger(self.table, self.index, self.poke_interval))
        return {index.name: index.state.value for index in indexes}
