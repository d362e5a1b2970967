"""The listing of a migrated table's files immediately before and after its flip."""

from __future__ import annotations

import threading

import pytest

from catalog import Catalog, NewPartition
from catalog.files.filesystem import FileInfo
from catalog.migration.late_files import listed_files
from catalog.migration.requests import MigrationOperation, MigrationRequest

AT_ONCE = 16


@pytest.mark.parametrize("location", ["s3://lake/orders", "/lake/orders"])
def test_only_remote_folders_are_listed_many_at_a_time(
    catalog_url: str, monkeypatch: pytest.MonkeyPatch, location: str
) -> None:
    calls = threading.Barrier(AT_ONCE)
    here = threading.current_thread()

    def files(folder: str, *_: object) -> list[FileInfo]:
        if location.startswith("s3:"):
            # Raises an error unless others wait here, too.
            calls.wait(timeout=60)
        else:
            assert threading.current_thread() is here
        return [FileInfo(f"{folder}/a", 1, 0), FileInfo(f"{folder}/b", 1, 0)]

    monkeypatch.setattr("catalog.iceberg.folders.data_files", files)
    with Catalog.open(catalog_url) as catalog:
        catalog.create_database("lake")
        keys = [("day", "int")]
        catalog.create_table("lake.orders", columns=[("id", "int")], partition_keys=keys, location=location)
        days = range(2 * AT_ONCE)
        catalog.add_partitions("lake.orders", [NewPartition((str(day),)) for day in days])
        operation = catalog.migrations.begin("migration", "lake.orders", MigrationRequest())
        table, target = catalog.get_table("lake.orders"), catalog.migrations.target(MigrationOperation.of(operation))
        with catalog.storage.read() as connection:
            paths = [file.path for file in listed_files(connection, table, MigrationRequest(), target)]
    assert paths == [f"{location}/day={day}/{name}" for day in days for name in ("a", "b")]
