"""Typed values of columns: order-preserving bytes, and round trips of strings."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.errors import InvalidKeyTypeError
from catalog.indexes.keys import after_prefix
from catalog.types.column_types import named_column_type, parse_column_type
from catalog.types.key_types import FloatingType, KeyType, KeyValueError
from tests.support.scheme_values import TYPES, order, plain, spellings, values_of


def column_type(name: str) -> KeyType:
    found = parse_column_type(name)
    assert found is not None
    return found


def encoded(name: str, value: Any) -> bytes:
    found = column_type(name)
    return found.encode(found.parse(plain(value)))


@given(data=st.data(), name=st.sampled_from(TYPES))
def test_bytes_sort_as_the_values_do(data: st.DataObject, name: str) -> None:
    one, two = data.draw(values_of(name)), data.draw(values_of(name))
    first, second = encoded(name, one), encoded(name, two)
    assert (first < second) == (order(one) < order(two))
    assert (first == second) == (order(one) == order(two))
    assert b"\x01" <= first < b"\xff"
    if first != second:
        # What a single value's range ends with, is not above the next value.
        assert (after_prefix(first) <= second) == (order(one) < order(two))


@given(data=st.data(), name=st.sampled_from(TYPES))
def test_values_come_back_from_bytes_and_from_texts(data: st.DataObject, name: str) -> None:
    value, found = data.draw(values_of(name)), column_type(name)
    typed = found.parse(plain(value))
    for text in [plain(value), *spellings(value)]:
        assert found.parse(text) == found.parse_literal(text) == typed
    key = found.encode(typed)
    assert found.decode(key + b"\x01rest", 0) == (typed, len(key))
    assert found.decode(b"\x00\x02" + key, 2) == (typed, len(key) + 2)
    assert found.width in (None, len(key))


@given(texts=st.lists(st.text(st.sampled_from("\x00\x01\x02\x03aä\U0010ffff"), max_size=4), min_size=2, max_size=2))
def test_texts_of_any_characters_sort_by_code_point(texts: list[str]) -> None:
    one, two = texts
    assert (encoded("string", one) < encoded("string", two)) == (one < two)
    start = column_type("string").encode_start(one)  # type: ignore[attr-defined]
    assert encoded("string", two).startswith(start) == two.startswith(one)


def test_numbers_sort_from_minus_infinity_to_nan() -> None:
    found = column_type("double")
    assert isinstance(found, FloatingType)
    ascending = [-math.inf, -1e300, -5e-324, 0.0, 5e-324, 1e-300, 1.0, 1.7976931348623157e308, math.inf, math.nan]
    keys = [found.encode(found.ordered(number)) for number in ascending]
    assert keys == sorted(set(keys))
    assert found.ordered(-0.0) == found.ordered(0.0)
    assert [found.number(found.ordered(number)) for number in ascending[:-1]] == ascending[:-1]
    assert math.isnan(found.number(found.ordered(-math.nan)))


def test_a_float_is_the_nearest_that_there_is() -> None:
    found = column_type("float")
    assert found.parse("1.1") == found.parse("1.10000002384")
    assert found.parse_literal("1e300") == found.parse("inf")
    assert column_type("double").parse("1.1") != column_type("double").parse("1.10000002384")


@pytest.mark.parametrize(
    ("name", "text", "same"),
    [
        ("decimal(5,2)", "1.5", "1.50"),
        ("decimal(5,2)", "150e-2", "+1.500"),
        ("decimal(5,2)", "-0", "0"),
        ("decimal(5,2)", "0e-50", "0"),
        ("decimal(5,2)", f"1.5{'0' * 44}", "1.5"),
        ("decimal(5,2)", "1E+2", "100"),
        ("char(3)", "ab", "ab "),
        ("char(3)", "", "  "),
        ("boolean", "TRUE", " true"),
        ("date", "2014/1/5", "2014-01-05"),
        ("date", " 2014-01-05 00:00:00.000", "2014-01-05"),
        ("timestamp", "2014/01/05", "2014-01-05 00:00:00.000000"),
        ("timestamp", "2014-01-05T10:30Z", "2014-1-5 10:30:00"),
        ("timestamp", "2014-01-05 10:30:00+01:00", "2014-01-05 09:30:00"),
        ("timestamp", "2014-01-05 23:30:00.5-0130", "2014-01-06 01:00:00.500"),
        ("timestamp", "2014-01-05 10:30:00 UTC", "2014-01-05 10:30:00"),
    ],
)
def test_one_value_has_many_texts(name: str, text: str, same: str) -> None:
    assert column_type(name).parse(text) == column_type(name).parse(same)


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("decimal(3,1)", ["100", "1.25", "one", "", "1e99", "1e-50", "0e50", "nan", "0x1", "1_0", "٣"]),
        ("date", ["2014-02-29", "2014-13-01", "2014", "201401", "14-1-1", "2014-01-01 00:00:01", ""]),
        (
            "timestamp",
            [
                *("2014-02-29", "2014-01-01 24:00:00", "2014-01-01 10", "now", "0000-01-01", "12:30", "2014"),
                *("2014-01-01 00:00:00.1234567", "2014-01-01 00:00:00 Europe/Berlin", "2014-01-01 00:00:00+25:00"),
            ],
        ),
        ("boolean", ["1", "yes", ""]),
        ("double", ["", "one", "1,5", "1_0", "\u0663", "0x1"]),
        ("char(2)", ["abc", "a\ud800"]),
        ("varchar(2)", ["abc", "a c", "\udfff"]),
    ],
)
def test_other_texts_are_no_values(name: str, texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(KeyValueError):
            column_type(name).parse(text)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("DECIMAL", "decimal(10,0)"),
        ("decimal(4)", "decimal(4,0)"),
        ("numeric( 38 , 38 )", "decimal(38,38)"),
        ("Double Precision", "double"),
        ("real", "float"),
        ("long", "bigint"),
        ("CHAR( 7 )", "char(7)"),
        ("Timestamp", "timestamp"),
    ],
)
def test_types_have_aliases(written: str, name: str) -> None:
    assert str(column_type(written)) == name


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("long", "bigint"),
        ("double  precision", "double"),
        ("dec", "decimal(10,0)"),
        ("varchar( 3 )", "varchar(3)"),
        ("timestamp_ntz", "timestamp_ntz"),
        ("array< short >", "array<smallint>"),
        ("map<string, array<real>>", "map<string,array<float>>"),
        (
            "struct<a:integer comment 'a, b', `odd name`:numeric(5,2),c:struct<d:byte>>",
            "struct<a:int comment 'a, b',`odd name`:decimal(5,2),c:struct<d:tinyint>>",
        ),
    ],
)
def test_types_of_columns_have_the_names_that_all_readers_know(written: str, name: str) -> None:
    assert named_column_type("c", written) == named_column_type("c", name) == name


@pytest.mark.parametrize("name", ["binary", "array<int>", "map<string,int>", "struct<a:int>", "interval", "intx", ""])
def test_types_whose_values_do_not_compare_are_none(name: str) -> None:
    assert parse_column_type(name) is None


@pytest.mark.parametrize("name", ["decimal(39)", "decimal(0)", "decimal(5,6)", "char(0)", "char(256)", "varchar(0)"])
def test_types_of_wrong_sizes_are_refused(name: str) -> None:
    with pytest.raises(InvalidKeyTypeError, match=name.split("(")[0]):
        parse_column_type(name)


@given(data=st.data(), name=st.sampled_from(["decimal(38,0)", "decimal(38,38)", "decimal(10,2)"]))
def test_a_decimal_is_stored_as_a_whole_number(data: st.DataObject, name: str) -> None:
    value = data.draw(values_of(name))
    assert isinstance(value, Decimal)
    found = column_type(name)
    whole = int("".join(map(str, value.as_tuple().digits))) * (-1 if value < 0 else 1)
    typed = found.parse(plain(value))
    assert found.unscaled(typed) == whole  # type: ignore[attr-defined]
    assert found.scaled(whole) == typed  # type: ignore[attr-defined]
    assert Decimal(found.format(typed)) == value
