"""Execution of migrations and reverts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from catalog.migration.requests import MigrationRequest, OnDuplicate, OnUnusable, RecursiveDirectory, Timestamps
from catalog.operations.records import OperationKind
from catalog.statements import model as m
from catalog.statements.context import Context, pointing_at
from catalog.statements.results import StatementResult
from catalog.statements.terms import TableReference

_COLUMNS = ("table", "files", "rows", "bytes", "partitions_verified", "metadata_location")


def migrate(context: Context, statement: m.MigrateTable) -> StatementResult:
    """Run CALL iceberg.system.migrate."""
    return _migrate(context, statement, statement.table, _request(statement, OperationKind.MIGRATE))


def snapshot(context: Context, statement: m.SnapshotTable) -> StatementResult:
    """Run CALL iceberg.system.snapshot."""
    default_database = statement.table.database or context.database
    target = f"{statement.target.database or default_database}.{statement.target.name}"
    return _migrate(context, statement, statement.table, _request(statement, OperationKind.SNAPSHOT, target=target))


def add_files(context: Context, statement: m.AddFilesFromTable) -> StatementResult:
    """Run ALTER TABLE … EXECUTE add_files_from_table."""
    target = context.name(statement.table)
    request = _request(statement, OperationKind.ADD_FILES, target=target, partitions=statement.partitions)
    return _migrate(context, statement, statement.source, request)


def revert(context: Context, statement: m.RevertTable) -> StatementResult:
    """Run CALL iceberg.system.revert."""
    name = context.name(statement.table)
    with context.operation() as operation:
        report = context.catalog.migrations.revert(
            operation.id,
            name,
            lose_data=statement.lose_data,
            requested_by=operation.requested_by,
            confirmation=context.confirmation,
        )
    table, lost = context.catalog.get_table(name), report["lost"]
    lines = [f"{table.full_name} is a Hive table again; its Iceberg metadata was {report['metadata_location']}"]
    lines += _lost(lost)
    columns = ("table", "metadata_location", "rows_added_lost", "rows_deleted_lost")
    row = [table.full_name, report["metadata_location"], lost["rows_added"], lost["rows_deleted"]]
    return StatementResult(columns, [row], text="\n".join(lines))


def _lost(lost: Mapping[str, Any]) -> Iterator[str]:
    if lost["snapshots"]:
        yield (
            f"{lost['snapshots']:,} commit(s) since the migration are lost: {lost['rows_added']:,} row(s) added and "
            f"{lost['rows_deleted']:,} deleted"
        )
    if not lost["is_traceable"]:
        yield "files of the table may be missing; run MSCK, or check that the table can be read"


def _request(statement: m.MigrationStatement, kind: OperationKind, **fields: Any) -> MigrationRequest:
    options = statement.options
    return MigrationRequest(
        kind=kind,
        recursive_directory=cast(RecursiveDirectory, options.get("recursive_directory", "fail")),
        timestamps=cast("Timestamps | None", options.get("timestamps")),
        unusable_files=OnUnusable(options.get("unusable_files", OnUnusable.FAIL)),
        duplicate_files=OnDuplicate(options.get("duplicate_files", OnDuplicate.FAIL)),
        target_location=options.get("target_location"),
        flip_source=bool(options.get("flip_source", False)),
        verify=statement.verify,
        **fields,
    )


def _migrate(
    context: Context, statement: m.MigrationStatement, source: TableReference, request: MigrationRequest
) -> StatementResult:
    """Plan, stage, verify and flip; refuse tables that cannot be migrated before Spark is started."""
    catalog = context.catalog
    place = "source" if "source" in statement.places else "table"
    with pointing_at(statement, place):
        table = catalog.get_table(context.name(source))
        if table.has_file_rows:
            # Raises an error that points at the source; for errors raised later, the position would be wrong.
            catalog.migrations.plan(table.full_name, request)
    with context.operation() as operation:
        known = catalog.operations.find(operation.id)
        warnings: tuple[str, ...] = ()
        # After the commit, planning again would refuse the table, because it is an Iceberg table now.
        if known is None or not known.is_committed:
            warnings = catalog.migrations.plan(table.full_name, request, operation_id=operation.id).warnings
        report = context.engine.migrate(operation, table, request, verified_partitions=statement.verified_partitions)
    counted = f"{report['files']:,} file(s) and {report['rows']:,} row(s)"
    is_addition = request.kind is OperationKind.ADD_FILES
    lines = [
        f"{report['target']} now has {counted} of {table.full_name}"
        if is_addition
        else f"{report['target']} is now an Iceberg table with {counted}",
        f"metadata: {report['metadata_location']}",
        *_verified(report),
        *(f"warning: {warning}" for warning in (*warnings, *report.get("warnings", ()))),
        *_skipped(report),
    ]
    verified = report.get("partitions_verified")
    row = [*(report[name] for name in ("target", "files", "rows", "bytes")), verified, report["metadata_location"]]
    return StatementResult(_COLUMNS, [row], text="\n".join(lines))


def _verified(report: Mapping[str, Any]) -> Iterator[str]:
    count = report.get("partitions_verified")
    yield (
        "the rows of Hive and Iceberg were not compared"
        if count is None
        else f"the rows of Hive and Iceberg were compared in {count:,} of {report['partitions_total']:,} partition(s)"
    )


def _skipped(report: Mapping[str, Any]) -> Iterator[str]:
    if report.get("problem_count"):
        yield f"{report['problem_count']:,} file(s) were skipped:"
        yield from (f"  {file['path']}: {file['message']} ({file['problem']})" for file in report["problems"])
    if report.get("duplicates"):
        yield f"{report['duplicates']:,} file(s) were skipped, because the table already has them"
