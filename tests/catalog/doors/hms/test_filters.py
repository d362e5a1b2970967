"""Filters find the same partitions through the door as in a real Hive Metastore."""

from __future__ import annotations

import contextlib
import datetime
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hive_metastore import ttypes
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog import Catalog
from catalog.doors.hms.filter_parser import parse_filter
from catalog.doors.hms.filters import INTEGERS, to_expression
from catalog.model import Column
from tests.support.effort import effort
from tests.support.hive_metastore import HiveMetastoreServer
from tests.support.hms_door import HmsDoor, connected, partition, storage, table

pytestmark = pytest.mark.spark

DATABASE, TABLE = "filters", "places"
KEYS = {"country": "string", "year": "int", "day": "date"}
COLUMNS = [Column(name, key_type) for name, key_type in KEYS.items()]
NULL = "__HIVE_DEFAULT_PARTITION__"
VALUES = [
    ["US", "2020", "2020-01-31"],
    ["US", "2021", "2021-02-28"],
    ["UK", "2021", "2021-03-01"],
    ["DE", "-3", "2020-01-31"],
    ["U_S", "2020", "2022-12-31"],
    ["a%b", "0", "2020-02-29"],
    ["O'Neil", "2020", "2021-03-01"],
    ["us", "20200", "2020-01-31"],
    [NULL, "2020", "2020-01-31"],
    ["US", NULL, NULL],
    ["2020", "7", "2020-01-31"],
]
PLAIN = [
    'country = "US"',
    "country = 'US' and year > 2020",
    '(country) in ("US", "UK")',
    '(country) not in ("US", "UK")',
    "(year) IN (2020, -3)",
    '((country = "US") or (country = "DE")) and (year <> 2021)',
    'country != "US"',
    "year <= 2020",
    "2020 < year",
    "'UK' >= country",
    'country between "DE" and "UK"',
    "year not between 2020 and 2021",
    "day = 2020-01-31",
    'day >= "2021-01-01"',
    "2021-02-28 <= day",
    "(day) in (2020-01-31, 2022-12-31)",
    '(struct(country,year)) IN (const struct("US",2020),const struct("DE",-3))',
    '(struct(country,year)) NOT IN (const struct("US",2020))',
    'COUNTRY = "US" AND Year = 2021 OR day = "2022-12-31"',
    f'country = "{NULL}"',
    f'country != "{NULL}"',
    'country > "A"',
    'country < "a"',
    'country like "U.*"',
    'country like "U.S"',
    'country like ".*e.*"',
    'country like "US"',
    'country like ".*" and country != "US"',
    'country like "U_S"',
    'country like "a%b"',
    "country = 2020-01-31",
    'country = "O\'Neil"',
    "",
]
REFUSED = [
    "country = 5",
    'year = "2020"',
    "year = 2020-01-31",
    "day = 5",
    'day = "x"',
    'town = "US"',
    "country",
    'country = "US',
    "country = US",
    "and",
    "(country = 'US'",
    "country in ('US')  ?",
    "year like '2.*'",
    "year = 99999999999999999999",
]


@pytest.fixture(scope="module")
def metastore(hive_metastore: HiveMetastoreServer) -> Iterator[Any]:
    with connected(hive_metastore.port) as client:
        fill(client, f"file:{hive_metastore.warehouse}/{DATABASE}.db")
        yield client
        client.drop_database(DATABASE, False, True)


@pytest.fixture
def filled(client: Any, door: HmsDoor) -> Any:
    fill(client, f"file:{door.warehouse}/{DATABASE}.db")
    return client


def fill(client: Any, location: str) -> None:
    client.create_database(ttypes.Database(name=DATABASE, locationUri=location))
    client.create_table(table(DATABASE, TABLE, KEYS, sd=storage(f"{location}/{TABLE}")))
    client.add_partitions(
        [
            partition(DATABASE, TABLE, values, sd=storage(f"{location}/{TABLE}/{number}"))
            for number, values in enumerate(VALUES)
        ]
    )


def found(client: Any, text: str) -> Any:
    try:
        partitions = client.get_partitions_by_filter(DATABASE, TABLE, text, -1)
    except ttypes.MetaException:
        return "refused"
    return sorted(partition.values for partition in partitions)


def test_filters_find_what_a_metastore_finds(filled: Any, metastore: Any) -> None:
    assert {text: found(filled, text) for text in PLAIN} == {text: found(metastore, text) for text in PLAIN}


def test_filters_that_a_metastore_refuses_are_refused(filled: Any, metastore: Any) -> None:
    for text in REFUSED:
        assert found(filled, text) == "refused", text


def test_serialised_expressions_are_answered_as_by_a_metastore_that_cannot_evaluate_them(filled: Any) -> None:
    request = ttypes.PartitionsByExprRequest(DATABASE, TABLE, b"\x01\x00org.apache.hadoop.hive.ql.plan", maxParts=-1)
    answer = filled.get_partitions_by_expr(request)
    assert (len(answer.partitions), answer.hasUnknownPartitions) == (len(VALUES), True)
    text = ttypes.PartitionsByExprRequest(DATABASE, TABLE, b"country = 'US' and year = 2020", maxParts=-1)
    answer = filled.get_partitions_by_expr(text)
    assert ([found.values for found in answer.partitions], answer.hasUnknownPartitions) == ([VALUES[0]], False)


def literals(key: str) -> st.SearchStrategy[str]:
    match KEYS[key]:
        case "string":
            texts = st.sampled_from([values[0] for values in VALUES]) | st.text("aU_.%*\\'", max_size=4)
            return texts.filter(lambda text: not text.endswith("\\")).map(lambda text: f'"{text}"')
        case "int":
            return st.integers(-5, 5).map(str) | st.integers(2018, 2023).map(str)
    return st.dates(datetime.date(2019, 12, 1), datetime.date(2023, 1, 1)).map(str)


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    key = draw(st.sampled_from(sorted(KEYS)))
    one, other = draw(literals(key)), draw(literals(key))
    forms = [
        *(f"{key} {sign} {one}" for sign in ("=", "!=", "<>", "<", "<=", ">", ">=")),
        f"{one} <= {key}",
        f"{key} between {one} and {other}",
        f"{key} not between {one} and {other}",
        f"({key}) in ({one}, {other})",
        f"({key}) not in ({one},{other})",
    ]
    return draw(st.sampled_from(forms))


FILTERS = st.recursive(
    comparisons(),
    lambda parts: st.builds("({} {} {})".format, parts, st.sampled_from(["and", "or", "AND"]), parts),
    max_leaves=5,
)


@pytest.mark.long
@settings(max_examples=effort(4, 60))
@given(texts=st.lists(FILTERS, min_size=25, max_size=25))
def test_random_filters_find_what_a_metastore_finds(metastore: Any, both: Any, texts: list[str]) -> None:
    assert {text: found(both, text) for text in texts} == {text: found(metastore, text) for text in texts}


@pytest.fixture(scope="module")
def both(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A client of one door for all examples."""
    folder = tmp_path_factory.mktemp("filters")
    shutil.copyfile(sqlite_template, folder / "catalog.db")
    with (
        Catalog.open(f"sqlite:///{folder}/catalog.db", warehouse=str(folder / "warehouse")) as catalog,
        HmsDoor(catalog, folder, folder / "warehouse") as door,
        door.client() as client,
    ):
        fill(client, f"file:{door.warehouse}/{DATABASE}.db")
        yield client


@given(text=st.text("(\"')=<>!,.abi n0-9\\\x00é", max_size=30) | FILTERS.map(lambda text: text[: len(text) * 2 // 3]))
def test_any_text_is_a_filter_or_is_refused(text: str) -> None:
    with contextlib.suppress(ttypes.MetaException):
        to_expression(text, COLUMNS)


@pytest.mark.parametrize("nanoseconds", ["", "0", "9", "001"])
def test_times_of_clients_may_have_nanoseconds(nanoseconds: str) -> None:
    moment = f"2024-05-02 10:30:00.123456{nanoseconds}"
    expression = to_expression(f'at = "{moment}"', [Column("at", "timestamp")])
    assert expression is not None
    assert f"`at` = '{moment}'" in expression


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (r'country like ".*\.*"', {r"a\b", "\\", "b\\", r"q\"q", "x.*", ".*"}),
        (r'country like ".*\"', {"\\", "b\\"}),
        (r'country like "\.*"', {"\\", ".*"}),
        (r'country like "a\b"', {r"a\b", "ab"}),
        (r'country like ".*\" and year = 1', {"\\", "b\\"}),
        (r'country = "b\" or country = "a\b"', {"b\\", r"a\b"}),
        (r"country = 'b\' and year = 1", {"b\\"}),
        (r'country like "a\\.*"', {r"a\b"}),
        (r'country = "q\"q"', {r"q\"q"}),
    ],
)
def test_backslashes_of_clients_that_do_not_escape_lose_no_partition(client: Any, text: str, values: set[str]) -> None:
    client.create_database(ttypes.Database(name=DATABASE))
    client.create_table(table(DATABASE, TABLE, KEYS))
    kept = [r"a\b", "ab", "\\", "b\\", "x.*", ".*", r"q\"q", "a", NULL]
    client.add_partitions([partition(DATABASE, TABLE, [value, "1", "2020-01-31"]) for value in kept])
    assert {place for place, *_ in found(client, text)} == values


def test_deeply_nested_and_long_filters_are_refused() -> None:
    with pytest.raises(ttypes.MetaException, match="nested more than 100 times"):
        parse_filter("(" * 5_000 + "year = 1" + ")" * 5_000)
    with pytest.raises(ttypes.MetaException, match="at most 4,000,000 are allowed"):
        parse_filter("year = 1 or " * 400_000)


@pytest.mark.parametrize(("key_type", "limit"), INTEGERS.items())
def test_the_limits_of_a_type_are_compared_like_other_numbers(key_type: str, limit: int) -> None:
    keys = [Column("k", key_type)]
    for number in (-limit, limit - 1):
        assert to_expression(f"k = {number}", keys) == f"`k` = {number}"
    # The language has no numbers of more than 64 bits.
    for number in (-limit - 1, limit) if limit < 2**63 else ():
        assert to_expression(f"k = {number}", keys) == "(`k` is null and `k` is not null)"
        assert to_expression(f"k != {number}", keys) == "`k` is not null"
