"""Dropping entries with their files, as a metastore does."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from catalog import Catalog
from catalog.doors.entries import Entries
from catalog.errors import DatabaseNotEmptyError, DatabaseNotFoundError
from catalog.files.filesystem import Folder
from catalog.metastores.types import HiveDatabase, HivePartition, HiveTable
from catalog.model.identifiers import TableName
from tests.support.entries import NAME, ORDERS, PARQUET


@pytest.fixture
def orders(entries: Entries) -> HiveTable:
    created = entries.create_table(ORDERS)
    entries.add_partitions(NAME, [HivePartition(("DE", str(day)), PARQUET) for day in range(3)])
    for day in range(3):
        Path(f"{created.location}/country=DE/day={day}/000000_0").write_text("rows of Hive")
    return created


@pytest.mark.parametrize("delete_data", [False, True])
def test_the_files_of_a_managed_table_go_if_asked(entries: Entries, orders: HiveTable, delete_data: bool) -> None:
    entries.drop_table(NAME, delete_data=delete_data)
    assert os.path.exists(str(orders.location)) is not delete_data


def test_the_files_of_an_external_table_stay(entries: Entries, tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.mkdir()
    (away / "file").write_text("")
    entries.create_table(
        replace(ORDERS, table_type="EXTERNAL_TABLE", parameters={"EXTERNAL": "TRUE"}, location=str(away))
    )
    entries.drop_table(NAME, delete_data=True)
    assert (away / "file").exists()


def test_a_managed_table_over_files_of_others_does_not_own_them(entries: Entries, tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.mkdir()
    (away / "file").write_text("")
    created = entries.create_table(replace(ORDERS, location=str(away)))
    assert created.table_type == "MANAGED_TABLE"
    entries.drop_table(NAME, delete_data=True)
    assert (away / "file").exists()


def test_rows_that_were_written_before_their_table_are_its_own(entries: Entries, catalog: Catalog) -> None:
    folder = Path(catalog.get_database("demo").location, "orders")
    folder.mkdir(parents=True)
    (folder / "part-00000.parquet").write_text("")
    entries.create_table(ORDERS)
    entries.drop_table(NAME, delete_data=True)
    assert not folder.exists()


@pytest.mark.parametrize("delete_data", [False, True])
def test_the_files_of_partitions_go_if_asked(entries: Entries, orders: HiveTable, delete_data: bool) -> None:
    assert entries.drop_partitions(NAME, [("DE", "0"), ("DE", "2")], delete_data=delete_data) == 2
    left = sorted(os.listdir(f"{orders.location}/country=DE"))
    assert left == (["day=1"] if delete_data else ["day=0", "day=1", "day=2"])
    assert entries.partition_names(NAME) == ["country=DE/day=1"]


def test_a_database_goes_with_its_tables(entries: Entries, orders: HiveTable) -> None:
    entries.create_table(replace(ORDERS, name=TableName("demo", "more")))
    with pytest.raises(DatabaseNotEmptyError):
        entries.drop_database("demo")
    folder = str(entries.database("demo").location)
    Path(folder, "left").mkdir()
    Path(folder, "left/over").write_text("")
    entries.drop_database("demo", cascade=True, delete_data=True)
    assert not os.path.exists(folder)
    with pytest.raises(DatabaseNotFoundError):
        entries.database("demo")
    with pytest.raises(DatabaseNotFoundError):
        entries.drop_database("demo")


def test_what_others_have_in_the_folder_of_a_database_stays(entries: Entries, tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.mkdir()
    (away / "file").write_text("")
    entries.create_database(HiveDatabase("elsewhere", str(away)))
    entries.drop_database("elsewhere", delete_data=True)
    assert (away / "file").exists()
    inside = str(entries.database("demo").location)
    entries.create_table(replace(ORDERS, name=TableName("default", "guest"), location=f"{inside}/guest"))
    Path(f"{inside}/guest/file").write_text("")
    Path(f"{inside}/left").write_text("")
    entries.drop_database("demo", delete_data=True)
    assert os.listdir(inside) == ["guest"]
    assert os.path.exists(f"{inside}/guest/file")


@pytest.mark.usefixtures("object_store")
def test_a_table_on_an_object_store_stays_when_renamed_and_goes_when_dropped(catalog_url: str) -> None:
    with Catalog.open(catalog_url, warehouse="s3://lake/warehouse") as catalog:
        entries = Entries(catalog)
        created = entries.create_table(replace(ORDERS, name=TableName("default", "orders")))
        entries.add_partitions(created.name, [HivePartition(("DE", "1"), PARQUET)])
        folder = Folder(str(created.location))
        folder.write_bytes("country=DE/day=1/000000_0", b"rows of Hive")
        renamed = entries.alter_table(created.name, replace(created, name=TableName("default", "sales")))
        assert renamed.location == created.location == "s3://lake/warehouse/default/orders"
        assert entries.partition_names(renamed.name) == ["country=DE/day=1"]
        entries.drop_table(renamed.name, delete_data=True)
        assert folder.is_empty("")


@pytest.mark.parametrize("inside", ["", "/inner"])
def test_the_files_of_another_database_stay(entries: Entries, catalog: Catalog, inside: str) -> None:
    outer = catalog.get_database("demo").location
    entries.create_database(HiveDatabase("other", f"{outer}{inside}"))
    for folder in (outer, f"{outer}{inside}/new"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, "rows").write_text("of a table that is created next")
    entries.drop_database("demo", delete_data=True)
    assert os.path.exists(f"{outer}{inside}/new/rows")
    assert os.path.exists(f"{outer}/rows") is not bool(inside)
    entries.drop_database("other", delete_data=True)
    assert not os.path.exists(f"{outer}{inside}")
