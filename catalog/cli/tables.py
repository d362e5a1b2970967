"""Commands that show tables."""

from __future__ import annotations

import json

import click

from catalog.catalog import Catalog
from catalog.cli.output import print_table
from catalog.model import ICEBERG, Table


@click.command()
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
        print_table(
            ("TABLE", "FORMAT", "PARTITIONED BY", "LOCATION"),
            [
                (t.full_name, _format(t), text, t.metadata_location or t.location)
                for t, text in zip(listed, keys, strict=True)
            ],
        )
    else:
        click.echo("There are no tables yet.", err=True)


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
