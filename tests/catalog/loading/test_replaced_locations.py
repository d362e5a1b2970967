"""Locations of partitions whose files were replaced: stale clients, and folders that wait for the files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import update

from catalog import Catalog, NewPartition, Table
from catalog.errors import ConflictError, LocationInUseError
from catalog.loading.repairing import RepairReport
from catalog.model.batches import PartitionUpdate
from catalog.operations.staging import VERSIONS
from catalog.storage.schema import PartitionRow
from tests.catalog.loading.test_appending import Append
from tests.catalog.loading.test_loading import TABLE, Load
from tests.catalog.loading.test_loading import landing as landing
from tests.catalog.loading.test_loading import load as load
from tests.catalog.loading.test_loading import table as table
from tests.catalog.loading.test_publishing import cancel
from tests.catalog.loading.test_replacing import DAY, read, replacement, settle
from tests.catalog.loading.test_replacing import corrected as corrected


def by_statement(catalog: Catalog, values: tuple[str, str], location: str) -> None:
    catalog.alter_partition(TABLE, values, location=location)


def by_entry(catalog: Catalog, values: tuple[str, str], location: str) -> None:
    partition = NewPartition(values, location=location, row_count=1)
    catalog.partition_entries.replace(catalog.get_table(TABLE), [(values, partition)])


def by_batch(catalog: Catalog, values: tuple[str, str], location: str) -> None:
    change = catalog.batch_update_partitions(TABLE, [PartitionUpdate(values, location=location, row_count=1)])
    for failure in change.failures:
        raise ConflictError(f"{failure.error}: {failure.reason}")


@pytest.mark.parametrize("change", [by_statement, by_entry, by_batch])
@pytest.mark.parametrize("own", ["", "file:", "elsewhere"])
def test_a_client_with_the_former_location_cannot_undo_a_replacement(
    corrected: Load, catalog: Catalog, table: Table, tmp_path: Path, own: str, change: Callable[..., None]
) -> None:
    """A metastore's client sends the whole entry, as it was read, with new statistics."""
    if own == "elsewhere":
        shutil.copytree(f"{table.location}/{DAY}", home := str(tmp_path / "elsewhere"))
        catalog.alter_partition(TABLE, ("JFK", "1"), location=home)
    else:
        home = f"{own}{table.location}/{DAY}"
    corrected.publish()
    before = read(catalog)
    with pytest.raises(ConflictError, match=r"replaced, and are not exchanged yet: read its location again"):
        change(catalog, ("JFK", "1"), home)
    with pytest.raises(ConflictError, match=r"JFK"):
        change(catalog, ("LGA", "1"), home)
    assert read(catalog) == before
    settle(catalog)
    change(catalog, ("JFK", "1"), home.removeprefix("file:"))
    assert {values: texts for values, (_, texts) in read(catalog).items()} == {
        values: texts for values, (_, texts) in before.items()
    }


def test_folders_of_versions_are_not_given_to_other_partitions(
    load: Load, catalog: Catalog, table: Table, landing: Path
) -> None:
    """A renamed partition keeps its folder, which is the default one of its former values."""
    load.run({("JFK", "1"): 10, ("LGA", "1"): 20})
    catalog.alter_partition(TABLE, ("JFK", "1"), rename_to=("JFK", "7"))
    renamed = replacement(catalog, table, landing, "renamed", {("JFK", "7"): 12})
    renamed.publish()
    with pytest.raises(LocationInUseError, match=r"the files of partition origin=JFK/month=7 there were replaced"):
        catalog.add_partitions(TABLE, [NewPartition(("JFK", "1"))])
    assert catalog.repair_table(TABLE).as_dict() == RepairReport(0, 0, 2, 0, ()).as_dict()
    again = replacement(catalog, table, landing, "again", {("JFK", "1"): 13})
    with pytest.raises(LocationInUseError, match=r"the files of partition origin=JFK/month=7 there were replaced"):
        again.publish()
    cancel(catalog, again.name)
    # A statement puts rows that cannot wait elsewhere.
    Append(catalog, table).publish()
    before = read(catalog)
    assert (before["JFK", "1"][0], before["JFK", "7"][0]) == (1, 12)
    settle(catalog)
    assert read(catalog) == before
    assert len({partition.location for partition in catalog.get_partitions(TABLE)}) == len(before)


@pytest.mark.parametrize("other", ["partition", "table", "table around it"])
def test_vacuum_does_not_exchange_files_of_the_next_owner_of_a_folder(
    corrected: Load, catalog: Catalog, table: Table, tmp_path: Path, other: str
) -> None:
    shutil.copytree(f"{table.location}/{DAY}", home := str(tmp_path / "lake" / "elsewhere"))
    catalog.alter_partition(TABLE, ("JFK", "1"), location=home)
    corrected.publish()
    catalog.drop_partition(TABLE, {"origin": "JFK", "month": "1"})
    location = str(Path(home).parent) if other == "table around it" else home

    def claim() -> None:
        if other == "partition":
            catalog.add_partitions(TABLE, [NewPartition(("X", "1"), location=location)])
        else:
            catalog.create_table("demo.e", columns=[("v", "int")], location=location)

    with pytest.raises(LocationInUseError, match=r"were replaced, and are not exchanged yet"):
        claim()
    settle(catalog)
    claim()
    later = Path(home, "later.parquet")
    Path(home).mkdir(exist_ok=True)
    later.write_text("later")
    before = sorted(Path(home).iterdir())
    settle(catalog)
    assert sorted(Path(home).iterdir()) == before


def test_a_version_without_partition_does_not_empty_the_folder_of_one(
    corrected: Load, catalog: Catalog, table: Table
) -> None:
    """An earlier release let a partition return to its folder."""
    corrected.publish()
    with catalog.storage.write() as connection:
        row = PartitionRow
        connection.execute(update(row).where(row.location.contains(VERSIONS)).values(location=None, file_count=None))
    path = Path(table.location, DAY, "later.parquet")
    path.write_text("later")
    before = read(catalog)
    assert "later" in before["JFK", "1"][1]
    settle(catalog)
    assert read(catalog) == before
    assert not Path(table.location, VERSIONS).exists()
