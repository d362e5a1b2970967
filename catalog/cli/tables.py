"""Commands that show tables."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

from catalog.catalog import Catalog
from catalog.cli.arguments import count_option, json_option, limit_option, table_argument
from catalog.cli.output import print_table
from catalog.model import ICEBERG, Table


@click.command()
@click.option("--database", help="Only the tables of this database.")
@limit_option
@count_option
@json_option
def tables(database: str | None, limit: int | None, only_count: bool, as_json: bool) -> None:
    """List the tables."""
    with Catalog.open() as catalog:
        listed = catalog.list_tables(database)[:limit]
    if only_count:
        click.echo(json.dumps({"count": len(listed)}) if as_json else len(listed))
    elif as_json:
        for table in listed:
            click.echo(json.dumps(_table_json(table)))
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


def _table_json(table: Table) -> dict[str, Any]:
    return {
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


@click.command()
@json_option
def databases(as_json: bool) -> None:
    """List the databases."""
    with Catalog.open() as catalog:
        listed = catalog.list_databases()
    if as_json:
        for database in listed:
            click.echo(json.dumps(asdict(database)))
    elif listed:
        rows = [(database.name, database.location, database.description) for database in listed]
        print_table(("DATABASE", "LOCATION", "DESCRIPTION"), rows)
    else:
        click.echo("There are no databases yet.", err=True)


@click.command()
@table_argument
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def describe(table: str, as_json: bool) -> None:
    """Show the columns of TABLE, its partition keys and indexes, and how many partitions, files and rows it has."""
    # Imported late, because other commands do not need it.
    from catalog.statements.execution.descriptions import described, described_columns, facts

    with Catalog.open() as catalog:
        definition = described(catalog, table)
        found = [(name, value) for name, value in facts(catalog, definition) if value]
    if as_json:
        names = ((name.lower().replace(" ", "_"), value) for name, value in found)
        details = {name: int(value) if value.isdecimal() else value for name, value in names}
        click.echo(json.dumps({**_table_json(definition), "details": details}))
        return
    columns, keys = described_columns(definition)
    rows = [
        (column.name, column.type, kind, column.comment)
        for kind, group in (("", columns), ("partition key", keys))
        for column in group
    ]
    print_table(("COLUMN", "TYPE", "", "COMMENT"), rows)
    click.echo()
    print_table(("DETAIL", "VALUE"), found)
