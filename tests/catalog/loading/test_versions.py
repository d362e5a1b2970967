"""Damaged folders and rows of versions: `calve check` finds them, and vacuum deletes no partition's files."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import update

from catalog import Catalog, Table
from catalog.errors import UnsupportedChangeError
from catalog.loading.repairing import RepairMode
from catalog.maintenance.findings import FindingKind
from catalog.model import TableKind
from catalog.storage.schema import PartitionVersionRow, TableRow, VersionState
from catalog.tables.own_files import base_name
from tests.catalog.loading.test_appending import Append
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


def written_by_spark(catalog: Catalog, folder: Path) -> Path:
    """Give the only file in a folder a name that Spark gives to files for Calve; return it."""
    [file] = folder.iterdir()
    return file.rename(folder / f"{base_name(catalog.storage.identity)}-00000-{uuid4()}-c000.parquet")


def test_files_of_a_dropped_partition_stay_when_it_is_added_again(load: Load, catalog: Catalog, table: Table) -> None:
    load.run({("JFK", "1"): 10, ("new", "1"): 20})
    catalog.drop_partitions(TABLE, "origin = 'new'")
    kept = written_by_spark(catalog, Path(table.location, "origin=new/month=1"))
    Append(catalog, table).publish()
    location = catalog.get_partition(TABLE, ("new", "1")).location
    for _ in range(2):
        assert catalog.vacuum(TABLE, grace=NOW).problems == ()
        assert catalog.get_partition(TABLE, ("new", "1")).location == location
        assert [path.read_text() for path in Path(location).iterdir()] == ["appended"]
        assert kept.exists()
    catalog.drop_partitions(TABLE, "origin = 'new'")
    catalog.vacuum(TABLE, grace=NOW)
    assert sorted(path.name for path in kept.parent.iterdir()) == sorted([kept.name, "appended.parquet"])
    # Vacuum has nothing more to do with the folder, so it can become a partition.
    catalog.vacuum(TABLE, grace=NOW)
    assert catalog.repair_table(TABLE, mode=RepairMode.ADD).added == 1


def test_the_files_of_a_dropped_partition_can_be_taken_away_later(load: Load, catalog: Catalog, table: Table) -> None:
    load.run({("new", "1"): 20})
    catalog.drop_partitions(TABLE, "origin = 'new'")
    kept = written_by_spark(catalog, Path(table.location, "origin=new/month=1"))
    Append(catalog, table).publish()
    kept.unlink()
    assert catalog.vacuum(TABLE, grace=NOW).problems == ()
    assert catalog.get_partition(TABLE, ("new", "1")).location == str(kept.parent)
    assert [path.read_text() for path in kept.parent.iterdir()] == ["appended"]


@pytest.mark.parametrize(("kind", "has_purge"), [(TableKind.MANAGED, True), (TableKind.EXTERNAL, False)])
def test_only_for_a_managed_table_purge_is_advised(
    corrected: Load, catalog: Catalog, kind: TableKind, has_purge: bool
) -> None:
    corrected.publish()
    with catalog.storage.write() as connection:
        connection.execute(update(TableRow).values(kind=kind))
    with pytest.raises(UnsupportedChangeError, match="whose folders still have the files") as refused:
        catalog.drop_table(TABLE)
    assert ("or drop it with PURGE" in str(refused.value)) is has_purge
