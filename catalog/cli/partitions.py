"""Commands about partitions."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from catalog.catalog import Catalog
from catalog.model import PartitionState


@click.command()
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


@click.command()
@click.argument("table")
@click.option("--where", "expression", help="Only the partitions that match this filter.")
def release(table: str, expression: str | None) -> None:
    """Make quarantined partitions of TABLE visible."""
    with Catalog.open() as catalog:
        released = catalog.release_partitions(table, expression)
    click.echo(f"Released {released:,} partition(s) of {table}.")
