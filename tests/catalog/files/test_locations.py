"""A location belongs to one table, in all spellings, and to one catalog, even if others stage files in it."""

from __future__ import annotations

import re
import time
from datetime import timedelta
from pathlib import Path
from threading import Barrier, Thread

import pytest

from catalog import Catalog, Column, NewPartition, Table
from catalog.errors import InvalidLocationError, InvalidTableError, LocationInUseError, LocationNotEmptyError
from catalog.files.filesystem import Folder
from catalog.files.locations import (
    OwnFiles,
    end_of_keys_inside,
    folder_keys,
    keys_above,
    location_key,
    location_keys,
    problem_of_uri,
)
from catalog.operations.attempts import attempt_folder
from catalog.operations.records import OperationKind
from catalog.operations.staging import STAGING
from catalog.rebalancing.changes import SplitPartition
from catalog.rebalancing.rebalancing import COMMIT
from catalog.tables.schemes import scheme_from_properties
from tests.catalog.loading.test_loading import Load as PartitionLoad
from tests.support.killed_changes import contents, rewrite
from tests.support.killed_changes import load as load_numbers
from tests.support.written_files import Load, data_files, hashed_table, on_disk, write_file

NOW = timedelta(0)
SPLIT = SplitPartition(2, ("15", "20"))


def create(catalog: Catalog, name: str, location: str | Path | None = None) -> Table:
    return catalog.create_table(
        name,
        columns=[("x", "int")],
        partition_keys=[("k", "string")],
        location=None if location is None else str(location),
    )


REMOTE = [
    ("abfs://c@a.dfs.core.windows.net/x", "abfss://c@A.dfs.core.windows.net/x"),
    ("abfss://c@a.dfs.core.windows.net/x", "wasbs://c@a.blob.core.windows.net/x"),
    ("wasb://c@a.blob.core.windows.net/x/", "abfs://c@a.dfs.core.windows.net/x"),
    ("hdfs://nn/x", "hdfs://nn:8020/x"),
    ("hdfs://NN:8020/x", "hdfs://nn/x"),
    ("hdfs:///x", "hdfs://nn/x"),
    ("hdfs://nn/x", "viewfs://nn/x"),
    ("s3://b/x?region=eu-west-1", "s3a://b/x"),
    ("gs://b/x", "gcs://b/x"),
]
"""Spellings of one remote folder."""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://bucket/a", "s3a://bucket/a/"),
        ("s3n://bucket/a/./b/../c", "S3://bucket/a//c"),
        ("file:/data/a", "/data/a/"),
        ("file:///data/a/../b", "/data/b"),
        ("hdfs://name/a", "hdfs://name//a"),
        *REMOTE,
    ],
)
def test_spellings_of_a_location_have_one_key(one: str, other: str) -> None:
    assert location_key(one) == location_key(other)


def test_keys_of_other_folders_differ() -> None:
    locations = [
        "s3://a/b",
        "s3://a/bc",
        "s3://ab/c",
        "gs://a/b",
        "/a/b",
        "/a/b c",
        "/",
        "s3://a",
        "s3://A",
        "hdfs://a",
    ]
    locations += [
        "hdfs://a/b",
        "abfs://a@b/c",
        "abfs://b@b/c",
        "s3://a/b%20c",
        "s3://a/b c",
        "/a/b?c",
        "s3://a/b/c?r=e",
    ]
    assert len({location_key(each) for each in locations}) == len(locations)


def test_a_folder_below_links_has_a_key_for_each_of_them(tmp_path: Path) -> None:
    (tmp_path / "disk/x").mkdir(parents=True)
    (tmp_path / "a").symlink_to("disk")
    (tmp_path / "disk/y").symlink_to("x")
    root = str(tmp_path.resolve())
    for location in (f"{tmp_path}/a/y", f"file:{tmp_path}//a/./y"):
        keys = list(folder_keys([location]))
        assert keys == [f"{root}/{path}/".encode() for path in ("a/y", "disk/y", "disk/x")]
        assert list(location_keys([location])) == [location_key(location)] == keys[-1:]
    assert list(folder_keys(["s3a://b//a/../y", "s3://b/x"])) == [b"s3://b/y/", b"s3://b/x/"]


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("s3:/lake/w", "'s3:/lake/w' has no '//' after its scheme; write s3://lake/w"),
        ("s3a:lake/w", "write s3a://lake/w"),
        ("s3:", "write s3://bucket/folder"),
        ("hdfs:/w", "write hdfs:///w"),
        ("s3:///w", "'s3:///w' has no bucket; write s3://bucket/folder"),
        ("s3://", "has no bucket"),
        ("gs:///w", "has no bucket; write gs://bucket/folder"),
    ],
)
def test_a_uri_without_its_slashes_or_its_bucket_is_no_local_folder(
    monkeypatch: pytest.MonkeyPatch, catalog: Catalog, location: str, said: str
) -> None:
    catalog.create_database("db")
    with pytest.raises(InvalidLocationError, match=re.escape(said)):
        create(catalog, "db.t", location)
    with pytest.raises(InvalidLocationError, match=re.escape(said)):
        catalog.create_database("other", location=location)
    monkeypatch.setenv("CALVE_WAREHOUSE", location)
    with pytest.raises(InvalidLocationError, match=re.escape(f"CALVE_WAREHOUSE {location!r}")):
        Catalog.open()


@pytest.mark.parametrize("location", ["s3://lake", "hdfs:///w", "hdfs://names/w", "/s3:/w", "file:/w", "w:x", "s3x:/w"])
def test_other_locations_have_no_problem(location: str) -> None:
    assert problem_of_uri(location) is None


def test_keys_above_and_inside() -> None:
    assert list(keys_above(location_key("s3://a/b/c"))) == [b"s3://a/", b"s3://a/b/", b"s3://a/b/c/"]
    assert list(keys_above(location_key("/nowhere/b"))) == [b"/", b"/nowhere/", b"/nowhere/b/"]
    folder, end = location_key("/nowhere/b"), end_of_keys_inside(location_key("/nowhere/b"))
    assert folder < location_key("/nowhere/b/\U0010ffff") < end
    assert not folder < location_key("/nowhere/b0") < end


@pytest.mark.parametrize("where", ["onto", "into", "around"])
@pytest.mark.parametrize("spelling", ["{}", "file:{}", "file://{}/", "{}/x/..", "link"])
def test_no_table_is_created_or_moved_where_another_lies(
    catalog: Catalog, tmp_path: Path, where: str, spelling: str
) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    owner = create(catalog, "demo.owner", tmp_path / "lake" / "owner")
    place = {"onto": "lake/owner", "into": "lake/owner/k=1", "around": "lake"}[where]
    location = str(tmp_path / "link" / place) if spelling == "link" else spelling.format(tmp_path / place)

    with pytest.raises(LocationInUseError, match=r"demo\.owner") as refused:
        create(catalog, "demo.new", location)
    assert (refused.value.owner, refused.value.owner_location) == ("demo.owner", owner.location)
    moved = create(catalog, "demo.moved", tmp_path / "elsewhere")
    with pytest.raises(LocationInUseError):
        catalog.alter_table("demo.moved", location=location)
    with pytest.raises(LocationInUseError):
        catalog.add_partitions("demo.moved", [NewPartition(["1"], location=location)])
    catalog.add_partitions("demo.moved", [NewPartition(["1"])])
    with pytest.raises(LocationInUseError):
        catalog.alter_partition("demo.moved", ["1"], location=location)
    assert catalog.get_table("demo.moved") == moved
    assert [each.location for each in catalog.get_partitions("demo.moved")] == [f"{moved.location}/k=1"]


def test_a_renamed_table_keeps_its_folder_from_the_next_of_its_name(catalog: Catalog) -> None:
    create(catalog, "demo.sales")
    old = catalog.alter_table("demo.sales", rename_to="sales_old")
    with pytest.raises(LocationInUseError, match="sales_old"):
        create(catalog, "demo.sales")
    catalog.drop_table("demo.sales_old")
    assert create(catalog, "demo.sales").location == old.location


def test_views_neighbours_and_a_table_s_own_folders_are_allowed(catalog: Catalog, tmp_path: Path) -> None:
    table = create(catalog, "demo.a", tmp_path / "a")
    create(catalog, "demo.ab", tmp_path / "ab")
    for name in ("demo.v", "demo.w"):
        catalog.create_view(name, "SELECT 1")
    new = [NewPartition([name], location=f"{tmp_path}/{name}") for name in ("outside", "a/inside")]
    catalog.add_partitions("demo.a", new)
    catalog.alter_partition("demo.a", ["outside"], location=f"{table.location}/k=other")
    assert catalog.alter_table("demo.ab", location=f"{tmp_path}/b").location == f"{tmp_path}/b"
    create(catalog, "demo.new", tmp_path / "ab")
    with pytest.raises(LocationInUseError):
        create(catalog, "demo.b", tmp_path / "b")


def test_of_tables_created_at_once_in_one_folder_one_stays(catalog: Catalog, tmp_path: Path) -> None:
    barrier, outcomes = Barrier(4), list[str]()
    for number in range(4):
        catalog.create_database(f"d{number}")

    def create_too(number: int) -> None:
        barrier.wait()
        try:
            create(catalog, f"d{number}.t", tmp_path / "lake" / ("x" if number % 2 else ""))
            outcomes.append("created")
        except LocationInUseError:
            outcomes.append("refused")

    threads = [Thread(target=create_too, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["created", "refused", "refused", "refused"]


def test_the_look_up_stays_short_with_many_tables(catalog: Catalog, tmp_path: Path) -> None:
    plan = "EXPLAIN " if catalog.storage.is_postgresql else "EXPLAIN QUERY PLAN "
    with catalog.storage.write() as connection:
        if catalog.storage.is_postgresql:
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        key = location_key(str(tmp_path)).hex()
        literal = f"'\\x{key}'::bytea" if catalog.storage.is_postgresql else f"x'{key}'"
        query = f"SELECT id FROM calve_table WHERE location_key > {literal} OR location_key IN ({literal})"
        steps = " ".join(str(row) for row in connection.exec_driver_sql(plan + query))
    assert "ix_calve_table_location_key" in steps


def test_no_table_lies_where_another_s_partition_does(catalog: Catalog, tmp_path: Path) -> None:
    create(catalog, "demo.owner", tmp_path / "owner")
    catalog.add_partitions("demo.owner", [NewPartition(["1"], location=f"file://{tmp_path}/outside/1")])
    for location in ("outside", "outside/1", "outside/1/2"):
        with pytest.raises(LocationInUseError, match=r"demo\.owner lies in file:"):
            create(catalog, "demo.new", tmp_path / location)
    create(catalog, "demo.new", tmp_path / "outside" / "10")
    create(catalog, "demo.on_s3", "s3a://bucket/t")
    catalog.add_partitions("demo.on_s3", [NewPartition(["1"], location="s3n://elsewhere/1")])
    with pytest.raises(LocationInUseError):
        create(catalog, "demo.also", "s3://elsewhere/")


@pytest.mark.parametrize("is_swapped", [False, True])
@pytest.mark.parametrize(("one", "other"), REMOTE)
def test_a_remote_folder_belongs_to_one_table_in_every_spelling(
    catalog: Catalog, one: str, other: str, is_swapped: bool
) -> None:
    first, second = (other, one) if is_swapped else (one, other)
    create(catalog, "demo.owner", first)
    create(catalog, "demo.taker", "gs://elsewhere/taker")
    for location in (second, _inside(second)):
        with pytest.raises(LocationInUseError, match=r"demo\.owner"):
            create(catalog, "demo.new", location)
        with pytest.raises(LocationInUseError, match=r"demo\.owner"):
            catalog.add_partitions("demo.taker", [NewPartition(["1"], location=location)])


@pytest.mark.parametrize(("one", "other"), [pair for pair in REMOTE if "?" not in "".join(pair)])
def test_no_table_lies_where_a_remote_partition_does(catalog: Catalog, one: str, other: str) -> None:
    create(catalog, "demo.owner", "gs://elsewhere/owner")
    catalog.add_partitions("demo.owner", [NewPartition(["1"], location=f"{one.lower().rstrip('/')}/1")])
    for location in (other, f"{other.rstrip('/')}/1/2"):
        with pytest.raises(LocationInUseError, match=r"demo\.owner"):
            create(catalog, "demo.new", location)


def _inside(location: str) -> str:
    folder, mark, options = location.partition("?")
    return f"{folder.rstrip('/')}/k=1{mark}{options}"


# --- two catalogs over one warehouse --------------------------------------------------------------------------------


@pytest.fixture
def other(catalog: Catalog, tmp_path: Path) -> Catalog:
    """A second catalog, with the same warehouse."""
    second = Catalog.initialise(f"sqlite:///{tmp_path}/other.db", warehouse=str(tmp_path / "warehouse"))
    second.create_database("demo")
    return second


def test_catalogs_give_their_folders_names_of_their_own(catalog: Catalog, other: Catalog) -> None:
    names = set()
    for each in (catalog, other):
        create(each, "demo.t")
        operation = each.operations.begin("load", OperationKind.ADD_PARTITIONS, "demo.t", is_exclusive=True)
        assert operation.number == 1
        names.add(each.loading.staging_name(operation, 1))
    assert len(names) == 2


def test_a_catalog_leaves_what_another_has_staged(catalog: Catalog, other: Catalog) -> None:
    table = create(catalog, "demo.t")
    create(other, "demo.t")
    staged = {}
    for each in (catalog, other):
        operation = each.operations.begin("load", OperationKind.ADD_PARTITIONS, "demo.t", is_exclusive=True)
        attempt = each.operations.start_job("load", "write")
        name = each.loading.staging_name(operation, attempt)
        staged[each] = write_file(Path(table.location) / name / "data" / "k=1" / "a.parquet")
        each.operations.fail("load", "TEST", "ended by the test")
    age(catalog)

    assert catalog.repair_table("demo.t").added == 0
    assert not staged[catalog].exists()
    assert staged[other].exists()
    catalog.vacuum(grace=NOW)
    assert staged[other].exists()
    assert Folder(table.location).folders(STAGING) == [staged[other].parts[-4]]
    age(other)
    other.vacuum(grace=NOW)
    assert not staged[other].exists()


def test_loads_of_two_catalogs_overwrite_and_undo_nothing_of_each_other(
    catalog: Catalog, other: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "01.csv").touch()
    loads = {}
    for each in (catalog, other):
        table = create(each, "demo.t")
        loads[each] = PartitionLoad(each, table, tmp_path / "landing")
        loads[each].discover()
        loads[each].stage({(str(number),): 1 for number in ((1, 2) if each is catalog else (2, 3))})
    with monkeypatch.context() as patch:
        patch.setattr(catalog.loading, "_note_sources", fail)
        with pytest.raises(InterruptedError):
            loads[catalog].publish()
    [moved] = Path(table.location, "k=1").iterdir()
    with pytest.raises(LocationNotEmptyError, match="k=2 has files that the catalog does not know"):
        loads[other].publish()
    other.operations.fail("run-1", "TEST", "ended by the test")
    again = PartitionLoad(other, table, tmp_path / "landing", "run-2")
    again.run({("3",): 1})
    assert moved.exists()
    loads[catalog].publish()
    for each, values in ((catalog, {"1", "2"}), (other, {"3"})):
        partitions = list(each.get_partitions("demo.t"))
        assert {partition.values[0] for partition in partitions} == values
        assert all(len(list(Path(partition.location).iterdir())) == 1 for partition in partitions)


def fail(*_arguments: object) -> None:
    raise InterruptedError


def test_rebalances_of_two_catalogs_leave_the_files_of_each_other(catalog: Catalog, other: Catalog) -> None:
    scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "10, 20, 30"})
    for each in (catalog, other):
        each.create_table("demo.t", columns=[("c", "int")], scheme=scheme)
        load_numbers(each, "load", "demo.t", range(30))
    operation = catalog.rebalancing.begin("split", "demo.t", SPLIT)
    with catalog.operations.attempt("split", COMMIT) as attempt:
        folder = attempt_folder(operation, attempt)
        plan = catalog.rebalancing.plan_of(operation)
        rewrite(plan, folder)
        # The other catalog does the same with the same operation number, and deletes its unused files.
        split(other)
        age(other)
        other.vacuum(grace=NOW)
        catalog.rebalancing.commit("split", COMMIT, attempt, plan, folder)
    age(catalog)
    catalog.vacuum(grace=NOW)
    expected = {1: [*range(10)], 4: [*range(10, 15)], 5: [*range(15, 20)], 3: [*range(20, 30)]}
    assert contents(catalog, "demo.t") == contents(other, "demo.t") == expected


def split(catalog: Catalog) -> None:
    """Run all steps of a split."""
    operation = catalog.rebalancing.begin("split", "demo.t", SPLIT)
    with catalog.operations.attempt("split", COMMIT) as attempt:
        folder = attempt_folder(operation, attempt)
        plan = catalog.rebalancing.plan_of(operation)
        rewrite(plan, folder)
        catalog.rebalancing.commit("split", COMMIT, attempt, plan, folder)


def test_vacuum_leaves_the_data_files_of_another_catalog(catalog: Catalog, other: Catalog) -> None:
    mine, its = hashed_table(catalog), hashed_table(other)
    assert mine.location == its.location
    Load(catalog, mine, "1").run()
    Load(other, its, "1").run()
    Load(other, its, "2").begin().write().fail()
    before = on_disk(its.location)
    age(catalog)
    Load(catalog, mine, "2").run(retired=data_files(catalog, mine))
    Load(catalog, mine, "3").begin().write().fail()
    age(catalog)
    catalog.vacuum(grace=NOW)
    theirs = {path for path in before if path.startswith(other.storage.identity)}
    assert theirs == {path for path in on_disk(its.location) if path.startswith(other.storage.identity)}
    other.vacuum(grace=NOW)
    assert {file.path for file in data_files(other, its)} <= on_disk(its.location)


def test_a_purge_leaves_the_files_of_another_catalog(catalog: Catalog, other: Catalog) -> None:
    mine, its = hashed_table(catalog), hashed_table(other)
    Load(catalog, mine, "1").run()
    Load(other, its, "1").run()
    staged = write_file(Path(its.location) / STAGING / f"{other.storage.identity}-9-1" / "data" / "k=1" / "a.parquet")
    before = {path for path in on_disk(its.location) if other.storage.identity in path}
    assert {str(staged.relative_to(its.location)), *(file.path for file in data_files(other, its))} < before
    assert catalog.drop_table(mine.full_name, purge=True).count == len(before)
    assert on_disk(its.location) == before


def age(catalog: Catalog) -> None:
    """Wait until the clock advances, so that no grace period protects earlier files."""
    then = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 == then:
        pass


def test_a_location_that_is_too_long_for_the_index_is_refused(catalog: Catalog, tmp_path: Path) -> None:
    with pytest.raises(InvalidTableError, match="2,000 bytes"):
        create(catalog, "demo.t", tmp_path / ("x" * 300) / ("y" * 3000))


def test_own_files_are_inside_as_they_are_written_and_decoded_and_wherever_links_lead(tmp_path: Path) -> None:
    table, foreign = tmp_path / "table", tmp_path / "foreign"
    for folder in (table / "data", foreign):
        folder.mkdir(parents=True)
    own = OwnFiles([str(table)])
    inside = [f"{table}/data/a.parquet", f"file://{table}/data/day=2024%2D01/a.parquet", f"{table}/data/a%2Fb.parquet"]
    assert own.among([*inside, inside[0]]) == inside
    for name in ("link", "l%61nk"):
        (table / name).symlink_to(foreign)
    (table / "data" / "b.parquet").symlink_to(foreign / "b.parquet")
    outside = [
        f"{table}/link/a",
        f"{table}/l%61nk/a",
        f"{table}/data/b.parquet",
        f"{table}/../foreign/a",
        f"{foreign}/a",
    ]
    assert own.among(outside) == []
    (table / "data").rename(table / "former")
    (table / "data").symlink_to(foreign)
    assert OwnFiles([str(table)]).among(inside) == []


@pytest.mark.parametrize(
    "path",
    [
        "hdfs://other:8020/lake/t/a",
        "viewfs://ours:8020/lake/t/a",
        "s3://lake/t/a",
        "hdfs://ours:8020/lake/t2/a",
        "hdfs://ours:8020/lake/t?endpoint_override=other:80/a",
    ],
)
def test_files_of_other_clusters_are_nobodys_own(path: str) -> None:
    own = OwnFiles(["hdfs://ours:8020/lake/t"])
    assert "hdfs://ours:8020/lake/t/a" in own
    assert "hdfs://ours/lake/t/data/b" in own
    assert path not in own


def test_an_address_with_options_is_no_own_file_of_a_bucket() -> None:
    own = OwnFiles(["s3://lake/t"])
    options = "?endpoint_override=host:80&scheme=http/a"
    assert own.among(["s3a://lake/t/a", f"s3://lake/t{options}", f"s3://lake/t/b{options}"]) == ["s3a://lake/t/a"]
    odd = OwnFiles(["s3://lake/t?"])
    assert odd.among(["s3://lake/t?/a", "s3://lake/t/a", "/etc/passwd", f"s3://lake/t?/b{options}"]) == [
        "s3://lake/t?/a"
    ]
