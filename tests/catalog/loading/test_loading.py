"""Loads of source files: discovery, publication, and interruptions at any point; on each database."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from sqlalchemy import func, select

from catalog import Catalog, IndexDefinition, LoadMode, NewPartition, OnInvalid, PartitionState, Table
from catalog.errors import (
    FencedError,
    InvalidPartitionError,
    InvalidTableError,
    LocationNotEmptyError,
    OperationConflictError,
    OperationReusedError,
    PartitionAlreadyExistsError,
    SourceFileError,
    UnsupportedChangeError,
    VerificationFailedError,
)
from catalog.files.filesystem import Folder
from catalog.loading.loading import Loading
from catalog.model.partition_names import partition_path
from catalog.operations.records import OperationState
from catalog.operations.staging import REJECTED, STAGED_DATA, STAGED_FILES, STAGED_SCHEMA, STAGING
from catalog.schemes.hashing import HashScheme
from catalog.storage.schema import SourceFileRow
from tests.support.index_items import assert_every_partition_has_its_item
from tests.support.object_store import ObjectStore

TABLE = "demo.t"
ROWS = {("JFK", "1"): 10, ("LGA", "1"): 20, ("a/b", None): 30}


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """The table `demo.t` with the keys (origin string, month int) and an index on month."""
    return catalog.create_table(
        TABLE,
        columns=[("v", "int")],
        partition_keys=[("origin", "string"), ("month", "int")],
        indexes=[IndexDefinition("by_month", ("month",))],
    )


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    """A folder with two raw files."""
    folder = tmp_path / "landing"
    folder.mkdir()
    for name in ("01.csv", "02.csv"):
        (folder / name).write_text(name)
    return folder


class Load:
    """One load with the steps of the DAG, without Spark."""

    def __init__(self, catalog: Catalog, table: Table, landing: Path, name: str = "run-1") -> None:
        self.catalog, self.table, self.landing, self.name = catalog, table, landing, name
        self.folder = Path(table.location)
        self.staging = ""
        self.mode: LoadMode | None = None

    def discover(self, *, reload: bool = False, is_dry_run: bool = False) -> list[str]:
        source = str(self.landing)
        files = self.catalog.loading.discover(self.name, TABLE, source, reload=reload, is_dry_run=is_dry_run)
        return [Path(each.path).name for each in files]

    def stage(self, rows: dict[tuple[str | None, ...], int] | None = None) -> None:
        """Write the files of the Spark job: a folder with data for each partition, and the list of files."""
        rows = ROWS if rows is None else rows
        attempt = self.catalog.operations.start_job(self.name, "write")
        self.staging = Loading.staging_name(self.catalog.operations.get(self.name), attempt)
        self.catalog.loading.discard_staging(self.table, (self.name, "write", attempt), keep=self.staging)
        # As with Calve's own names, those of each catalog and of each attempt differ.
        name = f"{self.catalog.storage.identity} {self.name} {attempt}.parquet"
        for values in rows:
            folder = self.folder / self.staging / STAGED_DATA / partition_path(self.table.key_names, values)
            folder.mkdir(parents=True)
            (folder / name).write_text(f"{self.name} {attempt}")
        listed = self.folder / self.staging / STAGED_FILES
        listed.mkdir(parents=True)
        columns = {
            "values": pa.array([list(values) for values in rows], pa.list_(pa.string())),
            "files": pa.array([[name]] * len(rows), pa.list_(pa.string())),
            "row_count": pa.array(rows.values(), pa.int64()),
            "size_bytes": pa.array([100] * len(rows), pa.int64()),
        }
        pyarrow.parquet.write_table(pa.table(columns), listed / "part-0.parquet")
        (listed / "_SUCCESS").touch()
        self.catalog.operations.finish_job(self.name, "write", attempt, {"staging": self.staging})

    def publish(
        self, *, skip: bool = False, is_quarantined: bool = False, attempt: int | None = None
    ) -> dict[str, object]:
        attempt = attempt or self.catalog.operations.start_job(self.name, "register")
        on_invalid = OnInvalid.SKIP if skip else OnInvalid.REFUSE
        return self.catalog.loading.publish(
            self.name,
            "register",
            attempt,
            self.staging,
            on_invalid=on_invalid,
            is_quarantined=is_quarantined,
            mode=self.mode,
        )

    def run(self, rows: dict[tuple[str | None, ...], int] | None = None, *, skip: bool = False) -> dict[str, object]:
        self.discover()
        self.stage(rows)
        return self.publish(skip=skip)

    @property
    def state(self) -> OperationState:
        return self.catalog.operations.get(self.name).state


@pytest.fixture
def load(catalog: Catalog, table: Table, landing: Path) -> Load:
    """A load of the two files."""
    return Load(catalog, table, landing)


def files_below(table: Table) -> dict[str, str]:
    """Return all files in a table's location, including hidden ones, without the lists: path → text."""
    root = Path(table.location)
    found = (path for path in root.rglob("*") if path.is_file() and STAGED_FILES not in path.parts)
    return {str(path.relative_to(root)): path.read_text() for path in sorted(found)}


def folders_of(files: Iterable[str]) -> list[str]:
    """Return the folder of each file."""
    return [path.rpartition("/")[0] for path in files]


def assert_loaded(catalog: Catalog, table: Table, rows: dict[tuple[str | None, ...], int], *texts: str) -> None:
    """Check that the table has these partitions with their files and items, and no other files."""
    partitions = list(catalog.get_partitions(TABLE))
    assert {partition.values: partition.row_count for partition in partitions} == rows
    files = files_below(table)
    assert sorted(folders_of(files)) == sorted(partition_path(table.key_names, values) for values in rows)
    assert not texts or set(files.values()) == set(texts)
    for partition in partitions:
        assert [*Path(partition.location).iterdir()]
    assert_every_partition_has_its_item(catalog, TABLE)


# --- discover -------------------------------------------------------------------------------------------------------


def test_settings_without_meaning_for_a_scheme_are_refused_before_anything_is_journaled(
    catalog: Catalog, landing: Path
) -> None:
    catalog.create_table(TABLE, columns=[("v", "int")], scheme=HashScheme("v", "int", (), 4))
    with pytest.raises(UnsupportedChangeError, match=r"\(HASH on v\): mode is new.*are append, replace, merge"):
        catalog.loading.discover("run-1", TABLE, str(landing), settings={"request": {"mode": "new"}})
    assert catalog.operations.find("run-1") is None
    assert len(catalog.loading.discover("run-1", TABLE, str(landing))) == 2


def test_a_new_table_without_keys_is_refused_before_anything_is_journaled(catalog: Catalog, landing: Path) -> None:
    with pytest.raises(InvalidTableError, match=r"demo\.t is new and has no partition keys; name them with their"):
        catalog.loading.discover("run-1", TABLE, str(landing), settings={"request": {"keys": []}})
    assert catalog.operations.find("run-1") is None
    assert len(catalog.loading.discover("run-1", TABLE, str(landing), settings={"request": {"keys": ["day"]}})) == 2


def test_new_files_are_journaled_with_the_operation_that_loads_them(load: Load, catalog: Catalog) -> None:
    assert load.discover() == ["01.csv", "02.csv"]
    operation = catalog.operations.get("run-1")
    assert (operation.table, operation.state) == (TABLE, OperationState.PLANNED)
    assert [Path(each.path).name for each in catalog.loading.source_files(operation)] == ["01.csv", "02.csv"]


def test_files_are_new_until_their_load_has_committed(load: Load, catalog: Catalog, table: Table) -> None:
    load.discover()
    load.stage()
    assert load.discover() == ["01.csv", "02.csv"]
    load.publish()
    assert load.discover() == ["01.csv", "02.csv"], "a retry of the same run returns what it loaded"

    later = Load(catalog, table, load.landing, "run-2")
    assert later.discover() == []
    assert catalog.operations.find("run-2") is None
    (load.landing / "03.csv").write_text("new")
    assert later.discover() == ["03.csv"]


def test_a_retry_of_a_load_from_several_sources_returns_what_it_loaded(load: Load, catalog: Catalog) -> None:
    sources = [str(load.landing / name) for name in ("01.csv", "02.csv")]
    files = catalog.loading.discover(load.name, TABLE, sources)
    load.stage()
    load.publish()
    assert catalog.loading.discover(load.name, TABLE, sources) == files
    with pytest.raises(OperationReusedError):
        catalog.loading.discover(load.name, TABLE, sources[:1])


@pytest.mark.parametrize("change", ["size", "time"])
def test_a_file_that_changed_after_it_was_loaded_is_refused_by_name(load: Load, catalog: Catalog, change: str) -> None:
    load.run()
    path = load.landing / "02.csv"
    if change == "size":
        path.write_text("more rows than before")
    else:
        path.touch()
    later = Load(catalog, load.table, load.landing, "run-2")
    with pytest.raises(SourceFileError, match=r"02\.csv.*reload") as refused:
        later.discover()
    assert "01.csv" not in str(refused.value)
    assert later.discover(reload=True) == ["01.csv", "02.csv"]


def test_a_source_in_another_spelling_has_the_same_files(load: Load, catalog: Catalog, table: Table) -> None:
    load.run()
    for number, source in enumerate((f"file://{load.landing}", f"file:{load.landing}", f"/{load.landing}/.")):
        assert catalog.loading.discover(f"later-{number}", TABLE, source) == [], source
    assert len(catalog.loading.discover("again", TABLE, f"file://{load.landing}", reload=True)) == 2


@pytest.mark.parametrize("other", ["s3://lake/landing", "s3n://lake/landing/*.csv"])
def test_objects_in_another_spelling_are_loaded_once(
    object_store: ObjectStore, catalog: Catalog, table: Table, other: str
) -> None:
    object_store.put({f"landing/{name}": b"1" for name in ("what?1.csv", "50%25.csv")})
    load = Load(catalog, table, Path("unused"))
    catalog.loading.discover(load.name, TABLE, "s3a://lake/landing")
    load.stage()
    load.publish()
    object_store.put({"landing/what?2.csv": b"1"})
    assert [file.path.rpartition("/")[2] for file in catalog.loading.discover("2", TABLE, other)] == ["what?2.csv"]
    object_store.put({"landing/50%25.csv": b"2 "})
    with pytest.raises(SourceFileError, match=r"1 file\(s\) changed .*50%25\.csv"):
        catalog.loading.discover("3", TABLE, other)
    reloaded = Load(catalog, table, Path("unused"), "2")
    catalog.loading.discover("2", TABLE, other, reload=True)
    reloaded.stage({("SFO", "1"): 1})
    reloaded.publish()
    with catalog.storage.read() as connection:
        assert connection.scalar(select(func.count()).select_from(SourceFileRow)) == 3


def test_a_table_that_is_not_there_yet_has_no_files(catalog: Catalog, landing: Path) -> None:
    assert len(catalog.loading.discover("run-1", "demo.later", str(landing))) == 2
    assert len(catalog.loading.discover("run-2", "nowhere.later", str(landing))) == 2


def test_two_loads_do_not_work_on_one_table_but_a_dry_run_may_look(load: Load, catalog: Catalog) -> None:
    load.discover()
    other = Load(catalog, load.table, load.landing, "run-2")
    with pytest.raises(OperationConflictError, match="run-1"):
        other.discover()
    assert other.discover(is_dry_run=True) == ["01.csv", "02.csv"]


# --- check ----------------------------------------------------------------------------------------------------------


def test_checking_says_what_adding_would_refuse_and_adds_nothing(catalog: Catalog, table: Table) -> None:
    indexes = catalog.get_partition_indexes(TABLE)
    partitions = [NewPartition(["JFK", "1"]), NewPartition(["JFK", "foo"])]
    [refused] = catalog.loading.check(table, indexes, partitions)
    assert (refused.key, refused.value) == ("month", "foo")
    assert list(catalog.get_partitions(TABLE)) == []
    catalog.add_partitions(TABLE, partitions[:1])
    with pytest.raises(PartitionAlreadyExistsError, match="origin=JFK/month=01"):
        list(catalog.loading.check(table, indexes, [NewPartition(["JFK", "01"])]))


# --- publish --------------------------------------------------------------------------------------------------------


def test_a_load_becomes_visible_with_its_files_and_counts(load: Load, catalog: Catalog, table: Table) -> None:
    report = load.run()
    assert report == {
        "partitions": 3,
        "partitions_extended": 0,
        "partitions_replaced": 0,
        "partitions_removed": 0,
        "row_count": 60,
        "file_count": 3,
        "size_bytes": 300,
        # Spark has not written these files.
        "written_by": None,
        "refused": 0,
        "refused_rows": 0,
        "refused_reasons": [],
        "refused_folder": None,
    }
    assert load.state is OperationState.CLEANED
    assert catalog.operations.get("run-1").report["register"] == report
    assert_loaded(catalog, table, ROWS)
    assert {partition.values for partition in catalog.operation_partitions("run-1")} == set(ROWS)


@pytest.mark.parametrize("is_on_s3", [False, True])
def test_the_end_of_a_load_leaves_what_the_next_one_stages_meanwhile(
    catalog: Catalog,
    object_store: ObjectStore,
    landing: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_on_s3: bool,
) -> None:
    location = "s3://lake/t" if is_on_s3 else str(tmp_path / "t")
    table = catalog.create_table(
        TABLE, columns=[("v", "int")], partition_keys=[("origin", "string"), ("month", "int")], location=location
    )
    catalog.loading.discover("run-1", TABLE, str(landing))
    attempt = catalog.operations.start_job("run-1", "write")
    staging = Loading.staging_name(catalog.operations.get("run-1"), attempt)
    folder = Folder(location)
    folder.write_rows(f"{staging}/{STAGED_FILES}/part.parquet", STAGED_SCHEMA.empty_table())
    folder.write_empty(f"{staging}/{STAGED_FILES}/_SUCCESS")
    catalog.operations.finish_job("run-1", "write", attempt, {"staging": staging})
    look = Folder.is_empty

    def look_first(folder: Folder, name: str) -> bool:
        is_empty = look(folder, name)
        Folder(location).write_bytes(f"{STAGING}/next/data/a.parquet", b"rows")
        return is_empty

    rmdir = os.rmdir
    number = catalog.operations.start_job("run-1", "register")
    with monkeypatch.context() as patch:
        patch.setattr(Folder, "is_empty", look_first)
        patch.setattr(os, "rmdir", lambda path: (look_first(folder, STAGING), rmdir(path)))
        catalog.loading.publish("run-1", "register", number, staging)
    assert [file.path for file in Folder(table.location).all_files("")] == [f"{STAGING}/next/data/a.parquet"]


def test_publishing_again_returns_the_same_report(load: Load, catalog: Catalog, table: Table) -> None:
    report = load.run()
    assert load.publish() == report
    assert_loaded(catalog, table, ROWS)


def test_an_id_that_is_used_again_does_not_answer_for_another_load(
    load: Load, catalog: Catalog, table: Table, tmp_path: Path
) -> None:
    catalog.create_table("demo.u", columns=[("v", "int")], partition_keys=[("month", "int")])
    (tmp_path / "other.csv").write_text("1")
    load.discover()
    load.stage()
    load.publish()
    assert load.discover() == ["01.csv", "02.csv"]
    discover = catalog.loading.discover
    for name, source in (("demo.u", load.landing), (TABLE, tmp_path / "other.csv")):
        with pytest.raises(OperationReusedError, match=r"started for another request, loading demo\.t from .*landing;"):
            discover(load.name, name, str(source))
    with pytest.raises(OperationReusedError):
        load.discover(reload=True)


def test_a_quarantined_load_is_invisible_until_it_is_released(load: Load, catalog: Catalog, table: Table) -> None:
    load.discover()
    load.stage()
    load.publish(is_quarantined=True)
    assert list(catalog.get_partitions(TABLE)) == []
    assert {partition.state for partition in catalog.operation_partitions("run-1")} == {PartitionState.QUARANTINED}
    assert catalog.release_partitions(TABLE) == 3
    assert_loaded(catalog, table, ROWS)


def test_a_fenced_attempt_publishes_nothing(load: Load, catalog: Catalog, table: Table) -> None:
    load.discover()
    load.stage()
    fenced = catalog.operations.start_job("run-1", "register")
    catalog.operations.start_job("run-1", "register")
    before = files_below(table)
    with pytest.raises(FencedError):
        load.publish(attempt=fenced)
    assert list(catalog.get_partitions(TABLE)) == []
    assert files_below(table) == before
    load.publish(attempt=2)
    assert_loaded(catalog, table, ROWS)


@pytest.mark.parametrize("gone", ["_SUCCESS", "folder"])
def test_a_staging_folder_that_is_not_complete_is_not_taken_for_an_empty_load(
    load: Load, catalog: Catalog, gone: str
) -> None:
    load.discover()
    load.stage()
    if gone == "folder":
        load.staging = f"{STAGING}/99-1"
    else:
        (load.folder / load.staging / STAGED_FILES / "_SUCCESS").unlink()
    with pytest.raises(VerificationFailedError, match="no complete list"):
        load.publish()
    assert load.state is OperationState.RUNNING
    assert len(Load(catalog, load.table, load.landing, "run-1").discover()) == 2


def test_a_partition_that_exists_refuses_the_load(load: Load, catalog: Catalog, table: Table) -> None:
    catalog.add_partitions(TABLE, [NewPartition(["JFK", "01"], location="/elsewhere")])
    with pytest.raises(PartitionAlreadyExistsError, match="origin=JFK/month=1"):
        load.run()
    assert len(list(catalog.get_partitions(TABLE))) == 1
    assert not (Path(table.location) / "origin=LGA").exists()


def test_files_that_the_catalog_does_not_know_are_not_overwritten(load: Load, catalog: Catalog, table: Table) -> None:
    foreign = Path(table.location) / "origin=LGA/month=1/mine.parquet"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("mine")
    with pytest.raises(LocationNotEmptyError, match="origin=LGA/month=1"):
        load.run()
    assert list(catalog.get_partitions(TABLE)) == []

    load.stage()
    assert foreign.read_text() == "mine", "undoing the first try leaves what was there before"
    foreign.unlink()
    load.publish()
    assert_loaded(catalog, table, ROWS, "run-1 2")


# --- refused partitions ---------------------------------------------------------------------------------------------

MIXED: dict[tuple[str | None, ...], int] = {("JFK", "1"): 10, ("JFK", "foo"): 7, ("LGA", "bar"): 8}


def test_a_refused_partition_refuses_the_whole_load(load: Load, catalog: Catalog, table: Table) -> None:
    with pytest.raises(InvalidPartitionError, match="'foo'"):
        load.run(MIXED)
    assert list(catalog.get_partitions(TABLE)) == []
    assert {path.split("/")[0] for path in files_below(table)} == {STAGING}


def test_refused_partitions_are_kept_apart_when_the_rest_is_asked_for(
    load: Load, catalog: Catalog, table: Table
) -> None:
    report = load.run(MIXED, skip=True)
    assert (report["partitions"], report["row_count"], report["refused"], report["refused_rows"]) == (1, 10, 2, 15)
    kept = f"{REJECTED}/{catalog.operations.get('run-1').folder}"
    assert report["refused_folder"] == f"{table.location}/{kept}"
    assert any("'foo', expected int" in reason for reason in report["refused_reasons"])  # type: ignore[attr-defined]
    assert sorted(folders_of(files_below(table))) == [
        f"{kept}/origin=JFK/month=foo",
        f"{kept}/origin=LGA/month=bar",
        "origin=JFK/month=1",
    ]
    assert [partition.values for partition in catalog.get_partitions(TABLE)] == [("JFK", "1")]
