"""Sorted names of many partitions: those of Hive, in their order, whatever characters the values have."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from catalog import Catalog, NewPartition, Table
from catalog.model.partition_names import NULL_VALUE, pack_values
from catalog.partitions import names
from catalog.partitions.names import SortedNames

TABLE = "demo.flights"
# Source: Hive, `FileUtils.charToEscape`.
HIVE_ESCAPES = {*map(chr, range(1, 32)), *"\"#%'*/:=?\\\x7f{[]^"}

KEYS = ("origin", "k_2", "day")
characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0") | st.sampled_from("!/0=%&:z")
texts = st.text(characters, max_size=5)
rows = st.integers(1, 3).flatmap(
    lambda width: st.lists(st.tuples(*[st.none() | texts | st.sampled_from(["a", "a!", "a/"])] * width), max_size=30)
)


def hive_name(keys: tuple[str, ...], values: tuple[str | None, ...]) -> str:
    """Return the name that Hive's `Warehouse.makePartName` makes."""
    escaped = [
        "".join(f"%{ord(character):02X}" if character in HIVE_ESCAPES else character for character in value or "")
        for value in values
    ]
    return "/".join(f"{key}={value or NULL_VALUE}" for key, value in zip(keys, escaped, strict=True))


@given(rows, st.integers(1, 7))
@example([("a!", "b"), ("a", "c"), ("a", "a/"), (None, "")], 1)
@example([], 1)
def test_names_are_those_of_hive_in_their_order(found: list[tuple[str | None, ...]], batch: int) -> None:
    keys = KEYS[: len(found[0])] if found else KEYS
    listed = SortedNames(keys)
    for start in range(0, len(found), batch):
        listed.add(pa.array([pack_values(values, len(keys)) for values in found[start : start + batch]]))
    assert len(listed) == len(found)
    assert listed.as_list() == sorted(hive_name(keys, values) for values in found)


@given(st.lists(st.lists(texts, min_size=1, max_size=3), min_size=1, max_size=9))
def test_missing_values_have_the_name_of_null(found: list[list[str]]) -> None:
    listed = SortedNames(KEYS)
    listed.add(pa.array([pack_values(values, len(KEYS)) for values in found]))
    assert listed.as_list() == sorted(
        hive_name(KEYS, (*values, *[None] * (len(KEYS) - len(values)))) for values in found
    )


def test_names_are_read_in_parts(catalog: Catalog, flights: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "_READ", 5)
    monkeypatch.setattr(names, "_PAGE", 3)
    for count in (0, 4, 1, 8):
        first = len(catalog.sorted_partition_names(TABLE))
        catalog.add_partitions(
            TABLE, [NewPartition([f"a/{number % 3}", str(number), None]) for number in range(first, first + count)]
        )
        listed = catalog.sorted_partition_names(TABLE)
        assert listed.as_list() == sorted(catalog.partition_names(TABLE))
        assert len(listed) == first + count
