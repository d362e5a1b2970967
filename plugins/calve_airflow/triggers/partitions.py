"""Trigger that waits for partitions without a worker slot."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from calve_airflow.triggers.polling import CatalogTrigger

if TYPE_CHECKING:
    from catalog import Catalog
    from catalog.errors import CatalogError
    from catalog.partitions.awaited import AwaitedPartitions, AwaitedState


class PartitionTrigger(CatalogTrigger["AwaitedPartitions", "AwaitedState | CatalogError"]):
    """Trigger that fires once when all partitions of a question are ready, or can no longer be waited for.

    Args:
        question: The fields of `catalog.partitions.awaited.AwaitedPartitions`.
    """

    def __init__(self, question: Mapping[str, Any], poll_seconds: float) -> None:
        super().__init__(poll_seconds)
        self.question = dict(question)
        self._key: AwaitedPartitions | None = None

    @property
    def key(self) -> AwaitedPartitions:
        """The question."""
        if self._key is None:
            from catalog.partitions.awaited import AwaitedPartitions

            self._key = AwaitedPartitions.from_json(self.question)
        return self._key

    @classmethod
    def read(
        cls, catalog: Catalog, keys: Collection[AwaitedPartitions]
    ) -> Mapping[AwaitedPartitions, AwaitedState | CatalogError]:
        """Return the states of the partitions of many questions."""
        return catalog.waits.look(keys)

    def is_over(self, state: AwaitedState | CatalogError | None) -> bool:
        """Return whether the partitions are ready, or the task has to report why they cannot be waited for."""
        return state is None or isinstance(state, Exception) or state.is_ready

    def arguments(self) -> dict[str, Any]:
        """Return the arguments from which the triggerer recreates this trigger."""
        return {"question": self.question, "poll_seconds": self.poll_seconds}
