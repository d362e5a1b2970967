"""Changes of partitions by entries: their descriptions, values and tables."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.doors.entries import Entries
from catalog.errors import (
    InvalidPartitionError,
    InvalidPartitionSpecError,
    InvalidTableError,
    LocationInUseError,
    MissingFileError,
    PartitionAlreadyExistsError,
    PartitionNotFoundError,
)
from catalog.metastores.types import HivePartition, HiveTable
from catalog.model import Column
from catalog.model.identifiers import TableName
from tests.support.entries import NAME, ORDERS, PARQUET, STRANGE

ARCHIVE = TableName("demo", "archive")


@pytest.fixture
def orders(entries: Entries) -> HiveTable:
    created = entries.create_table(ORDERS)
    entries.catalog.create_partition_index("demo.orders", "by_day", ["day"])
    entries.add_partitions(NAME, [HivePartition(("DE", str(day)), PARQUET, {"numRows": "4"}) for day in range(3)])
    Path(f"{created.location}/country=DE/day=1/000000_0").write_text("rows of Hive")
    return created


def is_exact(entries: Entries) -> bool:
    return entries.catalog.verify_partition_index("demo.orders", "by_day").is_exact


def test_partitions_become_what_is_given(entries: Entries, orders: HiveTable) -> None:
    changed = [
        entries.partition(NAME, ("DE", "0"))._replace(
            parameters={"numRows": "5", "a": "b"}, storage=STRANGE, created_at=17, accessed_at=3
        ),
        entries.partition(NAME, ("DE", "1"))._replace(
            parameters={}, storage=replace(PARQUET, columns=(Column("only", "int"),)), location=f"{orders.location}/x"
        ),
    ]
    entries.alter_partitions(NAME, [(partition.values, partition) for partition in changed])
    assert entries.partitions_by_values(NAME, [("DE", "0"), ("DE", "1")]) == changed
    assert os.path.isdir(f"{orders.location}/x")
    assert entries.catalog.get_partition("demo.orders", ("DE", "0")).row_count == 5
    back = HivePartition(("DE", "0"), PARQUET, {"numRows": "4"}, created_at=17)
    entries.alter_partitions(NAME, [(("DE", "0"), back)])
    assert entries.partition(NAME, ("DE", "0")) == back._replace(location=f"{orders.location}/country=DE/day=0")


def test_all_change_or_none(entries: Entries, orders: HiveTable) -> None:
    before = sorted(entries.partitions(NAME), key=lambda partition: partition.values)
    good = (("DE", "0"), HivePartition(("DE", "0"), STRANGE))
    for changes, error in (
        ([good, (("FR", "0"), HivePartition(("FR", "0"), PARQUET))], PartitionNotFoundError),
        ([good, (("DE", "00"), HivePartition(("DE", "0"), PARQUET))], InvalidPartitionError),
        ([good, (("DE",), HivePartition(("DE", "0"), PARQUET))], InvalidPartitionError),
        ([good, (("DE", "1"), HivePartition(("DE", "2"), PARQUET))], PartitionAlreadyExistsError),
        ([good, (("DE", "1"), HivePartition(("DE", "x"), PARQUET))], InvalidPartitionError),
        (
            [good, (("DE", "1"), HivePartition(("DE", "1"), PARQUET, {}, f"{orders.location}/country=DE/day=2/y"))],
            LocationInUseError,
        ),
    ):
        with pytest.raises(error):
            entries.alter_partitions(NAME, changes)
        assert sorted(entries.partitions(NAME), key=lambda partition: partition.values) == before
        assert is_exact(entries)
    assert sorted(os.listdir(f"{orders.location}/country=DE/day=2")) == []


def test_a_renamed_partition_moves_with_its_files(entries: Entries, orders: HiveTable) -> None:
    before = entries.partition(NAME, ("DE", "1"))
    entries.alter_partitions(NAME, [(("DE", "1"), before._replace(values=("FR", "9")))])
    moved = entries.partition(NAME, ("FR", "9"))
    assert moved == before._replace(values=("FR", "9"), location=f"{orders.location}/country=FR/day=9")
    assert Path(f"{moved.location}/000000_0").read_text() == "rows of Hive"
    assert not os.path.exists(str(before.location))
    with pytest.raises(PartitionNotFoundError):
        entries.partition(NAME, ("DE", "1"))
    assert [partition.values for partition in entries.partitions(NAME, "day = 9")] == [("FR", "9")]
    assert is_exact(entries)


def test_partitions_move_whatever_the_spelling_of_their_locations(entries: Entries, orders: HiveTable) -> None:
    """Spark sends the locations of partitions with their scheme."""
    for day in (7, 8):
        folder = f"{orders.location}/country=IT/day={day}"
        entries.add_partitions(NAME, [HivePartition(("IT", str(day)), PARQUET, location=f"file:{folder}")])
        Path(f"{folder}/file").write_text("rows")
    before = entries.partition(NAME, ("IT", "7"))
    entries.alter_partitions(NAME, [(("IT", "7"), before._replace(values=("IT", "9")))])
    moved = entries.partition(NAME, ("IT", "9"))
    assert Path(f"{orders.location}/country=IT/day=9/file").read_text() == "rows"
    assert moved.location == f"{orders.location}/country=IT/day=9"
    archive = entries.create_table(replace(ORDERS, name=ARCHIVE))
    [exchanged] = entries.exchange_partitions({"country": "IT", "day": "8"}, NAME, ARCHIVE)
    assert exchanged.location == f"{archive.location}/country=IT/day=8"
    assert Path(f"{exchanged.location}/file").read_text() == "rows"
    assert is_exact(entries)


def test_a_partition_gets_another_spelling(entries: Entries, orders: HiveTable) -> None:
    entries.alter_partitions(NAME, [(("DE", "1"), HivePartition(("DE", "01"), PARQUET))])
    assert entries.partition(NAME, ("DE", "1")).values == ("DE", "01")
    assert Path(f"{orders.location}/country=DE/day=01/000000_0").exists()
    assert is_exact(entries)


def test_partitions_move_to_another_table(entries: Entries, orders: HiveTable, tmp_path: Path) -> None:
    entries.add_partitions(NAME, [HivePartition(("DE", "7"), STRANGE, location=str(tmp_path / "away"))])
    archive = entries.create_table(replace(ORDERS, name=ARCHIVE, storage=STRANGE))
    before = {partition.values: partition for partition in entries.partitions(NAME)}
    moved = entries.exchange_partitions({"country": "DE", "day": "1"}, NAME, ARCHIVE)
    expected = before["DE", "1"]._replace(
        location=f"{archive.location}/country=DE/day=1", created_at=moved[0].created_at
    )
    assert moved == [expected]
    assert Path(f"{archive.location}/country=DE/day=1/000000_0").exists()
    assert is_exact(entries)
    assert len(entries.exchange_partitions({"country": "DE"}, NAME, ARCHIVE)) == 3
    assert entries.partition(ARCHIVE, ("DE", "7")).location == str(tmp_path / "away")
    assert entries.partition_names(NAME) == []
    assert is_exact(entries)


def test_a_partition_without_a_folder_is_not_exchanged(entries: Entries, orders: HiveTable) -> None:
    entries.create_table(replace(ORDERS, name=ARCHIVE))
    os.rmdir(f"{orders.location}/country=DE/day=2")
    with pytest.raises(MissingFileError, match="day=2 does not exist"):
        entries.exchange_partitions({"country": "DE"}, NAME, ARCHIVE)
    assert len(entries.partition_names(NAME)) == 3
    assert os.path.exists(f"{orders.location}/country=DE/day=1/000000_0")
    assert entries.partition_names(ARCHIVE) == []


def test_a_folder_of_several_partitions_is_not_exchanged(entries: Entries, orders: HiveTable) -> None:
    entries.create_table(replace(ORDERS, name=ARCHIVE))
    places = {("US", "1"): "shared", ("US", "2"): "shared", ("UK", "1"): "shared/of_uk", ("FR", "1"): "own"}
    for values, place in places.items():
        entries.add_partitions(NAME, [HivePartition(values, PARQUET, location=f"{orders.location}/{place}")])
        Path(f"{orders.location}/{place}/rows").write_text("rows")
    for spec in ({"country": "US", "day": "1"}, {"country": "US"}, {"country": "UK"}):
        with pytest.raises(LocationInUseError, match="would lose them"):
            entries.exchange_partitions(spec, NAME, ARCHIVE)
    assert len(entries.partition_names(NAME)) == 7
    assert all(os.path.exists(f"{orders.location}/{place}/rows") for place in places.values())
    assert is_exact(entries)
    [moved] = entries.exchange_partitions({"country": "FR"}, NAME, ARCHIVE)
    assert Path(f"{moved.location}/rows").exists()


def test_a_folder_around_that_of_a_partition_with_a_uri_is_not_exchanged(entries: Entries, orders: HiveTable) -> None:
    entries.create_table(replace(ORDERS, name=ARCHIVE))
    folder = f"{orders.location}/own"
    for values, location in {("US", "1"): folder, ("FR", "1"): f"file://{folder}/part"}.items():
        entries.add_partitions(NAME, [HivePartition(values, PARQUET, location=location)])
    with pytest.raises(LocationInUseError, match="would lose them"):
        entries.exchange_partitions({"country": "US", "day": "1"}, NAME, ARCHIVE)
    assert os.path.isdir(f"{folder}/part")


def test_what_cannot_be_exchanged_stays(entries: Entries, orders: HiveTable) -> None:
    entries.create_table(replace(ORDERS, name=ARCHIVE))
    entries.add_partitions(ARCHIVE, [HivePartition(("DE", "2"), PARQUET)])
    entries.create_table(replace(ORDERS, name=TableName("demo", "unlike"), columns=(Column("a", "int"),)))
    for spec, target, error in (
        ({"country": "FR"}, ARCHIVE, PartitionNotFoundError),
        ({"city": "Bonn"}, ARCHIVE, InvalidPartitionSpecError),
        ({"country": "DE"}, ARCHIVE, PartitionAlreadyExistsError),
        ({"country": "DE"}, TableName("demo", "unlike"), InvalidTableError),
    ):
        with pytest.raises(error):
            entries.exchange_partitions(spec, NAME, target)
        assert len(entries.partition_names(NAME)) == 3
        assert os.path.exists(f"{orders.location}/country=DE/day=1/000000_0")
        assert is_exact(entries)


def test_a_location_keeps_its_slash_at_the_end(entries: Entries) -> None:
    created = entries.create_table(ORDERS)
    places = {"1": f"{created.location}/country=DE/day=1/", "2": f"{created.location}/other/", "3": None}
    entries.add_partitions(NAME, [HivePartition(("DE", day), PARQUET, location=place) for day, place in places.items()])
    found = {partition.values[1]: partition.location for partition in entries.partitions(NAME)}
    assert found == {**places, "3": f"{created.location}/country=DE/day=3"}
    changed = entries.partition(NAME, ("DE", "3"))
    assert "/" not in "".join(changed.parameters)
    entries.alter_partitions(NAME, [(("DE", "3"), changed._replace(location=f"{changed.location}/"))])
    assert entries.partition(NAME, ("DE", "3")).location == f"{created.location}/country=DE/day=3/"
