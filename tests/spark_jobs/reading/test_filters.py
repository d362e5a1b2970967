"""Filters as conditions on rows, and conditions from the statistics of files."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from catalog import Catalog
from catalog.datafiles.files import ColumnStatistics
from catalog.datafiles.footers import day_of, statistics_of
from catalog.statements.session import Session
from catalog.types.column_types import parse_column_type
from catalog.types.key_types import DateType, DecimalType, KeyType, KeyValue, TimestampType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG = "é" * 100
VALUES: dict[str, list[Any]] = {
    "tinyint": [-128, -1, 0, 127],
    "bigint": [-(2**63), -256, -1, 0, 255, 256, 2**63 - 1],
    "decimal(5,2)": [Decimal("-999.99"), Decimal("-0.01"), Decimal("0.00"), Decimal("2.55"), Decimal("999.99")],
    "decimal(38,10)": [Decimal("-1E+27"), Decimal("1E-10"), Decimal("9.5"), Decimal("1E+27")],
    "boolean": [False, True],
    "date": [date(1, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(2024, 12, 31), date(9999, 12, 31)],
    "timestamp": [
        *(datetime(1, 1, 2, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
        *(datetime(2024, 3, 31, 2, 30, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)),
    ],
    "string": ["", "\x00", "a", "a\x00b", "a\x01", "a\x02c", "a\x03", "b'\\", "z", "é", f"{LONG}a", f"{LONG}b", "😀"],
}


def stored(value_type: KeyType, value: Any) -> KeyValue:
    match value_type:
        case DateType():
            return day_of((value - date(1970, 1, 1)).days)
        case TimestampType():
            return (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)  # type: ignore[no-any-return]
        case DecimalType():
            return value_type.scaled(int(value.scaleb(value_type.scale)))
    return int(value) if isinstance(value, bool) else value  # type: ignore[no-any-return]


@pytest.mark.parametrize("type_name", VALUES)
def test_statistics_of_files_are_a_condition_that_their_rows_meet(spark: SparkSession, type_name: str) -> None:
    from spark_jobs.reading.filters import statistics_sql

    value_type, values = parse_column_type(type_name), VALUES[type_name]
    assert value_type is not None
    conditions = {}
    for first in range(len(values)):
        for last in range(first, len(values)):
            least, greatest = stored(value_type, values[first]), stored(value_type, values[last])
            statistics = statistics_of(value_type, least, greatest, 0)
            # A second file with only nulls makes no difference to the others.
            both = [statistics, ColumnStatistics(None, None, 2)] if first % 2 else [statistics]
            condition = statistics_sql("v", value_type, both)
            assert condition is not None
            conditions[first, last] = condition
    rows = spark.createDataFrame(
        [(number, value) for number, value in enumerate([*values, None])], f"n int, v {type_name}"
    )
    found = rows.selectExpr("n", *conditions.values()).collect()
    for (first, last), row in ((pair, row) for row in found for pair in conditions):
        is_met = row[1 + list(conditions).index((first, last))]
        if row.n == len(values):
            assert bool(is_met) is bool(first % 2)
        elif first <= row.n <= last:
            assert is_met, (values[first], values[last], values[row.n])
        elif type_name != "string":
            assert not is_met, (values[first], values[last], values[row.n])


@pytest.mark.parametrize(
    ("type_name", "statistics", "condition"),
    [
        ("int", [None], None),
        ("int", [ColumnStatistics(None, None, 3)], "(`v` is null)"),
        ("int", [], None),
        ("int", [ColumnStatistics(None, None, 3), None], None),
    ],
)
def test_unknown_statistics_are_no_condition(
    type_name: str, statistics: list[ColumnStatistics | None], condition: str | None
) -> None:
    from spark_jobs.reading.filters import statistics_sql

    value_type = parse_column_type(type_name)
    assert value_type is not None
    assert statistics_sql("v", value_type, statistics) == condition


def test_bounds_that_no_literal_expresses_are_left_out() -> None:
    from spark_jobs.reading.filters import statistics_sql

    double, day, text = (parse_column_type(name) for name in ("double", "date", "string"))
    assert double is not None
    assert day is not None
    assert text is not None
    number = statistics_of(double, double.parse("1"), double.parse("2"), 0)
    assert statistics_sql("v", double, [number]) is None
    days = [day_of(number) for number in (-10_000_000, 0, 10_000_000)]
    assert statistics_sql("v", day, [statistics_of(day, days[0], days[1], 0)]) == "(`v` <= date '1970-01-01')"
    assert statistics_sql("v", day, [statistics_of(day, days[1], days[2], 0)]) == "(`v` >= date '1970-01-01')"
    assert statistics_sql("v", day, [statistics_of(day, days[0], days[2], 0)]) is None
    # The last byte of the truncated bound is in the middle of a character.
    longest = statistics_of(text, "a", "a" + "\U0010ffff" * 40, 0)
    assert statistics_sql("v", text, [longest]) == "(`v` >= cast(X'61' as string))"


@pytest.mark.parametrize("type_name", ["double", "float"])
def test_both_zeros_are_found_whatever_statistics_say(
    session: Session, catalog: Catalog, spark: SparkSession, type_name: str
) -> None:
    from spark_jobs.reading.tables import read_table

    session.execute(
        f"CREATE TABLE t (id int, b {type_name}) PARTITIONED BY (k int) STORED BY 'carbondata' "
        "TBLPROPERTIES ('PARTITION_TYPE'='RANGE', 'RANGE_INFO'='5, 9')"
    )
    rows = "(1, -0.0D, 1), (2, -5.0D, 1), (3, NULL, 1), (4, 0.0D, 7), (5, 5.0D, 7), (6, -0.0D, 10)"
    session.execute(f"INSERT INTO t SELECT * FROM VALUES {rows}")
    for where, expected in {
        "b = 0.0": [1, 4, 6],
        "b = -0.0": [1, 4, 6],
        "b in (0.0)": [1, 4, 6],
        "b in (5.0, -0.0)": [1, 4, 5, 6],
        "not (b in (0.0, 7.0))": [2, 5],
        "b <> 0.0": [2, 5],
        "b >= 0.0": [1, 4, 5, 6],
        "b > -0.0": [5],
        "b <= -0.0": [1, 2, 4, 6],
        "b < 0.0": [2],
        "b between 0.0 and 1.0": [1, 4, 6],
        "not (b = 0.0)": [2, 5],
    }.items():
        found = read_table(spark, "shop.t", where, catalog=catalog).select("id").collect()
        assert sorted(row.id for row in found) == expected, where
