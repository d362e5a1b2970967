"""Partitions that Athena projects are computed, as far as their settings allow."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from catalog import Catalog
from catalog.errors import UnsupportedSourceTableError
from catalog.importing.partitions import ImportOptions
from catalog.importing.projection import is_projected, projected_partitions
from catalog.importing.reports import ImportOutcome
from catalog.metastores.types import HiveStorage, HiveTable
from catalog.model import Column
from catalog.model.identifiers import TableName
from tests.support.glue_endpoint import PARQUET, GlueEndpoint, columns, storage

NOW = datetime(2024, 3, 31, 12, 30, tzinfo=UTC)


def table(keys: str, **parameters: str) -> HiveTable:
    """Return a table with partition projection.

    Args:
        parameters: Those of projections, with `__` for a point.
    """
    named = {f"projection.{name.replace('__', '.')}": text for name, text in parameters.items()}
    template = named.pop("projection.template", None)
    return HiveTable(
        TableName("sales", "orders"),
        "EXTERNAL_TABLE",
        (Column("id", "int"),),
        tuple(Column(key, "string") for key in keys.split()),
        HiveStorage(PARQUET[0], PARQUET[2]),
        parameters={
            "projection.enabled": "TRUE",
            **named,
            **({} if template is None else {"storage.location.template": template}),
        },
    )


def projected(projected_table: HiveTable, folder: Path) -> list[tuple[str, ...]]:
    return [partition.values for page in projected_partitions(projected_table, str(folder), NOW) for partition in page]


ENUM = {"k__type": " Enum ", "k__values": "a,b c,d"}
DAYS = {"k__type": "date", "k__format": "yyyy-MM-dd"}
CASES = [
    (ENUM, ["a", "b c", "d"]),
    ({"k__type": "integer", "k__range": "0, 3"}, ["0", "1", "2", "3"]),
    ({"k__type": "integer", "k__range": "-1,9", "k__interval": "5", "k__digits": "2"}, ["-01", "04", "09"]),
    ({**DAYS, "k__range": "2024-02-28,2024-03-01"}, ["2024-02-28", "2024-02-29", "2024-03-01"]),
    ({**DAYS, "k__range": "NOW-2DAYS,NOW"}, ["2024-03-29", "2024-03-30", "2024-03-31"]),
    ({**DAYS, "k__range": "NOW-1MONTHS , NOW-3WEEKS", "k__interval": "5"}, ["2024-02-29", "2024-03-05", "2024-03-10"]),
    ({"k__type": "date", "k__format": "yyyyMM", "k__range": "202311,202402"}, ["202311", "202312", "202401", "202402"]),
    (
        {**DAYS, "k__range": "2024-01-31,2024-03-31", "k__interval.unit": "MONTHS"},
        ["2024-01-31", "2024-02-29", "2024-03-31"],
    ),
    (
        {
            "k__type": "date",
            "k__format": "yyyy-MM-dd'T'HH",
            "k__range": "2024-01-01T22,2024-01-02T02",
            "k__interval": "2",
            "k__interval.unit": "HOURS",
        },
        ["2024-01-01T22", "2024-01-02T00", "2024-01-02T02"],
    ),
    ({"k__type": "date", "k__format": "yyyy", "k__range": "2023,NOW", "k__interval.unit": "YEARS"}, ["2023", "2024"]),
]


@pytest.mark.parametrize(("settings", "values"), CASES)
def test_the_values_of_a_key_are_computed(settings: dict[str, str], values: list[str], tmp_path: Path) -> None:
    for value in values:
        (tmp_path / f"k={value}").mkdir()
    assert projected(table("k", **settings), tmp_path) == [(value,) for value in values]


def test_partitions_are_those_whose_folders_exist_where_the_template_says(tmp_path: Path) -> None:
    for name in ("a/2024/03/30", "a/2024/03/31", "d/2024/03/31", "e/2024/03/31"):
        (tmp_path / name).mkdir(parents=True)
    days = {"day__type": "date", "day__format": "yyyy/MM/dd", "day__range": "2024/03/30,NOW"}
    made = table("k day", **ENUM, **days, template=f"{tmp_path}/${{k}}/${{DAY}}/")
    [page] = projected_partitions(made, "/elsewhere", NOW)
    assert [(partition.values, partition.location) for partition in page] == [
        (("a", "2024/03/30"), f"{tmp_path}/a/2024/03/30"),
        (("a", "2024/03/31"), f"{tmp_path}/a/2024/03/31"),
        (("d", "2024/03/31"), f"{tmp_path}/d/2024/03/31"),
    ]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"k__type": "injected"}, "projects its key k of type injected, whose values only a query gives"),
        ({}, "projects its key k of type none"),
        ({"k__type": "enum"}, r"projects its key k as enum, but .*'values'"),
        ({"k__type": "integer", "k__range": "1"}, "its settings cannot be read"),
        ({"k__type": "integer", "k__range": "1,x"}, "'x'"),
        ({"k__type": "integer", "k__range": "1,5", "k__interval": "0"}, "interval 0 is less than 1"),
        ({"k__type": "integer", "k__range": "0,999999999999"}, "projects 1,000,000,000,000 partitions"),
        ({**DAYS, "k__range": "yesterday,NOW"}, "yesterday"),
        ({"k__type": "date", "k__format": "dd MMM yyyy", "k__range": "NOW-1DAY,NOW"}, "MMM, which is not computed"),
        ({"k__type": "date", "k__format": "yyyy 'open", "k__range": "NOW,NOW"}, "the format yyyy 'open has"),
        ({"k__type": "date", "k__format": "yyyyMMddHH", "k__range": "NOW,NOW"}, "interval.unit is missing"),
        ({**DAYS, "k__range": "NOW,NOW", "k__interval.unit": "FORTNIGHTS"}, "FORTNIGHTS is not known"),
        ({**ENUM, "template": "/lake/${other}"}, r"storage.location.template without \$\{k\}"),
    ],
)
def test_what_cannot_be_computed_is_refused_by_name(settings: dict[str, str], said: str) -> None:
    with pytest.raises(UnsupportedSourceTableError, match=f"table sales.orders .*{said}"):
        list(projected_partitions(table("k", **settings), "/lake", NOW))


def test_tables_without_keys_or_with_projection_off_are_not_projected() -> None:
    assert is_projected(table("k"))
    assert not is_projected(table(""))
    assert not is_projected(HiveTable(TableName("a", "b"), None, (), (Column("k", "int"),), HiveStorage()))


def test_an_import_adds_projected_partitions(catalog: Catalog, glue: GlueEndpoint, tmp_path: Path) -> None:
    for number in (3, 5, 8):
        (tmp_path / f"n={number}").mkdir()
    glue.client.create_database(DatabaseInput={"Name": "sales"})
    parameters = {"projection.enabled": "true", "projection.n.type": "integer", "projection.n.range": "1,7"}
    for name, more in (("orders", {}), ("clicks", {"projection.n.type": "injected"})):
        location = storage(str(tmp_path) if name == "orders" else f"{tmp_path}-clicks")
        keys = columns(("n", "int"))
        glue.create_table(
            "sales", name, StorageDescriptor=location, PartitionKeys=keys, Parameters={**parameters, **more}
        )
    _, reports = catalog.imports.import_tables(glue.source("/sales"), (), ImportOptions())
    outcomes = {report.table: report.outcome for report in reports}
    assert outcomes == {"sales.orders": ImportOutcome.CREATED, "sales.clicks": ImportOutcome.REFUSED}
    [reason] = [report.reason for report in reports if report.outcome is ImportOutcome.REFUSED]
    assert "injected" in (reason or "")
    assert [imported.name for imported in catalog.list_tables("sales")] == ["orders"]
    found = [(partition.values, partition.location) for partition in catalog.get_partitions("sales.orders")]
    assert sorted(found) == [(("3",), f"{tmp_path}/n=3"), (("5",), f"{tmp_path}/n=5")]
