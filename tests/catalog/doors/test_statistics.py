"""Statistics of columns: kept as they come, with their table or partition."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog import Catalog
from catalog.doors.entries import Entries
from catalog.errors import InvalidTableError, PartitionNotFoundError, TableNotFoundError
from catalog.metastores.types import HivePartition, HiveStatistics
from catalog.model import Column
from catalog.model.identifiers import TableName
from tests.support.entries import NAME, ORDERS, PARQUET

STATISTICS = [
    HiveStatistics(
        column="id",
        type="bigint",
        kind="long",
        nulls=1,
        distinct=2,
        low=-5,
        high=2**62,
        analysed_at=17,
        extra={"b": "A"},
    ),
    HiveStatistics(
        column="name", type="varchar(20)", kind="string", maximum_length=9, average_length=float("nan"), analysed_at=18
    ),
]
OTHERS = [
    replace(STATISTICS[0], kind="double", low=float("-inf"), high=1.5),
    replace(STATISTICS[1], kind="decimal", low="1.20", high="-0.5", average_length=None),
]


@pytest.fixture
def entries(catalog: Catalog) -> Entries:
    entries = Entries(catalog)
    entries.create_table(ORDERS)
    entries.add_partitions(NAME, [HivePartition(("DE", str(day)), PARQUET) for day in range(3)])
    return entries


def same(ones: list[HiveStatistics], others: list[HiveStatistics]) -> bool:
    # Not by `==`: nan is not equal to itself.
    return list(map(repr, ones)) == list(map(repr, others))


def test_statistics_are_what_went_in(entries: Entries) -> None:
    assert entries.statistics(NAME) == []
    entries.set_statistics(NAME, None, STATISTICS)
    entries.set_statistics(NAME, ("DE", "1"), OTHERS)
    assert same(entries.statistics(NAME), STATISTICS)
    assert same(entries.statistics(NAME, columns=["NAME", "day"]), STATISTICS[1:])
    assert same(entries.statistics(NAME, ("DE", "01")), OTHERS)
    assert entries.statistics(NAME, ("DE", "2")) == []
    entries.set_statistics(NAME, None, [replace(STATISTICS[0], low=7)])
    assert same(entries.statistics(NAME), [replace(STATISTICS[0], low=7), STATISTICS[1]])
    read = entries.partition_statistics(NAME, [("DE", "0"), ("DE", "1"), ("FR", "1")], ["id"])
    assert read == {"country=DE/day=1": OTHERS[:1]}


def test_statistics_of_nothing_are_refused(entries: Entries) -> None:
    with pytest.raises(TableNotFoundError):
        entries.set_statistics(TableName("demo", "missing"), None, STATISTICS)
    with pytest.raises(InvalidTableError, match="no column weight"):
        entries.set_statistics(NAME, None, [replace(STATISTICS[0], column="weight")])
    many = [(("DE", "1"), STATISTICS), (("FR", "1"), STATISTICS)]
    with pytest.raises(PartitionNotFoundError, match="country=FR/day=1"):
        entries.set_partition_statistics(NAME, many)
    with pytest.raises(PartitionNotFoundError):
        entries.statistics(NAME, ("FR", "1"))
    assert entries.partition_statistics(NAME, [values for values, _ in many]) == {}


def test_statistics_are_deleted_by_column(entries: Entries) -> None:
    entries.set_statistics(NAME, None, STATISTICS)
    assert entries.delete_statistics(NAME, column="ID") == 1
    assert same(entries.statistics(NAME), STATISTICS[1:])
    entries.set_statistics(NAME, ("DE", "1"), STATISTICS)
    assert entries.delete_statistics(NAME, ("DE", "1")) == 2
    assert entries.delete_statistics(NAME, ("DE", "1")) == 0


def test_statistics_share_the_fate_of_what_they_describe(entries: Entries) -> None:
    entries.set_statistics(NAME, None, STATISTICS)
    entries.set_partition_statistics(NAME, [(("DE", str(day)), STATISTICS) for day in range(3)])
    entries.alter_partitions(NAME, [(("DE", "1"), HivePartition(("FR", "9"), PARQUET))])
    assert same(entries.statistics(NAME, ("FR", "9")), STATISTICS)
    entries.drop_partitions(NAME, [("DE", "0")])
    entries.add_partitions(NAME, [HivePartition(("DE", "0"), PARQUET)])
    assert entries.statistics(NAME, ("DE", "0")) == []
    table = entries.table(NAME)
    entries.alter_table(NAME, replace(table, columns=(Column("id", "string"), Column("name", "varchar(20)"))))
    assert same(entries.statistics(NAME), STATISTICS[1:])
    assert same(entries.statistics(NAME, ("DE", "2")), STATISTICS[1:])
    entries.drop_table(NAME)
    entries.create_table(ORDERS)
    assert entries.statistics(NAME) == []
