"""The methods of `Catalog` for partition indexes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from catalog.catalog.core import Core
from catalog.model import IndexState, PartitionIndex

if TYPE_CHECKING:
    from catalog.indexes.definitions import IndexProgress
    from catalog.indexes.verifying import Verification


class IndexMethods(Core):
    """Creation, build, verification and deletion of partition indexes."""

    def create_partition_index(self, table: str, name: str, keys: Sequence[str]) -> PartitionIndex:
        """Create a partition index: ACTIVE immediately on a table without partitions, else CREATING until it is built.

        From its creation on, the table refuses partitions that the index does not admit. Several indexes of a table may
        be CREATING. Interrupted and running deletions of indexes are finished first.

        Raises:
            TableNotFoundError: The table does not exist.
            InvalidIndexError: It names no key, a key twice, or a column that is not a partition key.
            LimitExceededError: The table has 3 indexes, not counting FAILED ones.
            IndexAlreadyExistsError: An index that is not FAILED has the same name or the same keys.
        """
        return self._indexing.create(table, name, keys)

    def build_partition_index(self, table: str, name: str) -> PartitionIndex:
        """Build a CREATING index in this process, and return it in its final state, ACTIVE or FAILED.

        An interrupted build continues where it stopped; concurrent builds share the work. For large tables, the Spark
        job does the same in parallel.

        Raises:
            IndexNotFoundError: The index does not exist.
            IndexBuildEndedError: It was deleted, cancelled, or has FAILED meanwhile.
        """
        return self._indexing.build(table, name)

    def cancel_partition_index_build(
        self, table: str, name: str, *, reason: str = "the build was cancelled"
    ) -> PartitionIndex:
        """Cancel the build of a CREATING index: it becomes FAILED with the code CANCELLED, and its items are deleted.

        A running build notices this before its next range of partitions, and ends with an error. To pause a build
        instead, end the process or the Airflow task.

        Raises:
            TableNotFoundError, IndexNotFoundError: The table or index does not exist.
            ConflictError: The index is not CREATING.
        """
        return self._indexing.cancel(table, name, reason)

    def verify_partition_index(self, table: str, name: str, *, repair: bool = False) -> Verification:
        """Compare an ACTIVE index with the partitions in this process, while the table stays readable and writable.

        For large tables, the Spark job does the same in parallel.

        Args:
            repair: Repair differences, in short transactions that lock the table.

        Raises:
            TableNotFoundError, IndexNotFoundError: The table or index does not exist.
            ConflictError: The index is not ACTIVE, or was deleted meanwhile.
        """
        return self._indexing.verify(table, name, repair=repair)

    def get_partition_indexes(self, table: str) -> list[PartitionIndex]:
        """Return a table's indexes, oldest first, including FAILED ones.

        Raises:
            TableNotFoundError: The table does not exist.
        """
        return self._indexing.list(table)

    def get_partition_index(self, table: str, name: str) -> PartitionIndex:
        """Return one index of a table.

        Raises:
            TableNotFoundError, IndexNotFoundError: The table or index does not exist.
        """
        return self._indexing.get(table, name)

    def get_partition_index_states(self, tables: Iterable[str]) -> dict[str, dict[str, IndexState]]:
        """Return the states of the indexes of many tables, with one statement.

        Returns:
            Table, as written in `tables` → name of the index → its state. Tables that do not exist are missing. Of
            several indexes of one name, it is the state of the one that `get_partition_index` returns.
        """
        return self._indexing.states(tables)

    def get_partition_index_progress(self, table: str) -> dict[int, IndexProgress]:
        """Return how many items a table's indexes have, and what their builds have still to read.

        Counts all items.

        Returns:
            By `PartitionIndex.id`, also of FAILED indexes.

        Raises:
            TableNotFoundError: The table does not exist.
        """
        return self._indexing.progress(table)

    def delete_partition_index(self, table: str, name: str) -> None:
        """Delete an index: it is DELETING and no longer read while its items are deleted in batches.

        A running build notices this before its next range of partitions, and ends with an error. An interrupted
        deletion is finished by the next deletion, creation or build of an index of the table.

        Raises:
            TableNotFoundError, IndexNotFoundError: The table or index does not exist.
        """
        self._indexing.delete(table, name)
