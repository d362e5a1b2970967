"""Commands about partition indexes."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from catalog.catalog import Catalog
from catalog.cli.arguments import json_option, table_argument
from catalog.cli.output import print_table
from catalog.errors import IndexNotFoundError, VerificationFailedError
from catalog.model import IndexState


@click.command()
@table_argument
@click.option(
    "--state", type=click.Choice([state.value for state in IndexState], case_sensitive=False), help="Only these."
)
@json_option
def indexes(table: str, state: str | None, as_json: bool) -> None:
    """List the partition indexes of TABLE, with the reasons of failures."""
    with Catalog.open() as catalog:
        listed = [index for index in catalog.get_partition_indexes(table) if state in (None, index.state)]
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
        click.echo(f"{table} has no {'' if state is None else f'{state} '}partition indexes.", err=True)


@click.command("create-index")
@table_argument
@click.argument("index")
@click.argument("keys", nargs=-1, required=True)
def create_index(table: str, index: str, keys: tuple[str, ...]) -> None:
    """Create the partition index INDEX of TABLE on some of its partition KEYS, and build it.

    The table stays readable and writable. Repeat the command to continue an interrupted build. Fails if the index
    became FAILED; `calve indexes` tells why.
    """
    # Imported late, because other commands do not need these modules.
    from catalog.cli.statements import execute
    from catalog.model.identifiers import normalise_identifier
    from catalog.statements import model as m
    from catalog.statements.terms import table_reference

    columns = tuple(normalise_identifier(key, "column") for key in keys)
    name = normalise_identifier(index, "partition index")
    built = execute(m.CreateIndex(table=table_reference(table), index=name, keys=columns)).rows[0]
    click.echo(f"Partition index {built[0]} of {table} is {built[1]}{f': {built[2]}' if built[2] else '.'}")
    if built[1] != IndexState.ACTIVE:
        sys.exit(1)


@click.command("drop-index")
@table_argument
@click.argument("index")
@click.option("--if-exists", is_flag=True, help="Do not fail if there is no such index.")
def drop_index(table: str, index: str, if_exists: bool) -> None:
    """Drop the partition index INDEX of TABLE; a running build of it ends."""
    with Catalog.open() as catalog:
        try:
            catalog.delete_partition_index(table, index)
        except IndexNotFoundError:
            if not if_exists:
                raise
            return
    click.echo(f"Dropped partition index {index} of {table}.")


@click.command()
@table_argument
@click.argument("index", required=False)
@click.option("--repair", is_flag=True, help="Repair differences.")
@json_option
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
@table_argument
@click.argument("index")
def cancel_build(table: str, index: str) -> None:
    """Cancel the build of a partition index of TABLE: the index becomes FAILED, and its items are deleted."""
    with Catalog.open() as catalog:
        cancelled = catalog.cancel_partition_index_build(table, index, reason="cancelled by `calve cancel-build`")
    click.echo(f"Partition index {cancelled.name} of {table} is {cancelled.state}: {cancelled.failure_code}.")
