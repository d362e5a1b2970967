"""Operator that creates partition indexes, and the operations of their builds; no Spark needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from calve_airflow.catalog_access import open_catalog
from calve_airflow.forms.operator import FormOperator
from calve_airflow.operators.approval import operation_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog import Catalog, PartitionIndex


def current_index(catalog: Catalog, table: str, name: str) -> PartitionIndex | None:
    """Return the current index of a name; of several FAILED ones the last."""
    return {index.name: index for index in catalog.get_partition_indexes(table)}.get(name.lower())


def build_operation_id(run: str, table: str, index: PartitionIndex) -> str:
    """Return the id of the operation that builds one index of a run.

    It contains the index's id, so that an index that a cleared run creates again does not join the job of its
    predecessor.
    """
    return f"{run}/{table}/{index.name}/{index.id}"


def begin_build(catalog: Catalog, context: Context, table: str, index: PartitionIndex) -> str:
    """Journal the build of one index of a run, and return the operation's id.

    Raises:
        OperationConflictError: The operation was begun for another request.
    """
    from catalog.operations.records import OperationKind

    operation = catalog.operations.begin(
        build_operation_id(operation_of(context), table, index),
        OperationKind.BUILD_INDEX,
        table,
        {"index": index.name, "keys": list(index.keys)},
        requested_by=context["dag_run"].triggering_user_name,
    )
    return operation.id


class CreatePartitionIndexOperator(FormOperator):
    """Task that journals and creates a partition index, or continues one that is CREATING with the same keys.

    Args:
        operation_id: The operation to journal (templated).
        table: `database.table` (templated).
        index: Name of the index (templated).
        keys: Partition keys, in the index's order (templated).

    Returns:
        The index's state: CREATING, or ACTIVE on a table without partitions.

    Raises:
        AirflowFailException: The table does not exist, or the index cannot be created as requested.
    """

    template_fields: Sequence[str] = ("operation_id", "table", "index", "keys")

    def __init__(self, *, operation_id: str, table: str, index: str, keys: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.operation_id = operation_id
        self.table = table
        self.index = index
        self.keys = keys

    def execute(self, context: Context) -> str:
        """Create the index."""
        from catalog import IndexState
        from catalog.operations.records import OperationKind
        from catalog.settings.fields import texts

        with open_catalog() as catalog:
            request = {"index": self.index, "keys": texts("keys", self.keys)}
            table = catalog.get_table(self.table).full_name
            catalog.operations.begin(
                self.operation_id,
                OperationKind.BUILD_INDEX,
                table,
                request,
                requested_by=context["dag_run"].triggering_user_name,
            )
            keys = tuple(key.lower() for key in self.keys)
            current = current_index(catalog, table, self.index)
            if current is None or current.state is not IndexState.CREATING or current.keys != keys:
                current = catalog.create_partition_index(table, self.index, keys)
        self.log.info("Partition index %s of %s on (%s) is %s", current.name, table, ", ".join(keys), current.state)
        return str(current.state)
