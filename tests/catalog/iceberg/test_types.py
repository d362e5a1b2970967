"""Hive types are converted to the same Iceberg types as in Trino's migrate, or refused with a reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from catalog.iceberg.types import HiveTypeError, Loss, convert, spelled
from catalog.statements.model import CreateTable
from catalog.statements.parser import parse_statement
from tests.support.hive_types import PLAIN, Sample, samples


def converted(text: str) -> IcebergType:
    return convert(text, TimestamptzType()).type


@given(sample=samples())
def test_types_of_any_depth_are_read_as_a_metastore_writes_them(sample: Sample) -> None:
    assert converted(sample.hive) == sample.iceberg
    assert converted(f" {sample.statement.replace('<', ' < ').upper()} ") == sample.iceberg


@given(sample=samples())
def test_what_a_statement_makes_of_a_type_is_the_same_type(sample: Sample) -> None:
    statement = parse_statement(f"CREATE TABLE t (c {sample.statement})")
    assert isinstance(statement, CreateTable)
    assert converted(statement.columns[0].type) == converted(sample.statement) == sample.iceberg


@pytest.mark.parametrize(
    ("alias", "expected"),
    [
        ("long", LongType()),
        ("integer", IntegerType()),
        ("short", IntegerType()),
        ("byte", IntegerType()),
        ("real", FloatType()),
        ("double  precision", DoubleType()),
        ("decimal", DecimalType(10, 0)),
        ("dec(5)", DecimalType(5, 0)),
        ("Numeric ( 12 , 2 )", DecimalType(12, 2)),
        ("timestamp with local time zone", TimestamptzType()),
        ("timestamp with local time zone('US/Pacific')", TimestamptzType()),
        ("timestamp_ltz", TimestamptzType()),
        ("timestamp_ntz", TimestampType()),
        ("varchar ( 7 )", StringType()),
    ],
)
def test_types_have_other_names_too(alias: str, expected: IcebergType) -> None:
    assert converted(alias) == expected
    nested = converted(f"struct<f:{alias} comment 'c'>")
    assert isinstance(nested, StructType)
    assert nested.fields[0].field_type == expected


def test_only_timestamp_itself_is_what_the_rules_say() -> None:
    for told in (TimestampType(), TimestamptzType()):
        assert convert("timestamp", told).type == told
        assert convert("timestamp_ntz", told).type == TimestampType()
        assert convert("timestamp with local time zone", told).type == TimestamptzType()


@pytest.mark.parametrize(
    ("text", "names", "comments"),
    [
        ("struct<a:int comment 'one',b:int>", ["a", "b"], ["one", None]),
        ("struct<a:int COMMENT'it''s > , fine'>", ["a"], ["it's > , fine"]),
        (r"struct<a:int comment 'it\'s \\'>", ["a"], ["it's \\"]),
        ("""struct<a:int comment "say ""hi"", it's">""", ["a"], ["""say "hi", it's"""]),
        ("struct<a:int comment ''>", ["a"], [""]),
        ("struct<comment:string comment 'c'>", ["comment"], ["c"]),
        ("struct<`a``b`:int,` c`:int>", ["a`b", " c"], [None, None]),
        ("struct<a.b:int, c d :int,A-B:int>", ["a.b", "c d", "a-b"], [None, None, None]),
        ("struct<`x:y,<z>`:int>", ["x:y,<z>"], [None]),
    ],
)
def test_fields_have_names_of_any_characters_and_comments(
    text: str, names: list[str], comments: list[str | None]
) -> None:
    found = converted(text)
    assert isinstance(found, StructType)
    assert [each.name for each in found.fields] == names
    assert [each.doc for each in found.fields] == comments
    assert not any(each.required for each in found.fields)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("void", "version 2 of Iceberg's format has no type void"),
        ("UNKNOWN", "no type unknown"),
        ("variant", "no type variant"),
        ("uniontype<int,struct<a:int>>", "Iceberg has no type uniontype"),
        ("interval_year_month", "no type interval_year_month"),
        ("interval day  to second", "no type interval day to second"),
        ("struct<a:int,b:map<string,array<void>>>", r"its field b\.value\.element: version 2"),
        ("map<interval_day_time,int>", "its field key: Iceberg has no type interval_day_time"),
        ("geography", "type geography is not known; use string"),
        ("list<int>", "type list is not known"),
        ("decimal(39,0)", r"decimal\(39,0\) is not valid; use 1 to 38 digits"),
        ("decimal(4,5)", "is not valid; use 1 to 38 digits"),
        ("array<char(256)>", "its field element: type char has a length from 1 to 255, not 256"),
        ("char", "type char needs a length"),
        ("int(11)", "type int takes no size"),
        ("array", "needs the types of its parts"),
        ("array<int", "its end is missing"),
        ("array<int>>", "'>' cannot be read"),
        ("array<int,int>", "',int>' cannot be read"),
        ("map<int>", "'>' cannot be read"),
        ("struct<>", "'>' cannot be read"),
        ("struct<a>", "'>' cannot be read"),
        ("struct<a:int b:int>", "type int b is not known"),
        ("struct<a:int comment b>", "'comment b>' cannot be read"),
        ("struct<`a:int>", "'`a:int>' cannot be read"),
        ("int int", "type int int is not known"),
        ("int comment 'x'", "cannot be read"),
        ("", "its end is missing"),
        ("array<" * 51 + "int" + ">" * 51, "nested more than 50 levels deep"),
        ("array<" * 100_000, "nested more than 50 levels deep"),
    ],
)
def test_what_iceberg_cannot_hold_is_refused_with_the_reason(text: str, problem: str) -> None:
    with pytest.raises(HiveTypeError, match=problem):
        converted(text)


def test_timestamps_are_refused_where_nothing_says_what_they_are() -> None:
    for text in ("timestamp", "array<timestamp>"):
        with pytest.raises(HiveTypeError, match="'with zone' or 'without zone'"):
            convert(text, None)
    assert convert("timestamp_ntz", None).type == TimestampType()


def test_what_gets_lost_is_known_at_any_depth() -> None:
    text = "map<char(3),struct<a:array<tinyint>,`varchar(2)`:timestamp>>"
    assert convert(text, TimestamptzType()).losses == {Loss.BLANKS, Loss.RANGE, Loss.ZONE}
    assert convert("array<varchar(3)>", None).losses == {Loss.LENGTH}
    assert convert("struct<char:string,tinyint:int,a:timestamp>", TimestampType()).losses == set()


def test_a_type_is_spelled_for_people_as_in_the_specification_and_without_ids() -> None:
    text = "struct<a:array<decimal(4,1)>,b:map<char(2),timestamp>>"
    assert spelled(converted(text)) == "struct<a: list<decimal(4, 1)>, b: map<string, timestamptz>>"
    assert {spelled(each) for each in PLAIN.values()} >= {"int", "long", "timestamptz", "decimal(38, 38)"}
