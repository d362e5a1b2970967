"""Sensor for operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from calve_airflow.catalog_access import open_catalog
from calve_airflow.sensors.waiting import WaitingSensor
from calve_airflow.triggers.operations import OperationTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context


class OperationSensor(WaitingSensor):
    """Sensor that waits in the triggerer until an operation has ended; fails with its failure if it FAILED.

    Args:
        operation_id: The operation, such as `add_partitions.shop.orders/manual__2024-05-01` (templated).
        must_exist: Fail at once if there is no such operation; False waits until it begins.
        poke_interval: Seconds between two polls of the catalog.
        timeout: Seconds after which the task fails.

    Returns:
        `table`, `kind` and `state` of the operation.

    Raises:
        AirflowFailException: The operation FAILED (with code and detail), or does not exist.
        AirflowSensorTimeout: It has not ended after `timeout`.
    """

    template_fields: Sequence[str] = ("operation_id",)

    def __init__(
        self, *, operation_id: str, must_exist: bool = True, poke_interval: float = 10.0, **kwargs: Any
    ) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.operation_id = operation_id
        self.must_exist = must_exist

    def execute(self, context: Context) -> dict[str, str]:
        """Return if the operation has ended; otherwise defer, which frees the worker slot."""
        from catalog.operations.records import FINISHED, OperationState

        with open_catalog() as catalog:
            find = catalog.operations.get if self.must_exist else catalog.operations.find
            operation = find(self.operation_id)
        if operation is not None and operation.state is OperationState.FAILED:
            raise AirflowFailException(
                f"operation {operation.id} ({operation.kind}) on {operation.table} FAILED: {operation.failure_code}: "
                f"{operation.failure_detail}"
            )
        if operation is not None and operation.state in FINISHED:
            return {"table": operation.table, "kind": operation.kind.value, "state": operation.state.value}
        self.wait_for(OperationTrigger(self.operation_id, self.must_exist, self.poke_interval))
