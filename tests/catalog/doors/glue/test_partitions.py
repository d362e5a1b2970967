"""Partitions through boto3: look-ups, pages, segments, filters and changes."""

from __future__ import annotations

import json
import random
import threading
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from itertools import product
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog import Catalog, NewPartition
from tests.support.glue_door import GlueDoor, table_input
from tests.support.glue_endpoint import ORC, storage

ORDERS = {"DatabaseName": "demo", "TableName": "orders"}
DEMO = {"DatabaseName": "demo"}
KEYS = {"country": "string", "number": "int", "day": "date"}
COUNTRIES = ("DE", "US", "a'b", "ä")
NUMBERS = (-1, 0, 3, 10)
DAYS = tuple((date(2024, 2, 27) + timedelta(days)).isoformat() for days in range(4))
ALL = [(country, str(number), day) for country, number, day in product(COUNTRIES, NUMBERS, DAYS)]


@pytest.fixture
def orders(glue: Any, catalog: Catalog) -> Any:
    """A client; the table `demo.orders` has all combinations of some values."""
    glue.create_table(**DEMO, TableInput=table_input("orders", KEYS))
    shuffled = random.Random(1).sample(ALL, len(ALL))
    catalog.add_partitions("demo.orders", [NewPartition(values) for values in shuffled])
    return glue


def values_of(partitions: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    return [tuple(partition["Values"]) for partition in partitions]


def listed(glue: Any, size: int = 1_000, **arguments: Any) -> list[tuple[str, ...]]:
    """Return the values of all partitions on all pages, each of at most `size`."""
    pages = glue.get_paginator("get_partitions").paginate(**ORDERS, **arguments, PaginationConfig={"PageSize": size})
    found = []
    for page in pages:
        assert len(page["Partitions"]) <= size
        found += values_of(page["Partitions"])
    return found


def refused(call: Callable[..., Any], **arguments: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    error = caught.value.response["Error"]
    return error["Code"], error["Message"]


# --- what comes back --------------------------------------------------------------------------------------------------


def test_partitions_come_back_as_they_went_in(glue: Any) -> None:
    glue.create_table(**DEMO, TableInput=table_input("orders", {"country": "string", "number": "int"}))
    partitions = [
        {"Values": ["DE", "1"], "StorageDescriptor": storage("s3://lake/orders/country=DE/number=1")},
        {"Values": ["DE", "2"], "StorageDescriptor": storage("s3://lake/orders/somewhere/else")},
        {
            "Values": ["__HIVE_DEFAULT_PARTITION__", "03"],
            "StorageDescriptor": storage(
                "s3://lake/orders/orc",
                ORC,
                Columns=[{"Name": "other", "Type": "int", "Comment": "c", "Parameters": {"a": "b"}}],
                BucketColumns=["other"],
                NumberOfBuckets=3,
                SortColumns=[{"Column": "other", "SortOrder": 1}],
                Parameters={"c": "d"},
                SkewedInfo={"SkewedColumnNames": ["other"], "SkewedColumnValues": ["1$7"]},
                SchemaReference={"SchemaVersionNumber": 3},
            ),
            "Parameters": {"numRows": "10", "totalSize": "01", "Owner": "ä"},
            "LastAccessTime": 1_700_000_000,
            "LastAnalyzedTime": 1_600_000_000,
        },
    ]
    glue.create_partition(**ORDERS, PartitionInput=partitions[0])
    assert "Errors" not in glue.batch_create_partition(**ORDERS, PartitionInputList=partitions[1:])
    found = {tuple(partition["Values"]): partition for partition in glue.get_partitions(**ORDERS)["Partitions"]}
    assert len(found) == len(partitions)
    for expected in partitions:
        partition = found[tuple(expected["Values"])]
        for name in ("LastAccessTime", "LastAnalyzedTime"):
            if name in partition:
                partition[name] = int(partition[name].timestamp())
        descriptor = expected.pop("StorageDescriptor")
        shown = partition.pop("StorageDescriptor")
        skew = descriptor.pop("SkewedInfo", {})
        assert {name: shown[name] for name in descriptor} == descriptor
        assert shown["SkewedInfo"].items() >= skew.items()
        assert partition.items() >= expected.items()
        assert (
            glue.get_partition(**ORDERS, PartitionValues=expected["Values"])["Partition"]["Values"]
            == (expected["Values"])
        )
    lean = glue.get_partitions(**ORDERS, ExcludeColumnSchema=True)["Partitions"]
    assert ["Columns" in partition["StorageDescriptor"] for partition in lean] == [False] * 3


def test_a_partition_without_a_descriptor_has_that_of_its_table(glue: Any) -> None:
    glue.create_table(**DEMO, TableInput=table_input("orders", {"day": "date"}))
    glue.create_partition(**ORDERS, PartitionInput={"Values": ["2024-01-01"]})
    descriptor = glue.get_partition(**ORDERS, PartitionValues=["2024-01-01"])["Partition"]["StorageDescriptor"]
    table = glue.get_table(**DEMO, Name="orders")["Table"]["StorageDescriptor"]
    assert descriptor == {**table, "Location": "s3://lake/orders/day=2024-01-01"}


def test_partitions_keep_their_columns_when_the_table_changes(glue: Any) -> None:
    glue.create_table(**DEMO, TableInput=table_input("orders", {"number": "int"}))
    glue.create_partition(**ORDERS, PartitionInput={"Values": ["1"]})
    changed = table_input("orders", {"number": "int"})
    changed["StorageDescriptor"]["Columns"].append({"Name": "more", "Type": "int"})
    glue.update_table(**DEMO, TableInput=changed)
    glue.create_partition(**ORDERS, PartitionInput={"Values": ["2"]})
    names = [
        [column["Name"] for column in partition["StorageDescriptor"]["Columns"]]
        for partition in glue.get_partitions(**ORDERS)["Partitions"]
    ]
    assert names == [["id", "name"], ["id", "name", "more"]]


# --- pages and segments -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expression", [None, "number >= 0 and country <> 'DE'", "country = 'DE'", "number > 100"])
@pytest.mark.parametrize("index", [None, ["country", "number"]])
def test_pages_and_segments_are_disjoint_and_complete(
    orders: Any, catalog: Catalog, expression: str | None, index: list[str] | None
) -> None:
    if index is not None:
        catalog.create_partition_index("demo.orders", "by_key", index)
        catalog.build_partition_index("demo.orders", "by_key")
    arguments = {} if expression is None else {"Expression": expression}
    expected = listed(orders, **arguments)
    assert len(set(expected)) == len(expected)
    assert set(expected) == set(values_of(list_all(catalog, expression)))
    for size in (1, 7, len(ALL)):
        assert listed(orders, size, **arguments) == expected
    parts = [
        listed(orders, 7, Segment={"SegmentNumber": number, "TotalSegments": 3}, **arguments) for number in range(3)
    ]
    assert sorted(values for part in parts for values in part) == sorted(expected)


def list_all(catalog: Catalog, expression: str | None) -> list[dict[str, Any]]:
    return [{"Values": partition.values} for partition in catalog.get_partitions("demo.orders", expression)]


@pytest.mark.parametrize("expression", ["", "number >= 0"])
def test_pages_go_on_after_a_restart_and_during_changes(
    door: GlueDoor, orders: Any, catalog: Catalog, expression: str
) -> None:
    """A page that another process returns, while partitions come and go, continues the list."""
    first = orders.get_partitions(**ORDERS, Expression=expression, MaxResults=5)
    # Another process has none of the searches of this one.
    catalog._pages._kept._kept.clear()
    before = set(listed(orders, Expression=expression))
    added, stop = [], threading.Event()

    def change() -> None:
        number = 100
        while not stop.is_set():
            catalog.add_partitions("demo.orders", [NewPartition(["XX", str(number), DAYS[0]])])
            added.append(number)
            number += 1

    thread = threading.Thread(target=change)
    thread.start()
    try:
        found, token = values_of(first["Partitions"]), first["NextToken"]
        while token is not None:
            page = orders.get_partitions(**ORDERS, Expression=expression, MaxResults=5, NextToken=token)
            found += values_of(page["Partitions"])
            token = page.get("NextToken")
            if len(found) > 2 * len(ALL):
                stop.set()
    finally:
        stop.set()
        thread.join()
    assert len(set(found)) == len(found)
    assert before <= set(found)
    assert {values for values in found if values[0] != "XX"} == before
    assert added


@pytest.mark.parametrize("position", [[2**70, 1], [1, -(2**70)], [True, True], [1.5, 1], [None, 1], ["1", 1], [1]])
def test_tokens_that_a_client_has_changed_are_refused(orders: Any, position: list[Any]) -> None:
    token = orders.get_partitions(**ORDERS, MaxResults=5)["NextToken"]
    digest, *_ = json.loads(urlsafe_b64decode(token))
    changed = urlsafe_b64encode(json.dumps([digest, *position]).encode()).decode()
    code, message = refused(orders.get_partitions, **ORDERS, NextToken=changed)
    assert (code, "NextToken" in message) == ("InvalidInputException", True)


def test_tokens_are_those_of_one_request(orders: Any) -> None:
    token = orders.get_partitions(**ORDERS, MaxResults=5)["NextToken"]
    assert len(orders.get_partitions(**ORDERS, MaxResults=7, NextToken=token)["Partitions"]) == 7
    for arguments in (
        {"Expression": "number > 0"},
        {"Segment": {"SegmentNumber": 0, "TotalSegments": 2}},
        {"NextToken": f"{token[:8]}AAAA{token[12:]}"},
        {"NextToken": "bm8="},
    ):
        code, message = refused(orders.get_partitions, **{**ORDERS, "NextToken": token, **arguments})
        assert (code, "NextToken" in message) == ("InvalidInputException", True)
    code, _ = refused(orders.get_partitions, **ORDERS, Segment={"SegmentNumber": 2, "TotalSegments": 2})
    assert code == "InvalidInputException"


# --- filters ----------------------------------------------------------------------------------------------------------

Test = Callable[[str, int, str], bool]


def literal(value: Any) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def comparisons(key: str, position: int, values: tuple[Any, ...]) -> st.SearchStrategy[tuple[str, Test]]:
    def compared(how: str, value: Any) -> tuple[str, Test]:
        tests: dict[str, Callable[[Any], bool]] = {
            "=": lambda v: v == value,
            "<>": lambda v: v != value,
            "<": lambda v: v < value,
            "<=": lambda v: v <= value,
            ">": lambda v: v > value,
            ">=": lambda v: v >= value,
        }
        return f"{key} {how} {literal(value)}", lambda *row: tests[how](row[position])

    def inside(members: list[Any], is_in: bool) -> tuple[str, Test]:
        word = "in" if is_in else "NOT IN"
        return f"{key} {word} ({', '.join(map(literal, members))})", lambda *row: (row[position] in members) is is_in

    def between(low: Any, high: Any) -> tuple[str, Test]:
        return f"{key} BETWEEN {literal(low)} AND {literal(high)}", lambda *row: low <= row[position] <= high

    value = st.sampled_from(values)
    return (
        st.builds(compared, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), value)
        | st.builds(inside, st.lists(value, min_size=1, max_size=3), st.booleans())
        | st.builds(between, value, value)
    )


LIKES = st.sampled_from(
    [
        ("country like '%E'", lambda country, number, day: country.endswith("E")),
        ("country LIKE '_S'", lambda country, number, day: len(country) == 2 and country[1] == "S"),
        ("(country) like 'D%'", lambda country, number, day: country.startswith("D")),
    ]
)
FILTERS: st.SearchStrategy[tuple[str, Test]] = st.recursive(
    comparisons("country", 0, (*COUNTRIES, "DX"))
    | comparisons("number", 1, (*NUMBERS, 5))
    | comparisons("day", 2, (*DAYS, "2024-03-09"))
    | LIKES,
    lambda inner: (
        st.builds(
            lambda left, word, right: (
                f"({left[0]}) {word} ({right[0]})",
                lambda *row: left[1](*row) and right[1](*row) if word == "and" else left[1](*row) or right[1](*row),
            ),
            inner,
            st.sampled_from(["and", "or"]),
            inner,
        )
        | inner.map(lambda one: (f"NOT ({one[0]})", lambda *row: not one[1](*row)))
    ),
    max_leaves=5,
)


def test_filters_return_what_python_returns(orders: Any, catalog: Catalog) -> None:
    @given(condition=FILTERS)
    @settings(suppress_health_check=[HealthCheck.too_slow])
    def check(condition: tuple[str, Test]) -> None:
        text, test = condition
        expected = {(country, number, day) for country, number, day in ALL if test(country, int(number), day)}
        found = listed(orders, Expression=text)
        assert (set(found), len(found)) == (expected, len(expected))

    check()
    catalog.create_partition_index("demo.orders", "by_number", ["number", "country"])
    catalog.build_partition_index("demo.orders", "by_number")
    check()


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("no = 1", "Invalid partition expression!"),
        ("number = 'x'", "is not an integer"),
        ("number in (2.5)", "is not an integer"),
        ("number like '1'", "Integral data type doesn't support operation 'LIKE'"),
        ("day = 'x'", "is not a date"),
        ("day like 'x'", "Date data type doesn't support operation 'LIKE'"),
        ("number = = 1", "Unsupported expression"),
        ("number =", "Unsupported expression"),
        ("number = day", "Unsupported expression"),
        ("'", "Unsupported expression"),
        ("(" * 200 + "number = 1" + ")" * 200 + " or (", "Unsupported expression"),
    ],
)
def test_wrong_filters(orders: Any, expression: str, message: str) -> None:
    code, text = refused(orders.get_partitions, **ORDERS, Expression=expression)
    assert (code, message in text) == ("InvalidInputException", True), text


def test_a_value_that_is_not_of_its_type_is_refused(
    glue: Any, catalog: Catalog, request: pytest.FixtureRequest
) -> None:
    glue.create_table(**DEMO, TableInput=table_input("orders", {"country": "string", "number": "int"}))
    for values in (["DE", " 1"], ["FR", "__HIVE_DEFAULT_PARTITION__"]):
        glue.create_partition(**ORDERS, PartitionInput={"Values": values})
    unfit = {**ORDERS, "PartitionInput": {"Values": ["US", "many"]}}
    code, message = refused(glue.create_partition, **unfit)
    assert (code, "key 'number' has the value 'many', expected int" in message) == ("InvalidInputException", True)
    # A catalog of an earlier version may have it; the filters find the others.
    request.getfixturevalue("unfit_values")
    glue.create_partition(**unfit)
    assert listed(glue, Expression="number = 1") == [("DE", " 1")]
    glue.delete_partition(**ORDERS, PartitionValues=["US", "many"])
    assert len(listed(glue)) == 2


@pytest.mark.parametrize("index", [None, ["country", "number"]])
def test_the_null_of_a_string_is_compared_as_its_string(glue: Any, catalog: Catalog, index: list[str] | None) -> None:
    glue.create_table(**DEMO, TableInput=table_input("orders", {"country": "string", "number": "int"}))
    null = "__HIVE_DEFAULT_PARTITION__"
    de, none, us = ((country, "1") for country in ("DE", null, "a"))
    for values in (de, none, us):
        glue.create_partition(**ORDERS, PartitionInput={"Values": list(values)})
    if index is not None:
        catalog.create_partition_index("demo.orders", "by_key", index)
        catalog.build_partition_index("demo.orders", "by_key")
    for expression, expected in {
        f"country = '{null}'": [none],
        f"((country = '{null}') OR (country = 'DE'))": [de, none],
        f"country in ('{null}', 'a')": [none, us],
        f"country <> '{null}'": [de, us],
        f"not country = '{null}'": [de, us],
        "country <> 'DE'": [none, us],
        "not country in ('DE', 'b')": [none, us],
        "country > 'DE' and number = 1": [none, us],
        "country between 'A' and 'a'": [de, none, us],
        "country like '\\_%'": [none],
        "country is null": [none],
        "country is not null": [de, us],
    }.items():
        assert sorted(listed(glue, Expression=expression)) == sorted(expected), expression


def test_words_in_parentheses_are_not_strings(orders: Any) -> None:
    assert len(listed(orders, Expression="(number) = ((3)) (OR) (country) = '(or)'")) == len(ALL) / len(NUMBERS)


# --- changes ----------------------------------------------------------------------------------------------------------


def test_partitions_are_changed_moved_and_deleted(glue: Any) -> None:
    glue.create_table(**DEMO, TableInput=table_input("orders", {"number": "int"}))
    for number in ("1", "2", "3"):
        glue.create_partition(**ORDERS, PartitionInput={"Values": [number], "Parameters": {"n": number}})
    glue.update_partition(
        **ORDERS, PartitionValueList=["1"], PartitionInput={"Values": ["1"], "Parameters": {"m": "x"}}
    )
    assert glue.get_partition(**ORDERS, PartitionValues=["1"])["Partition"]["Parameters"] == {"m": "x"}
    glue.update_partition(**ORDERS, PartitionValueList=["1"], PartitionInput={"Values": ["9"]})
    assert listed(glue) == [("2",), ("3",), ("9",)]
    entries = [
        {"PartitionValueList": ["2"], "PartitionInput": {"Values": ["20"]}},
        {"PartitionValueList": ["7"], "PartitionInput": {"Values": ["70"]}},
        {"PartitionValueList": ["3"], "PartitionInput": {"Values": ["9"]}},
    ]
    errors = glue.batch_update_partition(**ORDERS, Entries=entries)["Errors"]
    assert [(error["PartitionValueList"], error["ErrorDetail"]["ErrorCode"]) for error in errors] == [
        (["7"], "EntityNotFoundException"),
        (["3"], "AlreadyExistsException"),
    ]
    assert sorted(listed(glue)) == [("20",), ("3",), ("9",)]
    keys = [{"Values": ["3"]}, {"Values": ["4"]}, {"Values": ["1", "2"]}]
    errors = glue.batch_delete_partition(**ORDERS, PartitionsToDelete=keys)["Errors"]
    assert [error["PartitionValues"] for error in errors] == [["4"], ["1", "2"]]
    glue.delete_partition(**ORDERS, PartitionValues=["20"])
    assert listed(glue) == [("9",)]


def test_a_batch_survives_its_worst_member(glue: Any) -> None:
    glue.create_table(**DEMO, TableInput=table_input("orders", {"number": "int"}))
    glue.create_partition_index(**ORDERS, PartitionIndex={"IndexName": "i", "Keys": ["number"]})
    glue.create_partition(**ORDERS, PartitionInput={"Values": ["1"]})
    given_values = (["1"], ["2"], ["x"], ["1", "2"], ["3"])
    inputs = [{"Values": values} for values in given_values]
    errors = glue.batch_create_partition(**ORDERS, PartitionInputList=inputs)["Errors"]
    assert [(error["PartitionValues"], error["ErrorDetail"]["ErrorCode"]) for error in errors] == [
        (["1"], "AlreadyExistsException"),
        (["x"], "InvalidInputException"),
        (["1", "2"], "InvalidInputException"),
    ]
    asked = [{"Values": values} for values in (["3"], ["9"], ["1"], ["1", "2"])]
    answer = glue.batch_get_partition(**ORDERS, PartitionsToGet=asked)
    assert values_of(answer["Partitions"]) == [("3",), ("1",)]
    assert answer["UnprocessedKeys"] == []


@pytest.mark.long
def test_nothing_is_lost_with_many_clients(door: GlueDoor, glue: Any) -> None:
    glue.create_table(**DEMO, TableInput=table_input("orders", {"number": "int"}))
    glue.create_partition_index(**ORDERS, PartitionIndex={"IndexName": "i", "Keys": ["number"]})

    def add(client: int) -> None:
        own = door.client("WRITER")
        for batch in range(4):
            numbers = range(1_000 * client + 10 * batch, 1_000 * client + 10 * batch + 10)
            inputs = [{"Values": [str(number)]} for number in numbers]
            # Every client adds the partition 7, too; one of them succeeds.
            answer = own.batch_create_partition(**ORDERS, PartitionInputList=[*inputs, {"Values": ["7"]}])
            assert {tuple(error["PartitionValues"]) for error in answer.get("Errors", [])} <= {("7",)}

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(1, 9)))
    expected = {str(1_000 * client + number) for client in range(1, 9) for number in range(40)} | {"7"}
    assert sorted(listed(glue)) == sorted((number,) for number in expected)
    assert listed(glue, Expression="number = 8039") == [("8039",)]
    assert door.catalog.verify_partition_index("demo.orders", "i").is_exact


def test_errors_of_partitions(glue: Any) -> None:
    glue.create_table(**DEMO, TableInput=table_input("orders", {"number": "int"}))
    glue.create_partition(**ORDERS, PartitionInput={"Values": ["1"]})
    missing = ("EntityNotFoundException", "Cannot find partition.")
    assert refused(glue.get_partition, **ORDERS, PartitionValues=["2"]) == missing
    assert refused(glue.delete_partition, **ORDERS, PartitionValues=["1", "2"]) == missing
    change = {"PartitionValueList": ["2"], "PartitionInput": {"Values": ["2"]}}
    assert refused(glue.update_partition, **ORDERS, **change) == missing
    again = {"PartitionInput": {"Values": ["01"]}}
    assert refused(glue.create_partition, **ORDERS, **again)[0] == "AlreadyExistsException"
    for partition in ({"Values": ["1", "2"]}, {"Values": []}, {}):
        assert refused(glue.create_partition, **ORDERS, PartitionInput=partition)[0] == "InvalidInputException"
    many = [{"Values": [str(number)]} for number in range(101)]
    assert refused(glue.batch_create_partition, **ORDERS, PartitionInputList=many)[0] == "ValidationException"
    no_table = {**DEMO, "TableName": "no"}
    assert refused(glue.get_partitions, **no_table) == ("EntityNotFoundException", "Table no not found.")
