"""Trino's Iceberg connector writes through each door, and what it wrote is whole in Calve."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.trino_lake import ICEBERG, Lake

pytestmark = pytest.mark.parametrize("catalog", ICEBERG)


def test_iceberg_tables_are_created_changed_and_dropped(lake: Lake, catalog: str, schema: str) -> None:
    run, name = lake.trino.run, f"{catalog}.{schema}.orders"
    run(
        f"CREATE TABLE {name} (id bigint NOT NULL, amount decimal(9, 2), country varchar, day date) COMMENT 'sold' "
        "WITH (partitioning = ARRAY['country', 'month(day)'], sorted_by = ARRAY['id'])"
    )
    run(f"INSERT INTO {name} VALUES (1, DECIMAL '1.5', 'DE', DATE '2024-05-01'), (2, NULL, 'US', DATE '2024-06-01')")
    [[first]] = run(f'SELECT max_by(snapshot_id, committed_at) FROM {catalog}.{schema}."orders$snapshots"')
    run(
        f"MERGE INTO {name} t USING (VALUES (2, 7), (3, 8)) AS s (id, amount) ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET amount = s.amount "
        "WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.amount, 'FR', DATE '2024-07-01')"
    )
    run(f"UPDATE {name} SET country = 'AT' WHERE id = 1")
    run(f"DELETE FROM {name} WHERE id = 3")
    assert run(f"SELECT id, country FROM {name} ORDER BY id") == [[1, "AT"], [2, "US"]]
    assert run(f"SELECT id, amount FROM {name} FOR VERSION AS OF {first} ORDER BY id") == [[1, "1.50"], [2, None]]
    assert lake.rows(f"SELECT id, amount, country FROM {schema}.orders ORDER BY id") == [
        (1, "1.50", "AT"),
        (2, "7.00", "US"),
    ]
    run(f"ALTER TABLE {name} ADD COLUMN note varchar")
    run(f"ALTER TABLE {name} RENAME COLUMN note TO remark")
    run(f"ALTER TABLE {name} SET PROPERTIES partitioning = ARRAY['day']")
    run(f"INSERT INTO {name} VALUES (4, 4, 'DE', DATE '2024-05-04', 'four')")
    run(f"ALTER TABLE {name} EXECUTE optimize")
    retention = {f"{catalog}.expire_snapshots_min_retention": "0s"}
    run(f"ALTER TABLE {name} EXECUTE expire_snapshots(retention_threshold => '0s')", retention)
    assert run(f'SELECT count(*) FROM {catalog}.{schema}."orders$snapshots"') == [[1]]
    assert lake.rows(f"SELECT id, remark FROM {schema}.orders ORDER BY id") == [(1, None), (2, None), (4, "four")]
    run(f"ANALYZE {name}")
    shown = {row[0]: row[1:] for row in run(f"SHOW STATS FOR {name}")}
    assert shown["id"][1] == 3
    assert shown[None][3] == 3
    run(f"COMMENT ON TABLE {name} IS 'bought'")
    assert "COMMENT 'bought'" in run(f"SHOW CREATE TABLE {name}")[0][0]
    run(f"ALTER TABLE {name} RENAME TO {catalog}.{schema}.former_orders")
    assert run(f"SELECT count(*) FROM {catalog}.{schema}.former_orders") == [[3]]
    run(f"DROP TABLE {catalog}.{schema}.former_orders")
    assert lake.catalog.list_tables(schema) == []


def test_tables_from_a_select_and_replaced_ones(lake: Lake, catalog: str, schema: str) -> None:
    run, name = lake.trino.run, f"{catalog}.{schema}.copied"
    for file_format in ("PARQUET", "ORC", "AVRO"):
        run(
            f"CREATE OR REPLACE TABLE {name} WITH (format = '{file_format}') "
            f"AS SELECT id, day FROM {catalog}.calve.ranged WHERE id < 100"
        )
        assert lake.rows(f"SELECT count(*), sum(id) FROM {schema}.copied") == [(100, sum(range(100)))]
    run(f"CREATE OR REPLACE TABLE {name} (other varchar)")
    assert lake.rows(f"SELECT count(other) FROM {schema}.copied") == [(0,)]


def test_calve_and_trino_write_by_turns(lake: Lake, catalog: str, schema: str) -> None:
    run, name = lake.trino.run, f"{catalog}.{schema}"
    run(f"CREATE TABLE {name}.shared (i integer, s varchar) WITH (partitioning = ARRAY['s'])")
    run(f"INSERT INTO {name}.shared VALUES (1, 'a')")
    lake.session.execute(f"INSERT INTO {schema}.shared VALUES (2, 'b')")
    run(f"DELETE FROM {name}.shared WHERE i = 1")
    lake.session.execute(f"UPDATE {schema}.shared SET i = 3 WHERE i = 2")
    assert run(f"SELECT * FROM {name}.shared") == [[3, "b"]]
    # A table with a scheme, and one stored as Iceberg, are Calve's own.
    lake.session.execute(
        f"CREATE TABLE {schema}.listed (i int) PARTITIONED BY (k int) STORED BY 'carbondata' "
        "TBLPROPERTIES ('PARTITION_TYPE'='LIST', 'LIST_INFO'='1, (2, 3)')"
    )
    run(f"INSERT INTO {name}.listed VALUES (10, 1), (20, 2), (30, 4)")
    assert lake.rows(f"SELECT i, _partition_id FROM {schema}.listed ORDER BY i") == [(10, 1), (20, 2), (30, 0)]
    lake.session.execute(f"CREATE TABLE {schema}.stored (i int) PARTITIONED BY (k int) STORED AS ICEBERG")
    run(f"INSERT INTO {name}.stored VALUES (10, 1), (20, 2)")
    assert {partition.values for partition in lake.catalog.get_partitions(f"{schema}.stored")} == {("1",), ("2",)}
    run(f"DELETE FROM {name}.stored WHERE k = 1")
    assert {partition.values for partition in lake.catalog.get_partitions(f"{schema}.stored")} == {("2",)}
    run(f"MERGE INTO {name}.listed t USING (VALUES 1, 2) AS s (k) ON t.k = s.k WHEN MATCHED THEN UPDATE SET i = 0")
    assert lake.rows(f"SELECT i, k FROM {schema}.listed ORDER BY k") == [(0, 1), (0, 2), (30, 4)]


def test_views(lake: Lake, catalog: str, schema: str) -> None:
    run, name = lake.trino.run, f"{catalog}.{schema}"
    run(f"CREATE VIEW {name}.large AS SELECT id FROM {catalog}.calve.ranged WHERE id > 990")
    assert run(f"SELECT count(*) FROM {name}.large") == [[9]]
    assert ["large"] in run(f"SHOW TABLES FROM {name}")
    run(f"CREATE OR REPLACE VIEW {name}.large AS SELECT id FROM {catalog}.calve.ranged WHERE id > 995")
    assert run(f"SELECT count(*) FROM {name}.large") == [[4]]
    run(f"ALTER VIEW {name}.large RENAME TO {name}.larger")
    run(f"COMMENT ON VIEW {name}.larger IS 'few'")
    assert run(f"SELECT count(*) FROM {name}.larger") == [[4]]
    run(f"DROP VIEW {name}.larger")
    assert run(f"SHOW TABLES FROM {name}") == []


def test_materialized_views(lake: Lake, catalog: str, schema: str) -> None:
    if catalog == "iceberg_rest":
        pytest.skip("Trino's REST catalog has none")
    run, name = lake.trino.run, f"{catalog}.{schema}.totals"
    run(f"CREATE MATERIALIZED VIEW {name} AS SELECT day, sum(id) AS total FROM {catalog}.calve.ranged GROUP BY day")
    run(f"REFRESH MATERIALIZED VIEW {name}")
    assert run(f"SELECT total FROM {name} WHERE day = DATE '2024-01-01'") == [[sum(range(0, 1000, 50))]]
    run(f"DROP MATERIALIZED VIEW {name}")


def test_tables_are_registered_again(lake: Lake, catalog: str, schema: str) -> None:
    run, name = lake.trino.run, f"{catalog}.{schema}"
    run(f"CREATE TABLE {name}.kept WITH (location = 'file://{lake.folder}/{schema}/kept') AS SELECT 1 AS i")
    run(f"CALL {catalog}.system.unregister_table('{schema}', 'kept')")
    assert run(f"SHOW TABLES FROM {name}") == []
    location = f"file://{lake.folder}/{schema}/kept"
    run(f"CALL {catalog}.system.register_table('{schema}', 'again', '{location}')")
    assert run(f"SELECT * FROM {name}.again") == [[1]]
    assert lake.rows(f"SELECT * FROM {schema}.again") == [(1,)]


def test_schemas(lake: Lake, catalog: str, schema: str) -> None:
    run, name = lake.trino.run, f"{schema}x"
    run(f"CREATE SCHEMA {catalog}.{name}")
    run(f"CREATE TABLE {catalog}.{name}.t AS SELECT 1 AS i")
    assert lake.rows(f"SELECT i FROM {name}.t") == [(1,)]
    run(f"DROP SCHEMA {catalog}.{name} CASCADE")
    assert [name] not in run(f"SHOW SCHEMAS FROM {catalog}")


def test_inserts_at_once_lose_nothing(lake: Lake, catalog: str, schema: str) -> None:
    run, name = lake.trino.run, f"{catalog}.{schema}.hasty"
    run(f"CREATE TABLE {name} (id bigint, worker integer) WITH (partitioning = ARRAY['worker'])")
    # Trino tries a commit again, as often as the table's property says.
    run(f"ALTER TABLE {name} SET PROPERTIES max_commit_retry = 50")

    def insert(worker: int) -> None:
        for turn in range(2):
            run(f"INSERT INTO {name} VALUES ({worker * 2 + turn}, {worker})")

    with ThreadPoolExecutor(8) as workers:
        list(workers.map(insert, range(8)))
    assert run(f"SELECT count(*), sum(id) FROM {name}") == [[16, sum(range(16))]]
    assert lake.rows(f"SELECT count(*), sum(id) FROM {schema}.hasty") == [(16, sum(range(16)))]
