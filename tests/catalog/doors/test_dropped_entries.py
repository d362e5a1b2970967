"""Dropping entries with their files, as a metastore does."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select

from catalog import Catalog
from catalog.doors.entries import Entries
from catalog.engine_tables.names import Namespace
from catalog.errors import DatabaseNotEmptyError, DatabaseNotFoundError, PartitionNotFoundError
from catalog.files.filesystem import Folder
from catalog.iceberg.pointers import CATALOG
from catalog.metastores.types import HiveDatabase, HivePartition, HiveTable
from catalog.model.identifiers import TableName
from catalog.storage.schema import IcebergTableRow
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


@pytest.mark.parametrize("delete_data", [False, True])
def test_a_database_goes_with_the_views_of_engines(entries: Entries, orders: HiveTable, delete_data: bool) -> None:
    with entries.catalog.storage.write() as connection:
        names = {"catalog_name": CATALOG, "table_namespace": "demo", "table_name": "recent"}
        connection.execute(insert(IcebergTableRow).values(**names, metadata_location="/v1.json", iceberg_type="VIEW"))
    with pytest.raises(DatabaseNotEmptyError):
        entries.drop_database("demo")
    entries.drop_database("demo", cascade=True, delete_data=delete_data)
    with entries.catalog.storage.read() as connection:
        assert connection.scalar(select(IcebergTableRow.table_name)) is None


def test_no_table_goes_if_the_database_cannot(entries: Entries, orders: HiveTable) -> None:
    entries.catalog.iceberg.namespaces.create(Namespace.of(["demo", "inner"]), {})
    with pytest.raises(DatabaseNotEmptyError, match=r"namespaces of engines, such as demo\.inner"):
        entries.drop_database("demo", cascade=True, delete_data=True)
    assert len(entries.partition_names(NAME)) == 3


@pytest.mark.parametrize("delete_data", [False, True])
def test_a_partition_that_was_renamed_meanwhile_is_not_said_to_be_dropped(
    entries: Entries, orders: HiveTable, monkeypatch: pytest.MonkeyPatch, delete_data: bool
) -> None:
    looked_up = Entries._visible

    def renamed_meanwhile(self: Entries, *arguments: Any) -> Any:
        found = looked_up(self, *arguments)
        monkeypatch.undo()
        before = entries.partition(NAME, ("DE", "1"))
        entries.alter_partitions(NAME, [(("DE", "1"), before._replace(values=("FR", "9")))])
        return found

    monkeypatch.setattr(Entries, "_visible", renamed_meanwhile)
    with pytest.raises(PartitionNotFoundError, match=r"1 of 1 partition\(s\) .* dropped or renamed by others"):
        entries.drop_partitions(NAME, [("DE", "1")], delete_data=delete_data)
    assert "country=FR/day=9" in entries.partition_names(NAME)


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
