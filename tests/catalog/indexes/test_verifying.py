"""Verification finds, reports and repairs exactly the differences between an index and its table."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event, text

from catalog import Catalog, IndexDefinition, NewPartition, Table
from catalog.errors import ConflictError, IndexNotFoundError
from catalog.indexes import verifying
from catalog.indexes.verifying import MAXIMUM_DIFFERENCES, Difference, DifferenceKind, Verification
from tests.support.effort import effort
from tests.support.index_items import assert_every_partition_has_its_item, stored_items

TABLE, INDEX = "demo.events", "by_number"
COUNT = 250
OTHER_KEY = b"\x01\xff"


@pytest.fixture
def events(catalog: Catalog) -> Table:
    """A table with two indexes, one of which is verified."""
    table = catalog.create_table(
        TABLE,
        columns=[],
        partition_keys=[("s", "string"), ("n", "int")],
        indexes=[IndexDefinition(INDEX, ("n", "s")), IndexDefinition("other", ("s",))],
    )
    catalog.add_partitions(TABLE, [NewPartition(("a/b", str(number))) for number in range(COUNT)])
    return table


def damage(catalog: Catalog, statement: str, **values: Any) -> None:
    """Change the items of the index directly in the database."""
    index_id = catalog.get_partition_index(TABLE, INDEX).id
    with catalog.storage.write() as connection:
        assert connection.execute(text(statement), {"index": index_id, **values}).rowcount == 1


def take_item(catalog: Catalog, partition_id: int) -> None:
    damage(catalog, "DELETE FROM calve_index_item WHERE index_id = :index AND partition_id = :id", id=partition_id)


def move_item(catalog: Catalog, partition_id: int) -> None:
    damage(
        catalog,
        "UPDATE calve_index_item SET key = :key WHERE index_id = :index AND partition_id = :id",
        key=OTHER_KEY,
        id=partition_id,
    )


def add_item(catalog: Catalog, partition_id: int) -> None:
    damage(
        catalog,
        "INSERT INTO calve_index_item (index_id, key, partition_id) VALUES (:index, :key, :id)",
        key=OTHER_KEY,
        id=partition_id,
    )


def ids(catalog: Catalog) -> list[int]:
    return sorted(partition.id for partition in catalog.get_partitions(TABLE, use_indexes=False))


def verify(catalog: Catalog, *, repair: bool = False, size: int = 40) -> Verification:
    """Verify in small ranges, so that there are several."""
    table, index = catalog.get_table(TABLE), catalog.get_partition_index(TABLE, INDEX)
    return verifying.verify(catalog.storage, table, index, repair=repair, size=size)


def only_difference(catalog: Catalog) -> Difference:
    (difference,) = verify(catalog).findings.differences
    return difference


def key_of(catalog: Catalog, partition_id: int) -> bytes:
    items = stored_items(catalog, catalog.get_partition_index(TABLE, INDEX).id)
    return next(key for key, each in items if each == partition_id)


def test_exact_index_has_no_differences(catalog: Catalog, events: Table) -> None:
    found = catalog.verify_partition_index(TABLE, INDEX)
    assert found.is_exact
    assert found.findings == verifying.Findings(COUNT, COUNT)
    assert str(found) == f"partition index {INDEX} of {TABLE} is exact: {COUNT} partitions and {COUNT} items"


@pytest.mark.parametrize("size", [1, 7, COUNT - 1, COUNT, COUNT + 1])
def test_ranges_hold_everything_once(catalog: Catalog, events: Table, size: int) -> None:
    assert verify(catalog, size=size).findings == verifying.Findings(COUNT, COUNT)


def test_index_of_an_empty_table_is_exact(catalog: Catalog) -> None:
    catalog.create_table(TABLE, columns=[], partition_keys=[("n", "int")], indexes=[IndexDefinition(INDEX, ("n",))])
    assert verify(catalog).findings == verifying.Findings()


def test_missing_item_is_found(catalog: Catalog, events: Table) -> None:
    partition = catalog.get_partition(TABLE, ("a/b", "77"))
    key = key_of(catalog, partition.id)
    take_item(catalog, partition.id)
    location = f"{events.location}/s=a%2Fb/n=77"
    assert only_difference(catalog) == Difference(
        DifferenceKind.MISSING, partition.id, ("a/b", "77"), location, key, ()
    )


def test_item_at_another_key_is_found_once(catalog: Catalog, events: Table) -> None:
    partition = catalog.get_partition(TABLE, ("a/b", "77"))
    key = key_of(catalog, partition.id)
    move_item(catalog, partition.id)
    found = only_difference(catalog)
    assert (found.kind, found.partition_id, found.key, found.stored) == (
        DifferenceKind.WRONG,
        partition.id,
        key,
        (OTHER_KEY,),
    )
    assert found.values == ("a/b", "77")


def test_item_of_a_partition_that_is_gone_is_found(catalog: Catalog, events: Table) -> None:
    gone = ids(catalog)[-1] + 1000
    add_item(catalog, gone)
    assert only_difference(catalog) == Difference(DifferenceKind.SUPERFLUOUS, gone, None, None, None, (OTHER_KEY,))


def test_item_of_another_table_is_superfluous(catalog: Catalog, events: Table) -> None:
    catalog.create_table("demo.other", columns=[], partition_keys=[("n", "int")])
    catalog.add_partitions("demo.other", [NewPartition(("1",))])
    add_item(catalog, catalog.get_partition("demo.other", ("1",)).id)
    assert only_difference(catalog).kind is DifferenceKind.SUPERFLUOUS


def test_second_item_of_a_partition_is_superfluous(catalog: Catalog, events: Table) -> None:
    partition = catalog.get_partition(TABLE, ("a/b", "77"))
    add_item(catalog, partition.id)
    found = only_difference(catalog)
    assert (found.kind, found.values, found.stored) == (DifferenceKind.SUPERFLUOUS, ("a/b", "77"), (OTHER_KEY,))


def test_keys_longer_than_an_item_holds_are_exact(catalog: Catalog, events: Table) -> None:
    catalog.add_partitions(TABLE, [NewPartition(("x" * 2000 + end, "1")) for end in "ab"])
    assert verify(catalog).is_exact


def test_all_differences_are_counted_and_the_first_named(catalog: Catalog, events: Table) -> None:
    some = ids(catalog)
    for each in some[: MAXIMUM_DIFFERENCES + 20]:
        take_item(catalog, each)
    for each in some[-3:]:
        move_item(catalog, each)
    found = verify(catalog)
    assert not found.is_exact
    assert found.findings.counts == {DifferenceKind.MISSING: MAXIMUM_DIFFERENCES + 20, DifferenceKind.WRONG: 3}
    assert [each.partition_id for each in found.findings.differences] == some[:MAXIMUM_DIFFERENCES]


def test_message_names_index_counts_an_example_and_the_repair(catalog: Catalog, events: Table) -> None:
    take_item(catalog, catalog.get_partition(TABLE, ("a/b", "77")).id)
    said = verify(catalog).as_dict()["message"]
    assert said.startswith(f"partition index {INDEX} of {TABLE} has 1 difference(s) in 250 partitions and 249 items")
    assert "1 MISSING" in said
    assert f"{events.location}/s=a%2Fb/n=77" in said
    assert f"calve verify {TABLE} {INDEX} --repair" in said


def test_repair_makes_the_index_exact_and_touches_no_other(catalog: Catalog, events: Table) -> None:
    first, second, third, fourth, *_ = ids(catalog)
    take_item(catalog, first)
    move_item(catalog, second)
    add_item(catalog, third)
    take_item(catalog, fourth)
    add_item(catalog, ids(catalog)[-1] + 1000)
    found = verify(catalog, repair=True)
    assert found.findings.counts == {
        DifferenceKind.MISSING: 2,
        DifferenceKind.WRONG: 1,
        DifferenceKind.SUPERFLUOUS: 2,
    }
    assert (found.repaired, found.is_exact) == (5, True)
    assert_every_partition_has_its_item(catalog, TABLE)
    assert verify(catalog).findings == verifying.Findings(COUNT, COUNT)


def test_repair_of_an_exact_index_holds_no_table(catalog: Catalog, events: Table) -> None:
    with catalog.storage.read() as reader:
        catalog.storage.lock_table(reader, events.id, exclusive=True)
        found = verify(catalog, repair=True)
    assert (found.repaired, found.is_exact) == (0, True)


def test_partition_that_cannot_have_an_item_is_named_and_left_alone(catalog: Catalog, events: Table) -> None:
    partition = catalog.get_partition(TABLE, ("a/b", "77"))
    key = key_of(catalog, partition.id)
    with catalog.storage.write() as connection:
        update = text("UPDATE calve_partition SET packed_values = 'a%2Fb/many' WHERE id = :id")
        connection.execute(update, {"id": partition.id})
    found = verify(catalog, repair=True)
    assert found.findings.counts == {DifferenceKind.UNFIT: 1}
    assert (found.repaired, found.is_exact) == (0, False)
    assert "drop the UNFIT partitions" in str(found)
    assert key_of(catalog, partition.id) == key


def test_only_an_active_index_is_verified(catalog: Catalog, events: Table) -> None:
    catalog.create_partition_index(TABLE, "late", ["n"])
    with pytest.raises(ConflictError, match=r"late of demo.events is CREATING.*build it first"):
        catalog.verify_partition_index(TABLE, "late")
    with pytest.raises(IndexNotFoundError):
        catalog.verify_partition_index(TABLE, "never")


def test_index_deleted_meanwhile_is_no_difference(catalog: Catalog, events: Table) -> None:
    table, index = catalog.get_table(TABLE), catalog.get_partition_index(TABLE, INDEX)

    def delete_first(ranges: Any) -> list[verifying.Findings]:
        catalog.delete_partition_index(TABLE, INDEX)
        findings = [verifying.check_range(catalog.storage, table, index, each) for each in ranges]
        assert sum(findings, verifying.Findings()) == verifying.Findings()
        return findings

    with pytest.raises(IndexNotFoundError):
        verifying.verify(catalog.storage, table, index, check=delete_first)


@pytest.mark.long
def test_partitions_that_come_and_go_are_no_differences(catalog: Catalog, catalog_url: str, events: Table) -> None:
    """Partitions are added and dropped after each statement of the verification."""
    rounds = itertools.count()

    def write(*_: object) -> None:
        number = next(rounds)
        other.drop_partitions(TABLE, f"n in ({number}, {number + COUNT // 2})")
        other.add_partitions(TABLE, [NewPartition(("new", str(number * 7 % COUNT)))], if_not_exists=True)

    with Catalog.open(catalog_url) as other:
        event.listen(catalog.storage.engine, "after_cursor_execute", write)
        try:
            found = verify(catalog, size=15)
        finally:
            event.remove(catalog.storage.engine, "after_cursor_execute", write)
    assert next(rounds) > COUNT / 15
    assert found.findings.differences == ()
    assert_every_partition_has_its_item(catalog, TABLE)


def test_repair_while_partitions_come_and_go_ends_exact(catalog: Catalog, events: Table) -> None:
    damaged = ids(catalog)[::2]
    for number, each in enumerate(damaged):
        (take_item, move_item, add_item)[number % 3](catalog, each)
    table, index = catalog.get_table(TABLE), catalog.get_partition_index(TABLE, INDEX)

    def check_then_write(ranges: Any) -> Any:
        for number, each in enumerate(ranges):
            yield verifying.check_range(catalog.storage, table, index, each)
            # Differences may change between the check and the repair.
            catalog.drop_partitions(TABLE, f"n between {number * 7} and {number * 7 + 2}")
            catalog.add_partitions(TABLE, [NewPartition(("new", str(number)))])

    verifying.verify(catalog.storage, table, index, repair=True, check=check_then_write, size=20)
    verify(catalog, repair=True)
    assert_every_partition_has_its_item(catalog, TABLE)


@settings(max_examples=effort(5, 25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    damages=st.dictionaries(st.integers(0, 39), st.sampled_from(["take", "move", "add", "move and add"]), max_size=12),
    size=st.integers(1, 50),
)
def test_any_damage_is_counted_by_kind_and_repaired(catalog: Catalog, damages: dict[int, str], size: int) -> None:
    if any(table.full_name == TABLE for table in catalog.list_tables()):
        catalog.drop_table(TABLE)
    indexes = [IndexDefinition(INDEX, ("n", "s"))]
    catalog.create_table(TABLE, columns=[], partition_keys=[("s", "string"), ("n", "int")], indexes=indexes)
    catalog.add_partitions(TABLE, [NewPartition((f"s{number % 3}", str(number))) for number in range(40)])
    some = ids(catalog)
    for number, what in damages.items():
        if what == "take":
            take_item(catalog, some[number])
        if "move" in what:
            move_item(catalog, some[number])
        if "add" in what:
            add_item(catalog, some[number] + (0 if what == "add" else 1000))
    found = verify(catalog, repair=True, size=size)
    wanted = list(damages.values())
    assert found.findings.counts == {
        kind: count
        for kind, count in (
            (DifferenceKind.MISSING, wanted.count("take")),
            (DifferenceKind.WRONG, sum("move" in what for what in wanted)),
            (DifferenceKind.SUPERFLUOUS, sum("add" in what for what in wanted)),
        )
        if count
    }
    assert found.repaired == found.findings.counts.total()
    assert_every_partition_has_its_item(catalog, TABLE)
