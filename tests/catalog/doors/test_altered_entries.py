"""Changes of tables by entries: columns, names, folders, versions, and what partitions keep."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.doors.entries import Entries
from catalog.errors import (
    DatabaseNotFoundError,
    EntryModifiedError,
    InvalidTableError,
    LocationNotEmptyError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from catalog.files.locations import local_path
from catalog.metastores.types import HivePartition, HiveStorage, HiveTable
from catalog.model import Column, FileFormat
from catalog.model.identifiers import TableName
from tests.support.entries import NAME, ORC, ORDERS, PARQUET, STRANGE

MORE = (*ORDERS.columns, Column("note", "string"))


@pytest.fixture
def orders(entries: Entries) -> HiveTable:
    created = entries.create_table(ORDERS)
    entries.add_partitions(
        NAME,
        [HivePartition(("DE", "1"), PARQUET), HivePartition(("US", "2"), replace(STRANGE, columns=ORDERS.columns))],
    )
    return created


def storages(entries: Entries, name: TableName = NAME) -> dict[str, HiveStorage]:
    return {partition.values[0]: partition.storage for partition in entries.partitions(name)}


@pytest.mark.parametrize("cascade", [False, True])
def test_partitions_keep_their_columns_unless_they_follow(entries: Entries, orders: HiveTable, cascade: bool) -> None:
    changed = replace(orders, columns=MORE, parameters={"a": "b"}, owner="bob", retention=3)
    assert entries.alter_table(NAME, changed, cascade=cascade) == changed
    own = None if cascade else ORDERS.columns
    assert storages(entries) == {"DE": replace(PARQUET, columns=own), "US": replace(STRANGE, columns=own)}
    entries.add_partitions(NAME, [HivePartition(("FR", "3"), PARQUET), HivePartition(("IT", "3"), ORC)])
    assert storages(entries)["FR"] == PARQUET
    assert storages(entries)["IT"] == ORC


def test_partitions_keep_their_format(entries: Entries, orders: HiveTable) -> None:
    entries.alter_table(NAME, replace(orders, storage=ORC, columns=MORE))
    assert entries.catalog.get_table("demo.orders").format is FileFormat.ORC
    assert storages(entries) == {
        "DE": replace(PARQUET, columns=ORDERS.columns),
        "US": replace(STRANGE, columns=ORDERS.columns),
    }
    assert {partition.format for partition in entries.catalog.get_partitions("demo.orders")} == {
        FileFormat.PARQUET,
        FileFormat.OTHER,
    }
    back = entries.alter_table(NAME, orders)
    assert back == orders
    assert storages(entries) == {"DE": PARQUET, "US": STRANGE}


def test_a_renamed_table_moves_with_its_partitions(entries: Entries, orders: HiveTable) -> None:
    entries.create_database(replace(entries.database("demo"), name="other", location=None))
    inside = f"{orders.location}/apart"
    entries.add_partitions(NAME, [HivePartition(("IT", "3"), PARQUET, location=inside)])
    new = TableName("other", "sales")
    renamed = entries.alter_table(NAME, replace(orders, name=new))
    assert renamed == replace(orders, name=new, location=entries.database("other").location + "/sales")  # type: ignore[operator]
    assert not os.path.exists(str(orders.location))
    locations = {str(partition.location) for partition in entries.partitions(new)}
    assert f"{renamed.location}/apart" in locations
    assert all(location.startswith(f"{renamed.location}/") and os.path.isdir(location) for location in locations)
    with pytest.raises(TableNotFoundError):
        entries.table(NAME)
    assert entries.create_table(ORDERS).location == orders.location


@pytest.mark.parametrize("scheme", ["file:", "file://"])
@pytest.mark.parametrize("is_of_table", [False, True])
def test_a_renamed_table_moves_whatever_the_spelling_of_its_locations(
    entries: Entries, scheme: str, is_of_table: bool
) -> None:
    """Spark sends the locations of tables and partitions with their scheme."""
    folder = str(entries.database("demo").location) + "/orders"
    orders = entries.create_table(replace(ORDERS, location=scheme + folder) if is_of_table else ORDERS)
    entries.add_partitions(NAME, [HivePartition(("IT", "3"), PARQUET, location=f"{scheme}{folder}/country=IT/day=3")])
    Path(f"{folder}/country=IT/day=3/file").write_text("rows")
    entries.alter_table(NAME, replace(orders, name=TableName("demo", "sales")))
    [partition] = entries.partitions(TableName("demo", "sales"))
    assert Path(local_path(str(partition.location)), "file").read_text() == "rows"
    assert "/sales/" in str(partition.location)
    assert not os.path.exists(folder)
    entries.create_table(ORDERS)


def test_a_table_that_is_not_renamed_stays_where_it_is(entries: Entries, orders: HiveTable) -> None:
    entries.create_table(replace(ORDERS, name=TableName("demo", "taken")))
    Path(str(orders.location), "../full").resolve().mkdir()
    Path(str(orders.location), "../full/file").resolve().write_text("")
    for name, error in (
        (TableName("demo", "taken"), TableAlreadyExistsError),
        (TableName("missing", "orders"), DatabaseNotFoundError),
        (TableName("demo", "full"), LocationNotEmptyError),
    ):
        with pytest.raises(error):
            entries.alter_table(NAME, replace(orders, name=name))
    assert entries.table(NAME) == orders
    assert os.path.isdir(f"{orders.location}/country=DE/day=1")


def test_a_refused_rename_leaves_the_folder_of_the_other_table(entries: Entries, orders: HiveTable) -> None:
    catalog = entries.catalog
    fresh = catalog.create_table("demo.fresh", columns=[("id", "bigint")])
    assert not os.path.exists(fresh.location)
    with pytest.raises(TableAlreadyExistsError):
        entries.alter_table(TableName("demo", "fresh"), replace(entries.table(TableName("demo", "fresh")), name=NAME))
    assert os.path.isdir(f"{orders.location}/country=DE/day=1")
    assert not os.path.exists(fresh.location)


def test_a_table_with_another_location_keeps_it(entries: Entries, orders: HiveTable, tmp_path: Path) -> None:
    external = replace(
        ORDERS,
        name=TableName("demo", "away"),
        table_type="EXTERNAL_TABLE",
        parameters={"EXTERNAL": "TRUE"},
        location=str(tmp_path / "away"),
    )
    created = entries.create_table(external)
    renamed = entries.alter_table(created.name, replace(created, name=TableName("demo", "far")))
    assert renamed == replace(created, name=TableName("demo", "far"))
    moved = entries.alter_table(renamed.name, replace(renamed, location=str(tmp_path / "elsewhere")))
    assert moved.location == str(tmp_path / "elsewhere")
    moved = entries.alter_table(NAME, replace(orders, location=str(tmp_path / "new")))
    assert {str(partition.location) for partition in entries.partitions(NAME)} == {
        f"{orders.location}/country=DE/day=1",
        f"{orders.location}/country=US/day=2",
    }


def test_a_change_is_made_only_if_a_parameter_is_as_expected(entries: Entries, orders: HiveTable) -> None:
    changed = replace(orders, parameters={"v": "2"})
    with pytest.raises(EntryModifiedError) as refused:
        entries.alter_table(NAME, changed, expected=("v", "1"))
    assert (refused.value.parameter, refused.value.actual, refused.value.expected) == ("v", None, "1")
    assert entries.table(NAME) == orders
    assert entries.alter_table(NAME, changed, expected=("v", None)) == changed
    assert entries.alter_table(NAME, orders, expected=("v", "2")) == orders


def test_keys_change_as_far_as_partitions_allow(entries: Entries, orders: HiveTable) -> None:
    with pytest.raises(InvalidTableError):
        entries.alter_table(NAME, replace(orders, partition_keys=ORDERS.partition_keys[:1]))
    commented = replace(orders, partition_keys=(Column("country", "string", "where"), Column("day", "int")))
    assert entries.alter_table(NAME, commented) == commented
    entries.drop_partitions(NAME, [("DE", "1"), ("US", "2")])
    fewer = replace(orders, partition_keys=(Column("hour", "binary"),))
    assert entries.alter_table(NAME, fewer) == fewer


def test_former_definitions_are_versions(entries: Entries, orders: HiveTable) -> None:
    second = entries.alter_table(NAME, replace(orders, columns=MORE))
    third = entries.alter_table(NAME, replace(second, storage=STRANGE, extra={"glue": {"a": 1}}))
    versions = entries.versions(NAME)
    assert [(version.number, version.entry) for version in versions] == [(2, third), (1, second), (0, orders)]
    assert [version.replaced_at is None for version in versions] == [True, False, False]
    entries.delete_version(NAME, 1)
    assert [version.number for version in entries.versions(NAME)] == [2, 0]
    with pytest.raises(TableNotFoundError, match="no former version 7"):
        entries.delete_version(NAME, 7)
    entries.drop_table(NAME)
    again = entries.create_table(ORDERS)
    assert [version.entry for version in entries.versions(NAME)] == [again]


def test_a_view_changes_its_text(entries: Entries) -> None:
    view = HiveTable(
        TableName("demo", "v"), "VIRTUAL_VIEW", (Column("a", "int"),), (), HiveStorage(), view_text="SELECT 1 AS a"
    )
    created = entries.create_table(view)
    changed = replace(
        created, view_text="SELECT 2 AS a", original_view_text="select 2 a", columns=(Column("a", "bigint"),)
    )
    assert entries.alter_table(view.name, changed) == changed
    assert entries.catalog.get_table("demo.v").view_text == "SELECT 2 AS a"
    with pytest.raises(InvalidTableError, match="between a view and a table"):
        entries.alter_table(view.name, replace(changed, table_type="MANAGED_TABLE"))
