"""The data of pictures, which pages remember."""

from __future__ import annotations

import json

import pytest

from catalog import Catalog, NewPartition

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]  # Airflow's own

NAME = "demo.products"


def test_a_group_may_have_the_name_of_a_picture(catalog: Catalog) -> None:
    from calve_airflow.pages import table_picture

    keys = [("category", "string"), ("day", "date")]
    catalog.create_table(NAME, columns=[("id", "int")], partition_keys=keys)
    catalog.add_partitions(NAME, [NewPartition(("calendar", "2024-05-01")), NewPartition(("book", "2024-05-02"))])

    def picture(view: str, inside: str = "") -> dict[str, object]:
        body: dict[str, object] = json.loads(table_picture.data(catalog, NAME, view=view, inside=inside).body)
        return body

    for _ in range(2):
        assert picture("calendar")["kind"] == "calendar"
        assert picture("keys", '["calendar"]')["inside"] == ["calendar"]
        table_picture._read.forget()
        assert picture("keys", '["calendar"]')["inside"] == ["calendar"]
        assert picture("calendar")["kind"] == "calendar"
