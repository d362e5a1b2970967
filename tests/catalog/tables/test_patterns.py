"""Selection of tables by name, by pattern, or by database."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import Catalog
from catalog.errors import InvalidIdentifierError, WrongFieldError
from catalog.tables import patterns
from catalog.tables.patterns import hive_pattern, matching_tables, require_meant

on_sqlite = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)


@pytest.fixture
def lake(catalog: Catalog) -> Catalog:
    for database, names in (("sales", ("orders", "orders_old", "returns")), ("salesforce", ("orders",))):
        catalog.create_database(database)
        for name in names:
            catalog.create_table(f"{database}.{name}", columns=[("a", "int")])
    return catalog


@on_sqlite
@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (["sales.*"], {"sales.orders": False, "sales.orders_old": False, "sales.returns": False}),
        (["SALES.orders*"], {"sales.orders": False, "sales.orders_old": False}),
        (["sales*.orders"], {"sales.orders": False, "salesforce.orders": False}),
        (["sales.order?"], {"sales.orders": False}),
        (["sales.gone", "Sales.Orders"], {"sales.gone": True, "sales.orders": True}),
        (["sales.returns", "sales.r*"], {"sales.returns": True}),
        (["sales.r*", "sales.returns"], {"sales.returns": True}),
    ],
)
def test_names_and_patterns_mean_tables(lake: Catalog, wanted: list[str], found: dict[str, bool]) -> None:
    matched = matching_tables(lake.list_tables(), wanted, "tables")
    assert matched == found
    assert list(matched) == list(found)


@on_sqlite
def test_what_means_no_table_is_refused(lake: Catalog) -> None:
    with pytest.raises(
        WrongFieldError, match=r"tables: no table matches 'sales\.x\*'; existing tables: sales\.orders, "
    ):
        matching_tables(lake.list_tables(), ["sales.x*"], "tables")
    with pytest.raises(InvalidIdentifierError):
        matching_tables(lake.list_tables(), ["a.b.c"], "tables")


@pytest.mark.parametrize("wanted", [["sales.gone", "Sales.Orders"], ["SALES.*"], ["sales*.order?"]])
def test_a_table_of_what_was_written_is_meant(wanted: list[str]) -> None:
    require_meant("sales.orders", wanted, "tables")


@pytest.mark.parametrize("table", ["sales.orders_old", "salesforce.orders", "Sales.Orders", "sales.orders\n"])
def test_another_table_or_another_spelling_is_not_meant(table: str) -> None:
    with pytest.raises(WrongFieldError, match=r"tables: sales\.orders, sales\.orders\? does not select "):
        require_meant(table, ["sales.orders", "sales.orders?"], "tables")


NAMES = st.from_regex(r"[ab]{0,5}(\.[ab]{0,5})?", fullmatch=True)


@given(pattern=st.text("ab*?.", max_size=8), name=NAMES)
def test_patterns_of_forms_match_as_plain_ones(pattern: str, name: str) -> None:
    plain = re.escape(pattern).replace(r"\*", "[^.]*").replace(r"\?", "[^.]")
    assert bool(patterns._compiled(pattern).fullmatch(name)) == bool(re.fullmatch(plain, name))


@given(pattern=st.text("ab*%|", max_size=8), name=NAMES)
def test_patterns_of_hive_match_as_plain_ones(pattern: str, name: str) -> None:
    plain = pattern.replace("*", ".*").replace("%", ".*")
    assert hive_pattern(pattern)(name) == bool(re.fullmatch(plain, name))


def test_patterns_with_many_stars_do_not_backtrack() -> None:
    name = "n" + "a" * 2_000
    assert not hive_pattern("*a" * 50 + "~")(name)
    assert not patterns._compiled("*a" * 50 + "~").fullmatch(name)
