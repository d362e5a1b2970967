"""What the processes of the tests of killed migrations do."""

from __future__ import annotations

import os

from catalog import Catalog
from catalog.failpoints import DIE_AT
from catalog.migration.requests import MigrationRequest
from tests.catalog.iceberg_tables import migrate


def run(url: str, operation_id: str, table: str, request: dict[str, object] | None, point: str) -> None:
    """Migrate a table, or take it back without a request, and die at a point."""
    os.environ[DIE_AT] = point
    with Catalog.open(url) as catalog:
        if request is None:
            catalog.migrations.revert(operation_id, table)
        else:
            migrate(catalog, table, operation_id, MigrationRequest.from_json(request))
