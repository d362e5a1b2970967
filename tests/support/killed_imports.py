"""The processes of the tests of killed imports."""

from __future__ import annotations

import os
from collections.abc import Mapping

from catalog import Catalog
from catalog.importing.partitions import ImportOptions
from catalog.operations.failpoints import DIE_AT


def import_table(url: str, source: str, table: str, operation: str, point: str, environment: Mapping[str, str]) -> None:
    """Import a table, and exit at a point.

    Args:
        environment: The variables of the test, which may be set only after the server of processes started.
    """
    os.environ.update(environment, **{DIE_AT: point})
    with Catalog.open(url) as catalog:
        catalog.imports.import_table(source, table, OPTIONS, operation_id=operation)


OPTIONS = ImportOptions(updates=True, drops_vanished=True)
