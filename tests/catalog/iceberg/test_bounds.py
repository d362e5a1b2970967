from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.types import DecimalType, DoubleType, FloatType
from pyiceberg.utils.truncate import truncate_upper_bound_binary_string, truncate_upper_bound_text_string

from catalog.iceberg import bounds

_SPECIAL = st.sampled_from("aé\x7f\ud7ff\ue000\uffff\U0010ffff")
TEXTS = st.text(st.one_of(st.characters(exclude_categories=["Cs"]), _SPECIAL), max_size=24)


@given(TEXTS)
@example("a" * 17)
@example("é" * 17)
def test_bounds_of_a_text_enclose_it_and_are_short(text: str) -> None:
    encoded = text.encode()
    lower, upper = bounds.cut_text_lower(encoded), bounds.cut_text_upper(encoded)
    assert lower <= encoded
    assert lower == text[:16].encode()
    assert upper is None or (upper >= encoded and len(upper.decode()) <= 16)
    assert upper is not None or text[:16] == "\U0010ffff" * 16


@given(TEXTS)
@example("a" * 17)
@example("é" * 17)
def test_upper_bounds_of_texts_are_those_of_pyiceberg(text: str) -> None:
    expected = truncate_upper_bound_text_string(text, 16)
    # It makes a half of a pair of the last character before them.
    if expected is None or "\ud800" not in expected:
        assert bounds.cut_text_upper(text.encode()) == (None if expected is None else expected.encode())


def test_the_character_after_the_last_before_the_surrogates_is_the_first_after_them() -> None:
    assert bounds.cut_text_upper(("a" * 15 + "\ud7ff" + "b").encode()) == ("a" * 15 + "\ue000").encode()


@given(st.one_of(st.binary(max_size=24), st.lists(st.sampled_from([254, 255]), max_size=20).map(bytes)))
def test_bounds_of_a_binary_enclose_it_and_are_no_wider_than_those_of_pyiceberg(value: bytes) -> None:
    upper, expected = bounds.cut_binary_upper(value), truncate_upper_bound_binary_string(value, 16)
    assert bounds.cut_binary_lower(value) == value[:16]
    assert (upper is None) == (expected is None)
    assert upper is None or (value <= upper <= expected and len(upper) <= 16)


@given(st.integers(-(10**38) + 1, 10**38 - 1))
def test_decimals_are_as_short_as_those_of_pyiceberg(unscaled: int) -> None:
    kind = DecimalType(38, 3)
    value = Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -3))
    assert bounds.decimal_bytes(unscaled) == to_bytes(kind, value)
    assert from_bytes(kind, bounds.decimal_bytes(unscaled)) == value


@pytest.mark.parametrize(
    ("text", "scale", "expected"),
    [(b"1.5", 2, 150), (b"-0.05", 2, -5), (b"7", 0, 7), (b"-3", 3, -3000), (b"1E+2", 1, 1000), (b".5", 1, 5)],
)
def test_a_decimal_text_becomes_its_unscaled_number(text: bytes, scale: int, expected: int) -> None:
    assert bounds.unscaled(text, scale) == expected


@pytest.mark.parametrize("text", [b"1.234", b"", b"\xff", b"one"])
def test_a_text_that_is_no_decimal_of_the_scale_is_unusable(text: bytes) -> None:
    with pytest.raises(bounds.UNUSABLE):
        bounds.unscaled(text, 2)


@pytest.mark.parametrize(("how", "kind"), [(bounds.FLOAT, FloatType()), (bounds.DOUBLE, DoubleType())])
def test_a_zero_is_negative_below_and_positive_above(how: bounds.Bounds, kind: FloatType | DoubleType) -> None:
    for zero in (0.0, -0.0):
        assert how.lower(zero) == to_bytes(kind, -0.0)
        assert how.upper(zero) == to_bytes(kind, 0.0)
