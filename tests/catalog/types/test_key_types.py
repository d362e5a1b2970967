"""Valid strings of key types."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.errors import InvalidKeyTypeError, PartitionProblem
from catalog.types.key_types import KeyValueError, parse_key_type
from tests.support.strategies import INTEGER_BITS, TEXTS, TYPE_NAMES, days, values


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("long", "bigint"),
        ("INTEGER", "int"),
        (" BigInt ", "bigint"),
        ("Char( 3 )", "char(3)"),
        ("VARCHAR(65535)", "varchar(65535)"),
        ("char(255)", "char(255)"),
        ("string", "string"),
        ("Timestamp", "timestamp"),
        ("BOOLEAN", "boolean"),
        ("real", "float"),
        ("Double  Precision", "double"),
        ("decimal", "decimal(10,0)"),
        ("DEC( 7 )", "decimal(7,0)"),
        ("numeric(38 , 38)", "decimal(38,38)"),
        ("short", "smallint"),
        ("BYTE", "tinyint"),
    ],
)
def test_types_are_read_without_regard_to_case_and_aliases(written: str, name: str) -> None:
    assert str(parse_key_type(written)) == name


@pytest.mark.parametrize(
    "written",
    [
        *("char(0)", "char(256)", "varchar(0)", "varchar(65536)", "char", "", "int(3)", "double(3)", "timestamp(3)"),
        *("decimal(0)", "decimal(39)", "decimal(5,6)", "decimal(1,2,3)", "binary", "array<int>", "struct<a:int>"),
        *("timestamp with local time zone", "timestamp_ltz", "interval day to second", "void"),
    ],
)
def test_other_types_are_refused_by_name(written: str) -> None:
    with pytest.raises(InvalidKeyTypeError) as refused:
        parse_key_type(written)
    assert repr(written) in str(refused.value)


@pytest.mark.parametrize("name", INTEGER_BITS)
def test_an_integer_type_ends_at_its_limits(name: str) -> None:
    key_type, limit = parse_key_type(name), 1 << (INTEGER_BITS[name] - 1)
    assert [key_type.parse(str(value)) for value in (-limit, limit - 1)] == [-limit, limit - 1]
    for outside in (-limit - 1, limit):
        with pytest.raises(KeyValueError, match=f"{outside} is outside") as refused:
            key_type.parse(str(outside))
        assert refused.value.problem is PartitionProblem.INVALID_TYPE


@pytest.mark.parametrize(
    ("text", "value"), [("1", 1), ("01", 1), ("+1", 1), ("-0", 0), ("-007", -7), (" 4", 4), ("4\t", 4)]
)
def test_an_integer_may_have_a_sign_leading_zeros_and_blanks(text: str, value: int) -> None:
    assert parse_key_type("int").parse(text) == value


@pytest.mark.parametrize(
    "text", ["foo", "", " ", "1 1", "\u00a01", "1.0", "1e3", "0x1", "\u0661", "\uff11", "1_000", "--1", "9" * 60]
)
def test_other_texts_are_no_integers(text: str) -> None:
    with pytest.raises(KeyValueError) as refused:
        parse_key_type("bigint").parse(text)
    assert refused.value.problem is PartitionProblem.INVALID_TYPE


@pytest.mark.parametrize(
    "text",
    [
        *("0000-01-01", "0000-02-29", "0004-02-29", "1582-10-10", "1900-02-28", "2000-02-29", "2024-02-29"),
        "9999-12-31",
    ],
)
def test_days_of_the_proleptic_gregorian_calendar_are_dates(text: str) -> None:
    key_type = parse_key_type("date")
    assert key_type.format(key_type.parse(text)) == f"'{text}'"


@pytest.mark.parametrize(
    "text",
    [
        *("2023-02-30", "2023-02-29", "1900-02-29", "2100-02-29", "2023-04-31", "2023-13-01", "2023-00-10"),
        *("2023-01-00", "2023-01-32", "10000-01-01", "-001-01-01", "2023-1-1", "20230101", "2023-01-01 ", "foo", ""),
        *("2023-01-01T00:00:00", "\uff12023-01-01"),
    ],
)
def test_other_texts_are_no_dates(text: str) -> None:
    with pytest.raises(KeyValueError) as refused:
        parse_key_type("date").parse(text)
    assert refused.value.problem is PartitionProblem.INVALID_TYPE


@given(days(), days())
def test_typed_dates_order_as_the_calendar_does(first: object, second: object) -> None:
    key_type = parse_key_type("date")
    assert (key_type.parse(str(first)) < key_type.parse(str(second))) == (first < second)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("name", "text"), [("char(3)", "abc"), ("char(3)", "abc  "), ("varchar(3)", "a b"), ("char(2)", "😀😀")]
)
def test_a_text_up_to_the_length_in_characters_fits(name: str, text: str) -> None:
    assert parse_key_type(name).parse(text) == (text.rstrip(" ") if name.startswith("char") else text)


@pytest.mark.parametrize(("name", "text"), [("char(3)", "abcd"), ("varchar(3)", "abc "), ("varchar(1)", "😀😀")])
def test_a_longer_text_does_not_fit(name: str, text: str) -> None:
    with pytest.raises(KeyValueError, match="characters, more than") as refused:
        parse_key_type(name).parse(text)
    assert refused.value.problem is PartitionProblem.INVALID_TYPE


@pytest.mark.parametrize("name", ["string", "char(9)", "varchar(9)"])
@pytest.mark.parametrize("character", ["\x00", "\x01", "\x02", "\udfff"])
def test_reserved_characters_are_unsupported(name: str, character: str) -> None:
    with pytest.raises(KeyValueError, match=f"U\\+{ord(character):04X}") as refused:
        parse_key_type(name).parse(f"a{character}b")
    assert refused.value.problem is PartitionProblem.UNSUPPORTED_CHARACTER


@given(st.data())
@pytest.mark.parametrize("name", TYPE_NAMES)
def test_each_value_of_a_type_is_read_from_its_text(name: str, data: st.DataObject) -> None:
    value, key_type = data.draw(values(name)), parse_key_type(name)
    parsed = key_type.parse(str(value))
    assert parsed == value or name not in (*INTEGER_BITS, *TEXTS)
    assert key_type.parse_literal(str(value)) == key_type.comparable(str(value)) == parsed


@pytest.mark.parametrize(
    ("name", "text", "same"),
    [
        ("timestamp", "2024-01-01 00:00:00", "2024-01-01 00:00:00.0"),
        ("timestamp", "2024-01-01 00:00:00", "2024-01-01"),
        ("timestamp", "2024-01-01 12:30:00.5", "2024-01-01T12:30:00.500000000"),
        ("decimal(5,2)", "1.0", "1.00"),
        ("decimal(5,2)", "-0", "0.00"),
        ("decimal(5,2)", "1E+2", "+0100"),
        ("boolean", "true", "TRUE"),
        ("double", "1", "1.0e0"),
        ("double", "-0.0", "0"),
        ("double", "NaN", " nan"),
        ("double", "Infinity", "inf"),
        ("float", "0.1", "0.100000001490116119"),
    ],
)
def test_one_value_has_many_texts(name: str, text: str, same: str) -> None:
    key_type = parse_key_type(name)
    assert key_type.parse(text) == key_type.parse(same)
    # What explains and shows it says the same value, as the filter language reads it.
    assert key_type.parse_literal(key_type.format(key_type.parse(text)).strip("'")) == key_type.parse(text)


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        (
            "timestamp",
            [
                *(
                    "2024-02-30",
                    "2024-02-29 24:00:00",
                    "2024-01-01 00:00:60",
                    "2024/01/01 00:00:00",
                    "2024-1-1 00:00:00",
                ),
                *("2024-01-01 00:00", "2024-01-01 00:00:00Z", "2024-01-01 00:00:00.", " 2024-01-01", "0000-01-01", ""),
                *("2024-01-01 00:00:00.1234567", "2024-01-01 00:00:00.0000000001", "now", "1704067200"),
            ],
        ),
        ("decimal(5,2)", ["1000", "0.001", "1_0", "1,5", "NaN", "0x1", "\u0663", "1e999", "."]),
        ("boolean", ["1", "0", "t", "yes", "null", ""]),
        ("double", ["1_0", "1,5", "0x1p3", "1f", "1.0d", "\u0663", "e5", ".", "", "one", "-nan"]),
        ("float", ["1_000.0", "nano", "--1", "1e39", "-1e400"]),
    ],
)
def test_other_texts_are_no_values(name: str, texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(KeyValueError) as refused:
            parse_key_type(name).parse(text)
        assert refused.value.problem is PartitionProblem.INVALID_TYPE


def test_a_literal_of_a_timestamp_may_be_written_shorter() -> None:
    key_type = parse_key_type("timestamp")
    expected = key_type.parse("2024-01-05 10:30:00")
    for text in ("2024-1-5 10:30", "2024/01/05 10:30:00.0", "2024-01-05T10:30Z"):
        assert key_type.parse_literal(text) == expected


def test_numbers_sort_from_minus_infinity_to_nan() -> None:
    key_type = parse_key_type("double")
    keys = [key_type.encode(key_type.parse(text)) for text in ("-inf", "-1e300", "-5e-324", "0", "1", "inf", "nan")]
    assert keys == sorted(set(keys))
