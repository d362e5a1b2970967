"""The processes of the tests of killed renames."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace

from catalog import Catalog
from catalog.doors.entries import Entries
from catalog.model.identifiers import TableName
from catalog.operations.failpoints import DIE_AT
from tests.support.entries import NAME

SALES, ARCHIVE = TableName("demo", "sales"), TableName("demo", "archive")
OLD, NEW = ("DE", "1"), ("FR", "9")


def rename_table(entries: Entries) -> None:
    entries.alter_table(NAME, replace(entries.table(NAME), name=SALES, location=None))


def rename_partition(entries: Entries) -> None:
    partition = entries.partition(NAME, OLD)
    entries.alter_partitions(NAME, [(OLD, partition._replace(values=NEW, location=None))])


def exchange(entries: Entries) -> None:
    entries.exchange_partitions({"country": "DE"}, NAME, ARCHIVE)


CHANGES: Mapping[str, Callable[[Entries], None]] = {
    "table": rename_table,
    "partition": rename_partition,
    "exchange": exchange,
}


def change_and_die(url: str, warehouse: str, change: str, point: str) -> None:
    """Make a change, and die at a point."""
    os.environ[DIE_AT] = point
    with Catalog.open(url, warehouse=warehouse) as catalog:
        CHANGES[change](Entries(catalog))
