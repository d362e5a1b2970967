"""Trino lists and reads, through each door, what Calve has written, and an index serves its filters."""

from __future__ import annotations

import pytest

from tests.support.trino_lake import HIVE, ICEBERG, TYPED, Lake

VISITS = [["id", "bigint"], ["amount", "double"], ["country", "varchar"], ["day", "date"]]


@pytest.mark.parametrize("catalog", HIVE)
def test_tables_of_calve_are_listed_and_described(lake: Lake, catalog: str) -> None:
    run = lake.trino.run
    assert ["calve"] in run(f"SHOW SCHEMAS FROM {catalog}")
    assert ["visits"] in run(f"SHOW TABLES FROM {catalog}.calve")
    columns = f"SELECT column_name, data_type FROM {catalog}.information_schema.columns"
    assert run(f"{columns} WHERE table_schema = 'calve' AND table_name = 'visits' ORDER BY ordinal_position") == VISITS
    [[text]] = run(f"SHOW CREATE TABLE {catalog}.calve.visits")
    assert "partitioned_by = ARRAY['country','day']" in text
    assert "format = 'PARQUET'" in text
    [[text]] = run(f"SHOW CREATE SCHEMA {catalog}.calve")
    assert f"{lake.catalog.get_database('calve').location}'" in text


@pytest.mark.parametrize("catalog", HIVE)
def test_partitions_are_listed(lake: Lake, catalog: str) -> None:
    listed = f'{catalog}.calve."visits$partitions"'
    assert lake.trino.run(f"SELECT count(*), min(country), max(day) FROM {listed}") == [[1000, "C00", "2024-02-19"]]
    assert lake.trino.run(f"SELECT count(*) FROM {listed} WHERE day = DATE '2024-01-05'") == [[20]]


@pytest.mark.parametrize(
    ("condition", "count", "total"),
    [
        ("country = 'C03'", 50, sum(range(150, 200))),
        ("country = 'C03' AND day = DATE '2024-01-02'", 1, 151),
        ("day = DATE '2024-01-02'", 20, sum(range(1, 1000, 50))),
        ("country = 'C03' AND day > DATE '2024-02-15'", 4, 196 + 197 + 198 + 199),
        ("country IN ('C03', 'C04') AND day BETWEEN DATE '2024-01-02' AND DATE '2024-01-03'", 4, 151 + 152 + 201 + 202),
        ("country = 'none'", 0, None),
        ("country = 'C03' AND id = 160", 1, 160),
        ("country >= 'C19' AND day < DATE '2024-01-02'", 1, 950),
        ("country LIKE 'C1%' AND day = DATE '2024-01-01'", 10, sum(range(500, 1000, 50))),
        ("country IS NULL", 0, None),
        ("NOT country = 'C00' OR day = DATE '2024-01-01'", 951, sum(range(1000)) - sum(range(1, 50))),
    ],
)
@pytest.mark.parametrize("catalog", [*HIVE, *TYPED])
def test_filters_find_the_rows(lake: Lake, catalog: str, condition: str, count: int, total: int | None) -> None:
    query = f"SELECT count(*), sum(id) FROM {catalog}.calve.visits WHERE {condition}"
    assert lake.trino.run(query) == [[count, total]]


@pytest.mark.parametrize(
    ("catalog", "condition"),
    [
        ("hive", "country = 'C07'"),
        ("hive", "country = 'C07' AND day = DATE '2024-02-01'"),
        ("hive_typed", "day = DATE '2024-02-01'"),
        ("hive_glue", "country IN ('C07', 'C08')"),
        ("hive_glue_typed", "country BETWEEN 'C07' AND 'C08' AND day = DATE '2024-02-01'"),
    ],
)
def test_an_index_serves_a_filter(lake: Lake, catalog: str, condition: str) -> None:
    door = {**HIVE, **TYPED}[catalog]
    before = lake.searches(door, "calve.visits")
    lake.trino.run(f"SELECT count(*) FROM {catalog}.calve.visits WHERE {condition}")
    after = lake.searches(door, "calve.visits")
    assert after.get("index", 0) > before.get("index", 0)
    assert after.get("all", 0) == before.get("all", 0)


@pytest.mark.parametrize("catalog", ICEBERG)
def test_tables_with_a_scheme_are_iceberg_tables(lake: Lake, catalog: str) -> None:
    run = lake.trino.run
    assert ["ranged"] in run(f"SHOW TABLES FROM {catalog}.calve")
    assert run(f"SELECT count(*), sum(id) FROM {catalog}.calve.ranged") == [[1000, sum(range(1000))]]
    query = f"SELECT count(*), min(id), max(id) FROM {catalog}.calve.ranged WHERE day > DATE '2024-02-15' AND id < 100"
    assert run(query) == [[8, 46, 99]]
    columns = f"SELECT column_name, data_type FROM {catalog}.information_schema.columns"
    assert run(f"{columns} WHERE table_schema = 'calve' AND table_name = 'ranged' ORDER BY ordinal_position") == [
        ["id", "bigint"],
        ["amount", "double"],
        ["day", "date"],
    ]
    [[text]] = run(f"SHOW CREATE TABLE {catalog}.calve.ranged")
    assert "format = 'PARQUET'" in text


@pytest.mark.parametrize("catalog", HIVE)
def test_iceberg_tables_are_redirected(lake: Lake, catalog: str) -> None:
    assert lake.trino.run(f"SELECT count(*) FROM {catalog}.calve.ranged WHERE day < DATE '2024-01-03'") == [[40]]


@pytest.mark.parametrize("catalog", [*HIVE, *ICEBERG])
def test_columns_of_all_tables_are_listed(lake: Lake, catalog: str) -> None:
    columns = f"SELECT count(DISTINCT table_name) FROM {catalog}.information_schema.columns"
    [[count]] = lake.trino.run(f"{columns} WHERE table_schema = 'calve'")
    # The REST door has only what is Iceberg's; the other catalogs list both, and describe what they can read.
    assert count >= 1
    assert lake.trino.run(f"SELECT 1 FROM {catalog}.information_schema.tables WHERE table_name = 'ranged'") == [[1]]
