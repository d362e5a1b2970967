"""Execution of statements: one function for each class of statement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from catalog.statements import model as m
from catalog.statements.context import Context
from catalog.statements.execution import (
    creating_as,
    databases,
    descriptions,
    indexes,
    migrations,
    partitions,
    rows,
    schemes,
    tables,
)
from catalog.statements.results import StatementResult

Handler = Callable[[Context, Any], StatementResult]

HANDLERS: Mapping[type[m.Statement], Handler] = {
    m.CreateDatabase: databases.create_database,
    m.DropDatabase: databases.drop_database,
    m.UseDatabase: databases.use_database,
    m.ShowDatabases: databases.show_databases,
    m.DescribeDatabase: databases.describe_database,
    m.ShowTables: databases.show_tables,
    m.CreateTable: tables.create_table,
    m.CreateTableAs: creating_as.create_table_as,
    m.CreateView: tables.create_view,
    m.DropTable: tables.drop_table,
    m.DropView: tables.drop_view,
    m.SetProperties: tables.set_properties,
    m.UnsetProperties: tables.unset_properties,
    m.AddColumns: tables.add_columns,
    m.ChangeColumn: tables.change_column,
    m.DropColumns: tables.drop_columns,
    m.RenameTable: tables.rename_table,
    m.SetLocation: tables.set_location,
    m.ShowColumns: descriptions.show_columns,
    m.DescribeTable: descriptions.describe_table,
    m.ShowCreateTable: descriptions.show_create_table,
    m.AddSchemePartitions: schemes.add_partitions,
    m.SplitPartition: schemes.split_partition,
    m.DropSchemePartitions: schemes.drop_partitions,
    m.MergePartitions: schemes.merge_partitions,
    m.SetPartitionNumber: schemes.set_partition_number,
    m.RollBackToSnapshot: schemes.roll_back_to_snapshot,
    m.RollBackToTimestamp: schemes.roll_back_to_timestamp,
    m.PlaceFiles: schemes.place_files,
    m.ShowPartitions: partitions.show_partitions,
    m.ExplainPartitions: partitions.explain_partitions,
    m.AddValuePartitions: partitions.add_partitions,
    m.DropValuePartitions: partitions.drop_partitions,
    m.SetPartitionLocation: partitions.set_location,
    m.SetPartitionFormat: partitions.set_format,
    m.SetPartitionProperties: partitions.set_properties,
    m.RenamePartition: partitions.rename,
    m.RepairTable: partitions.repair_table,
    m.CreateIndex: indexes.create_index,
    m.DropIndex: indexes.drop_index,
    m.ShowIndexes: indexes.show_indexes,
    m.MigrateTable: migrations.migrate,
    m.SnapshotTable: migrations.snapshot,
    m.AddFilesFromTable: migrations.add_files,
    m.RevertTable: migrations.revert,
    m.InsertValues: rows.insert_values,
    m.InsertQuery: rows.insert_query,
    m.DeleteRows: rows.delete_rows,
    m.UpdateRows: rows.update_rows,
    m.ForgetRows: rows.forget_rows,
    m.MergeRows: rows.merge_rows,
    m.TruncateTable: rows.truncate_table,
    m.CompactTable: rows.compact_table,
    m.LoadData: rows.load_data,
    m.ExplainSelect: rows.explain_select,
    m.Select: rows.select,
}
