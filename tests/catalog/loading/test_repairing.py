"""Repairs of tables: the partitions become those of the existing folders; on each database."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog import Catalog, IndexDefinition, NewPartition
from catalog.errors import (
    CatalogUnavailableError,
    InvalidPartitionError,
    NotATableError,
    OperationConflictError,
    VerificationFailedError,
)
from catalog.loading import repairing
from catalog.loading.repairing import RepairReport
from catalog.model import RepairMode
from catalog.operations.records import OperationKind, OperationState
from tests.support.index_items import assert_every_partition_has_its_item

TABLE = "demo.t"


@pytest.fixture
def root(catalog: Catalog) -> Path:
    """The folder of the table `demo.t` with the keys (s string, n int) and an index on n, which exists."""
    keys = [("s", "string"), ("n", "int")]
    indexes = [IndexDefinition("by_n", ("n",))]
    table = catalog.create_table(TABLE, columns=[("v", "int")], partition_keys=keys, indexes=indexes)
    Path(table.location).mkdir(parents=True)
    return Path(table.location)


def make(root: Path, *names: str) -> None:
    for name in names:
        (root / name).mkdir(parents=True)


def names(catalog: Catalog) -> set[str]:
    table = catalog.get_table(TABLE)
    assert_every_partition_has_its_item(catalog, TABLE)
    return {each.name(table) for each in catalog.get_partitions(TABLE)}


def test_folders_become_partitions(catalog: Catalog, root: Path) -> None:
    folders = {"s=a/n=1", "s=a/n=2", "s=b%2F%25 ü/n=-7", "s=__HIVE_DEFAULT_PARTITION__/n=__HIVE_DEFAULT_PARTITION__"}
    make(root, *folders)
    make(root, "_temporary/s=x/n=1", ".hidden/n=1", "s=a/_x", "s=a/.n=4", "_calve_rejected/7/s=a/n=5")
    (root / "s=a" / "n=8").write_text("a file")
    (root / "README").write_text("a file")
    assert catalog.repair_table(TABLE) == RepairReport(4, 0, 4, 0)
    assert names(catalog) == folders
    assert {Path(each.location) for each in catalog.get_partitions(TABLE)} == {root / name for name in folders}
    assert {each.values for each in catalog.get_partitions(TABLE, "n = -7")} == {("b/% ü", "-7")}
    assert catalog.repair_table(TABLE) == RepairReport(0, 0, 4, 0)
    assert {each.state for each in catalog.operations.list(TABLE)} == {OperationState.CLEANED}


def test_folders_of_other_spellings_are_found_where_they_are(catalog: Catalog, root: Path) -> None:
    make(root, "S=a b%3d/N=01")
    assert catalog.repair_table(TABLE).added == 1
    [partition] = catalog.get_partitions(TABLE)
    assert (partition.values, partition.location) == (("a b=", "01"), f"{root}/S=a b%3d/N=01")
    assert catalog.repair_table(TABLE) == RepairReport(0, 0, 1, 0)


def test_what_does_not_fit_is_reported_and_stops_nothing(catalog: Catalog, root: Path) -> None:
    make(root, "s=a/n=1", "s=a/n=x", "s=a/m=1", "t=a/n=1", "plain/n=1", "s=b/n=1", "s=c/n=3", "s=c/n=03")
    os.makedirs(os.fsencode(root) + b"/s=\xff/n=1")
    catalog.add_partitions(TABLE, [NewPartition(("b", "1"), location="/elsewhere")])
    report = catalog.repair_table(TABLE)
    assert names(catalog) == {"s=a/n=1", "s=b/n=1"} | ({"s=c/n=3", "s=c/n=03"} & names(catalog))
    assert (report.added, report.folder_count, report.unfit_count) == (2, 5, 7)
    said = "\n".join(sorted(report.unfit))
    for part in (
        "folder plain: its last part does not have the form s=value",
        "folder s=a/m=1: its last part does not have the form n=value",
        "folder s=b/n=1: the partition with these values is in /elsewhere",
        "folder t=a: its last part",
        "partition 's=a/n=x': key 'n' has the value 'x', expected int",
        f"a folder below {root}/: its name is not UTF-8",
        ": the partition with these values is in " + str(root / "s=c"),
    ):
        assert part in said


def test_a_folder_that_is_taken_is_reported_and_stops_nothing(catalog: Catalog, root: Path) -> None:
    catalog.add_partitions(TABLE, [NewPartition(("x", "9"), location=f"{root}/s=a/n=1/inside")])
    make(root, *(f"s=a/n={number}" for number in range(1, 5)))
    report = catalog.repair_table(TABLE)
    assert (report.added, report.unfit_count) == (3, 1)
    assert f"{root}/s=a/n=1/inside" in report.unfit[0]
    assert names(catalog) == {"s=x/n=9", "s=a/n=2", "s=a/n=3", "s=a/n=4"}


def test_the_files_of_a_renamed_partition_are_no_other_one(catalog: Catalog, root: Path) -> None:
    make(root, "s=a/n=1", "s=b/n=1")
    catalog.repair_table(TABLE)
    catalog.alter_partition(TABLE, ("a", "1"), rename_to=("z", "1"))
    assert catalog.repair_table(TABLE) == RepairReport(0, 0, 2, 0)
    assert names(catalog) == {"s=z/n=1", "s=b/n=1"}
    assert catalog.repair_table(TABLE, mode=RepairMode.SYNC) == RepairReport(0, 0, 2, 0)


def test_partitions_without_folders_are_dropped_when_asked(catalog: Catalog, root: Path, tmp_path: Path) -> None:
    make(root, "s=a/n=1", "s=b/n=1", "s=c/n=1")
    make(tmp_path, "elsewhere/there")
    catalog.repair_table(TABLE)
    others = [NewPartition(("x", str(n)), location=f"file://{tmp_path}/elsewhere/{n or 'there'}") for n in range(2)]
    catalog.add_partitions(TABLE, others)
    shutil.rmtree(root / "s=b")
    make(root, "s=new/n=1")
    assert catalog.repair_table(TABLE, mode=RepairMode.DROP) == RepairReport(0, 2, 3, 0)
    assert names(catalog) == {"s=a/n=1", "s=c/n=1", "s=x/n=0"}
    shutil.rmtree(root / "s=c")
    assert catalog.repair_table(TABLE, mode=RepairMode.SYNC) == RepairReport(1, 1, 2, 0)
    assert names(catalog) == {"s=a/n=1", "s=new/n=1", "s=x/n=0"}


def test_partitions_whose_values_are_longer_than_names_of_folders_have_none(catalog: Catalog, root: Path) -> None:
    make(root, "s=a/n=1")
    catalog.repair_table(TABLE)
    catalog.add_partitions(TABLE, [NewPartition(("x" * 300, "1")), NewPartition(("y" * 300, "1"))])
    purge = catalog.purge_partitions(TABLE, f"s = '{'y' * 300}'")
    assert (purge.dropped, purge.purged) == (1, 1)
    assert catalog.repair_table(TABLE, mode=RepairMode.SYNC) == RepairReport(0, 1, 1, 0)
    assert names(catalog) == {"s=a/n=1"}


def test_a_partition_that_moves_while_its_folder_is_looked_for_stays(
    catalog: Catalog, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(root, "s=a/n=1")
    make(tmp_path, "ready")
    catalog.repair_table(TABLE)
    catalog.add_partitions(TABLE, [NewPartition(("b", "1")), NewPartition(("c", "1"))])
    in_parallel = repairing.in_parallel

    def move_after_the_look(*arguments: Any) -> Iterator[bool]:
        are_there = list(in_parallel(*arguments))
        if False in are_there:
            catalog.alter_partition(TABLE, ("b", "1"), location=f"{tmp_path}/ready")
        return iter(are_there)

    monkeypatch.setattr(repairing, "in_parallel", move_after_the_look)
    assert catalog.repair_table(TABLE, mode=RepairMode.DROP).dropped == 1
    assert names(catalog) == {"s=a/n=1", "s=b/n=1"}


def test_nothing_is_dropped_when_the_whole_table_is_away(catalog: Catalog, root: Path) -> None:
    make(root, "s=a/n=1")
    catalog.repair_table(TABLE)
    root.rename(root.with_name("away"))
    assert catalog.repair_table(TABLE) == RepairReport(0, 0, 0, 0)
    with pytest.raises(VerificationFailedError, match=f"{root} does not exist.* nothing was"):
        catalog.repair_table(TABLE, mode=RepairMode.SYNC)
    assert names(catalog) == {"s=a/n=1"}
    root.with_name("away").rename(root)
    assert catalog.repair_table(TABLE, mode=RepairMode.SYNC) == RepairReport(0, 0, 1, 0)


def test_many_folders_come_in_batches_and_an_interrupted_repair_goes_on(
    catalog: Catalog, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repairing, "_BATCH", 40)
    make(root, *[f"s={number // 10}/n={number}" for number in range(200)])
    drop, beats = catalog.operations.heartbeat, 0

    def stop(*args: object, **progress: object) -> None:
        nonlocal beats
        beats += 1
        if beats == 3:
            raise CatalogUnavailableError("gone")
        drop(*args, **progress)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(catalog.operations, "heartbeat", stop)
        with pytest.raises(CatalogUnavailableError):
            catalog.repair_table(TABLE, operation_id="repair")
    assert len(names(catalog)) == 80
    assert catalog.operations.get("repair").state is OperationState.FAILED
    report = catalog.repair_table(TABLE, operation_id="repair")
    assert report == RepairReport(120, 0, 200, 0)
    assert catalog.repair_table(TABLE, operation_id="repair") == report
    shutil.rmtree(root / "s=7")
    assert catalog.repair_table(TABLE, mode=RepairMode.DROP).dropped == 10
    assert len(names(catalog)) == 190


def test_a_table_at_work_is_not_repaired(catalog: Catalog, root: Path) -> None:
    make(root, "s=a/n=1")
    catalog.operations.begin("load", OperationKind.ADD_PARTITIONS, TABLE, is_exclusive=True)
    with pytest.raises(OperationConflictError, match="load"):
        catalog.repair_table(TABLE)
    assert names(catalog) == set()


def test_what_has_no_partitions_is_not_repaired(catalog: Catalog) -> None:
    catalog.create_view("demo.v", "SELECT 1")
    with pytest.raises(NotATableError, match=r"demo\.v is a view"):
        catalog.repair_table("demo.v")
    catalog.create_table("demo.plain", columns=[("v", "int")])
    with pytest.raises(InvalidPartitionError, match="no partition keys"):
        catalog.repair_table("demo.plain")


def test_folders_of_timestamps_and_numbers_become_partitions_as_they_are_spelled(catalog: Catalog) -> None:
    keys = [("at", "timestamp"), ("price", "decimal(5,2)"), ("ok", "boolean")]
    indexes = [IndexDefinition("by_at", ("at", "price"))]
    table = catalog.create_table(TABLE, columns=[("v", "int")], partition_keys=keys, indexes=indexes)
    folders = {
        "at=2024-01-01 00%3A00%3A00.0/price=1.50/ok=true",
        "at=2024-01-01 12%3A30%3A00.000001/price=-7/ok=False",
        "at=__HIVE_DEFAULT_PARTITION__/price=0.5/ok=true",
    }
    make(Path(table.location), *folders, "at=2024-01-01/price=1.5/ok=TRUE", "at=now/price=1/ok=true")
    report = catalog.repair_table(TABLE)
    assert (report.added, report.folder_count, report.unfit_count) == (3, 5, 2)
    assert len(names(catalog) & folders) >= 2
    assert catalog.repair_table(TABLE) == RepairReport(0, 0, 5, 2, report.unfit)
    found = catalog.get_partitions(TABLE, "at < timestamp '2024-01-01 00:00:00.5' and price = 1.5 and ok = true")
    assert [each.values[1] for each in found] in (["1.50"], ["1.5"])
