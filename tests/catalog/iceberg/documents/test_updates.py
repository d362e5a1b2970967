"""Updates change what they say and nothing else; PyIceberg reads the result."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.metadata import TableMetadataUtil

from catalog.errors import InvalidTableError, RequirementFailedError
from catalog.iceberg.clock import now_ms
from catalog.iceberg.documents.new_tables import new_document
from catalog.iceberg.documents.schemas import all_fields, with_fresh_ids
from catalog.iceberg.documents.tables import normalised, written
from catalog.iceberg.documents.updates import apply_updates

JSON = dict[str, Any]

START_MS = now_ms()
TAGS: JSON = {"type": "list", "element-id": 22, "element": "string", "element-required": False}
PAIR: JSON = {
    "type": "struct",
    "fields": [
        {"id": 20, "name": "x", "type": "int", "required": True},
        {"id": 21, "name": "tags", "type": TAGS, "required": False},
    ],
}
PAIRS: JSON = {"type": "map", "key-id": 7, "key": "string", "value-id": 8, "value": PAIR, "value-required": True}
SCHEMA: JSON = {
    "type": "struct",
    "identifier-field-ids": [5],
    "fields": [
        {"id": 5, "name": "id", "type": "long", "required": True},
        {"id": 6, "name": "pairs", "required": False, "type": PAIRS},
        {"id": 9, "name": "day", "type": "date", "required": False, "doc": "of the visit"},
    ],
}
SPEC: JSON = {"fields": [{"name": "day_month", "transform": "month", "source-id": 9}]}
ORDER: JSON = {"fields": [{"transform": "identity", "source-id": 5, "direction": "asc", "null-order": "nulls-first"}]}


def document(version: int = 2) -> JSON:
    return new_document(SCHEMA, "/t", spec=SPEC, order=ORDER, properties={"format-version": str(version), "a": "b"})


def snapshot(number: int, parent: int | None = None, **more: Any) -> JSON:
    own = {"snapshot-id": number, "sequence-number": number, "timestamp-ms": START_MS + number, "schema-id": 0}
    listed = {"manifest-list": f"/t/{number}.avro", "summary": {"operation": "append"}}
    return {**own, **listed, **({} if parent is None else {"parent-snapshot-id": parent}), **more}


def to_main(number: int) -> JSON:
    return {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": number}


def added(number: int, parent: int | None = None, **more: Any) -> list[JSON]:
    return [{"action": "add-snapshot", "snapshot": snapshot(number, parent, **more)}, to_main(number)]


def changed(base: JSON, *updates: JSON) -> JSON:
    after = apply_updates(base, updates, location="/t/metadata/0.json")
    assert after is not None
    TableMetadataUtil.parse_raw(json.dumps(written(after)))
    return after


def test_new_tables_count_the_ids_of_columns() -> None:
    made = document()
    assert {name: field_id for field_id, name, _ in all_fields(made["schemas"][0])} == {
        "id": 1,
        "pairs": 2,
        "day": 3,
        "pairs.key": 4,
        "pairs.value": 5,
        "pairs.value.x": 6,
        "pairs.value.tags": 7,
        "pairs.value.tags.element": 8,
    }
    assert made["schemas"][0]["identifier-field-ids"] == [1]
    assert made["partition-specs"][0]["fields"] == [
        {"name": "day_month", "transform": "month", "source-id": 3, "field-id": 1000}
    ]
    assert made["sort-orders"][0]["fields"][0]["source-id"] == 1
    assert made["properties"]["a"] == "b"
    assert "format-version" not in made["properties"]
    assert with_fresh_ids(made["schemas"][0])[0] == made["schemas"][0]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_what_an_engine_wrote_is_kept(version: int) -> None:
    base = normalised(written(document(version)))
    base["future"] = {"x": [1, 2]}
    base["schemas"][0]["future-of-schema"] = 1
    base["partition-specs"][0]["fields"][0]["source-ids"] = [3]
    rows = {"first-row-id": 0, "added-rows": 2} if version == 3 else {}
    number = {"sequence-number": 0} if version == 1 else {}
    after = apply_updates(base, added(4, **{"future-of-snapshot": "y"}, **rows, **number))
    assert after is not None
    kept = written(after)
    assert kept["future"] == {"x": [1, 2]}
    assert kept["schemas"][0]["future-of-schema"] == 1
    assert kept["snapshots"][0]["future-of-snapshot"] == "y"
    assert kept["partition-specs"][0]["fields"][0]["source-ids"] == [3]
    assert kept.get("next-row-id") == (2 if version == 3 else None)
    if version == 1:
        assert kept["schema"] == kept["schemas"][0]
        assert "last-sequence-number" not in kept
    changing = {"last-updated-ms", "snapshots", "snapshot-log", "refs", "current-snapshot-id", "next-row-id"}
    same = kept.keys() - {*changing, "last-sequence-number"}
    assert {name: kept[name] for name in same} == {name: written(base)[name] for name in same}


def test_metadata_of_the_first_version_without_lists_are_completed() -> None:
    old = written(document(1))
    for name in ("schemas", "partition-specs", "last-partition-id", "sort-orders", "refs", "snapshot-log"):
        del old[name]
    old["partition-spec"] = [{"name": "day", "transform": "identity", "source-id": 3}]
    complete = normalised(old)
    assert complete["partition-specs"][0]["fields"][0]["field-id"] == 1000
    assert complete["last-partition-id"] == 1000
    after = apply_updates(complete, [{"action": "upgrade-format-version", "format-version": 2}])
    assert after is not None
    assert "schema" not in written(after)
    TableMetadataUtil.parse_raw(json.dumps(written(after)))


def test_metadata_are_completed_without_copying_their_parts() -> None:
    given = written(changed(document(), *added(1)))
    del given["refs"]["main"], given["statistics"]
    before = deepcopy(given)
    complete = normalised(given)
    assert given == before
    assert (complete["refs"]["main"]["snapshot-id"], complete["statistics"]) == (1, [])
    assert complete["snapshots"] is given["snapshots"]


def test_snapshots_and_their_log() -> None:
    first = changed(document(), *added(1))
    assert first["metadata-log"][-1]["metadata-file"] == "/t/metadata/0.json"
    # A transaction's intermediate snapshot was never a state of the table.
    third = changed(first, *added(2, 1), *added(3, 2))
    assert [line["snapshot-id"] for line in third["snapshot-log"]] == [1, 3]
    back = changed(third, to_main(1))
    assert [line["snapshot-id"] for line in back["snapshot-log"]] == [1, 3, 1]
    assert back["snapshot-log"][-1]["timestamp-ms"] == back["last-updated-ms"]
    gone = changed(back, {"action": "remove-snapshots", "snapshot-ids": [3]})
    assert [line["snapshot-id"] for line in gone["snapshot-log"]] == [1]
    with pytest.raises(RequirementFailedError, match="sequence number 2 older than last sequence number 3"):
        apply_updates(third, [{"action": "add-snapshot", "snapshot": snapshot(9, 1, **{"sequence-number": 2})}])
    with pytest.raises(InvalidTableError, match="already exists"):
        apply_updates(third, [{"action": "add-snapshot", "snapshot": snapshot(2, 1)}])
    empty = changed(gone, {"action": "remove-snapshot-ref", "ref-name": "main"})
    assert written(empty)["current-snapshot-id"] == -1


def test_removed_snapshots_take_their_refs_and_statistics_along() -> None:
    tag = {"action": "set-snapshot-ref", "ref-name": "old", "type": "tag", "snapshot-id": 1}
    files = {"snapshot-id": 1, "statistics-path": "/t/1.puffin", "file-size-in-bytes": 1}
    sizes = {"file-footer-size-in-bytes": 1, "blob-metadata": []}
    statistics = {"action": "set-statistics", "statistics": {**files, **sizes}}
    partitions = {"action": "set-partition-statistics", "partition-statistics": files}
    base = changed(document(), *added(1), *added(2, 1), tag, statistics, partitions)
    assert (len(base["statistics"]), len(base["partition-statistics"]), set(base["refs"])) == (1, 1, {"main", "old"})
    after = changed(base, {"action": "remove-snapshots", "snapshot-ids": [1, 99]})
    assert (after["statistics"], after["partition-statistics"], set(after["refs"])) == ([], [], {"main"})
    assert apply_updates(after, [{"action": "remove-snapshots", "snapshot-ids": [99]}]) is None


def test_equal_schemas_specs_and_orders_are_reused() -> None:
    base = document()
    wider = deepcopy(base["schemas"][0])
    wider["fields"].append({"id": 9, "name": "more", "type": "string", "required": False})
    to_last = {"action": "set-current-schema", "schema-id": -1}
    after = changed(base, {"action": "add-schema", "schema": {**wider, "schema-id": 0}}, to_last)
    assert (after["current-schema-id"], after["last-column-id"]) == (1, 9)
    with pytest.raises(InvalidTableError, match="no schema has been added"):
        apply_updates(after, [{"action": "add-schema", "schema": wider}, to_last])
    spec = {
        "fields": [
            {"name": "m", "transform": "month", "source-id": 3},
            {"name": "i", "transform": "identity", "source-id": 9},
        ]
    }
    placed = changed(after, {"action": "add-spec", "spec": spec}, {"action": "set-default-spec", "spec-id": -1})
    # The month keeps the id that it had in the spec before.
    assert [field["field-id"] for field in placed["partition-specs"][1]["fields"]] == [1000, 1001]
    assert (placed["default-spec-id"], placed["last-partition-id"]) == (1, 1001)
    with pytest.raises(InvalidTableError, match="Cannot find source column"):
        apply_updates(placed, [{"action": "set-current-schema", "schema-id": 0}])
    unsorted = {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}}
    loose = changed(placed, unsorted, {"action": "set-default-sort-order", "sort-order-id": -1})
    assert loose["default-sort-order-id"] == 0
    gone = changed(
        loose, {"action": "remove-partition-specs", "spec-ids": [0]}, {"action": "remove-schemas", "schema-ids": [0]}
    )
    assert (len(gone["partition-specs"]), len(gone["schemas"])) == (1, 1)


def test_types_of_later_versions() -> None:
    schema = {"type": "struct", "fields": [{"id": 1, "name": "v", "type": "variant", "required": False}]}
    with pytest.raises(InvalidTableError, match="variant is not supported until v3"):
        new_document(schema, "/t", spec=None, order=None, properties={})
    made = new_document(schema, "/t", spec=None, order=None, properties={"format-version": "3"})
    assert made["next-row-id"] == 0
    key = {"key-id": "k", "encrypted-key-metadata": "eA==", "x": "y"}
    keyed = apply_updates(made, [{"action": "add-encryption-key", "encryption-key": key}])
    assert keyed is not None
    assert keyed["encryption-keys"] == [key]


@given(st.lists(st.sampled_from([*range(6)]), max_size=8))
def test_the_metadata_log_keeps_as_many_entries_as_the_table_wants(numbers: list[int]) -> None:
    base = changed(document(), {"action": "set-properties", "updates": {"write.metadata.previous-versions-max": "3"}})
    locations = ["/t/metadata/0.json"]
    for position, number in enumerate(numbers):
        after = apply_updates(
            base, [{"action": "set-properties", "updates": {"k": str(number)}}], location=f"/{position}.json"
        )
        if base["properties"].get("k") == str(number):
            assert after is None
        else:
            assert after is not None
            base = after
            locations.append(f"/{position}.json")
    assert [line["metadata-file"] for line in base["metadata-log"]] == locations[-3:]
