"""Partition indexes through boto3: their states, and the builds by the server."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from catalog import Catalog, NewPartition
from catalog.doors.glue import builds
from catalog.doors.glue.application import BUILD_LIMIT
from catalog.indexes import building
from tests.support.glue_door import KEYS, GlueDoor, serving_glue, table_input

DEMO = {"DatabaseName": "demo"}
ORDERS = {**DEMO, "TableName": "orders"}
BY_NUMBER = {"IndexName": "by_number", "Keys": ["number", "country"]}
FOUR = (["number"], ["country"], ["number", "country"], ["country", "number"])
TABLE = table_input("orders", {"country": "string", "number": "int"})


def indexes(glue: Any) -> dict[str, dict[str, Any]]:
    """Return the indexes of the table by their names."""
    listed = glue.get_partition_indexes(**ORDERS)["PartitionIndexDescriptorList"]
    return {index["IndexName"]: index for index in listed}


def ended(glue: Any, name: str) -> dict[str, Any]:
    """Return an index when it is no longer CREATING."""
    deadline = time.monotonic() + 60
    while (index := indexes(glue)[name])["IndexStatus"] == "CREATING":
        assert time.monotonic() < deadline, index
        time.sleep(0.02)
    return index


def refused(call: Any, **arguments: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    return str(caught.value.response["Error"]["Code"])


def test_a_table_is_created_with_its_indexes(glue: Any) -> None:
    glue.create_table(**DEMO, TableInput=TABLE, PartitionIndexes=[BY_NUMBER, {"IndexName": "i", "Keys": ["country"]}])
    assert indexes(glue) == {
        "by_number": {
            "IndexName": "by_number",
            "Keys": [{"Name": "number", "Type": "int"}, {"Name": "country", "Type": "string"}],
            "IndexStatus": "ACTIVE",
        },
        "i": {"IndexName": "i", "Keys": [{"Name": "country", "Type": "string"}], "IndexStatus": "ACTIVE"},
    }


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ([{"IndexName": "i", "Keys": ["no"]}], "InvalidInputException"),
        ([{"IndexName": "i", "Keys": ["number"]}, {"IndexName": "j", "Keys": ["number"]}], "AlreadyExistsException"),
        ([{"IndexName": f"i{n}", "Keys": keys} for n, keys in enumerate(FOUR)], "ResourceNumberLimitExceededException"),
    ],
)
def test_no_table_without_its_indexes(glue: Any, wrong: list[Any], code: str) -> None:
    assert refused(glue.create_table, **DEMO, TableInput=TABLE, PartitionIndexes=wrong) == code
    assert refused(glue.get_table, **DEMO, Name="orders") == "EntityNotFoundException"


def test_the_server_builds_an_index_while_partitions_are_added(glue: Any, catalog: Catalog) -> None:
    glue.create_table(**DEMO, TableInput=TABLE)
    catalog.add_partitions("demo.orders", [NewPartition(["DE", str(number)]) for number in range(500)])
    glue.create_partition_index(**ORDERS, PartitionIndex=BY_NUMBER)
    for number in range(500, 510):
        glue.create_partition(**ORDERS, PartitionInput={"Values": ["DE", str(number)]})
    assert ended(glue, "by_number")["IndexStatus"] == "ACTIVE"
    assert catalog.verify_partition_index("demo.orders", "by_number").is_exact
    found = glue.get_partitions(**ORDERS, Expression="number = 505")["Partitions"]
    assert [partition["Values"] for partition in found] == [["DE", "505"]]
    assert catalog.explain_partitions("demo.orders", "number = 505").index == "by_number"  # type: ignore[union-attr]
    glue.delete_partition_index(**ORDERS, IndexName="by_number")
    assert indexes(glue) == {}
    assert refused(glue.delete_partition_index, **ORDERS, IndexName="by_number") == "EntityNotFoundException"


@pytest.mark.parametrize(
    ("partition", "code"),
    [
        ({"Values": ["DE", "many"]}, "INVALID_PARTITION_TYPE_DATA_ERROR"),
        ({"Values": ["D\x01E", "1"]}, "UNSUPPORTED_PARTITION_CHARACTER_ERROR"),
        ({"Values": ["DE", "1"], "Parameters": {"has_encrypted_data": "true"}}, "ENCRYPTED_PARTITION_ERROR"),
    ],
)
@pytest.mark.usefixtures("unfit_values")
def test_a_failed_build_names_the_partitions(glue: Any, partition: dict[str, Any], code: str) -> None:
    glue.create_table(**DEMO, TableInput=TABLE)
    glue.create_partition(**ORDERS, PartitionInput={"Values": ["US", "7"]})
    glue.create_partition(**ORDERS, PartitionInput=partition)
    glue.create_partition_index(**ORDERS, PartitionIndex=BY_NUMBER)
    index = ended(glue, "by_number")
    assert index["IndexStatus"] == "FAILED"
    assert index["BackfillErrors"] == [{"Code": code, "Partitions": [{"Values": partition["Values"]}]}]


def test_errors_of_indexes(glue: Any) -> None:
    glue.create_table(**DEMO, TableInput=TABLE, PartitionIndexes=[BY_NUMBER])
    create = glue.create_partition_index
    assert refused(create, **ORDERS, PartitionIndex=BY_NUMBER) == "AlreadyExistsException"
    assert refused(create, **ORDERS, PartitionIndex={"IndexName": "i", "Keys": ["no"]}) == "InvalidInputException"
    for number, keys in enumerate((["number"], ["country"])):
        create(**ORDERS, PartitionIndex={"IndexName": f"i{number}", "Keys": keys})
    more = {"IndexName": "more", "Keys": ["country", "number"]}
    assert refused(create, **ORDERS, PartitionIndex=more) == "ResourceNumberLimitExceededException"
    no_table = {**DEMO, "TableName": "no"}
    assert refused(glue.get_partition_indexes, **no_table) == "EntityNotFoundException"


def test_a_large_index_is_left_to_the_dag(catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a build that a server did not finish is continued by one that may."""
    monkeypatch.setattr(building, "RANGE_SIZE", 10)
    monkeypatch.setattr(builds, "RANGE_SIZE", 10)
    monkeypatch.setenv(BUILD_LIMIT, "50")
    with serving_glue(catalog, tmp_path, KEYS) as door:
        glue = door.client()
        glue.create_table(**DEMO, TableInput=TABLE)
        catalog.add_partitions("demo.orders", [NewPartition(["DE", str(number)]) for number in range(100)])
        glue.create_partition_index(**ORDERS, PartitionIndex=BY_NUMBER)
        assert indexes(glue)["by_number"]["IndexStatus"] == "CREATING"
    monkeypatch.setenv(BUILD_LIMIT, "200")
    with serving_glue(catalog, tmp_path, KEYS) as door:
        assert ended(door.client(), "by_number")["IndexStatus"] == "ACTIVE"


def test_a_reader_creates_no_index(door: GlueDoor, glue: Any) -> None:
    glue.create_table(**DEMO, TableInput=TABLE)
    for name in ("READER", "WRITER"):
        create = door.client(name).create_partition_index
        assert refused(create, **ORDERS, PartitionIndex=BY_NUMBER) == "AccessDeniedException"


def test_a_build_is_continued_for_an_owner_only(door: GlueDoor, glue: Any, catalog: Catalog) -> None:
    """A reader that asks for the states of indexes starts nothing."""
    glue.create_table(**DEMO, TableInput=TABLE)
    catalog.add_partitions("demo.orders", [NewPartition(["DE", "1"])])
    catalog.create_partition_index("demo.orders", "by_number", ("number",))
    asked: list[str] = []
    for name in ("READER", "WRITER"):
        index = indexes(door.client(name))["by_number"]
        asked.append(index["IndexStatus"])
        time.sleep(0.3)
    assert [*asked, indexes(door.client("READER"))["by_number"]["IndexStatus"]] == ["CREATING"] * 3
    assert ended(glue, "by_number")["IndexStatus"] == "ACTIVE"
