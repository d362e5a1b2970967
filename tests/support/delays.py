"""Tables of delays with a partition scheme, loaded without Spark, and an independent reader of their files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from catalog import Catalog
from catalog.datafiles.committing import FileChange
from catalog.datafiles.footers import DataFileReader
from catalog.datafiles.manifest import write_manifest
from catalog.operations.attempts import attempt_folder
from catalog.operations.records import OperationKind
from catalog.schemes.ranges import RangeScheme
from catalog.tables.schemes import PARTITION_FOLDER

BOUNDS = ((1, "0"), (2, "30"), (3, "60"))


def make_delays(catalog: Catalog, name: str, count: int = 900) -> None:
    """Create a table of ranges with delays from -20 to 69."""
    catalog.create_database(name.partition(".")[0], if_not_exists=True)
    scheme = RangeScheme("delay", "int", (), 4, BOUNDS)
    catalog.create_table(name, columns=[("id", "bigint"), ("delay", "int")], scheme=scheme)
    load_delays(catalog, name, (number % 90 - 20 for number in range(count)))


def load_delays(catalog: Catalog, name: str, delays: Iterable[int]) -> None:
    """Add rows in one file for each partition."""
    table = catalog.get_table(name)
    scheme = table.scheme
    assert scheme is not None
    rows: dict[int, list[tuple[int, int]]] = {}
    for number, delay in enumerate(delays):
        rows.setdefault(scheme.partition_of(delay), []).append((number, delay))
    operation_id = f"load {name} {len(catalog.operations.list(name))}"
    begun = catalog.operations.begin(operation_id, OperationKind.LOAD_ROWS, name, is_exclusive=True)
    with catalog.operations.attempt(operation_id, "load") as attempt:
        folder, files = attempt_folder(begun, attempt), []
        for partition, pairs in rows.items():
            path = f"{folder}/{PARTITION_FOLDER}={partition}/rows.parquet"
            (Path(table.location) / path).parent.mkdir(parents=True)
            ids, values = (list(each) for each in zip(*pairs, strict=True))
            columns = {"id": pa.array(ids, pa.int64()), "delay": pa.array(values, pa.int32())}
            pq.write_table(pa.table(columns), Path(table.location) / path)
            size_bytes = (Path(table.location) / path).stat().st_size
            files.append(DataFileReader(table, {scheme.column: scheme.value_type}).read(path, size_bytes, partition))
        write_manifest(table, folder, files)
        catalog.committer.commit(operation_id, "load", attempt, FileChange(scheme, scheme, folder), {})


def read_delays(catalog: Catalog, name: str, where: str | None = None) -> list[tuple[int, int]]:
    """Return the rows of the files that the catalog knows, in order, as DuckDB reads them."""
    table = catalog.get_table(name)
    paths = [f"{table.location}/{file.path}" for file in catalog.scan_files(name, where).files]
    with duckdb.connect() as connection:
        query = "SELECT id, delay FROM read_parquet(?, hive_partitioning=false) ORDER BY ALL"
        return connection.execute(query, [paths]).fetchall() if paths else []


def row_counts(catalog: Catalog, name: str) -> dict[int, int]:
    """Return the rows of each partition, in logical order."""
    return {each.id: each.row_count for each in catalog.scheme_partitions(name)}
