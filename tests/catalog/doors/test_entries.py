"""Entries of metastores: what went in comes out, and is a table of Calve."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.doors.entries import Entries
from catalog.errors import (
    InvalidPartitionError,
    PartitionAlreadyExistsError,
    PartitionNotFoundError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from catalog.metastores.types import HiveDatabase, HivePartition, HiveStorage, HiveTable
from catalog.model import Column, FileFormat, TableKind
from catalog.model.identifiers import TableName
from catalog.partitions.changing import set_quarantined
from tests.support.entries import NAME, ORDERS, PARQUET, STRANGE


@pytest.fixture
def orders(entries: Entries) -> HiveTable:
    return entries.create_table(ORDERS)


def test_the_database_default_always_exists(entries: Entries) -> None:
    assert [database.name for database in entries.databases()] == ["default", "demo"]
    assert Entries(entries.catalog).database("default").name == "default"


def test_a_database_is_what_went_in(entries: Entries, tmp_path: Path) -> None:
    given = HiveDatabase(
        "sales", str(tmp_path / "elsewhere"), "All sales", {"K": "v"}, "ann", "ROLE", 1_700_000_000, {"type": "NATIVE"}
    )
    assert entries.create_database(given) == given
    assert entries.databases()[-1] == given
    changed = replace(given, description=None, parameters={}, owner="bob", location=str(tmp_path / "moved"))
    assert entries.alter_database("sales", changed) == changed
    entries.drop_database("sales")
    assert [database.name for database in entries.databases()] == ["default", "demo"]


@pytest.mark.parametrize(
    "given",
    [
        ORDERS,
        replace(ORDERS, columns=(), partition_keys=()),
        replace(ORDERS, storage=STRANGE, retention=7, accessed_at=5, created_at=11),
        replace(ORDERS, storage=HiveStorage(), table_type="INDEX_TABLE"),
        replace(
            ORDERS, table_type="EXTERNAL_TABLE", parameters={"EXTERNAL": "TRUE", "comment": "All"}, description="All"
        ),
        replace(ORDERS, table_type=None, parameters={}, description="", extra={"glue": {"TargetTable": None}}),
        replace(ORDERS, columns=(Column("I.D", "My Type"), Column("s", "struct<A:int>", ""))),
        replace(ORDERS, partition_keys=(Column("B", "binary"), Column("t", "timestamp with local time zone"))),
        replace(
            ORDERS,
            table_type="VIRTUAL_VIEW",
            partition_keys=(),
            storage=HiveStorage(),
            view_text="/* Presto View */",
            original_view_text="/* Presto View: eyJ9 */",
        ),
        replace(ORDERS, table_type="MATERIALIZED_VIEW", view_text="SELECT 1", original_view_text="select 1"),
    ],
)
def test_a_table_is_what_went_in(entries: Entries, given: HiveTable) -> None:
    created = entries.create_table(given)
    expected = replace(given, location=created.location, created_at=given.created_at or created.created_at)
    assert created == expected
    assert entries.table(NAME) == expected
    assert entries.tables([NAME, TableName("demo", "missing"), TableName("no", "such")]) == [expected]
    assert entries.table_names("demo", kind=given.table_type) == ["orders"]


def test_a_table_is_one_of_calve(entries: Entries, orders: HiveTable) -> None:
    table = entries.catalog.get_table("demo.orders")
    assert (table.format, table.kind) == (FileFormat.PARQUET, TableKind.MANAGED)
    assert table.columns == ORDERS.columns
    assert orders.location == table.location
    assert os.path.isdir(table.location)
    with pytest.raises(TableAlreadyExistsError):
        entries.create_table(ORDERS)
    entries.catalog.alter_table("demo.orders", description="Orders", add_columns=[("note", "string")])
    assert entries.table(NAME) == replace(
        orders, description="Orders", columns=(*ORDERS.columns, Column("note", "string"))
    )
    entries.drop_table(NAME)
    with pytest.raises(TableNotFoundError):
        entries.table(NAME)


def test_a_table_of_calve_is_an_entry(entries: Entries) -> None:
    entries.catalog.create_table("demo.own", columns=[("a", "int")], format="orc", is_external=True)
    own = entries.table(TableName("demo", "own"))
    assert (own.table_type, own.parameters) == ("EXTERNAL_TABLE", {"EXTERNAL": "TRUE"})
    assert own.storage.serde == "org.apache.hadoop.hive.ql.io.orc.OrcSerde"


PARTITIONS = [
    HivePartition(("DE", "1"), PARQUET, {"numRows": "3", "numFiles": "1", "totalSize": "9", "by": "me"}),
    HivePartition(("US", "2"), PARQUET, {"numRows": "-1", "totalSize": "09"}),
    HivePartition(("a/b=c %", "-3"), STRANGE),
    HivePartition(("__HIVE_DEFAULT_PARTITION__", "x"), replace(PARQUET, columns=(Column("other", "int"),))),
]


def added(entries: Entries, partitions: list[HivePartition]) -> list[HivePartition]:
    """Add partitions; return what is expected of them."""
    entries.add_partitions(NAME, partitions)
    table = entries.catalog.get_table("demo.orders")
    return [
        partition._replace(
            location=partition.location
            or table.default_partition_location(
                entries.catalog.get_partition("demo.orders", partition.values).name(table)
            ),
            created_at=entries.partition(NAME, partition.values).created_at,
        )
        for partition in partitions
    ]


def by_values(partitions: object) -> list[HivePartition]:
    return sorted(partitions, key=lambda partition: partition.values)  # type: ignore[call-overload, no-any-return]


@pytest.mark.usefixtures("orders", "unfit_values")
def test_partitions_are_what_went_in(entries: Entries) -> None:
    expected = added(entries, PARTITIONS)
    assert by_values(entries.partitions(NAME)) == by_values(expected)
    assert entries.partitions_by_values(NAME, [partition.values for partition in PARTITIONS]) == expected
    assert list(entries.partitions(NAME, "country = 'US'")) == [expected[1]]
    assert len(list(entries.partitions(NAME, limit=2))) == 2
    names = [
        "country=DE/day=1",
        "country=US/day=2",
        "country=__HIVE_DEFAULT_PARTITION__/day=x",
        "country=a%2Fb%3Dc %25/day=-3",
    ]
    assert entries.partition_names(NAME) == names
    assert all(os.path.isdir(str(partition.location)) for partition in expected)


@pytest.mark.usefixtures("orders", "unfit_values")
def test_a_batch_of_partitions_is_all_or_nothing(entries: Entries) -> None:
    entries.add_partitions(NAME, PARTITIONS[:1])
    folders = entries.table(NAME).location
    with pytest.raises(PartitionAlreadyExistsError):
        entries.add_partitions(NAME, PARTITIONS)
    with pytest.raises(InvalidPartitionError, match="one value for each key"):
        entries.add_partitions(NAME, [PARTITIONS[1], HivePartition(("DE",), PARQUET)])
    assert entries.partition_names(NAME) == ["country=DE/day=1"]
    assert os.listdir(str(folders)) == ["country=DE"]
    assert entries.add_partitions(NAME, PARTITIONS, if_not_exists=True).added == 3


@pytest.mark.usefixtures("orders", "unfit_values")
def test_partitions_are_dropped_by_values(entries: Entries) -> None:
    entries.add_partitions(NAME, PARTITIONS)
    with pytest.raises(PartitionNotFoundError, match="country=FR/day=1"):
        entries.drop_partitions(NAME, [("DE", "1"), ("FR", "1")])
    assert len(entries.partition_names(NAME)) == 4
    assert entries.drop_partitions(NAME, [("DE", "1"), ("FR", "1")], if_exists=True) == 1
    assert entries.drop_partitions(NAME, [("__HIVE_DEFAULT_PARTITION__", "x")]) == 1
    assert len(entries.partition_names(NAME)) == 2


def test_an_index_finds_partitions(entries: Entries, orders: HiveTable) -> None:
    entries.catalog.create_partition_index(str(orders.name), "by_day", ["day"])
    entries.add_partitions(NAME, [HivePartition(("DE", str(day)), PARQUET) for day in range(20)])
    assert {partition.values[1] for partition in entries.partitions(NAME, "day < 3")} == {"0", "1", "2"}
    assert entries.catalog.verify_partition_index(str(orders.name), "by_day").is_exact


def test_quarantined_partitions_are_not_taken_for_existing_ones(entries: Entries) -> None:
    """An engine has written its rows to the folder of such a partition, where nobody would see them."""
    entries.create_table(ORDERS)
    entries.add_partitions(NAME, [HivePartition(("DE", "1"), PARQUET), HivePartition(("DE", "2"), PARQUET)])
    [hidden] = entries.catalog.get_partitions(str(NAME), "day = 2")
    with entries.catalog.storage.write() as connection:
        set_quarantined(connection, entries.catalog.get_table(str(NAME)), [hidden.id], True)
    given = [HivePartition(("DE", str(day)), PARQUET) for day in (1, 2, 3)]
    with pytest.raises(PartitionAlreadyExistsError, match=r"partition country=DE/day=2 .* is quarantined, and hides"):
        entries.add_partitions(NAME, given, if_not_exists=True)
    assert entries.partition_names(NAME) == ["country=DE/day=1"]
    assert entries.catalog.release_partitions(str(NAME), reason="looked at") == 1
    assert entries.add_partitions(NAME, given, if_not_exists=True).added == 1


def test_a_view_of_a_statement_is_no_view_without_columns(entries: Entries) -> None:
    # Spark would return rows without columns.
    entries.catalog.create_view("demo.v", "SELECT 1 AS a")
    entries.catalog.create_view("demo.w", "SELECT 1", columns=[Column("a", "int")])
    view, with_columns = entries.table(TableName("demo", "v")), entries.table(TableName("demo", "w"))
    assert [column.type for column in view.columns] == ["unknown"]
    assert with_columns.columns == (Column("a", "int"),)
    assert view.storage.input_format == "org.apache.hadoop.mapred.TextInputFormat"
    assert view.storage.serde is None
    entries.alter_table(view.name, replace(view, parameters={"by": "me"}))
    assert entries.catalog.get_table("demo.v").columns == ()
    assert entries.table(view.name).columns == view.columns


def test_folders_that_a_client_lists_are_added_or_refused_by_name(entries: Entries, orders: HiveTable) -> None:
    # Spark's MSCK REPAIR TABLE sends the folders that it finds, and skips existing partitions.
    folders = [f"{orders.location}/country=DE/day={day}" for day in ("7", "007")]
    given = [HivePartition(("DE", folder.rpartition("=")[2]), PARQUET, location=folder) for folder in folders]
    for ordered in (given, given[::-1]):
        with pytest.raises(InvalidPartitionError, match=r"country=DE/day=(7|007) .* in .*country=DE/day=(7|007);"):
            entries.add_partitions(NAME, ordered, if_not_exists=True)
    assert entries.partition_names(NAME) == []
    for _ in range(2):
        entries.add_partitions(NAME, given[:1], if_not_exists=True)
    assert entries.partition_names(NAME) == ["country=DE/day=7"]
