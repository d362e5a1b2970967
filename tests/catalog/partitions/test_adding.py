"""Adding partitions, on each database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from catalog import Catalog, NewPartition, OnInvalid, Partition, PartitionState, Table
from catalog.errors import (
    InvalidPartitionError,
    InvalidRequestError,
    PartitionAlreadyExistsError,
    PartitionNotFoundError,
    PartitionProblem,
)
from catalog.model.partition_names import NULL_VALUE, pack_values
from catalog.partitions import spooling
from catalog.storage.values import EncodedValues, ValueEncoder
from tests.support.index_items import assert_every_partition_has_its_item

pytestmark = pytest.mark.smoke

TABLE = "demo.t"
GOOD = NewPartition(["a", "1"])


def create(catalog: Catalog, *keys: tuple[str, str], index: tuple[str, ...] = ()) -> Table:
    table = catalog.create_table(TABLE, columns=[("v", "int")], partition_keys=keys)
    if index:
        catalog.create_partition_index(TABLE, "by_key", index)
    return table


def values(catalog: Catalog) -> list[tuple[str | None, ...]]:
    return sorted((partition.values for partition in catalog.get_partitions(TABLE)), key=str)


@pytest.fixture
def pairs(catalog: Catalog) -> Table:
    """A table with the keys (s string, n int) and an index on n."""
    return create(catalog, ("s", "string"), ("n", "int"), index=("n",))


def test_a_partition_comes_back_as_it_was_added(catalog: Catalog, pairs: Table) -> None:
    given = NewPartition(["a/b", "7"], file_count=2, row_count=30, size_bytes=400, properties={"quelle": "Zürich"})
    assert catalog.add_partitions("DEMO.T", [given]).added == 1
    [found] = catalog.get_partitions(TABLE)
    expected = Partition(
        id=found.id,
        values=("a/b", "7"),
        location=f"{pairs.location}/s=a%2Fb/n=7",
        file_count=2,
        row_count=30,
        size_bytes=400,
        properties={"quelle": "Zürich"},
        state=PartitionState.VISIBLE,
        created_at_ms=found.created_at_ms,
    )
    assert found == expected == catalog.get_partition(TABLE, ["a/b", "7"])
    assert found.name(pairs) == "s=a%2Fb/n=7"
    assert found.as_dict(pairs) == {"s": "a/b", "n": "7"}


def test_a_partition_is_found_by_another_spelling_of_its_values(catalog: Catalog, pairs: Table) -> None:
    catalog.add_partitions(TABLE, [GOOD])
    assert catalog.get_partition(TABLE, ["a", "+01"]).values == ("a", "1")
    with pytest.raises(PartitionNotFoundError, match="s=A/n=1"):
        catalog.get_partition(TABLE, ["A", "1"])


def test_adding_again_is_refused_or_changes_nothing(catalog: Catalog, pairs: Table) -> None:
    catalog.add_partitions(TABLE, [NewPartition(["a", "1"], row_count=5)])
    with pytest.raises(PartitionAlreadyExistsError, match="s=a/n=01"):
        catalog.add_partitions(TABLE, [NewPartition(["b", "2"]), NewPartition(["a", "01"])])
    assert values(catalog) == [("a", "1")]

    again = [NewPartition(["b", "2"]), NewPartition(["a", "01"], row_count=9)]
    result = catalog.add_partitions(TABLE, again, if_not_exists=True)
    assert (result.added, result.existing) == (1, 1)
    assert catalog.get_partition(TABLE, ["a", "1"]).row_count == 5
    result = catalog.add_partitions(TABLE, again, if_not_exists=True)
    assert (result.added, result.existing) == (0, 2)
    assert_every_partition_has_its_item(catalog, TABLE)


def test_a_partition_named_twice_is_one(catalog: Catalog, pairs: Table) -> None:
    twice = [NewPartition(["a", "1"]), NewPartition(["a", "001"])]
    with pytest.raises(PartitionAlreadyExistsError, match="named twice"):
        catalog.add_partitions(TABLE, twice)
    assert values(catalog) == []
    result = catalog.add_partitions(TABLE, twice, if_not_exists=True)
    assert (result.added, result.existing) == (1, 1)
    assert values(catalog) == [("a", "1")]


def test_no_folder_with_the_values_of_another_one_is_left_out_unsaid(catalog: Catalog, pairs: Table) -> None:
    seven, twin = (NewPartition(["a", day], f"{pairs.location}/s=a/n={day}") for day in ("7", "007"))
    for given in ([seven, twin], [twin, seven]):
        with pytest.raises(InvalidPartitionError, match=r"s=a/n=.* which is in .*/s=a/n=.*Nothing was added"):
            catalog.add_partitions(TABLE, given, if_not_exists=True)
    assert values(catalog) == []
    catalog.add_partitions(TABLE, [seven])
    with pytest.raises(InvalidPartitionError, match=f"folder {twin.location} has the values of partition s=a/n=7,"):
        catalog.add_partitions(TABLE, [NewPartition(["b", "1"]), twin], if_not_exists=True)
    elsewhere = [replace(seven, location="/other"), replace(twin, location=f"file:{seven.location}/")]
    assert catalog.add_partitions(TABLE, elsewhere, if_not_exists=True).existing == 2
    assert values(catalog) == [("a", "7")]


@pytest.mark.parametrize("is_indexed", [True, False])
@pytest.mark.parametrize(
    ("key_type", "one", "same", "other"),
    [
        ("timestamp", "2024-01-01 00:00:00", "2024-01-01 00:00:00.0", "2024-01-01 00:00:00.000001"),
        ("decimal(3,2)", "1.0", "1.00", "1.01"),
        ("boolean", "true", "TRUE", "false"),
        ("float", "-0.0", "0", "1e-45"),
        ("double", "NaN", "nan", "Infinity"),
    ],
)
def test_two_spellings_of_a_value_are_one_partition(
    catalog: Catalog, key_type: str, one: str, same: str, other: str, is_indexed: bool
) -> None:
    create(catalog, ("s", "string"), ("k", key_type), index=("k",) if is_indexed else ())
    assert catalog.add_partitions(TABLE, [NewPartition(["a", one]), NewPartition(["a", other])]).added == 2
    with pytest.raises(PartitionAlreadyExistsError):
        catalog.add_partitions(TABLE, [NewPartition(["a", same])])
    assert catalog.add_partitions(TABLE, [NewPartition(["a", same])], if_not_exists=True).existing == 1
    assert catalog.get_partition(TABLE, ["a", same]).values == ("a", one)
    [found] = catalog.get_partitions(TABLE, f"k = '{same}'")
    assert found.values == ("a", one)
    assert_every_partition_has_its_item(catalog, TABLE)


@pytest.mark.usefixtures("unfit_values")
def test_a_value_that_no_type_reads_the_same_way_stays_a_partition_of_its_own(catalog: Catalog) -> None:
    create(catalog, ("a", "int"), ("b", "int"), ("c", "int"))
    rows = [
        ("\0", "%", None),
        ("%", None, "\0"),
        ("foo", "1", "1"),
        ("fo", "o1", "1"),
        ("1.0", "1", "1"),
        ("1", "1", "1"),
    ]
    assert catalog.add_partitions(TABLE, [NewPartition(row) for row in rows]).added == len(rows)
    assert {partition.values for partition in catalog.get_partitions(TABLE)} == set(rows)


@pytest.mark.parametrize("key_type", ["string", "int", "char(3)"])
def test_an_empty_text_is_the_null_partition(catalog: Catalog, key_type: str) -> None:
    table = create(catalog, ("a", key_type), ("b", "string"))
    assert catalog.add_partitions(TABLE, [NewPartition(["", "x"]), NewPartition(["", ""])]).added == 2
    for same in (("", "x"), (None, "x"), (NULL_VALUE, "x")):
        with pytest.raises(PartitionAlreadyExistsError):
            catalog.add_partitions(TABLE, [NewPartition(same)])
        partition = catalog.get_partition(TABLE, same)
        assert partition.values == (None, "x")
        assert partition.location == f"{table.location}/a={NULL_VALUE}/b=x"
    assert catalog.get_partition(TABLE, ["", ""]).values == (None, None)
    assert len(list(catalog.get_partitions(TABLE, "a is null"))) == 2
    assert_every_partition_has_its_item(catalog, TABLE)


@pytest.mark.parametrize(
    ("key_type", "value", "code"),
    [
        ("int", "foo", PartitionProblem.INVALID_TYPE),
        ("tinyint", "128", PartitionProblem.INVALID_TYPE),
        ("tinyint", "-129", PartitionProblem.INVALID_TYPE),
        ("bigint", "9223372036854775808", PartitionProblem.INVALID_TYPE),
        ("date", "2023-02-30", PartitionProblem.INVALID_TYPE),
        ("date", "2023-2-3", PartitionProblem.INVALID_TYPE),
        ("timestamp", "2024-02-30 00:00:00", PartitionProblem.INVALID_TYPE),
        ("timestamp", "2024-01-01 00:00:00.123456789", PartitionProblem.INVALID_TYPE),
        ("decimal(5,2)", "1.005", PartitionProblem.INVALID_TYPE),
        ("boolean", "yes", PartitionProblem.INVALID_TYPE),
        ("float", "1_0", PartitionProblem.INVALID_TYPE),
        ("double", "one", PartitionProblem.INVALID_TYPE),
        ("char(3)", "abcd", PartitionProblem.INVALID_TYPE),
        ("varchar(3)", "abcd", PartitionProblem.INVALID_TYPE),
        ("string", "a\x00b", PartitionProblem.UNSUPPORTED_CHARACTER),
        ("string", "\x01", PartitionProblem.UNSUPPORTED_CHARACTER),
        ("char(3)", "\x02", PartitionProblem.UNSUPPORTED_CHARACTER),
        ("string", "\ud800", PartitionProblem.UNSUPPORTED_CHARACTER),
    ],
)
def test_a_value_that_does_not_fit_an_indexed_key_is_refused_by_name(
    catalog: Catalog, key_type: str, value: str, code: PartitionProblem
) -> None:
    create(catalog, ("s", "string"), ("k", key_type), index=("k",))
    batch = [NewPartition(["a", None]), NewPartition(["b", value])]

    with pytest.raises(InvalidPartitionError) as raised:
        catalog.add_partitions(TABLE, batch)

    [refused] = raised.value.refused
    assert (refused.key, refused.value, refused.expected_type) == ("k", value, key_type)
    assert (refused.code, refused.index) == (code, "by_key")
    for named in (TABLE, "'k'", repr(value), key_type, code.value, "by_key"):
        assert named in str(raised.value)
    assert values(catalog) == []

    result = catalog.add_partitions(TABLE, batch, on_invalid=OnInvalid.SKIP)
    assert (result.added, result.refused) == (1, (refused,))
    assert values(catalog) == [("a", None)]
    assert_every_partition_has_its_item(catalog, TABLE)


@pytest.mark.parametrize(
    ("key_type", "value"),
    [("int", "foo"), ("int", "3.0"), ("date", "2024-5-4"), ("char(1)", "abc"), ("boolean", "yes")],
)
def test_a_value_that_is_not_of_its_type_is_refused_without_an_index_too(
    catalog: Catalog, key_type: str, value: str
) -> None:
    create(catalog, ("k", key_type), ("s", "string"))
    with pytest.raises(InvalidPartitionError, match=f"key 'k' has the value '{value}', expected .*, the key's type"):
        catalog.add_partitions(TABLE, [NewPartition((value, "a"))])
    result = catalog.add_partitions(TABLE, [NewPartition((value, "a"))], on_invalid=OnInvalid.SKIP)
    assert (result.added, [refused.value for refused in result.refused]) == (0, [value])
    catalog.add_partitions(TABLE, [NewPartition((None, "a"))])
    with pytest.raises(InvalidPartitionError, match="Nothing was renamed"):
        catalog.alter_partition(TABLE, (None, "a"), rename_to=(value, "a"))
    assert values(catalog) == [(None, "a")]


def test_reserved_characters_are_taken_while_no_index_needs_the_key(catalog: Catalog) -> None:
    create(catalog, ("s", "string"), ("n", "int"))
    odd = ("a\x00\x01\x02b", "1")
    catalog.add_partitions(TABLE, [NewPartition(odd)])
    assert values(catalog) == [odd]
    assert catalog.get_partition(TABLE, odd).values == odd


def test_a_text_that_no_database_can_store_is_refused_also_without_an_index(catalog: Catalog) -> None:
    create(catalog, ("s", "string"), ("n", "int"))
    for row in (["\ud800", "1"], ["a", "\udcff"]):
        with pytest.raises(InvalidPartitionError, match="not valid Unicode"):
            catalog.add_partitions(TABLE, [NewPartition(row)])


def test_a_lacking_value_is_refused_when_its_key_is_indexed(catalog: Catalog, pairs: Table) -> None:
    batch = [NewPartition(["a"], location="/elsewhere"), GOOD]
    with pytest.raises(InvalidPartitionError) as raised:
        catalog.add_partitions(TABLE, batch)
    [refused] = raised.value.refused
    assert (refused.key, refused.value, refused.code) == ("n", None, PartitionProblem.MISSING_VALUE)
    assert "key 'n' has no value" in str(raised.value)
    assert catalog.add_partitions(TABLE, batch, on_invalid=OnInvalid.SKIP).added == 1
    assert values(catalog) == [("a", "1")]


def test_a_lacking_value_is_not_null(catalog: Catalog) -> None:
    create(catalog, ("s", "string"), ("n", "int"))
    catalog.add_partitions(TABLE, [NewPartition(["a"], location="/lacking"), NewPartition(["a", None])])
    assert catalog.get_partition(TABLE, ["a"]).location == "/lacking"
    assert catalog.get_partition(TABLE, ["a", None]).location.endswith(f"/s=a/n={NULL_VALUE}")
    assert [partition.values for partition in catalog.get_partitions(TABLE, "n is null")] == [("a", None)] * 2


def test_a_partition_that_lacks_a_value_needs_a_location(catalog: Catalog) -> None:
    create(catalog, ("s", "string"), ("n", "int"))
    with pytest.raises(InvalidPartitionError, match="give it a location"):
        catalog.add_partitions(TABLE, [NewPartition(["a"])])


def test_too_many_values_are_refused(catalog: Catalog, pairs: Table) -> None:
    with pytest.raises(InvalidPartitionError, match="3 values for 2 partition keys"):
        catalog.add_partitions(TABLE, [NewPartition(["a", "1", "2"])])


def test_a_table_without_partition_keys_takes_no_partitions(catalog: Catalog) -> None:
    create(catalog)
    with pytest.raises(InvalidPartitionError, match="no partition keys"):
        catalog.add_partitions(TABLE, [NewPartition([])])


def test_null_is_written_as_none_or_as_hive_writes_it(catalog: Catalog, pairs: Table) -> None:
    catalog.add_partitions(TABLE, [NewPartition([None, "1"])])
    with pytest.raises(PartitionAlreadyExistsError):
        catalog.add_partitions(TABLE, [NewPartition([NULL_VALUE, "1"])])
    assert values(catalog) == [(None, "1")]
    assert catalog.get_partition(TABLE, [NULL_VALUE, "1"]).location == f"{pairs.location}/s={NULL_VALUE}/n=1"


@pytest.mark.parametrize("given", ["/lake/one/", "s3://bucket/one/"])
def test_a_location_of_its_own_is_kept(catalog: Catalog, pairs: Table, given: str) -> None:
    catalog.add_partitions(TABLE, [NewPartition(["a", "1"], location=given)])
    assert catalog.get_partition(TABLE, ["a", "1"]).location == given.rstrip("/")


def test_a_location_that_is_the_default_follows_nothing_else(catalog: Catalog, pairs: Table) -> None:
    default = f"{pairs.location}/s=a/n=1"
    catalog.add_partitions(TABLE, [NewPartition(["a", "1"], location=default + "/")])
    assert catalog.get_partition(TABLE, ["a", "1"]).location == default


def test_a_location_that_looks_like_a_lacking_value_is_kept(catalog: Catalog) -> None:
    location = f"{create(catalog, ('s', 'string'), ('n', 'int')).location}/s=a/n=%"
    catalog.add_partitions(TABLE, [NewPartition(["a"], location=location)])
    assert [partition.location for partition in catalog.get_partitions(TABLE)] == [location]


@pytest.mark.parametrize("value", [1, ["x"], {}, "\ud800"])
def test_a_property_that_is_no_text_is_refused(catalog: Catalog, pairs: Table, value: Any) -> None:
    with pytest.raises(InvalidRequestError, match="property source"):
        catalog.add_partitions(TABLE, [NewPartition(["a", "1"], properties={"source": value})])


class Counted(dict[str, str]):
    """Properties that count their instances."""

    alive = most = 0

    def __init__(self) -> None:
        super().__init__(source="x")
        Counted.alive += 1
        Counted.most = max(Counted.most, Counted.alive)

    def __del__(self) -> None:
        Counted.alive -= 1


@pytest.mark.first_case
def test_a_large_batch_is_one_transaction_and_is_never_in_memory_as_a_whole(
    catalog: Catalog, pairs: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spooling, "_ROWS_IN_MEMORY", 10_000)

    def many(count: int, last: NewPartition) -> Iterator[NewPartition]:
        for number in range(count):
            yield NewPartition([f"{number:06}", str(number)], properties=Counted())
        yield last

    with pytest.raises(InvalidPartitionError, match="'foo'"):
        catalog.add_partitions(TABLE, many(10_500, NewPartition(["last", "foo"])))
    assert values(catalog) == []

    Counted.most = 0
    result = catalog.add_partitions(TABLE, many(40_000, NewPartition(["000000", "0"])), if_not_exists=True)
    assert (result.added, result.existing) == (40_000, 1)
    assert Counted.most <= 30_000
    assert_every_partition_has_its_item(catalog, TABLE)


def test_the_encoder_packs_values_as_they_are_unpacked(catalog: Catalog) -> None:
    encoder = ValueEncoder(create(catalog, ("s", "string"), ("n", "int")))
    for row in ([], ["a"], ["%/", None], [NULL_VALUE, "foo"], ["", "1"]):
        encoded = encoder.encode(row)
        assert isinstance(encoded, EncodedValues)
        assert encoded.packed == pack_values(row, 2)
