"""Partitions that other processes drop, rename or exchange while a change replaces their rows; on each database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog import Catalog, LoadMode, NewPartition, Table
from catalog.errors import PlanConflictError
from catalog.loading.loading import Loading
from catalog.loading.publishing import Publication
from catalog.loading.replaced_folders import keep_files_read, list_files
from catalog.model import Partition
from tests.catalog.loading.test_loading import TABLE, Load
from tests.catalog.loading.test_loading import landing as landing
from tests.catalog.loading.test_loading import load as load
from tests.catalog.loading.test_loading import table as table
from tests.catalog.loading.test_publishing import cancel, reserved_count
from tests.catalog.loading.test_replacing import read, replacement, settle, version_count

DAY, OTHER_DAY, NEW = ("JFK", "1"), ("LGA", "1"), ("new", "1")
Act = Callable[[Catalog, Path], None]


def drop(catalog: Catalog, _elsewhere: Path) -> None:
    catalog.drop_partitions(TABLE, "origin = 'JFK'")


def purge(catalog: Catalog, _elsewhere: Path) -> None:
    catalog.purge_partitions(TABLE, "origin = 'JFK'")


def rename(catalog: Catalog, _elsewhere: Path) -> None:
    catalog.alter_partition(TABLE, DAY, rename_to=("JFK", "7"))


def exchange(catalog: Catalog, _elsewhere: Path) -> None:
    catalog.alter_partition(TABLE, DAY, rename_to=("JFK", "7"))
    catalog.alter_partition(TABLE, OTHER_DAY, rename_to=DAY)


def drop_and_add(catalog: Catalog, elsewhere: Path) -> None:
    catalog.drop_partitions(TABLE, "origin = 'JFK'")
    catalog.add_partitions(TABLE, [NewPartition(DAY, location=str(elsewhere))])


def move(catalog: Catalog, elsewhere: Path) -> None:
    catalog.alter_partition(TABLE, DAY, location=str(elsewhere))


def add_new(catalog: Catalog, elsewhere: Path) -> None:
    catalog.add_partitions(TABLE, [NewPartition(NEW, location=str(elsewhere))])


def before_publication(_monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    act()


def after_reservation(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    reserve = Publication.reserve

    def acting(publication: Publication) -> None:
        reserve(publication)
        act()

    monkeypatch.setattr(Publication, "reserve", acting)


def before_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    moved = Publication.move

    def acting(publication: Publication, extensions: Any) -> Iterator[NewPartition]:
        yield from moved(publication, extensions)
        act()

    monkeypatch.setattr(Publication, "move", acting)


MOMENTS = (before_publication, after_reservation, before_commit)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder with rows that nothing has read."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "other.parquet").write_text("other rows")
    return folder


@pytest.fixture
def merged(load: Load, catalog: Catalog, table: Table, landing: Path) -> Load:
    """A staged load that has read one of three partitions, has its rows, and those of a new one."""
    load.run({DAY: 10, OTHER_DAY: 20, ("a/b", None): 30})
    merged = replacement(catalog, table, landing, "merged", {DAY: 11, NEW: 1})
    merged.mode = LoadMode.MERGE
    keep_files_read(table, merged.staging, list_files(table, list(catalog.get_partitions(TABLE, "origin = 'JFK'"))))
    return merged


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("act", [drop, purge, rename, exchange, drop_and_add, move])
def test_a_partition_that_was_read_must_stay_until_the_commit(
    merged: Load,
    catalog: Catalog,
    elsewhere: Path,
    monkeypatch: pytest.MonkeyPatch,
    act: Act,
    moment: Callable[[pytest.MonkeyPatch, Callable[[], None]], None],
) -> None:
    expected = dict[Any, Any]()

    def acting() -> None:
        act(catalog, elsewhere)
        expected.update(read(catalog))

    moment(monkeypatch, acting)
    with pytest.raises(PlanConflictError, match="Run the statement or the load again"):
        merged.publish()
    assert read(catalog) == expected
    cancel(catalog, merged.name)
    settle(catalog)
    assert read(catalog) == expected
    assert (elsewhere / "other.parquet").exists()
    assert (version_count(catalog), reserved_count(catalog)) == (0, 0)


def test_a_partition_that_was_not_there_to_be_read_is_not_replaced(
    merged: Load, catalog: Catalog, elsewhere: Path
) -> None:
    add_new(catalog, elsewhere)
    with pytest.raises(PlanConflictError, match="partition origin=new/month=1 was added"):
        merged.publish()
    assert read(catalog)[NEW] == (None, ["other rows"])


def test_partitions_that_nothing_has_read_are_replaced_whichever_they_are(
    merged: Load, catalog: Catalog, table: Table, landing: Path, elsewhere: Path
) -> None:
    cancel(catalog, merged.name)
    replaced = replacement(catalog, table, landing, "replaced", {DAY: 11})
    drop_and_add(catalog, elsewhere)
    replaced.publish()
    assert read(catalog)[DAY] == (11, ["replaced 1"])


@pytest.mark.parametrize("act", [drop, rename, exchange])
def test_a_partition_that_is_removed_by_an_overwrite_must_have_its_values(
    merged: Load, catalog: Catalog, table: Table, landing: Path, elsewhere: Path, act: Act
) -> None:
    cancel(catalog, merged.name)
    [partition] = catalog.get_partitions(TABLE, "origin = 'JFK'")
    load = replacement(catalog, table, landing, "overwriting", {NEW: 1})
    act(catalog, elsewhere)
    before = read(catalog)
    with pytest.raises(PlanConflictError, match="partition origin=JFK/month=1 was added, dropped, renamed or moved"):
        catalog.loading.publish(
            load.name,
            "register",
            catalog.operations.start_job(load.name, "register"),
            load.staging,
            mode=LoadMode.REPLACE,
            removed={partition.id: partition.values},
        )
    assert read(catalog) == before


@pytest.mark.parametrize(("act", "count"), [(drop, 0), (rename, 0), (exchange, 1)])
def test_a_deletion_by_keys_looks_partitions_up_again_if_others_overtake_it(
    merged: Load, catalog: Catalog, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, act: Act, count: int
) -> None:
    cancel(catalog, merged.name)
    remove, expected = Loading.remove, dict[Any, Any]()

    def overtaken(loading: Loading, operation_id: str, step: str, table: Table, found: Iterable[Partition]) -> int:
        partitions = list(found)
        if not expected:
            act(catalog, elsewhere)
            expected.update(read(catalog))
        return remove(loading, operation_id, step, table, partitions)

    monkeypatch.setattr(Loading, "remove", overtaken)
    assert catalog.delete_partitions("deletion", TABLE, "origin = 'JFK' AND month = 1") == count
    expected.pop(DAY, None)
    assert read(catalog) == expected
    assert catalog.delete_partitions("deletion", TABLE, "origin = 'JFK' AND month = 1") == count


def test_a_deletion_that_is_overtaken_again_and_again_is_refused_with_nothing_changed(
    merged: Load, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancel(catalog, merged.name)
    remove, expected = Loading.remove, dict[Any, Any]()

    def overtaken(loading: Loading, operation_id: str, step: str, table: Table, found: Iterable[Partition]) -> int:
        [partition] = partitions = list(found)
        month = str(int(partition.values[1] or "") + 1)
        catalog.alter_partition(TABLE, partition.values, rename_to=("JFK", month))
        expected.update(read(catalog))
        return remove(loading, operation_id, step, table, partitions)

    monkeypatch.setattr(Loading, "remove", overtaken)
    with pytest.raises(PlanConflictError, match="nothing was changed"):
        catalog.delete_partitions("deletion", TABLE, "origin = 'JFK'")
    assert read(catalog)["JFK", "6"] == expected["JFK", "6"]
