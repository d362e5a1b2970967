"""Sensor for the partition indexes of a batch of tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from calve_airflow.batches import Batch, title_of
from calve_airflow.sensors.indexes import PartitionIndexSensor

if TYPE_CHECKING:
    from airflow.sdk import Context


class PartitionIndexBatchSensor(PartitionIndexSensor):
    """Sensor that waits for the partition indexes of a batch of tables, as `PartitionIndexSensor` for each.

    Args:
        batch: The tables, each as `table` (templated).
        indexes: A list of names for each table, in the same order (templated).

    Returns:
        Index name → `ACTIVE`, of the last table.
    """

    template_fields: Sequence[str] = ("batch", "indexes")

    def __init__(self, *, batch: Batch, indexes: Sequence[Sequence[str]], **kwargs: Any) -> None:
        super().__init__(table="", **kwargs)
        self.batch = batch
        self.indexes = indexes

    @property
    def title(self) -> str:
        """The name of the mapped task in Airflow's UI, for its `map_index_template`."""
        return title_of(self.batch)

    def execute(self, context: Context) -> dict[str, str]:
        """Return if there is nothing to wait for; otherwise defer, and look at all tables again after that."""
        states: dict[str, str] = {}
        for item, names in zip(self.batch, self.indexes, strict=True):
            # Each table has its own time.
            self.table, self.index, self._until = item["table"], names, None
            states = super().execute(context)
        return states
