"""No change through the REST door makes a folder of a table one of another table, or moves a Calve table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyiceberg.io.pyarrow import PyArrowFile
from sqlalchemy import Connection

from catalog import Catalog
from catalog.errors import LocationInUseError
from catalog.iceberg.documents.tables import normalised
from catalog.iceberg.pointers import delete_pointer
from catalog.iceberg.storage import MOST_BYTES
from tests.catalog.doors.rest.test_pyiceberg import make_scheme_table
from tests.support.metadata_updates import snapshot, to_ref, write_list
from tests.support.rest_server import error_of, set_property
from tests.support.sources import list_source

Create = Callable[..., httpx.Response]

PROPERTIES = ("write.metadata.path", "write.data.path", "write.object-storage.path")


@pytest.fixture
def foreign(catalog: Catalog) -> str:
    """The folder of a Calve table."""
    return catalog.create_table("demo.orders", columns=[("id", "int")]).location


@pytest.mark.parametrize("name", PROPERTIES)
def test_properties_name_no_folder_of_a_calve_table(
    http: httpx.Client, catalog: Catalog, create: Create, foreign: str, name: str
) -> None:
    assert error_of(create("new", properties={name: foreign})) == (400, "BadRequestException")
    make_scheme_table(catalog)
    create()
    for table in ("t", "visits"):
        change = {"requirements": [], "updates": [set_property(name, f"{foreign}/inner")]}
        answer = http.post(f"/namespaces/demo/tables/{table}", json=change)
        assert error_of(answer) == (400, "BadRequestException")
        assert "demo.orders" in answer.text
    assert not list(Path(foreign).rglob("*.json"))


@pytest.mark.parametrize("inside", ["", "/inner", None])
def test_tables_of_engines_have_folders_of_their_own(
    http: httpx.Client, catalog: Catalog, create: Create, inside: str | None
) -> None:
    first, second = (create(name).json()["metadata"] for name in ("first", "second"))
    owned = Path(first["location"])
    taken = str(owned.parent) if inside is None else f"file:{owned}{inside}"
    for answer in (
        create("new", location=taken),
        create("new", location=taken, **{"stage-create": True}),
        *(create("new", properties={name: taken}) for name in PROPERTIES),
        *(
            http.post("/namespaces/demo/tables/second", json={"requirements": [], "updates": [update]})
            for update in ({"action": "set-location", "location": taken}, set_property("write.data.path", taken))
        ),
    ):
        assert error_of(answer) == (400, "BadRequestException")
        assert "demo.first" in answer.text or inside is None
    document = Path(second["location"], "metadata", "00001-x.metadata.json")
    document.write_text(json.dumps({**second, "location": taken}))
    for given in ({"name": "new"}, {"name": "second", "overwrite": True}):
        answer = http.post("/namespaces/demo/register", json={**given, "metadata-location": str(document)})
        assert error_of(answer) == (400, "BadRequestException")
    with pytest.raises(LocationInUseError):
        catalog.create_table("demo.orders", columns=[("id", "int")], location=taken)
    assert http.get("/namespaces/demo/tables/second").json()["metadata"]["location"] == second["location"]


def test_no_table_is_in_a_folder_of_source_files(
    http: httpx.Client, create: Create, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    list_source(monkeypatch, tmp_path, f"{landing}/*.csv")
    create()
    change = {"requirements": [], "updates": [set_property("write.data.path", str(landing))]}
    for answer in (
        create("new", location=str(landing)),
        create("new", properties={"write.metadata.path": f"{landing}/deeper"}),
        http.post("/namespaces/demo/tables/t", json=change),
    ):
        assert error_of(answer) == (400, "BadRequestException")
        assert f"the source '{landing}" in answer.text
    assert not list(landing.iterdir())


def test_a_folder_is_free_again_after_its_table_is_dropped(http: httpx.Client, create: Create) -> None:
    location = create("first").json()["metadata"]["location"]
    assert create("first2", location=f"{location}2").status_code == 200
    assert http.delete("/namespaces/demo/tables/first").status_code == 204
    assert create("new", location=location).status_code == 200


def test_a_table_may_name_its_own_folder(http: httpx.Client, catalog: Catalog, create: Create) -> None:
    make_scheme_table(catalog)
    create()
    for table in ("t", "visits"):
        metadata = http.get(f"/namespaces/demo/tables/{table}").json()["metadata"]
        change = {"requirements": [], "updates": [set_property("write.metadata.path", f"{metadata['location']}/meta")]}
        answer = http.post(f"/namespaces/demo/tables/{table}", json=change)
        assert "/meta/" in answer.json()["metadata-location"]


def test_the_location_of_a_calve_table_cannot_change(http: httpx.Client, catalog: Catalog) -> None:
    make_scheme_table(catalog)
    before = http.get("/namespaces/demo/tables/visits").json()
    elsewhere = f"{before['metadata']['location']}2"
    change = {"requirements": [], "updates": [{"action": "set-location", "location": elsewhere}]}
    answer = http.post("/namespaces/demo/tables/visits", json=change)
    assert error_of(answer) == (400, "BadRequestException")
    assert http.get("/namespaces/demo/tables/visits").json() == before
    assert not list(Path(elsewhere).rglob("*.json"))


@pytest.mark.parametrize("name", ["..", ".", ""])
def test_no_location_that_engines_resolve_in_different_ways_is_set(
    http: httpx.Client, create: Create, name: str
) -> None:
    made = create().json()
    location = f"{made['metadata']['location']}/{name}/other"
    change = {"requirements": [], "updates": [{"action": "set-location", "location": location}]}
    answer = http.post("/namespaces/demo/tables/t", json=change)
    assert error_of(answer) == (400, "BadRequestException")
    assert "write it without them" in answer.text
    creation = {"requirements": [{"type": "assert-create"}], "updates": change["updates"]}
    assert error_of(http.post("/namespaces/demo/tables/new", json=creation))[0] == 400
    document = Path(made["metadata"]["location"], "metadata", "00001-x.metadata.json")
    document.write_text(json.dumps({**made["metadata"], "location": location}))
    given = {"name": "new", "metadata-location": str(document)}
    assert error_of(http.post("/namespaces/demo/register", json=given)) == (400, "BadRequestException")
    assert http.get("/namespaces/demo/tables/t").json()["metadata-location"] == made["metadata-location"]


def test_registering_over_a_table_takes_no_folder_of_a_calve_table(
    http: httpx.Client, create: Create, foreign: str
) -> None:
    made = create().json()
    metadata = {**made["metadata"], "location": f"{foreign}/inner"}
    document = Path(made["metadata"]["location"], "metadata", "00001-x.metadata.json")
    document.write_text(json.dumps(metadata))
    given = {"name": "t", "metadata-location": str(document), "overwrite": True}
    assert error_of(http.post("/namespaces/demo/register", json=given)) == (400, "BadRequestException")
    assert http.get("/namespaces/demo/tables/t").json()["metadata-location"] == made["metadata-location"]


def test_a_table_that_was_dropped_meanwhile_is_not_renamed(
    http: httpx.Client, create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    create()

    def drop(connection: Connection, _name: str) -> None:
        delete_pointer(connection, "demo", "t")

    monkeypatch.setattr("catalog.engine_tables.entries.refuse_awaited_name", drop)
    names = {"source": {"namespace": ["demo"], "name": "t"}, "destination": {"namespace": ["demo"], "name": "u"}}
    assert error_of(http.post("/tables/rename", json=names)) == (404, "NoSuchTableException")


def test_folders_of_a_table_that_was_only_staged_are_in_nobodys_way(
    http: httpx.Client, catalog: Catalog, create: Create, tmp_path: Path
) -> None:
    staged = create("later", **{"stage-create": True}).json()["metadata"]["location"]
    folder = Path(staged.removeprefix("file:"))
    assert sorted(path.name for path in folder.iterdir()) == ["data", "metadata"]
    assert create("later", **{"stage-create": True}).json()["metadata"]["location"] == staged
    assert create("later").json()["metadata"]["location"] == staged
    assert http.delete("/namespaces/demo/tables/later?purgeRequested=true").status_code == 204
    create("mine", **{"stage-create": True})
    assert catalog.create_table("demo.mine", columns=[("id", "int")]).location.endswith("/mine")
    create("last", **{"stage-create": True})
    catalog.drop_table("demo.mine")
    catalog.drop_database("demo")


def test_a_table_staged_in_a_folder_of_a_calve_table_makes_none(
    http: httpx.Client, create: Create, foreign: str
) -> None:
    answer = create("new", location=foreign, **{"stage-create": True})
    assert error_of(answer) == (400, "BadRequestException")
    assert not Path(foreign.removeprefix("file:"), "data").exists()


def test_a_snapshot_whose_manifest_list_cannot_be_read_is_refused(
    http: httpx.Client, create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = create().json()["metadata"]
    listed = Path(made["location"], "metadata", "snap-1.avro")
    added = snapshot(normalised(made), 1, manifest_list=str(listed))
    change = {"requirements": [], "updates": [added, to_ref(1)]}
    answer = http.post("/namespaces/demo/tables/t", json=change)
    assert error_of(answer) == (400, "BadRequestException")
    assert f"the manifest list {listed} of snapshot 1 cannot be read: FileNotFoundError" in answer.text
    for content in (b"", b"garbage", Path(write_list(listed)).read_bytes()[:-1]):
        listed.write_bytes(content)
        answer = http.post("/namespaces/demo/tables/t", json=change)
        assert error_of(answer) == (400, "BadRequestException")
        assert f"the manifest list {listed} of snapshot 1 cannot be read" in answer.text
    assert http.get("/namespaces/demo/tables/t").json()["metadata"] == made
    write_list(listed)
    asked = list[str]()
    opened = PyArrowFile.open

    def counted(file: PyArrowFile, seekable: bool = True) -> Any:
        asked.append(file.location)
        return opened(file, seekable)

    monkeypatch.setattr(PyArrowFile, "open", counted)
    assert http.post("/namespaces/demo/tables/t", json=change).status_code == 200
    assert [path for path in asked if not path.endswith(".metadata.json")] == [str(listed)]


def test_a_view_has_a_folder_of_its_own(http: httpx.Client, catalog: Catalog, create: Create, foreign: str) -> None:
    schema = {"type": "struct", "fields": [{"id": 0, "name": "x", "type": "int", "required": False}]}
    text = {"type": "sql", "sql": "select 1", "dialect": "spark"}
    version = {"version-id": 1, "timestamp-ms": 5, "schema-id": 0, "summary": {}, "default-namespace": ["demo"]}
    body = {"schema": schema, "view-version": {**version, "representations": [text]}, "properties": {}}
    made = http.post("/namespaces/demo/views", json={"name": "v", **body})
    own = made.json()["metadata"]["location"]
    for location in (foreign, f"{foreign}/inner", str(Path(foreign).parent), own):
        answer = http.post("/namespaces/demo/views", json={"name": "w", "location": location, **body})
        assert error_of(answer) == (400, "BadRequestException"), location
    for location in (own, f"{own}/inner"):
        assert error_of(create("new", location=location)) == (400, "BadRequestException")
        with pytest.raises(LocationInUseError, match=r"demo\.v"):
            catalog.create_table("demo.new", columns=[("id", "int")], location=location)
    moved = {"requirements": [], "updates": [{"action": "set-location", "location": foreign}]}
    assert error_of(http.post("/namespaces/demo/views/v", json=moved)) == (400, "BadRequestException")
    catalog.table_entries.delete_database_folder(str(Path(own).parent))
    assert http.get("/namespaces/demo/views/v").status_code == 200
    assert http.delete("/namespaces/demo/views/v").status_code == 204
    catalog.create_table("demo.new", columns=[("id", "int")], location=own)


def test_a_snapshot_with_a_new_manifest_that_does_not_exist_is_refused(
    http: httpx.Client, create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = create().json()["metadata"]
    folder = Path(made["location"], "metadata")
    first, second, third = (folder / f"m{number}.avro" for number in (1, 2, 3))
    first.write_bytes(b"Obj")
    asked = list[str]()
    length = PyArrowFile.__len__

    def counted(file: PyArrowFile) -> int:
        asked.append(file.location)
        return length(file)

    monkeypatch.setattr(PyArrowFile, "__len__", counted)

    def commit(number: int, *manifests: Path, **more: Any) -> httpx.Response:
        current = normalised(http.get("/namespaces/demo/tables/t").json()["metadata"])
        added = snapshot(
            current, number, **more or {"manifest_list": write_list(folder / f"{number}.avro", *manifests)}
        )
        asked.clear()
        return http.post("/namespaces/demo/tables/t", json={"requirements": [], "updates": [added, to_ref(number)]})

    assert commit(1, first).status_code == 200
    assert asked == [str(first)]
    # Nobody asks for manifests that the table has already.
    first.unlink()
    with third.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    for missing, reason in ((second, "FileNotFoundError"), (third, "maximum of metadata")):
        answer = commit(2, first, missing)
        assert error_of(answer) == (400, "BadRequestException")
        assert f"the manifest {missing} of snapshot 2 cannot be read: " in answer.text
        assert reason in answer.text
        assert asked == [str(missing)]
    second.write_bytes(b"Obj")
    assert commit(2, first, second).status_code == 200
    assert commit(3, parent_snapshot_id=None, manifest_list=str(folder / "2.avro")).status_code == 400


def test_a_snapshot_without_a_list_has_manifests_that_exist(http: httpx.Client, create: Create) -> None:
    made = create(properties={"format-version": "1"}).json()["metadata"]
    manifest = Path(made["location"], "metadata", "m.avro")
    added = snapshot(normalised(made), 1, manifest_list=None, manifests=[str(manifest)])
    change = {"requirements": [], "updates": [added, to_ref(1)]}
    assert error_of(http.post("/namespaces/demo/tables/t", json=change)) == (400, "BadRequestException")
    manifest.write_bytes(b"Obj")
    assert http.post("/namespaces/demo/tables/t", json=change).status_code == 200
