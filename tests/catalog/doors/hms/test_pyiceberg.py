"""Iceberg tables through PyIceberg's HiveCatalog."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hive_metastore import ttypes
from pyiceberg.catalog.hive import HiveCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchPropertyException,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.types import IntegerType, LongType

from catalog import Catalog
from tests.support.hms_door import HmsDoor, table

ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["a", "b"], "day": pa.array([7, 8], pa.int32())})


@pytest.fixture
def iceberg(door: HmsDoor) -> HiveCatalog:
    """PyIceberg's client of the door, with an empty namespace `lake`."""
    iceberg = hive_catalog(door)
    iceberg.create_namespace("lake", {"comment": "of engines", "a": "b"})
    return iceberg


def hive_catalog(door: HmsDoor, **more: str) -> HiveCatalog:
    return HiveCatalog("hive", uri=door.uri, warehouse=str(door.warehouse), **more)


def ids(iceberg: HiveCatalog, name: str, **scan: Any) -> list[int]:
    return sorted(iceberg.load_table(name).scan(**scan).to_arrow()["id"].to_pylist())


def test_namespaces(iceberg: HiveCatalog) -> None:
    assert iceberg.load_namespace_properties("lake")["comment"] == "of engines"
    assert iceberg.load_namespace_properties("lake")["a"] == "b"
    with pytest.raises(NamespaceAlreadyExistsError):
        iceberg.create_namespace("lake")
    summary = iceberg.update_namespace_properties("lake", {"a"}, {"c": "d"})
    assert (summary.removed, summary.updated, summary.missing) == (["a"], ["c"], [])
    properties = iceberg.load_namespace_properties("lake")
    assert properties["c"] == "d"
    assert "a" not in properties
    assert set(iceberg.list_namespaces()) >= {("lake",), ("demo",)}
    iceberg.create_table("lake.orders", ROWS.schema)
    with pytest.raises(NamespaceNotEmptyError):
        iceberg.drop_namespace("lake")
    iceberg.drop_table("lake.orders")
    iceberg.drop_namespace("lake")
    for call in (iceberg.load_namespace_properties, iceberg.drop_namespace):
        with pytest.raises(NoSuchNamespaceError):
            call("lake")


@pytest.mark.smoke
def test_a_table_is_written_changed_renamed_and_dropped(iceberg: HiveCatalog, catalog: Catalog, client: Any) -> None:
    orders = iceberg.create_table("lake.orders", ROWS.schema, properties={"comment": "all", "k": "v"})
    with pytest.raises(TableAlreadyExistsError):
        iceberg.create_table("lake.orders", ROWS.schema)
    orders.append(ROWS)
    orders.append(ROWS.slice(0, 1))
    assert ids(iceberg, "lake.orders") == [1, 1, 2]
    orders.overwrite(ROWS.slice(1))
    assert ids(iceberg, "lake.orders") == [2]
    entry = client.get_table("lake", "orders")
    assert entry.tableType == "EXTERNAL_TABLE"
    assert entry.parameters["metadata_location"] == iceberg.load_table("lake.orders").metadata_location
    assert client.get_partition_names("lake", "orders", -1) == []
    assert iceberg.rename_table("lake.orders", "lake.sales").name() == ("lake", "sales")
    assert ids(iceberg, "lake.sales") == [2]
    with pytest.raises(NoSuchTableError):
        iceberg.load_table("lake.orders")
    iceberg.create_namespace("other")
    iceberg.rename_table("lake.sales", "other.sales")
    iceberg.load_table("other.sales").append(ROWS)
    assert ids(iceberg, "other.sales") == [1, 2, 2]
    assert catalog.get_table("other.sales").is_only_iceberg
    location = Path(iceberg.load_table("other.sales").location().removeprefix("file:"))
    iceberg.drop_table("other.sales")
    assert not iceberg.table_exists("other.sales")
    assert any(location.rglob("*.parquet")), "a drop leaves the files"
    with pytest.raises(NoSuchTableError):
        iceberg.drop_table("other.sales")


def test_schemas_and_specs_evolve(iceberg: HiveCatalog, client: Any) -> None:
    orders = iceberg.create_table("lake.orders", ROWS.schema)
    orders.append(ROWS)
    with orders.update_schema() as update:
        update.add_column("more", IntegerType(), doc="later")
        update.update_column("day", LongType())
        update.rename_column("name", "title")
    with orders.update_spec() as spec:
        spec.add_identity("day")
    with orders.transaction() as transaction:
        transaction.set_properties({"owner.team": "sales"})
    new = {"id": pa.array([3], pa.int64()), "title": ["c"], "day": pa.array([9], pa.int64())}
    iceberg.load_table("lake.orders").append(pa.table({**new, "more": pa.array([1], pa.int32())}))
    assert ids(iceberg, "lake.orders") == [1, 2, 3]
    assert ids(iceberg, "lake.orders", row_filter="day = 9") == [3]
    fields = [(field.name, field.type, field.comment) for field in client.get_schema("lake", "orders")]
    assert fields == [
        ("id", "bigint", None),
        ("title", "string", None),
        ("day", "bigint", None),
        ("more", "int", "later"),
    ]
    assert client.get_table("lake", "orders").parameters["owner.team"] == "sales"


def test_tables_of_hive_and_views_are_beside_those_of_iceberg(iceberg: HiveCatalog, client: Any) -> None:
    iceberg.create_table("lake.orders", ROWS.schema)
    client.create_table(table("lake", "events", {"day": "string"}))
    view = table("lake", "recent", tableType="VIRTUAL_VIEW", viewOriginalText="SELECT 1", viewExpandedText="SELECT 1")
    client.create_table(view)
    assert iceberg.list_tables("lake") == [("lake", "orders")]
    for name in ("events", "recent"):
        with pytest.raises(NoSuchPropertyException, match="could not determine type"):
            iceberg.load_table(f"lake.{name}")
        with pytest.raises(TableAlreadyExistsError):
            iceberg.create_table(f"lake.{name}", ROWS.schema)
    assert sorted(client.get_all_tables("lake")) == ["events", "orders", "recent"]
    assert client.get_tables_by_type("lake", "*", "VIRTUAL_VIEW") == ["recent"]


def test_a_table_that_another_catalog_has_written_is_registered(iceberg: HiveCatalog) -> None:
    written = iceberg.create_table("lake.orders", ROWS.schema)
    written.append(ROWS)
    iceberg.drop_table("lake.orders")
    iceberg.register_table("lake.again", iceberg_location := written.metadata_location)
    assert iceberg.load_table("lake.again").metadata_location == iceberg_location
    assert ids(iceberg, "lake.again") == [1, 2]


def test_a_transaction_creates_a_table_with_its_rows(iceberg: HiveCatalog) -> None:
    with iceberg.create_table_transaction("lake.orders", ROWS.schema) as transaction:
        transaction.append(ROWS)
    assert ids(iceberg, "lake.orders") == [1, 2]


def test_only_one_of_two_commits_succeeds(iceberg: HiveCatalog, door: HmsDoor) -> None:
    once = {"commit.retry.num-retries": "0"}
    first = iceberg.create_table("lake.orders", ROWS.schema, properties=once)
    second = hive_catalog(door).load_table("lake.orders")
    first.update_schema().add_column("one", IntegerType()).commit()
    with pytest.raises(CommitFailedException):
        second.update_schema().add_column("two", IntegerType()).commit()
    assert "two" not in iceberg.load_table("lake.orders").schema().column_names


def test_a_commit_waits_for_the_lock_of_another_client(iceberg: HiveCatalog, door: HmsDoor, client: Any) -> None:
    iceberg.create_table("lake.orders", ROWS.schema, properties={"commit.retry.num-retries": "0"})
    component = ttypes.LockComponent(
        ttypes.LockType.EXCLUSIVE, ttypes.LockLevel.TABLE, "lake", "orders", isTransactional=True
    )
    lock = client.lock(ttypes.LockRequest([component], user="other", hostname="elsewhere"))
    assert lock.state == ttypes.LockState.ACQUIRED
    short = {"lock-check-min-wait-time": "0.01", "lock-check-max-wait-time": "0.02", "lock-check-retries": "2"}
    impatient = hive_catalog(door, **short)
    with pytest.raises(CommitFailedException, match="Failed to acquire lock"):
        impatient.load_table("lake.orders").append(ROWS)
    # The client has given its place in the queue back.
    assert [held.lockid for held in client.show_locks(ttypes.ShowLocksRequest()).locks] == [lock.lockid]
    client.unlock(ttypes.UnlockRequest(lock.lockid))
    impatient.load_table("lake.orders").append(ROWS)
    assert ids(iceberg, "lake.orders") == [1, 2]


def test_an_engine_appends_to_a_table_with_a_partition_scheme(iceberg: HiveCatalog, catalog: Catalog) -> None:
    catalog.create_table(
        "demo.stored", columns=[("id", "bigint"), ("name", "string")], partition_keys=[("day", "int")], format="iceberg"
    )
    iceberg.load_table("demo.stored").append(ROWS)
    assert [partition.values for partition in catalog.get_partitions("demo.stored", "day = 7")] == [("7",)]
    assert ids(iceberg, "demo.stored", row_filter="day = 7") == [1]
