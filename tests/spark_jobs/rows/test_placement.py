"""Spark and Python agree on the partitions of rows and on the rows of filters, for all types and session settings.

`make test-all` runs 2,000 filters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from catalog.expressions import parse_expression
from catalog.model import PARTITION_ID, Column, FileFormat, Table
from catalog.schemes.hashing import HashScheme
from catalog.schemes.lists import ListScheme
from catalog.schemes.model import Scheme
from catalog.schemes.ranges import RangeScheme
from catalog.types.column_types import parse_column_type
from tests.support.effort import effort
from tests.support.scheme_values import HASHED_TYPES, TYPES, Row, filters, order, plain, values_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

EXAMPLES = effort(2, 50)
ROWS, FILTERS = 14, 40
# The hash uses decimals of up to 33 digits, which Spark can only compute in several steps.
DECIMALS = ("decimal(33,0)", "decimal(33,31)", "decimal(33,33)")
KINDS = {f"c{number}": kind for number, kind in enumerate(TYPES)}
SESSIONS = [("UTC", "true"), ("America/New_York", "false"), ("Asia/Kathmandu", "true")]


@contextmanager
def session(spark: SparkSession, **changes: str) -> Iterator[None]:
    """Change settings of the session during the block."""
    names = {"zone": "spark.sql.session.timeZone", "ansi": "spark.sql.ansi.enabled"}
    before = {names[each]: str(spark.conf.get(names[each])) for each in changes}
    try:
        for each, value in changes.items():
            spark.conf.set(names[each], value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def spark_type(kind: str) -> str:
    return "string" if "char" in kind else kind


def frame(spark: SparkSession, rows: Sequence[Row], kinds: dict[str, str]) -> DataFrame:
    """Return rows as a DataFrame, with their numbers; strings of timestamps are in UTC."""
    texts = [
        (number, *[None if row[name] is None else plain(row[name]) for name in kinds])
        for number, row in enumerate(rows)
    ]
    schema = ", ".join(["number int", *[f"{name} string" for name in kinds]])
    with session(spark, zone="UTC"):
        typed = [f"cast({name} as {spark_type(kind)}) as {name}" for name, kind in kinds.items()]
        return spark.createDataFrame(texts, schema).selectExpr("number", *typed).localCheckpoint()


def schemes(column: str, kind: str, values: Sequence[Any]) -> Iterator[Scheme]:
    """Yield schemes of all kinds over some of the values that rows have."""
    value_type = parse_column_type(kind)
    assert value_type is not None
    distinct = {order(value): value for value in values if value is not None}
    texts = [plain(distinct[each]) for each in sorted(distinct)]
    yield RangeScheme(column, kind, (), 99, tuple(enumerate(texts[1::3] or texts[:1], 1)))
    yield ListScheme(column, kind, (), 99, tuple((number, (text,)) for number, text in enumerate(texts[::4], 1)))
    if kind in HASHED_TYPES:
        yield HashScheme(column, kind, (), 7)


def check_partitions(spark: SparkSession, rows: Sequence[Row], kinds: dict[str, str]) -> None:
    from spark_jobs.rows.placement import partition_id

    found = frame(spark, rows, kinds)
    asked = [each for name, kind in kinds.items() for each in schemes(name, kind, [row[name] for row in rows])]
    for zone, ansi in SESSIONS:
        with session(spark, zone=zone, ansi=ansi):
            ids = found.select("number", *[partition_id(each).alias(f"p{n}") for n, each in enumerate(asked)]).collect()
        for row in ids:
            for number, scheme in enumerate(asked):
                value = rows[row["number"]][scheme.column]
                typed = None if value is None else scheme.typed(plain(value))
                assert row[f"p{number}"] == scheme.partition_of(typed), (zone, ansi, scheme, value)


def rows_of(kinds: dict[str, str]) -> st.SearchStrategy[list[Row]]:
    """Rows whose first has only nulls."""
    row = st.fixed_dictionaries({name: values_of(kind) for name, kind in kinds.items()})
    return st.lists(row, min_size=ROWS, max_size=ROWS).map(lambda drawn: [dict.fromkeys(kinds), *drawn])


quick = settings(
    # The first example always has the simplest values.
    max_examples=EXAMPLES + 1,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    # Each shrinking step would run several Spark jobs.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)


@quick
@given(data=st.data())
def test_spark_places_every_value_as_python_does(spark: SparkSession, data: st.DataObject) -> None:
    check_partitions(spark, data.draw(rows_of(KINDS)), KINDS)


@pytest.mark.long
@quick
@given(data=st.data())
def test_spark_hashes_decimals_of_many_digits_as_python_does(spark: SparkSession, data: st.DataObject) -> None:
    from spark_jobs.rows.placement import partition_id

    rows = []
    for _ in range(ROWS):
        row = {}
        for number, kind in enumerate(DECIMALS):
            scale = int(kind[11:-1])
            unscaled = data.draw(st.integers(-99, 99) | st.integers(1 - 10**33, 10**33 - 1) | st.sampled_from([10**32]))
            row[f"c{number}"] = f"{'-' * (unscaled < 0)}{str(abs(unscaled)).zfill(scale + 1)}"
            at = len(row[f"c{number}"]) - scale
            row[f"c{number}"] = row[f"c{number}"][:at] + "." * bool(scale) + row[f"c{number}"][at:]
        rows.append(row)
    kinds = {f"c{number}": kind for number, kind in enumerate(DECIMALS)}
    found = frame(spark, rows, kinds)
    hashed = [HashScheme(name, kind, (), 9973) for name, kind in kinds.items()]
    for row in found.select("number", *[partition_id(each).alias(each.column) for each in hashed]).collect():
        for scheme in hashed:
            text = rows[row["number"]][scheme.column]
            assert row[scheme.column] == scheme.partition_of(scheme.typed(text)), (scheme.column_type, text)


@pytest.mark.long
@quick
@given(data=st.data())
def test_spark_finds_the_rows_of_a_filter_as_python_does(spark: SparkSession, data: st.DataObject) -> None:
    from pyspark.sql import functions as f

    from spark_jobs.reading.filters import filter_sql

    rows = data.draw(rows_of(KINDS))
    columns = [(name, kind, [row[name] for row in rows[1:]]) for name, kind in KINDS.items()]
    conditions = data.draw(st.lists(filters(columns), min_size=FILTERS, max_size=FILTERS))
    table = table_of(HashScheme("c0", KINDS["c0"], (), 4))
    trees = [parse_expression(where.text, table.filter_view) for where in conditions]
    found = frame(spark, rows, KINDS)
    for zone, ansi in SESSIONS[1:]:
        with session(spark, zone=zone, ansi=ansi):
            sql = [f.expr(filter_sql(tree, table)).alias(f"w{n}") for n, tree in enumerate(trees)]
            answers = found.select("number", *sql).collect()
        for answer in answers:
            for number, where in enumerate(conditions):
                expected = where.test(rows[answer["number"]]) is True
                assert (answer[f"w{number}"] is True) == expected, (where.text, rows[answer["number"]])


def table_of(scheme: Scheme) -> Table:
    columns = tuple(Column(name, kind) for name, kind in KINDS.items())
    return Table("demo", "t", columns, (), FileFormat.PARQUET, "/t", scheme=scheme)


@pytest.mark.parametrize(
    ("name", "values", "wheres"),
    [
        # Literals that equal no value of the column's type: with more digits, or out of range.
        (
            "decimal(38,38)",
            ["0." + "3" * 38, "0", None],
            {
                "< 0." + "3" * 39: [0, 1],
                "> 0." + "3" * 39: [],
                "<= 1": [0, 1],
                "= 0." + "3" * 38: [0],
                "<> 0." + "3" * 40: [0, 1],
                "in (0, 0." + "3" * 40 + ")": [1],
                "not in (0, 0." + "3" * 40 + ")": [0],
                "between -1 and 0.5": [0, 1],
                f"< {'9' * 40}": [0, 1],
            },
        ),
        (
            "decimal(38,0)",
            ["9" * 38, "0", "-" + "9" * 38],
            {
                "> 0.5": [0],
                "< 0.5": [1, 2],
                "= 0.5": [],
                f"<= {'9' * 38}.5": [0, 1, 2],
                f"< {'9' * 38}": [1, 2],
                f"> -{'9' * 39}": [0, 1, 2],
                f"> {'9' * 40}": [],
            },
        ),
        ("decimal(10,2)", ["1.50", "1.51"], {"> 1.505": [1], "<= 1.505": [0], "= 1.5": [0], "<> 1.505": [0, 1]}),
        ("varchar(4)", ["abcd", "abc"], {"= 'abcde'": [], "< 'abcde'": [0, 1], "like 'abc%'": [0, 1]}),
        ("char(3)", ["ab", "ab "], {"= 'ab  '": [0, 1], "like 'ab'": [], "like 'ab '": [0, 1], "like 'ab_'": [0, 1]}),
        ("boolean", ["true", "false", None], {"= true": [0], "<> true": [1], "in ('true')": [0], "< true": [1]}),
    ],
)
def test_literals_that_are_no_values_of_the_type_compare_with_them(
    spark: SparkSession, name: str, values: list[str | None], wheres: dict[str, list[int]]
) -> None:
    from spark_jobs.reading.filters import filter_sql

    column = next(each for each, kind in KINDS.items() if kind == name)
    table = table_of(HashScheme("c0", KINDS["c0"], (), 4))
    found = frame(spark, [{column: value} for value in values], {column: name})
    for text, expected in wheres.items():
        tree = parse_expression(f"{column} {text}", table.filter_view)
        for ansi in ("true", "false"):
            with session(spark, ansi=ansi):
                rows = found.where(filter_sql(tree, table)).collect()
            assert sorted(row["number"] for row in rows) == expected, (text, ansi)


def test_a_filter_on_the_partition_id_is_one_on_the_function_of_the_column(spark: SparkSession) -> None:
    from spark_jobs.reading.filters import filter_sql

    scheme = RangeScheme("c2", "int", (), 4, ((3, "10"), (1, "20")))
    table = table_of(scheme)
    found = frame(spark, [{"c2": value} for value in (5, 10, 20, None)], {"c2": "int"})
    for text, expected in {"= 3": [0], "> 0": [0, 1], "in (0, 1)": [1, 2, 3], "is not null": [0, 1, 2, 3]}.items():
        tree = parse_expression(f"{PARTITION_ID} {text}", table.filter_view)
        assert [row["number"] for row in found.where(filter_sql(tree, table)).collect()] == expected
    tree = parse_expression("c2 < 10 or _partition_id = 0 and c2 is null", table.filter_view)
    assert [row["number"] for row in found.where(filter_sql(tree, table)).collect()] == [0, 3]
