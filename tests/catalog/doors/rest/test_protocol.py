"""The REST door keeps the protocol: names, pages, errors, tags, transactions, views, roles and repeated requests."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from catalog import Catalog
from catalog.errors import AlreadyExistsError
from catalog.iceberg.pointers import insert_pointer
from catalog.tables.own_files import PurgedFiles
from tests.catalog.doors.rest.test_pyiceberg import make_scheme_table
from tests.support.rest_server import error_of, properties_of, set_property

Create = Callable[..., httpx.Response]
JSON = dict[str, Any]


# --- Namespaces -------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_namespaces_of_one_level_are_databases(http: httpx.Client, catalog: Catalog) -> None:
    given = {"namespace": ["Shop"], "properties": {"comment": "sales", "owner": "ann"}}
    assert http.post("/namespaces", json=given).json()["namespace"] == ["shop"]
    database = catalog.get_database("shop")
    assert (database.description, database.properties) == ("sales", {"owner": "ann"})
    changes = {"removals": ["owner", "none"], "updates": {"team": "a"}}
    assert http.post("/namespaces/SHOP/properties", json=changes).json() == {
        "updated": ["team"],
        "removed": ["owner"],
        "missing": ["none"],
    }
    properties = http.get("/namespaces/shop").json()["properties"]
    assert properties == {"comment": "sales", "team": "a", "location": database.location}
    assert error_of(http.post("/namespaces", json=given)) == (409, "AlreadyExistsException")
    catalog.create_table("shop.t", columns=[("id", "int")])
    assert error_of(http.delete("/namespaces/shop")) == (409, "NamespaceNotEmptyException")
    catalog.drop_table("shop.t")
    assert http.delete("/namespaces/shop").status_code == 204
    assert error_of(http.get("/namespaces/shop")) == (404, "NoSuchNamespaceException")
    assert http.head("/namespaces/shop").status_code == 404


def test_namespaces_of_several_levels_and_odd_names(http: httpx.Client, catalog: Catalog) -> None:
    for levels in (["a", "b", "c"], ["a.b"], ["x/y"], ["ü 'q'"], ["a", "b.c"]):
        assert http.post("/namespaces", json={"namespace": levels, "properties": {"k": "v"}}).status_code == 200
    assert [database.name for database in catalog.list_databases()] == ["a", "demo"]
    listed = http.get("/namespaces").json()["namespaces"]
    assert listed == [["a"], ["a.b"], ["demo"], ["x/y"], ["ü 'q'"]]
    assert http.get("/namespaces", params={"parent": "a"}).json()["namespaces"] == [["a", "b"], ["a", "b.c"]]
    assert http.get("/namespaces?parent=a%1Fb").json()["namespaces"] == [["a", "b", "c"]]
    for path in ("a%1Fb%1Fc", "a.b", "x%2Fy", "%C3%BC+%27q%27", "a%1fb.c"):
        assert http.get(f"/namespaces/{path}").json()["properties"] == {"k": "v"}, path
    assert error_of(http.delete("/namespaces/a")) == (409, "NamespaceNotEmptyException")
    assert error_of(http.delete("/namespaces/a%1Fb")) == (409, "NamespaceNotEmptyException")
    for path in ("a%1Fb%1Fc", "a%1Fb", "a%1Fb.c", "a"):
        assert http.delete(f"/namespaces/{path}").status_code == 204, path


def test_tables_of_odd_names(http: httpx.Client, catalog: Catalog, create: Create) -> None:
    http.post("/namespaces", json={"namespace": ["demo", "in.ner"]})
    for namespace, name in (("demo", "ta.ble"), ("demo", "tab/le"), ("demo%1Fin.ner", "t")):
        schema = {"type": "struct", "fields": []}
        made = http.post(f"/namespaces/{namespace}/tables", json={"name": name, "schema": schema})
        assert made.status_code == 200, made.text
        assert Path(made.json()["metadata-location"]).exists()
        assert http.head(f"/namespaces/{namespace}/tables/{name.replace('/', '%2F')}").status_code == 204
    assert catalog.list_tables() == []
    create("plain")
    assert [table.full_name for table in catalog.list_tables()] == ["demo.plain"]


def test_lists_come_in_pages(http: httpx.Client, create: Create) -> None:
    for number in range(5):
        create(f"t{number}")
        http.post("/namespaces", json={"namespace": [f"n{number}"]})
    for path, key in (("/namespaces/demo/tables", "identifiers"), ("/namespaces", "namespaces")):
        seen, token = [], ""
        while token is not None:
            page = http.get(path, params={"pageToken": token, "pageSize": 2}).json()
            assert len(page[key]) <= 2
            seen += page[key]
            token = page["next-page-token"]
        assert seen == http.get(path).json()[key]
        assert len(seen) >= 5
    for query in ("pageSize=0", "pageSize=x", "pageToken=%00", "pageToken=5"):
        assert http.get(f"/namespaces/demo/tables?{query}").status_code == 400, query


# --- Tables -----------------------------------------------------------------------------------------------------------


def test_loads_have_tags(http: httpx.Client, create: Create) -> None:
    tag = create().headers["etag"]
    loaded = http.get("/namespaces/demo/tables/t")
    assert loaded.headers["etag"] == tag
    assert http.get("/namespaces/demo/tables/t", headers={"If-None-Match": tag}).status_code == 304
    of_refs = http.get("/namespaces/demo/tables/t?snapshots=refs", headers={"If-None-Match": tag})
    assert of_refs.status_code == 200, "another answer about the same metadata"
    http.post("/namespaces/demo/tables/t", json={"requirements": [], "updates": [set_property("a", "1")]})
    assert http.get("/namespaces/demo/tables/t", headers={"If-None-Match": tag}).status_code == 200
    assert error_of(http.get("/namespaces/demo/tables/t?snapshots=some")) == (400, "BadRequestException")


def test_a_staged_table_exists_after_its_commit(http: httpx.Client, create: Create) -> None:
    staged = create("later", **{"stage-create": True}).json()
    assert "metadata-location" not in staged
    assert http.head("/namespaces/demo/tables/later").status_code == 404
    metadata = staged["metadata"]
    updates = [
        {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
        {"action": "add-schema", "schema": metadata["schemas"][0]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": metadata["partition-specs"][0]},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": metadata["sort-orders"][0]},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": metadata["location"]},
    ]
    change = {"requirements": [{"type": "assert-create"}], "updates": updates}
    made = http.post("/namespaces/demo/tables/later", json=change)
    assert made.status_code == 200, made.text
    assert made.json()["metadata"]["table-uuid"] == metadata["table-uuid"]
    assert error_of(http.post("/namespaces/demo/tables/later", json=change)) == (409, "CommitFailedException")


@pytest.mark.smoke
def test_a_transaction_changes_all_tables_or_none(http: httpx.Client, catalog: Catalog, create: Create) -> None:
    create("a")
    create("b")
    make_scheme_table(catalog, "demo.visits")

    def change(name: str, value: str, *requirements: JSON) -> JSON:
        return {
            "identifier": {"namespace": ["demo"], "name": name},
            "requirements": list(requirements),
            "updates": [set_property("k", value)],
        }

    uuid_of_b = http.get("/namespaces/demo/tables/b").json()["metadata"]["table-uuid"]
    right, wrong = ({"type": "assert-table-uuid", "uuid": text} for text in (uuid_of_b, str(uuid.uuid4())))
    before = set(Path(catalog.get_database("demo").location).rglob("*.json"))
    refused = {"table-changes": [change("a", "1"), change("visits", "1"), change("b", "1", wrong)]}
    assert error_of(http.post("/transactions/commit", json=refused)) == (409, "CommitFailedException")
    assert set(Path(catalog.get_database("demo").location).rglob("*.json")) == before
    taken = {"table-changes": [change("a", "2"), change("visits", "2"), change("b", "2", right)]}
    assert http.post("/transactions/commit", json=taken).status_code == 204
    assert [properties_of(http, name)["k"] for name in ("a", "b", "visits")] == ["2", "2", "2"]
    assert catalog.get_table("demo.visits").properties["k"] == "2"
    missing = {"table-changes": [change("a", "3"), change("none", "3")]}
    assert error_of(http.post("/transactions/commit", json=missing)) == (404, "NoSuchTableException")
    twice = {"table-changes": [change("a", "3"), change("A", "4")]}
    assert error_of(http.post("/transactions/commit", json=twice)) == (400, "BadRequestException")
    assert properties_of(http, "a")["k"] == "2"


@pytest.mark.smoke
def test_transactions_over_two_tables_exclude_each_other(http: httpx.Client, create: Create) -> None:
    create("a")
    create("b")

    def transact(number: int) -> int:
        names = ("a", "b") if number % 2 else ("b", "a")
        changes = []
        for name in names:
            metadata = http.get(f"/namespaces/demo/tables/{name}").json()["metadata"]
            # Taken only if the schema is the one that was read, so that exactly one of those that read it succeeds.
            fields = [*metadata["schemas"][-1]["fields"]]
            last = metadata["last-column-id"]
            fields.append({"id": last + 1, "name": f"c{last + 1}", "type": "int", "required": False})
            changes.append(
                {
                    "identifier": {"namespace": ["demo"], "name": name},
                    "requirements": [{"type": "assert-last-assigned-field-id", "last-assigned-field-id": last}],
                    "updates": [
                        {"action": "add-schema", "schema": {"type": "struct", "fields": fields}},
                        {"action": "set-current-schema", "schema-id": -1},
                    ],
                }
            )
        return http.post("/transactions/commit", json={"table-changes": changes}).status_code

    with ThreadPoolExecutor(6) as pool:
        statuses = list(pool.map(transact, range(18)))
    assert set(statuses) <= {204, 409}
    last = [http.get(f"/namespaces/demo/tables/{name}").json()["metadata"]["last-column-id"] for name in ("a", "b")]
    assert last == [2 + statuses.count(204)] * 2
    assert statuses.count(204) >= 1


@pytest.mark.smoke
def test_one_of_many_creations_succeeds(http: httpx.Client, catalog: Catalog, create: Create) -> None:
    barrier = threading.Barrier(6)

    def race(number: int) -> int:
        barrier.wait()
        if number == 5:
            # Calve itself wants the name, too.
            try:
                catalog.create_table("demo.t", columns=[("id", "int")])
            except AlreadyExistsError:
                return 409
            return 200
        return create("t").status_code

    with ThreadPoolExecutor(6) as pool:
        statuses = list(pool.map(race, range(6)))
    assert sorted(statuses) == [200] + [409] * 5
    assert [table.full_name for table in catalog.list_tables("demo")] == ["demo.t"]
    written = list(Path(catalog.get_database("demo").location).rglob("*.metadata.json"))
    assert len(written) == (0 if statuses[5] == 200 else 1)


@pytest.mark.smoke
def test_no_table_remains_in_a_dropped_namespace(http: httpx.Client, catalog: Catalog, create: Create) -> None:
    for _ in range(5):
        with ThreadPoolExecutor(2) as pool:
            made = pool.submit(create)
            dropped = pool.submit(http.delete, "/namespaces/demo")
        outcome = made.result().status_code, dropped.result().status_code
        assert outcome in ((200, 409), (404, 204)), outcome
        if outcome[0] == 200:
            assert http.delete("/namespaces/demo/tables/t").status_code == 204
        else:
            http.post("/namespaces", json={"namespace": ["demo"]})
    assert catalog.list_tables() == []


def test_locations_outside_of_allowed_folders_are_refused(
    http: httpx.Client, catalog: Catalog, create: Create, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALVE_WAREHOUSE", str(tmp_path / "warehouse"))
    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", "")
    elsewhere = str(tmp_path / "elsewhere")
    secret = tmp_path / "secret.json"
    secret.write_text('{"password": "x"}')
    create("mine")
    metadata = http.get("/namespaces/demo/tables/mine").json()["metadata"]
    snapshot = {"snapshot-id": 1, "timestamp-ms": metadata["last-updated-ms"], "sequence-number": 1, "summary": {}}
    updates: list[JSON] = [
        {"action": "set-location", "location": elsewhere},
        set_property("write.data.path", elsewhere),
        {"action": "add-snapshot", "snapshot": {**snapshot, "manifest-list": f"{elsewhere}/list.avro"}},
        {"action": "set-statistics", "statistics": {"snapshot-id": 1, "statistics-path": f"{elsewhere}/s.puffin"}},
    ]
    for update in updates:
        answer = http.post("/namespaces/demo/tables/mine", json={"requirements": [], "updates": [update]})
        assert error_of(answer) == (400, "BadRequestException"), update
    assert create("t", location=elsewhere).status_code == 400
    registered = http.post("/namespaces/demo/register", json={"name": "t", "metadata-location": str(secret)})
    assert registered.status_code == 400
    assert "password" not in registered.text
    assert http.get("/namespaces/demo/tables/mine").json()["metadata"] == metadata


def test_a_folder_of_a_calve_table_is_no_location_of_a_table(
    http: httpx.Client, catalog: Catalog, create: Create
) -> None:
    orders = catalog.create_table("demo.orders", columns=[("id", "int")])
    answer = create("t", location=f"{orders.location}/inner")
    assert error_of(answer) == (400, "BadRequestException")
    assert "demo.orders" in answer.text


def test_a_purge_keeps_what_another_table_reaches(http: httpx.Client, catalog: Catalog, create: Create) -> None:
    location = create("a").json()["metadata-location"]
    # The door refuses this; writers of the catalog's database can do it.
    with catalog.storage.write() as connection:
        insert_pointer(connection, "demo", "b", location)
    assert http.delete("/namespaces/demo/tables/a?purgeRequested=true").status_code == 204
    assert Path(location).exists()
    assert http.get("/namespaces/demo/tables/b").status_code == 200
    assert http.delete("/namespaces/demo/tables/b?purgeRequested=true").status_code == 204
    assert not Path(location).exists()


def test_vacuum_finishes_an_interrupted_purge(
    http: httpx.Client, catalog: Catalog, create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = Path(create().json()["metadata-location"])
    with monkeypatch.context() as interrupted:
        interrupted.setattr("catalog.engine_tables.entries.finish_drop", lambda *_arguments: PurgedFiles())
        assert http.delete("/namespaces/demo/tables/t?purgeRequested=true").status_code == 204
    assert location.exists()
    assert catalog.vacuum(dry_run=True).purged == ("demo.t",)
    assert catalog.vacuum().purged == ("demo.t",)
    assert not location.exists()
    assert catalog.vacuum().purged == ()


def test_former_metadata_are_deleted_where_the_table_asks_for_it(http: httpx.Client, create: Create) -> None:
    wish = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "2"}
    locations = [create(properties=wish).json()["metadata-location"]]
    for number in range(5):
        change = {"requirements": [], "updates": [set_property("k", str(number))]}
        locations.append(http.post("/namespaces/demo/tables/t", json=change).json()["metadata-location"])
    assert [Path(location).exists() for location in locations] == [False, False, False, True, True, True]
    log = http.get("/namespaces/demo/tables/t").json()["metadata"]["metadata-log"]
    assert [line["metadata-file"] for line in log] == locations[3:5]


@pytest.mark.parametrize("content", ["rows", "{}", None])
def test_no_commit_deletes_what_is_no_metadata_of_its_table(
    http: httpx.Client, catalog: Catalog, create: Create, content: str | None
) -> None:
    folder = Path(catalog.get_database("demo").location, "incoming")
    other = create("other").json()["metadata-location"]
    foreign = folder / "part-0.parquet"
    foreign.parent.mkdir(parents=True, exist_ok=True)
    foreign.write_text(Path(other).read_text() if content is None else content)
    metadata = create().json()["metadata"]
    metadata["metadata-log"] = [{"metadata-file": str(foreign), "timestamp-ms": metadata["last-updated-ms"]}]
    document = Path(metadata["location"]) / "metadata" / "00009-x.metadata.json"
    document.write_text(json.dumps(metadata))
    given = {"name": "t", "metadata-location": str(document), "overwrite": True}
    assert http.post("/namespaces/demo/register", json=given).status_code == 200
    wishes = {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "1",
        "write.metadata.path": str(folder),
    }
    change = {"requirements": [], "updates": [{"action": "set-properties", "updates": wishes}]}
    assert http.post("/namespaces/demo/tables/t", json=change).status_code == 200
    assert foreign.exists()


def test_a_missing_metadata_file_is_said_and_the_table_can_be_dropped(
    http: httpx.Client, catalog: Catalog, create: Create
) -> None:
    location = create().json()["metadata-location"]
    Path(location).unlink()
    assert error_of(http.get("/namespaces/demo/tables/t")) == (404, "NotFoundException")
    assert catalog.get_table("demo.t").columns == ()
    assert http.delete("/namespaces/demo/tables/t").status_code == 204


# --- Views ------------------------------------------------------------------------------------------------------------


def test_views(http: httpx.Client, catalog: Catalog, create: Create) -> None:
    text = {"type": "sql", "sql": "select 1", "dialect": "spark"}
    version = {
        "version-id": 1,
        "timestamp-ms": 5,
        "schema-id": 0,
        "summary": {},
        "representations": [text],
        "default-namespace": ["demo"],
    }
    schema = {"type": "struct", "fields": [{"id": 0, "name": "x", "type": "int", "required": False}]}
    body = {"name": "v", "schema": schema, "view-version": version, "properties": {}}
    made = http.post("/namespaces/demo/views", json=body)
    assert made.status_code == 200, made.text
    assert error_of(create("v")) == (409, "AlreadyExistsException")
    assert error_of(http.get("/namespaces/demo/tables/v")) == (404, "NoSuchTableException")
    assert http.get("/namespaces/demo/views").json()["identifiers"] == [{"namespace": ["demo"], "name": "v"}]
    assert catalog.list_tables("demo") == []
    other = {**version, "representations": [{**text, "sql": "select 2"}], "version-id": 9}
    change = {
        "requirements": [{"type": "assert-view-uuid", "uuid": made.json()["metadata"]["view-uuid"]}],
        "updates": [
            {"action": "add-view-version", "view-version": other},
            {"action": "set-current-view-version", "view-version-id": -1},
        ],
    }
    changed = http.post("/namespaces/demo/views/v", json=change).json()["metadata"]
    assert (len(changed["versions"]), len(changed["version-log"])) == (2, 2)
    names = {"source": {"namespace": ["demo"], "name": "v"}, "destination": {"namespace": ["demo"], "name": "w"}}
    assert http.post("/views/rename", json=names).status_code == 204
    assert http.head("/namespaces/demo/views/w").status_code == 204
    assert error_of(http.get("/namespaces/demo/views/v")) == (404, "NoSuchViewException")
    assert http.delete("/namespaces/demo/views/w").status_code == 204


# --- Malformed requests -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "5",
        '{"name": 5}',
        '{"name": "t", "schema": 5}',
        '{"name": "t", "schema": {"type": "struct"}}',
        "NaN",
    ],
)
def test_malformed_bodies_are_refused(http: httpx.Client, content: str) -> None:
    assert http.post("/namespaces/demo/tables", content=content).status_code == 400
    assert http.post("/namespaces", content=content).status_code == 400
    assert http.post("/transactions/commit", content=content).status_code == 400


@pytest.mark.parametrize(
    "document",
    [[], {}, {"format-version": 2}, {"format-version": 2, "schemas": [5]}, {"format-version": 1, "schema": 5}],
    ids=json.dumps,
)
def test_what_is_no_metadata_file_is_not_registered(http: httpx.Client, tmp_path: Path, document: object) -> None:
    path = tmp_path / "x.metadata.json"
    path.write_text(json.dumps(document))
    for kind in ("register", "register-view"):
        answer = http.post(f"/namespaces/demo/{kind}", json={"name": "t", "metadata-location": str(path)})
        assert answer.status_code == 400, answer.text
    path.write_text("secret")
    answer = http.post("/namespaces/demo/register", json={"name": "t", "metadata-location": str(path)})
    assert answer.status_code == 400
    assert "secret" not in answer.text


def test_unknown_paths_and_methods(http: httpx.Client) -> None:
    assert error_of(http.get("/nothing")) == (404, "NotFoundException")
    assert error_of(http.put("/namespaces")) == (405, "UnsupportedOperationException")


@pytest.mark.parametrize(
    "update",
    [
        {"action": "unknown"},
        {"action": "add-schema"},
        {"action": "add-schema", "schema": {"type": "struct", "fields": [{"id": 1}]}},
        {
            "action": "add-schema",
            "schema": {"type": "struct", "fields": [{"id": 1, "name": "a", "type": "moon", "required": False}]},
        },
        {"action": "set-current-schema", "schema-id": 77},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-snapshot", "snapshot": {"snapshot-id": "x"}},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 5},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "stem", "snapshot-id": 5},
        {"action": "upgrade-format-version", "format-version": 1},
        {"action": "upgrade-format-version", "format-version": 9},
        {"action": "set-properties", "updates": {"a": 1}},
        {"action": "remove-schemas", "schema-ids": [0]},
        {"action": "remove-partition-specs", "spec-ids": [0]},
        {"action": "add-spec", "spec": {"fields": [{"name": "x", "transform": "identity", "source-id": 99}]}},
        {"action": "set-location", "location": ""},
        {"action": "assign-uuid", "uuid": "x"},
        5,
    ],
    ids=json.dumps,
)
def test_impossible_updates_change_nothing(http: httpx.Client, create: Create, update: object) -> None:
    location = create().json()["metadata-location"]
    answer = http.post("/namespaces/demo/tables/t", json={"requirements": [], "updates": [update]})
    assert answer.status_code == 400, answer.text
    assert http.get("/namespaces/demo/tables/t").json()["metadata-location"] == location
