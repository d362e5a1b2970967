"""`calve import`: tables of other metastores."""

from __future__ import annotations

import json

import click

from catalog.catalog import Catalog
from catalog.cli.output import print_table
from catalog.errors import TablesNotImportedError
from catalog.importing.partitions import ImportOptions
from catalog.importing.reports import HEADERS
from catalog.settings.places import allow_everything_by_default


@click.command("import")
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
    options = ImportOptions(updates=update, drops_vanished=drop_vanished, is_dry_run=dry_run)
    allow_everything_by_default()
    with Catalog.open() as catalog:
        plan, reports = catalog.imports.import_tables(source, patterns, options, requested_by="calve import")
    if as_json:
        for report in reports:
            click.echo(json.dumps(report.as_json()))
    elif reports:
        print_table(HEADERS, [report.row() for report in reports])
    else:
        click.echo(f"{plan.address} has no matching table.", err=True)
    if failures := plan.failures(reports):
        reasons = "; ".join(f"{report.table}: {report.reason}" for report in failures)
        raise TablesNotImportedError(f"{len(failures)} of {len(reports)} tables were not imported: {reasons}")
