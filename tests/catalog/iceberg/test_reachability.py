"""Deletions keep files that an Iceberg table refers to, in any location and spelling."""

from __future__ import annotations

import json
import tracemalloc
from datetime import timedelta
from pathlib import Path

import pyarrow
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table.update import SetLocationUpdate
from pyiceberg.types import LongType, NestedField, StringType

from catalog import Catalog
from catalog.errors import FilesNeededError, FilesNotDeletedError, UnreadableMetadataError
from catalog.files.locations import comparable, folders_above, reach_key
from catalog.iceberg.metadata import read_metadata
from catalog.iceberg.reachability import Reachability
from catalog.iceberg.storage import file_io
from catalog.migration.requests import MigrationRequest
from catalog.operations.attempts import attempt_folder
from catalog.operations.records import OperationKind
from tests.catalog.migration.test_migrations import make_old, metadata_files
from tests.support.foreign_files import commit_path, write_secret
from tests.support.iceberg_tables import (
    COLUMNS,
    NAME,
    PARTITIONS,
    append,
    expected_rows,
    iceberg_rows,
    make_orders,
    migrate,
    sql_catalog,
    write_rows,
)
from tests.support.written_files import Load, data_files, hashed_table, on_disk, own_name

NOW = timedelta(0)
OTHER = "demo.other"
SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "note", StringType()))


def set_property(url: str, name: str, **properties: str) -> None:
    with sql_catalog(url) as iceberg, iceberg.load_table(name).transaction() as change:
        change.set_properties({key.replace("_", "."): value for key, value in properties.items()})


def set_location(url: str, name: str, location: str) -> None:
    with sql_catalog(url) as iceberg, iceberg.load_table(name).transaction() as change:
        change._apply((SetLocationUpdate(location=location),))


def make_iceberg(url: str, name: str, location: str, files: list[str], catalog: str = "calve") -> None:
    """Create a table with PyIceberg to which existing files can be added, as an engine's `add_files` does."""
    iceberg = SqlCatalog(catalog, uri=url)
    try:
        iceberg.create_namespace_if_not_exists(name.partition(".")[0])
        iceberg.create_table(name, SCHEMA, location=location).add_files(files)
    finally:
        iceberg.engine.dispose()


# --- vacuum: metadata of migrated tables ----------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["metadata path", "location"])
def test_vacuum_keeps_the_manifests_of_a_table_whose_metadata_moved(
    catalog: Catalog, catalog_url: str, tmp_path: Path, change: str
) -> None:
    table = make_orders(catalog)
    migrate(catalog)
    if change == "location":
        set_location(catalog_url, NAME, f"file://{tmp_path}/moved")
    else:
        set_property(catalog_url, NAME, write_metadata_path=f"file://{tmp_path}/moved/metadata")
    append(catalog_url, [8])
    make_old(catalog, table.location, "m1")
    report = catalog.vacuum(grace=NOW)
    assert report.problems == ()
    assert len(iceberg_rows(catalog_url)) == 8
    catalog.drop_table(NAME)
    make_orders(catalog, NAME)


def test_vacuum_keeps_what_was_added_to_a_target_that_an_engine_made(
    catalog: Catalog, catalog_url: str, tmp_path: Path
) -> None:
    table = catalog.create_table(NAME, columns=COLUMNS)
    write_rows(table.location, [1, 2])
    with sql_catalog(catalog_url) as iceberg:
        iceberg.create_namespace_if_not_exists("lake")
        properties = {"write.metadata.path": f"file:{tmp_path}/far/metadata"}
        iceberg.create_table("lake.made", SCHEMA, location=f"file:{tmp_path}/made", properties=properties)
    migrate(catalog, NAME, "a1", MigrationRequest(OperationKind.ADD_FILES, verify=False, target="lake.made"))
    append_two(catalog_url, "lake.made")
    for folder in ("metadata", "_iceberg"):
        make_old(catalog, f"{tmp_path}/made", "a1", folder)
    assert catalog.vacuum(grace=NOW).problems == ()
    assert len(iceberg_rows(catalog_url, "lake.made")) == 3


def append_two(url: str, name: str) -> None:
    with sql_catalog(url) as iceberg:
        iceberg.load_table(name).append(pyarrow.table({"id": [9], "note": ["n9"]}))


def test_vacuum_keeps_what_only_a_branch_or_tag_reaches(catalog: Catalog, catalog_url: str) -> None:
    table = make_orders(catalog)
    migrate(catalog)
    with sql_catalog(catalog_url) as iceberg:
        made = iceberg.load_table(NAME)
        first = made.current_snapshot()
        assert first is not None
        made.manage_snapshots().create_tag(first.snapshot_id, "first").commit()
        made.delete("id > 0")
    make_old(catalog, table.location, "m1")
    catalog.vacuum(grace=NOW)
    assert iceberg_rows(catalog_url, snapshot_id=first.snapshot_id) == expected_rows()
    assert iceberg_rows(catalog_url) == []


@pytest.mark.parametrize("name", ["metadata", "manifest list", "manifest"])
def test_nothing_is_deleted_where_metadata_cannot_be_read(
    catalog: Catalog, catalog_url: str, tmp_path: Path, name: str
) -> None:
    table = make_orders(catalog)
    report = migrate(catalog)
    set_property(catalog_url, NAME, write_metadata_path=f"{tmp_path}/moved")
    append(catalog_url, [8])
    location = catalog.get_table(NAME).metadata_location
    assert location is not None
    metadata = read_metadata(location)
    snapshot = metadata.current_snapshot()
    assert snapshot is not None
    with sql_catalog(catalog_url) as iceberg:
        manifests = snapshot.manifests(iceberg.load_table(NAME).io)
    broken = {
        "metadata": location,
        "manifest list": snapshot.manifest_list,
        "manifest": next(m.manifest_path for m in manifests if "moved" in m.manifest_path),
    }[name]
    Path(broken).write_bytes(Path(broken).read_bytes()[:-40])
    # An obsolete file of the attempt makes vacuum check all tables.
    attempt = f"calve-{attempt_folder(catalog.operations.get('m1'), 1)}"
    stray = Path(report["metadata_location"]).parent / attempt / "stray-m0.avro"
    stray.write_bytes(b"")
    make_old(catalog, table.location, "m1")
    before = metadata_files(table.location)
    other = make_orders(catalog, OTHER)
    migrate(catalog, OTHER, "m2")
    catalog.migrations.revert("r2", OTHER)
    make_old(catalog, other.location, "m2")
    (problem,) = catalog.vacuum(grace=NOW).problems
    assert NAME in problem
    assert broken in problem
    assert metadata_files(table.location) == before
    # An error of one table does not affect others.
    assert metadata_files(other.location) == []


def test_metadata_that_a_table_of_another_catalog_names_stay(catalog: Catalog, catalog_url: str) -> None:
    table = make_orders(catalog)
    report = migrate(catalog)
    iceberg = SqlCatalog("prod", uri=catalog_url)
    iceberg.create_namespace("lake")
    iceberg.register_table("lake.copy", report["metadata_location"])
    catalog.migrations.revert("r1", NAME)
    make_old(catalog, table.location, "m1")
    catalog.vacuum(grace=NOW)
    assert len(iceberg.load_table("lake.copy").scan().to_arrow()) == 7
    iceberg.drop_table("lake.copy")
    iceberg.engine.dispose()
    catalog.vacuum(grace=NOW)
    assert metadata_files(table.location) == []


# --- other deleters -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["calve", "prod"])
def test_files_that_an_engine_has_added_to_an_iceberg_table_are_not_purged(
    catalog: Catalog, catalog_url: str, tmp_path: Path, name: str
) -> None:
    table = catalog.create_table(NAME, columns=COLUMNS)
    path = write_rows(table.location, [1, 2])
    make_iceberg(catalog_url, "lake.added", f"{tmp_path}/far", [f"file://{path}"], name)
    with pytest.raises(FilesNeededError, match=NAME):
        catalog.drop_table(NAME, purge=True)
    assert Path(path).exists()
    assert catalog.get_table(NAME) == table


def test_files_behind_links_are_not_purged(catalog: Catalog, catalog_url: str, tmp_path: Path) -> None:
    secret = write_secret(tmp_path / "foreign" / "secret.parquet")
    catalog.create_database("lake")
    make_iceberg(catalog_url, "lake.linked", f"{tmp_path}/linked", [write_rows(f"{tmp_path}/linked/data", [1])])
    links = {"folder": secret.parent, "file.parquet": secret}
    for name, target in links.items():
        (tmp_path / "linked" / "data" / name).symlink_to(target)
    with sql_catalog(catalog_url) as iceberg:
        for path in ("folder/secret.parquet", "file.parquet"):
            commit_path(iceberg.load_table("lake.linked"), f"{tmp_path}/linked/data/{path}", secret.stat().st_size)
    catalog.drop_table("lake.linked", purge=True)
    assert secret.exists()
    assert sorted(path.name for path in (tmp_path / "linked").rglob("*")) == ["data", "file.parquet", "folder"]


def test_a_long_path_of_one_table_does_not_delay_a_purge_of_another(
    catalog: Catalog, catalog_url: str, tmp_path: Path
) -> None:
    catalog.create_database("lake")
    make_iceberg(catalog_url, "lake.long", f"{tmp_path}/long", [write_rows(f"{tmp_path}/long/data", [1])])
    with sql_catalog(catalog_url) as iceberg:
        for path in (f"/tmp/{'a/' * 40_000}x.parquet", f"s3://bucket/{'b' * 40_000}/{'c/' * 40_000}x.parquet"):
            commit_path(iceberg.load_table("lake.long"), path, 1)
    table = catalog.create_table(NAME, columns=COLUMNS)
    write_rows(table.location, [1])
    tracemalloc.start()
    catalog.drop_table(NAME, purge=True)
    assert tracemalloc.get_traced_memory()[1] < 100 << 20
    tracemalloc.stop()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The metadata, manifest lists and manifests that are read."""
    paths: list[str] = []

    def recording(location: str) -> FileIO:
        io = file_io(location)
        new_input = io.new_input
        monkeypatch.setattr(io, "new_input", lambda path: paths.append(path) or new_input(path))
        return io

    for module in ("named_files", "storage"):
        monkeypatch.setattr(f"catalog.iceberg.{module}.file_io", recording)
    return paths


def test_a_purge_reads_of_other_tables_only_what_was_committed_since_the_last_one(
    catalog: Catalog, catalog_url: str, tmp_path: Path, read: list[str]
) -> None:
    tables = [catalog.create_table(f"demo.t{number}", columns=COLUMNS) for number in range(5)]
    paths = [write_rows(table.location, [1]) for table in tables]
    for name in ("a", "b", "c"):
        make_iceberg(catalog_url, f"lake.{name}", f"{tmp_path}/{name}", [write_rows(f"{tmp_path}/{name}/data", [1])])
    catalog.drop_table("demo.t0", purge=True)
    assert {Path(path).relative_to(tmp_path).parts[0] for path in read} == {"a", "b", "c"}
    read.clear()
    catalog.drop_table("demo.t1", purge=True)
    assert read == []
    append_two(catalog_url, "lake.a")
    catalog.drop_table("demo.t2", purge=True)
    [metadata, listed, manifest] = read
    assert metadata.endswith(".metadata.json")
    assert all(path.startswith(f"{tmp_path}/a/") for path in (metadata, listed, manifest))
    for name, path in (("lake.b", paths[3]), ("lake.c", f"file://{paths[4]}")):
        with sql_catalog(catalog_url) as iceberg:
            iceberg.load_table(name).add_files([path])
    read.clear()
    for table in tables[3:]:
        with pytest.raises(FilesNeededError, match=table.full_name):
            catalog.drop_table(table.full_name, purge=True)
    assert not [path for path in read if path.startswith(f"{tmp_path}/a/")]


def test_an_interrupted_purge_waits_for_a_table_that_came_meanwhile(
    catalog: Catalog, catalog_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog.create_table(NAME, columns=COLUMNS)
    path = write_rows(table.location, [1, 2], own_name(catalog))
    with monkeypatch.context() as patched:
        patched.setattr("catalog.tables.dropping.finish_drop", lambda *_: None)
        catalog.drop_table(NAME, purge=True)
    make_iceberg(catalog_url, "lake.added", f"{tmp_path}/far", [path])
    with pytest.raises(FilesNotDeletedError):
        catalog.finish_drops()
    (problem,) = catalog.vacuum(grace=NOW).problems
    assert "lake.added" in problem
    assert Path(path).exists()
    with sql_catalog(catalog_url) as iceberg:
        iceberg.drop_table("lake.added")
    assert catalog.vacuum(grace=NOW).purged == (NAME,)
    assert not Path(path).exists()


def test_nothing_is_purged_while_metadata_cannot_be_read(catalog: Catalog, catalog_url: str, tmp_path: Path) -> None:
    table = catalog.create_table(NAME, columns=COLUMNS)
    path = write_rows(table.location, [1])
    make_iceberg(catalog_url, "lake.added", f"{tmp_path}/far", [path])
    for file in (tmp_path / "far/metadata").glob("*.json"):
        file.write_text("{")
    with pytest.raises(UnreadableMetadataError, match=r"lake\.added.*far/metadata.*drop the table"):
        catalog.drop_table(NAME, purge=True)
    assert Path(path).exists()


def test_replaced_files_of_a_scheme_table_that_an_iceberg_table_names_stay(
    catalog: Catalog, catalog_url: str, tmp_path: Path
) -> None:
    table = hashed_table(catalog)
    Load(catalog, table, "one").run()
    replaced = sorted(f"{table.location}/{path}" for path in on_disk(table.location) if path.endswith(".parquet"))
    for path in replaced:
        write_rows(str(Path(path).parent), [1], Path(path).name)
    make_iceberg(catalog_url, "lake.added", f"{tmp_path}/far", replaced[:1])
    Load(catalog, table, "two").run(retired=data_files(catalog, table))
    catalog.vacuum(grace=NOW)
    assert [Path(path).exists() for path in replaced] == [True, *[False] * (len(replaced) - 1)]
    with sql_catalog(catalog_url) as iceberg:
        iceberg.drop_table("lake.added")
    catalog.vacuum(grace=NOW)
    assert not Path(replaced[0]).exists()


# --- reachable files ------------------------------------------------------------------------------------------------


def test_all_that_metadata_name_is_reached(catalog: Catalog, catalog_url: str, tmp_path: Path) -> None:
    make_orders(catalog)
    first = migrate(catalog)["metadata_location"]
    append(catalog_url, [8])
    location = catalog.get_table(NAME).metadata_location
    assert location is not None
    document = json.loads(Path(location).read_text())
    snapshot = document["snapshots"][-1]["snapshot-id"]
    sizes = {"file-size-in-bytes": 1, "snapshot-id": snapshot}
    document["statistics"] = [
        {"statistics-path": "s3a://b/stats.puffin", "file-footer-size-in-bytes": 1, "blob-metadata": [], **sizes}
    ]
    document["partition-statistics"] = [{"statistics-path": "s3://b/partition%20stats.parquet", **sizes}]
    Path(location).write_text(json.dumps(document))
    named = [first, location, *(each["manifest-list"] for each in document["snapshots"])]
    named += ["s3://b/stats.puffin", "s3n://b/partition stats.parquet"]
    with sql_catalog(catalog_url) as iceberg:
        inspected = iceberg.load_table(NAME).inspect
        named += inspected.all_manifests()["path"].to_pylist()
        named += [f"file:{path}" for path in inspected.all_files()["file_path"].to_pylist()]
    named += [str(Path(named[-1]).parent), str(tmp_path)]
    free = [f"{location}.bak", f"{tmp_path}/none", "s3://b/other"]
    for _ in ("read", "kept"):
        assert Reachability(catalog.storage).reached([*named, *free]) == dict.fromkeys(named, NAME)
    assert len(PARTITIONS) + 1 == sum(path.endswith(".parquet") and "orders" in path for path in named)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("s3a://b/t/f", "s3://b/t/f"),
        ("s3n://b/t/f/", "s3://b/t/f"),
        ("file:/t/f", "/t/f"),
        ("file:///t/f", "/t//f/"),
        ("/t/k=a%20b/f", "/t/k=a b/f"),
        ("file:///t/k=a%2520b/f", "/t/k=a%20b/f"),
        ("hdfs://name:8020/t/f", "hdfs:///t/f"),
        ("abfss://c@a.net/t/f", "abfs://c@a.net/t/f"),
        ("wasbs://c@a.blob.core.windows.net/t/f", "abfs://c@A.dfs.core.windows.net/t/f"),
        ("viewfs://name/t/f", "hdfs:///t/f"),
        ("//t/f", "/t/./x/../f"),
        ("s3://b/t/f", "S3://b/t/f"),
    ],
)
def test_spellings_of_a_location_are_compared_alike(first: str, second: str) -> None:
    assert reach_key(first) == reach_key(second)


@pytest.mark.parametrize(
    ("first", "second"), [("s3://b/t/f", "s3://c/t/f"), ("/t/f", "/t/F"), ("s3://b/t", "/b/t"), ("/t/a+b", "/t/a b")]
)
def test_other_locations_are_told_apart(first: str, second: str) -> None:
    assert reach_key(first) != reach_key(second)


def test_folders_around_a_location() -> None:
    assert list(folders_above("/a/b")) == ["/a/b", "/a"]
    assert list(folders_above("s3://b/t/f")) == ["s3://b/t/f", "s3://b/t", "s3://b"]


@pytest.mark.parametrize(
    ("location", "expected"),
    [("s3a://b/t/", "s3://b/t"), ("file:///a/b/", "/a/b"), ("file:/a//b", "/a/b"), ("gs://b/t", "gs://b/t")],
)
def test_one_spelling_of_a_location(location: str, expected: str) -> None:
    assert comparable(location) == expected


def test_a_partition_whose_files_an_iceberg_table_names_is_not_purged(
    catalog: Catalog, catalog_url: str, tmp_path: Path
) -> None:
    make_orders(catalog)
    folder = catalog.get_partition(NAME, ("nl", "2025")).location
    make_iceberg(catalog_url, "lake.added", f"{tmp_path}/far", [f"{folder}/part-0.parquet"])
    with pytest.raises(FilesNeededError, match=r"lake\.added"):
        catalog.purge_partitions(NAME, "country = 'nl' and year = 2025")
    assert catalog.get_partition(NAME, ("nl", "2025")).location == folder
    assert Path(folder, "part-0.parquet").exists()


def test_symbolic_links_lead_to_the_same_files(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert reach_key(f"{tmp_path}/link") == reach_key(f"file:{tmp_path}/real/")
    assert reach_key(f"{tmp_path}/link/a") == reach_key(f"{tmp_path}/real/a")
