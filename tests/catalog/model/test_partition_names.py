"""Partition values as strings, in paths and packed."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from catalog.model.partition_names import (
    NULL_VALUE,
    escape,
    given_values,
    pack_values,
    parse_partition_path,
    partition_path,
    unescape,
    unpack_values,
)

# All strings that a database can store: Unicode without lone surrogates.
any_text = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("%/=\x00\x1f\x7f\\'\"{}[]^:?#* 25F"), max_size=20
)
any_values = st.lists(st.none() | any_text | st.sampled_from(["", "%", NULL_VALUE + "x"]), max_size=4).map(tuple)


@given(any_text)
@example("%")
@example("%2F")
@example("100%")
@example("\x00\x01\x1f\x7f")
def test_unescaping_gives_back_what_was_escaped(text: str) -> None:
    assert unescape(escape(text)) == text


@given(any_text)
def test_an_escaped_text_is_one_part_of_a_path_without_control_characters(text: str) -> None:
    escaped = escape(text)
    assert "/" not in escaped
    assert "=" not in escaped
    assert escaped != "%"
    assert all(character >= " " for character in escaped)


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a/b", "a%2Fb"),
        ("12:30", "12%3A30"),
        ("50%", "50%25"),
        ("\n", "%0A"),
        ("k=v", "k%3Dv"),
        ("{a}", "%7Ba}"),
        ("a b", "a b"),
        ("Zürich", "Zürich"),
    ],
)
def test_a_text_is_escaped_as_hive_does_it(text: str, escaped: str) -> None:
    assert escape(text) == escaped


def test_a_per_cent_sign_that_starts_no_escape_is_kept() -> None:
    assert unescape("5% of %zz %4") == "5% of %zz %4"


@given(any_values, st.integers(0, 2))
def test_unpacking_gives_back_what_was_packed(values: tuple[str | None, ...], lacking: int) -> None:
    key_count = max(len(values) + lacking, 1)
    packed = pack_values(values, key_count)
    expected = tuple(None if value in ("", NULL_VALUE) else value for value in values)
    assert unpack_values(packed) == expected + (None,) * (key_count - len(values))
    assert given_values(packed) == expected


@given(st.lists(st.tuples(any_text.filter(bool), st.none() | any_text), min_size=1, max_size=4))
def test_a_path_names_its_keys_and_values(pairs: list[tuple[str, str | None]]) -> None:
    path = partition_path([key for key, _ in pairs], [value for _, value in pairs])
    expected = [(key, None if value in ("", NULL_VALUE) else value) for key, value in pairs]
    assert parse_partition_path(f"warehouse/demo/{path}") == expected


def test_an_empty_text_is_null_because_no_reader_of_hive_tables_can_read_its_folder() -> None:
    assert partition_path(("a", "b"), ("", "x")) == f"a={NULL_VALUE}/b=x"
    assert parse_partition_path("t/a=/b= ") == [("a", None), ("b", " ")]
    assert pack_values(("", "x"), 2) == pack_values((None, "x"), 2)


def test_null_and_lacking_values_are_shown_as_hive_shows_null() -> None:
    assert partition_path(("a", "b", "c"), ("x", None)) == f"a=x/b={NULL_VALUE}/c={NULL_VALUE}"
