"""The bytes of an index key sort exactly as the typed values sort."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.indexes.keys import MAXIMUM_KEY_BYTES, after_prefix, cut_key, decode_value, is_cut, split_key
from catalog.types.key_types import KeyType, KeyValue, parse_key_type
from tests.support.index_items import encode_key
from tests.support.strategies import TYPE_NAMES, texts, values


def typed(types: list[KeyType], given_values: tuple[Any, ...]) -> list[KeyValue | None]:
    return [
        None if value is None else key_type.parse(str(value))
        for key_type, value in zip(types, given_values, strict=True)
    ]


def expected_order(given_values: tuple[Any, ...]) -> list[tuple[bool, Any]]:
    """Return comparable Python values; null is first."""
    return [(False, 0) if value is None else (True, value) for value in given_values]


@st.composite
def rows(draw: st.DrawFn) -> tuple[list[KeyType], tuple[Any, ...], tuple[Any, ...]]:
    """The types of one to four keys, and two rows of values that often have a common prefix."""
    names = draw(st.lists(st.sampled_from(TYPE_NAMES), min_size=1, max_size=4))
    first = tuple(draw(st.none() | values(name)) for name in names)
    second = tuple(draw(st.just(value) | st.none() | values(name)) for name, value in zip(names, first, strict=True))
    return [parse_key_type(name) for name in names], first, second


@given(st.data())
@pytest.mark.parametrize("name", TYPE_NAMES)
def test_encoded_values_sort_as_the_values_do(name: str, data: st.DataObject) -> None:
    key_type = parse_key_type(name)
    first, second = data.draw(values(name)), data.draw(values(name))
    encoded = [key_type.encode(key_type.parse(str(value))) for value in (first, second)]
    assert (encoded[0] < encoded[1]) == (first < second)  # type: ignore[operator]
    assert (encoded[0] == encoded[1]) == (first == second)


@given(rows())
def test_keys_of_several_values_sort_as_the_rows_do(case: tuple[list[KeyType], Any, Any]) -> None:
    types, first, second = case
    keys = [encode_key(types, typed(types, row)) for row in (first, second)]
    assert (keys[0] < keys[1]) == (expected_order(first) < expected_order(second))
    assert (keys[0] == keys[1]) == (first == second)


@given(rows())
def test_a_key_decodes_to_its_values(case: tuple[list[KeyType], Any, Any]) -> None:
    types, first, _ = case
    values_of_first = typed(types, first)
    pieces = split_key(types, encode_key(types, values_of_first))
    assert list(map(decode_value, types, pieces)) == values_of_first


@given(rows())
def test_the_keys_that_begin_with_equal_values_lie_between_their_prefix_and_what_follows_it(
    case: tuple[list[KeyType], Any, Any],
) -> None:
    types, first, second = case
    for length in range(1, len(types) + 1):
        prefix = encode_key(types[:length], typed(types, first)[:length])
        key = encode_key(types, typed(types, second))
        assert (prefix <= key < after_prefix(prefix)) == (first[:length] == second[:length])


@given(st.integers(MAXIMUM_KEY_BYTES - 4, MAXIMUM_KEY_BYTES + 4), texts(6), texts(6))
def test_cutting_keeps_the_order_of_what_differs_before_the_cut(shared: int, first: str, second: str) -> None:
    string = parse_key_type("string")
    keys = [string.encode("x" * shared + end) for end in (first, second)]
    cut = [cut_key(key) for key in keys]
    assert all(len(key) <= MAXIMUM_KEY_BYTES for key in cut)
    assert (cut[0] < cut[1]) <= (keys[0] < keys[1])
    assert (keys[0] < keys[1]) <= (cut[0] <= cut[1])
    assert all(is_cut(short) or short == whole for short, whole in zip(cut, keys, strict=True))


def test_a_key_of_the_greatest_length_counts_as_cut_because_nobody_can_tell() -> None:
    assert is_cut(b"x" * MAXIMUM_KEY_BYTES)
    assert not is_cut(b"x" * (MAXIMUM_KEY_BYTES - 1))
