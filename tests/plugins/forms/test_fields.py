"""Fields of trigger forms take the names that tables can have."""

from __future__ import annotations

import pytest
from airflow.exceptions import ParamValidationError
from airflow.sdk import Param

from calve_airflow.forms.fields import patterns_param, table_param, tables_param


@pytest.mark.parametrize("name", ["shop.orders", "odd.weird cols", "büro.größe_2", "sales.orders_*"])
def test_names_of_tables_are_taken(name: str) -> None:
    assert table_param().resolve(name) == name
    for field in (tables_param(""), patterns_param("")):
        assert field.resolve([name]) == [name]


@pytest.mark.parametrize("name", ["orders", "a.b.c", "shop.", ".orders", "shop/orders.x", "shop.or\tders", ""])
def test_names_without_database_and_names_of_folders_are_refused(name: str) -> None:
    fields: list[tuple[Param, object]] = [(table_param(), name), (tables_param(""), [name])]
    for field, value in fields:
        with pytest.raises(ParamValidationError):
            field.resolve(value)
