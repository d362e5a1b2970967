"""Names that no file system can have as folders: each protocol's own error for a wrong request."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from hive_metastore import ttypes

from catalog import Catalog
from tests.support.glue_door import serving_glue, table_input
from tests.support.hms_door import HmsDoor, partition, table
from tests.support.rest_server import error_of, rest_server

NAME = "\u65e5" * 120
"""120 characters, as names and partition values may have, and 360 bytes."""

TOO_LONG = "longer than its file system allows"


def test_hms(catalog: Catalog, tmp_path: Path) -> None:
    with HmsDoor(catalog, tmp_path, tmp_path / "warehouse") as door, door.client() as client:
        client.create_table(table("demo", "t", {"key": "string"}))
        with pytest.raises(ttypes.InvalidObjectException, match=TOO_LONG):
            client.add_partition(partition("demo", "t", [NAME]))
        with pytest.raises(ttypes.InvalidObjectException, match=TOO_LONG):
            client.append_partition("demo", "t", [NAME])
        client.append_partition("demo", "t", ["a"])
        with pytest.raises(ttypes.InvalidOperationException, match=TOO_LONG):
            client.rename_partition("demo", "t", ["a"], partition("demo", "t", [NAME]))
        assert client.get_partition_names("demo", "t", -1) == ["key=a"]


def test_glue(catalog: Catalog, tmp_path: Path) -> None:
    with serving_glue(catalog, tmp_path) as door:
        glue = door.client()
        inside = f"{catalog.get_database('demo').location}/t"
        glue.create_table(DatabaseName="demo", TableInput=table_input("t", {"key": "string"}, location=inside))
        with pytest.raises(glue.exceptions.InvalidInputException, match=TOO_LONG):
            glue.create_table(DatabaseName="demo", TableInput=table_input("u", location=f"{inside}{NAME}"))
        with pytest.raises(glue.exceptions.InvalidInputException, match=TOO_LONG):
            glue.create_partition(DatabaseName="demo", TableName="t", PartitionInput={"Values": [NAME]})
        assert not glue.get_partitions(DatabaseName="demo", TableName="t")["Partitions"]


def test_rest(catalog: Catalog) -> None:
    schema = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": True}]}
    with rest_server(catalog) as url, httpx.Client(base_url=f"{url}/v1/calve") as http:
        assert http.post("/namespaces", json={"namespace": [NAME]}).status_code == 200
        for namespace, name in ((NAME, "t"), ("demo", NAME)):
            answer = http.post(f"/namespaces/{namespace}/tables", json={"name": name, "schema": schema})
            assert error_of(answer) == (400, "BadRequestException")
            assert TOO_LONG in answer.text
        assert not http.get("/namespaces/demo/tables").json()["identifiers"]
