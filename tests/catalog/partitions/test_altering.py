"""Changing, renaming and dropping single partitions by their specs, on each database."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, select

from catalog import Catalog, FileFormat, IndexDefinition, IndexState, NewPartition, PartitionState, Table
from catalog.errors import (
    InvalidPartitionError,
    InvalidPartitionSpecError,
    InvalidTableError,
    LocationTakenError,
    PartialPartitionSpecError,
    PartitionAlreadyExistsError,
    PartitionNotFoundError,
    PartitionProblem,
)
from catalog.model import OnInvalid
from catalog.partitions.adding import PartitionAdder
from catalog.storage.schema import PartitionCheckRow
from tests.support.index_items import assert_every_partition_has_its_item

TABLE = "demo.t"
Values = tuple[str | None, ...]


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """The table `demo.t` with the keys (s string, n int), an index on each, and four partitions."""
    created = catalog.create_table(
        TABLE,
        columns=[("v", "int")],
        partition_keys=[("s", "string"), ("n", "int")],
        indexes=[IndexDefinition("by_s", ("s", "n")), IndexDefinition("by_n", ("n",))],
    )
    rows: list[Values] = [("a", "1"), ("a", "2"), ("b/%", "1"), (None, None)]
    catalog.add_partitions(TABLE, [NewPartition(row, None, 1, 10, 100) for row in rows])
    return created


def values(catalog: Catalog, expression: str | None = None) -> set[Values]:
    found = {partition.values for partition in catalog.get_partitions(TABLE, expression)}
    assert found == {partition.values for partition in catalog.get_partitions(TABLE, expression, use_indexes=False)}
    return found


# --- location, format, properties -----------------------------------------------------------------------------------


def test_a_partition_takes_another_location_and_forgets_its_counts(catalog: Catalog, table: Table) -> None:
    changed = catalog.alter_partition(TABLE, {"N": "01", "s": "a"}, location="file:///elsewhere/")
    assert changed == catalog.get_partition(TABLE, ("a", "1"))
    assert (changed.location, changed.values) == ("file:///elsewhere", ("a", "1"))
    assert (changed.file_count, changed.row_count, changed.size_bytes) == (None, None, None)
    back = catalog.alter_partition(TABLE, ("a", "1"), location=f"{table.location}/s=a/n=1")
    assert back.location == f"{table.location}/s=a/n=1"
    same = catalog.alter_partition(TABLE, ("a", "2"), location=f"{table.location}/s=a/n=2/")
    assert same.row_count == 10


def test_a_partition_keeps_a_format_of_its_own(catalog: Catalog, table: Table) -> None:
    spec = {"s": "a", "n": "1"}
    changed = catalog.alter_partition(TABLE, spec, format="ORC", properties={"x": "1"})
    assert (changed.format, changed.properties) == (FileFormat.ORC, {"x": "1"})
    assert catalog.alter_partition(TABLE, spec, location="/x").format is FileFormat.ORC
    assert [each.format for each in catalog.get_partitions(TABLE, "s = 'a' and n = 2")] == [None]
    renamed = catalog.alter_partition(TABLE, spec, rename_to={"s": "c", "n": "1"})
    assert (renamed.format, renamed.properties) == (FileFormat.ORC, {"x": "1"})
    back = catalog.alter_partition(TABLE, ("c", "1"), format="parquet", properties={"x": None})
    assert (back.format, back.properties) == (None, {})


def test_a_partition_is_added_with_a_format_of_its_own(catalog: Catalog, table: Table) -> None:
    new = [NewPartition(("f", "1"), format=FileFormat.AVRO), NewPartition(("f", "2"), format=FileFormat.PARQUET)]
    catalog.add_partitions(TABLE, new)
    assert {each.values[1]: each.format for each in catalog.get_partitions(TABLE, "s = 'f'")} == {
        "1": FileFormat.AVRO,
        "2": None,
    }


def test_no_property_has_the_reserved_name(catalog: Catalog, table: Table) -> None:
    wrong = {"calve.format": "orc"}
    with pytest.raises(InvalidPartitionError, match=r"calve\.format is reserved"):
        catalog.alter_partition(TABLE, ("a", "1"), properties=wrong)
    with pytest.raises(InvalidPartitionError, match=r"calve\.format is reserved"):
        catalog.add_partitions(TABLE, [NewPartition(("z", "1"), properties=wrong)])
    with pytest.raises(InvalidTableError, match="unknown format 'nothing'"):
        catalog.alter_partition(TABLE, ("a", "1"), format="nothing")


def test_an_encrypted_partition_is_refused_while_an_index_is_there(catalog: Catalog, table: Table) -> None:
    encrypted = {"Has_Encrypted_Data": "TRUE"}
    with pytest.raises(
        InvalidPartitionError, match=r"does not accept encrypted partitions.*Nothing was changed"
    ) as refused:
        catalog.alter_partition(TABLE, ("a", "1"), properties=encrypted, location="/x")
    assert refused.value.refused[0].code is PartitionProblem.ENCRYPTED
    assert catalog.get_partition(TABLE, ("a", "1")).location == f"{table.location}/s=a/n=1"
    for index in ("by_s", "by_n"):
        catalog.delete_partition_index(TABLE, index)
    assert catalog.alter_partition(TABLE, ("a", "1"), properties=encrypted).properties == encrypted
    catalog.create_partition_index(TABLE, "i", ["n"])
    failed = catalog.build_partition_index(TABLE, "i")
    assert (failed.state, failed.failure_code) == (IndexState.FAILED, PartitionProblem.ENCRYPTED)


# --- renaming -------------------------------------------------------------------------------------------------------


def test_a_renamed_partition_keeps_its_files_where_they_are(catalog: Catalog, table: Table) -> None:
    before = catalog.get_partition(TABLE, ("a", "1"))
    renamed = catalog.alter_partition(TABLE, {"s": "a", "n": "1"}, rename_to={"n": "7", "s": "c/d"})
    assert renamed == before._replace(id=renamed.id, values=("c/d", "7"))
    assert renamed.id != before.id
    assert values(catalog, "n = 7") == values(catalog, "s = 'c/d'") == {("c/d", "7")}
    assert values(catalog, "n = 1") == {("b/%", "1")}
    assert_every_partition_has_its_item(catalog, TABLE)


def test_what_takes_a_renamed_partitions_old_values_needs_another_folder(catalog: Catalog, table: Table) -> None:
    catalog.alter_partition(TABLE, ("a", "1"), rename_to=("c", "1"))
    with pytest.raises(LocationTakenError, match="partition s=c/n=1 has its files in"):
        catalog.add_partitions(TABLE, [NewPartition(("new", "1")), NewPartition(("a", "1"))])
    assert ("new", "1") not in values(catalog)
    catalog.add_partitions(TABLE, [NewPartition(("a", "1"), location="/elsewhere")])
    assert catalog.drop_partition(TABLE, {"s": "a", "n": "1"}) == 1
    catalog.alter_partition(TABLE, ("c", "1"), rename_to=("d", "2"))
    with pytest.raises(LocationTakenError):
        catalog.add_partitions(TABLE, [NewPartition(("a", "1"))], if_not_exists=True)
    assert catalog.drop_partition(TABLE, {"s": "d"}) == 1
    catalog.add_partitions(TABLE, [NewPartition(("a", "1"))])


def test_a_partition_renamed_back_lies_by_default_again(catalog: Catalog, table: Table) -> None:
    before = catalog.get_partition(TABLE, ("a", "1"))
    catalog.alter_partition(TABLE, ("a", "1"), rename_to=("c", "1"))
    back = catalog.alter_partition(TABLE, ("c", "1"), rename_to=("a", "1"))
    assert back == before._replace(id=back.id)
    catalog.drop_partition(TABLE, {"s": "a", "n": "1"})
    catalog.add_partitions(TABLE, [NewPartition(("a", "1"))])
    moved = catalog.alter_partition(TABLE, ("a", "1"), rename_to=("c", "1"), location="/elsewhere")
    assert (moved.location, moved.row_count) == ("/elsewhere", None)
    catalog.add_partitions(TABLE, [NewPartition(("a", "1"))])


def test_another_spelling_is_a_new_name(catalog: Catalog, table: Table) -> None:
    renamed = catalog.alter_partition(TABLE, ("a", "1"), rename_to=("a", "001"))
    assert (renamed.values, renamed.location) == (("a", "001"), f"{table.location}/s=a/n=1")
    assert_every_partition_has_its_item(catalog, TABLE)


@pytest.mark.parametrize(
    ("spec", "change", "error", "named"),
    [
        ({"s": "a", "n": "9"}, {"location": "/x"}, PartitionNotFoundError, "no partition s=a/n=9"),
        ({"s": "a"}, {"location": "/x"}, PartialPartitionSpecError, r"all its keys \(s, n\), but n has no value"),
        ({"s": "a", "m": "1"}, {"location": "/x"}, InvalidPartitionSpecError, "m is not a partition key.* s, n"),
        ({"s": "a", "S": "b"}, {"location": "/x"}, InvalidPartitionSpecError, "s is named twice"),
        ({"s": "a", "n": "1"}, {"rename_to": {"n": "3"}}, PartialPartitionSpecError, "s has no value"),
        ({"s": "a", "n": "1"}, {"rename_to": ("a", "02")}, PartitionAlreadyExistsError, "s=a/n=02; nothing"),
        ({"s": "a", "n": "1"}, {"rename_to": ("a", "x")}, InvalidPartitionError, "'x', expected int.*Nothing was ren"),
        ({"s": "a", "n": "1"}, {"rename_to": ("a", "1", "2")}, InvalidPartitionError, "3 values for 2"),
    ],
)
def test_a_change_that_cannot_be_is_refused_and_changes_nothing(
    catalog: Catalog,
    table: Table,
    spec: Mapping[str, str],
    change: dict[str, object],
    error: type[Exception],
    named: str,
) -> None:
    before = sorted(catalog.get_partitions(TABLE))
    with pytest.raises(error, match=named):
        catalog.alter_partition(TABLE, spec, properties={"x": "1"}, **change)  # type: ignore[arg-type]
    assert sorted(catalog.get_partitions(TABLE)) == before
    assert_every_partition_has_its_item(catalog, TABLE)


def test_a_quality_check_stays_with_a_renamed_partition(catalog: Catalog, table: Table) -> None:
    old = catalog.get_partition(TABLE, ("a", "1"))
    check = {"partition_id": old.id, "operation_number": 1, "passed": True, "failures": ["x"], "checked_at_ms": 1}
    check |= {"measures": {"row_count": 3}, "release_number": 2}
    with catalog.storage.write() as connection:
        connection.execute(insert(PartitionCheckRow).values(check))
    new = catalog.alter_partition(TABLE, ("a", "1"), rename_to=("c", "1"))
    with catalog.storage.read() as connection:
        [row] = connection.execute(select(PartitionCheckRow.__table__))
    assert row._mapping == {**check, "partition_id": new.id}


def test_partitions_renamed_during_a_build_have_their_items(catalog: Catalog, table: Table) -> None:
    """An index whose ranges are done in part: what was renamed before its range, and after."""
    catalog.delete_partition_index(TABLE, "by_n")
    catalog.add_partitions(TABLE, [NewPartition(("m", str(number))) for number in range(100)])
    catalog.create_partition_index(TABLE, "by_n", ["n"])
    catalog.alter_partition(TABLE, ("m", "3"), rename_to=("m", "300"))
    built = threading.Thread(target=catalog.build_partition_index, args=(TABLE, "by_n"))
    built.start()
    for number in range(10, 30):
        catalog.alter_partition(TABLE, ("m", str(number)), rename_to=("m", str(number + 1000)))
    built.join()
    assert catalog.get_partition_index(TABLE, "by_n").state is IndexState.ACTIVE
    assert_every_partition_has_its_item(catalog, TABLE)


def test_one_of_two_who_rename_to_the_same_values_wins(catalog: Catalog, table: Table) -> None:
    errors: list[Exception] = []

    def rename(old: Values) -> None:
        try:
            catalog.alter_partition(TABLE, old, rename_to=("z", "9"))
        except PartitionAlreadyExistsError as error:
            errors.append(error)

    threads = [threading.Thread(target=rename, args=(old,)) for old in (("a", "1"), ("a", "2"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 1
    assert len(values(catalog)) == 4
    assert_every_partition_has_its_item(catalog, TABLE)


ACTS = st.lists(
    st.tuples(
        st.sampled_from(["add", "rename", "move", "drop"]),
        st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["1", "2"])),
        st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["1", "02", "3"])),
    ),
    max_size=12,
)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ACTS)
def test_no_two_partitions_share_a_folder_that_nobody_gave_them(
    catalog: Catalog, acts: list[tuple[str, tuple[str, str], tuple[str, str]]]
) -> None:
    catalog.create_table(
        TABLE,
        columns=[("v", "int")],
        partition_keys=[("s", "string"), ("n", "int")],
        indexes=[IndexDefinition("by_n", ("n", "s"))],
    )
    try:
        for number, (act, old, new) in enumerate(acts):
            try:
                if act == "add":
                    catalog.add_partitions(TABLE, [NewPartition(old)])
                elif act == "rename":
                    catalog.alter_partition(TABLE, old, rename_to=new)
                elif act == "move":
                    catalog.alter_partition(TABLE, old, location=f"/moved/{number}")
                else:
                    catalog.drop_partition(TABLE, dict(zip(("s", "n"), old, strict=True)))
            except (PartitionAlreadyExistsError, PartitionNotFoundError, LocationTakenError):
                pass
            locations = [each.location for each in catalog.get_partitions(TABLE)]
            assert len(set(locations)) == len(locations)
            assert_every_partition_has_its_item(catalog, TABLE)
    finally:
        catalog.drop_table(TABLE)


# --- dropping -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "gone"),
    [
        ({"s": "a", "n": "1"}, {("a", "1")}),
        ({"s": "a", "n": "+01"}, {("a", "1")}),
        ({"S": "a"}, {("a", "1"), ("a", "2")}),
        ({"n": "1"}, {("a", "1"), ("b/%", "1")}),
        ({"s": "b/%"}, {("b/%", "1")}),
        ({"s": None}, {(None, None)}),
        ({"n": "__HIVE_DEFAULT_PARTITION__"}, {(None, None)}),
        ({"n": None, "s": None}, {(None, None)}),
    ],
)
def test_a_spec_drops_all_that_match(
    catalog: Catalog, table: Table, spec: Mapping[str, str | None], gone: set[Values]
) -> None:
    before = values(catalog)
    assert catalog.drop_partition(TABLE, spec) == len(gone)
    assert values(catalog) == before - gone
    assert_every_partition_has_its_item(catalog, TABLE)
    assert catalog.drop_partition(TABLE, spec, if_exists=True) == 0
    with pytest.raises(PartitionNotFoundError, match=next(iter(spec)).lower()):
        catalog.drop_partition(TABLE, spec)


@pytest.mark.usefixtures("unfit_values")
def test_a_value_that_is_not_of_its_type_is_dropped_as_it_is_written(catalog: Catalog) -> None:
    catalog.create_table(TABLE, columns=[("v", "int")], partition_keys=[("n", "int"), ("s", "string")])
    rows = [("foo", "a"), ("bar", "a"), ("1", "a"), (None, "a")]
    catalog.add_partitions(TABLE, [NewPartition(row) for row in rows])
    assert catalog.drop_partition(TABLE, {"n": "foo"}) == 1
    assert catalog.drop_partition(TABLE, {"n": None}) == 1
    assert values(catalog) == {("bar", "a"), ("1", "a")}


@pytest.mark.parametrize("spec", [{}, {"x": "1"}, {"s": "a", "S": "a"}])
def test_a_spec_that_names_no_key_drops_nothing(catalog: Catalog, table: Table, spec: Mapping[str, str]) -> None:
    with pytest.raises(InvalidPartitionSpecError):
        catalog.drop_partition(TABLE, spec, if_exists=True)
    assert len(values(catalog)) == 4


def test_quarantined_partitions_are_dropped_and_changed_too(catalog: Catalog, table: Table, tmp_path: Path) -> None:
    with catalog.storage.write() as connection:
        adder = PartitionAdder(connection, catalog._definitions, TABLE, is_quarantined=True)
        new = [NewPartition(("q", str(number))) for number in range(3)]
        adder.add(new, if_not_exists=False, on_invalid=OnInvalid.REFUSE)
    assert catalog.alter_partition(TABLE, ("q", "0"), rename_to=("q", "9")).state is PartitionState.QUARANTINED
    assert catalog.drop_partition(TABLE, {"s": "q", "n": "1"}) == 1
    assert catalog.drop_partition(TABLE, {"s": "q"}) == 2
