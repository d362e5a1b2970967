"""Commands for the catalog itself: its schema, its files, its rights."""

from __future__ import annotations

import json

import click

from catalog.catalog import Catalog
from catalog.cli.output import print_table
from catalog.datafiles.conversion import unpublished_tables
from catalog.errors import CatalogError, FilesNotDeletedError, VerificationFailedError
from catalog.settings.fields import hours
from catalog.storage import Storage
from catalog.storage.engine import catalog_url
from catalog.storage.upgrade import newest_revision, read_revision
from catalog.storage.urls import shown_url


@click.command()
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


@click.command("spark-conf")
@click.option("--hms", metavar="HOST:PORT", default="127.0.0.1:9083", show_default=True, help="Hive Metastore's door.")
@click.option("--rest", metavar="URL", default="http://127.0.0.1:8181", show_default=True, help="Iceberg REST's door.")
@click.option("--jdbc", is_flag=True, help="Without a server: the Iceberg tables only, from the catalog's database.")
def spark_conf_(hms: str, rest: str, jdbc: bool) -> None:
    """Print the settings for Spark to read and write the catalog's tables through `calve serve`.

    Store them in a file for `--properties-file` of spark-sql, spark-shell, pyspark and spark-submit. Tables are
    `database.table`: Iceberg tables, and those with a partition scheme, come through Iceberg's REST protocol, all
    others through Hive Metastore's. With --jdbc, tables are `calve.database.table`, and the settings may contain the
    database's password.
    """
    # Imported late, because other commands do not need these modules.
    from catalog.iceberg.door_session import door_conf
    from catalog.iceberg.jdbc import spark_conf

    if not jdbc:
        click.echo(door_conf(hms, rest), nl=False)
        return
    with Catalog.open() as catalog:
        click.echo(spark_conf(catalog.storage.url), nl=False)


@click.command()
@click.argument("role")
def grants(role: str) -> None:
    """Print the SQL of a PostgreSQL role for Spark jobs, with only the rights that they need.

    Jobs use the role if CALVE_JOB_CATALOG_URL is a URL of the catalog with its name and password.
    """
    # Imported late, because other commands do not need this module.
    from catalog.storage.grants import job_grants

    with Catalog.open() as catalog:
        click.echo(job_grants(catalog.storage, role), nl=False)


@click.command()
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


@click.command()
@click.argument("table", required=False)
@click.option("--deep", "depth", flag_value="FOOTERS", help="Read the footers of all data files, too.")
@click.option("--full", "depth", flag_value="ROWS", help="Read all rows, too.")
@click.option(
    "--repair", is_flag=True, help="First renew the damaged rows of TABLE in the catalog; no file is written."
)
@click.option(
    "--most-partitions",
    type=click.IntRange(0),
    default=10_000,
    show_default=True,
    help="List all folders and verify indexes of Hive-style tables with at most so many partitions.",
)
@click.option(
    "--sample", type=click.IntRange(1), default=200, show_default=True, help="Partitions of larger tables to list."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def check(table: str | None, depth: str | None, repair: bool, most_partitions: int, sample: int, as_json: bool) -> None:
    """Report where the catalog differs from the files, for TABLE or all tables; without --repair, nothing is changed.

    Looks for missing, changed and unknown files, damaged metadata of Iceberg, file rows, partitions, counts, indexes
    and statistics that differ from them, shared locations, and abandoned operations. --deep and --full also read the
    files, of tables of every size. Fails if readers may get wrong answers, or writers wait.
    """
    # Imported late, because other commands do not need this module.
    from catalog.maintenance.findings import Depth

    if repair and table is None:
        raise click.UsageError("--repair needs a TABLE.")
    with Catalog.open() as catalog:
        if repair and table is not None:
            click.echo(f"Renewed: {catalog.maintenance.renew(table)}.", err=True)
        report = catalog.maintenance.check(
            table, most_partitions=most_partitions, sample=sample, depth=Depth[depth or "SIZES"]
        )
    if as_json:
        click.echo(json.dumps(report.as_json()))
    elif not report.findings:
        click.echo(str(report))
    else:
        print_table(
            ("FINDING", "TABLE", "COUNT", "WHERE", "REMEDY"),
            [
                (finding.kind, finding.table, f"{finding.count:,}", finding.places, finding.remedy)
                for finding in report.findings
            ],
        )
    if report.has_damage:
        raise VerificationFailedError(
            f"{report.damage} of {len(report.findings)} finding(s) make reads fail or wrong, or writers wait; see above"
        )
