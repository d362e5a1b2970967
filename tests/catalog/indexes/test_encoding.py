"""Keys encoded in bulk equal keys encoded one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from catalog import Column, FileFormat, IndexState, PartitionIndex, Table
from catalog.errors import RefusedPartition
from catalog.indexes.encoding import encode_index_keys, split_lines
from catalog.indexes.keys import cut_key
from catalog.model.partition_names import given_values, pack_values
from catalog.storage.values import ValueEncoder

KEYS = {"s": "string", "n": "int", "d": "date", "c": "char(3)", "v": "varchar(4)"}
TABLE = Table("demo", "t", (), tuple(Column(*key) for key in KEYS.items()), FileFormat.PARQUET, "/t")

texts = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(["%", "/", "\n", "\x01", "x" * 2000])
VALUES = {
    "s": texts,
    "n": st.integers(-(2**31) - 1, 2**31).map(str) | st.sampled_from(["007", "+7", "", "x"]),
    "d": st.dates().map(str) | st.just("2023-02-30"),
    "c": st.sampled_from(["a", "a  ", "abc", "abcd", "ä€😀"]),
    "v": texts,
}
FITTING = {
    "s": st.text(st.characters(codec="utf-8", exclude_characters="\x00\x01\x02"), max_size=6) | st.just("x" * 2000),
    "n": st.integers(-(2**31), 2**31 - 1).map(str) | st.sampled_from(["007", "+7"]),
    "d": st.dates().map(str),
    "c": st.sampled_from(["a", "a  ", "abc", "ä€😀"]),
    "v": st.sampled_from(["", "%", "a/b", "ä=€\n"]),
}
rows = st.lists(st.tuples(*(st.none() | values for values in VALUES.values())), min_size=1, max_size=8)
fitting_rows = st.lists(st.tuples(*(st.none() | values for values in FITTING.values())), min_size=1, max_size=8)
lengths = st.integers(1, len(KEYS))
index_keys = st.lists(st.sampled_from(list(KEYS)), min_size=1, unique=True).map(tuple)


def keys_one_by_one(index: PartitionIndex, packed: list[str]) -> list[bytes] | None:
    encoder = ValueEncoder(TABLE, [index])
    encoded = [encoder.encode(given_values(each)) for each in packed]
    fit = [cut_key(each.index_keys[0]) for each in encoded if not isinstance(each, RefusedPartition)]
    return fit if len(fit) == len(packed) else None


@given(rows, lengths, index_keys)
def test_keys_of_many_partitions_are_those_of_each(
    values: list[tuple[str | None, ...]], length: int, keys: tuple[str, ...]
) -> None:
    index = PartitionIndex("i", keys, IndexState.CREATING)
    packed = [pack_values(each[:length] if number else each, len(KEYS)) for number, each in enumerate(values)]
    found = encode_index_keys(TABLE, index, split_lines("\n".join(packed)))
    assert (None if found is None else found.to_pylist()) == keys_one_by_one(index, packed)


@given(fitting_rows, index_keys)
def test_all_keys_of_partitions_that_fit_are_encoded(
    values: list[tuple[str | None, ...]], keys: tuple[str, ...]
) -> None:
    index = PartitionIndex("i", keys, IndexState.CREATING)
    packed = [pack_values(each, len(KEYS)) for each in values]
    found = encode_index_keys(TABLE, index, split_lines("\n".join(packed)))
    assert found is not None
    assert found.to_pylist() == keys_one_by_one(index, packed)
