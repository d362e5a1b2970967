"""No partition comes to a folder of an Iceberg table of an engine, wherever its metadata and data are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from catalog import Catalog, NewPartition, Table
from catalog.doors.entries import Entries
from catalog.doors.entries.iceberg import identifier_of
from catalog.engine_tables.model import Commit, NewTable
from catalog.errors import LocationInUseError
from catalog.metastores.types import HivePartition
from catalog.model.batches import PartitionUpdate
from catalog.model.identifiers import TableName
from tests.catalog.doors.test_iceberg_entries import SCHEMA
from tests.support.entries import NAME, ORDERS, PARQUET

ENGINES, OTHER = TableName("demo", "engines"), TableName("demo", "other")
TABLE = str(NAME)


def make(catalog: Catalog, location: str | None = None, name: TableName = ENGINES, **properties: str) -> str:
    """Create a table of an engine; return its location."""
    new = NewTable(SCHEMA, location=location, properties=properties)
    return str(catalog.iceberg.create(identifier_of(name), new).document["location"])


@pytest.fixture
def orders(catalog: Catalog) -> Table:
    Entries(catalog).create_table(ORDERS)
    catalog.add_partitions(TABLE, [NewPartition(("US", "1"))])
    return catalog.get_table(TABLE)


def alter_entry(catalog: Catalog, location: str) -> None:
    moved = HivePartition(("US", "1"), PARQUET, location=location)
    Entries(catalog).alter_partitions(NAME, [(("US", "1"), moved)])


def update(catalog: Catalog, location: str) -> None:
    (failure,) = catalog.batch_update_partitions(TABLE, [PartitionUpdate(("US", "1"), location)]).failures
    assert failure.error == "LocationInUseError"
    raise LocationInUseError(TABLE, location, "", "", reason=failure.reason)


ACTS: dict[str, Callable[[Catalog, str], object]] = {
    "add": lambda catalog, location: catalog.add_partitions(TABLE, [NewPartition(("DE", "1"), location)]),
    "add several": lambda catalog, location: catalog.add_partitions(
        TABLE, [NewPartition(("DE", str(day)), f"{location}-{day}" if day else location) for day in range(200)]
    ),
    "move": lambda catalog, location: catalog.alter_partition(TABLE, ("US", "1"), location=location),
    "update": update,
    "entry": lambda catalog, location: Entries(catalog).add_partitions(
        NAME, [HivePartition(("DE", "1"), PARQUET, location=location)]
    ),
    "altered entry": alter_entry,
}
PLACES = {"folder": "{folder}", "data": "file:{folder}/data", "inside": "{folder}/data/country=DE", "around": "{above}"}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_no_partition_comes_to_the_folder_of_an_engines_table(
    catalog: Catalog, orders: Table, tmp_path: Path, place: str
) -> None:
    folder = make(catalog, f"{tmp_path}/lake/engines")
    location = place.format(folder=folder, above=f"{tmp_path}/lake")
    for come in ACTS.values():
        with pytest.raises(LocationInUseError, match=r"demo\.engines"):
            come(catalog, location)
    assert [partition.values for partition in catalog.get_partitions(TABLE)] == [("US", "1")]
    catalog.add_partitions(TABLE, [NewPartition(("DE", "1"), f"{folder}2"), NewPartition(("DE", "2"), None)])


@pytest.mark.parametrize("name", ["write.metadata.path", "write.data.path"])
def test_all_folders_of_an_engines_table_are_its_own(
    catalog: Catalog, orders: Table, tmp_path: Path, name: str
) -> None:
    folder, elsewhere = f"{tmp_path}/lake/engines", f"{tmp_path}/far"
    assert make(catalog, folder, **{name: f"{elsewhere}/part"}) == folder
    for taken in (folder, f"{folder}/data", f"{elsewhere}/part/x", elsewhere):
        for come in (ACTS["add"], ACTS["move"], lambda catalog, location: make(catalog, location, OTHER)):
            with pytest.raises(LocationInUseError, match=r"demo\.engines"):
                come(catalog, taken)
        with pytest.raises(LocationInUseError, match=r"demo\.engines"):
            catalog.create_table("demo.hive", columns=[("id", "int")], location=taken)
    tables, removal = catalog.iceberg, {"action": "remove-properties", "removals": [name]}
    tables.rename(identifier_of(ENGINES), identifier_of(OTHER))
    with pytest.raises(LocationInUseError, match=r"demo\.other"):
        ACTS["add"](catalog, folder)
    tables.commit([Commit(identifier_of(OTHER), [], [removal])])
    ACTS["add"](catalog, elsewhere)
    with pytest.raises(LocationInUseError, match=r"demo\.other"):
        ACTS["move"](catalog, folder)
    tables.drop(identifier_of(OTHER))
    ACTS["move"](catalog, folder)


def test_tables_lie_in_no_folder_that_engines_may_read_as_the_same(
    catalog: Catalog, orders: Table, tmp_path: Path
) -> None:
    make(catalog, f"file://{tmp_path}/la%20ke/engines")
    for taken in (f"{tmp_path}/la ke/engines/x", f"{tmp_path}/la ke", f"{tmp_path}/l%61%20ke/engines"):
        for come in (ACTS["add"], lambda catalog, location: make(catalog, location, OTHER)):
            with pytest.raises(LocationInUseError, match=r"demo\.engines"):
                come(catalog, taken)
    hive = catalog.create_table("demo.hive", columns=[("id", "int")], location=f"{tmp_path}/other lake")
    with pytest.raises(LocationInUseError, match=r"demo\.hive"):
        make(catalog, hive.location.replace(" ", "%20"), OTHER)
    ACTS["add"](catalog, f"{tmp_path}/lake/day=2024-01-01 00%3A00")
