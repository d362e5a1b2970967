"""Trigger that waits for the end of an operation without a worker slot."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from calve_airflow.triggers.polling import CatalogTrigger

if TYPE_CHECKING:
    from catalog import Catalog
    from catalog.operations.records import OperationState


class OperationTrigger(CatalogTrigger[str, "OperationState"]):
    """Trigger that fires once when an operation has ended, whether well or not.

    Args:
        must_exist: Also fire when there is no such operation.
    """

    def __init__(self, operation_id: str, must_exist: bool, poll_seconds: float) -> None:
        super().__init__(poll_seconds)
        self.operation_id = operation_id
        self.must_exist = must_exist

    @property
    def key(self) -> str:
        """The operation's id."""
        return self.operation_id

    @classmethod
    def read(cls, catalog: Catalog, keys: Collection[str]) -> Mapping[str, OperationState]:
        """Return the states of many operations."""
        return catalog.operations.get_states(keys)

    def is_over(self, state: OperationState | None) -> bool:
        """Return whether the operation has ended, or should exist and does not."""
        from catalog.operations.records import UNFINISHED

        return self.must_exist if state is None else state not in UNFINISHED

    def arguments(self) -> dict[str, Any]:
        """Return the arguments from which the triggerer recreates this trigger."""
        return {
            "operation_id": self.operation_id,
            "must_exist": self.must_exist,
            "poll_seconds": self.poll_seconds,
        }
