"""Damaged folders and rows of versions: `calve check` finds them, and vacuum deletes no partition's files."""

from __future__ import annotations

import shutil
from pathlib import Path

from sqlalchemy import update

from catalog import Catalog, Table
from catalog.maintenance.findings import FindingKind
from catalog.storage.schema import PartitionVersionRow, VersionState
from tests.catalog.loading.test_loading import TABLE, Load
from tests.catalog.loading.test_loading import landing as landing
from tests.catalog.loading.test_loading import load as load
from tests.catalog.loading.test_loading import table as table
from tests.catalog.loading.test_replacing import DAY, NOW
from tests.catalog.loading.test_replacing import corrected as corrected


def test_a_lost_folder_of_a_version_is_found(corrected: Load, catalog: Catalog, table: Table) -> None:
    corrected.publish()
    found = f"{DAY} has 0 file(s), registered are 1"
    # The sizes of the files of this test are not registered, so their partitions are found, too.
    [sound] = catalog.maintenance.check(TABLE).findings
    assert found not in sound.where
    shutil.rmtree(catalog.get_partition(TABLE, ("JFK", "1")).location)
    assert Path(table.location, DAY).exists()
    [finding] = catalog.maintenance.check(TABLE).findings
    assert finding.kind is FindingKind.STALE_COUNTS
    assert found in finding.where


def test_vacuum_deletes_no_folder_of_a_partition(corrected: Load, catalog: Catalog) -> None:
    corrected.publish()
    location = catalog.get_partition(TABLE, ("JFK", "1")).location
    with catalog.storage.write() as connection:
        connection.execute(update(PartitionVersionRow).values(state=VersionState.REPLACED))
    [problem] = catalog.vacuum(TABLE, grace=NOW).problems
    assert f"{location}: a partition has its files there" in problem
    assert list(Path(location).iterdir())
