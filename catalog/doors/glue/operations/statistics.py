"""Glue's operations on the statistics of columns."""

from __future__ import annotations

from collections.abc import Sequence

from catalog.doors.glue.calls import Answer, Call, Operation
from catalog.doors.glue.failures import GlueError, invalid_input, not_found
from catalog.doors.glue.forms.statistics import statistics_from_glue, statistics_to_glue
from catalog.doors.glue.operations.finding import Found, of_members
from catalog.doors.glue.operations.tables import detail
from catalog.doors.serving.access import Role
from catalog.errors import PartitionNotFoundError


def _values(call: Call, table: Found) -> Sequence[str] | None:
    """Return the values of the partition whose statistics a request is about; None for those of the table.

    Raises:
        GlueError: There is not one for each partition key, or the table has no statistics here.
    """
    if table.is_iceberg:
        raise invalid_input(f"table {table.table.full_name} is an Iceberg table, whose statistics are in its metadata")
    values: Sequence[str] | None = call.members.get("PartitionValues")
    if values is not None and len(values) != len(table.entry.partition_keys):
        raise _missing_partition()
    return values


def _missing_partition() -> GlueError:
    return not_found("Cannot find partition.")


def _columns(table: Found) -> set[str]:
    return {column.name for column in (*table.entry.columns, *table.entry.partition_keys)}


def _unknown(table: Found, column: str) -> GlueError:
    return not_found(f"Column {column} not found in table {table.table.full_name}.")


def _without(column: str) -> GlueError:
    return not_found(f"Column {column} has no statistics.")


def _get(call: Call) -> Answer:
    table = of_members(call)
    names, known = [name.strip().lower() for name in call.members["ColumnNames"]], _columns(table)
    try:
        statistics = call.door.entries.statistics(table.entry.name, _values(call, table), names)
    except PartitionNotFoundError:
        raise _missing_partition() from None
    found = {one.column for one in statistics}
    missing = {name: _without(name) if name in known else _unknown(table, name) for name in names if name not in found}
    return {
        "ColumnStatisticsList": list(map(statistics_to_glue, statistics)),
        "Errors": [{"ColumnName": name, "Error": detail(error)} for name, error in missing.items()],
    }


def _update(call: Call) -> Answer:
    table = of_members(call)
    values, known = _values(call, table), _columns(table)
    given, errors = [], []
    for statistics in call.members["ColumnStatisticsList"]:
        try:
            if (name := statistics["ColumnName"].strip().lower()) not in known:
                raise _unknown(table, name)
            given.append(statistics_from_glue({**statistics, "ColumnName": name}))
        except GlueError as error:
            errors.append({"ColumnStatistics": statistics, "Error": detail(error)})
    try:
        call.door.entries.set_statistics(table.entry.name, values, given)
    except PartitionNotFoundError:
        raise _missing_partition() from None
    return {"Errors": errors} if errors else {}


def _delete(call: Call) -> Answer:
    table, column = of_members(call), call.members["ColumnName"].strip().lower()
    try:
        # As in Glue, a column need not have any.
        call.door.entries.delete_statistics(table.entry.name, _values(call, table), column)
    except PartitionNotFoundError:
        raise _missing_partition() from None
    return {}


OPERATIONS = {
    f"{verb}ColumnStatisticsFor{owner}": Operation(run, role)
    for owner in ("Table", "Partition")
    for verb, run, role in (
        ("Get", _get, Role.READER),
        ("Update", _update, Role.WRITER),
        ("Delete", _delete, Role.WRITER),
    )
}
