"""`calve batch`: many partitions of a table at once; a bad one does not affect the others."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, TextIO

import click

from catalog.catalog import Catalog
from catalog.cli.arguments import json_option, table_argument
from catalog.cli.partitions import partition_line
from catalog.errors import InvalidRequestError
from catalog.model.batches import PartitionFailure, PartitionKey, PartitionUpdate
from catalog.model.partition_names import parse_partition_path, partition_path

_CHANGES = tuple(field.name for field in fields(PartitionUpdate) if field.name != "partition")

partitions_argument = click.argument("partitions", nargs=-1)
file_option = click.option(
    "--file",
    "file",
    type=click.File(encoding="utf-8"),
    help="A file with a partition a line; - for stdin.",
)


@click.group()
def batch() -> None:
    """Get, update or delete many partitions of a table, in few statements.

    Partitions are written as `calve partitions` lists them: country=DE/day=2024-05-01. Those that fail are named with
    the reason, and do not affect the others; the command fails then.
    """


@batch.command()
@table_argument
@partitions_argument
@file_option
@json_option
def get(table: str, partitions: Sequence[str], file: TextIO | None, as_json: bool) -> None:
    """Print the PARTITIONS of TABLE that exist."""
    with Catalog.open() as catalog:
        definition = catalog.get_table(table)
        found = catalog.batch_get_partitions(table, _keys(partitions, file))
    for partition in found.partitions:
        click.echo(partition_line(definition, partition, as_json=as_json))
    _end(found.failures)


@batch.command()
@table_argument
@partitions_argument
@file_option
def delete(table: str, partitions: Sequence[str], file: TextIO | None) -> None:
    """Drop the PARTITIONS of TABLE; their files stay."""
    with Catalog.open() as catalog:
        result = catalog.batch_delete_partitions(table, _keys(partitions, file))
    click.echo(f"Dropped {result.changed:,} partition(s) of {table}.")
    _end(result.failures)


@batch.command("update")
@table_argument
@click.argument("file", type=click.File(encoding="utf-8"))
def update_(table: str, file: TextIO) -> None:
    """Update partitions of TABLE from FILE, which has a JSON object a line; - for stdin.

    Each has `partition`, and what changes: location, format, properties (null removes one), row_count, file_count,
    size_bytes. For instance {"partition": "country=DE/day=2024-05-01", "row_count": 10}.
    """
    with Catalog.open() as catalog:
        result = catalog.batch_update_partitions(table, list(_updates(file)))
    click.echo(f"Updated {result.changed:,} partition(s) of {table}.")
    _end(result.failures)


def _keys(partitions: Sequence[str], file: TextIO | None) -> list[PartitionKey]:
    if bool(partitions) == (file is not None):
        raise click.UsageError("give either partitions, or --file with a file that lists them")
    lines = partitions if file is None else file
    return [_key(line) for line in lines if line.strip()]


def _key(path: str) -> PartitionKey:
    return dict(parse_partition_path(path.rstrip("\n")))


def _updates(file: TextIO) -> Iterator[PartitionUpdate]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        place = f"{file.name}, line {number}"
        try:
            change: Any = json.loads(line)
        except ValueError as error:
            raise InvalidRequestError(f"{place} is not JSON: {error}; nothing was changed") from None
        if not isinstance(change, dict) or not isinstance(change.get("partition"), str):
            raise InvalidRequestError(f"{place} has no `partition`, such as country=DE/day=2024-05-01; add it")
        if unknown := sorted(set(change) - {"partition", *_CHANGES}):
            raise InvalidRequestError(
                f"{place} has unknown fields {', '.join(unknown)}; those of a change are {', '.join(_CHANGES)}"
            )
        yield PartitionUpdate(_key(change.pop("partition")), **change)


def _end(failures: Sequence[PartitionFailure]) -> None:
    """Name failures on stderr, and exit with code 1 if there are any."""
    for failure in failures:
        assert isinstance(failure.partition, dict)
        name = partition_path(list(failure.partition), list(failure.partition.values())) or "without keys"
        click.echo(f"{name}: {failure.error}: {failure.reason}", err=True)
    if failures:
        sys.exit(1)
