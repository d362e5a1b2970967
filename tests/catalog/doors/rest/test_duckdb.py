"""DuckDB reads and appends through the REST door."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from catalog import Catalog
from tests.catalog.doors.rest.test_pyiceberg import ROWS, make_scheme_table
from tests.support.partition_files import append
from tests.support.published import duckdb_at


@pytest.fixture
def duck(address: str) -> duckdb.DuckDBPyConnection:
    """DuckDB with the catalog `lake`."""
    pytest.importorskip("duckdb_extension_httpfs", reason="the wheel duckdb-extension-httpfs is not installed")
    return duckdb_at(address)


def test_duckdb_reads_and_appends(catalog: Catalog, rest: RestCatalog, duck: duckdb.DuckDBPyConnection) -> None:
    rest.create_table("demo.notes", ROWS.schema).append(ROWS)
    make_scheme_table(catalog)
    rest.load_table("demo.visits").append(pa.table({"note": ["a", "b"], "id": pa.array([1, 15], pa.int64())}))
    assert duck.sql("SELECT id, note FROM lake.demo.notes ORDER BY id").fetchall() == [(1, "a"), (2, "b")]
    duck.execute("INSERT INTO lake.demo.notes VALUES (3, 'c')")
    assert rest.load_table("demo.notes").scan().to_arrow().num_rows == 3
    assert duck.sql("SELECT note FROM lake.demo.visits WHERE id > 10").fetchall() == [("b",)]
    duck.execute("INSERT INTO lake.demo.visits VALUES ('c', 25)")
    partitions = catalog.scheme_partitions("demo.visits")
    assert sum(partition.row_count for partition in partitions) == 3
    duck.execute("CREATE TABLE lake.demo.made (n INTEGER)")
    assert [column.name for column in catalog.get_table("demo.made").columns] == ["n"]
    duck.execute("CREATE TABLE lake.demo.copied AS SELECT id, note FROM lake.demo.notes")
    assert rest.load_table("demo.copied").scan().to_arrow().num_rows == 3


def test_duckdb_reads_partitions_whose_key_is_beyond_ascii(catalog: Catalog, duck: duckdb.DuckDBPyConnection) -> None:
    """Its reader of Avro ends the process at names that Avro does not allow."""
    catalog.create_table("demo.sizes", columns=[("v", "int")], partition_keys=[("größe_é", "int")], format="iceberg")
    append(catalog, "one", "demo.sizes", {("1",): [7], ("2",): [8]})
    assert duck.sql("SELECT v FROM lake.demo.sizes WHERE größe_é = 2").fetchall() == [(8,)]
