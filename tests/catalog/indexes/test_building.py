"""The life of a partition index, on each database."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from catalog import Catalog, IndexDefinition, IndexState, NewPartition, OnInvalid, PartitionIndex, Table
from catalog.errors import (
    CatalogError,
    ConflictError,
    IndexAlreadyExistsError,
    InvalidIdentifierError,
    InvalidIndexError,
    InvalidPartitionError,
    LimitExceededError,
    PartitionProblem,
)
from catalog.indexes import building
from tests.support.index_items import assert_every_partition_has_its_item, stored_items

pytestmark = pytest.mark.usefixtures("unfit_values")

TABLE = "demo.t"


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """The table `demo.t` with the keys (s string, n int, d date), empty, without an index."""
    keys = [("s", "string"), ("n", "int"), ("d", "date")]
    return catalog.create_table(TABLE, columns=[("v", "int")], partition_keys=keys)


def add(catalog: Catalog, *numbers: int | str) -> None:
    catalog.add_partitions(TABLE, [NewPartition(["a", str(number), None]) for number in numbers])


def found(catalog: Catalog, expression: str) -> list[str | None]:
    return sorted(partition.values[1] or "" for partition in catalog.get_partitions(TABLE, expression))


def item_count(catalog: Catalog) -> int:
    with catalog.storage.read() as connection:
        count: int = connection.exec_driver_sql("SELECT count(*) FROM calve_index_item").scalar_one()
    return count


def half_built(catalog: Catalog, name: str = "i", keys: tuple[str, ...] = ("n",)) -> PartitionIndex:
    """Create an index of which only the first two partitions are built."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(building, "RANGE_SIZE", 2)
        index = catalog.create_partition_index(TABLE, name, keys)
    first, *_ = building.ranges_to_do(catalog.storage, index)
    building.backfill(catalog.storage, catalog.get_table(TABLE), index, [first])
    return index


def test_an_index_created_with_its_table_is_active_at_once(catalog: Catalog) -> None:
    catalog.create_table(
        TABLE,
        columns=[],
        partition_keys=[("S", "string"), ("n", "int")],
        indexes=[IndexDefinition("By_N", ("N", "s")), IndexDefinition("by_s", ("s",))],
    )
    indexes = catalog.get_partition_indexes(TABLE)
    assert [(index.name, index.keys, index.state) for index in indexes] == [
        ("by_n", ("n", "s"), IndexState.ACTIVE),
        ("by_s", ("s",), IndexState.ACTIVE),
    ]


def test_an_index_created_on_an_empty_table_is_active_at_once(catalog: Catalog, table: Table) -> None:
    assert catalog.create_partition_index(TABLE, "i", ["n"]).state is IndexState.ACTIVE
    add(catalog, 1, 2)
    assert_every_partition_has_its_item(catalog, TABLE)


def test_an_index_created_later_is_active_after_its_build(catalog: Catalog, table: Table) -> None:
    add(catalog, 1, 2, 3)
    assert catalog.create_partition_index(TABLE, "I", ["N", "D"]).state is IndexState.CREATING
    assert item_count(catalog) == 0
    add(catalog, 4)
    assert item_count(catalog) == 1
    assert catalog.build_partition_index(TABLE, "i").state is IndexState.ACTIVE
    assert_every_partition_has_its_item(catalog, TABLE)
    assert catalog.explain_partitions(TABLE, "n = 4").index == "i"


def test_a_build_may_be_interrupted_and_repeated(catalog: Catalog, table: Table) -> None:
    add(catalog, *range(10))
    index = half_built(catalog)
    assert item_count(catalog) == 2
    assert catalog.get_partition_index(TABLE, "i").state is IndexState.CREATING
    assert catalog.build_partition_index(TABLE, "i").state is IndexState.ACTIVE
    assert catalog.build_partition_index(TABLE, "i").id == index.id
    assert_every_partition_has_its_item(catalog, TABLE)


def test_a_build_goes_on_where_it_was_interrupted(catalog: Catalog, table: Table) -> None:
    add(catalog, *range(10))
    index = half_built(catalog)
    done = stored_items(catalog, index.id)
    remaining = building.ranges_to_do(catalog.storage, index)
    assert len(remaining) == 4
    report = building.backfill(catalog.storage, table, index, remaining)
    assert report.item_count == 8
    assert building.ranges_to_do(catalog.storage, index) == []
    assert stored_items(catalog, index.id)[:2] == done


def test_a_range_that_another_build_has_done_is_not_done_again(catalog: Catalog, table: Table) -> None:
    add(catalog, 1, 2)
    index = catalog.create_partition_index(TABLE, "i", ["n"])
    ranges = building.ranges_to_do(catalog.storage, index)
    assert building.backfill(catalog.storage, table, index, ranges).item_count == 2
    assert building.backfill(catalog.storage, table, index, ranges).item_count == 0
    assert catalog.build_partition_index(TABLE, "i").state is IndexState.ACTIVE


@pytest.mark.parametrize("size", [1, 2, 3, 10, 11])
def test_the_ranges_of_a_build_hold_each_partition_once(
    catalog: Catalog, table: Table, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "RANGE_SIZE", size)
    catalog.create_table("demo.other", columns=[], partition_keys=[("n", "int")])
    for number in range(10):
        add(catalog, number)
        catalog.add_partitions("demo.other", [NewPartition([str(number)])])
    index = catalog.create_partition_index(TABLE, "i", ["n"])
    ranges = building.ranges_to_do(catalog.storage, index)
    assert len(ranges) == -(-10 // size)
    owners = [
        [number for number, ids in enumerate(ranges) if ids.first <= partition.id <= ids.last]
        for partition in catalog.get_partitions(TABLE)
    ]
    assert all(len(owner) == 1 for owner in owners)


def test_partitions_dropped_during_a_build_leave_no_item(catalog: Catalog, table: Table) -> None:
    add(catalog, *range(6))
    half_built(catalog)
    assert catalog.drop_partitions(TABLE, "n in (0, 5)") == 2
    assert item_count(catalog) == 1
    assert catalog.build_partition_index(TABLE, "i").state is IndexState.ACTIVE
    assert_every_partition_has_its_item(catalog, TABLE)


def test_an_index_on_a_table_emptied_during_the_build_becomes_active(catalog: Catalog, table: Table) -> None:
    add(catalog, 1)
    catalog.create_partition_index(TABLE, "i", ["n"])
    catalog.drop_partitions(TABLE)
    assert catalog.build_partition_index(TABLE, "i").state is IndexState.ACTIVE
    assert item_count(catalog) == 0


# --- failing --------------------------------------------------------------------------------------------------------


def test_a_build_fails_with_the_partitions_that_do_not_fit(catalog: Catalog, table: Table) -> None:
    add(catalog, 1, "foo")
    add(catalog, 2, "bar")
    catalog.create_partition_index(TABLE, "i", ["n"])
    failed = catalog.build_partition_index(TABLE, "i")
    assert failed.state is IndexState.FAILED
    assert failed.failure_code == PartitionProblem.INVALID_TYPE
    assert failed.failure_detail is not None
    assert "'foo'" in failed.failure_detail
    assert sorted(each.values[1] or "" for each in failed.offending) == ["bar", "foo"]
    for each in failed.offending:
        assert each.location == f"{table.location}/s=a/n={each.values[1]}/d=__HIVE_DEFAULT_PARTITION__"
        assert f"{each.values[1]!r}, expected int" in each.problem
    assert item_count(catalog) == 0
    assert found(catalog, "n = 1") == ["1"]


def test_a_build_fails_for_a_partition_that_lacks_the_value(catalog: Catalog, table: Table) -> None:
    catalog.add_partitions(TABLE, [NewPartition(["a"], location="/x"), NewPartition(["a", None, None])])
    catalog.create_partition_index(TABLE, "i", ["n"])
    failed = catalog.build_partition_index(TABLE, "i")
    assert failed.failure_code == PartitionProblem.MISSING_VALUE
    assert [each.location for each in failed.offending] == ["/x"]


@pytest.mark.parametrize("properties", [{"has_encrypted_data": "true"}, {"Has_Encrypted_Data": "TRUE", "a": "b"}])
def test_a_build_fails_for_encrypted_partitions(catalog: Catalog, table: Table, properties: dict[str, str]) -> None:
    add(catalog, 1)
    catalog.add_partitions(TABLE, [NewPartition(["b", "2", None], properties=properties)])
    catalog.create_partition_index(TABLE, "i", ["n"])
    failed = catalog.build_partition_index(TABLE, "i")
    assert failed.failure_code == PartitionProblem.ENCRYPTED
    assert [each.values for each in failed.offending] == [("b", "2", None)]
    assert "has_encrypted_data" in failed.offending[0].problem


def test_partitions_that_only_speak_of_encryption_fit(catalog: Catalog, table: Table) -> None:
    harmless = [{"has_encrypted_data": "false"}, {"note": "has_encrypted_data"}, {"had_has_encrypted_data": "true"}]
    catalog.add_partitions(TABLE, [NewPartition(["a", str(n), None], properties=p) for n, p in enumerate(harmless)])
    catalog.create_partition_index(TABLE, "i", ["n"])
    assert catalog.build_partition_index(TABLE, "i").state is IndexState.ACTIVE
    assert_every_partition_has_its_item(catalog, TABLE)


def test_a_build_fails_for_reserved_characters(catalog: Catalog, table: Table) -> None:
    catalog.add_partitions(TABLE, [NewPartition(["a\x01b", "1", None])])
    catalog.create_partition_index(TABLE, "i", ["s"])
    failed = catalog.build_partition_index(TABLE, "i")
    assert failed.failure_code == PartitionProblem.UNSUPPORTED_CHARACTER
    assert failed.offending[0].values == ("a\x01b", "1", None)


@pytest.mark.parametrize("order", [1, -1])
def test_of_several_problems_that_of_the_first_partition_is_the_code_however_the_ranges_went(
    catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch, order: int
) -> None:
    monkeypatch.setattr(building, "RANGE_SIZE", 2)
    add(catalog, 1, 2, 3)
    catalog.add_partitions(TABLE, [NewPartition(["a"], location="/x")])
    add(catalog, "foo")
    catalog.add_partitions(TABLE, [NewPartition(["a", "4", None], properties={"has_encrypted_data": "true"})])
    index = catalog.create_partition_index(TABLE, "i", ["n"])
    ranges = building.ranges_to_do(catalog.storage, index)
    assert len(ranges) == 3
    report = building.backfill(catalog.storage, table, index, ranges[::order])
    assert report.failure is not None
    assert report.failure.code == PartitionProblem.MISSING_VALUE
    assert report.failure.detail.startswith("3 partitions do not fit the index")
    assert [each.values[1] for each in report.failure.offending] == [None, "foo", "4"]


def test_a_failed_index_names_at_most_a_hundred_partitions(catalog: Catalog, table: Table) -> None:
    add(catalog, *(f"x{number}" for number in range(150)))
    catalog.create_partition_index(TABLE, "i", ["n"])
    failed = catalog.build_partition_index(TABLE, "i")
    first = sorted(catalog.get_partitions(TABLE), key=lambda partition: partition.id)[:100]
    assert [each.values for each in failed.offending] == [partition.values for partition in first]
    assert str(failed.failure_detail).startswith("150 partitions")


def test_a_creating_index_already_refuses_what_does_not_fit_and_a_failed_one_does_not(
    catalog: Catalog, table: Table
) -> None:
    add(catalog, "foo")
    catalog.create_partition_index(TABLE, "i", ["n"])
    with pytest.raises(InvalidPartitionError, match="'bar'"):
        add(catalog, "bar")
    catalog.build_partition_index(TABLE, "i")
    add(catalog, "bar")


def test_a_failed_index_is_replaced_by_one_of_the_same_name(catalog: Catalog, table: Table) -> None:
    add(catalog, 1, "foo")
    catalog.create_partition_index(TABLE, "i", ["n"])
    catalog.build_partition_index(TABLE, "i")
    catalog.drop_partitions(TABLE, "n is null")
    catalog.create_partition_index(TABLE, "i", ["n"])
    assert catalog.get_partition_index(TABLE, "i").state is IndexState.CREATING
    assert catalog.build_partition_index(TABLE, "i").state is IndexState.ACTIVE
    states = [index.state for index in catalog.get_partition_indexes(TABLE)]
    assert states == [IndexState.FAILED, IndexState.ACTIVE]
    catalog.delete_partition_index(TABLE, "i")
    assert [index.state for index in catalog.get_partition_indexes(TABLE)] == [IndexState.FAILED]
    catalog.delete_partition_index(TABLE, "i")
    assert catalog.get_partition_indexes(TABLE) == []


def test_a_build_that_met_an_offending_partition_does_not_undo_a_later_one_that_ended_well(
    catalog: Catalog, table: Table
) -> None:
    add(catalog, 1, "foo")
    index = catalog.create_partition_index(TABLE, "i", ["n"])
    report = building.backfill(catalog.storage, table, index, building.ranges_to_do(catalog.storage, index))
    assert report.failure is not None
    catalog.drop_partitions(TABLE, "n is null")
    assert catalog.build_partition_index(TABLE, "i").state is IndexState.ACTIVE
    with catalog.storage.write() as connection:
        building.end_build(catalog.storage, connection, table, index, report.failure)
    assert catalog.get_partition_index(TABLE, "i").state is IndexState.ACTIVE
    assert_every_partition_has_its_item(catalog, TABLE)


def test_a_build_that_was_interrupted_looks_again_at_what_did_not_fit(catalog: Catalog, table: Table) -> None:
    add(catalog, 1, "foo")
    index = catalog.create_partition_index(TABLE, "i", ["n"])
    building.backfill(catalog.storage, table, index, building.ranges_to_do(catalog.storage, index))
    failed = catalog.build_partition_index(TABLE, "i")
    assert (failed.state, failed.failure_code) == (IndexState.FAILED, PartitionProblem.INVALID_TYPE)


def test_an_index_with_ranges_to_do_never_becomes_active(catalog: Catalog, table: Table) -> None:
    add(catalog, *range(6))
    index = half_built(catalog)
    with pytest.raises(ConflictError, match="2 ranges of partition index i"), catalog.storage.write() as connection:
        building.end_build(catalog.storage, connection, table, index, None)
    assert catalog.get_partition_index(TABLE, "i").state is IndexState.CREATING
    assert found(catalog, "n = 5") == ["5"]


def test_an_index_whose_items_do_not_match_its_partitions_never_becomes_active(catalog: Catalog, table: Table) -> None:
    add(catalog, *range(6))
    half_built(catalog)
    with catalog.storage.write() as connection:
        connection.exec_driver_sql(
            "DELETE FROM calve_backfill_range WHERE first_id = (SELECT max(first_id) FROM calve_backfill_range)"
        )
    failed = catalog.build_partition_index(TABLE, "i")
    assert (failed.state, failed.failure_code) == (IndexState.FAILED, building.INTERNAL_ERROR)
    assert "4 items for 6 partitions" in str(failed.failure_detail)
    assert [each.values[1] for each in failed.offending] == ["4", "5"]
    assert item_count(catalog) == 0


def test_an_item_that_is_there_before_the_build_stays(catalog: Catalog, table: Table) -> None:
    add(catalog, *range(4))
    index = half_built(catalog)
    items = stored_items(catalog, index.id)
    with catalog.storage.write() as connection:
        connection.execute(
            text("INSERT INTO calve_backfill_range VALUES (:id, 0, :last)"), {"id": index.id, "last": items[-1][1]}
        )
    assert catalog.build_partition_index(TABLE, "i").state is IndexState.ACTIVE
    assert_every_partition_has_its_item(catalog, TABLE)


# --- limits ---------------------------------------------------------------------------------------------------------


def test_a_table_has_at_most_three_indexes_and_failed_ones_do_not_count(catalog: Catalog, table: Table) -> None:
    add(catalog, "foo")
    catalog.create_partition_index(TABLE, "bad", ["n"])
    catalog.build_partition_index(TABLE, "bad")
    for name, keys in {"one": ["s"], "two": ["d"], "three": ["d", "s"]}.items():
        catalog.create_partition_index(TABLE, name, keys)
    with pytest.raises(LimitExceededError, match=r"one, two, three.*at most 3 are allowed"):
        catalog.create_partition_index(TABLE, "four", ["s", "d"])
    catalog.delete_partition_index(TABLE, "two")
    catalog.create_partition_index(TABLE, "four", ["s", "d"])


def test_the_limit_is_tested_before_duplicates(catalog: Catalog, table: Table) -> None:
    for name, keys in {"one": ["s"], "two": ["d"], "three": ["d", "s"]}.items():
        catalog.create_partition_index(TABLE, name, keys)
    with pytest.raises(LimitExceededError):
        catalog.create_partition_index(TABLE, "one", ["s"])


def test_several_indexes_of_a_table_are_built_at_the_same_time(catalog: Catalog, table: Table) -> None:
    add(catalog, *range(6))
    half_built(catalog, "i", ("n",))
    half_built(catalog, "j", ("s",))
    half_built(catalog, "k", ("s", "n"))
    assert {index.state for index in catalog.get_partition_indexes(TABLE)} == {IndexState.CREATING}
    add(catalog, 7)
    catalog.drop_partitions(TABLE, "n = 3")
    for name in "kij":
        assert catalog.build_partition_index(TABLE, name).state is IndexState.ACTIVE
    assert_every_partition_has_its_item(catalog, TABLE)


def test_the_last_ten_failed_indexes_are_kept(catalog: Catalog, table: Table) -> None:
    add(catalog, 1, "foo")
    catalog.create_partition_index(TABLE, "slow", ["s"])
    for number in range(12):
        catalog.create_partition_index(TABLE, f"i{number}", ["n"])
        catalog.build_partition_index(TABLE, f"i{number}")
    catalog.cancel_partition_index_build(TABLE, "slow")
    kept = catalog.get_partition_indexes(TABLE)
    assert [index.name for index in kept] == ["slow", *(f"i{number}" for number in range(3, 12))]
    assert [index.offending[0].values[1] for index in kept[1:]] == ["foo"] * 9
    assert item_count(catalog) == 0


@pytest.mark.parametrize(
    ("name", "keys", "error", "named"),
    [
        ("I", ["s"], IndexAlreadyExistsError, "the name i"),
        ("other", ["N", "d"], IndexAlreadyExistsError, r"the keys \(n, d\)"),
        ("other", [], InvalidIndexError, "has no key"),
        ("other", ["s", "S"], InvalidIndexError, "a duplicate key: s, s"),
        ("other", ["s", "v"], InvalidIndexError, "v is not a partition key"),
        ("a/b", ["s"], InvalidIdentifierError, "'a/b'"),
    ],
)
def test_an_index_that_cannot_be_is_refused(
    catalog: Catalog, table: Table, name: str, keys: list[str], error: type[CatalogError], named: str
) -> None:
    catalog.create_partition_index(TABLE, "i", ["n", "d"])
    with pytest.raises(error, match=named):
        catalog.create_partition_index(TABLE, name, keys)
    assert len(catalog.get_partition_indexes(TABLE)) == 1


def test_the_same_keys_in_another_order_are_another_index(catalog: Catalog, table: Table) -> None:
    catalog.create_partition_index(TABLE, "i", ["n", "d"])
    catalog.create_partition_index(TABLE, "j", ["d", "n"])


# --- items ----------------------------------------------------------------------------------------------------------


def test_a_partition_that_one_index_does_not_admit_leaves_no_item_in_the_others_when_it_is_dropped(
    catalog: Catalog, table: Table
) -> None:
    catalog.create_partition_index(TABLE, "by_s", ["s"])
    add(catalog, "foo", 1)
    index = half_built(catalog, "by_n", ("n",))
    assert stored_items(catalog, index.id) == []
    assert catalog.drop_partitions(TABLE, "n is null") == 1
    assert catalog.build_partition_index(TABLE, "by_n").state is IndexState.ACTIVE
    assert_every_partition_has_its_item(catalog, TABLE)


def test_many_items_are_deleted_in_several_transactions(
    catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catalog.indexes.items._DELETE_BATCH", 3)
    for name, keys in {"i": ["n"], "j": ["s", "n"]}.items():
        catalog.create_partition_index(TABLE, name, keys)
    add(catalog, *range(10))
    catalog.delete_partition_index(TABLE, "i")
    assert item_count(catalog) == 10
    assert_every_partition_has_its_item(catalog, TABLE)


def test_values_that_share_their_first_thousand_characters_have_their_own_items(catalog: Catalog, table: Table) -> None:
    catalog.create_partition_index(TABLE, "i", ["s", "n"])
    long = ["x" * 1500 + end for end in "abc"]
    catalog.add_partitions(TABLE, [NewPartition([text, "1", None]) for text in long] + [NewPartition(["x", "1", None])])
    assert_every_partition_has_its_item(catalog, TABLE)
    explanation = catalog.explain_partitions(TABLE, f"s = '{long[1]}' and n = 1")
    assert (explanation.items_read, explanation.partitions_found) == (3, 1)
    result = catalog.add_partitions(
        TABLE, [NewPartition([long[0], "1", None])], if_not_exists=True, on_invalid=OnInvalid.SKIP
    )
    assert result.existing == 1
    assert catalog.drop_partitions(TABLE, f"s > '{long[0]}'") == 2
    assert_every_partition_has_its_item(catalog, TABLE)


@pytest.mark.smoke
def test_the_states_of_the_indexes_of_many_tables_are_read_together(catalog: Catalog, table: Table) -> None:
    add(catalog, 1, "x")
    catalog.create_partition_index(TABLE, "by_n", ["n"])
    catalog.build_partition_index(TABLE, "by_n")
    catalog.create_partition_index(TABLE, "by_n", ["s"])
    catalog.create_partition_index(TABLE, "other", ["n"])
    catalog.build_partition_index(TABLE, "other")
    catalog.create_database("d2")
    for name in ("d2.u", "d2.t"):
        catalog.create_table(name, columns=[("v", "int")], partition_keys=[("s", "string")])
    catalog.create_partition_index("d2.t", "by_s", ["s"])
    assert catalog.get_partition_index_states([" Demo.T", "d2.u", "demo.u"]) == {
        " Demo.T": {"by_n": IndexState.CREATING, "other": IndexState.FAILED},
        "d2.u": {},
    }
    assert catalog.get_partition_index(TABLE, "by_n").state is IndexState.CREATING
    assert catalog.get_partition_index_states([]) == {}


def test_the_progress_of_builds_counts_items_and_partitions_that_are_left(catalog: Catalog, table: Table) -> None:
    add(catalog, *range(5))
    index = half_built(catalog)
    add(catalog, 7)
    progress = catalog.get_partition_index_progress(TABLE)[index.id]
    assert (progress.items, progress.remaining) == (3, 3)
    catalog.build_partition_index(TABLE, "i")
    progress = catalog.get_partition_index_progress(TABLE)[index.id]
    assert (progress.items, progress.remaining) == (6, 0)
    catalog.create_table("demo.other", columns=[("v", "int")], partition_keys=[("s", "string")])
    assert catalog.get_partition_index_progress("demo.other") == {}
