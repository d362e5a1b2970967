"""The command that lists source files that loads have set aside."""

from __future__ import annotations

import json
from itertools import islice

import click

from catalog.catalog import Catalog
from catalog.cli.arguments import complete_tables, count_option, json_option, limit_option, require_table
from catalog.cli.output import print_table, utc_time


@click.command("bad-files")
@click.argument("table", required=False, shell_complete=complete_tables)
@limit_option
@count_option
@json_option
def bad_files(table: str | None, limit: int | None, only_count: bool, as_json: bool) -> None:
    """List the source files that loads of TABLE, or of all tables, have set aside: why, since when, and by which load.

    A load tries them again when they change, when the settings to read them do, or with `--reload`.
    """
    with Catalog.open() as catalog:
        listed = list(islice(catalog.set_aside_files(table), limit))
        require_table(catalog, None if listed or only_count else table)
    if only_count:
        click.echo(json.dumps({"count": len(listed)}) if as_json else len(listed))
    elif as_json:
        for file in listed:
            details = {
                "table": file.table,
                "file": file.path,
                "reason": file.reason,
                "bad_rows": file.bad_row_count,
                "set_aside_at": utc_time(file.set_aside_at_ms or 0),
                "operation": file.operation_id,
            }
            click.echo(json.dumps(details))
    elif listed:
        print_table(
            ("TABLE", "FILE", "SINCE", "REASON"),
            [(file.table, file.path, utc_time(file.set_aside_at_ms or 0), file.reason) for file in listed],
        )
    else:
        click.echo(f"No files of {table or 'any table'} are set aside.", err=True)
