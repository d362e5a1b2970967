"""A transaction that replaces a table, made on metadata that are no longer current."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx
import pytest
from pyiceberg.table.metadata import TableMetadataUtil

from catalog.iceberg.documents.tables import normalised
from tests.support.metadata_updates import snapshot, to_ref
from tests.support.rest_server import error_of

Create = Callable[..., httpx.Response]

TABLE = "/namespaces/demo/tables/t"


@pytest.mark.parametrize("parent", [None, 77])
def test_a_replacement_on_old_metadata_lowers_no_sequence_number(
    http: httpx.Client, create: Create, parent: int | None
) -> None:
    first = create().json()["metadata"]
    place = {"manifest_list": f"{first['location']}/metadata/snap.avro"}

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
