"""Columns change only to types as which all files can be read without loss, through all front doors."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from catalog import Catalog, NewPartition
from catalog.datafiles.files import NewFile
from catalog.errors import UnsupportedChangeError
from catalog.schemes.ranges import RangeScheme
from catalog.statements.session import Session
from tests.support.published import add_files
from tests.support.type_changes import LOSSLESS, LOSSY

Change = Callable[[Catalog, str, str, str], object]


def by_api(catalog: Catalog, table: str, name: str, new_type: str) -> object:
    return catalog.alter_table(table, change_columns={name: (name, new_type)})


def by_statement(catalog: Catalog, table: str, name: str, new_type: str) -> object:
    with Session(catalog) as session:
        return session.execute(f"ALTER TABLE {table} CHANGE COLUMN {name} {name} {new_type}")


WAYS = pytest.mark.parametrize("change", [by_api, by_statement])


@pytest.fixture(params=["values", "scheme"])
def make(request: pytest.FixtureRequest, catalog: Catalog) -> Callable[[list[str]], str]:
    """A function that makes a table with rows, of columns c0, c1, … of some types."""

    def make_table(types: list[str]) -> str:
        columns = [(f"c{number}", each) for number, each in enumerate(types)]
        if request.param == "values":
            catalog.create_table("demo.t", columns=columns, partition_keys=[("k", "int")])
            catalog.add_partitions("demo.t", [NewPartition(["1"])])
            return "demo.t"
        scheme = RangeScheme("k", "int", (), 3, ((1, "10"), (2, "20")))
        catalog.create_table("demo.t", columns=[*columns, ("k", "int")], scheme=scheme)
        add_files(catalog, "demo.t", [NewFile(1, "0-0/x.parquet", 10, 1000, {})])
        return "demo.t"

    return make_table


def types_of(catalog: Catalog, table: str) -> list[str]:
    return [column.type for column in catalog.get_table(table).columns if column.name != "k"]


@WAYS
def test_types_become_wider(catalog: Catalog, make: Callable[[list[str]], str], change: Change) -> None:
    table = make([before for before, _ in LOSSLESS])
    for number, (_, after) in enumerate(LOSSLESS):
        change(catalog, table, f"c{number}", after)
    assert types_of(catalog, table) == [after for _, after in LOSSLESS]


@WAYS
def test_other_changes_are_refused_and_change_nothing(
    catalog: Catalog, make: Callable[[list[str]], str], change: Change
) -> None:
    table = make([before for before, _ in LOSSY])
    before = types_of(catalog, table)
    for number, (old, new) in enumerate(LOSSY):
        with pytest.raises(UnsupportedChangeError) as refused:
            change(catalog, table, f"c{number}", new)
        assert f"column c{number} cannot change from {old} to {new}" in str(refused.value)
    assert types_of(catalog, table) == before
