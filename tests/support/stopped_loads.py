"""Processes of the tests of interrupted loads: each publishes or repairs, and exits or stops at a point."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial

from catalog import Catalog, LoadMode, OnInvalid, Table
from catalog.errors import CatalogError, FencedError, OperationConflictError
from catalog.files.filesystem import in_parallel
from catalog.loading import publishing
from catalog.model import Column
from catalog.operations.failpoints import DIE_AT
from catalog.tables.evolution import Evolution, evolved

FENCED = 3
"""The exit code of a process whose attempt is fenced."""
REFUSED = 4
"""The exit code of a process with another error of the catalog."""


def publish(
    url: str, operation_id: str, staging: str, variable: str, point: str, mode: LoadMode = LoadMode.NEW
) -> None:
    """Publish a load, folder by folder."""
    publishing.in_parallel = partial(in_parallel, threads=1)
    os.environ[variable] = point
    with Catalog.open(url) as catalog:
        attempt = catalog.operations.start_job(operation_id, "register")
        try:
            catalog.loading.publish(operation_id, "register", attempt, staging, mode=mode)
        except FencedError:
            os._exit(FENCED)
        except CatalogError:
            os._exit(REFUSED)


def publish_to_existing(url: str, operation_id: str, staging: str, variable: str, point: str) -> None:
    """Publish a load that also adds rows to existing partitions."""
    publish(url, operation_id, staging, variable, point, LoadMode.APPEND)


def publish_in_place_of(url: str, operation_id: str, staging: str, variable: str, point: str) -> None:
    """Publish a load that replaces existing partitions of a Hive-style table."""
    publish(url, operation_id, staging, variable, point, LoadMode.REPLACE)


def repair(url: str, table: str, operation_id: str, variable: str, point: str) -> None:
    """Repair a table."""
    os.environ[variable] = point
    with Catalog.open(url) as catalog:
        try:
            catalog.repair_table(table, operation_id=operation_id)
        except FencedError:
            os._exit(FENCED)


def vacuum(url: str, _table: str, _operation_id: str, variable: str, point: str) -> None:
    """Undo loads that are not continued."""
    from datetime import timedelta

    os.environ[variable] = point
    with Catalog.open(url) as catalog, suppress(OperationConflictError):
        catalog.vacuum(grace=timedelta(0))


def publish_skipping(url: str, operation_id: str, folder: str, point: str) -> None:
    """Publish a load without the partitions that an index refuses, and exit at a point."""
    os.environ[DIE_AT] = point
    with Catalog.open(url) as catalog:
        attempt = catalog.operations.start_job(operation_id, "register")
        catalog.loading.publish(operation_id, "register", attempt, folder, on_invalid=OnInvalid.SKIP)


def publish_replacing(url: str, operation_id: str, folder: str, point: str) -> None:
    """Publish a load that replaces partitions, and exit at a point."""
    os.environ[DIE_AT] = point
    with Catalog.open(url) as catalog:
        attempt = catalog.operations.start_job(operation_id, "register")
        catalog.loading.publish(operation_id, "register", attempt, folder, mode=LoadMode.REPLACE)


def publish_evolving(url: str, operation_id: str, folder: str, point: str) -> None:
    """Publish a load with which its table gets the column `note`, and exit at a point."""
    os.environ[DIE_AT] = point
    with Catalog.open(url) as catalog:
        attempt = catalog.operations.start_job(operation_id, "register")
        table = catalog.get_table(catalog.operations.get(operation_id).table)
        catalog.loading.publish(operation_id, "register", attempt, folder, evolution=with_note(table))


def with_note(table: Table) -> Evolution:
    """Return the evolution by which a table gets the column `note`."""
    return Evolution.between(table, evolved(table, [Column("note", "string")], {}))
