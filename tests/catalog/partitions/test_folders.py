"""A default folder belongs to one partition, so that rows are not read twice; and purges never delete live files."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
from sqlalchemy import text

from catalog import Catalog, NewPartition, Table
from catalog.errors import CatalogError, FolderBeingPurgedError, LocationInUseError, LocationTakenError
from catalog.operations.failpoints import Point
from catalog.partitions import purging as partition_purging
from catalog.partitions.adding import PartitionAdder
from tests.catalog.loading.test_loading import TABLE, Load
from tests.catalog.loading.test_loading import landing as landing
from tests.catalog.loading.test_loading import table as table
from tests.catalog.loading.test_publishing import kill_at
from tests.support.index_items import assert_every_partition_has_its_item
from tests.support.stopped_loads import publish
from tests.support.written_files import own_name, write_file

NOW = timedelta(0)


def add(catalog: Catalog, *partitions: tuple[Sequence[str | None], str | None]) -> None:
    catalog.add_partitions(TABLE, [NewPartition(values, location) for values, location in partitions])


def put(catalog: Catalog, folder: str) -> Path:
    return write_file(Path(folder) / own_name(catalog))


def folders(catalog: Catalog) -> list[str]:
    return sorted(partition.location for partition in catalog.get_partitions(TABLE))


# --- one default folder, one partition --------------------------------------------------------------------------------

PLACES = {
    "default": "{root}/origin=JFK/month=1",
    "default, spelled in another way": "file:{root}/origin=BOS/../origin=JFK//month=1/",
    "inside": "{root}/origin=JFK/month=1/x=1/y",
    "around": "{root}/origin=JFK",
    "table": "{root}",
    "around the table": "{root}/..",
}


ACTS: dict[str, Callable[[Catalog, str], object]] = {
    "add": lambda catalog, location: add(catalog, (("ZZ", "9"), location)),
    "add several": lambda catalog, location: add(
        catalog, (("ZZ", "8"), None), (("ZZ", "9"), location), (("ZZ", "7"), "/other")
    ),
    "move": lambda catalog, location: catalog.alter_partition(TABLE, ("LGA", "2"), location=location),
    "move and rename": lambda catalog, location: catalog.alter_partition(
        TABLE, ("LGA", "2"), location=location, rename_to=("ZZ", "9")
    ),
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_no_partition_comes_to_the_folder_of_another(catalog: Catalog, table: Table, place: str) -> None:
    add(
        catalog,
        (("JFK", "1"), None),
        (("LGA", "2"), None),
    )
    location, before = place.format(root=table.location), folders(catalog)
    for come in ACTS.values():
        with pytest.raises(LocationTakenError, match="both would return them") as refused:
            come(catalog, location)
        assert refused.value.owner == "partition origin=JFK/month=1"
        assert folders(catalog) == before
    assert_every_partition_has_its_item(catalog, TABLE)


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_two_new_partitions_do_not_share_a_default_folder(catalog: Catalog, table: Table, place: str) -> None:
    for origins in ("AZ", "ZA"):
        location = place.format(root=table.location).replace("JFK", origins[0])
        with pytest.raises(LocationTakenError):
            add(catalog, ((origins[0], "1"), None), ((origins[1], "1"), location))
    assert folders(catalog) == []


def test_a_new_name_makes_no_shared_folder_the_default_one(catalog: Catalog, table: Table) -> None:
    shared = f"{table.location}/origin=JFK/month=1"
    add(catalog, (("x", "1"), shared), (("y", "1"), shared))
    with pytest.raises(LocationTakenError):
        catalog.alter_partition(TABLE, ("x", "1"), rename_to=("JFK", "1"))
    assert len(folders(catalog)) == 2


@pytest.mark.parametrize("folder", ["_calve_staging", "_calve_rejected/1-2/origin=A/month=1"])
def test_no_partition_comes_to_a_folder_of_operations(catalog: Catalog, table: Table, folder: str) -> None:
    add(catalog, (("LGA", "2"), None))
    for come in ACTS.values():
        with pytest.raises(LocationInUseError, match="operations keep their files in"):
            come(catalog, f"{table.location}/{folder}")
    assert len(folders(catalog)) == 1


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_partitions_that_share_a_folder_by_an_earlier_version_are_read_changed_and_dropped(
    catalog: Catalog, table: Table, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = place.format(root=table.location)
    with monkeypatch.context() as patch:
        patch.setattr("catalog.partitions.adding.refuse_shared_folders", lambda *_, **__: None)
        add(catalog, (("JFK", "1"), None), (("ZZ", "9"), location))
    assert len(folders(catalog)) == 2
    for values in (("JFK", "1"), ("ZZ", "9")):
        catalog.alter_partition(TABLE, values, properties={"a": "b"})
    catalog.alter_partition(TABLE, ("ZZ", "9"), rename_to=("ZZ", "10"))
    add(catalog, (("BOS", "1"), "/x"))
    file = put(catalog, f"{table.location}/origin=JFK/month=1")
    catalog.purge_partitions(TABLE, "origin = 'ZZ'")
    assert file.exists()
    catalog.purge_partitions(TABLE)
    assert not file.exists()
    assert folders(catalog) == []


def test_partitions_may_share_a_folder_that_is_no_default_one(catalog: Catalog, table: Table) -> None:
    add(catalog, (("C", "1"), "/x/shared"), (("D", "1"), "/x/shared"), (("E", "1"), "/y"))
    catalog.alter_partition(TABLE, ("E", "1"), location="/x/shared")
    assert folders(catalog) == ["/x/shared"] * 3


@pytest.mark.parametrize("place", [place for place in PLACES.values() if "/../" not in place])
def test_no_partition_comes_to_its_default_folder_when_another_lies_there(
    catalog: Catalog, table: Table, place: str
) -> None:
    default, location = f"{table.location}/origin=JFK/month=1", place.format(root=table.location)
    add(catalog, (("ZZ", "9"), location), (("JFK", "2"), "/x"))
    for come in (
        lambda: add(catalog, (("JFK", "1"), None)),
        # As engines register it.
        lambda: add(catalog, (("JFK", "1"), f"file:{default}")),
        lambda: catalog.alter_partition(TABLE, ("JFK", "2"), location=default, rename_to=("JFK", "1")),
    ):
        with pytest.raises(LocationTakenError, match="partition origin=ZZ/month=9 has its files in"):
            come()
    assert folders(catalog) == sorted(["/x", posixpath.normpath(location)])
    if place in (PLACES["default"], PLACES["inside"]):
        # Another spelling is another folder.
        add(catalog, (("JFK", "01"), None))


def test_what_is_free_is_not_refused(catalog: Catalog, table: Table) -> None:
    add(catalog, (("JFK", "1"), None), (("ZZ", "9"), f"{table.location}/origin=JF"), (("ZZ", "8"), "/x/1"))
    catalog.alter_partition(TABLE, ("JFK", "1"), location=f"file:{table.location}/origin=JFK/month=1")
    catalog.alter_partition(TABLE, ("JFK", "1"), location=f"{table.location}/origin=JFK/month=1")
    catalog.alter_partition(TABLE, ("ZZ", "8"), location="/x/2")
    add(catalog, (("ZZ", "7"), "/x/1"), (("ZZ", "6"), f"{table.location}/origin=JFK/month=01"))
    catalog.drop_partitions(TABLE, "origin = 'JFK'")
    add(catalog, (("ZZ", "5"), f"{table.location}/origin=JFK/month=1"))
    # Several tables may use a folder that is not the location of a table.
    catalog.create_table("demo.other", columns=[("v", "int")], partition_keys=[("k", "int")])
    catalog.add_partitions("demo.other", [NewPartition(["1"], "/x/1")])
    assert len(folders(catalog)) == 5


@pytest.mark.parametrize("place", [PLACES[name] for name in ("default", "inside", "around")])
def test_no_partition_comes_to_a_folder_that_a_load_fills(
    catalog: Catalog, catalog_url: str, table: Table, landing: Path, place: str
) -> None:
    load = Load(catalog, table, landing)
    load.discover()
    load.stage()
    kill_at(publish, Point.MOVED, catalog_url, load.name, load.staging)
    add(catalog, (("LGA", "2"), None))
    for come in ACTS.values():
        with pytest.raises(LocationTakenError, match="partition origin=JFK/month=1"):
            come(catalog, place.format(root=table.location))
    load.publish()
    assert len(folders(catalog)) == len(set(folders(catalog))) == 4


@pytest.mark.parametrize("place", [PLACES[name] for name in ("default", "inside", "around", "table")])
def test_no_load_fills_the_folder_of_a_partition_with_other_values(
    catalog: Catalog, table: Table, landing: Path, place: str
) -> None:
    add(catalog, (("ZZ", "9"), place.format(root=table.location)))
    load = Load(catalog, table, landing)
    load.discover()
    load.stage()
    with pytest.raises(LocationTakenError, match="partition origin=ZZ/month=9 has its files in"):
        load.publish()
    assert not Path(table.location, "origin=JFK").exists()


def test_partitions_that_come_at_once_do_not_share_a_default_folder(catalog: Catalog, table: Table) -> None:
    default = f"{table.location}/origin=JFK/month=1"
    acts: list[Callable[[], object]] = [
        lambda: add(catalog, (("JFK", "1"), None)),
        lambda: add(catalog, (("ZZ", "9"), default)),
        lambda: add(catalog, (("ZZ", "8"), default)),
        lambda: catalog.alter_partition(TABLE, ("LGA", "1"), location=default),
    ]
    for _ in range(5):
        add(catalog, (("LGA", "1"), None))
        barrier, outcomes = Barrier(len(acts)), list[bool]()

        def run(act: Callable[[], object], barrier: Barrier = barrier, outcomes: list[bool] = outcomes) -> None:
            barrier.wait()
            try:
                act()
                outcomes.append(True)
            except LocationTakenError:
                outcomes.append(False)

        threads = [Thread(target=run, args=(act,)) for act in acts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(outcomes) == 4
        there = [partition.values[0] for partition in catalog.get_partitions(TABLE) if partition.location == default]
        assert len(there) == sum(outcomes)
        assert sorted(map(str, there)) in (["JFK"], ["LGA", "ZZ", "ZZ"])
        catalog.drop_partitions(TABLE)


# --- purges ---------------------------------------------------------------------------------------------------------


def interrupt_purge(catalog: Catalog, expression: str | None = None) -> None:
    """Drop partitions with their files, and exit before a file is deleted."""

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("catalog.partitions.purging.finish_partition_purge", die)
        with pytest.raises(KeyboardInterrupt):
            catalog.purge_partitions(TABLE, expression)


NEWCOMERS: dict[str, Callable[[Catalog, Table], object]] = {
    "add": lambda catalog, table: add(catalog, (("a", "1"), None)),
    "repair": lambda catalog, table: catalog.repair_table(TABLE),
    "location": lambda catalog, table: add(catalog, (("c", "1"), f"file:{table.location}/origin=a/month=1")),
    "around": lambda catalog, table: add(catalog, (("c", "1"), f"{table.location}/origin=a")),
    "rename": lambda catalog, table: [
        add(catalog, (("a", "1"), None)),
        catalog.alter_partition(TABLE, ("a", "1"), rename_to=("c", "1")),
    ],
}


# --- links ------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["origin=a", "origin=a/month=1"])
def link(request: pytest.FixtureRequest, table: Table, tmp_path: Path) -> str:
    """Make a link to another disk on the way to the folder of the partition a, 1; return that folder on the disk."""
    path = Path(table.location, request.param)
    target = tmp_path / "disk" / path.name
    target.mkdir(parents=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    return str(Path(table.location, "origin=a/month=1").resolve())


LINKED = {
    **{name: NEWCOMERS[name] for name in ("add", "repair", "location", "rename")},
    "location on the disk": lambda catalog, table: add(
        catalog, (("c", "1"), str(Path(table.location, "origin=a/month=1").resolve()))
    ),
}


@pytest.mark.parametrize("come", LINKED.values(), ids=LINKED)
def test_an_interrupted_purge_below_a_link_leaves_the_folder_of_a_partition_that_came_meanwhile(
    catalog: Catalog, table: Table, link: str, come: Callable[[Catalog, Table], object]
) -> None:
    add(catalog, (("a", "1"), None), (("z", "1"), None))
    file = put(catalog, f"{table.location}/origin=a/month=1")
    assert str(file.resolve().parent) == link
    interrupt_purge(catalog)
    come(catalog, table)
    assert len(list(catalog.get_partitions(TABLE))) == 1
    assert catalog.vacuum(grace=NOW).problems == ()
    assert file.exists()


@pytest.mark.usefixtures("link")
@pytest.mark.parametrize("come", LINKED.values(), ids=LINKED)
def test_no_partition_comes_to_a_folder_below_a_link_while_a_purge_deletes_its_files(
    catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch, come: Callable[[Catalog, Table], object]
) -> None:
    add(catalog, (("a", "1"), None))
    file = put(catalog, f"{table.location}/origin=a/month=1")
    with monkeypatch.context() as patch:
        patch.setattr(partition_purging, "delete_own_files", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            catalog.purge_partitions(TABLE)
    if come is NEWCOMERS["repair"]:
        [reason] = catalog.repair_table(TABLE).unfit
        assert "is deleting the files in it" in reason
    else:
        with pytest.raises(FolderBeingPurgedError):
            come(catalog, table)
    assert folders(catalog) == []
    assert catalog.vacuum(grace=NOW).problems == ()
    assert not file.exists()


@pytest.mark.usefixtures("link")
def test_no_partition_comes_to_the_folder_of_another_below_a_link(catalog: Catalog, table: Table) -> None:
    add(catalog, (("a", "1"), None))
    with pytest.raises(LocationTakenError):
        add(catalog, (("b", "1"), f"{table.location}/origin=a/month=1"))


def test_repair_adds_no_folder_that_is_a_partition_s_location_through_a_link(
    catalog: Catalog, table: Table, link: str
) -> None:
    Path(link).mkdir(exist_ok=True)
    add(catalog, (("b", "1"), link))
    report = catalog.repair_table(TABLE)
    assert (report.added, report.folder_count) == (0, 1)


# --- violations of other rules --------------------------------------------------------------------------------------


def test_an_id_that_is_taken_is_an_error_and_no_reason_to_insert_again(
    catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(catalog, *[(("a", str(month)), None) for month in range(20)])
    with catalog.storage.write() as connection:
        if catalog.storage.is_postgresql:
            connection.execute(text("SELECT setval('calve_partition_id_seq', 1)"))
        else:
            connection.execute(text("UPDATE sqlite_sequence SET seq = 1 WHERE name = 'calve_partition'"))
    insert, times = PartitionAdder._insert, list[int]()

    def insert_once(self: PartitionAdder, *arguments: Any) -> Any:
        times.append(1)
        assert len(times) == 1, "it tries for ever"
        return insert(self, *arguments)

    monkeypatch.setattr(PartitionAdder, "_insert", insert_once)
    with pytest.raises(CatalogError, match=r"calve_partition"):
        add(catalog, (("b", "1"), None))


def test_folders_of_others_inside_the_custom_locations_of_partitions_are_found(
    catalog: Catalog, table: Table, tmp_path: Path
) -> None:
    outer, inner, others = (str(tmp_path / name) for name in ("out", "out/é in", "out/other"))
    add(catalog, (("JFK", "1"), None), (("LGA", "1"), outer), (("LGA", "2"), inner), (("LGA", "3"), f"{outer}_beside"))
    catalog.create_table("demo.o", columns=[("v", "int")], partition_keys=[("k", "string")])
    catalog.add_partitions("demo.o", [NewPartition(("1",), others)])
    partitions = list(catalog.get_partitions(TABLE))
    assert catalog.folders_inside(table, partitions) == {outer: {inner, others}}
    assert catalog.folders_inside(table, [one for one in partitions if one.location != outer]) == {}
