"""The `calve` command."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, TextIO

import click

from catalog.catalog import Catalog
from catalog.cli.configuration import validate_config
from catalog.cli.reporting import ReportingGroup
from catalog.cli.statements import sql
from catalog.datafiles.conversion import unpublished_tables
from catalog.errors import CatalogError, FilesNotDeletedError, VerificationFailedError
from catalog.model import ICEBERG, IndexState, PartitionState, Table
from catalog.operations.records import UNFINISHED, Operation
from catalog.settings.fields import hours
from catalog.settings.places import allow_everything_by_default
from catalog.storage import Storage
from catalog.storage.engine import catalog_url
from catalog.storage.upgrade import newest_revision, read_revision
from catalog.storage.urls import shown_url


def _partitioned_by(table: Table) -> str:
    if table.scheme is not None:
        return f"{table.scheme.type} ({table.scheme.column} {table.scheme.column_type})"
    return ", ".join(f"{key.name} {key.type}" for key in table.partition_keys)


def _format(table: Table) -> str:
    if table.is_iceberg or table.is_stored_as_iceberg:
        return f"iceberg ({table.format})"
    return table.kind if table.is_view else table.format


def _stored_format(table: Table) -> str | None:
    """Return the format that creates such a table, as in `tables.yaml`; None for a view."""
    return None if table.is_view else ICEBERG if table.is_stored_as_iceberg else table.format


def _print_table(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    texts = [["" if cell is None else str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headers, *texts, strict=True)]
    for cells in (headers, *texts):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())


@click.group(cls=ReportingGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="calve", prog_name="calve")
def main() -> None:
    """Manage the partitions of a data lake.

    CALVE_CATALOG_URL names the catalog's database: postgresql://user:password@host/database, or
    sqlite:////absolute/path.db. Data is stored below CALVE_WAREHOUSE.
    """


main.add_command(sql)
main.add_command(validate_config)


@main.command()
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
def init(dry_run: bool) -> None:
    """Create or upgrade the catalog's schema. Safe to repeat.

    Tables with a partition scheme that an earlier version has created become Iceberg tables, too, one after the other.
    No data file is written.
    """
    if dry_run:
        _plan_init()
        return
    problems = []
    with Catalog.initialise() as catalog:
        for name, files in catalog.unpublished_tables().items():
            try:
                catalog.publish_table(name)
                click.echo(f"{name}: other engines can read it as an Iceberg table now ({files:,} files).")
            except CatalogError as error:
                problems.append(f"{name}: other engines cannot read it, and nothing else has changed: {error}")
        click.echo(f"The catalog {shown_url(catalog.storage.url)} is ready.")
    if problems:
        raise CatalogError("\n".join(problems))


def _plan_init() -> None:
    storage = Storage(catalog_url())
    try:
        revision = read_revision(storage)
        newest = newest_revision()
        if revision is None:
            click.echo(f"{shown_url(storage.url)} would get the schema of revision {newest}.")
            return
        if revision != newest:
            click.echo(f"The schema would be upgraded from revision {revision} to {newest}.")
        with storage.read() as connection:
            tables = unpublished_tables(connection)
        for name, files in tables.items():
            click.echo(f"{name} would become an Iceberg table, too ({files:,} files).")
        if revision == newest and not tables:
            click.echo("There is nothing to do.")
    finally:
        storage.close()


@main.command()
@click.option("--database", help="Only the tables of this database.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def tables(database: str | None, as_json: bool) -> None:
    """List the tables."""
    with Catalog.open() as catalog:
        listed = catalog.list_tables(database)
    if as_json:
        for table in listed:
            click.echo(
                json.dumps(
                    {
                        "table": table.full_name,
                        "kind": table.kind,
                        "table_type": table.table_type,
                        "metadata_location": table.metadata_location,
                        "partition_keys": [{"name": key.name, "type": key.type} for key in table.partition_keys],
                        "columns": [{"name": column.name, "type": column.type} for column in table.columns],
                        "scheme": None if table.scheme is None else table.scheme.as_json(),
                        "format": _stored_format(table),
                        "location": table.location or None,
                    }
                )
            )
    elif listed:
        keys = [_partitioned_by(table) for table in listed]
        _print_table(
            ("TABLE", "FORMAT", "PARTITIONED BY", "LOCATION"),
            [
                (t.full_name, _format(t), text, t.metadata_location or t.location)
                for t, text in zip(listed, keys, strict=True)
            ],
        )
    else:
        click.echo("There are no tables yet.", err=True)


@main.command()
@click.argument("table")
@click.option(
    "--where", "expression", help="Filter on the partition keys, for instance \"origin = 'JFK' and month > 6\"."
)
@click.option("--explain", is_flag=True, help="Explain how the partitions were found, instead of listing them.")
@click.option("--quarantined", is_flag=True, help="List partitions hidden from readers instead.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def partitions(table: str, expression: str | None, explain: bool, quarantined: bool, as_json: bool) -> None:
    """List the partitions of TABLE, or those that match a filter."""
    with Catalog.open() as catalog:
        if explain:
            explanation = catalog.explain_partitions(table, expression)
            click.echo(json.dumps(explanation.as_json()) if as_json else str(explanation))
            return
        definition = catalog.get_table(table)
        if definition.scheme is not None:
            for scheme_partition in catalog.scheme_partitions(table, expression):
                click.echo(json.dumps(asdict(scheme_partition)) if as_json else scheme_partition.text)
            return
        state = PartitionState.QUARANTINED if quarantined else PartitionState.VISIBLE
        for partition in catalog.get_partitions(table, expression, state=state):
            if not as_json:
                click.echo(partition.name(definition))
                continue
            fields = {
                "partition": partition.name(definition),
                "values": partition.as_dict(definition),
                "location": None if definition.is_stored_as_iceberg else partition.location,
                "row_count": partition.row_count,
                "file_count": partition.file_count,
                "size_bytes": partition.size_bytes,
            }
            click.echo(json.dumps(fields))


@main.command()
@click.argument("table")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def indexes(table: str, as_json: bool) -> None:
    """List the partition indexes of TABLE, with the reasons of failures."""
    with Catalog.open() as catalog:
        listed = catalog.get_partition_indexes(table)
    if as_json:
        for index in listed:
            fields: dict[str, Any] = {"index": index.name, "keys": list(index.keys), "state": index.state}
            if index.state is IndexState.FAILED:
                fields |= {"failure_code": index.failure_code, "failure_detail": index.failure_detail}
            click.echo(json.dumps(fields))
    elif listed:
        _print_table(
            ("INDEX", "KEYS", "STATE", "FAILURE"),
            [
                (i.name, ", ".join(i.keys), i.state, i.failure_detail and f"{i.failure_code}: {i.failure_detail}")
                for i in listed
            ],
        )
    else:
        click.echo(f"{table} has no partition indexes.", err=True)


@main.command()
@click.argument("table")
@click.argument("index", required=False)
@click.option("--repair", is_flag=True, help="Repair differences.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def verify(table: str, index: str | None, repair: bool, as_json: bool) -> None:
    """Compare the ACTIVE partition indexes of TABLE, or one INDEX, with its partitions.

    Fails if there are differences that were not repaired. The table stays readable and writable.
    """
    with Catalog.open() as catalog:
        known = catalog.get_partition_indexes(table)
        names = [index] if index else [active.name for active in known if active.state is IndexState.ACTIVE]
        differing = []
        for name in names:
            verification = catalog.verify_partition_index(table, name, repair=repair)
            click.echo(json.dumps(verification.as_dict()) if as_json else verification)
            if not verification.is_exact:
                differing.append(name)
    if differing:
        raise VerificationFailedError(f"{', '.join(differing)} of {table} differ from its partitions")
    if not names:
        click.echo(f"{table} has no ACTIVE partition indexes.", err=True)


@main.command()
@click.argument("table")
@click.option("--queries", "file", type=click.File(encoding="utf-8"), help="SELECTs that read it; each ends with `;`.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def advise(table: str, file: TextIO | None, as_json: bool) -> None:
    """Recommend a partition scheme for TABLE: measures its columns, and what the queries would read, with Spark.

    For a table with a partition scheme, also recommends which partitions to split, merge or add.
    """
    # Imported late, because other commands do not need these modules.
    from catalog.advice.report import HEADERS, advise_table
    from catalog.statements.engine import start_engine
    from catalog.statements.splitting import split

    queries = [] if file is None else [statement.text for statement in split(file.read())]
    with Catalog.open() as catalog:
        definition = catalog.get_table(table)
        rebalancing = None if definition.scheme is None else catalog.rebalancing.advise(definition.full_name)
        with closing(start_engine(catalog)) as engine:
            report = advise_table(engine, definition, queries, definition.database, rebalancing)
    if as_json:
        click.echo(json.dumps(report.as_json()))
        return
    _print_table(HEADERS, report.rows())
    for line in report.lines():
        click.echo(line)


@main.command("import")
@click.argument("source")
@click.argument("patterns", nargs=-1)
@click.option("--update", is_flag=True, help="Update definitions that differ from SOURCE.")
@click.option("--drop-vanished", is_flag=True, help="Drop partitions that SOURCE does not have; their files stay.")
@click.option("--dry-run", is_flag=True, help="Only report what would be done.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def import_(
    source: str, patterns: tuple[str, ...], update: bool, drop_vanished: bool, dry_run: bool, as_json: bool
) -> None:
    """Import tables of a Hive Metastore or of Glue into the catalog, without changing files.

    SOURCE is hms://host:port or glue://region, optionally with PATTERNS: hms://host:9083/sales, …/sales.*,
    …/sales.order_*,crm.people. Without patterns, everything is imported. For Glue, `?endpoint_url=http://host:port`
    sets another endpoint; credentials come from the environment, as for every AWS client.

    Repeated, it adds new partitions, and reports differences and vanished partitions. Fails if a table could not be
    imported, after importing the others.
    """
    # Imported late, because other commands do not need these modules.
    from catalog.errors import TablesNotImportedError
    from catalog.importing.partitions import ImportOptions
    from catalog.importing.reports import HEADERS

    options = ImportOptions(updates=update, drops_vanished=drop_vanished, is_dry_run=dry_run)
    allow_everything_by_default()
    with Catalog.open() as catalog:
        plan, reports = catalog.imports.import_tables(source, patterns, options, requested_by="calve import")
    if as_json:
        for report in reports:
            click.echo(json.dumps(report.as_json()))
    elif reports:
        _print_table(HEADERS, [report.row() for report in reports])
    else:
        click.echo(f"{plan.address} has no matching table.", err=True)
    if failures := plan.failures(reports):
        reasons = "; ".join(f"{report.table}: {report.reason}" for report in failures)
        raise TablesNotImportedError(f"{len(failures)} of {len(reports)} tables were not imported: {reasons}")


@main.command("spark-conf")
def spark_conf_() -> None:
    """Print the settings for Spark to read and write the catalog's Iceberg tables.

    Store them in a file for `--properties-file` of spark-sql, spark-shell and spark-submit, where the tables are
    `calve.database.table`. The settings may contain the database's password.
    """
    # Imported late, because other commands do not need this module.
    from catalog.iceberg.jdbc import spark_conf

    with Catalog.open() as catalog:
        click.echo(spark_conf(catalog.storage.url), nl=False)


@main.command()
@click.argument("role")
def grants(role: str) -> None:
    """Print the SQL of a PostgreSQL role for Spark jobs, with only the rights that they need.

    Jobs use the role if CALVE_JOB_CATALOG_URL is a URL of the catalog with its name and password.
    """
    # Imported late, because other commands do not need this module.
    from catalog.storage.grants import job_grants

    with Catalog.open() as catalog:
        click.echo(job_grants(catalog.storage, role), nl=False)


@main.command("cancel-build")
@click.argument("table")
@click.argument("index")
def cancel_build(table: str, index: str) -> None:
    """Cancel the build of a partition index of TABLE: the index becomes FAILED, and its items are deleted."""
    with Catalog.open() as catalog:
        cancelled = catalog.cancel_partition_index_build(table, index, reason="cancelled by `calve cancel-build`")
    click.echo(f"Partition index {cancelled.name} of {table} is {cancelled.state}: {cancelled.failure_code}.")


@main.command()
@click.argument("table")
@click.option("--where", "expression", help="Only the partitions that match this filter.")
def release(table: str, expression: str | None) -> None:
    """Make quarantined partitions of TABLE visible."""
    with Catalog.open() as catalog:
        released = catalog.release_partitions(table, expression)
    click.echo(f"Released {released:,} partition(s) of {table}.")


@main.command("give-up")
@click.argument("operation_id")
def give_up(operation_id: str) -> None:
    """Cancel an unfinished operation: this releases its table, and none of its jobs can commit."""
    with Catalog.open() as catalog:
        catalog.operations.fail(operation_id, "CANCELLED", "cancelled by `calve give-up`")
        state = catalog.operations.get(operation_id).state
    click.echo(f"Operation {operation_id} is {state}.")


@main.command()
@click.argument("table", required=False)
@click.option("--grace-hours", type=click.FloatRange(0), default=24.0, show_default=True, help="Keep younger files.")
@click.option("--dry-run", is_flag=True, help="Only report what would be deleted.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def vacuum(table: str | None, grace_hours: float, dry_run: bool, as_json: bool) -> None:
    """Delete obsolete files of TABLE, or of all tables.

    These are files that were replaced or dropped with partitions of a scheme, files of jobs that did not commit, and
    files left by an interrupted PURGE. Readers that started within the grace period still find their files. Files of
    tables and of Hive-style partitions that were dropped without PURGE stay. Fails if something could not be deleted.
    """
    with Catalog.open() as catalog:
        report = catalog.vacuum(table, grace=hours("--grace-hours", grace_hours), dry_run=dry_run)
    if text := json.dumps(report.as_json()) if as_json else str(report):
        click.echo(text)
    if report.problems:
        raise FilesNotDeletedError("; ".join(report.problems))


@main.command()
@click.argument("operation_id", required=False)
@click.option("--table", help="Only the operations of this table.")
@click.option("--follow", is_flag=True, help="Show the progress of OPERATION_ID until it has ended.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def operations(operation_id: str | None, table: str | None, follow: bool, as_json: bool) -> None:
    """List the latest operations, or show one."""
    if follow and operation_id is None:
        raise click.UsageError("--follow needs the id of an operation")
    with Catalog.open() as catalog:
        if operation_id is None:
            listed = catalog.operations.list(table)
        else:
            listed = [_follow(catalog, operation_id) if follow else catalog.operations.get(operation_id)]
    if as_json:
        for operation in listed:
            click.echo(json.dumps(_operation_json(operation)))
    elif listed:
        _print_table(
            ("OPERATION", "KIND", "TABLE", "STATE", "STARTED", "FAILURE"),
            [(o.id, o.kind, o.table, o.state, _time(o.created_at_ms), _shortened(o.failure_detail)) for o in listed],
        )
    else:
        click.echo("There are no operations yet.", err=True)


def _follow(catalog: Catalog, operation_id: str) -> Operation:
    """Show a progress bar on a terminal until an operation has ended; return the operation."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task(operation_id)
        while True:
            operation = catalog.operations.get(operation_id)
            description = f"{operation.kind} {operation.table}: {operation.progress_note or operation.state}"
            progress.update(
                bar, description=description, completed=operation.progress_done, total=operation.progress_total
            )
            if operation.state not in UNFINISHED:
                return operation
            time.sleep(0.5)


def _shortened(text: str | None) -> str | None:
    """Return a string short enough for a table; `--json` shows it completely."""
    return text if text is None or len(text) <= 120 else text[:119] + "…"


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _operation_json(operation: Operation) -> dict[str, Any]:
    return {
        "operation": operation.id,
        "kind": operation.kind,
        "table": operation.table,
        "state": operation.state,
        "progress": {
            "done": operation.progress_done,
            "total": operation.progress_total,
            "note": operation.progress_note,
        },
        "failure_code": operation.failure_code,
        "failure_detail": operation.failure_detail,
        "started_at": _time(operation.created_at_ms),
        "report": dict(operation.report),
    }
