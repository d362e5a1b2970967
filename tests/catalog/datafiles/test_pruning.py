"""Files are pruned by their statistics only if none of their rows matches, for all values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog.datafiles.files import ColumnStatistics, NewFile
from catalog.datafiles.footers import column_types
from catalog.datafiles.pruning import FileCondition, partitions_of, partitions_of_file
from catalog.expressions import parse_expression
from catalog.indexes.keys import after_prefix
from catalog.model import PARTITION_ID, Column, FileFormat, Table
from catalog.types.column_types import parse_column_type
from catalog.types.key_types import KeyType
from tests.support.effort import effort
from tests.support.footers import read_footer
from tests.support.scheme_cases import COLUMN, cases, make, steps
from tests.support.scheme_values import (
    DECIMALS,
    INTEGER_BITS,
    LONG,
    TYPES,
    Day,
    Row,
    begins,
    comparison,
    filters,
    plain,
    pools,
    stored,
    values_of,
)

EXAMPLES = effort(12, 300)
few = settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])


def arrow_type(kind: str) -> pa.DataType:
    """Return the type with which Spark writes a column."""
    if kind in DECIMALS:
        return pa.decimal128(*DECIMALS[kind])
    if kind in INTEGER_BITS:
        return {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[INTEGER_BITS[kind]]
    known = {"double": pa.float64(), "float": pa.float32(), "boolean": pa.bool_(), "date": pa.date32()}
    return pa.timestamp("us", "UTC") if kind == "timestamp" else known.get(kind, pa.string())


def write_file(path: Path, rows: Sequence[Row], kinds: Mapping[str, str], group_size: int = 1000) -> None:
    arrays = {}
    for name, kind in kinds.items():
        values = [None if row[name] is None else stored(row[name]) for row in rows]
        target = arrow_type(kind)
        whole = (
            pa.array(values, pa.int32())
            if kind == "date"
            else pa.array(values, pa.int64())
            if kind == "timestamp"
            else None
        )
        arrays[name] = pa.array(values, target) if whole is None else whole.cast(target)
    # Strings are UTF-8 here; `test_texts_that_are_no_texts_have_no_statistics` has others.
    pq.write_table(pa.table(arrays), path, row_group_size=group_size)


def statistics_of(folder: Path, rows: Sequence[Row], kinds: Mapping[str, str], group_size: int = 1000) -> NewFile:
    write_file(folder / "rows.parquet", rows, kinds, group_size)
    return read_footer(folder, "rows.parquet", 0, column_types(tuple(kinds), kinds))


def rows_of(kinds: Mapping[str, str], usual: Mapping[str, Sequence[Any]]) -> st.SearchStrategy[list[Row]]:
    def column(name: str) -> st.SearchStrategy[Any]:
        some = st.sampled_from(usual[name])
        return some | some | values_of(kinds[name]) | st.none()

    return st.lists(st.fixed_dictionaries({name: column(name) for name in kinds}), min_size=1, max_size=6)


@few
@given(data=st.data())
def test_no_file_with_a_matching_row_is_pruned(data: st.DataObject, tmp_path: Path) -> None:
    kinds = {name: data.draw(st.sampled_from(TYPES)) for name in ("a", "b", "c")}
    usual = {name: data.draw(pools(kind, 5)) for name, kind in kinds.items()}
    columns = tuple(Column(name, kind) for name, kind in kinds.items())
    scheme = make(kinds["c"], PARTITION_TYPE="LIST", LIST_INFO=["1", "0", "true", "2014-01-01"][_number(kinds["c"])])
    view = Table("demo", "t", columns, (), FileFormat.PARQUET, "/t", scheme=scheme).filter_view
    conditions = data.draw(
        st.lists(filters([(name, kinds[name], usual[name]) for name in kinds]), min_size=6, max_size=6)
    )
    prepared = [FileCondition(parse_expression(where.text, view), view) for where in conditions]
    for _ in range(3):
        rows = data.draw(rows_of(kinds, usual))
        file = statistics_of(tmp_path, rows, kinds, data.draw(st.integers(1, 4)))
        assert file.row_count == len(rows)
        stored = {name: ColumnStatistics.from_json(each.as_json()) for name, each in file.statistics.items()}
        assert stored == file.statistics
        for where, condition in zip(conditions, prepared, strict=True):
            if any(where.test(row) for row in rows):
                assert condition.may_match(stored), where.text


def _number(kind: str) -> int:
    return {"decimal(38,38)": 1, "decimal(5,5)": 1, "boolean": 2, "date": 3, "timestamp": 3}.get(kind, 0)


@few
@given(data=st.data())
def test_a_file_is_given_only_to_a_partition_that_all_its_rows_belong_to(data: st.DataObject, tmp_path: Path) -> None:
    """The condition by which a change reads a file, or only assigns it to another partition."""
    case = data.draw(cases())
    before, model = case.scheme, case.model
    step = data.draw(steps(model, case.pool))
    effect = step.change.of(before)
    kinds = {COLUMN: case.kind}
    rows = data.draw(rows_of(kinds, {COLUMN: case.pool}))
    source = model.of(rows[0][COLUMN])
    rows = [row for row in rows if model.of(row[COLUMN]) == source]
    if source in effect.deleted:
        return
    targets = effect.targets.get(source, (source,))
    found = partitions_of_file(effect.scheme, statistics_of(tmp_path, rows, kinds).statistics, targets)
    assert {step.model.of(row[COLUMN]) for row in rows} <= found <= set(targets)


@pytest.mark.parametrize("kind", [each for each in TYPES if not each.startswith("char")])
def test_statistics_are_as_narrow_as_the_values(kind: str, tmp_path: Path) -> None:
    """All types have statistics, but for char, whose trailing blanks the files compare."""
    value_type = parse_column_type(kind)
    assert value_type is not None
    one, two = {
        "boolean": (False, True),
        "date": (Day(2014, 1, 5), Day(2014, 2, 1)),
        "timestamp": (datetime(1969, 12, 31, 23, 59, 59, 5), datetime(2014, 1, 1)),
        **dict.fromkeys(("string", "varchar(4)"), ("a", "b")),
    }.get(kind, (0, 1) if kind not in ("decimal(38,38)", "decimal(5,5)") else (_tenth(1), _tenth(2)))
    low, high = (value_type.encode(value_type.parse(plain(value))) for value in (one, two))
    rows = [{COLUMN: two}, {COLUMN: None}, {COLUMN: one}]
    found = statistics_of(tmp_path, rows, {COLUMN: kind}, 2).statistics[COLUMN]
    assert (found.low, found.null_count) == (low, 1)
    assert found.high is not None
    if kind in ("double", "float"):
        nan = value_type.encode(value_type.parse("nan"))
        assert high < nan < found.high
    else:
        assert found.high == after_prefix(high)
        single = statistics_of(tmp_path, [{COLUMN: one}], {COLUMN: kind}).statistics[COLUMN]
        assert [each.is_point for each in single.ranges] == [True]


def _tenth(number: int) -> Decimal:
    return Decimal(number).scaleb(-1)


@pytest.mark.parametrize("least", range(len(LONG)))
def test_texts_longer_than_what_is_kept_of_them_are_found(least: int, tmp_path: Path) -> None:
    ascending = sorted(LONG)
    scheme = make("string", PARTITION_TYPE="RANGE", RANGE_INFO=", ".join(text for text in ascending if text.strip()))
    view = Table("demo", "t", (Column(COLUMN, "string"),), (), FileFormat.PARQUET, "/t", scheme=scheme).filter_view
    for greatest in range(least, len(ascending)):
        values = [ascending[least], ascending[greatest]]
        found = statistics_of(tmp_path, [{COLUMN: value} for value in values], {COLUMN: "string"}).statistics
        for value in values:
            assert scheme.partition_of(value) in partitions_of_file(scheme, found, scheme.ids)
            for where in (
                *(comparison(COLUMN, "string", operator, value) for operator in ("=", ">=", "<=")),
                begins(COLUMN, "string", "", value),
                begins(COLUMN, "string", "", value[:-1]),
            ):
                assert where.test({COLUMN: value})
                assert FileCondition(parse_expression(where.text, view), view).may_match(found), where.text


def test_a_file_of_nulls_has_only_the_null(tmp_path: Path) -> None:
    found = statistics_of(tmp_path, [{COLUMN: None}] * 3, {COLUMN: "int"}).statistics[COLUMN]
    assert (found.low, found.high, found.null_count) == (None, None, 3)
    scheme = make("int", PARTITION_TYPE="LIST", LIST_INFO="1, 2")
    assert partitions_of_file(scheme, {COLUMN: found}, scheme.ids) == {0}


def test_days_outside_of_the_calendar_are_kept_apart_from_those_inside(tmp_path: Path) -> None:
    """Spark has days before the year 0 and after the year 9999; filters have the year 0."""
    scheme = make("date", PARTITION_TYPE="RANGE", RANGE_INFO="0000-06-01, 0001-01-01, 9999-12-31")
    hashed = make("date", PARTITION_TYPE="HASH", PARTITION_NUM="9")
    view = Table("demo", "t", (Column(COLUMN, "date"),), (), FileFormat.PARQUET, "/t", scheme=scheme).filter_view
    year_0 = stored(Day(0, 7, 1))
    for number, matching, partition in (
        (year_0, [f"{COLUMN} = '0000-07-01'", f"{COLUMN} > '0000-06-30'", f"{COLUMN} < '0000-07-02'"], 2),
        (stored(Day(0, 1, 1)), [f"{COLUMN} <= '0000-01-01'"], 1),
        (stored(Day(0, 1, 1)) - 400, [f"{COLUMN} < '0000-01-01'", f"{COLUMN} <> '0000-01-01'"], 1),
        (stored(Day(9999, 12, 31)), [f"{COLUMN} = '9999-12-31'", f"{COLUMN} >= '9999-12-31'"], 0),
        (stored(Day(9999, 12, 31)) + 900, [f"{COLUMN} > '9999-12-31'", f"{COLUMN} is not null"], 0),
    ):
        days = pa.table({COLUMN: pa.array([number], pa.int32()).cast(pa.date32())})
        pq.write_table(days, tmp_path / "days.parquet")
        types: dict[str, KeyType] = column_types((COLUMN,), {COLUMN: "date"})
        found = read_footer(tmp_path, "days.parquet", 0, types).statistics
        assert partitions_of_file(scheme, found, scheme.ids) == {partition}, number
        is_known = 0 <= number - stored(Day(0, 1, 1)) <= stored(Day(9999, 12, 31)) - stored(Day(0, 1, 1))
        assert len(partitions_of_file(hashed, found, hashed.ids)) == (1 if is_known else 9)
        for text in matching:
            assert FileCondition(parse_expression(text, view), view).may_match(found), (number, text)


def test_texts_that_are_no_texts_have_no_statistics(tmp_path: Path) -> None:
    """Spark's strings may have any bytes; decoded, they would have another order."""
    array = pa.Array.from_buffers(pa.string(), 2, pa.array([b"a", b"\xff"], pa.binary()).buffers())
    pq.write_table(pa.table({COLUMN: array}), tmp_path / "bytes.parquet")
    types = column_types((COLUMN,), {COLUMN: "string"})
    assert read_footer(tmp_path, "bytes.parquet", 0, types).statistics == {}


def test_a_column_that_a_file_lacks_may_be_anything(tmp_path: Path) -> None:
    write_file(tmp_path / "rows.parquet", [{"b": 1}], {"b": "int"})
    found = read_footer(tmp_path, "rows.parquet", 0, column_types(("b", "c"), {"b": "int", "c": "int"}))
    assert set(found.statistics) == {"b"}
    scheme = make("int", PARTITION_TYPE="RANGE", RANGE_INFO="1, 2")
    assert partitions_of_file(scheme, found.statistics, (1, 2)) == {1, 2}


def test_files_are_found_by_their_partition_id_too() -> None:
    scheme = make("int", PARTITION_TYPE="RANGE", RANGE_INFO="1, 2")
    table = Table("demo", "t", (Column(COLUMN, "int"),), (), FileFormat.PARQUET, "/t", scheme=scheme)

    def found(text: str) -> tuple[int, ...]:
        return partitions_of(parse_expression(text, table.filter_view), table)

    assert found(f"{PARTITION_ID} = 1") == (1,)
    assert found(f"{PARTITION_ID} >= 1 and {COLUMN} < 1") == (1,)
    assert found(f"{PARTITION_ID} = 2 and {COLUMN} < 1") == ()
    assert found(f"{PARTITION_ID} in (0, 2, 9)") == (0, 2)
    assert found(f"{PARTITION_ID} is null") == ()
    assert found(f"{PARTITION_ID} = 1 or {COLUMN} = 7") == (0, 1, 2)
