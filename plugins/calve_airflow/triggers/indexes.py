"""Trigger that waits for partition indexes without a worker slot."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from calve_airflow.triggers.polling import CatalogTrigger

if TYPE_CHECKING:
    from catalog import Catalog
    from catalog.model import IndexState, PartitionIndex


IndexNames = str | Sequence[str] | None
"""One index, several, or all of a table."""


def read_indexes(table: str, index: IndexNames) -> list[PartitionIndex]:
    """Return the named indexes of a table, or with `index=None` all except those being deleted.

    Waits for a catalog that cannot be reached (`patiently`).

    Raises:
        CatalogUnavailableError: The catalog could not be reached for too long.
        NotFoundError: The table or the named index does not exist.
    """
    from catalog import Catalog
    from catalog.model import IndexState
    from catalog.operations.patience import patiently

    with patiently(Catalog.open, "the sensor") as catalog:
        if index is not None:
            names = [index] if isinstance(index, str) else index
            return [catalog.get_partition_index(table, name) for name in names]
        indexes = catalog.get_partition_indexes(table)
        return [existing for existing in indexes if existing.state is not IndexState.DELETING]


class PartitionIndexTrigger(CatalogTrigger[str, Mapping[str, "IndexState"]]):
    """Trigger that fires once when all indexes are built, or one has failed or is missing."""

    def __init__(self, table: str, index: IndexNames, poll_seconds: float) -> None:
        super().__init__(poll_seconds)
        self.table = table
        self.index = index

    @property
    def key(self) -> str:
        """The table."""
        return self.table

    @classmethod
    def read(cls, catalog: Catalog, keys: Collection[str]) -> Mapping[str, Mapping[str, IndexState]]:
        """Return the states of the indexes of many tables."""
        return catalog.get_partition_index_states(keys)

    def is_over(self, state: Mapping[str, IndexState] | None) -> bool:
        """Return whether no index is being built any longer, or one of them cannot become ACTIVE."""
        from catalog.model import IndexState
        from catalog.model.identifiers import normalise_identifier

        if state is None:
            return True
        states: AbstractSet[IndexState | None]
        if self.index is None:
            states = set(state.values()) - {IndexState.DELETING}
        else:
            names = [self.index] if isinstance(self.index, str) else self.index
            states = {state.get(normalise_identifier(name, "partition index")) for name in names}
        return IndexState.CREATING not in states or not states <= {IndexState.CREATING, IndexState.ACTIVE}

    def arguments(self) -> dict[str, Any]:
        """Return the arguments from which the triggerer recreates this trigger."""
        return {"table": self.table, "index": self.index, "poll_seconds": self.poll_seconds}
