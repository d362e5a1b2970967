"""Published tables: what Iceberg's metadata say about a table with a partition scheme."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import duckdb
from pyiceberg.table import StaticTable

from catalog import Catalog
from catalog.datafiles.files import NewFile, insert_files
from catalog.datafiles.publishing import SCHEME_PROPERTY, FileSwap, publish
from catalog.iceberg.named_files import data_paths, metadata_paths
from catalog.iceberg.pointers import CATALOG, Pointer, find_pointer


def published(catalog: Catalog, name: str) -> StaticTable:
    """Return the table that other engines see."""
    table = catalog.get_table(name)
    with catalog.storage.read() as connection:
        location = find_pointer(connection, table.database, table.name)
    assert location is not None
    assert location == table.published_location
    return StaticTable.from_metadata(location)


def check_published(catalog: Catalog, name: str) -> None:
    """Check that the published table has exactly the catalog's files, columns and scheme.

    What other engines have committed is taken in before.
    """
    files = catalog.scan_files(name).files
    table, seen = catalog.get_table(name), published(catalog, name)
    assert table.scheme is not None
    planned = [(task.file.file_path, task.file.record_count, task.file.file_size_in_bytes) for task in _tasks(seen)]
    assert sorted(planned) == sorted(
        (f"{table.location}/{file.path}", file.row_count, file.size_bytes) for file in files
    )
    assert [field.name for field in seen.schema().fields] == [column.name for column in table.columns]
    assert [field.field_id for field in seen.schema().fields] == [column.id for column in table.columns]
    assert json.loads(seen.properties[SCHEME_PROPERTY]) == json.loads(json.dumps(table.scheme.as_json()))
    if (snapshot := seen.current_snapshot()) is not None and snapshot.summary is not None:
        assert snapshot.summary["total-data-files"] == str(len(files))
        assert snapshot.summary["total-records"] == str(sum(file.row_count for file in files))
        if not table.delete_file_count:
            assert snapshot.summary["total-files-size"] == str(sum(file.size_bytes for file in files))
    else:
        assert not files


def files_of(catalog: Catalog, name: str) -> set[str]:
    """Return the paths, below the table's folder, of its data files and of the metadata that name them."""
    table = catalog.get_table(name)
    assert table.published_location is not None
    pointer = Pointer(CATALOG, table.database, table.name, table.published_location)
    metadata = {path.removeprefix(f"{table.location}/") for path in metadata_paths(pointer)}
    return metadata | {file.path for file in catalog.scan_files(name).files}


def reachable_files(catalog: Catalog, name: str) -> set[str]:
    """Return the complete paths of the files that a table's live metadata reach."""
    table = catalog.get_table(name)
    assert table.live_location is not None
    pointer = Pointer(CATALOG, table.database, table.name, table.live_location)
    return {*metadata_paths(pointer), *data_paths(pointer)}


def add_files(catalog: Catalog, name: str, files: Sequence[NewFile]) -> None:
    """Add files, which need not exist, as an operation of Calve does."""
    table = catalog.get_table(name)
    with catalog.storage.write() as connection:
        insert_files(connection, table, files, 1)
        publish(connection, table, FileSwap(added=files))


def duckdb_reader(*more: str) -> duckdb.DuckDBPyConnection:
    """Return DuckDB with its Iceberg extension, from wheels.

    Args:
        more: Further extensions, loaded before it.
    """
    connection = duckdb.connect(config={"allow_unsigned_extensions": True})
    for name in (*more, "avro", "iceberg"):
        package = import_module(f"duckdb_extension_{name}")
        (path,) = Path(str(package.__file__)).parent.rglob(f"{name}.duckdb_extension")
        connection.load_extension(str(path))
    return connection


def duckdb_at(address: str) -> duckdb.DuckDBPyConnection:
    """Return DuckDB with the catalog `lake`, behind the REST door at an address."""
    connection = duckdb_reader("httpfs")
    connection.execute(f"ATTACH 'calve' AS lake (TYPE iceberg, ENDPOINT '{address}', AUTHORIZATION_TYPE 'none')")
    return connection


def _tasks(table: StaticTable) -> list:  # type: ignore[type-arg]
    return list(table.scan().plan_files())
