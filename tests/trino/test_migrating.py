"""Trino migrates Hive tables to Iceberg in place, through the doors of Hive Metastore and Glue."""

from __future__ import annotations

import pytest
from pyiceberg.table import StaticTable

from tests.support.trino_lake import HIVE, ICEBERG, Lake

HIVE_OF = {"iceberg": "hive", "iceberg_glue": "hive_glue"}


@pytest.mark.parametrize("catalog", HIVE_OF)
@pytest.mark.parametrize("file_format", ["PARQUET", "ORC"])
def test_tables_of_trino(lake: Lake, catalog: str, schema: str, file_format: str) -> None:
    run = lake.trino.run
    run(
        f"CREATE TABLE {HIVE_OF[catalog]}.{schema}.days "
        f"WITH (format = '{file_format}', partitioned_by = ARRAY['country', 'day']) "
        "AS SELECT id, amount, country, day FROM hive.calve.visits WHERE country IN ('C01', 'C02')"
    )
    _migrate_and_compare(lake, catalog, schema, "days")


def test_tables_of_calve(lake: Lake, schema: str) -> None:
    lake.session.execute(
        f"CREATE TABLE {schema}.days (id bigint, amount double) PARTITIONED BY (country string, day date) "
        "PARTITION INDEX by_day (day) STORED AS PARQUET"
    )
    lake.session.execute(f"INSERT INTO {schema}.days SELECT * FROM calve.visits WHERE country IN ('C01', 'C02')")
    _migrate_and_compare(lake, "iceberg", schema, "days")


def _migrate_and_compare(lake: Lake, catalog: str, schema: str, name: str) -> None:
    run = lake.trino.run
    run(f"CALL {catalog}.system.migrate('{schema}', '{name}')")
    expected = [[100, sum(range(50, 150))]]
    for reader in (*ICEBERG, *HIVE):
        assert run(f"SELECT count(*), sum(id) FROM {reader}.{schema}.{name}") == expected, reader
    query = f"SELECT count(*) FROM iceberg_rest.{schema}.{name} WHERE day = DATE '2024-01-02' AND country = 'C01'"
    assert run(query) == [[1]]
    table = lake.catalog.get_table(f"{schema}.{name}")
    assert table.is_iceberg
    scanned = StaticTable.from_metadata(str(table.metadata_location)).scan().to_arrow()
    assert (scanned.num_rows, sum(scanned["id"].to_pylist())) == (100, sum(range(50, 150)))
    assert lake.rows(f"SELECT count(*), sum(id) FROM {schema}.{name}") == [(100, sum(range(50, 150)))]
    # Rows of both engines follow.
    run(f"INSERT INTO {catalog}.{schema}.{name} VALUES (5000, 1, 'C03', DATE '2024-01-01')")
    lake.session.execute(f"INSERT INTO {schema}.{name} VALUES (6000, 1.0, 'C03', '2024-01-01')")
    assert run(f"SELECT sum(id) FROM {catalog}.{schema}.{name} WHERE country = 'C03'") == [[11_000]]
