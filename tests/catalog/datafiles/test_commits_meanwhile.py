"""Commits of engines between the reading of rows and the commit of a change that depends on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog import Catalog, Column, LoadMode
from catalog.datafiles.committing import CHANGE_ROWS, FileChange
from catalog.datafiles.manifest import write_manifest
from catalog.datafiles.publishing import live_history
from catalog.errors import PlanConflictError
from catalog.operations.attempts import attempt_folder
from catalog.operations.records import OperationKind
from catalog.rebalancing.changes import SplitPartition
from catalog.rebalancing.rebalancing import VERIFY
from catalog.tables.schemes import scheme_from_properties
from tests.support.iceberg_tables import sql_catalog
from tests.support.killed_changes import load, write_files
from tests.support.partition_files import append, write_partitions
from tests.support.published import duckdb_at, published
from tests.support.rest_server import rest_server

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable

TABLE = "demo.t"
pytestmark = pytest.mark.smoke


@pytest.fixture(params=["scheme", "iceberg"])
def kind(request: pytest.FixtureRequest, catalog: Catalog) -> str:
    """The kind of a table with the rows 1 to 4 and 11 to 14 in its column `v`, in two data files of Calve."""
    kind: str = request.param
    if kind == "scheme":
        scheme = scheme_from_properties(Column("v", "int"), {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "10, 20"})
        catalog.create_table(TABLE, columns=[("v", "int")], scheme=scheme)
        load(catalog, "load", TABLE, [1, 2, 3, 4, 11, 12, 13, 14])
    else:
        catalog.create_table(TABLE, columns=[("v", "int")], partition_keys=[("k", "int")], format="iceberg")
        append(catalog, "load", TABLE, {("1",): [1, 2, 3, 4], ("2",): [11, 12, 13, 14]})
    return kind


@pytest.fixture
def duck(catalog: Catalog, kind: str) -> Iterator[duckdb.DuckDBPyConnection]:
    with rest_server(catalog) as address, duckdb_at(address) as connection:
        yield connection


def delete(duck: duckdb.DuckDBPyConnection, value: int) -> None:
    """Have DuckDB delete a row by a delete file."""
    duck.execute(f"DELETE FROM lake.{TABLE} WHERE v = {value}")


def engine(catalog_url: str, act: Callable[[IcebergTable], object]) -> None:
    with sql_catalog(catalog_url) as iceberg:
        act(iceberg.load_table(TABLE))


def roll_back(catalog: Catalog, catalog_url: str) -> None:
    """Have an engine make the first snapshot the current one."""
    ((first, _), *_) = live_history(catalog.get_table(TABLE))
    engine(catalog_url, lambda table: table.manage_snapshots().rollback_to_snapshot(first).commit())


def read(
    catalog: Catalog, kind: str, key: str = "1", *, where: str = "v < 10", is_serializable: bool = False
) -> Callable[[], object]:
    """Read the rows of the first partition; return the function that replaces them by the row 5.

    Args:
        key: The partition of a table stored as Iceberg.
        where: The condition of the change of a table with a scheme.
    """
    if kind == "scheme":
        scan = catalog.scan_files(TABLE, where)
        begun = catalog.operations.begin("change", OperationKind.CHANGE_ROWS, TABLE, is_exclusive=True)

        def commit() -> None:
            table, scheme = scan.table, scan.scheme
            with catalog.operations.attempt("change", CHANGE_ROWS) as attempt:
                folder = attempt_folder(begun, attempt)
                write_manifest(table, folder, write_files(table, scheme, folder, [5]))
                change = FileChange(
                    scheme,
                    scheme,
                    folder,
                    retired=[scan.files[0].id],
                    read_from=table.published_location,
                    had_deletes=table.delete_file_count > 0,
                    where=scan.expression,
                    revision=scan.revision if is_serializable else None,
                )
                catalog.committer.commit("change", CHANGE_ROWS, attempt, change, {})

        return commit
    found = catalog.scan_partition_files(TABLE)
    (partition,) = (partition for partition in found.partitions if partition.values == (key,))
    replaced = found.replaced([partition.id], is_serializable=is_serializable)

    def publish() -> None:
        begun = catalog.operations.begin("change", OperationKind.CHANGE_ROWS, TABLE, is_exclusive=True)
        with catalog.operations.attempt("change", CHANGE_ROWS) as attempt:
            folder = catalog.loading.files_folder(found.table, begun, attempt)
            write_partitions(found.table, folder, {(key,): [5]})
            catalog.loading.publish(
                "change", CHANGE_ROWS, attempt, folder, is_load=False, mode=LoadMode.REPLACE, replaced=replaced
            )

    return publish


def rows(catalog: Catalog) -> list[int]:
    return sorted(published(catalog, TABLE).scan().to_arrow()["v"].to_pylist())


def test_rows_are_not_lost_that_an_engine_brings_back(
    catalog: Catalog, catalog_url: str, kind: str, duck: duckdb.DuckDBPyConnection
) -> None:
    delete(duck, 2)
    commit = read(catalog, kind)
    roll_back(catalog, catalog_url)
    with pytest.raises(PlanConflictError):
        commit()
    catalog.scan_files(TABLE) if kind == "scheme" else catalog.scan_partition_files(TABLE)
    assert rows(catalog) == [1, 2, 3, 4, 11, 12, 13, 14]


def test_rows_stay_deleted_that_an_engine_deletes(catalog: Catalog, kind: str, duck: duckdb.DuckDBPyConnection) -> None:
    commit = read(catalog, kind)
    delete(duck, 2)
    with pytest.raises(PlanConflictError):
        commit()


@pytest.mark.parametrize("kind", ["iceberg"], indirect=True)
@pytest.mark.parametrize("is_serializable", [False, True])
def test_deletes_that_apply_to_no_file_any_longer_do_not_matter(
    catalog: Catalog, duck: duckdb.DuckDBPyConnection, is_serializable: bool
) -> None:
    delete(duck, 2)
    append(catalog, "more", TABLE, {("3",): [21]})
    commit = read(catalog, "iceberg", "3", is_serializable=is_serializable)
    catalog.drop_partitions(TABLE, "k < 3")
    assert catalog.get_table(TABLE).delete_file_count == 0
    commit()
    assert rows(catalog) == [5]


@pytest.mark.parametrize("kind", ["iceberg"], indirect=True)
@pytest.mark.parametrize("is_serializable", [False, True])
def test_rows_of_other_files_that_are_brought_back_matter_to_a_change_that_depends_on_them(
    catalog: Catalog, catalog_url: str, kind: str, duck: duckdb.DuckDBPyConnection, is_serializable: bool
) -> None:
    path = f"{catalog.get_table(TABLE).location}/21.parquet"
    pq.write_table(pa.table({"v": pa.array([21], pa.int32()), "k": pa.array([3], pa.int32())}), path)

    def branch(table: IcebergTable) -> None:
        snapshot = table.current_snapshot()
        assert snapshot is not None
        table.manage_snapshots().create_branch(snapshot.snapshot_id, "other").commit()

    engine(catalog_url, branch)
    delete(duck, 2)
    engine(catalog_url, lambda table: table.add_files([path]))
    commit = read(catalog, kind, "3", is_serializable=is_serializable)
    again = {"check_duplicate_files": False, "branch": "other"}
    engine(catalog_url, lambda table: table.add_files([path], **again))
    engine(catalog_url, lambda table: table.manage_snapshots().set_current_snapshot(ref_name="other").commit())
    with pytest.raises(PlanConflictError) if is_serializable else nullcontext():
        commit()
    catalog.scan_partition_files(TABLE)
    assert rows(catalog) == sorted([1, 2, 3, 4, 11, 12, 13, 14, 21 if is_serializable else 5])


@pytest.mark.parametrize("had_deletes", [False, True])
def test_it_matters_that_former_metadata_are_gone_only_if_they_had_deletes(
    catalog: Catalog, catalog_url: str, kind: str, duck: duckdb.DuckDBPyConnection, had_deletes: bool
) -> None:
    if had_deletes:
        delete(duck, 2)
    commit, before = read(catalog, kind), catalog.get_table(TABLE).published_location
    assert before is not None
    if had_deletes:
        roll_back(catalog, catalog_url)
    else:
        engine(catalog_url, lambda table: table.transaction().set_properties(a="b").commit_transaction())
    Path(before).unlink()
    if had_deletes:
        with pytest.raises(PlanConflictError):
            commit()
    else:
        commit()
        assert rows(catalog) == [5, 11, 12, 13, 14]


@pytest.mark.parametrize("kind", ["scheme"], indirect=True)
@pytest.mark.parametrize(
    ("value", "is_serializable", "is_refused"), [(3, True, True), (3, False, False), (23, True, False)]
)
def test_a_change_that_depends_on_all_rows_of_a_condition_is_refused_if_an_engine_adds_one(
    catalog: Catalog,
    kind: str,
    duck: duckdb.DuckDBPyConnection,
    value: int,
    is_serializable: bool,
    is_refused: bool,
) -> None:
    commit = read(catalog, kind, is_serializable=is_serializable)
    duck.execute(f"INSERT INTO lake.{TABLE} VALUES ({value})")
    with pytest.raises(PlanConflictError) if is_refused else nullcontext():
        commit()


@pytest.mark.parametrize("kind", ["scheme"], indirect=True)
def test_a_delete_by_statistics_of_files_is_made_again_with_the_rows_that_an_engine_has_added(
    catalog: Catalog, kind: str, duck: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, left = catalog.committer.commit, iter([f"INSERT INTO lake.{TABLE} VALUES (3)"])

    def after_an_insert(*arguments: Any) -> dict[str, Any]:
        for text in left:
            duck.execute(text)
        return commit(*arguments)

    monkeypatch.setattr(catalog.committer, "commit", after_an_insert)
    report = catalog.committer.delete_files("delete", TABLE, "v < 10")
    assert report is not None
    assert report["rows"] == 5
    assert rows(catalog) == [11, 12, 13, 14]


@pytest.mark.parametrize("kind", ["scheme"], indirect=True)
def test_a_change_is_refused_if_an_engine_brings_back_a_whole_file_with_rows_of_its_condition(
    catalog: Catalog, catalog_url: str, kind: str, duck: duckdb.DuckDBPyConnection
) -> None:
    duck.execute(f"INSERT INTO lake.{TABLE} VALUES (3)")
    catalog.scan_files(TABLE)
    (_, (second, _)) = live_history(catalog.get_table(TABLE))
    roll_back(catalog, catalog_url)
    commit = read(catalog, kind, is_serializable=True)
    engine(catalog_url, lambda table: table.manage_snapshots().set_current_snapshot(second).commit())
    with pytest.raises(PlanConflictError):
        commit()


@pytest.mark.parametrize("kind", ["scheme"], indirect=True)
def test_a_change_is_refused_if_an_engine_drops_a_column_of_its_condition_and_adds_rows(
    catalog: Catalog, catalog_url: str, kind: str, duck: duckdb.DuckDBPyConnection
) -> None:
    duck.execute(f"ALTER TABLE lake.{TABLE} ADD COLUMN w int")
    commit = read(catalog, kind, where="w > 1", is_serializable=True)
    duck.execute(f"ALTER TABLE lake.{TABLE} DROP COLUMN w")
    duck.execute(f"INSERT INTO lake.{TABLE} VALUES (3)")
    with pytest.raises(PlanConflictError):
        commit()


@pytest.mark.parametrize("kind", ["scheme"], indirect=True)
def test_rows_stay_deleted_that_an_engine_deletes_after_the_verification_of_moved_rows(
    catalog: Catalog, kind: str, duck: duckdb.DuckDBPyConnection
) -> None:
    begun = catalog.rebalancing.begin("split", TABLE, SplitPartition(1, ("3", "10")))
    with catalog.operations.attempt("split", VERIFY) as attempt:
        plan, folder = catalog.rebalancing.plan_of(begun), attempt_folder(begun, attempt)
        write_manifest(plan.table, folder, write_files(plan.table, plan.scheme, folder, [1, 2, 3, 4]))
        verified = {"fingerprint": plan.fingerprint, "folder": folder, "rows": 4, "reading": plan.reading}
        catalog.operations.finish_job("split", VERIFY, attempt, verified)
    delete(duck, 2)
    with pytest.raises(PlanConflictError):
        catalog.rebalancing.commit_verified("split")
    assert rows(catalog) == [1, 3, 4, 11, 12, 13, 14]
