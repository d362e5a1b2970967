"""Commands about operations."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import click

from catalog.catalog import Catalog
from catalog.cli.arguments import count_option, json_option, require_table
from catalog.cli.output import print_table, utc_time
from catalog.operations.job_requests import ValidateSourceJob
from catalog.operations.records import UNFINISHED, Operation, OperationState

_STATES: Mapping[str, tuple[OperationState, ...]] = {
    **{state.label: state.same_for_people for state in OperationState},
    **{state.value: (state,) for state in OperationState},
}
"""The states by the names that people and JSON have for them."""


@click.command()
@click.argument("operation_id", required=False)
@click.option("--table", help="Only the operations of this table.")
@click.option("--state", type=click.Choice([*_STATES], case_sensitive=False), help="Only these.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="List this many at most.")
@count_option
@click.option("--follow", is_flag=True, help="Show the progress of OPERATION_ID until it has ended.")
@json_option
def operations(
    operation_id: str | None,
    table: str | None,
    state: str | None,
    limit: int,
    only_count: bool,
    follow: bool,
    as_json: bool,
) -> None:
    """List the latest operations, or show one."""
    if follow and operation_id is None:
        raise click.UsageError("--follow needs the id of an operation")
    with Catalog.open() as catalog:
        if operation_id is None:
            states = () if state is None else _STATES[state]
            if only_count:
                count = catalog.operations.count(table, states=states)
                click.echo(json.dumps({"count": count}) if as_json else count)
                return
            listed = catalog.operations.list(table, states=states, limit=limit)
            require_table(catalog, None if listed else table)
        else:
            listed = [_follow(catalog, operation_id) if follow else catalog.operations.get(operation_id)]
        quarantined = catalog.count_quarantined(listed)
    if as_json:
        for operation in listed:
            click.echo(json.dumps(_operation_json(operation, quarantined.get(operation.id, 0))))
    elif listed:
        print_table(
            ("OPERATION", "KIND", "TABLE", "STATE", "STARTED", "NOTE"),
            [
                (o.id, o.kind, o.table, o.state.label, utc_time(o.created_at_ms), _note(o, quarantined.get(o.id, 0)))
                for o in listed
            ],
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
            description = f"{operation.kind} {operation.table}: {operation.progress_note or operation.state.label}"
            progress.update(
                bar, description=description, completed=operation.progress_done, total=operation.progress_total
            )
            if operation.state not in UNFINISHED:
                return operation
            time.sleep(0.5)


def _note(operation: Operation, quarantined: int) -> str | None:
    if operation.failure_detail:
        return _shortened(operation.failure_detail)
    if quarantined:
        return f"{quarantined:,} partition(s) are quarantined: calve quarantine {operation.table}"
    if left_out := list(_left_out(operation)):
        return f"{', '.join(left_out)}; --json shows examples"
    return _shortened(operation.request.get("reason"))


def _left_out(operation: Operation) -> Iterator[str]:
    validated = operation.report.get(ValidateSourceJob.script) or {}
    if count := validated.get("set_aside", {}).get("files"):
        yield f"{count:,} file(s) were set aside (calve bad-files {operation.table})"
    if (discarded := validated.get("discarded", {})).get("files"):
        yield f"{discarded['rows']:,} row(s) and {discarded['values']:,} value(s) were left out by the contract"


def _shortened(text: str | None) -> str | None:
    """Return a string short enough for a table; `--json` shows it completely."""
    return text if text is None or len(text) <= 120 else text[:119] + "…"


def _operation_json(operation: Operation, quarantined: int) -> dict[str, Any]:
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
        "quarantined_partitions": quarantined,
        "started_at": utc_time(operation.created_at_ms),
        "report": dict(operation.report),
    }


@click.command("give-up")
@click.argument("operation_id")
def give_up(operation_id: str) -> None:
    """Cancel an unfinished operation: this releases its table, and none of its jobs can commit."""
    with Catalog.open() as catalog:
        catalog.operations.fail(operation_id, "CANCELLED", "cancelled by `calve give-up`")
        state = catalog.operations.get(operation_id).state
    click.echo(f"Operation {operation_id} is {state.label}.")
