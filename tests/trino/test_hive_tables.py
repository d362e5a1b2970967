"""Trino's Hive connector writes through the doors of Hive Metastore and Glue, and what it wrote is whole in Calve."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from standalone.errors import TrinoError
from tests.support.trino_lake import HIVE, Lake

pytestmark = pytest.mark.parametrize("catalog", HIVE)

ORDERS = "(id bigint, amount decimal(9, 2), country varchar, day date)"
PARTITIONED = "WITH (partitioned_by = ARRAY['country', 'day'])"
ROWS = (
    "VALUES (1, DECIMAL '1.50', 'DE', DATE '2024-05-01'), (2, DECIMAL '2.50', 'US', DATE '2024-05-01'), "
    "(3, NULL, 'US', DATE '2024-05-02')"
)


def test_partitioned_tables_are_created_filled_and_changed(lake: Lake, catalog: str, schema: str) -> None:
    run, name = lake.trino.run, f"{catalog}.{schema}.orders"
    run(f"CREATE TABLE {name} {ORDERS} {PARTITIONED}")
    run(f"INSERT INTO {name} {ROWS}")
    rows = [(1, "1.50", "DE", "2024-05-01"), (2, "2.50", "US", "2024-05-01"), (3, None, "US", "2024-05-02")]
    assert lake.rows(f"SELECT * FROM {schema}.orders ORDER BY id") == rows
    found = lake.catalog.get_partitions(f"{schema}.orders", "country = 'US'")
    assert {p.values: p.row_count for p in found} == {("US", "2024-05-01"): 1, ("US", "2024-05-02"): 1}
    # Into an existing partition, appended; then in its place.
    run(f"INSERT INTO {name} VALUES (4, DECIMAL '4', 'US', DATE '2024-05-01')")
    assert run(f"SELECT id FROM {name} WHERE country = 'US' ORDER BY 1") == [[2], [3], [4]]
    overwrite = {f"{catalog}.insert_existing_partitions_behavior": "OVERWRITE"}
    run(f"INSERT INTO {name} VALUES (5, DECIMAL '5', 'US', DATE '2024-05-01')", overwrite)
    assert run(f"SELECT id FROM {name} ORDER BY 1") == [[1], [3], [5]]
    assert lake.rows(f"SELECT id FROM {schema}.orders ORDER BY 1") == [(1,), (3,), (5,)]
    run(f"DELETE FROM {name} WHERE country = 'US' AND day = DATE '2024-05-02'")
    assert run(f'SELECT * FROM {catalog}.{schema}."orders$partitions" ORDER BY 1') == [
        ["DE", "2024-05-01"],
        ["US", "2024-05-01"],
    ]
    run(f"ALTER TABLE {name} ADD COLUMN note varchar COMMENT 'what to know'")
    run(f"INSERT INTO {name} (id, note, country, day) VALUES (6, 'six', 'AT', DATE '2024-05-03')")
    assert lake.rows(f"SELECT id, note FROM {schema}.orders ORDER BY id") == [(1, None), (5, None), (6, "six")]
    assert lake.catalog.get_table(f"{schema}.orders").columns[-1].comment == "what to know"
    run(f"DELETE FROM {name} WHERE country = 'DE'")
    last = name
    if catalog != "hive_glue":
        # Glue has no rename.
        last = f"{catalog}.{schema}.former_orders"
        run(f"ALTER TABLE {name} RENAME TO {last}")
    assert run(f"SELECT id FROM {last} ORDER BY 1") == [[5], [6]]
    assert lake.rows(f"SELECT id FROM {last.partition('.')[2]} ORDER BY 1") == [(5,), (6,)]
    run(f"DROP TABLE {last}")
    assert run(f"SHOW TABLES FROM {catalog}.{schema}") == []
    assert lake.catalog.list_tables(schema) == []


@pytest.mark.parametrize("file_format", ["PARQUET", "ORC", "AVRO", "TEXTFILE", "JSON", "CSV"])
def test_tables_from_a_select(lake: Lake, catalog: str, schema: str, file_format: str) -> None:
    run, name = lake.trino.run, f"{catalog}.{schema}.copied"
    number = "CAST(id AS varchar)" if file_format == "CSV" else "id"
    run(
        f"CREATE TABLE {name} WITH (format = '{file_format}', partitioned_by = ARRAY['day']) "
        f"AS SELECT {number} AS id, day FROM {catalog}.calve.visits WHERE country = 'C01'"
    )
    assert run(f"SELECT count(*), sum(CAST(id AS bigint)) FROM {name}") == [[50, sum(range(50, 100))]]
    assert len(list(lake.catalog.get_partitions(f"{schema}.copied"))) == 50
    if file_format in ("PARQUET", "ORC"):
        assert lake.rows(f"SELECT count(*), sum(id) FROM {schema}.copied") == [(50, sum(range(50, 100)))]


def test_types_and_odd_values_of_keys(lake: Lake, catalog: str, schema: str) -> None:
    run, name = lake.trino.run, f"{catalog}.{schema}.odd"
    run(
        f"CREATE TABLE {name} (i integer, s smallint, t tinyint, b boolean, r real, ts timestamp(3), bin varbinary, "
        "c char(3), v varchar(5), a array(integer), m map(varchar, double), w row(x integer, y array(varchar)), "
        "number integer, text varchar) WITH (partitioned_by = ARRAY['number', 'text'])"
    )
    cells = (
        "1, SMALLINT '2', TINYINT '3', true, REAL '1.5', TIMESTAMP '2024-01-01 01:02:03.004', X'0102', "
        "CAST('ab' AS char(3)), CAST('v' AS varchar(5)), ARRAY[1, NULL], MAP(ARRAY['k'], ARRAY[1e0]), "
        "CAST(ROW(1, ARRAY['y']) AS row(x integer, y array(varchar)))"
    )
    texts = ["a b", "x/y=z", "100%", "A&B", "it's", 'say "so"', "a:b\\c", "__x__", "{a}"]
    quoted = ["'" + text.replace("'", "''") + "'" for text in texts]
    rows = ", ".join(f"({cells}, {number}, {text})" for number, text in enumerate(quoted))
    run(f"INSERT INTO {name} VALUES {rows}")
    run(f"INSERT INTO {name} (i, number, text) VALUES (9, NULL, NULL), (8, -7, NULL)")
    assert run(f"SELECT text FROM {name} WHERE number >= 0 ORDER BY number") == [[text] for text in texts]
    for number, text in enumerate(quoted):
        if catalog == "hive_glue" and "''" in text:
            # Trino writes the quotation mark into Glue's expression as it is.
            continue
        assert run(f"SELECT number FROM {name} WHERE text = {text}") == [[number]], text
    assert run(f"SELECT i FROM {name} WHERE text IS NULL ORDER BY i") == [[8], [9]]
    assert run(f"SELECT i FROM {name} WHERE number IS NULL") == [[9]]
    assert run(f"SELECT i FROM {name} WHERE number = -7") == [[8]]
    assert run(f"SELECT i FROM {name} WHERE number = -7 AND (text = 'a b' OR text IS NULL)") == [[8]]
    assert run(f"SELECT count(*) FROM {name} WHERE number > 3 AND text <> 'a b'") == [[5]]
    in_calve = {partition.values for partition in lake.catalog.get_partitions(f"{schema}.odd")}
    assert in_calve == {(str(number), text) for number, text in enumerate(texts)} | {("-7", None), (None, None)}
    assert sorted(row[0] for row in lake.rows(f"SELECT text FROM {schema}.odd WHERE number >= 0")) == sorted(texts)


def test_keys_of_all_types(lake: Lake, catalog: str, schema: str) -> None:
    run, name = lake.trino.run, f"{catalog}.{schema}.days"
    run(
        f"CREATE TABLE {name} (i integer, n integer, day date, price decimal(5, 2), at timestamp(3), yes boolean) "
        "WITH (partitioned_by = ARRAY['n', 'day', 'price', 'at', 'yes'])"
    )
    run(
        f"INSERT INTO {name} VALUES (0, NULL, NULL, NULL, NULL, NULL), "
        "(1, 1, DATE '2024-01-01', DECIMAL '1.50', TIMESTAMP '2024-01-01 01:02:03.000', true), "
        "(2, -2, DATE '2024-01-02', DECIMAL '-2.5', TIMESTAMP '2024-01-02 01:02:03.004', false)"
    )
    values = {
        "n": ("1", "-2"),
        "day": ("DATE '2024-01-01'", "DATE '2024-01-02'"),
        "price": ("DECIMAL '1.5'", "DECIMAL '-2.5'"),
        "at": ("TIMESTAMP '2024-01-01 01:02:03'", "TIMESTAMP '2024-01-02 01:02:03.004'"),
        "yes": ("true", "false"),
    }
    for reader in (catalog, f"{catalog}_typed"):
        for key, (one, two) in values.items():
            if (reader, key) == ("hive_glue_typed", "yes"):
                # Trino compares booleans, which Glue cannot.
                continue
            for condition, expected in {
                f"{key} = {one}": [1],
                f"{key} <> {one}": [2],
                f"{key} IS NULL": [0],
                f"{key} IS NOT NULL": [1, 2],
                f"{key} IS NULL OR {key} = {two}": [0, 2],
                f"{key} IN ({one}, {two}) AND n IS NOT NULL": [1, 2],
                f"{key} >= {one} AND n = 1": [1],
            }.items():
                found = run(f"SELECT i FROM {reader}.{schema}.days WHERE {condition} ORDER BY 1")
                assert found == [[number] for number in expected], f"{reader}: {condition}"


def test_statistics(lake: Lake, catalog: str, schema: str) -> None:
    run, name = lake.trino.run, f"{catalog}.{schema}.measured"
    run(f"CREATE TABLE {name} {ORDERS} {PARTITIONED}")
    run(f"INSERT INTO {name} {ROWS}")
    run(f"ANALYZE {name}")
    shown = {row[0]: row[1:] for row in run(f"SHOW STATS FOR {name}")}
    assert shown[None][3] == 3
    # Trino takes the largest number of distinct values in a partition, and the minima and maxima of all.
    assert shown["id"][1:] == [1, 0, None, "1", "3"]
    # To Glue, it writes no statistics of a column that is null in the whole partition.
    nulls = 0 if catalog == "hive_glue" else pytest.approx(1 / 3)
    assert shown["amount"][1:] == [1, nulls, None, "1.5", "2.5"]
    assert shown["country"][:3] == [6, 2, 0]
    assert shown["day"][4:] == ["2024-05-01", "2024-05-02"]
    of_us = {row[0]: row[1:] for row in run(f"SHOW STATS FOR (SELECT * FROM {name} WHERE country = 'US')")}
    assert of_us[None][3] == 2
    assert of_us["id"][4:] == ["2", "3"]
    run(f"CALL {catalog}.system.drop_stats('{schema}', 'measured')")
    after = {row[0]: row[1:] for row in run(f"SHOW STATS FOR {name}")}
    assert after["id"][1] is None
    run(f"ANALYZE {name} WITH (partitions = ARRAY[ARRAY['DE', '2024-05-01']])")
    # An unpartitioned table, and all columns of one type each.
    run(
        f"CREATE TABLE {catalog}.{schema}.plain AS SELECT * FROM (VALUES (1, 1.5e0, 'a', true, DATE '2024-01-01', "
        "TIMESTAMP '2024-01-01 00:00:00.000', X'00', DECIMAL '1.1'), (2, NULL, 'b', false, NULL, NULL, NULL, NULL)) "
        "AS t (i, d, s, b, day, at, bytes, price)"
    )
    run(f"ANALYZE {catalog}.{schema}.plain")
    shown = {row[0]: row[1:] for row in run(f"SHOW STATS FOR {catalog}.{schema}.plain")}
    assert shown[None][3] == 2
    assert shown["i"][1:] == [2, 0, None, "1", "2"]
    assert shown["s"][1] == 2
    assert shown["day"][2:] == [0.5, None, "2024-01-01", "2024-01-01"]
    assert shown["price"][2:] == [0.5, None, "1.1", "1.1"]


def test_views(lake: Lake, catalog: str, schema: str) -> None:
    run, name = lake.trino.run, f"{catalog}.{schema}"
    run(f"CREATE VIEW {name}.large COMMENT 'many' AS SELECT country, id FROM {catalog}.calve.visits WHERE id > 990")
    assert run(f"SELECT count(*) FROM {name}.large WHERE country = 'C19'") == [[9]]
    assert run(f"SHOW TABLES FROM {name}") == [["large"]]
    views = f"SELECT table_name FROM {catalog}.information_schema.views WHERE table_schema = '{schema}'"
    assert run(views) == [["large"]]
    assert "990" in run(f"SHOW CREATE VIEW {name}.large")[0][0]
    run(f"CREATE OR REPLACE VIEW {name}.large AS SELECT id FROM {catalog}.calve.visits WHERE id > 995")
    assert run(f"SELECT count(*) FROM {name}.large") == [[4]]
    run(f"COMMENT ON VIEW {name}.large IS 'few'")
    run(f"ALTER VIEW {name}.large RENAME TO {name}.larger")
    assert run(f"SELECT count(*) FROM {name}.larger") == [[4]]
    assert lake.catalog.get_table(f"{schema}.larger").is_view
    run(f"DROP VIEW {name}.larger")
    assert run(f"SHOW TABLES FROM {name}") == []


def test_partition_procedures(lake: Lake, catalog: str, schema: str) -> None:
    run, name = lake.trino.run, f"{catalog}.{schema}.synced"
    folder = lake.folder / schema
    folder.mkdir()
    keys = "ARRAY['country', 'day']"
    run(f"CREATE TABLE {name} {ORDERS} WITH (partitioned_by = {keys}, external_location = 'file://{folder}')")
    run(f"INSERT INTO {name} {ROWS}")
    arguments = f"'{schema}', 'synced'"
    values = "ARRAY['US', '2024-05-02']"
    run(f"CALL {catalog}.system.unregister_partition({arguments}, {keys}, {values})")
    assert run(f"SELECT id FROM {name} ORDER BY 1") == [[1], [2]]
    location = f"file://{folder}/country=US/day=2024-05-02"
    run(f"CALL {catalog}.system.register_partition({arguments}, {keys}, {values}, '{location}')")
    assert run(f"SELECT id FROM {name} ORDER BY 1") == [[1], [2], [3]]
    run(f"CALL {catalog}.system.unregister_partition({arguments}, {keys}, {values})")
    run(f"CALL {catalog}.system.create_empty_partition({arguments}, {keys}, ARRAY['FR', '2024-05-09'])")
    run(f"CALL {catalog}.system.sync_partition_metadata({arguments}, 'ADD')")
    assert run(f"SELECT id FROM {name} ORDER BY 1") == [[1], [2], [3]]
    (folder / "country=DE").rename(lake.folder / f"{schema}-moved")
    run(f"CALL {catalog}.system.sync_partition_metadata({arguments}, 'FULL')")
    assert run(f"SELECT id FROM {name} ORDER BY 1") == [[2], [3]]
    assert {partition.values[0] for partition in lake.catalog.get_partitions(f"{schema}.synced")} <= {"US", "FR"}
    run(f"CALL {catalog}.system.flush_metadata_cache()")
    run(f"DROP TABLE {name}")
    assert any(folder.rglob("*")), "an external table's files stay"


def test_schemas(lake: Lake, catalog: str, schema: str) -> None:
    run, name = lake.trino.run, f"{schema}x"
    run(f"CREATE SCHEMA {catalog}.{name} WITH (location = 'file://{lake.folder}/{name}')")
    run(f"CREATE TABLE {catalog}.{name}.t AS SELECT 1 AS i")
    assert lake.rows(f"SELECT i FROM {name}.t") == [(1,)]
    with pytest.raises(TrinoError, match="non-empty schema"):
        run(f"DROP SCHEMA {catalog}.{name}")
    run(f"DROP SCHEMA {catalog}.{name} CASCADE")
    assert [name] not in run(f"SHOW SCHEMAS FROM {catalog}")
    run(f"CREATE SCHEMA {catalog}.{name}")
    run(f"CREATE TABLE {catalog}.{name}.t AS SELECT 2 AS i")
    assert lake.rows(f"SELECT i FROM {name}.t") == [(2,)]
    run(f"DROP SCHEMA {catalog}.{name} CASCADE")


def test_table_properties_comments_and_columns_change(lake: Lake, catalog: str, schema: str) -> None:
    run, name = lake.trino.run, f"{catalog}.{schema}.described"
    run(f"CREATE TABLE {name} (i integer COMMENT 'number', s varchar) COMMENT 'all' WITH (format = 'ORC')")
    run(f"INSERT INTO {name} VALUES (1, 'one')")
    run(f"COMMENT ON TABLE {name} IS 'some'")
    run(f"COMMENT ON COLUMN {name}.s IS 'text'")
    run(f"ALTER TABLE {name} ADD COLUMN n double")
    run(f"ALTER TABLE {name} RENAME COLUMN n TO m")
    run(f"ALTER TABLE {name} DROP COLUMN m")
    [[text]] = run(f"SHOW CREATE TABLE {name}")
    assert "i integer COMMENT 'number'" in text
    assert "s varchar COMMENT 'text'" in text
    assert "COMMENT 'some'" in text
    table = lake.catalog.get_table(f"{schema}.described")
    assert [(column.name, column.comment) for column in table.columns] == [("i", "number"), ("s", "text")]
    assert lake.rows(f"SELECT * FROM {schema}.described") == [(1, "one")]


def test_bucketed_tables(lake: Lake, catalog: str, schema: str) -> None:
    run, name = lake.trino.run, f"{catalog}.{schema}.bucketed"
    buckets = "bucketed_by = ARRAY['id'], bucket_count = 4, sorted_by = ARRAY['id']"
    run(f"CREATE TABLE {name} {ORDERS} WITH (partitioned_by = ARRAY['country', 'day'], {buckets})")
    run(f"INSERT INTO {name} {ROWS}")
    assert run(f"SELECT id FROM {name} WHERE id = 2") == [[2]]
    [[text]] = run(f"SHOW CREATE TABLE {name}")
    assert "bucket_count = 4" in text
    assert "sorted_by = ARRAY['id']" in text


def test_inserts_at_once_lose_nothing(lake: Lake, catalog: str, schema: str) -> None:
    name = f"{catalog}.{schema}.hasty"
    lake.trino.run(
        f"CREATE TABLE {name} (id bigint, worker integer, turn integer) WITH (partitioned_by = ARRAY['worker', 'turn'])"
    )

    def insert(worker: int) -> None:
        for turn in range(3):
            first = (worker * 3 + turn) * 10
            rows = ", ".join(f"({number}, {worker}, {turn})" for number in range(first, first + 10))
            lake.trino.run(f"INSERT INTO {name} VALUES {rows}")

    with ThreadPoolExecutor(8) as workers:
        list(workers.map(insert, range(8)))
    assert lake.trino.run(f"SELECT count(DISTINCT id), count(*) FROM {name}") == [[240, 240]]
    partitions = list(lake.catalog.get_partitions(f"{schema}.hasty"))
    assert [partition.row_count for partition in partitions] == [10] * 24
    assert lake.rows(f"SELECT count(*), sum(id) FROM {schema}.hasty") == [(240, sum(range(240)))]
