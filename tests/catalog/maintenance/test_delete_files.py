"""Vacuum beside delete files that engines write into the folders of Calve's data files, as DuckDB does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog import Catalog, Column
from catalog.datafiles.publishing import live_history
from catalog.operations.attempts import attempt_folder
from catalog.operations.records import OperationKind
from catalog.tables.schemes import scheme_from_properties
from tests.support.iceberg_tables import sql_catalog
from tests.support.killed_changes import load
from tests.support.partition_files import append
from tests.support.published import duckdb_at, reachable_files
from tests.support.rest_server import rest_server

TABLE = "demo.t"
NOW = timedelta(0)
pytestmark = pytest.mark.smoke


@pytest.fixture(params=["scheme", "iceberg"])
def kind(request: pytest.FixtureRequest, catalog: Catalog) -> str:
    """The kind of a table with the rows 1 to 4 in its column `v`, in one data file of Calve."""
    kind: str = request.param
    if kind == "scheme":
        scheme = scheme_from_properties(Column("v", "int"), {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "10, 20"})
        catalog.create_table(TABLE, columns=[("v", "int")], scheme=scheme)
        load(catalog, "load", TABLE, [1, 2, 3, 4])
    else:
        catalog.create_table(TABLE, columns=[("v", "int")], partition_keys=[("k", "int")], format="iceberg")
        append(catalog, "load", TABLE, {("1",): [1, 2, 3, 4]})
    return kind


@pytest.fixture
def duck(catalog: Catalog, kind: str) -> Iterator[duckdb.DuckDBPyConnection]:
    with rest_server(catalog) as address, duckdb_at(address) as connection:
        yield connection


def rows(duck: duckdb.DuckDBPyConnection) -> list[int]:
    return [value for (value,) in duck.execute(f"SELECT v FROM lake.{TABLE} ORDER BY v").fetchall()]


def files(catalog: Catalog) -> set[str]:
    """Return the files of the table, without the lists that Calve's jobs leave."""
    found = (path for path in Path(catalog.get_table(TABLE).location).rglob("*") if path.is_file())
    return {str(path) for path in found if "_manifest" not in path.name}


def deleted(catalog: Catalog, duck: duckdb.DuckDBPyConnection, value: int) -> Path:
    """Have DuckDB delete a row; return the delete file, which is beside the data file."""
    before = files(catalog)
    duck.execute(f"DELETE FROM lake.{TABLE} WHERE v = {value}")
    (path,) = (Path(path) for path in files(catalog) - before if "-deletes.parquet" in path)
    assert path.relative_to(catalog.get_table(TABLE).location).parts[0] not in ("data", "metadata")
    return path


def test_live_delete_files_stay(catalog: Catalog, duck: duckdb.DuckDBPyConnection) -> None:
    old = deleted(catalog, duck, 2)
    os.utime(old, (1_000_000_000, 1_000_000_000))
    for _ in range(2):
        catalog.vacuum(grace=NOW)
        assert rows(duck) == [1, 3, 4]
    deleted(catalog, duck, 4)
    catalog.vacuum(grace=NOW)
    assert rows(duck) == [1, 3]
    assert files(catalog) == reachable_files(catalog, TABLE)


def test_delete_files_that_no_snapshot_has_go_after_the_usual_grace_period(
    catalog: Catalog, duck: duckdb.DuckDBPyConnection
) -> None:
    ((first, _),) = live_history(catalog.get_table(TABLE))
    old, young = deleted(catalog, duck, 2), deleted(catalog, duck, 4)
    os.utime(old, (1_000_000_000, 1_000_000_000))
    catalog.roll_backs.to_snapshot(TABLE, first)
    # Another process might be about to commit the young file.
    catalog.vacuum(grace=NOW)
    assert (old.exists(), young.exists()) == (False, True)
    assert rows(duck) == [1, 2, 3, 4]
    os.utime(young, (1_000_000_000, 1_000_000_000))
    catalog.vacuum(grace=NOW)
    assert files(catalog) == reachable_files(catalog, TABLE)


def test_the_folder_of_a_failed_attempt_stays_while_a_table_has_a_file_in_it(
    catalog: Catalog, catalog_url: str, kind: str
) -> None:
    operation = catalog.operations.begin("failed", OperationKind.LOAD_ROWS, TABLE)
    with catalog.operations.attempt("failed", "load") as attempt:
        folder = Path(catalog.get_table(TABLE).location) / attempt_folder(operation, attempt)
    folder.mkdir()
    columns = {"v": pa.array([9], pa.int32()), **({"k": pa.array([1], pa.int32())} if kind == "iceberg" else {})}
    for name in ("added.parquet", "other.parquet"):
        pq.write_table(pa.table(columns), folder / name)
    catalog.operations.fail("failed", "TEST", "the job failed")
    with sql_catalog(catalog_url) as iceberg:
        iceberg.load_table(TABLE).add_files([str(folder / "added.parquet")])
    catalog.vacuum(grace=NOW)
    assert (folder / "added.parquet").exists()
    with sql_catalog(catalog_url) as iceberg:
        assert 9 in iceberg.load_table(TABLE).scan().to_arrow()["v"].to_pylist()
