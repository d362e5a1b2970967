"""The partition indexes that tables should have."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.errors import InvalidConfigurationError
from catalog.settings.wanted_indexes import wanted_indexes
from tests.catalog.settings.test_table_config import EXISTING
from tests.catalog.settings.test_table_config import write as write


@pytest.mark.parametrize(
    ("tables", "indexes", "wanted"),
    [
        ([], [], {"shop.orders": {"by_day": ["day"]}}),
        (["Shop.Orders"], [], {"shop.orders": {"by_day": ["day"]}}),
        (["shop.returns", "shop.new"], ["I: Day"], {"shop.returns": {"i": ["day"]}, "shop.new": {"i": ["day"]}}),
        (
            [],
            ["i: day", "j: day , country"],
            {"shop.orders": {"i": ["day"], "j": ["day", "country"]}, "shop.returns": {"i": ["day"]}},
        ),
    ],
    ids=["all as listed", "one as listed", "named ones as said", "all that have the keys"],
)
def test_form_and_list_say_which_indexes_a_table_shall_have(
    write: Any, tables: list[str], indexes: list[str], wanted: dict[str, dict[str, list[str]]]
) -> None:
    write(indexes={"by_day": ["Day"]})
    assert wanted_indexes(EXISTING, tables, indexes).indexes == wanted


def test_listed_table_that_does_not_exist_yet_has_no_part(write: Any) -> None:
    write(indexes={"by_day": ["day"]})
    assert wanted_indexes([]).indexes == {}


@pytest.mark.parametrize(
    ("tables", "indexes", "said"),
    [
        (["shop.orders"], ["by_day"], "index 'by_day' has no keys"),
        (["shop.orders"], ["by_day:"], "index 'by_day:' has no keys"),
    ],
)
def test_unclear_wish_for_indexes_is_refused(write: Any, tables: list[str], indexes: list[str], said: str) -> None:
    write()
    with pytest.raises(InvalidConfigurationError, match=said):
        wanted_indexes(EXISTING, tables, indexes)


@pytest.mark.parametrize("table", ["shop.orders", "shop.returns"])
def test_a_table_without_listed_indexes_is_a_problem_of_its_own(write: Any, table: str) -> None:
    write()
    found = wanted_indexes(EXISTING, [table])
    assert not found.indexes
    assert f"has no indexes for {table}" in found.problems[table]
