"""Strings of partition values are converted to the values of Iceberg's manifests."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes, to_bytes

from catalog.errors import PartitionValueError
from catalog.iceberg.layout import Layout, TypeRules, layout_of
from catalog.iceberg.values import PartitionValue, text_of
from catalog.model import Column, FileFormat, Table
from catalog.types.key_types import KeyValueError
from tests.support.scheme_values import FLOATS, TYPES, normal, plain, stored, values_of
from tests.support.strategies import INTEGER_BITS


def layout(*types: str) -> Layout:
    keys = tuple(Column(f"k{number}", each) for number, each in enumerate(types))
    source = Table("demo", "t", (Column("a", "int"),), keys, FileFormat.PARQUET, "/t")
    return layout_of(source, TypeRules("without zone"))


def value(key_type: str, text: str | None) -> PartitionValue:
    [found] = layout(key_type).partition_record([text])
    return found


@given(data=st.data(), key_type=st.sampled_from(TYPES))
def test_every_value_has_a_text_from_which_it_comes(data: st.DataObject, key_type: str) -> None:
    given_value = value(key_type, plain(data.draw(values_of(key_type))))
    again = value(key_type, text_of(key_type, given_value))
    assert repr(again) == repr(given_value)


@pytest.mark.parametrize(
    ("key_type", "number"), [("date", 3_000_000), ("date", -800_000), ("timestamp", 2**62), ("timestamp", -(2**61))]
)
def test_values_outside_the_calendar_have_no_text(key_type: str, number: int) -> None:
    with pytest.raises(KeyValueError, match="are not in the years"):
        text_of(key_type, number)


@given(data=st.data(), key_type=st.sampled_from(TYPES))
def test_every_value_comes_from_its_text_as_files_store_it(data: st.DataObject, key_type: str) -> None:
    drawn = data.draw(values_of(key_type))
    found, expected = value(key_type, plain(drawn)), stored(drawn)
    if key_type.startswith("char"):
        expected = expected.rstrip(" ")
    if key_type in FLOATS and math.isnan(expected):
        assert isinstance(found, float)
        assert math.isnan(found)
        return
    assert found == expected
    assert type(found) is type(expected)
    if isinstance(expected, Decimal):
        assert str(found) == str(expected) or expected == 0
    # The value survives PyIceberg's serialisation, so it is in PyIceberg's representation.
    field_type = layout(key_type).schema.fields[-1].field_type
    assert from_bytes(field_type, to_bytes(field_type, found)) == expected  # type: ignore[arg-type]


@given(
    number=st.integers(-(1 << 31), (1 << 31) - 1),
    moment=st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)),
    word=st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
)
def test_pyiceberg_shows_a_partition_as_hive_did(number: int, moment: datetime, word: str) -> None:
    made = layout("int", "date", "string", "boolean", "timestamp", "decimal(7,2)")
    amount = Decimal(number % 9_999_999).scaleb(-2)
    texts = [str(number), f"{moment:%Y-%m-%d}".rjust(10, "0"), word, "true", plain(moment), f"{amount:.2f}"]
    record = made.partition_record(texts)
    fields = made.spec.partition_type(made.schema).fields
    shown = [
        field.transform.to_human_string(kind.field_type, each)
        for field, kind, each in zip(made.spec.fields, fields, record, strict=True)
    ]
    assert shown[:4] == texts[:4]
    assert datetime.fromisoformat(shown[4]) == moment
    assert shown[5] == texts[5]


@pytest.mark.parametrize(
    ("key_type", "text", "expected"),
    [
        ("int", "007", 7),
        ("tinyint", "-0128", -128),
        ("long", "+9223372036854775807", 9223372036854775807),
        ("short", "12", 12),
        ("date", "0000-01-01", -719528),
        ("date", "1969-12-31", -1),
        ("date", "9999-12-31", 2932896),
        ("boolean", "TRUE", True),
        ("boolean", "false", False),
        ("timestamp", "1970-01-01", 0),
        ("timestamp", "1969-12-31 23:59:59.5", -500_000),
        ("timestamp", "2024-02-29 00:00:00.0", 1709164800000000),
        ("timestamp with local time zone", "1970-01-01 00:00:01", 1_000_000),
        ("timestamp_ntz", "1970-01-01 00:00:01", 1_000_000),
        ("decimal(5,2)", "1.5", Decimal("1.50")),
        ("dec", "-7", Decimal("-7")),
        ("decimal(38,38)", "-0." + "9" * 38, Decimal("-0." + "9" * 38)),
        ("double", "1e300", 1e300),
        ("float", "1.1", 1.100000023841858),
        ("binary", "aä", b"a\xc3\xa4"),
        ("string", "", ""),
        ("string", "a\x00\x01 /%=", "a\x00\x01 /%="),
        ("char(3)", "ab ", "ab"),
        ("varchar(3)", "ab ", "ab "),
    ],
)
def test_texts_become_typed_values(key_type: str, text: str, expected: Any) -> None:
    found = value(key_type, text)
    assert (found, type(found)) == (expected, type(expected))
    if isinstance(found, Decimal):
        assert found.as_tuple().exponent == expected.as_tuple().exponent


@pytest.mark.parametrize("key_type", [*TYPES, "binary", "timestamp_ltz"])
def test_null_is_null_in_every_type(key_type: str) -> None:
    assert value(key_type, None) is None
    assert value(key_type, "__HIVE_DEFAULT_PARTITION__") is None


@pytest.mark.parametrize(
    ("key_type", "text"),
    [
        ("int", ""),
        ("int", "1.0"),
        ("int", "abc"),
        ("int", "2147483648"),
        ("tinyint", "128"),
        ("bigint", "9223372036854775808"),
        ("date", "2023-02-29"),
        ("date", "2023-2-3"),
        ("date", "20230203"),
        ("boolean", "1"),
        ("timestamp", "2024-01-01 25:00:00"),
        ("timestamp", "2024-01-01 00:00:00.123456789"),
        ("timestamp_ntz", "now"),
        ("decimal(3,1)", "100"),
        ("decimal(3,1)", "1.25"),
        ("double", "one"),
        ("string", "\ud800"),
        ("binary", "\ud800"),
        ("varchar(2)", "abc"),
        ("char(2)", "abc "),
    ],
)
def test_other_texts_are_refused_by_key_value_and_type(key_type: str, text: str) -> None:
    made = layout("string", key_type)
    with pytest.raises(PartitionValueError) as refused:
        made.partition_record(["fine", text])
    assert (refused.value.key, refused.value.value, refused.value.expected_type) == ("k1", text, key_type)
    assert str(refused.value).startswith(f"partition key k1 of type {key_type} has the value {text!r}")
    assert str(refused.value).endswith("make the key a string")


@pytest.mark.parametrize("values", [[], ["1"], ["1", "2", "3"]])
def test_there_is_one_value_for_each_key(values: list[str]) -> None:
    with pytest.raises(ValueError, match="values for 2 partition keys"):
        layout("int", "int").partition_record(values)


@pytest.mark.parametrize("kind", INTEGER_BITS)
def test_integers_reach_to_the_limits_of_their_hive_type(kind: str) -> None:
    limit = 1 << (INTEGER_BITS[kind] - 1)
    assert (value(kind, str(limit - 1)), value(kind, str(-limit))) == (limit - 1, -limit)
    for outside in (limit, -limit - 1):
        with pytest.raises(PartitionValueError, match="outside"):
            value(kind, str(outside))


def test_texts_of_timestamps_are_of_utc() -> None:
    moment = datetime(2024, 7, 1, 12, tzinfo=UTC)
    assert value("timestamp_ltz", "2024-07-01 12:00:00") == int(moment.timestamp()) * 1_000_000
    assert normal("float", 1.1) == value("float", "1.1")
