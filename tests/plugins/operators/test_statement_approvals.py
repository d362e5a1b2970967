"""Approvals of statements that delete rows or files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.sdk.exceptions import AirflowFailException
from pyiceberg.catalog.glue import GlueCatalog
from sqlalchemy import update

from calve_airflow.operators.statements import RunStatementOperator
from catalog import Catalog, NewPartition
from catalog.migration.requests import MigrationRequest
from catalog.operations.records import OperationKind
from catalog.storage.schema import PartitionRow
from tests.plugins.operators.test_statements import DROP, PURGE, RUN, TABLE, add_file, check, run
from tests.plugins.operators.test_statements import catalog as catalog
from tests.plugins.operators.test_statements import job as job
from tests.support.glue_endpoint import GlueEndpoint, storage
from tests.support.iceberg_tables import append, make_orders, migrate
from tests.support.written_files import own_name


def row_count(catalog: Catalog) -> int:
    return sum(partition.row_count for partition in catalog.scheme_partitions(TABLE))


@pytest.mark.parametrize("statement", [DROP, PURGE])
def test_nothing_is_deleted_without_an_approval(catalog: Catalog, statement: str) -> None:
    with pytest.raises(AirflowFailException, match="what the statement would delete now is not approved"):
        run(statement)
    assert row_count(catalog) == 10
    catalog.operations.begin("another", OperationKind.LOAD_ROWS, TABLE, is_exclusive=True)


def test_approved_rows_are_deleted_once(catalog: Catalog, job: dict[str, Any]) -> None:
    asked = check(DROP)
    first = run(DROP, asked)
    assert row_count(catalog) == 0
    assert run(DROP, asked) == first
    assert job["ran"] == 0


def test_deletion_whose_task_died_right_after_its_commit_is_not_asked_about_again(catalog: Catalog) -> None:
    from catalog.rebalancing.changes import DropPartitions

    asked = check(DROP)
    catalog.rebalancing.change_catalog(f"{RUN}/statement-1", TABLE, DropPartitions((1,), with_data=True))
    run(DROP, asked)
    assert catalog.get_table(TABLE).scheme.ids == (0, 2)  # type: ignore[union-attr]


@pytest.mark.parametrize("statement", [DROP, PURGE])
def test_approval_does_not_count_for_rows_that_came_later(catalog: Catalog, statement: str) -> None:
    asked = check(statement)
    add_file(catalog, "second")
    with pytest.raises(AirflowFailException, match=r"^PlanConflictError: "):
        run(statement, asked)
    assert row_count(catalog) == 20


def test_approval_does_not_count_for_another_table_of_the_name(catalog: Catalog) -> None:
    asked = check(PURGE)
    before = catalog.get_table(TABLE)
    # In a folder with files the new table would be an external one, whose files stay.
    catalog.drop_table(TABLE, purge=True)
    catalog.create_table(TABLE, columns=before.columns, scheme=before.scheme)
    add_file(catalog, "first")
    with pytest.raises(AirflowFailException, match=r"^PlanConflictError: "):
        run(PURGE, asked)
    assert row_count(catalog) == 10


def test_approved_table_is_deleted_with_its_files(catalog: Catalog) -> None:
    folder = Path(catalog.get_table(TABLE).location)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / own_name(catalog)).write_text("rows")
    asked = check(PURGE)
    run(PURGE, asked)
    assert [table.full_name for table in catalog.list_tables()] == []
    assert not folder.exists()


@pytest.fixture
def days(catalog: Catalog) -> str:
    """A managed table with one partition."""
    catalog.create_table("demo.days", columns=[("n", "int")], partition_keys=[("day", "date"), ("c", "string")])
    catalog.add_partitions("demo.days", [NewPartition(["2024-01-01", "DE"])])
    return "demo.days"


def test_approval_of_a_purge_holds_for_the_partitions_of_then(catalog: Catalog, days: str) -> None:
    purge = f"ALTER TABLE {days} DROP PARTITION (day < '2025-01-01') PURGE"
    asked = check(purge)
    assert asked is not None
    assert asked.subject == f"Delete 1 partitions of {days} and their files?"
    catalog.add_partitions(days, [NewPartition(["2024-02-01", "FR"])])
    with pytest.raises(AirflowFailException, match="what the statement would delete now is not approved"):
        run(purge, asked)
    assert len(list(catalog.get_partitions(days))) == 2
    assert run(purge, check(purge))["rows"][0][0] == 2
    assert check(purge) is None


def write_own_file(catalog: Catalog, folder: str, name: str = "") -> Path:
    path = Path(folder.removeprefix("file:"), own_name(catalog) + name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("rows")
    return path


def test_approval_of_a_purge_holds_for_the_files_of_partitions_that_nobody_has_counted(
    catalog: Catalog, days: str
) -> None:
    purge = f"ALTER TABLE {days} DROP PARTITION (day = '2024-01-01') PURGE"
    (partition,) = catalog.get_partitions(days)
    assert partition.row_count is None
    asked = check(purge)
    file = write_own_file(catalog, partition.location)
    with pytest.raises(AirflowFailException, match="what the statement would delete now is not approved"):
        run(purge, asked)
    assert file.exists()
    asked = check(purge)
    other = write_own_file(catalog, f"{catalog.get_table(days).location}/other")
    catalog.alter_partition(days, ("2024-01-01", "DE"), location=str(other.parent))
    with pytest.raises(AirflowFailException, match="what the statement would delete now is not approved"):
        run(purge, asked)
    assert other.exists()
    run(purge, check(purge))
    assert not other.exists()


def test_approval_of_a_dropped_table_holds_for_its_rows_and_files(catalog: Catalog, days: str) -> None:
    catalog.create_table("demo.flat", columns=[("n", "int")])
    for table in (days, "demo.flat"):
        drop = f"DROP TABLE {table} PURGE"
        asked = check(drop)
        location = catalog.get_table(table).location
        file = write_own_file(catalog, location if table == "demo.flat" else f"{location}/day=2024-01-01/c=DE")
        with pytest.raises(AirflowFailException, match="what the statement would delete now is not approved"):
            run(drop, asked, run_id=f"{RUN}/{table}")
        asked = check(drop)
        assert asked is not None
        assert "1 files (4 B)" in asked.body
        run(drop, asked, run_id=f"{RUN}/{table}")
        assert not file.exists()


def test_a_table_is_dropped_only_if_it_is_the_approved_one_when_it_is_held(
    catalog: Catalog, days: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.create_table("demo.other", columns=[("n", "int")], partition_keys=[("k", "int")])
    file = write_own_file(catalog, catalog.get_table("demo.other").location)

    def swap_names() -> None:
        catalog.alter_table(days, rename_to="third")
        catalog.alter_table("demo.other", rename_to=days.removeprefix("demo."))

    swap_after_check(monkeypatch, swap_names)
    with pytest.raises(AirflowFailException, match="what the statement would delete now is not approved"):
        run(f"DROP TABLE {days} PURGE", check(f"DROP TABLE {days} PURGE"))
    assert file.exists()
    assert len(catalog.list_tables()) == 3


def test_a_revert_loses_nothing_that_was_committed_after_its_approval_was_looked_at(
    catalog: Catalog, catalog_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_orders(catalog)
    migrate(catalog)
    revert = "CALL iceberg.system.revert(schema_name => 'demo', table_name => 'orders', lose_data => true)"
    swap_after_check(monkeypatch, lambda: append(catalog_url, [8]))
    with pytest.raises(AirflowFailException, match="what the statement would delete now is not approved"):
        run(revert, check(revert))
    assert catalog.get_table("demo.orders").is_iceberg


def swap_after_check(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Make a change between the check of the approval and the deletion."""
    check_first = RunStatementOperator._require_approval

    def change_then(*arguments: Any) -> None:
        check_first(*arguments)
        change()

    monkeypatch.setattr(RunStatementOperator, "_require_approval", change_then)


def test_a_place_that_looks_like_markdown_is_shown_as_it_is(catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_table("demo.marked", columns=[("n", "int")], location=f"{tmp_path}/a`b **approved**")
    asked = check("DROP TABLE demo.marked PURGE")
    if asked is not None:
        assert f"`` {tmp_path}/a`b **approved** ``" in asked.body


@pytest.mark.parametrize("change", ["another partition", "more rows"])
def test_a_purge_deletes_nothing_that_came_after_its_approval_was_looked_at(
    catalog: Catalog, days: str, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    purge = f"ALTER TABLE {days} DROP PARTITION (day < '2025-01-01') PURGE"

    def add_or_count() -> None:
        if change == "another partition":
            catalog.add_partitions(days, [NewPartition(["2024-02-01", "FR"])])
        else:
            with catalog.storage.write() as connection:
                connection.execute(update(PartitionRow).values(row_count=7))

    swap_after_check(monkeypatch, add_or_count)
    before = len(list(catalog.get_partitions(days)))
    with pytest.raises(AirflowFailException, match="what the statement would delete now is not approved"):
        run(purge, check(purge))
    assert len(list(catalog.get_partitions(days))) == before + (change == "another partition")


def test_approval_of_a_dropped_table_holds_for_the_partitions_of_then(catalog: Catalog, days: str) -> None:
    asked = check(f"DROP TABLE {days} PURGE")
    catalog.drop_partitions(days)
    catalog.add_partitions(days, [NewPartition(["2024-04-01", "US"])])
    with pytest.raises(AirflowFailException, match="what the statement would delete now is not approved"):
        run(f"DROP TABLE {days} PURGE", asked)


def test_literals_of_a_purge_are_no_markdown_and_no_null(catalog: Catalog, days: str) -> None:
    catalog.add_partitions(days, [NewPartition(["2024-02-01", None]), NewPartition(["2024-02-01", "NULL"])])
    of_null, of_text = (check(f"ALTER TABLE {days} DROP PARTITION (c = {value}) PURGE") for value in ("NULL", "'NULL'"))
    assert of_null is not None
    assert of_text is not None
    assert of_null.keys != of_text.keys
    asked = check(f"ALTER TABLE {days} DROP PARTITION (c >= '**approved**') PURGE")
    assert asked is not None
    assert "`` (`c` >= '**approved**') ``" in asked.body


def test_a_revert_that_loses_rows_is_approved_for_just_these(catalog: Catalog, catalog_url: str) -> None:
    make_orders(catalog)
    migrate(catalog)
    revert = "CALL iceberg.system.revert('demo', 'orders', lose_data => true)"
    revert = revert.replace("'demo', 'orders'", "schema_name => 'demo', table_name => 'orders'")
    assert check(revert) is None
    append(catalog_url, [8])
    asked = check(revert)
    assert asked is not None
    assert "1 row(s) in 1 file(s) added" in asked.body
    append(catalog_url, [9])
    with pytest.raises(AirflowFailException, match="what the statement would delete now is not approved"):
        run(revert, asked)
    assert catalog.get_table("demo.orders").is_iceberg
    assert run(revert, check(revert))["rows"][0][2:] == [2, 0]
    assert not catalog.get_table("demo.orders").is_iceberg


def test_a_revert_that_loses_what_came_through_the_metastore_is_approved_for_just_this(
    catalog: Catalog, glue: GlueEndpoint, tmp_path: Path
) -> None:
    folder = tmp_path / "landed"
    folder.mkdir()
    pq.write_table(pa.table({"id": pa.array([1], pa.int64()), "name": ["one"]}), folder / "one.parquet")
    glue.client.create_database(DatabaseInput={"Name": "shop"})
    glue.create_table("shop", "orders", StorageDescriptor=storage(f"file:{folder}"))
    catalog.imports.import_tables(glue.source(), ["shop.orders"])
    migrate(catalog, "shop.orders", request=MigrationRequest(verify=False, flip_source=True))
    revert = "CALL iceberg.system.revert(schema_name => 'shop', table_name => 'orders', lose_data => true)"
    assert check(revert) is None

    through_glue = GlueCatalog("glue", client=glue.client).load_table("shop.orders")
    for number in (2, 3):
        through_glue.append(pa.table({"id": pa.array([number], pa.int64()), "name": ["new"]}))
        asked = check(revert)
        assert asked is not None
        assert "Parameters.metadata_location" in asked.body
        if number == 2:
            first = asked
    with pytest.raises(AirflowFailException, match="what the statement would delete now is not approved"):
        run(revert, first)
    assert catalog.get_table("shop.orders").is_iceberg
    run(revert, asked)
    assert not catalog.get_table("shop.orders").is_iceberg
    entry = glue.client.get_table(DatabaseName="shop", Name="orders")["Table"]
    assert "metadata_location" not in entry["Parameters"]
