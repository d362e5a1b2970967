"""Commands about partitions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from typing import Any

import click

from catalog.catalog import Catalog
from catalog.cli.arguments import complete_tables, count_option, json_option, limit_option, table_argument, where_option
from catalog.cli.output import print_table
from catalog.model import Partition, PartitionState, Table

_STATES = {"visible": PartitionState.VISIBLE, "quarantined": PartitionState.QUARANTINED, "all": None}


@click.command()
@table_argument
@where_option
@click.option("--explain", is_flag=True, help="Explain how the partitions were found, instead of listing them.")
@click.option("--quarantined", is_flag=True, help="As --state quarantined.")
@click.option(
    "--state",
    type=click.Choice(list(_STATES)),
    default="visible",
    show_default=True,
    help="Partitions that readers see, those hidden from them, or both.",
)
@click.option(
    "--sort",
    metavar="ORDER",
    help="List in an order: newest, rows, bytes, files, file_bytes (the mean size of a file) or a partition key.",
)
@click.option("--ascending", is_flag=True, help="List the least or the oldest first, not the greatest or the newest.")
@limit_option
@count_option
@json_option
def partitions(
    table: str,
    expression: str | None,
    explain: bool,
    quarantined: bool,
    state: str,
    sort: str | None,
    ascending: bool,
    limit: int | None,
    only_count: bool,
    as_json: bool,
) -> None:
    """List the partitions of TABLE, or those that match a filter."""
    with Catalog.open() as catalog:
        if explain:
            explanation = catalog.explain_partitions(table, expression)
            click.echo(json.dumps(explanation.as_json()) if as_json else str(explanation))
            return
        definition = catalog.get_table(table)
        wanted = PartitionState.QUARANTINED if quarantined else _STATES[state]
        is_sorted = sort is not None or ascending
        found: Iterable[Any]
        if is_sorted and definition.scheme is not None:
            raise click.UsageError(
                f"the partitions of {table} are listed in the order of its scheme; leave out --sort and --ascending"
            )
        if is_sorted:
            found = catalog.browsing.ordered(table, expression, sort=sort, descending=not ascending, state=wanted)
        elif definition.scheme is not None:
            found = catalog.scheme_partitions(table, expression)
        else:
            found = catalog.get_partitions(table, expression, state=wanted)
        found = islice(found, limit)
        if only_count:
            count = sum(1 for _ in found)
            click.echo(json.dumps({"count": count}) if as_json else count)
            return
        for partition in found:
            click.echo(partition_line(definition, partition, as_json=as_json))


def partition_line(table: Table, partition: Any, *, as_json: bool) -> str:
    """Return a line about a partition, of a scheme or of values."""
    if table.scheme is not None:
        return json.dumps(asdict(partition)) if as_json else str(partition.text)
    if not as_json:
        return str(partition.name(table))
    return json.dumps(
        {
            "partition": partition.name(table),
            "values": partition.as_dict(table),
            "location": None if table.is_stored_as_iceberg else partition.location,
            "row_count": partition.row_count,
            "file_count": partition.file_count,
            "size_bytes": partition.size_bytes,
            "state": partition.state,
        }
    )


@click.command("drop-partitions")
@table_argument
@where_option
@click.option("--all", "drops_all", is_flag=True, help="Drop all partitions.")
@click.option("--purge", is_flag=True, help="Delete the files that Calve has written, too.")
@click.option("--dry-run", is_flag=True, help="Only list the partitions.")
def drop_partitions(table: str, expression: str | None, drops_all: bool, purge: bool, dry_run: bool) -> None:
    """Drop the partitions of TABLE that match a filter. Their files stay unless they are purged."""
    if (expression is None) != drops_all:
        raise click.UsageError("give either --where, or --all to drop all partitions")
    with Catalog.open() as catalog:
        if dry_run:
            definition = catalog.get_table(table)
            for partition in catalog.get_partitions(table, expression):
                click.echo(partition.name(definition))
        elif purge:
            click.echo(catalog.purge_partitions(table, expression))
        else:
            click.echo(f"Dropped {catalog.drop_partitions(table, expression):,} partition(s) of {table}.")


@click.command()
@click.argument("table", required=False, shell_complete=complete_tables)
@where_option
@click.option("--release", is_flag=True, help="Make the partitions visible.")
@click.option("--reason", help="Why they are released; recorded in the journal: `calve operations`.")
@limit_option
@count_option
@json_option
def quarantine(
    table: str | None,
    expression: str | None,
    release: bool,
    reason: str | None,
    limit: int | None,
    only_count: bool,
    as_json: bool,
) -> None:
    """List the partitions that are hidden from readers, each with the checks that it failed, of TABLE or of all tables.

    With a TABLE, they can be released. `calve drop-partitions` cannot drop them; ALTER TABLE … DROP PARTITION does.
    """
    if release != bool(reason):
        raise click.UsageError("a release needs both --release and --reason")
    if table is None and (release or expression is not None):
        raise click.UsageError("--where and --release are for the partitions of one table; name the TABLE")
    with Catalog.open() as catalog:
        if table is None:
            _show_all_quarantined(catalog, limit, only_count=only_count, as_json=as_json)
            return
        if release:
            _release(catalog, table, expression, reason)
            return
        definition = catalog.get_table(table)
        found = islice(catalog.get_partitions(table, expression, state=PartitionState.QUARANTINED), limit)
        if only_count:
            count = sum(1 for _ in found)
            click.echo(json.dumps({"count": count}) if as_json else count)
            return
        rows = list(_with_failures(catalog, definition, found))
    if as_json:
        for name, failures in rows:
            click.echo(json.dumps({"partition": name, "failures": failures}))
    elif rows:
        print_table(("PARTITION", "FAILED CHECKS"), [(name, "; ".join(failures)) for name, failures in rows])
    else:
        click.echo(f"{table} has no quarantined partitions.", err=True)


def _show_all_quarantined(catalog: Catalog, limit: int | None, *, only_count: bool, as_json: bool) -> None:
    if only_count:
        counts = catalog.count_quarantined_partitions()
        total = min(sum(counts.values()), limit or sum(counts.values()))
        click.echo(json.dumps({"count": total}) if as_json else total)
        return
    rows = list(islice(_all_quarantined(catalog), limit))
    if as_json:
        for name, partition, failures in rows:
            click.echo(json.dumps({"table": name, "partition": partition, "failures": failures}))
    elif rows:
        shown = [(name, partition, "; ".join(failures)) for name, partition, failures in rows]
        print_table(("TABLE", "PARTITION", "FAILED CHECKS"), shown)
    else:
        click.echo("No table has quarantined partitions.", err=True)


def _all_quarantined(catalog: Catalog) -> Iterator[tuple[str, str, list[str]]]:
    for name in sorted(catalog.count_quarantined_partitions()):
        table = catalog.get_table(name)
        hidden = catalog.get_partitions(name, state=PartitionState.QUARANTINED)
        yield from ((name, partition, failures) for partition, failures in _with_failures(catalog, table, hidden))


def _with_failures(catalog: Catalog, table: Table, partitions: Iterable[Partition]) -> Iterable[tuple[str, list[str]]]:
    # Imported late: other commands about partitions do not need it.
    from catalog.storage.bulk import batched

    for batch in batched(partitions):
        checks = catalog.quality.get_many([partition.id for partition in batch])
        for partition in batch:
            check = checks.get(partition.id)
            failures = ["not checked yet"] if check is None else [str(failure) for failure in check.failures]
            yield partition.name(table), failures


def _release(catalog: Catalog, table: str, expression: str | None, reason: str | None) -> None:
    released = catalog.release_partitions(table, expression, reason=reason, requested_by="calve")
    click.echo(f"Released {released:,} partition(s) of {table}.")


@click.command()
@table_argument
@where_option
@click.option("--reason", help="Why they are released; recorded in the journal: `calve operations`.")
def release(table: str, expression: str | None, reason: str | None) -> None:
    """Make quarantined partitions of TABLE visible."""
    with Catalog.open() as catalog:
        _release(catalog, table, expression, reason)
