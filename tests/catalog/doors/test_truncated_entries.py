"""Truncating entries: files go, definitions stay, and what is not the table's own stays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from catalog import Catalog
from catalog.doors.entries import Entries
from catalog.errors import FilesNeededError, OperationConflictError, UnsupportedChangeError
from catalog.metastores.types import HivePartition
from catalog.model.identifiers import TableName
from catalog.operations.records import OperationKind
from tests.support.entries import NAME, ORDERS, PARQUET

COUNTED = {"numRows": "5", "rawDataSize": "70", "note": "kept"}
FLAT = replace(ORDERS, name=TableName("demo", "flat"), partition_keys=())


@pytest.fixture
def entries(catalog: Catalog) -> Entries:
    entries = Entries(catalog)
    orders = entries.create_table(ORDERS)
    entries.add_partitions(NAME, [HivePartition(("DE", str(day)), PARQUET, COUNTED) for day in range(3)])
    for day in range(3):
        Path(f"{orders.location}/country=DE/day={day}/000000_0").write_text("rows of Hive")
    return entries


def files(entries: Entries, name: TableName = NAME) -> Sequence[str]:
    root = Path(str(entries.table(name).location))
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


@pytest.mark.parametrize("values", [None, [("DE", "0"), ("DE", "2"), ("FR", "9")]])
def test_partitions_stay_without_their_files(entries: Entries, values: list[tuple[str, str]] | None) -> None:
    before = list(entries.partitions(NAME))
    entries.truncate(NAME, values)
    assert files(entries) == ([] if values is None else ["country=DE/day=1/000000_0"])
    emptied = {("DE", "0"), ("DE", "1"), ("DE", "2")} if values is None else set(values)
    zero = {"numRows": "0", "rawDataSize": "0", "note": "kept"}
    assert list(entries.partitions(NAME)) == [
        partition._replace(parameters=zero) if partition.values in emptied else partition for partition in before
    ]
    assert all(os.path.isdir(str(partition.location)) for partition in before)


def test_a_table_without_keys_stays_without_its_files(entries: Entries) -> None:
    flat = entries.create_table(replace(FLAT, parameters={**FLAT.parameters, **COUNTED}))
    Path(f"{flat.location}/inside").mkdir()
    Path(f"{flat.location}/inside/000000_0").write_text("rows of Hive")
    entries.truncate(FLAT.name)
    assert os.listdir(str(flat.location)) == []
    zero = {"numRows": "0", "rawDataSize": "0"}
    assert entries.table(FLAT.name) == replace(flat, parameters={**flat.parameters, **zero})


def test_files_of_others_stay(entries: Entries, tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.mkdir()
    (away / "file").write_text("")
    entries.create_table(replace(FLAT, location=str(away)))
    with pytest.raises(UnsupportedChangeError, match="not its own"):
        entries.truncate(FLAT.name)
    entries.drop_table(FLAT.name)
    entries.add_partitions(NAME, [HivePartition(("US", "1"), PARQUET, location=str(away))])
    with pytest.raises(UnsupportedChangeError, match="outside of the table's folder"):
        entries.truncate(NAME)
    assert (away / "file").exists()
    assert len(files(entries)) == 3


def test_partitions_that_share_a_folder_are_truncated_together(entries: Entries) -> None:
    shared = f"{entries.table(NAME).location}/shared"
    given = [HivePartition(("US", str(day)), PARQUET, location=shared) for day in range(2)]
    entries.add_partitions(NAME, given)
    Path(shared, "file").write_text("")
    with pytest.raises(UnsupportedChangeError, match="truncate them together"):
        entries.truncate(NAME, [("US", "1")])
    assert "shared/file" in files(entries)
    entries.truncate(NAME, [("US", "0"), ("US", "1")])
    assert len(files(entries)) == 3


@pytest.mark.parametrize("is_exclusive", [False, True])
def test_a_table_is_not_truncated_under_a_running_load(entries: Entries, is_exclusive: bool) -> None:
    entries.catalog.operations.begin("load", OperationKind.LOAD_ROWS, "demo.orders", is_exclusive=is_exclusive)
    with pytest.raises(OperationConflictError, match="give-up 'load'"):
        entries.truncate(NAME)
    assert len(files(entries)) == 3
    assert [partition.parameters for partition in entries.partitions(NAME)] == [COUNTED] * 3


def test_files_that_an_iceberg_table_shares_stay(entries: Entries, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = [(str(entries.table(NAME).location), "demo", "ice")]
    monkeypatch.setattr("catalog.tables.purging.shared_locations", lambda connection: shared)
    with pytest.raises(FilesNeededError):
        entries.truncate(NAME)
    assert len(files(entries)) == 3


def test_an_interrupted_truncation_loses_no_partition(entries: Entries, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("catalog.partitions.truncating.record_changed", interrupt)
        with pytest.raises(KeyboardInterrupt):
            entries.truncate(NAME)
    assert len(entries.partition_names(NAME)) == 3
    entries.truncate(NAME)
    assert files(entries) == []
