"""A transaction that replaces a table, made on metadata that are no longer current."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from pyiceberg.table.metadata import TableMetadataUtil

from catalog import Catalog
from catalog.iceberg.documents.tables import normalised
from tests.support.metadata_updates import snapshot, to_ref, write_list
from tests.support.rest_server import error_of
from tests.support.written_files import hashed_table

Create = Callable[..., httpx.Response]

TABLE = "/namespaces/demo/tables/t"


@pytest.mark.parametrize("parent", [None, 77])
def test_a_replacement_on_old_metadata_lowers_no_sequence_number(
    http: httpx.Client, create: Create, parent: int | None
) -> None:
    first = create().json()["metadata"]
    place = {"manifest_list": f"{first['location']}/metadata/snap.avro"}
    write_list(Path(place["manifest_list"]))

    def commit(update: dict[str, object], number: int) -> httpx.Response:
        requirements = [{"type": "assert-table-uuid", "uuid": first["table-uuid"]}]
        return http.post(TABLE, json={"requirements": requirements, "updates": [update, to_ref(number)]})

    stale = snapshot(normalised(first), 9, parent_snapshot_id=parent, **place)
    for number in (1, 2):
        current = normalised(http.get(TABLE).json()["metadata"])
        assert commit(snapshot(current, number, **place), number).status_code == 200
    answer = commit(stale, 9)
    assert error_of(answer) == (409, "CommitFailedException")
    assert "sequence number 1 older than last sequence number 2" in answer.text
    after = http.get(TABLE).json()["metadata"]
    assert (after["last-sequence-number"], after["current-snapshot-id"]) == (2, 2)
    TableMetadataUtil.parse_raw(json.dumps(after))


@pytest.mark.parametrize("kind", ["iceberg", "scheme"])
def test_the_format_version_of_a_table_that_calve_follows_stays(
    http: httpx.Client, catalog: Catalog, create: Create, kind: str
) -> None:
    if kind == "scheme":
        hashed_table(catalog, "demo.mine")
    else:
        catalog.create_table("demo.mine", columns=[("v", "int")], partition_keys=[("k", "int")], format="iceberg")
    create()
    upgrade = {"requirements": [], "updates": [{"action": "upgrade-format-version", "format-version": 3}]}
    answer = http.post("/namespaces/demo/tables/mine", json=upgrade)
    assert error_of(answer) == (400, "BadRequestException")
    assert "table demo.mine has the format version 2, which Calve follows" in answer.text
    assert http.get("/namespaces/demo/tables/mine").json()["metadata"]["format-version"] == 2
    assert http.post(TABLE, json=upgrade).json()["metadata"]["format-version"] == 3
