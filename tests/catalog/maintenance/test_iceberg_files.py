"""Files of Iceberg tables are deleted only in the table's own folder, and only if no table reaches them."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from sqlalchemy import update

from catalog import Catalog
from catalog.errors import FilesNeededError
from catalog.iceberg.named_files import data_paths, metadata_paths
from catalog.iceberg.pointers import Pointer
from catalog.maintenance.iceberg_files import delete_superseded, delete_unreached
from catalog.model import TableKind
from catalog.statements.session import Session
from catalog.storage.schema import OperationRow
from tests.support.iceberg_tables import change_by_engine, iceberg_rows, make_orders, migrate, sql_catalog, write_rows
from tests.support.sources import list_source

NAME = "lake.t"
SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "note", StringType()))
DAY_MS = 24 * 60 * 60 * 1_000


def make(catalog: Catalog, url: str, name: str, location: Path, ids: list[int]) -> None:
    """Create a table as an engine does, with one data file."""
    catalog.create_database("lake", if_not_exists=True)
    with sql_catalog(url) as iceberg:
        iceberg.create_namespace_if_not_exists("lake")
        table = iceberg.create_table(name, SCHEMA, location=f"file://{location}")
        table.append(pa.table({"id": ids, "note": ["n"] * len(ids)}))


def replace_and_expire(url: str, name: str = NAME) -> str:
    """Replace all rows, and expire the former snapshots without deleting a file; return the metadata before."""
    with sql_catalog(url) as iceberg:
        table = iceberg.load_table(name)
        table.overwrite(pa.table({"id": [100], "note": ["new"]}))
        before = table.metadata_location
        snapshot = table.current_snapshot()
        assert snapshot is not None
        ids = [each.snapshot_id for each in table.snapshots() if each.snapshot_id != snapshot.snapshot_id]
        table.maintenance.expire_snapshots().by_ids(ids).commit()
    return before


def data_files(location: Path) -> set[Path]:
    return set(location.rglob("*.parquet"))


def age(path: Path, days: float = 5) -> Path:
    then = time.time() - days * 24 * 60 * 60
    os.utime(path, (then, then))
    return path


@pytest.fixture
def session(catalog: Catalog) -> Session:
    catalog.create_database("lake")
    return Session(catalog)


def test_files_of_others_stay_when_snapshots_expire(catalog: Catalog, catalog_url: str, tmp_path: Path) -> None:
    make(catalog, catalog_url, NAME, tmp_path / "t", [1, 2])
    make(catalog, catalog_url, "lake.other", tmp_path / "other", [3])
    (others,) = data_files(tmp_path / "other")
    foreign = write_rows(str(tmp_path / "nobody"), [4])
    (own,) = data_files(tmp_path / "t")
    with sql_catalog(catalog_url) as iceberg:
        iceberg.load_table(NAME).add_files([f"file://{others}"], check_duplicate_files=False)
        iceberg.load_table(NAME).add_files([f"file://{foreign}"])
        # A file in the folder of this table that another table has, too.
        iceberg.load_table("lake.other").add_files([f"file://{own}"])
    before = replace_and_expire(catalog_url)
    assert delete_superseded(catalog.storage, catalog.get_table(NAME), before) > 0
    assert others.exists()
    assert own.exists()
    assert Path(foreign).exists()
    assert [row[0] for row in iceberg_rows(catalog_url, NAME)] == [100]
    assert [row[0] for row in iceberg_rows(catalog_url, "lake.other")] == [1, 2, 3]


def test_files_that_only_expired_snapshots_had_are_deleted(catalog: Catalog, catalog_url: str, tmp_path: Path) -> None:
    make(catalog, catalog_url, NAME, tmp_path / "t", [1, 2])
    (old,) = data_files(tmp_path / "t")
    before = replace_and_expire(catalog_url)
    table = catalog.get_table(NAME)
    delete_superseded(catalog.storage, table, before)
    assert not old.exists()
    files = {f"file://{path}" for path in (tmp_path / "t").rglob("*") if path.suffix in (".parquet", ".avro")}
    live = Pointer("", "", "", str(catalog.get_table(NAME).metadata_location))
    assert files == {*metadata_paths(live), *data_paths(live)}.intersection(files)
    assert delete_superseded(catalog.storage, table, before) == 0
    assert [row[0] for row in iceberg_rows(catalog_url, NAME)] == [100]


def test_no_file_is_deleted_where_another_table_has_its_folder(
    catalog: Catalog, catalog_url: str, tmp_path: Path
) -> None:
    make(catalog, catalog_url, NAME, tmp_path / "t", [1, 2])
    make(catalog, catalog_url, "lake.inner", tmp_path / "t" / "data" / "inner", [3])
    (inner,) = data_files(tmp_path / "t" / "data" / "inner")
    for path in tmp_path.rglob("*.*"):
        age(path)
    before = replace_and_expire(catalog_url)
    files = data_files(tmp_path)
    for name in (NAME, "lake.inner"):
        with pytest.raises(FilesNeededError, match=r"no file of table lake\.\w+ is deleted, because table lake\."):
            delete_unreached(catalog.storage, catalog.get_table(name), catalog.storage.now_ms() - DAY_MS)
    with pytest.raises(FilesNeededError):
        delete_superseded(catalog.storage, catalog.get_table(NAME), before)
    assert inner in data_files(tmp_path)
    assert data_files(tmp_path) == files


def test_orphans_are_old_files_that_no_table_reaches(catalog: Catalog, catalog_url: str, tmp_path: Path) -> None:
    make(catalog, catalog_url, NAME, tmp_path / "t", [1, 2])
    make(catalog, catalog_url, "lake.other", tmp_path / "other", [3])
    shared = Path(write_rows(str(tmp_path / "t" / "data"), [4], "shared.parquet"))
    with sql_catalog(catalog_url) as iceberg:
        iceberg.load_table("lake.other").add_files([f"file://{shared}"])
    orphans = [Path(write_rows(str(tmp_path / "t" / "data"), [5], f"{uuid4()}.parquet")) for _ in range(2)]
    young = Path(write_rows(str(tmp_path / "t" / "data"), [6], "young.parquet"))
    hidden = Path(write_rows(str(tmp_path / "t" / ".kept"), [7]))
    link = tmp_path / "t" / "link"
    link.symlink_to(tmp_path / "other")
    for path in tmp_path.rglob("*.*"):
        age(path)
    os.utime(young)
    deleted = delete_unreached(catalog.storage, catalog.get_table(NAME), catalog.storage.now_ms() - DAY_MS)
    assert sorted(deleted) == sorted(f"file://{path}" for path in orphans)
    assert not any(path.exists() for path in orphans)
    assert young.exists()
    assert hidden.exists()
    assert shared.exists()
    assert len(iceberg_rows(catalog_url, NAME)) == 2
    assert len(iceberg_rows(catalog_url, "lake.other")) == 2


def test_orphans_of_a_migrated_table_are_in_its_hidden_folder_too(catalog: Catalog, catalog_url: str) -> None:
    table = catalog.create_table("demo.flat", columns=[("id", "bigint")])
    migrate(catalog, table.full_name)
    orphan = age(Path(write_rows(f"{table.location}/_iceberg/data", [1])))
    before_ms = catalog.storage.now_ms() - DAY_MS
    assert delete_unreached(catalog.storage, catalog.get_table("demo.flat"), before_ms) == [str(orphan)]
    make_orders(catalog)
    migrate(catalog, operation_id="m2")
    assert delete_unreached(catalog.storage, catalog.get_table("demo.orders"), catalog.storage.now_ms()) == []


def test_no_file_is_deleted_where_engines_may_commit_through_a_metastore(catalog: Catalog) -> None:
    make_orders(catalog)
    migrate(catalog)
    table = catalog.get_table("demo.orders")
    orphan = age(Path(write_rows(f"{table.location}/data", [5])))
    with catalog.storage.write() as connection:
        report = {**catalog.operations.get("m1").report, "prepare_source": {}}
        connection.execute(update(OperationRow).where(OperationRow.table_id == table.id).values(report=report))
    with pytest.raises(FilesNeededError, match="entry in the metastore"):
        delete_unreached(catalog.storage, table, catalog.storage.now_ms())
    assert orphan.exists()


@pytest.mark.parametrize("kind", ["scheme", "iceberg"])
def test_vacuum_deletes_what_an_engine_left_without_committing(catalog: Catalog, catalog_url: str, kind: str) -> None:
    change_by_engine(catalog, catalog_url, kind)
    location = Path(catalog.get_table("demo.t").location)
    left = [
        Path(write_rows(str(location / "data"), [5], f"00000-0-{uuid4()}.parquet")),
        Path(write_rows(str(location / "data" / "c=1"), [5], f"00000-0-{uuid4()}-00001.parquet")),
        location / "metadata" / f"{uuid4()}-m0.avro",
        location / "metadata" / f"snap-7-0-{uuid4()}.avro",
        location / "metadata" / f"00009-{uuid4()}.metadata.json",
    ]
    for path in left[2:]:
        path.write_bytes(b"Obj")
    young = Path(write_rows(str(location / "data"), [5], f"00000-0-{uuid4()}.parquet"))
    for path in location.rglob("*.*"):
        age(path)
    os.utime(young)
    before = {path for path in location.rglob("*.*") if path not in left}
    catalog.vacuum("demo.t", dry_run=True)
    assert all(path.exists() for path in left)
    report = catalog.vacuum("demo.t")
    assert report.problems == ()
    assert report.total.orphan_files == len(left)
    assert not any(path.exists() for path in left)
    assert {path for path in location.rglob("*.*") if path not in before} == set()
    # The grace period of uncommitted files is not shortened.
    catalog.vacuum("demo.t", grace=timedelta(0))
    assert young.exists()
    assert len(iceberg_rows(catalog_url, "demo.t")) == 2


def old_file(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("of others")
    return age(path)


@pytest.mark.parametrize("change", ["", "external"])
def test_vacuum_keeps_files_that_were_there_before_the_table(
    catalog: Catalog, session: Session, tmp_path: Path, change: str
) -> None:
    files = [old_file(tmp_path / "t" / name) for name in ("data/a.csv", "metadata/schema.json", "data/x/b.parquet")]
    session.execute(f"CREATE {change} TABLE lake.t (id bigint) STORED AS ICEBERG LOCATION '{tmp_path}/t'")
    report = catalog.vacuum("lake.t")
    assert (report.problems, report.total.orphan_files) == ((), 0)
    assert all(path.exists() for path in files)


@pytest.mark.parametrize("statement", ["STORED AS ICEBERG", "STORED AS PARQUET"])
def test_a_table_in_a_folder_of_sources_owns_no_file(
    catalog: Catalog, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    list_source(monkeypatch, tmp_path, f"{tmp_path}/t/data/*.csv")
    session.execute(f"CREATE TABLE lake.t (id bigint) {statement} LOCATION '{tmp_path}/t'")
    arrived = old_file(tmp_path / "t" / "data" / "2024-01-01.csv")
    assert catalog.get_table("lake.t").kind is TableKind.EXTERNAL
    assert catalog.vacuum("lake.t").problems == ()
    session.execute("DROP TABLE lake.t PURGE")
    catalog.vacuum()
    assert arrived.exists()


def test_vacuum_keeps_the_files_of_another_catalog_in_the_same_folder(
    catalog: Catalog, catalog_url: str, session: Session, tmp_path: Path
) -> None:
    session.execute("CREATE TABLE lake.t (id bigint) STORED AS ICEBERG")
    own = catalog.get_table("lake.t")
    with Catalog.initialise(f"sqlite:///{tmp_path}/other.db", warehouse=str(tmp_path / "warehouse")) as other:
        Session(other).execute("CREATE DATABASE lake")
        Session(other).execute(f"CREATE TABLE lake.t (id bigint) STORED AS ICEBERG LOCATION '{own.location}'")
        theirs = Path(str(other.get_table("lake.t").live_location))
        data = old_file(Path(own.location, "data", "00000-0-a.parquet"))
        for path in Path(own.location).rglob("*.*"):
            age(path)
        assert catalog.vacuum("lake.t").problems == ()
        assert theirs.exists()
        assert data.exists()
        assert other.vacuum("lake.t").problems == ()
        assert Path(str(own.live_location)).exists()
