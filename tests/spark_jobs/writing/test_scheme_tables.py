"""Loads and changes never lose or duplicate rows, rows are in their partitions, and readers return all matching rows.

Each example is a table with some loads and changes. `make test-all` makes 100 on each database.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from catalog import Catalog
from catalog.rebalancing.changes import DropPartitions
from tests.support.effort import effort
from tests.support.scheme_cases import COLUMN, Case, cases, interval_cases, make, same_partitions, steps, undone
from tests.support.scheme_model import IntervalModel
from tests.support.scheme_tables import SchemeTable
from tests.support.scheme_values import Row, comparison, filters, pools, values_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EXAMPLES = effort(3, 100)
TYPES = (
    *("string", "char(3)", "varchar(4)", "int", "bigint", "decimal(10,2)", "decimal(38,38)", "date", "timestamp"),
    *("double", "float", "boolean"),
)
quick = settings(
    # The first example always has the simplest values.
    max_examples=EXAMPLES + 1,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    # Each shrinking step would run dozens of Spark jobs.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    print_blob=True,
)


@st.composite
def rows_of(draw: st.DrawFn, kinds: dict[str, str], usual: dict[str, Sequence[Any]], *, is_narrow: bool) -> list[Row]:
    """Random rows, or none; a narrow partition column has only typical values."""

    def column(name: str) -> st.SearchStrategy[Any]:
        some = st.sampled_from(usual[name])
        others = some if is_narrow and name == COLUMN else values_of(kinds[name])
        return some | some | some | others | st.none()

    row = st.fixed_dictionaries({name: column(name) for name in kinds})
    return draw(st.lists(row, min_size=draw(st.sampled_from([0, 6, 6, 6])), max_size=14))


@pytest.mark.long
@quick
@given(data=st.data())
def test_no_row_is_lost_or_doubled_and_each_is_in_its_partition(
    spark: SparkSession, catalog: Catalog, data: st.DataObject
) -> None:
    case: Case = data.draw(cases(types=TYPES) | cases(types=TYPES) | interval_cases())
    others = {name: data.draw(st.sampled_from(TYPES)) for name in ("a", "b")}
    kinds = {**others, COLUMN: case.kind}
    usual = {**{name: data.draw(pools(kind, 5)) for name, kind in others.items()}, COLUMN: case.pool}
    sort_columns = data.draw(st.sampled_from([(), ("a",), ("a", "b"), ("b", COLUMN)]))
    scheme = with_sort_columns(case.scheme, sort_columns)
    target = data.draw(st.sampled_from([None, None, 1]))
    table = SchemeTable(spark, catalog, kinds, case.model, sort_columns, target)
    table.create(scheme)
    rows = rows_of(kinds, usual, is_narrow=isinstance(case.model, IntervalModel))
    conditions = st.lists(filters([(name, kinds[name], usual[name]) for name in kinds]), min_size=2, max_size=3)

    table.load(data.draw(rows), blanks=data.draw(st.integers(0, 2)))
    for _ in range(data.draw(st.integers(2, 4))):
        if data.draw(st.sampled_from([False, False, True])):
            table.load(data.draw(rows))
        else:
            change_and_perhaps_undo(table, case, data)
        table.check_catalog()
        table.check_files()
    table.check_readers(data.draw(conditions) + data.draw(conditions))


@pytest.mark.long
def test_rows_that_were_in_the_default_partition_go_to_the_ranges_that_come(
    spark: SparkSession, catalog: Catalog
) -> None:
    scheme = make("int", PARTITION_TYPE="RANGE_INTERVAL", RANGE_INFO="10, 20", INTERVAL="10")
    bounds = ((1, "10", 10), (2, "20", 20))
    table = SchemeTable(spark, catalog, {COLUMN: "int"}, IntervalModel(COLUMN, bounds, 2, 10, 1, ("20", 20)))
    table.create(scheme)
    table.load({COLUMN: value} for value in (5, 10, 19))
    table.change(DropPartitions((2,)), table.model.drop([2]))  # type: ignore[attr-defined]
    table.load({COLUMN: value} for value in (None, 7))
    table.check()
    assert sum(each.row_count for each in catalog.scheme_partitions(table.name) if each.id == 0) == 3
    report = table.load({COLUMN: value} for value in (25, None))
    assert report["partitions_created"] == 2
    table.check([comparison(COLUMN, "int", "<", 20), comparison(COLUMN, "int", ">=", 10)])
    rows = {each.text: each.row_count for each in catalog.scheme_partitions(table.name)}
    assert rows == {"0, c = DEFAULT": 2, "1, c < 10": 2, "3, 10 <= c < 20": 2, "4, 20 <= c < 30": 1}


def change_and_perhaps_undo(table: SchemeTable, case: Case, data: st.DataObject) -> None:
    before, model = catalog_scheme(table), table.model
    step = data.draw(steps(model, case.pool))
    table.change(step.change, step.model)
    reverse = step.change.reverse(before, catalog_scheme(table))
    restored = undone(step.change, model, step.model)
    assert (reverse is None) == (restored is None)
    if reverse is not None and data.draw(st.booleans()):
        table.check_files()
        table.change(reverse, restored)
        places = same_partitions(before, catalog_scheme(table))
        for row in table.rows.values():
            assert places[model.of(row[COLUMN])] == restored.of(row[COLUMN])


def catalog_scheme(table: SchemeTable) -> Any:
    return table.catalog.get_table(table.name).scheme


def with_sort_columns(scheme: Any, names: Sequence[str]) -> Any:
    from dataclasses import replace

    return replace(scheme, sort_columns=tuple(names))
