"""Deletion and cancellation of partition indexes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest
from sqlalchemy import text

from catalog import Catalog, IndexState, Table
from catalog.errors import ConflictError, IndexBuildEndedError, IndexNotFoundError, LimitExceededError
from catalog.indexes import building
from catalog.indexes.definitions import IdRange
from tests.catalog.indexes.test_building import TABLE, add, found, half_built, item_count
from tests.catalog.indexes.test_building import table as table
from tests.support.index_items import assert_every_partition_has_its_item


def test_a_deleted_index_is_gone_with_its_items_and_the_others_stay(catalog: Catalog, table: Table) -> None:
    catalog.create_partition_index(TABLE, "i", ["n"])
    catalog.create_partition_index(TABLE, "j", ["s"])
    add(catalog, *range(5))
    catalog.delete_partition_index(TABLE, "I")
    assert [index.name for index in catalog.get_partition_indexes(TABLE)] == ["j"]
    assert item_count(catalog) == 5
    assert_every_partition_has_its_item(catalog, TABLE)
    for call in (catalog.get_partition_index, catalog.delete_partition_index, catalog.build_partition_index):
        with pytest.raises(IndexNotFoundError, match=r"demo\.t has no partition index i"):
            call(TABLE, "i")


@pytest.mark.parametrize("end", ["delete", "drop the table", "cancel"])
def test_a_build_whose_index_ends_meanwhile_stops_and_leaves_nothing(catalog: Catalog, table: Table, end: str) -> None:
    add(catalog, *range(6))
    index = half_built(catalog)
    ranges = building.ranges_to_do(catalog.storage, index)
    match end:
        case "delete":
            catalog.delete_partition_index(TABLE, "i")
        case "drop the table":
            catalog.drop_table(TABLE)
        case "cancel":
            catalog.cancel_partition_index_build(TABLE, "i", reason="nobody needs it")
    said = "nobody needs it" if end == "cancel" else "was deleted"
    with pytest.raises(IndexBuildEndedError, match=f"index i of demo.t .*{said}.* during its build"):
        building.backfill(catalog.storage, table, index, ranges)
    with pytest.raises(IndexBuildEndedError), catalog.storage.write() as connection:
        building.end_build(catalog.storage, connection, table, index, None)
    assert item_count(catalog) == 0
    assert building.ranges_to_do(catalog.storage, index) == []


def test_a_build_under_way_notices_before_the_next_range_that_its_index_is_deleted(
    catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "RANGE_SIZE", 1)
    add(catalog, *range(20))
    index = catalog.create_partition_index(TABLE, "i", ["n"])
    ranges = iter(building.ranges_to_do(catalog.storage, index))

    def deleted_after_the_third() -> Iterator[IdRange]:
        yield from islice(ranges, 3)
        catalog.delete_partition_index(TABLE, "i")
        yield from ranges

    with pytest.raises(IndexBuildEndedError, match="was deleted during its build"):
        building.backfill(catalog.storage, table, index, deleted_after_the_third())
    assert len(list(ranges)) == 16
    assert item_count(catalog) == 0
    assert catalog.get_partition_indexes(TABLE) == []


@pytest.mark.usefixtures("unfit_values")
def test_a_cancelled_build_is_a_failed_index_with_its_reason(catalog: Catalog, table: Table) -> None:
    add(catalog, *range(6))
    half_built(catalog)
    cancelled = catalog.cancel_partition_index_build(TABLE, "I")
    assert (cancelled.state, cancelled.failure_code) == (IndexState.FAILED, building.CANCELLED)
    assert cancelled.failure_detail == "the build was cancelled"
    assert item_count(catalog) == 0
    add(catalog, "foo")
    with pytest.raises(ConflictError, match="is FAILED, so there is no build to cancel"):
        catalog.cancel_partition_index_build(TABLE, "i")
    catalog.create_partition_index(TABLE, "i", ["s"])
    assert catalog.build_partition_index(TABLE, "i").state is IndexState.ACTIVE
    with pytest.raises(ConflictError, match="is ACTIVE"):
        catalog.cancel_partition_index_build(TABLE, "i")


def interrupt_deletion(catalog: Catalog, name: str) -> None:
    """Leave an index in the state of a killed deletion."""
    with catalog.storage.write() as connection:
        connection.execute(
            text("UPDATE calve_partition_index SET state = 'DELETING' WHERE name = :name"), {"name": name}
        )


@pytest.mark.usefixtures("unfit_values")
def test_a_deletion_that_was_interrupted_hides_the_index_until_it_is_finished(catalog: Catalog, table: Table) -> None:
    catalog.create_partition_index(TABLE, "i", ["n"])
    add(catalog, *range(6))
    interrupt_deletion(catalog, "i")
    add(catalog, 7, "foo")
    assert catalog.explain_partitions(TABLE, "n = 7").not_used == {"i": "is DELETING"}
    assert found(catalog, "n = 7") == ["7"]
    catalog.delete_partition_index(TABLE, "i")
    assert item_count(catalog) == 0
    assert catalog.get_partition_indexes(TABLE) == []


@pytest.mark.parametrize("call", ["create", "build", "delete"])
def test_the_next_call_finishes_a_deletion_that_was_interrupted(catalog: Catalog, table: Table, call: str) -> None:
    add(catalog, *range(6))
    half_built(catalog)
    catalog.create_partition_index(TABLE, "other", ["s"])
    interrupt_deletion(catalog, "i")
    match call:
        case "create":
            # The name and the keys can be used again, and the index no longer counts towards the limit.
            catalog.create_partition_index(TABLE, "third", ["d"])
            catalog.create_partition_index(TABLE, "i", ["n"])
        case "build":
            catalog.build_partition_index(TABLE, "other")
        case "delete":
            catalog.delete_partition_index(TABLE, "other")
    assert [index.state for index in catalog.get_partition_indexes(TABLE) if index.name == "i"] == (
        [IndexState.CREATING] if call == "create" else []
    )
    assert item_count(catalog) == (6 if call == "build" else 0)


def test_an_index_being_deleted_counts(catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, keys in {"one": ["s"], "two": ["d"], "three": ["d", "s"]}.items():
        catalog.create_partition_index(TABLE, name, keys)
    interrupt_deletion(catalog, "two")
    # Another process begins the deletion just after this one has looked for deletions to finish.
    monkeypatch.setattr(building, "clear_ended", lambda storage, table: None)
    with pytest.raises(LimitExceededError, match="one, two, three"):
        catalog.create_partition_index(TABLE, "four", ["s", "d"])
