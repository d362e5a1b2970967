"""Changed partitions are recorded by each door, and claimed once; on each database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, select, update

from catalog import Catalog, Column, NewPartition, Table
from catalog.errors import CatalogError
from catalog.model.batches import PartitionUpdate
from catalog.operations import changes
from catalog.operations.changes import ANNOUNCES, COMPACT, record_changed
from catalog.operations.failpoints import Point
from catalog.operations.records import OperationKind
from catalog.partitions import announcing
from catalog.partitions.changing import set_quarantined
from catalog.rebalancing.changes import DropPartitions
from catalog.schemes.hashing import HashScheme
from catalog.storage.schema import PartitionChangeRow, PartitionRow
from catalog.tables import dropping
from catalog.tables.schemes import scheme_from_properties
from tests.support.iceberg_tables import sql_catalog
from tests.support.killed_changes import load
from tests.support.published import published

CHANGED, DROPPED = False, True
ANNOUNCED = {"settings": {ANNOUNCES: True}}
"""The request of a load that announces its partitions itself."""


@pytest.fixture
def table(catalog: Catalog) -> Table:
    table = catalog.create_table("demo.t", columns=[("v", "int")], partition_keys=[("k", "string"), ("n", "int")])
    add(catalog, "a", "b", "c")
    announced(catalog)
    return table


def add(catalog: Catalog, *values: str) -> None:
    catalog.add_partitions("demo.t", [NewPartition((value, "1")) for value in values])


def announced(catalog: Catalog, claimer: str = "run", batch_size: int = 500) -> list[tuple[bool, list[str]]]:
    """Claim everything, return it, and finish."""
    found = []
    for number in catalog.announcements.claim(claimer, batch_size=batch_size, most=100_000, most_batches=1_000):
        batch = catalog.announcements.get(claimer, number)
        if batch is not None:
            assert batch.table == "demo.t"
            found.append((batch.is_dropped, list(batch.names)))
    catalog.announcements.finish(claimer)
    return found


def ids(catalog: Catalog, *values: str) -> list[int]:
    return [catalog.get_partition("demo.t", (value, "1")).id for value in values]


def test_each_door_records_what_it_does(catalog: Catalog, table: Table) -> None:
    assert catalog.announcements.pending() is None
    add(catalog, "d")
    assert announced(catalog) == [(CHANGED, ["k=d/n=1"])]
    assert catalog.drop_partitions("demo.t", "k in ('a', 'b')") == 2
    assert announced(catalog) == [(DROPPED, ["k=a/n=1", "k=b/n=1"])]
    catalog.alter_partition("demo.t", ("c", "1"), rename_to=("e/f", "1"))
    assert sorted(announced(catalog)) == [(CHANGED, ["k=e%2Ff/n=1"]), (DROPPED, ["k=c/n=1"])]
    catalog.alter_partition("demo.t", ("d", "1"), properties={"owner": "me"})
    assert announced(catalog) == []
    catalog.alter_partition("demo.t", ("d", "1"), location=f"{table.location}/elsewhere")
    assert announced(catalog) == [(CHANGED, ["k=d/n=1"])]
    catalog.delete_partitions("op", "demo.t", "k = 'd'")
    assert announced(catalog) == [(DROPPED, ["k=d/n=1"])]
    catalog.purge_partitions("demo.t")
    assert announced(catalog) == [(DROPPED, ["k=e%2Ff/n=1"])]
    assert catalog.announcements.pending() is None


def test_quarantined_partitions_are_announced_when_they_are_released(catalog: Catalog, table: Table) -> None:
    with catalog.storage.write() as connection:
        set_quarantined(connection, table, ids(catalog, "a", "b"), True)
    assert announced(catalog) == []
    assert catalog.release_partitions("demo.t", "k = 'a'", reason="looked at") == 1
    assert announced(catalog) == [(CHANGED, ["k=a/n=1"])]
    assert catalog.release_partitions("demo.t") == 1
    with catalog.storage.write() as connection:
        set_quarantined(connection, table, ids(catalog, "b"), True)
    assert announced(catalog) == [], "hidden again before it was announced"


def test_what_is_rolled_back_is_not_recorded(catalog: Catalog, table: Table) -> None:
    with pytest.raises(CatalogError):
        add(catalog, "d", "a")
    assert catalog.announcements.pending() is None
    catalog.add_partitions("demo.t", [NewPartition((value, "1")) for value in "ad"], if_not_exists=True)
    assert announced(catalog) == [(CHANGED, ["k=d/n=1"])]


def test_moved_partitions_of_a_batch_are_changes(catalog: Catalog, table: Table) -> None:
    moved = PartitionUpdate(("a", "1"), location=f"{table.location}/elsewhere")
    catalog.batch_update_partitions("demo.t", [moved, PartitionUpdate(("b", "1"), row_count=3)])
    assert announced(catalog) == [(CHANGED, ["k=a/n=1"])]


def test_batches_are_of_one_kind_and_of_a_limited_size(catalog: Catalog, table: Table) -> None:
    add(catalog, *"defgh")
    catalog.drop_partitions("demo.t", "k = 'a'")
    # What was dropped since is only dropped.
    catalog.drop_partitions("demo.t", "k = 'h'")
    batches = announced(catalog, batch_size=3)
    assert batches == [
        (CHANGED, ["k=d/n=1", "k=e/n=1", "k=f/n=1"]),
        (CHANGED, ["k=g/n=1"]),
        (DROPPED, ["k=a/n=1", "k=h/n=1"]),
    ]


def test_a_claim_belongs_to_its_claimer_until_it_is_finished(catalog: Catalog, table: Table) -> None:
    add(catalog, "d")
    [number] = catalog.announcements.claim("first", batch_size=9, most=9, most_batches=9)
    assert catalog.announcements.claim("second", batch_size=9, most=9, most_batches=9) == []
    assert catalog.announcements.get("second", number) is None
    assert catalog.announcements.claim("first", batch_size=9, most=9, most_batches=9) == [number], (
        "a retry claims nothing twice"
    )
    assert catalog.announcements.finish("first") == 1
    assert catalog.announcements.get("first", number) is None
    assert catalog.announcements.finish("first") == 0


def test_batches_above_the_limit_are_left_to_the_next_claim(catalog: Catalog, table: Table) -> None:
    add(catalog, *"defghij")
    catalog.drop_partitions("demo.t", "k = 'a'")
    claims = {"batch_size": 2, "most": 100, "most_batches": 2}
    assert len(catalog.announcements.claim("first", **claims)) == 2
    assert len(catalog.announcements.claim("first", **claims)) == 2, "a retry keeps to the limit"
    catalog.drop_partitions("demo.t", "k in ('h', 'i')")
    catalog.announcements.finish("first")
    assert catalog.announcements.pending() is not None
    assert sorted(announced(catalog, batch_size=1)) == [
        (CHANGED, ["k=j/n=1"]),
        *((DROPPED, [f"k={value}/n=1"]) for value in "ahi"),
    ]


def test_compactions_are_not_announced(catalog: Catalog, table: Table) -> None:
    operation = catalog.operations.begin("op", OperationKind.CHANGE_ROWS, "demo.t", {"change": COMPACT})
    with catalog.storage.write() as connection:
        record_changed(connection, table, ids(catalog, "a"), operation.number)
    assert catalog.announcements.pending() is None


def test_the_partitions_of_a_dropped_table_are_announced_as_dropped(
    catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dropping, "BATCH", 2)
    add(catalog, "d", "hidden")
    with catalog.storage.write() as connection:
        set_quarantined(connection, table, ids(catalog, "hidden"), True)
    [number] = catalog.announcements.claim("run", batch_size=9, most=9, most_batches=9)
    add(catalog, "e")
    catalog.drop_partitions("demo.t", "k = 'a'")
    catalog.drop_table("demo.t")
    assert catalog.announcements.get("run", number) is None, "they exist no longer"
    # Another table of this name has nothing to do with it.
    catalog.create_table("demo.t", columns=[("v", "int")], partition_keys=[("other", "string")])
    assert announced(catalog) == [(DROPPED, [f"k={value}/n=1" for value in "abcde"])]
    assert catalog.announcements.pending() is None


def test_the_partitions_of_a_dropped_table_with_a_scheme_are_announced(catalog: Catalog) -> None:
    scheme = HashScheme("id", "int", (), 3)
    catalog.create_table("demo.t", columns=[("id", "int")], scheme=scheme)
    announced(catalog)
    catalog.drop_table("demo.t")
    assert announced(catalog) == [(DROPPED, [f"_partition_id={number}" for number in scheme.ids])]


def test_files_of_a_scheme_are_announced_by_whomever_they_were_changed(catalog: Catalog, catalog_url: str) -> None:
    scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "10, 20, 30"})
    catalog.create_table("demo.t", columns=[("c", "int")], scheme=scheme)
    load(catalog, "first", "demo.t", range(40))
    every = [f"_partition_id={number}" for number in range(4)]
    assert announced(catalog) == [(CHANGED, every)]
    first = published(catalog, "demo.t").metadata.current_snapshot_id
    catalog.committer.delete_files("deletion", "demo.t", "c < 10")
    assert announced(catalog) == [(CHANGED, every[1:2])]
    with sql_catalog(catalog_url) as iceberg:
        iceberg.load_table("demo.t").append(pa.table({"c": pa.array([12, 13], pa.int32())}))
        iceberg.load_table("demo.t").delete("c >= 30")
    assert len(catalog.scan_files("demo.t").files) == 3
    assert announced(catalog) == [(CHANGED, [every[0], every[2]])]
    assert catalog.rebalancing.change_catalog("drop", "demo.t", DropPartitions((1,))) is not None
    assert announced(catalog) == [(DROPPED, every[1:2])]
    assert first is not None
    catalog.roll_backs.to_snapshot("demo.t", first, operation_id="back")
    assert announced(catalog) == [(CHANGED, every[:3])]


def test_a_load_knows_what_it_has_changed_until_it_has_announced_it(catalog: Catalog, table: Table) -> None:
    changed = ids(catalog, "a", "c")
    operation = catalog.operations.begin("load", OperationKind.ADD_PARTITIONS, "demo.t", ANNOUNCED)
    with catalog.storage.write() as connection:
        record_changed(connection, table, changed, operation.number)
    catalog.drop_partitions("demo.t", "k = 'c'")
    assert catalog.announcements.changed_by("load") == ["k=a/n=1"]
    assert catalog.announcements.changed_by("another") == []
    catalog.announcements.finish("load")
    assert catalog.announcements.changed_by("load") == []
    assert announced(catalog) == [(DROPPED, ["k=c/n=1"])]


def test_a_killed_drop_of_a_table_announces_each_partition_once(
    catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dropping, "BATCH", 1)

    def killed(point: Point) -> None:
        if point is Point.PARTLY_COMMITTED:
            raise KeyboardInterrupt

    monkeypatch.setattr(dropping, "reached", killed)
    with pytest.raises(KeyboardInterrupt):
        catalog.drop_table("demo.t")
    monkeypatch.undo()
    catalog.vacuum()
    assert sorted(name for _, names in announced(catalog) for name in names) == ["k=a/n=1", "k=b/n=1", "k=c/n=1"]


def test_batches_that_a_run_has_not_finished_are_claimed_by_the_next_after_a_time(
    catalog: Catalog, table: Table
) -> None:
    add(catalog, "d")
    [number] = catalog.announcements.claim("failed", batch_size=9, most=9, most_batches=9)
    operation = catalog.operations.begin("own", OperationKind.ADD_PARTITIONS, "demo.t", {"settings": {ANNOUNCES: True}})
    with catalog.storage.write() as connection:
        record_changed(connection, table, ids(catalog, "a"), operation.number)
    assert announced(catalog) == []
    with catalog.storage.write() as connection:
        past = PartitionChangeRow.changed_at_ms - announcing.RECLAIM_AFTER // timedelta(milliseconds=1)
        connection.execute(update(PartitionChangeRow).values(changed_at_ms=past))
    assert catalog.announcements.pending() is not None
    assert announced(catalog, "next") == [(CHANGED, ["k=d/n=1"])]
    assert catalog.announcements.get("failed", number) is None
    assert catalog.announcements.finish("own") == 1, "a load announces its partitions when it has checked them"


@pytest.mark.parametrize("size", [1, 3, 10])
def test_a_large_record_is_claimed_in_several_transactions(
    catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(announcing, "_PARTITIONS", size)
    monkeypatch.setattr(changes, "_MEMBERS", size)
    sizes: list[int] = []
    take = announcing._take

    def counted(connection: Connection, claimer: str) -> Any:
        records = take(connection, claimer)
        sizes.append(sum(record.size for record in records))
        return records

    monkeypatch.setattr(announcing, "_take", counted)
    add(catalog, *"defghijk")
    [_] = catalog.announcements.claim("first", batch_size=size, most=1, most_batches=9)
    assert catalog.announcements.pending() is not None or size == 10
    catalog.announcements.finish("first")
    rest = [name for _, names in announced(catalog, "second") for name in names]
    assert rest == [f"k={value}/n=1" for value in "defghijk"[size:]]
    catalog.drop_partitions("demo.t")
    assert sorted(name for _, names in announced(catalog) for name in names) == [
        f"k={value}/n=1" for value in "abcdefghijk"
    ]
    assert max(sizes) < 2 * size + (size == 10) * 3


def test_a_renamed_table_is_announced_by_its_new_name(catalog: Catalog, table: Table) -> None:
    add(catalog, "d")
    catalog.alter_table("demo.t", rename_to="u")
    [number] = catalog.announcements.claim("run", batch_size=9, most=9, most_batches=9)
    batch = catalog.announcements.get("run", number)
    assert batch is not None
    assert (batch.table, list(batch.names)) == ("demo.u", ["k=d/n=1"])


def test_loads_that_announce_themselves_keep_their_changes(catalog: Catalog, table: Table) -> None:
    for name, settings_of_load in (("own", {ANNOUNCES: True}), ("other", {})):
        request = {"settings": settings_of_load}
        operation = catalog.operations.begin(name, OperationKind.ADD_PARTITIONS, "demo.t", request)
        with catalog.storage.write() as connection:
            record_changed(connection, table, ids(catalog, "a" if name == "own" else "b"), operation.number)
        # Known without reading the requests of operations, which are large.
        assert (catalog.announcements.pending() is None) == (name == "own")
    assert announced(catalog) == [(CHANGED, ["k=b/n=1"])]
    assert catalog.announcements.pending() is None
    assert catalog.announcements.finish("own") == 1
    # A release by hand is announced, though the load had added the partition.
    number = catalog.operations.get("own").number
    with catalog.storage.write() as connection:
        hidden = update(PartitionRow).where(PartitionRow.id.in_(ids(catalog, "a")))
        connection.execute(hidden.values(is_quarantined=True, operation_number=number))
    catalog.release_partitions("demo.t")
    assert announced(catalog) == [(CHANGED, ["k=a/n=1"])]


def test_old_changes_expire_where_nobody_announces(catalog: Catalog, table: Table) -> None:
    add(catalog, "d")
    catalog.maintenance.expire_operations()
    assert catalog.announcements.pending() is not None
    catalog.maintenance.expire_operations(older_than=timedelta(0), dry_run=True)
    assert catalog.announcements.pending() is not None
    catalog.maintenance.expire_operations(older_than=timedelta(0))
    assert catalog.announcements.pending() is None


def test_claims_at_the_same_time_share_the_changes(
    catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcing, "_RECORDS", 2)
    values = [f"x{number}" for number in range(30)]
    for value in values:
        add(catalog, value)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda number: announced(catalog, f"run {number}"), range(4)))
    # One that meets others may stop early; nothing is lost.
    found.append(announced(catalog, "last"))
    names = [name for batches in found for _, names in batches for name in names]
    assert sorted(names) == sorted(f"k={value}/n=1" for value in values)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["add", "drop", "claim"]), st.sampled_from("pqrs")), max_size=20))
def test_the_last_announcement_of_a_partition_tells_whether_it_exists(
    catalog: Catalog, table: Table, steps: list[tuple[str, str]]
) -> None:
    known = {partition.values[0] for partition in catalog.get_partitions("demo.t")}
    events: dict[str, set[bool]] = {}
    changed = set[str]()
    for step, value in [*steps, ("claim", "")]:
        if step == "claim":
            claimed: dict[str, set[bool]] = {}
            for is_dropped, names in announced(catalog):
                for name in names:
                    assert is_dropped not in claimed.setdefault(name[2], set()), "announced twice"
                    claimed[name[2]].add(is_dropped)
            assert set(claimed) == changed
            for name, kinds in claimed.items():
                assert (CHANGED in kinds) == (name in known)
            events |= claimed
            changed = set()
        elif step == "add" and value not in known:
            add(catalog, value)
            known.add(value)
            changed.add(value)
        elif step == "drop" and value in known:
            catalog.drop_partitions("demo.t", f"k = '{value}'")
            known.discard(value)
            changed.add(value)
    with catalog.storage.read() as connection:
        assert connection.execute(select(PartitionChangeRow.number)).all() == []
