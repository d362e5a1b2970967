from __future__ import annotations

import pyarrow as pa
import pytest

from catalog import Catalog, Column
from catalog.tables.schemes import scheme_from_properties
from spark_jobs.queries.table_names import needs_packages
from tests.support.iceberg_tables import sql_catalog

TABLE = "demo.t"


@pytest.fixture
def hashed(catalog: Catalog) -> Catalog:
    scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "2"})
    catalog.create_database("demo")
    catalog.create_table(TABLE, columns=[("a", "int"), ("c", "int")], scheme=scheme)
    return catalog


def test_only_what_the_file_rows_do_not_tell_needs_the_runtime_of_iceberg(hashed: Catalog, catalog_url: str) -> None:
    assert not needs_packages(hashed, f"SELECT * FROM {TABLE}", "demo")
    assert not needs_packages(hashed, "SELECT * FROM t JOIN missing", "demo")
    assert needs_packages(hashed, f"SELECT * FROM {TABLE}.snapshots", "demo")
    assert not needs_packages(hashed, "SELECT * FROM demo.missing.snapshots", "demo")
    values = pa.array([3], pa.int32())
    with sql_catalog(catalog_url) as iceberg:
        table = iceberg.load_table(TABLE)
        table.append(pa.table({"a": values, "c": values}))
        with table.transaction() as transaction:
            transaction.set_properties({"write.data.path": "s3://KEY:hunter2@bucket/t"})
    # Calve refuses this commit, so Iceberg reads the table.
    assert needs_packages(hashed, "SELECT * FROM t", "demo")
