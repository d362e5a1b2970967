"""Column statistics are stored, read, aggregated and deleted."""

from __future__ import annotations

from typing import Any

import pytest
from hive_metastore import ttypes

from tests.support.hms_door import columns, partition, storage, table

COLUMNS = {
    "l": "bigint",
    "d": "double",
    "s": "string",
    "b": "boolean",
    "x": "binary",
    "n": "decimal(10,2)",
    "day": "date",
    "t": "timestamp",
}

LOW = ttypes.Decimal(unscaled=b"\xfe\xd4", scale=2)


def sample(low: int = 1, nulls: int = 3) -> list[Any]:
    kinds = {
        "l": ("longStats", ttypes.LongColumnStatsData(low, low + 9, nulls, 7)),
        "d": ("doubleStats", ttypes.DoubleColumnStatsData(low + 0.5, low + 9.25, nulls, 7)),
        "s": ("stringStats", ttypes.StringColumnStatsData(10 + low, 4.5, nulls, 7, b"\x00\xff")),
        "b": ("booleanStats", ttypes.BooleanColumnStatsData(low, 2, nulls)),
        "x": ("binaryStats", ttypes.BinaryColumnStatsData(10, 4.5, nulls)),
        "n": (
            "decimalStats",
            ttypes.DecimalColumnStatsData(LOW, ttypes.Decimal(unscaled=b"\x03", scale=0), nulls, 7),
        ),
        "day": ("dateStats", ttypes.DateColumnStatsData(ttypes.Date(-low), ttypes.Date(20_000), nulls, 7)),
        "t": ("timestampStats", ttypes.TimestampColumnStatsData(ttypes.Timestamp(low), ttypes.Timestamp(99), nulls, 7)),
    }
    return [
        ttypes.ColumnStatisticsObj(name, COLUMNS[name], ttypes.ColumnStatisticsData(**{field: data}))
        for name, (field, data) in kinds.items()
    ]


def about(part: str | None = None) -> Any:
    return ttypes.ColumnStatisticsDesc(isTblLevel=part is None, dbName="demo", tableName="t", partName=part)


@pytest.fixture
def stored(client: Any) -> Any:
    sd = storage(cols=columns(**COLUMNS))
    client.create_table(table("demo", "t", {"p": "string"}, sd=sd))
    client.add_partitions([partition("demo", "t", [value], sd=sd) for value in ("a", "b", "c d")])
    return client


def by_name(statistics: list[Any]) -> dict[str, Any]:
    return {part.colName: part for part in statistics}


def test_statistics_come_back_as_they_were_sent(stored: Any) -> None:
    assert stored.update_table_column_statistics(ttypes.ColumnStatistics(about(), sample()))
    request = ttypes.TableStatsRequest("demo", "t", list(COLUMNS))
    assert by_name(stored.get_table_statistics_req(request).tableStats) == by_name(sample())
    assert stored.get_table_column_statistics("demo", "t", "N").statsObj == [by_name(sample())["n"]]


def test_statistics_of_partitions_are_aggregated(stored: Any) -> None:
    for name, low in (("p=a", 1), ("p=c d", -4)):
        assert stored.update_partition_column_statistics(ttypes.ColumnStatistics(about(name), sample(low)))
    request = ttypes.PartitionsStatsRequest("demo", "t", ["l", "s", "n"], ["p=a", "p=b", "p=c d", "p=none"])
    found = stored.get_partitions_statistics_req(request).partStats
    assert sorted(found) == ["p=a", "p=c d"]
    total = stored.get_aggr_stats_for(request)
    assert total.partsFound == 2
    numbers = by_name(total.colStats)["l"].statsData.longStats
    assert (numbers.lowValue, numbers.highValue, numbers.numNulls, numbers.numDVs) == (-4, 10, 6, 7)
    assert by_name(total.colStats)["n"].statsData.decimalStats.lowValue == LOW


def test_merged_statistics_are_those_of_both(stored: Any) -> None:
    for _ in range(2):
        request = ttypes.SetPartitionsStatsRequest([ttypes.ColumnStatistics(about("p=a"), sample())], needMerge=True)
        assert stored.set_aggr_stats_for(request)
    found = stored.get_partition_column_statistics("demo", "t", "p=a", "l").statsObj[0].statsData.longStats
    assert (found.numNulls, found.lowValue) == (6, 1)


def test_deleted_statistics_are_gone(stored: Any) -> None:
    stored.update_table_column_statistics(ttypes.ColumnStatistics(about(), sample()))
    assert stored.delete_table_column_statistics("demo", "t", "l", "hive")
    with pytest.raises(ttypes.NoSuchObjectException, match=r"there are no statistics of column l of demo\.t"):
        stored.get_table_column_statistics("demo", "t", "l")
    assert stored.delete_table_column_statistics("demo", "t", None, "hive")
    with pytest.raises(ttypes.NoSuchObjectException):
        stored.delete_table_column_statistics("demo", "t", None, "hive")


def test_statistics_of_what_does_not_exist_are_refused(stored: Any) -> None:
    with pytest.raises(ttypes.NoSuchObjectException, match=r"table demo\.none does not exist"):
        stored.get_table_column_statistics("demo", "none", "l")
    with pytest.raises(ttypes.NoSuchObjectException):
        stored.update_partition_column_statistics(ttypes.ColumnStatistics(about("p=zz"), sample()))
