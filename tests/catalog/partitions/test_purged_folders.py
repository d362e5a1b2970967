"""Purges of partitions whose folders others have, or get meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from sqlalchemy import select

from catalog import Catalog, NewPartition, Table
from catalog.errors import CatalogError, FolderBeingPurgedError
from catalog.operations.failpoints import Point
from catalog.partitions import purging as partition_purging
from catalog.storage.schema import PurgedFolderRow
from catalog.tables.own_files import PurgedFiles
from tests.catalog.loading.test_loading import TABLE, Load
from tests.catalog.loading.test_loading import landing as landing
from tests.catalog.loading.test_loading import table as table
from tests.catalog.loading.test_publishing import kill_at
from tests.catalog.partitions.test_folders import NEWCOMERS, NOW, add, folders, interrupt_purge, put
from tests.support.stopped_loads import publish


@pytest.mark.parametrize("come", NEWCOMERS.values(), ids=NEWCOMERS)
def test_an_interrupted_purge_leaves_the_folder_of_a_partition_that_came_meanwhile(
    catalog: Catalog, table: Table, come: Callable[[Catalog, Table], object]
) -> None:
    add(catalog, (("a", "1"), None), (("z", "1"), None))
    file, other = (put(catalog, f"{table.location}/origin={origin}/month=1") for origin in "az")
    catalog.alter_partition(TABLE, ("a", "1"), rename_to=("b", "1"))
    interrupt_purge(catalog)
    come(catalog, table)
    assert [str(file) for _ in catalog.get_partitions(TABLE, "origin <> 'z'")] == [str(file)]
    assert catalog.vacuum(grace=NOW).problems == ()
    assert file.exists()
    # What was not deleted for its sake stays when it is dropped without its files.
    catalog.drop_partitions(TABLE)
    catalog.vacuum(grace=NOW)
    assert file.exists()
    assert other.exists() is (come is NEWCOMERS["repair"])


@pytest.mark.parametrize("is_reserved", [False, True])
def test_a_purge_leaves_default_folders_inside(
    catalog: Catalog, catalog_url: str, table: Table, landing: Path, is_reserved: bool
) -> None:
    add(catalog, (("x", "1"), f"{table.location}/origin=JFK"))
    interrupt_purge(catalog)
    if is_reserved:
        load = Load(catalog, table, landing)
        load.discover()
        load.stage({("JFK", "1"): 1})
        kill_at(publish, Point.MOVED, catalog_url, load.name, load.staging)
    else:
        add(catalog, (("JFK", "1"), None))
    file = put(catalog, f"{table.location}/origin=JFK/month=1")
    assert catalog.vacuum(grace=NOW).problems == ()
    assert file.exists()


COMING: dict[str, Callable[[Catalog, Table], object]] = {
    **NEWCOMERS,
    "inside": lambda catalog, table: add(catalog, (("c", "1"), f"{table.location}/origin=a/month=1/x")),
    "move": lambda catalog, table: catalog.alter_partition(
        TABLE, ("LGA", "1"), location=f"{table.location}/origin=a/month=1"
    ),
}


@pytest.mark.parametrize("come", COMING.values(), ids=COMING)
def test_no_partition_comes_to_a_folder_while_a_purge_deletes_its_files(
    catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch, come: Callable[[Catalog, Table], object]
) -> None:
    add(catalog, (("a", "1"), None), (("LGA", "1"), None))
    file = put(catalog, f"{table.location}/origin=a/month=1")
    delete, refused = partition_purging.delete_own_files, list[str]()

    def refuse() -> None:
        before = folders(catalog)
        if come is NEWCOMERS["repair"]:
            [reason] = catalog.repair_table(TABLE).unfit
            assert "is deleting the files in it" in reason
        else:
            with pytest.raises(FolderBeingPurgedError, match="run `calve vacuum`"):
                come(catalog, table)
        assert folders(catalog) == before
        refused.append("")

    def refuse_and_delete(location: str, *arguments: Any, **options: Any) -> PurgedFiles:
        refuse()
        if len(refused) == 1:
            raise KeyboardInterrupt
        return delete(location, *arguments, **options)

    monkeypatch.setattr(partition_purging, "delete_own_files", refuse_and_delete)
    with pytest.raises(KeyboardInterrupt):
        catalog.purge_partitions(TABLE, "origin = 'a'")
    refuse()
    assert catalog.vacuum(grace=NOW).purged == (f"{TABLE} (partitions)",)
    assert len(refused) == 3
    assert not file.exists()
    come(catalog, table)
    with catalog.storage.read() as connection:
        assert connection.scalars(select(PurgedFolderRow.location)).all() == []


def test_a_purge_deletes_where_the_partition_is_when_it_is_dropped(
    catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(catalog, (("a", "1"), None))
    left, moved = (put(catalog, f"{table.location}/{name}") for name in ("origin=a/month=1", "v2"))
    look, looks = partition_purging.refuse_reached_folders, list[int]()

    def move_after_the_look(*arguments: Any) -> None:
        look(*arguments)
        looks.append(len(looks))
        if looks == [0]:
            catalog.alter_partition(TABLE, ("a", "1"), location=f"{table.location}/v2")

    monkeypatch.setattr(partition_purging, "refuse_reached_folders", move_after_the_look)
    assert catalog.purge_partitions(TABLE).purged == 1
    assert left.exists()
    assert not moved.exists()


def test_a_purge_that_another_process_has_finished_deletes_nothing_of_the_next_partition(
    catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(catalog, (("a", "1"), None))
    put(catalog, f"{table.location}/origin=a/month=1")
    delete, files = partition_purging.delete_own_files, list[Path]()

    def delete_late(location: str, *arguments: Any, **options: Any) -> PurgedFiles:
        if not files:
            files.append(Path())
            assert catalog.vacuum(grace=NOW).purged == (f"{TABLE} (partitions)",)
            add(catalog, (("a", "1"), None))
            files.append(put(catalog, f"{table.location}/origin=a/month=1"))
        return delete(location, *arguments, **options)

    monkeypatch.setattr(partition_purging, "delete_own_files", delete_late)
    catalog.purge_partitions(TABLE)
    assert files[1].exists()


def test_a_purge_deletes_the_folders_of_a_table_that_was_moved_or_dropped(catalog: Catalog, table: Table) -> None:
    add(catalog, (("a", "1"), None), (("b", "1"), None))
    files = [put(catalog, f"{table.location}/origin={origin}/month=1") for origin in "ab"]
    interrupt_purge(catalog)
    catalog.drop_table(TABLE)
    catalog.create_table("demo.next", columns=[("v", "int")], location=f"{table.location}/origin=b")
    assert catalog.vacuum(grace=NOW).problems == ()
    assert [file.exists() for file in files] == [False, True]


def test_a_purge_counts_the_partitions_that_share_a_folder(catalog: Catalog, table: Table) -> None:
    shared = f"{table.location}/shared"
    add(catalog, (("a", "1"), shared), (("b", "1"), shared))
    file = put(catalog, shared)
    size = file.stat().st_size
    purge = catalog.purge_partitions(TABLE)
    assert str(purge) == f"Dropped 2 partition(s) and deleted the files of 2 (1 file(s), {size} bytes)."
    assert not file.exists()


def test_a_purge_of_a_table_that_is_renamed_meanwhile_excludes_those_who_add_partitions_to_it(
    catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(catalog, (("a", "1"), None))
    file = put(catalog, f"{table.location}/origin=a/month=1")
    interrupt_purge(catalog)
    rename = partial(catalog.alter_table, TABLE, rename_to="renamed")
    monkeypatch.setattr(partition_purging, "refuse_reached_folders", lambda *_: rename())
    look, outcomes = partition_purging._in_use, list[type]()

    def come() -> None:
        try:
            catalog.add_partitions("demo.renamed", [NewPartition(("a", "1"))])
        except CatalogError as error:
            outcomes.append(type(error))

    thread = Thread(target=come)

    def look_while_one_comes(*arguments: Any) -> set[str]:
        in_use = look(*arguments)
        thread.start()
        # It waits for the commit; without the lock it would be done by then.
        thread.join(1)
        return in_use

    monkeypatch.setattr(partition_purging, "_in_use", look_while_one_comes)
    delete = partition_purging.delete_own_files

    def delete_afterwards(*arguments: Any, **options: Any) -> PurgedFiles:
        thread.join()
        return delete(*arguments, **options)

    monkeypatch.setattr(partition_purging, "delete_own_files", delete_afterwards)
    assert catalog.vacuum(grace=NOW).problems == ()
    assert outcomes == [FolderBeingPurgedError]
    assert not file.exists()
