"""The command that lists quality checks."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from catalog.catalog import Catalog
from catalog.cli.arguments import complete_tables, json_option, require_table
from catalog.cli.output import print_table, utc_time


@click.command()
@click.argument("table", required=False, shell_complete=complete_tables)
@click.option("--failed", is_flag=True, help="Only checks in which a partition failed.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="List at most this many.")
@json_option
def quality(table: str | None, failed: bool, limit: int, as_json: bool) -> None:
    """List the quality checks of TABLE, newest first, or the newest one of each table."""
    with Catalog.open() as catalog:
        results = catalog.quality
        if table is None:
            checks = results.latest(limit=limit, only_failed=failed)
        else:
            checks = results.history(table, limit=limit, only_failed=failed)
            require_table(catalog, None if checks else table)
    if as_json:
        for check in checks:
            facts = {**asdict(check), "checked_at": utc_time(check.checked_at_ms)}
            click.echo(json.dumps({name: value for name, value in facts.items() if name != "checked_at_ms"}))
    elif checks:
        rows = [
            (
                check.table,
                utc_time(check.checked_at_ms),
                f"{check.checked:,}",
                f"{check.failed:,}",
                check.failures[0] if check.failures else "",
                check.page or "",
            )
            for check in checks
        ]
        print_table(("TABLE", "CHECKED", "PARTITIONS", "FAILED", "FIRST FAILURE", "PAGE"), rows)
    else:
        kind = "failed quality check" if failed else "quality check"
        click.echo(f"There is no {kind} of {table or 'any table'}.", err=True)
