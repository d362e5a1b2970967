"""Values that no file or reader of Iceberg can store are refused, and change nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from catalog import Catalog
from tests.support.rest_server import error_of, set_property

Create = Callable[..., httpx.Response]

NUMBERS = ("--5", "-", "²", "\u0661", "", "9" * 5_000)


@pytest.mark.parametrize(
    "text",
    [
        r'{"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "\ud800"}}]}',
        r'{"requirements": [], "updates": [{"action": "set-properties", "updates": {"\uDC00": "a"}}]}',
        r'{"requirements": [{"type": "assert-table-uuid", "uuid": "\ud800"}], "updates": []}',
        b'{"requirements": [], "updates": [{"action": "\xed\xa0\x80"}]}',
    ],
)
def test_texts_that_are_no_unicode_are_refused(http: httpx.Client, create: Create, text: str | bytes) -> None:
    location = create().json()["metadata-location"]
    assert error_of(http.post("/namespaces/demo/tables/t", content=text)) == (400, "BadRequestException")
    assert http.get("/namespaces/demo/tables/t").json()["metadata-location"] == location


def test_pairs_of_surrogates_are_one_character(http: httpx.Client, create: Create) -> None:
    create()
    change = json.dumps({"requirements": [], "updates": [set_property("face", "😀 \\ud800")]})
    assert "\\ud83d" in change
    answer = http.post("/namespaces/demo/tables/t", content=change)
    assert answer.json()["metadata"]["properties"]["face"] == "😀 \\ud800"


@pytest.mark.parametrize("text", NUMBERS, ids=lambda text: text[:5])
def test_properties_that_are_numbers(http: httpx.Client, create: Create, text: str) -> None:
    assert create("new", properties={"format-version": text}).status_code == 400
    location = create().json()["metadata-location"]
    change = {"requirements": [], "updates": [set_property("write.metadata.previous-versions-max", text)]}
    assert error_of(http.post("/namespaces/demo/tables/t", json=change)) == (400, "BadRequestException")
    assert http.get("/namespaces/demo/tables/t").json()["metadata-location"] == location
    version: dict[str, Any] = {"schema-id": 0, "representations": [{"type": "sql", "sql": "SELECT 1", "dialect": "x"}]}
    view = {"name": "v", "schema": {"type": "struct", "fields": []}, "view-version": version}
    answer = http.post("/namespaces/demo/views", json={**view, "properties": {"version.history.num-entries": text}})
    assert error_of(answer) == (400, "BadRequestException")


@pytest.mark.parametrize("field", ["snapshot-id", "timestamp-ms", "sequence-number"])
def test_numbers_of_more_than_64_bits_are_refused(http: httpx.Client, create: Create, field: str) -> None:
    metadata = create().json()["metadata"]
    snapshot = {"snapshot-id": 1, "timestamp-ms": metadata["last-updated-ms"], "sequence-number": 1, field: 2**63}
    change = {"requirements": [], "updates": [{"action": "add-snapshot", "snapshot": snapshot}]}
    answer = http.post("/namespaces/demo/tables/t", json=change)
    assert error_of(answer) == (400, "BadRequestException")
    assert "64 bits" in answer.text


@pytest.mark.parametrize("name", [".", "..", "..."])
def test_names_of_dots_have_folders_of_their_own(
    http: httpx.Client, catalog: Catalog, create: Create, name: str
) -> None:
    location = create(name).json()["metadata"]["location"]
    assert location == f"{catalog.get_database('demo').location}/{name.replace('.', '%2E')}"


def test_many_columns_take_no_longer_than_they_should(http: httpx.Client) -> None:
    fields = [{"id": number, "name": f"c{number}", "type": "int", "required": False} for number in range(20_000)]
    started = time.monotonic()
    body = {"name": "wide", "schema": {"type": "struct", "fields": fields}}
    assert http.post("/namespaces/demo/tables", json=body).status_code == 200
    assert time.monotonic() - started < 20


def test_columns_of_all_types_are_shown(http: httpx.Client, catalog: Catalog) -> None:
    texts = {
        "variant": "variant",
        "geometry(srid:3857)": "geometry(srid:3857)",
        "geography": "geography",
        "timestamptz_ns": "timestamptz_ns",
        "timestamptz": "timestamp",
        "timestamp": "timestamp_ntz",
        "long": "bigint",
        "decimal(9, 2)": "decimal(9,2)",
        "fixed[3]": "binary",
        "uuid": "string",
    }
    part = {"id": 100, "name": "A b", "type": "int", "required": False}
    nested = {
        "type": "map",
        **{"key-id": 101, "key": "string", "value-id": 102, "value-required": False},
        "value": {
            "type": "list",
            **{"element-id": 103, "element-required": False, "element": {"type": "struct", "fields": [part]}},
        },
    }
    fields = [
        {"id": number, "name": f"C{number}", "type": kind, "required": False, "doc": "d"}
        for number, kind in enumerate([nested, *texts], 1)
    ]
    spec = {"fields": [{"source-id": len(fields), "name": "k", "transform": "identity"}]}
    body = {"name": "t", "schema": {"type": "struct", "fields": fields}, "partition-spec": spec}
    answer = http.post("/namespaces/demo/tables", json={**body, "properties": {"format-version": "3", "comment": "x"}})
    assert answer.status_code == 200, answer.text
    table = catalog.get_table("demo.t")
    shown = [*table.columns, *table.partition_keys]
    assert [column.type for column in shown] == ["map<string,array<struct<`A b`:int>>>", *texts.values()]
    assert [(column.name, column.comment) for column in shown] == [(f"c{number}", "d") for number in range(1, 12)]
    assert [key.name for key in table.partition_keys] == ["c11"]
    assert table.description == "x"
