"""Glue's operations on partitions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from catalog.doors.entries.partition_forms import PartitionForms
from catalog.doors.glue.calls import Answer, Call, Operation
from catalog.doors.glue.expressions import calve_expression
from catalog.doors.glue.failures import GlueError, invalid_input, not_found
from catalog.doors.glue.forms.partitions import PartitionWriter, partition_from_glue
from catalog.doors.glue.operations.finding import Found, of_members
from catalog.doors.glue.operations.tables import detail
from catalog.doors.glue.tokens import make_token, read_token
from catalog.doors.serving.access import Role
from catalog.errors import (
    AlreadyExistsError,
    CatalogError,
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    PartitionAlreadyExistsError,
    PartitionNotFoundError,
)
from catalog.metastores.types import HivePartition
from catalog.partitions.paging import Page, Position, Segment

_PAGE = 1_000
"""Partitions on a page. Source: AWS Glue API, `PageSize`."""

_MAXIMUM_LATEST = 1_000
"""Tables that are known from the latest searches.

A search tells by itself which version of the table it was of, so that a table which has not changed need not be read.
"""

_OF_MEMBERS = (InvalidRequestError, NotFoundError, AlreadyExistsError, ConflictError, GlueError)
"""Errors of single members of a batch; others are of the whole request."""


# --- look-up ----------------------------------------------------------------------------------------------------------


def _list(call: Call) -> Answer:
    key = call.members["DatabaseName"], call.members["TableName"]
    table = call.door.latest.get(key)
    if table is not None:
        try:
            page = _page(call, table)
            if page.table.version == table.table.version:
                return _shown(call, table, page)
        except CatalogError:
            # The table may be another one meanwhile.
            pass
    table = of_members(call)
    if table.is_iceberg:
        return {"Partitions": []}
    page = _page(call, table)
    if len(call.door.latest) >= _MAXIMUM_LATEST:
        call.door.latest.clear()
    call.door.latest[key] = table
    return _shown(call, table, page)


def _page(call: Call, table: Found) -> Page:
    expression = calve_expression(call.members.get("Expression"), table.table)
    position = read_token(call.operation, call.members, [{int}, {int}])
    return call.door.catalog.partition_page(
        table.table.full_name,
        expression,
        limit=call.members.get("MaxResults", _PAGE),
        position=None if position is None else Position(*position),
        segment=_segment(call),
        nulls_are_texts=True,
    )


def _shown(call: Call, table: Found, page: Page) -> Answer:
    if page.is_by_index is not None:
        call.door.metrics.searched(page.table.full_name, page.is_by_index)
    forms = PartitionForms(call.door.catalog.storage, page.table)
    text = _writer(call, table).write(forms.read(page.partitions))
    if page.following is None:
        return f'{{"Partitions":{text}}}'
    token = make_token(call.operation, call.members, [page.following.after, page.following.search])
    return f'{{"Partitions":{text},"NextToken":{json.dumps(token)}}}'


def _segment(call: Call) -> Segment | None:
    if "Segment" not in call.members:
        return None
    number, total = call.members["Segment"]["SegmentNumber"], call.members["Segment"]["TotalSegments"]
    if number >= total:
        raise invalid_input(f"segment {number} of {total} does not exist; segments are numbered from 0")
    return Segment(number, total)


def _writer(call: Call, table: Found) -> PartitionWriter:
    without_columns = call.members.get("ExcludeColumnSchema", False)
    return PartitionWriter(table.entry, call.door.catalog_id, without_columns=without_columns)


def _get(call: Call) -> Answer:
    table, values = of_members(call), call.members["PartitionValues"]
    _require_keys(table, values)
    try:
        partition = call.door.entries.partition(table.entry.name, values)
    except PartitionNotFoundError:
        raise _missing() from None
    return f'{{"Partition":{_writer(call, table).write([partition])[1:-1]}}}'


def _missing() -> GlueError:
    return not_found("Cannot find partition.")


def _get_batch(call: Call) -> Answer:
    table = of_members(call)
    asked = [key["Values"] for key in call.members["PartitionsToGet"] if _has_keys(table, key["Values"])]
    partitions = call.door.entries.partitions_by_values(table.entry.name, asked)
    return f'{{"Partitions":{_writer(call, table).write(partitions)},"UnprocessedKeys":[]}}'


# --- changes ----------------------------------------------------------------------------------------------------------


def _given(call: Call, table: Found, given: Mapping[str, Any]) -> HivePartition:
    """Return the entry of a partition to write.

    Raises:
        GlueError: Its number of values is not that of the table's keys, or the table is an Iceberg table.
    """
    if table.is_iceberg:
        raise invalid_input(f"table {table.table.full_name} is an Iceberg table, whose partitions are in its metadata")
    partition = partition_from_glue(given, table.entry)
    _require_fit(table, partition.values)
    return partition


def _require_keys(table: Found, values: Sequence[str]) -> None:
    """Refuse to look for a partition whose number of values is not that of the table's keys: there is none.

    Raises:
        GlueError: It is not.
    """
    if not _has_keys(table, values):
        raise _missing()


def _has_keys(table: Found, values: Sequence[str]) -> bool:
    return len(values) == len(table.entry.partition_keys) and not table.is_iceberg


def _require_fit(table: Found, values: Sequence[str]) -> None:
    if not _has_keys(table, values):
        raise invalid_input(
            f"The number of partition keys do not match the number of partition values: "
            f"{len(table.entry.partition_keys)} key(s), {len(values)} value(s)"
        )


def _create(call: Call) -> Answer:
    table = of_members(call)
    partition = _given(call, table, call.members["PartitionInput"])
    try:
        call.door.entries.add_partitions(table.entry.name, [partition])
    except PartitionAlreadyExistsError:
        raise GlueError("AlreadyExistsException", "Partition already exists.") from None
    return {}


def _create_batch(call: Call) -> Answer:
    table = of_members(call)
    add = call.door.entries.add_partitions
    given = call.members["PartitionInputList"]
    try:
        # Almost always all are new and valid; then they are added together.
        add(table.entry.name, [_given(call, table, partition) for partition in given])
        return {}
    except _OF_MEMBERS:
        return _errors(
            given,
            lambda partition: add(table.entry.name, [_given(call, table, partition)]),
            lambda partition: {"PartitionValues": partition.get("Values", [])},
        )


def _errors(
    members: Iterable[Mapping[str, Any]],
    work: Callable[[Mapping[str, Any]], object],
    named: Callable[[Mapping[str, Any]], dict[str, Any]],
) -> Answer:
    """Work on the members of a batch by themselves; return those that failed, with the reasons."""
    errors = []
    for member in members:
        try:
            work(member)
        except PartitionNotFoundError:
            errors.append({**named(member), "ErrorDetail": detail(_missing())})
        except _OF_MEMBERS as error:
            errors.append({**named(member), "ErrorDetail": detail(error)})
    return {"Errors": errors} if errors else {}


def _update(call: Call) -> Answer:
    try:
        _change(call, of_members(call), call.members)
    except PartitionNotFoundError:
        raise _missing() from None
    return {}


def _change(call: Call, table: Found, entry: Mapping[str, Any]) -> None:
    values, given = entry["PartitionValueList"], entry["PartitionInput"]
    _require_keys(table, values)
    partition = _given(call, table, {"Values": values, **given})
    call.door.entries.alter_partitions(table.entry.name, [(values, partition)])


def _update_batch(call: Call) -> Answer:
    table = of_members(call)
    return _errors(
        call.members["Entries"],
        lambda entry: _change(call, table, entry),
        lambda entry: {"PartitionValueList": entry["PartitionValueList"]},
    )


def _delete(call: Call) -> Answer:
    table, values = of_members(call), call.members["PartitionValues"]
    _require_keys(table, values)
    try:
        # As in Glue, no file is deleted.
        call.door.entries.drop_partitions(table.entry.name, [values])
    except PartitionNotFoundError:
        raise _missing() from None
    return {}


def _delete_batch(call: Call) -> Answer:
    table, drop = of_members(call), call.door.entries.drop_partitions
    given = call.members["PartitionsToDelete"]
    try:
        drop(table.entry.name, [key["Values"] for key in given])
        return {}
    except _OF_MEMBERS:
        return _errors(
            given,
            lambda key: drop(table.entry.name, [key["Values"]]),
            lambda key: {"PartitionValues": key["Values"]},
        )


OPERATIONS = {
    "GetPartition": Operation(_get, Role.READER),
    "GetPartitions": Operation(_list, Role.READER),
    "BatchGetPartition": Operation(_get_batch, Role.READER),
    "CreatePartition": Operation(_create, Role.WRITER),
    "BatchCreatePartition": Operation(_create_batch, Role.WRITER),
    "UpdatePartition": Operation(_update, Role.WRITER),
    "BatchUpdatePartition": Operation(_update_batch, Role.WRITER),
    "DeletePartition": Operation(_delete, Role.WRITER),
    "BatchDeletePartition": Operation(_delete_batch, Role.WRITER),
}
