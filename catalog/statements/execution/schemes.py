"""Execution of changes of partitions of tables with a partition scheme, and of their roll-backs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.rebalancing import changes
from catalog.statements import model as m
from catalog.statements.context import Context
from catalog.statements.results import StatementResult

_REPORTED = {
    "rows_moved": "row(s) moved",
    "files_reassigned": "file(s) assigned to another partition",
    "rows_deleted": "row(s) deleted",
}


def add_partitions(context: Context, statement: m.AddSchemePartitions) -> StatementResult:
    """Run ADD PARTITION ('…', …)."""
    return _change(context, statement, changes.AddPartitions(statement.items))


def split_partition(context: Context, statement: m.SplitPartition) -> StatementResult:
    """Run SPLIT PARTITION (id) INTO ('…', …)."""
    return _change(context, statement, changes.SplitPartition(statement.partition_id, statement.items))


def drop_partitions(context: Context, statement: m.DropSchemePartitions) -> StatementResult:
    """Run DROP PARTITION (id, …) [WITH DATA]."""
    return _change(context, statement, changes.DropPartitions(statement.partition_ids, statement.with_data))


def merge_partitions(context: Context, statement: m.MergePartitions) -> StatementResult:
    """Run MERGE PARTITION (id, …)."""
    return _change(context, statement, changes.MergePartitions(statement.partition_ids))


def set_partition_number(context: Context, statement: m.SetPartitionNumber) -> StatementResult:
    """Run SET PARTITION_NUM n."""
    return _change(context, statement, changes.SetPartitionCount(statement.count))


def place_files(context: Context, statement: m.PlaceFiles) -> StatementResult:
    """Run CALL calve.system.place('…')."""
    return _change(context, statement, changes.PlaceFiles())


def _change(context: Context, statement: m.TableStatement, change: changes.PartitionChange) -> StatementResult:
    """Run a change, with the engine only if it moves rows."""
    name = context.name(statement.table)
    with context.operation() as operation:
        report: Mapping[str, Any] | None = context.catalog.rebalancing.change_catalog(
            operation.id, name, change, requested_by=operation.requested_by
        )
        if report is None:
            report = context.engine.rebalance(operation, context.catalog.get_table(name), change)
    facts = [f"{report[field]:,} {words}" for field, words in _REPORTED.items() if report.get(field)]
    return StatementResult(text=", ".join(facts))


def roll_back_to_snapshot(context: Context, statement: m.RollBackToSnapshot) -> StatementResult:
    """Run CALL calve.system.rollback_to_snapshot."""
    name = context.name(statement.table)
    with context.operation() as operation:
        return _rolled_back(
            context.catalog.roll_backs.to_snapshot(
                name, statement.snapshot_id, operation_id=operation.id, requested_by=operation.requested_by
            )
        )


def roll_back_to_timestamp(context: Context, statement: m.RollBackToTimestamp) -> StatementResult:
    """Run CALL calve.system.rollback_to_timestamp."""
    name = context.name(statement.table)
    with context.operation() as operation:
        return _rolled_back(
            context.catalog.roll_backs.to_time(
                name, statement.at, operation_id=operation.id, requested_by=operation.requested_by
            )
        )


def _rolled_back(report: Mapping[str, Any]) -> StatementResult:
    # Names and order of the columns are Iceberg's.
    columns = ("previous_snapshot_id", "current_snapshot_id")
    text = (
        f"{report['table']} has {report['rows']:,} row(s) in {report['files']:,} file(s) again; before: "
        f"{report['rows_before']:,} row(s) in {report['files_before']:,} file(s), "
        f"snapshot {report['snapshot_id_before']}"
    )
    return StatementResult(columns, [[report["snapshot_id_before"], report["snapshot_id"]]], text=text)
