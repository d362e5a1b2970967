"""Folders below a table that others need are found, on each database."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import update

from catalog import Catalog, NewPartition, Table
from catalog.files.locations import location_key
from catalog.iceberg.reachability import Reachability
from catalog.maintenance.folders_in_use import folders_in_use
from catalog.operations.failpoints import Point
from catalog.operations.records import OperationKind
from catalog.storage.schema import TableRow
from tests.support.killed_loads import stage


@pytest.fixture
def table(catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    monkeypatch.setenv("CALVE_WAREHOUSE", str(tmp_path / "warehouse"))
    return catalog.create_table("demo.t", columns=[("v", "int")], partition_keys=[("k", "string")])


def in_use(catalog: Catalog, table: Table, *names: str) -> list[str]:
    folders = [f"{table.location}/{name}" for name in names]
    found = folders_in_use(catalog.storage, Reachability(catalog.storage), table, folders)
    return sorted(folder.removeprefix(f"{table.location}/") for folder in found)


def test_folders_of_partitions_and_of_other_tables(catalog: Catalog, table: Table, tmp_path: Path) -> None:
    catalog.add_partitions(table.full_name, [NewPartition(("y",), f"{table.location}/k=a")])
    other = catalog.create_table("demo.other", columns=[("v", "int")], location=f"{tmp_path}/other", is_external=True)
    assert in_use(catalog, table, "k=a", "k=b", "k") == ["k=a"]
    with catalog.storage.write() as connection:
        # As in catalogs of versions that allowed locations to overlap.
        location, key = f"{table.location}/k=b", location_key(f"{table.location}/k=b")
        moved = update(TableRow).where(TableRow.id == other.id)
        connection.execute(moved.values(location=location, location_key=key))
    assert in_use(catalog, table, "k=a", "k=b", "k=b/deep", "k") == ["k=a", "k=b", "k=b/deep"]


def test_folders_of_a_load_until_it_commits(catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    operation = catalog.operations.begin("load", OperationKind.APPEND_ROWS, table.full_name, is_exclusive=True)
    attempt = catalog.operations.start_job(operation.id, "append_rows")
    staging = stage(catalog, operation, "append_rows", attempt, Counter([("a",)]))
    staged, moved, free = f"{staging}/data/k=a", "k=a", "k=b"
    assert in_use(catalog, table, staged, moved, free) == [staged]

    def stop(point: Point) -> None:
        if point is Point.MOVED:
            raise KeyboardInterrupt

    monkeypatch.setattr("catalog.loading.loading.reached", stop)
    with pytest.raises(KeyboardInterrupt):
        catalog.loading.publish(operation.id, "append_rows", attempt, staging, is_load=False)
    assert list(Path(table.location, moved).iterdir())
    assert in_use(catalog, table, staged, moved, free) == [staged, moved]
    monkeypatch.undo()
    catalog.loading.publish(operation.id, "append_rows", attempt, staging, is_load=False)
    assert in_use(catalog, table, staged, moved, free) == [], "the caller reads the partitions afterwards"
