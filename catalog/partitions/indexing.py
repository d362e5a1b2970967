"""The life cycle of a partition index in one process: create, build, cancel, verify, delete."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from catalog.errors import ConflictError
from catalog.indexes.definitions import (
    IndexFailure,
    IndexProgress,
    change_state,
    create_index,
    fail_index,
    find_index,
    index_progress,
    index_states,
    list_indexes,
)
from catalog.model import IndexDefinition, IndexState, PartitionIndex
from catalog.model.identifiers import TableName
from catalog.storage import Storage
from catalog.storage.bulk import batched
from catalog.tables.definitions import Definitions

if TYPE_CHECKING:
    from catalog.indexes.verifying import Verification


class Indexing:
    """The partition indexes of the tables of one catalog; `Catalog` describes its methods.

    What needs PyArrow is imported late, because most commands do not need it.
    """

    def __init__(self, storage: Storage, definitions: Definitions) -> None:
        """Set the storage and the definitions in it."""
        self._storage = storage
        self._definitions = definitions

    def create(self, table: str, name: str, keys: Sequence[str]) -> PartitionIndex:
        """Create an index: ACTIVE immediately on a table without partitions, else CREATING."""
        from catalog.indexes import building

        definition = self._definitions.get_hive_table(table)
        building.clear_ended(self._storage, definition)
        cuts = building.range_cuts(self._storage, definition)
        with self._storage.write() as connection:
            held = self._definitions.lock_table(connection, table, exclusive=True)
            return create_index(connection, held, IndexDefinition(name, tuple(keys)), cuts)

    def build(self, table: str, name: str) -> PartitionIndex:
        """Build a CREATING index in this process, and return the index in its final state."""
        from catalog.indexes import building

        definition, index = self._definitions.get_hive_table(table), self.get(table, name)
        building.clear_ended(self._storage, definition)
        if index.state is not IndexState.CREATING:
            return index
        ranges = building.ranges_to_do(self._storage, index)
        report = building.backfill(self._storage, definition, index, ranges)
        failure = building.check_build(self._storage, definition, index, report)
        with self._storage.write() as connection:
            ended = building.end_build(self._storage, connection, definition, index, failure)
        building.clear_ended(self._storage, definition)
        return ended

    def cancel(self, table: str, name: str, reason: str) -> PartitionIndex:
        """Cancel the build of a CREATING index: it becomes FAILED, and its items are deleted."""
        from catalog.indexes import building

        with self._storage.write() as connection:
            held = self._definitions.lock_table(connection, table, exclusive=True)
            index = find_index(connection, held, name)
            if not fail_index(connection, index.id, IndexFailure(building.CANCELLED, reason)):
                raise ConflictError(
                    f"partition index {index.name} of {held.full_name} is {index.state}, so there is no build to "
                    "cancel; delete the index if you do not need it"
                )
        building.clear_ended(self._storage, held)
        return self.get(table, name)

    def verify(self, table: str, name: str, *, repair: bool) -> Verification:
        """Compare an ACTIVE index with the partitions in this process."""
        from catalog.indexes.verifying import verify

        return verify(self._storage, self._definitions.get_hive_table(table), self.get(table, name), repair=repair)

    def list(self, table: str) -> list[PartitionIndex]:
        """Return a table's indexes, oldest first, including FAILED ones."""
        with self._storage.read() as connection:
            return list_indexes(connection, self._definitions.get_hive_table(table, connection).id)

    def get(self, table: str, name: str) -> PartitionIndex:
        """Return one index of a table."""
        with self._storage.read() as connection:
            return find_index(connection, self._definitions.get_hive_table(table, connection), name)

    def states(self, tables: Iterable[str]) -> dict[str, dict[str, IndexState]]:
        """Return the states of the indexes of many tables."""
        names = {table: TableName.parse(table) for table in tables}
        states: dict[TableName, dict[str, IndexState]] = {}
        for batch in batched(set(names.values())):
            with self._storage.read() as connection:
                states |= index_states(connection, set(batch))
        return {table: states[name] for table, name in names.items() if name in states}

    def progress(self, table: str) -> dict[int, IndexProgress]:
        """Return how far a table's indexes are built, by `PartitionIndex.id`."""
        with self._storage.read() as connection:
            return index_progress(connection, self._definitions.get_hive_table(table, connection))

    def delete(self, table: str, name: str) -> None:
        """Delete an index; its items are deleted in batches."""
        from catalog.indexes import building

        with self._storage.write() as connection:
            held = self._definitions.lock_table(connection, table, exclusive=True)
            index = find_index(connection, held, name)
            change_state(connection, index.id, tuple(IndexState), IndexState.DELETING)
        building.clear_ended(self._storage, held)
