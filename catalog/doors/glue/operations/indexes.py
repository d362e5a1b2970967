"""Glue's operations on partition indexes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from catalog.doors.glue.calls import Answer, Call, Operation
from catalog.doors.glue.failures import invalid_input
from catalog.doors.glue.names import to_calve, to_glue
from catalog.doors.glue.operations.finding import Found, of_members
from catalog.doors.serving.access import Role
from catalog.errors import PartitionProblem
from catalog.model import IndexDefinition, IndexState, PartitionIndex
from catalog.model.partition_names import NULL_VALUE

_CODES = frozenset(PartitionProblem)
_INTERNAL = "INTERNAL_ERROR"


def definitions_of(given: Iterable[Mapping[str, Any]]) -> tuple[IndexDefinition, ...]:
    """Return the definitions of indexes, given a list of `PartitionIndex`."""
    return tuple(
        IndexDefinition(to_calve(index["IndexName"], "partition index"), tuple(index["Keys"])) for index in given
    )


def _indexed(call: Call) -> Found:
    """Return the table of a request for its indexes.

    Raises:
        GlueError: It does not exist, or is an Iceberg table.
    """
    table = of_members(call)
    if table.is_iceberg:
        raise invalid_input(f"table {table.table.full_name} is an Iceberg table, which has no partition indexes")
    return table


def _create(call: Call) -> Answer:
    table, [definition] = _indexed(call).table.full_name, definitions_of([call.members["PartitionIndex"]])
    index = call.door.catalog.create_partition_index(table, definition.name, definition.keys)
    call.door.builds.request(table, index)
    return {}


def _list(call: Call) -> Answer:
    table = of_members(call)
    if table.is_iceberg or table.table.is_view:
        return {"PartitionIndexDescriptorList": []}
    indexes = call.door.catalog.get_partition_indexes(table.table.full_name)
    if call.client.role >= Role.OWNER:
        # Continues builds that were killed. Other clients may not have an index built, so they do not start it again.
        for index in indexes:
            call.door.builds.request(table.table.full_name, index)
    types = {key.name: key.type for key in table.entry.partition_keys}
    return {"PartitionIndexDescriptorList": [_descriptor(index, types) for index in indexes]}


def _descriptor(index: PartitionIndex, types: Mapping[str, str]) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "IndexName": to_glue(index.name),
        "Keys": [{"Name": key, "Type": types[key]} for key in index.keys],
        "IndexStatus": index.state.value,
    }
    if index.state is IndexState.FAILED:
        code = index.failure_code if index.failure_code in _CODES else _INTERNAL
        partitions = [
            {"Values": [NULL_VALUE if value is None else value for value in partition.values]}
            for partition in index.offending
        ]
        shown["BackfillErrors"] = [{"Code": code, "Partitions": partitions}]
    return shown


def _delete(call: Call) -> Answer:
    name = to_calve(call.members["IndexName"], "partition index")
    call.door.catalog.delete_partition_index(_indexed(call).table.full_name, name)
    return {}


OPERATIONS = {
    "CreatePartitionIndex": Operation(_create, Role.OWNER),
    "GetPartitionIndexes": Operation(_list, Role.READER),
    "DeletePartitionIndex": Operation(_delete, Role.OWNER),
}
