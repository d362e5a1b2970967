"""Commands about operations."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

import click

from catalog.catalog import Catalog
from catalog.cli.output import print_table
from catalog.operations.records import UNFINISHED, Operation


@click.command()
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
        print_table(
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


@click.command("give-up")
@click.argument("operation_id")
def give_up(operation_id: str) -> None:
    """Cancel an unfinished operation: this releases its table, and none of its jobs can commit."""
    with Catalog.open() as catalog:
        catalog.operations.fail(operation_id, "CANCELLED", "cancelled by `calve give-up`")
        state = catalog.operations.get(operation_id).state
    click.echo(f"Operation {operation_id} is {state}.")
