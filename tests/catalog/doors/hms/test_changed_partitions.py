"""Changes of partitions are made as by a metastore."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hive_metastore import ttypes

from tests.support.hms_door import HmsDoor, partition, storage, table


@pytest.mark.parametrize("kind", ["MANAGED_TABLE", "EXTERNAL_TABLE"])
def test_the_name_decides_where_a_renamed_partition_is(client: Any, door: HmsDoor, kind: str) -> None:
    parameters = {"EXTERNAL": "TRUE"} if kind == "EXTERNAL_TABLE" else {}
    client.create_table(table("demo", "orders", {"day": "string"}, tableType=kind, parameters=parameters))
    before = client.add_partition(partition("demo", "orders", ["1"]))
    place = before.sd.location.removeprefix("file:")
    Path(place, "000000_0").write_text("rows")
    renamed = client.get_partition("demo", "orders", ["1"])
    renamed.values, renamed.parameters["a"] = ["2"], "b"
    renamed.sd.location = f"{before.sd.location}/deeper"
    client.rename_partition("demo", "orders", ["1"], renamed)
    after = client.get_partition("demo", "orders", ["2"])
    expected = place.replace("day=1", "day=2") if kind == "MANAGED_TABLE" else place
    assert after.sd.location == f"file:{expected}"
    assert after.parameters["a"] == "b"
    assert os.listdir(expected) == ["000000_0"]


def test_a_partition_is_not_renamed_to_itself(client: Any) -> None:
    client.create_table(table("demo", "orders", {"day": "string"}))
    same = client.add_partition(partition("demo", "orders", ["1"]))
    same.parameters["a"] = "b"
    with pytest.raises(ttypes.InvalidOperationException, match="exists"):
        client.rename_partition("demo", "orders", ["1"], same)
    assert "a" not in client.get_partition("demo", "orders", ["1"]).parameters


def test_a_location_has_no_slash_at_its_end(client: Any, door: HmsDoor) -> None:
    client.create_table(table("demo", "orders", {"day": "string"}))
    place = f"file:{door.warehouse}/elsewhere"
    added = client.add_partition(partition("demo", "orders", ["1"], sd=storage(f"{place}/")))
    assert added.sd.location == client.get_partition("demo", "orders", ["1"]).sd.location == place


@pytest.mark.parametrize("place", ["/", "//", "file:/", "file:///"])
def test_the_root_folder_is_not_the_default_location(
    client: Any, monkeypatch: pytest.MonkeyPatch, door: HmsDoor, place: str
) -> None:
    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", str(door.warehouse))
    client.create_table(table("demo", "orders", {"day": "string"}))
    with pytest.raises(ttypes.InvalidObjectException, match="outside all allowed folders"):
        client.add_partition(partition("demo", "orders", ["1"], sd=storage(place)))
    assert client.get_partition_names("demo", "orders", -1) == []
