"""The same calls to the door and to moto's server, where moto answers as Glue does."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.support.glue_door import table_input
from tests.support.glue_endpoint import PARQUET, GlueEndpoint

TABLE = {"DatabaseName": "shop", "TableName": "orders"}
SHOP = {"DatabaseName": "shop"}
KEYS = {"country": "string", "number": "int", "day": "date"}
STORAGE = {
    "Columns": [{"Name": "id", "Type": "bigint", "Comment": "c"}],
    "InputFormat": PARQUET[0],
    "OutputFormat": PARQUET[1],
    "SerdeInfo": {"SerializationLibrary": PARQUET[2], "Parameters": {"a": "b"}},
}

Calls = list[tuple[str, dict[str, Any]]]


def partition(*values: str, **more: Any) -> dict[str, Any]:
    location = f"s3://lake/orders/{'/'.join(values)}"
    return {"Values": list(values), "StorageDescriptor": {**STORAGE, "Location": location}, **more}


PARTITIONS = [partition(country, str(number), f"2024-0{number}-01") for country in ("DE", "US") for number in (1, 2, 3)]
NOTHING = ["no", "1", "2024-01-01"]
SOME = [{"Values": PARTITIONS[2]["Values"]}, {"Values": NOTHING}]
FIRST = PARTITIONS[0]["Values"]
MOVED = partition("DE", "9", "2024-01-01", Parameters={"c": "d"})
CALLS: Calls = [
    ("create_database", {"DatabaseInput": {"Name": "shop", "Description": "d", "Parameters": {"a": "b"}}}),
    ("create_database", {"DatabaseInput": {"Name": "shop"}}),
    ("get_database", {"Name": "shop"}),
    ("get_database", {"Name": "no"}),
    ("create_table", {**SHOP, "TableInput": table_input("orders", KEYS, Owner="ann", Description="d", Retention=3)}),
    ("create_table", {**SHOP, "TableInput": table_input("orders", KEYS)}),
    ("create_table", {"DatabaseName": "no", "TableInput": table_input("orders", KEYS)}),
    ("get_table", {**SHOP, "Name": "orders"}),
    ("get_table", {**SHOP, "Name": "no"}),
    ("update_table", {**SHOP, "TableInput": table_input("orders", KEYS, Parameters={"a": "b"})}),
    ("get_table_versions", TABLE),
    ("get_table_version", {**TABLE, "VersionId": "2"}),
    ("get_table_version", {**TABLE, "VersionId": "9"}),
    ("get_table_version", {**TABLE, "VersionId": "x"}),
    ("get_partitions", TABLE),
    ("batch_create_partition", {**TABLE, "PartitionInputList": PARTITIONS}),
    ("batch_create_partition", {**TABLE, "PartitionInputList": PARTITIONS[:1]}),
    ("get_partition", {**TABLE, "PartitionValues": ["DE", "2", "2024-02-01"]}),
    ("get_partition", {**TABLE, "PartitionValues": ["DE", "9", "2024-02-01"]}),
    ("get_partitions", {**TABLE, "Segment": {"SegmentNumber": 0, "TotalSegments": 1}}),
    *(
        ("get_partitions", {**TABLE, "Expression": expression})
        for expression in (
            "country = 'DE'",
            "number in (1, '3') and country <> 'US'",
            "number not between 2 and 3 or country like '_S'",
            "day >= '2024-02-01' AND (day) <> '2024-03-01'",
            "country is not null",
            "number = 'x'",
            "no = 1",
            "number = ",
        )
    ),
    ("update_partition", {**TABLE, "PartitionValueList": FIRST, "PartitionInput": MOVED}),
    ("get_partition", {**TABLE, "PartitionValues": ["DE", "9", "2024-01-01"]}),
    ("update_partition", {**TABLE, "PartitionValueList": NOTHING, "PartitionInput": PARTITIONS[0]}),
    ("batch_get_partition", {**TABLE, "PartitionsToGet": SOME}),
    ("delete_partition", {**TABLE, "PartitionValues": PARTITIONS[1]["Values"]}),
    ("delete_partition", {**TABLE, "PartitionValues": PARTITIONS[1]["Values"]}),
    ("batch_delete_partition", {**TABLE, "PartitionsToDelete": SOME}),
    ("get_partitions", TABLE),
    ("get_tables", {**SHOP, "Expression": "ord*"}),
    ("delete_table", {**SHOP, "Name": "orders"}),
    ("delete_table", {**SHOP, "Name": "orders"}),
    ("delete_database", {"Name": "shop"}),
]

_OF_ONE_SERVER = ("ResponseMetadata", "CreateTime", "UpdateTime", "CreationTime", "LastAccessTime", "ErrorMessage")
_NOT_OF_MOTO = ("IsRegisteredWithLakeFormation", "CreateTableDefaultPermissions", "UnprocessedKeys", "CatalogId")


def answer(client: Any, operation: str, arguments: dict[str, Any]) -> Any:
    """Return the answer of a call, or the name of its error."""
    try:
        return comparable(getattr(client, operation)(**arguments))
    except ClientError as error:
        return error.response["Error"]["Code"]


def comparable(shown: Any) -> Any:
    """Return an answer without what differs between servers, and without what is empty."""
    if isinstance(shown, list):
        members = [comparable(member) for member in shown]
        return sorted(members, key=str) if members and isinstance(members[0], dict) else members
    if not isinstance(shown, dict):
        return shown
    kept = {n: comparable(v) for n, v in shown.items() if n not in (*_OF_ONE_SERVER, *_NOT_OF_MOTO)}
    return {name: value for name, value in kept.items() if value not in ({}, [], 0, False, None)}


@pytest.mark.long
@pytest.mark.first_case
def test_the_door_answers_as_moto_does(glue: Any, glue_endpoint: GlueEndpoint) -> None:
    for operation, arguments in CALLS:
        assert answer(glue, operation, arguments) == answer(glue_endpoint.client, operation, arguments), operation


@pytest.fixture
def glue_endpoint(glue_server: GlueEndpoint) -> GlueEndpoint:
    glue_server.reset()
    return glue_server
