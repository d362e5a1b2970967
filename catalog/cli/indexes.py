"""Commands about partition indexes."""

from __future__ import annotations

import json
from typing import Any

import click

from catalog.catalog import Catalog
from catalog.cli.output import print_table
from catalog.errors import VerificationFailedError
from catalog.model import IndexState


@click.command()
@click.argument("table")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def indexes(table: str, as_json: bool) -> None:
    """List the partition indexes of TABLE, with the reasons of failures."""
    with Catalog.open() as catalog:
        listed = catalog.get_partition_indexes(table)
    if as_json:
        for index in listed:
            fields: dict[str, Any] = {"index": index.name, "keys": list(index.keys), "state": index.state}
            if index.state is IndexState.FAILED:
                fields |= {"failure_code": index.failure_code, "failure_detail": index.failure_detail}
            click.echo(json.dumps(fields))
    elif listed:
        print_table(
            ("INDEX", "KEYS", "STATE", "FAILURE"),
            [
                (i.name, ", ".join(i.keys), i.state, i.failure_detail and f"{i.failure_code}: {i.failure_detail}")
                for i in listed
            ],
        )
    else:
        click.echo(f"{table} has no partition indexes.", err=True)


@click.command()
@click.argument("table")
@click.argument("index", required=False)
@click.option("--repair", is_flag=True, help="Repair differences.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def verify(table: str, index: str | None, repair: bool, as_json: bool) -> None:
    """Compare the ACTIVE partition indexes of TABLE, or one INDEX, with its partitions.

    Fails if there are differences that were not repaired. The table stays readable and writable.
    """
    with Catalog.open() as catalog:
        known = catalog.get_partition_indexes(table)
        names = [index] if index else [active.name for active in known if active.state is IndexState.ACTIVE]
        differing = []
        for name in names:
            verification = catalog.verify_partition_index(table, name, repair=repair)
            click.echo(json.dumps(verification.as_dict()) if as_json else verification)
            if not verification.is_exact:
                differing.append(name)
    if differing:
        raise VerificationFailedError(f"{', '.join(differing)} of {table} differ from its partitions")
    if not names:
        click.echo(f"{table} has no ACTIVE partition indexes.", err=True)


@click.command("cancel-build")
@click.argument("table")
@click.argument("index")
def cancel_build(table: str, index: str) -> None:
    """Cancel the build of a partition index of TABLE: the index becomes FAILED, and its items are deleted."""
    with Catalog.open() as catalog:
        cancelled = catalog.cancel_partition_index_build(table, index, reason="cancelled by `calve cancel-build`")
    click.echo(f"Partition index {cancelled.name} of {table} is {cancelled.state}: {cancelled.failure_code}.")
