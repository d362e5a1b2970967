"""Evolutions of tables by loads: what is planned is what is applied, or nothing is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import Table
from catalog.errors import ConflictError, UnsupportedChangeError
from catalog.model import Column, FileFormat
from catalog.tables.columns import TableColumns, with_columns
from catalog.tables.evolution import Evolution, evolved

WIDER = {"int": "bigint", "float": "double", "decimal(9,2)": "decimal(12,2)", "varchar(3)": "string"}


def table_with(columns: list[Column]) -> Table:
    table = Table("shop", "orders", tuple(columns), (Column("day", "date"),), FileFormat.PARQUET, "/shop/orders")
    return with_columns(table, TableColumns.of(table).numbered())


@st.composite
def evolutions(draw: st.DrawFn) -> tuple[Table, list[Column], dict[str, str]]:
    names = draw(st.lists(st.sampled_from("abcdefgh"), unique=True, min_size=1))
    count = draw(st.integers(1, len(names)))
    types = [draw(st.sampled_from(list(WIDER))) for _ in names]
    known = [Column(name, text, comment=f"of {name}") for name, text in zip(names, types, strict=True)][:count]
    added = [Column(name, "string") for name in names[count:]]
    widened = {column.name: WIDER[column.type] for column in known if draw(st.booleans())}
    return table_with(known), added, widened


@given(evolutions())
def test_a_planned_evolution_gives_the_planned_table(case: tuple[Table, list[Column], dict[str, str]]) -> None:
    table, added, widened = case
    after = evolved(table, added, widened)
    evolution = Evolution.from_json(json.loads(json.dumps(Evolution.between(table, after).as_json())))
    assert bool(evolution) is bool(added or widened)
    assert evolution.of(table) == after
    assert [column.id for column in after.columns][: len(table.columns)] == [column.id for column in table.columns]
    assert [column.comment for column in after.columns[: len(table.columns)]] == [c.comment for c in table.columns]


@given(evolutions())
def test_an_evolution_is_not_applied_twice_or_to_changed_columns(
    case: tuple[Table, list[Column], dict[str, str]],
) -> None:
    table, added, widened = case
    after = evolved(table, added, widened)
    if evolution := Evolution.between(table, after):
        with pytest.raises(ConflictError, match="Run the load again"):
            evolution.of(after)
    if added:
        with pytest.raises(ConflictError, match=r"the columns of table shop\.orders were changed"):
            evolution.of(evolved(table, [Column("meanwhile", "int")], {}))


def test_a_column_does_not_get_a_narrower_type() -> None:
    with pytest.raises(UnsupportedChangeError, match="column a cannot change from bigint to int"):
        evolved(table_with([Column("a", "bigint")]), [], {"a": "int"})
