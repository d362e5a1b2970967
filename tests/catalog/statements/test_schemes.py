"""Schemes as documented: the output of SHOW PARTITIONS, the effects of changes, and refusals with their messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import pytest

from catalog.errors import (
    BoundOutsideRangeError,
    BoundsNotAscendingError,
    CatalogError,
    DefaultPartitionError,
    DuplicateListValueError,
    InvalidRequestError,
    InvalidSchemeError,
    LimitExceededError,
    ListGroupMismatchError,
    PartitionNotFoundError,
    PartitionsNotNeighboursError,
    SchemeValueError,
    UnsupportedChangeError,
)
from catalog.model import Column
from catalog.rebalancing.changes import (
    AddPartitions,
    DropPartitions,
    MergePartitions,
    PartitionChange,
    SetPartitionCount,
    SplitPartition,
    change_from_json,
)
from catalog.schemes.model import Scheme
from catalog.schemes.texts import parse_groups
from catalog.tables.schemes import check_table_of_scheme, scheme_from_properties

AREAS = "(China, US),UK ,Japan,(Canada,Russia, Good, NotGood), Korea "


def make(column: str, column_type: str, method: str, **properties: str) -> Scheme:
    return scheme_from_properties(Column(column, column_type), {"PARTITION_TYPE": method, **properties})


def logdates(*bounds: str) -> Scheme:
    return make(
        "logdate", "timestamp", "RANGE", RANGE_INFO=", ".join(bounds or ("2014/01/01", "2015/01/01", "2016/01/01"))
    )


def areas(text: str = AREAS) -> Scheme:
    return make("area", "string", "LIST", LIST_INFO=text)


def numbers(text: str = "10, 20, 30", column_type: str = "int") -> Scheme:
    return make("n", column_type, "RANGE", RANGE_INFO=text)


def codes(text: str = "1, (2, 3), 4") -> Scheme:
    return make("code", "int", "LIST", LIST_INFO=text)


def hashed(count: int = 5) -> Scheme:
    return make("vin", "string", "HASH", PARTITION_NUM=str(count))


def after(scheme: Scheme, *changes: PartitionChange) -> Scheme:
    for change in changes:
        scheme = change.of(scheme).scheme
    return scheme


def add(*items: str) -> AddPartitions:
    return AddPartitions(items)


def split(partition_id: int, *items: str) -> SplitPartition:
    return SplitPartition(partition_id, items)


def drop(*partition_ids: int, with_data: bool = False) -> DropPartitions:
    return DropPartitions(partition_ids, with_data)


def merge(*partition_ids: int) -> MergePartitions:
    return MergePartitions(partition_ids)


# --- as documented --------------------------------------------------------------------------------------------------


def test_hash_partitions_are_one_line() -> None:
    assert hashed().lines() == ["vin = HASH_NUMBER(5)"]
    assert hashed().ids == (0, 1, 2, 3, 4)


def test_list_partitions_are_printed_with_their_values() -> None:
    assert make("country", "string", "list", LIST_INFO="China, (UK, US)").lines() == [
        "0, country = DEFAULT",
        "1, country = China",
        "2, country = UK, US",
    ]


def test_range_partitions_are_printed_with_their_bounds_as_written() -> None:
    assert logdates("2014/01/01", "2015-01-01").lines() == [
        "0, logdate = DEFAULT",
        "1, logdate < 2014/01/01",
        "2, 2014/01/01 <= logdate < 2015-01-01",
    ]


def test_the_parts_of_a_split_stand_where_the_old_partition_stood() -> None:
    """The example of a CarbonData talk: partition 4 with three values is split into three, after 6 was added."""
    scheme = areas("(a, b), c, d, (e, f, g), h")
    scheme = after(scheme, add("i"), split(4, "e", "f", "g"))
    assert scheme.ids == (0, 1, 2, 3, 7, 8, 9, 5, 6)
    assert scheme.lines()[4:7] == ["7, area = e", "8, area = f", "9, area = g"]


def test_a_group_is_split_into_values_and_groups() -> None:
    """CarbonData's test `TestAlterPartitionTable`, with its blanks and its order of values."""
    scheme = after(areas(), split(4, "Canada", "Russia", "(Good, NotGood)"))
    assert scheme.ids == (0, 1, 2, 3, 6, 7, 8, 5)
    assert scheme.lines()[4:7] == ["6, area = Canada", "7, area = Russia", "8, area = Good, NotGood"]


def test_added_groups_continue_the_ids_and_a_dropped_one_is_not_used_again() -> None:
    scheme = after(areas("Asia, America, Europe"), add("OutSpace", "Hi"))
    assert scheme.ids == (0, 1, 2, 3, 4, 5)
    scheme = after(scheme, drop(2, with_data=True))
    assert scheme.ids == (0, 1, 3, 4, 5)
    assert after(scheme, add("(Mars, Venus)", "Pluto")).ids == (0, 1, 3, 4, 5, 6, 7)


def test_ranges_are_added_above_the_last_and_split_inside() -> None:
    scheme = logdates("2014/01/01", "2015/01/01", "2016/01/01")
    scheme = after(scheme, add("2017/01/01", "2018/01/01"))
    assert scheme.ids == (0, 1, 2, 3, 4, 5)
    scheme = after(scheme, split(4, "2016/07/01", "2017/01/01"))
    assert scheme.lines()[4:] == [
        "6, 2016/01/01 <= logdate < 2016/07/01",
        "7, 2016/07/01 <= logdate < 2017/01/01",
        "5, 2017/01/01 <= logdate < 2018/01/01",
    ]


def test_the_rows_of_a_dropped_range_go_to_the_next_and_those_of_the_last_to_the_default_partition() -> None:
    assert drop(2).of(numbers()).targets == {2: (3,)}
    assert drop(1, 2).of(numbers()).targets == {1: (3,), 2: (3,)}
    assert drop(3, 2).of(numbers()).targets == {2: (0,), 3: (0,)}
    assert drop(1, 2, 3).of(numbers()).targets == {1: (0,), 2: (0,), 3: (0,)}
    assert drop(2).of(areas("a, b, c")).targets == {2: (0,)}


def test_with_data_the_rows_go_too() -> None:
    change = drop(3, 1, with_data=True).of(numbers())
    assert (change.targets, change.deleted, change.scheme.ids) == ({}, (1, 3), (0, 2))
    assert change.scheme.lines()[1:] == ["2, n < 20"]


def test_neighbouring_ranges_and_any_groups_are_merged() -> None:
    assert after(numbers(), merge(3, 2)).lines()[1:] == ["1, n < 10", "4, 10 <= n < 30"]
    assert after(areas("a, (b, c), d"), merge(3, 1)).lines()[1:] == ["4, area = a, d", "2, area = b, c"]
    assert merge(3, 2).of(numbers()).targets == {2: (4,), 3: (4,)}


def test_only_the_default_partition_has_rows_of_an_added_one() -> None:
    assert add("40", "50").of(numbers()).targets == {0: (0, 4, 5)}
    assert add("a", "(b, c)").of(areas()).targets == {0: (0, 6, 7)}


@pytest.mark.parametrize(
    ("before", "now", "targets"),
    [
        (2, 4, {0: (0, 2), 1: (1, 3)}),
        (4, 2, {0: (0,), 1: (1,), 2: (0,), 3: (1,)}),
        (2, 3, {0: (0, 1, 2), 1: (0, 1, 2)}),
        (4, 6, {0: (0, 2, 4), 1: (1, 3, 5), 2: (0, 2, 4), 3: (1, 3, 5)}),
        (5, 5, {}),
    ],
)
def test_another_number_of_hash_partitions_moves_rows_where_a_remainder_can_go(
    before: int, now: int, targets: dict[int, tuple[int, ...]]
) -> None:
    assert SetPartitionCount(now).of(hashed(before)).targets == targets


def test_the_documented_hash_does_not_change() -> None:
    """The hash is CRC-32 of the string, with the check value of 123456789; a change would move all existing rows."""
    expected = 0xCBF43926 % 7
    texts = {"int": "123456789", "bigint": "+00123456789", "decimal(12,3)": "123456.789", "char(12)": "123456789  "}
    for column_type, text in texts.items():
        scheme = make("c", column_type, "HASH", NUM_PARTITIONS="7")
        assert scheme.partition_of(scheme.typed(text)) == expected
    day, moment = (make("c", kind, "HASH", NUM_PARTITIONS="9973") for kind in ("date", "timestamp"))
    assert day.partition_of(day.typed("2014/1/2")) == crc32(b"2014-01-02") % 9973
    assert moment.partition_of(moment.typed("1970-01-02 00:00:00.000001")) == crc32(b"86400000001") % 9973
    assert hashed(7).partition_of(None) == 0


@pytest.mark.parametrize(("text", "groups"), [("(a)", [("a",)]), ("a", [("a",)]), ("(a), (b,c)", [("a",), ("b", "c")])])
def test_a_group_may_have_one_value(text: str, groups: Sequence[tuple[str, ...]]) -> None:
    assert parse_groups(text, "LIST_INFO") == groups
    assert areas(text).groups == tuple(enumerate(groups, 1))  # type: ignore[attr-defined]
    assert after(areas("x"), add("(a)")).lines()[-1] == "2, area = a"
    assert after(areas("x, (a, b)"), split(2, "(a)", "(b)")).lines()[-2:] == ["3, area = a", "4, area = b"]


def test_a_backslash_takes_the_meaning_of_a_sign_away() -> None:
    assert parse_groups(r"a\,b, (\(c\), d\\)", "LIST_INFO") == [("a,b",), ("(c)", "d\\")]


def test_changes_are_written_as_statements() -> None:
    assert str(add("it's", "(a, b)")) == "ADD PARTITION ('it''s', '(a, b)')"
    assert str(split(4, "Canada", "(Good, NotGood)")) == "SPLIT PARTITION (4) INTO ('Canada', '(Good, NotGood)')"
    assert str(drop(1, 2, with_data=True)) == "DROP PARTITION (1, 2) WITH DATA"
    assert str(drop(3)) == "DROP PARTITION (3)"
    assert str(merge(1, 2)) == "MERGE PARTITION (1, 2)"
    assert str(SetPartitionCount(9)) == "SET PARTITION_NUM 9"


def test_values_that_a_range_scheme_cannot_confuse_with_others_are_compared_by_type() -> None:
    texts = make("c", "string", "RANGE", RANGE_INFO="10, 9")
    assert [texts.partition_of(each) for each in ("1", "10", "8", "9", "ä")] == [1, 2, 2, 0, 0]
    assert [numbers("9, 10").partition_of(each) for each in (1, 8, 9, 10)] == [1, 1, 2, 0]


# --- refused --------------------------------------------------------------------------------------------------------


def refused(
    error: type[CatalogError], words: Sequence[str], function: Any, *arguments: Any, **named: Any
) -> CatalogError:
    with pytest.raises(error) as caught:
        function(*arguments, **named)
    assert type(caught.value) is error
    for word in words:
        assert word in str(caught.value), str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("bounds", "pair"),
    [
        ("10, 30, 20", ("30", "20")),
        ("10, 10", ("10", "10")),
        ("1, 01", ("1", "01")),
        ("-1, 5, +5, 9", ("5", "+5")),
    ],
)
def test_bounds_that_do_not_ascend_are_named(bounds: str, pair: tuple[str, str]) -> None:
    error = refused(BoundsNotAscendingError, ["RANGE_INFO", *pair, "ascending"], numbers, bounds)
    assert (error.lower, error.upper) == pair  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("column_type", "bounds"),
    [
        ("date", "2015-01-01, 2014/12/31"),
        ("date", "2015-01-01, 2015/1/1"),
        ("timestamp", "2015-01-01, 2015-01-01 00:00:00"),
        ("string", "b, a"),
        ("char(3)", "a, a\\ "),
        ("decimal(10,2)", "1.50, 1.5"),
        ("double", "1e3, 1000"),
        ("boolean", "true, false"),
    ],
)
def test_bounds_ascend_as_the_type_compares(column_type: str, bounds: str) -> None:
    refused(BoundsNotAscendingError, ["RANGE_INFO"], numbers, bounds, column_type)


@pytest.mark.parametrize(
    ("column_type", "values", "named"),
    [
        ("string", "a, b, a", "value a of"),
        ("string", "(a, b), (c, a)", "value a of"),
        ("string", "(a, a)", "value a of"),
        ("int", "1, 01", "value 01 of c is named twice (as 1, too)"),
        ("int", "(1, 2), +2", "(as 2, too)"),
        ("date", "2014-01-01, 2014/1/1", "(as 2014-01-01, too)"),
        ("decimal(5,2)", "1.5, 1.50", "(as 1.5, too)"),
        ("boolean", "true, TRUE", "(as true, too)"),
    ],
)
def test_a_value_named_twice_is_refused_by_type(column_type: str, values: str, named: str) -> None:
    refused(DuplicateListValueError, ["LIST_INFO", named], make, "c", column_type, "LIST", LIST_INFO=values)


@pytest.mark.parametrize("scheme", [numbers(), areas()])
@pytest.mark.parametrize("change", [split(0, "1", "2"), drop(0), drop(0, with_data=True), drop(1, 0), merge(0, 1)])
def test_the_default_partition_stays(scheme: Scheme, change: PartitionChange) -> None:
    """CarbonData treats SPLIT of partition 0 as ADD."""
    refused(DefaultPartitionError, ["partition 0"], change.of, scheme)


@pytest.mark.parametrize("scheme", [numbers(), areas()])
@pytest.mark.parametrize("change", [split(9, "1", "2"), drop(9), drop(1, 9, with_data=True), merge(1, 9), drop(-1)])
def test_an_unknown_partition_is_named(scheme: Scheme, change: PartitionChange) -> None:
    partition_id = next(each for each in (9, -1) if str(each) in str(change))
    refused(PartitionNotFoundError, [f"partition {partition_id} ", "SHOW PARTITIONS"], change.of, scheme)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (split(2, "12", "15"), BoundOutsideRangeError, ["10 <= n < 20", "the last bound of its parts is 15", "20"]),
        (split(2, "12", "25"), BoundOutsideRangeError, ["25", "must be 20"]),
        (split(2, "5", "20"), BoundOutsideRangeError, ["bound 5 is outside it"]),
        (split(2, "10", "20"), BoundOutsideRangeError, ["bound 10 is outside it"]),
        (split(2, "20", "20"), BoundsNotAscendingError, ["SPLIT PARTITION", "20"]),
        (split(2, "12", "25", "20"), BoundsNotAscendingError, ["bound 20 follows 25"]),
        (split(2, "15", "12", "20"), BoundsNotAscendingError, ["bound 12 follows 15"]),
        (split(2, "20"), InvalidSchemeError, ["SPLIT PARTITION", "at least 2"]),
        (split(2), InvalidSchemeError, ["SPLIT PARTITION", "at least 2"]),
        (split(2, "a", "20"), SchemeValueError, ["'a'", "int"]),
        (split(2, " ", "20"), InvalidSchemeError, ["a bound is empty"]),
        (add("30"), BoundsNotAscendingError, ["ADD PARTITION", "30"]),
        (add("25"), BoundsNotAscendingError, ["bound 25 follows 30"]),
        (add("50", "40"), BoundsNotAscendingError, ["bound 40 follows 50"]),
        (add("2147483648"), SchemeValueError, ["2147483648", "int"]),
        (add("4.5"), SchemeValueError, ["4.5"]),
        (add("(40, 50)"), SchemeValueError, ["(40, 50)"]),
        (add(), InvalidSchemeError, ["ADD PARTITION", "at least 1"]),
        (drop(), InvalidSchemeError, ["dropped", "name at least one"]),
        (drop(2, 2), InvalidSchemeError, ["partition 2 is named twice"]),
        (merge(1, 3), PartitionsNotNeighboursError, ["partition 2", "between"]),
        (merge(1), InvalidSchemeError, ["MERGE PARTITION", "at least 2"]),
        (merge(1, 1), InvalidSchemeError, ["partition 1 is named twice"]),
        (SetPartitionCount(4), UnsupportedChangeError, ["SET PARTITION_NUM", "HASH"]),
    ],
    ids=str,
)
def test_changes_of_ranges_that_do_not_fit(
    change: PartitionChange, error: type[CatalogError], words: list[str]
) -> None:
    refused(error, words, change.of, numbers())


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (split(2, "2", "4"), ListGroupMismatchError, ["missing 3", "foreign 4"]),
        (split(2, "2", "(3, 9)"), ListGroupMismatchError, ["missing none", "foreign 9"]),
        (split(2, "02", "(2, 3)"), DuplicateListValueError, ["SPLIT PARTITION", "2"]),
        (split(2, "(2, 3)"), InvalidSchemeError, ["at least 2"]),
        (split(1, "1", "1"), DuplicateListValueError, ["named twice"]),
        (split(2, "x", "3"), SchemeValueError, ["'x'"]),
        (split(2, "((2), 3)", "3"), InvalidSchemeError, ["cannot be nested"]),
        (add("4"), DuplicateListValueError, ["ADD PARTITION", "value 4", "partition 3"]),
        (add("04"), DuplicateListValueError, ["value 04", "partition 3", "code = 4"]),
        (add("(5, 5)"), DuplicateListValueError, ["5"]),
        (add("(5, 6)", "05"), DuplicateListValueError, ["as 5, too"]),
        (add("five"), SchemeValueError, ["'five'"]),
        (add("(5"), InvalidSchemeError, ["not closed"]),
        (add("(5), 6"), InvalidSchemeError, ["one value or one group"]),
        (add("()"), InvalidSchemeError, ["a value is empty"]),
        (add(""), InvalidSchemeError, ["a value is empty"]),
        (add(), InvalidSchemeError, ["ADD PARTITION", "at least 1"]),
        (drop(), InvalidSchemeError, ["dropped", "name at least one"]),
        (drop(3, 3), InvalidSchemeError, ["partition 3 is named twice"]),
        (merge(2), InvalidSchemeError, ["at least 2"]),
        (SetPartitionCount(4), UnsupportedChangeError, ["SET PARTITION_NUM", "HASH"]),
    ],
    ids=str,
)
def test_changes_of_lists_that_do_not_fit(change: PartitionChange, error: type[CatalogError], words: list[str]) -> None:
    refused(error, words, change.of, codes())


@pytest.mark.parametrize(
    "change", [add("1"), split(1, "1", "2"), split(0, "1", "2"), drop(1), drop(0), merge(1, 2)], ids=str
)
def test_hashed_tables_refuse_all_but_another_number(change: PartitionChange) -> None:
    refused(
        UnsupportedChangeError, ["SET PARTITION_NUM", "vin", f"{change.kind.upper()} PARTITION"], change.of, hashed()
    )


@pytest.mark.parametrize("count", [0, -1, 10_001])
def test_the_number_of_hash_partitions_has_limits(count: int) -> None:
    refused(InvalidSchemeError, ["1 to 10,000", str(count)[:2]], SetPartitionCount(count).of, hashed())


@pytest.mark.parametrize(
    ("column_type", "properties", "words"),
    [
        ("int", {}, ["PARTITION_TYPE is missing"]),
        ("int", {"PARTITION_TYPE": "ROUND"}, ["'ROUND'", "HASH, RANGE"]),
        ("int", {"PARTITION_TYPE": "VALUE"}, ["'VALUE'"]),
        ("int", {"PARTITION_TYPE": "HASH"}, ["PARTITION_NUM"]),
        ("int", {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "0"}, ["0"]),
        ("int", {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "-3"}, ["'-3'"]),
        ("int", {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "many"}, ["'many'"]),
        ("int", {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "٣"}, ["PARTITION_NUM"]),
        ("int", {"PARTITION_TYPE": "HASH", "NUM_PARTITIONS": "3", "PARTITION_NUM": "3"}, ["mean the same"]),
        ("double", {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "3"}, ["double", "cannot be hashed"]),
        ("decimal(38,2)", {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "3"}, ["decimal(38,2)", "33"]),
        ("int", {"PARTITION_TYPE": "RANGE"}, ["RANGE_INFO"]),
        ("int", {"PARTITION_TYPE": "RANGE_INTERVAL", "RANGE_INFO": "  ", "INTERVAL": "1"}, ["RANGE_INFO"]),
        (
            "int",
            {"PARTITION_TYPE": "RANGE_INTERVAL", "RANGE_INFO": "5", "INTERVAL": "1", "INTERVAL_START": "6"},
            ["INTERVAL_START is 6", "last bound 5"],
        ),
        ("int", {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "1,,2"}, ["a value is empty"]),
        ("int", {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "1, (2, 3)"}, ["(2, 3) is a group"]),
        ("int", {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "1", "LIST_INFO": "2"}, ["LIST_INFO", "remove it"]),
        ("int", {"PARTITION_TYPE": "LIST"}, ["LIST_INFO"]),
        ("int", {"PARTITION_TYPE": "LIST", "LIST_INFO": "(1, (2, 3))"}, ["cannot be nested"]),
        ("int", {"PARTITION_TYPE": "LIST", "LIST_INFO": "(1, 2"}, ["not closed"]),
        ("int", {"PARTITION_TYPE": "LIST", "LIST_INFO": "1)"}, ["no opening one"]),
        ("int", {"PARTITION_TYPE": "LIST", "LIST_INFO": "(1) 2"}, ["a comma is missing"]),
        ("int", {"PARTITION_TYPE": "LIST", "LIST_INFO": "1 (2)"}, ["cannot be nested"]),
        ("int", {"PARTITION_TYPE": "LIST", "LIST_INFO": "1", "INTERVAL": "1"}, ["INTERVAL"]),
        ("array<int>", {"PARTITION_TYPE": "LIST", "LIST_INFO": "1"}, ["array<int>", "not comparable"]),
        ("binary", {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "3"}, ["binary", "not comparable"]),
        ("binary", {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "3"}, ["binary", "not comparable"]),
    ],
)
def test_properties_that_make_no_scheme(column_type: str, properties: dict[str, str], words: list[str]) -> None:
    refused(InvalidSchemeError, words, scheme_from_properties, Column("c", column_type), properties)


@pytest.mark.parametrize(
    ("column_type", "text"),
    [
        ("int", "1.5"),
        ("tinyint", "128"),
        ("date", "2014-02-30"),
        ("date", "yesterday"),
        ("timestamp", "2014-01-01 25:00:00"),
        ("decimal(4,2)", "100"),
        ("decimal(4,2)", "1.234"),
        ("char(2)", "abc"),
        ("varchar(2)", "abc"),
        ("boolean", "yes"),
        ("double", "one"),
        ("string", "a\ud800"),
    ],
)
def test_bounds_and_values_are_of_the_columns_type(column_type: str, text: str) -> None:
    for method, name in (("RANGE", "RANGE_INFO"), ("LIST", "LIST_INFO")):
        refused(SchemeValueError, ["column c", column_type], make, "c", column_type, method, **{name: text})


def test_too_many_partitions_are_refused() -> None:
    many = ", ".join(map(str, range(10_000)))
    refused(LimitExceededError, ["10,001", "10,000"], numbers, many)
    refused(LimitExceededError, ["10,001"], make, "c", "int", "LIST", LIST_INFO=many)
    full = numbers(", ".join(map(str, range(9_999))))
    assert len(full.ids) == 10_000
    refused(LimitExceededError, ["10,001"], add("9999").of, full)
    refused(
        LimitExceededError, ["10,001"], split(2, "0.5", "1").of, numbers(", ".join(map(str, range(9_999))), "double")
    )


def test_a_change_that_nobody_knows_is_refused() -> None:
    refused(InvalidRequestError, ["'rotate'", "add, split"], change_from_json, {"change": "rotate"})
    refused(InvalidRequestError, ["partition_id"], change_from_json, {"change": "split", "items": ["a"]})


@pytest.mark.parametrize(
    ("columns", "keys", "file_format", "words"),
    [
        ("n int, a int", "k int", "parquet", ["cannot have both", "k"]),
        ("n int", "", "orc", ["Parquet", "orc"]),
        ("n int, _partition_id int", "", "parquet", ["_partition_id"]),
        ("a int", "", "parquet", ["n"]),
    ],
)
def test_a_table_that_no_scheme_can_place_is_refused(
    columns: str, keys: str, file_format: str, words: list[str]
) -> None:
    found = [[Column(*each.split()) for each in text.split(", ") if each] for text in (columns, keys)]
    refused(InvalidSchemeError, words, check_table_of_scheme, numbers(), *found, file_format)
