"""Statistics of columns through boto3."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from botocore.exceptions import ClientError

from catalog.doors.entries import Entries
from catalog.metastores.types import HiveStatistics
from catalog.model.identifiers import TableName
from tests.support.glue_door import GlueDoor, table_input

ORDERS = {"DatabaseName": "demo", "TableName": "orders"}
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
RANGE = {"NumberOfNulls": 1, "NumberOfDistinctValues": 2}
DATA: list[tuple[str, str, dict[str, Any]]] = [
    ("BOOLEAN", "Boolean", {"NumberOfTrues": 1, "NumberOfFalses": 2, "NumberOfNulls": 3}),
    ("LONG", "Long", {"MinimumValue": -5, "MaximumValue": 2**62, **RANGE}),
    ("LONG", "Long", RANGE),
    ("DOUBLE", "Double", {"MinimumValue": -0.5, "MaximumValue": 1e300, **RANGE}),
    ("STRING", "String", {"MaximumLength": 9, "AverageLength": 2.5, **RANGE}),
    ("BINARY", "Binary", {"MaximumLength": 9, "AverageLength": 2.5, "NumberOfNulls": 0}),
    ("DATE", "Date", {"MinimumValue": datetime(1969, 12, 31, tzinfo=UTC), "MaximumValue": AT, **RANGE}),
    *(
        ("DECIMAL", "Decimal", {"MaximumValue": {"UnscaledValue": raw, "Scale": scale}, **RANGE})
        for raw, scale in (
            (b"\x04\xd2", 2),
            (b"\xfb\x2e", 0),
            (b"\x00\x80", 5),
            (b"\x80", 1),
            (b"\x00", 0),
            (b"\x05", -3),
        )
    ),
]


def statistics(kind: str, data: dict[str, Any], word: str, column: str = "id") -> dict[str, Any]:
    return {
        "ColumnName": column,
        "ColumnType": "any type",
        "AnalyzedTime": AT,
        "StatisticsData": {"Type": kind, f"{word}ColumnStatisticsData": data},
    }


@pytest.fixture
def glue(glue: Any) -> Any:
    glue.create_table(DatabaseName="demo", TableInput=table_input("orders", {"day": "int"}))
    glue.create_partition(**ORDERS, PartitionInput={"Values": ["1"]})
    return glue


@pytest.mark.parametrize("partition", [{}, {"PartitionValues": ["1"]}], ids=["table", "partition"])
def test_statistics_come_back_as_they_went_in(glue: Any, partition: dict[str, Any]) -> None:
    owner = "partition" if partition else "table"
    update = getattr(glue, f"update_column_statistics_for_{owner}")
    get = getattr(glue, f"get_column_statistics_for_{owner}")
    for kind, word, data in DATA:
        given = statistics(kind, data, word)
        assert "Errors" not in update(**ORDERS, **partition, ColumnStatisticsList=[given])
        answer = get(**ORDERS, **partition, ColumnNames=["ID", "name", "nothing"])
        assert answer["ColumnStatisticsList"] == [given]
        assert [error["ColumnName"] for error in answer["Errors"]] == ["name", "nothing"]
    delete = getattr(glue, f"delete_column_statistics_for_{owner}")
    delete(**ORDERS, **partition, ColumnName="id")
    answer = get(**ORDERS, **partition, ColumnNames=["id", "name"])
    assert answer["ColumnStatisticsList"] == []
    errors = [(error["ColumnName"], error["Error"]["ErrorCode"]) for error in answer["Errors"]]
    assert errors == [("id", "EntityNotFoundException"), ("name", "EntityNotFoundException")]
    # Trino deletes the statistics of each column of a new table, which has none.
    delete(**ORDERS, **partition, ColumnName="id")
    delete(**ORDERS, **partition, ColumnName="day")


def test_a_wrong_column_does_not_affect_the_others(glue: Any) -> None:
    right = statistics("LONG", RANGE, "Long")
    wrong = [statistics("LONG", RANGE, "Long", "no"), {**right, "StatisticsData": {"Type": "LONG"}}]
    errors = glue.update_column_statistics_for_table(**ORDERS, ColumnStatisticsList=[*wrong, right])["Errors"]
    codes = [(error["ColumnStatistics"]["ColumnName"], error["Error"]["ErrorCode"]) for error in errors]
    assert codes == [("no", "EntityNotFoundException"), ("id", "InvalidInputException")]
    found = glue.get_column_statistics_for_table(**ORDERS, ColumnNames=["id"])["ColumnStatisticsList"]
    assert found == [right]


@pytest.mark.parametrize("values", [["2"], ["1", "2"], []])
def test_statistics_of_a_partition_that_does_not_exist(glue: Any, values: list[str]) -> None:
    for call in (
        lambda: glue.get_column_statistics_for_partition(**ORDERS, PartitionValues=values, ColumnNames=["id"]),
        lambda: glue.update_column_statistics_for_partition(
            **ORDERS, PartitionValues=values, ColumnStatisticsList=[statistics("LONG", RANGE, "Long")]
        ),
        lambda: glue.delete_column_statistics_for_partition(**ORDERS, PartitionValues=values, ColumnName="id"),
    ):
        with pytest.raises(ClientError, match="Cannot find partition"):
            call()


def test_statistics_of_other_protocols_are_those_of_glue(glue: Any, door: GlueDoor) -> None:
    entries, name = Entries(door.catalog), TableName("demo", "orders")
    stored = [
        HiveStatistics(column="id", type="bigint", kind="timestamp", low=1, high=2, nulls=3),
        HiveStatistics(column="name", type="decimal(9,2)", kind="decimal", low="-12.30", high="7", nulls=0, distinct=5),
    ]
    entries.set_statistics(name, None, stored)
    found = glue.get_column_statistics_for_table(**ORDERS, ColumnNames=["id", "name"])["ColumnStatisticsList"]
    long, decimal = (one["StatisticsData"] for one in found)
    assert long["LongColumnStatisticsData"]["MinimumValue"] == 1
    low = decimal["DecimalColumnStatisticsData"]["MinimumValue"]
    unscaled = int.from_bytes(low["UnscaledValue"], signed=True)
    assert Decimal(unscaled).scaleb(-low["Scale"]) == Decimal("-12.30")
    glue.update_column_statistics_for_table(**ORDERS, ColumnStatisticsList=[statistics(*DATA[6][::2], DATA[6][1])])
    [of_id] = entries.statistics(name, None, ["id"])
    assert (of_id.kind, of_id.low, of_id.high) == ("date", -1, AT.timestamp() // 86_400)
