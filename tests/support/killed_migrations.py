"""The processes of the tests of killed migrations."""

from __future__ import annotations

import os
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier

from catalog import Catalog
from catalog.errors import CatalogError
from catalog.migration.requests import MigrationRequest
from catalog.operations.failpoints import DIE_AT
from tests.support.iceberg_tables import migrate


def run(url: str, operation_id: str, table: str, request: dict[str, object] | None, point: str) -> None:
    """Migrate a table, or revert it if there is no request, and exit at a point."""
    os.environ[DIE_AT] = point
    with Catalog.open(url) as catalog:
        if request is None:
            catalog.migrations.revert(operation_id, table)
        else:
            migrate(catalog, table, operation_id, MigrationRequest.from_json(request))


def race(url: str, operation_id: str, table: str, barrier: Barrier, outcomes: SimpleQueue[tuple[str, str]]) -> None:
    """Migrate a table at the same time as other processes; report an empty string, or the error."""
    with Catalog.open(url) as catalog:
        # Imports its modules, so that the processes begin at the same time.
        assert catalog.migrations
        barrier.wait()
        try:
            migrate(catalog, table, operation_id)
        except CatalogError as error:
            if catalog.operations.find(operation_id) is not None:
                # As statements and DAGs do, so that the table is free.
                catalog.operations.fail(operation_id, type(error).__name__, str(error))
            outcomes.put((operation_id, f"{type(error).__name__}: {error}"))
        else:
            outcomes.put((operation_id, ""))
