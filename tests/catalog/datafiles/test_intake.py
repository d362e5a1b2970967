"""Commits of other engines to tables with a partition scheme: PyIceberg writes to the same database."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo, GreaterThanOrEqual
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.update import SetLocationUpdate
from pyiceberg.types import IntegerType

from catalog import Catalog, Column
from catalog.datafiles.publishing import published_snapshots
from catalog.errors import PlanConflictError, UnplacedFilesError, UnsupportedCommitError
from catalog.operations.failpoints import Point
from catalog.rebalancing.changes import DropPartitions, MergePartitions, PartitionChange, PlaceFiles, SplitPartition
from catalog.schemes.model import UNPLACED
from catalog.statements.session import Session
from catalog.storage.upgrade import downgrade, upgrade
from catalog.tables.schemes import scheme_from_properties
from tests.support import killed_changes
from tests.support.effort import effort
from tests.support.iceberg_tables import sql_catalog
from tests.support.killed_changes import contents, load, read_contents
from tests.support.published import check_published, published
from tests.support.scheme_changes import change

TABLE = "demo.t"
pytestmark = pytest.mark.smoke


@pytest.fixture
def ranges(catalog: Catalog) -> str:
    """A table of the ranges up to 10, 20 and 30, with a file in each and in the default partition."""
    scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "10, 20, 30"})
    catalog.create_table(TABLE, columns=[("c", "int")], scheme=scheme, properties={"owner": "ann"})
    load(catalog, "first", TABLE, range(40))
    return TABLE


def engine(url: str, commit: Callable[[IcebergTable], Any]) -> None:
    """Commit to the table by PyIceberg."""
    with sql_catalog(url) as iceberg:
        commit(iceberg.load_table(TABLE))


def append(url: str, values: list[int | None]) -> None:
    engine(url, lambda table: table.append(pa.table({"c": pa.array(values, pa.int32())})))


def rows(url: str, **scan: Any) -> list[Any]:
    with sql_catalog(url) as iceberg:
        found: list[Any] = iceberg.load_table(TABLE).scan(**scan).to_arrow()["c"].to_pylist()
    return sorted(found)


def test_an_append_within_one_partition_is_adopted(catalog: Catalog, catalog_url: str, ranges: str) -> None:
    append(catalog_url, [12, 18])
    assert contents(catalog, TABLE)[2] == sorted([*range(10, 20), 12, 18])


def test_an_append_over_several_partitions_is_read_at_once(catalog: Catalog, catalog_url: str, ranges: str) -> None:
    append(catalog_url, [5, 25])
    assert contents(catalog, TABLE)[UNPLACED] == [5, 25]
    scan = catalog.scan_files(TABLE, "c = 25")
    assert sorted(file.partition_id for file in scan.files) == [UNPLACED, 3]
    assert "unplaced files:  1 of these" in str(scan)
    # Pruned by the bounds of the file.
    assert [file.partition_id for file in catalog.scan_files(TABLE, "c = 31").files] == [0]
    assert [file.partition_id for file in catalog.scan_files(TABLE, "c = 31 or c = 6").files] == [UNPLACED, 0, 1]
    last = catalog.scheme_partitions(TABLE)[-1]
    assert (last.id, last.text, last.row_count, last.file_count) == (UNPLACED, "-1, unplaced", 2, 1)


def test_our_next_commit_keeps_an_append(catalog: Catalog, catalog_url: str, ranges: str) -> None:
    append(catalog_url, [5, 25])
    load(catalog, "second", TABLE, [3, 33])
    check_published(catalog, TABLE)
    assert rows(catalog_url) == sorted([5, 25, 3, 33, *range(40)])
    append(catalog_url, [7])
    change(catalog, "merge", TABLE, MergePartitions((1, 2)))
    check_published(catalog, TABLE)
    assert rows(catalog_url) == sorted([5, 25, 3, 33, 7, *range(40)])
    assert contents(catalog, TABLE)[UNPLACED] == [5, 25]


def test_files_of_engines_are_rewritten_with_their_partition(catalog: Catalog, catalog_url: str, ranges: str) -> None:
    append(catalog_url, [12, 18])
    change(catalog, "split", TABLE, SplitPartition(2, ("15", "20")))
    assert {key: value for key, value in contents(catalog, TABLE).items() if key > 3} == {
        4: sorted([*range(10, 15), 12]),
        5: sorted([*range(15, 20), 18]),
    }
    assert rows(catalog_url) == sorted([12, 18, *range(40)])


@pytest.mark.parametrize("late", [[12, 18], [12], [5, 25]])
def test_files_that_come_after_a_plan_are_kept(
    catalog: Catalog, catalog_url: str, ranges: str, late: list[int]
) -> None:
    change(catalog, "split", TABLE, SplitPartition(2, ("15", "20")), before_commit=lambda: append(catalog_url, late))
    partition_ids = {4} if late == [12] else {UNPLACED}
    found = contents(catalog, TABLE)
    assert [value for partition_id in partition_ids for value in found[partition_id] if value in late][-len(late) :]
    assert rows(catalog_url) == sorted([*late, *range(40)])
    assert sorted(value for values in found.values() for value in values) == sorted([*late, *range(40)])
    for value in late:
        files = catalog.scan_files(TABLE, f"c = {value}").files
        assert partition_ids <= {file.partition_id for file in files}


def test_rows_that_come_after_the_plan_of_a_deletion_are_kept(catalog: Catalog, catalog_url: str, ranges: str) -> None:
    drop = DropPartitions((2,), with_data=True)
    change(catalog, "drop", TABLE, drop, before_commit=lambda: append(catalog_url, [13]))
    assert contents(catalog, TABLE)[3] == [13, *range(20, 30)]
    assert rows(catalog_url) == [*range(10), 13, *range(20, 40)]


def test_whole_files_that_engines_delete_are_gone(catalog: Catalog, catalog_url: str, ranges: str) -> None:
    engine(catalog_url, lambda table: table.delete(GreaterThanOrEqual("c", 30)))
    assert contents(catalog, TABLE) == {1: [*range(10)], 2: [*range(10, 20)], 3: [*range(20, 30)]}
    load(catalog, "second", TABLE, [3])
    check_published(catalog, TABLE)
    assert rows(catalog_url) == sorted([3, *range(30)])


def test_files_that_engines_rewrite_are_exchanged(catalog: Catalog, catalog_url: str, ranges: str) -> None:
    engine(catalog_url, lambda table: table.delete(EqualTo("c", 15)))
    assert contents(catalog, TABLE)[2] == [*range(10, 15), *range(16, 20)]
    overwritten = pa.table({"c": pa.array([1, 11], pa.int32())})
    engine(catalog_url, lambda table: table.overwrite(overwritten))
    assert contents(catalog, TABLE) == {UNPLACED: [1, 11]}
    change(catalog, "merge", TABLE, MergePartitions((1, 2)))
    check_published(catalog, TABLE)
    assert rows(catalog_url) == [1, 11]


def test_several_commits_are_taken_in_together(catalog: Catalog, catalog_url: str, ranges: str) -> None:
    append(catalog_url, [5, 25])
    append(catalog_url, [None, 99])
    engine(catalog_url, lambda table: table.delete(EqualTo("c", 5)))
    append(catalog_url, [1])
    found = contents(catalog, TABLE)
    assert found[1] == sorted([0, 1, 1, 2, 3, 4, 6, 7, 8, 9])
    assert found[UNPLACED] == [25] if UNPLACED in found else 25 in found[3]
    assert sorted(value for values in found.values() for value in values if value is not None) == sorted(
        [25, 99, 1, *(value for value in range(40) if value != 5)]
    )


def test_properties_follow_those_that_engines_set(catalog: Catalog, catalog_url: str, ranges: str) -> None:
    def commit(table: IcebergTable) -> None:
        with table.transaction() as transaction:
            transaction.set_properties({"owner": "ben", "color": "red", "comment": "counts", "calve.scheme": "none"})

    engine(catalog_url, commit)
    load(catalog, "second", TABLE, [3])
    check_published(catalog, TABLE)
    table = catalog.get_table(TABLE)
    assert (table.properties, table.description) == ({"owner": "ben", "color": "red"}, "counts")
    with sql_catalog(catalog_url) as iceberg:
        assert iceberg.load_table(TABLE).properties["color"] == "red"


def test_a_location_that_an_engine_sets_is_not_followed(
    catalog: Catalog, catalog_url: str, ranges: str, tmp_path: Path
) -> None:
    def commit(table: IcebergTable) -> None:
        with table.transaction() as transaction:
            transaction._apply((SetLocationUpdate(location=str(tmp_path / "elsewhere")),))

    before = catalog.get_table(TABLE).location
    engine(catalog_url, commit)
    load(catalog, "second", TABLE, [3])
    check_published(catalog, TABLE)
    assert published(catalog, TABLE).location() == catalog.get_table(TABLE).location == before
    assert rows(catalog_url) == sorted([3, *range(40)])


def test_a_read_takes_in_only_once(catalog: Catalog, catalog_url: str, ranges: str) -> None:
    append(catalog_url, [5, 25])
    [before] = catalog.list_tables()
    assert before.live_location != before.published_location
    catalog.scan_files(TABLE)
    [after] = catalog.list_tables()
    assert after.live_location == after.published_location == before.live_location
    catalog.scan_files(TABLE)
    assert catalog.get_table(TABLE).version == after.version


def test_a_changed_partition_spec_is_refused_by_name(catalog: Catalog, catalog_url: str, ranges: str) -> None:
    def commit(table: IcebergTable) -> None:
        with table.update_spec() as update:
            update.add_identity("c")

    engine(catalog_url, commit)
    with pytest.raises(UnsupportedCommitError, match=r"demo\.t .*partition spec.*can still be read"):
        load(catalog, "second", TABLE, [3])
    catalog.operations.fail("second", "TEST", "the partition spec was changed")
    scan = catalog.scan_files(TABLE)
    assert scan.engine_location == catalog.get_table(TABLE).live_location
    assert rows(catalog_url) == [*range(40)]


def check_warned_once(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    """Check that a statement that reads the table warns once, and that one that fails does not repeat its error."""
    caplog.clear()

    def warnings() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]

    with Session(catalog) as session:
        session.execute(f"DESCRIBE {TABLE}")
        [message] = warnings()
        assert "cannot follow" in message
        with pytest.raises(UnsupportedCommitError):
            session.execute(f"SHOW PARTITIONS {TABLE}")
        with pytest.raises(UnsupportedCommitError):
            session.execute(f"ALTER TABLE {TABLE} ADD PARTITION ('50')")
    assert len(warnings()) == 1


def test_a_partition_spec_that_was_undone_is_followed_once_its_files_are_rewritten(
    catalog: Catalog, catalog_url: str, ranges: str, caplog: pytest.LogCaptureFixture
) -> None:
    def add_field(table: IcebergTable) -> None:
        with table.update_spec() as update:
            update.add_identity("c")

    def remove_field(table: IcebergTable) -> None:
        with table.update_spec() as update:
            update.remove_field("c")

    def rewrite(table: IcebergTable) -> None:
        table.overwrite(table.scan().to_arrow())

    engine(catalog_url, add_field)
    append(catalog_url, [15])
    check_warned_once(catalog, caplog)
    with pytest.raises(UnsupportedCommitError, match=r"another partition spec.*Undo the change.*Rewrite the files"):
        load(catalog, "second", TABLE, [3])
    engine(catalog_url, remove_field)
    with pytest.raises(
        UnsupportedCommitError, match=r"files of another partition spec.*: identity\(1\)\)\. .*'rewrite-all'"
    ):
        load(catalog, "second", TABLE, [3])
    catalog.operations.fail("second", "TEST", "the partition spec was changed")
    engine(catalog_url, rewrite)
    load(catalog, "third", TABLE, [3])
    check_published(catalog, TABLE)
    assert rows(catalog_url) == sorted([3, 15, *range(40)])


def test_a_file_outside_the_folder_is_refused_by_name(
    catalog: Catalog, catalog_url: str, ranges: str, tmp_path: Path
) -> None:
    import pyarrow.parquet as pq

    before = catalog.get_table(TABLE)
    path = tmp_path / "other" / "part.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"c": pa.array([4], pa.int32())}), path)
    engine(catalog_url, lambda table: table.add_files([str(path)]))
    with pytest.raises(UnsupportedCommitError, match=re.escape(f"{path} is outside the table's folder")):
        catalog.rebalancing.plan(TABLE, MergePartitions((1, 2)))
    assert catalog.scan_files(TABLE).engine_location is not None
    # A roll-back by Calve makes the table usable again, without an engine.
    catalog.roll_backs.to_snapshot(TABLE, published_snapshots(before).current_id)
    load(catalog, "second", TABLE, [3])
    assert contents(catalog, TABLE)[1] == sorted([3, *range(10)])
    assert rows(catalog_url) == sorted([3, *range(40)])


def test_place_rewrites_the_files_with_rows_of_several_partitions(
    catalog: Catalog, catalog_url: str, ranges: str
) -> None:
    append(catalog_url, [5, 25])
    append(catalog_url, [6, 7])
    plan = catalog.rebalancing.plan(TABLE, PlaceFiles())
    shown = str(plan).splitlines()
    assert shown[0] == "CALL calve.system.place('demo.t')"
    assert shown[1] == "  partition -1 (unplaced): 2 rows in 1 files → 1, 2, 3"
    change(catalog, "place", TABLE, PlaceFiles())
    found = contents(catalog, TABLE)
    assert UNPLACED not in found
    assert found[1] == sorted([5, 6, 7, *range(10)])
    assert rows(catalog_url) == sorted([5, 25, 6, 7, *range(40)])
    # Nothing is left to do.
    assert catalog.rebalancing.change_catalog("again", TABLE, PlaceFiles()) is not None


def test_a_change_that_rewrites_files_places_others_too(catalog: Catalog, catalog_url: str, ranges: str) -> None:
    append(catalog_url, [5, 25])
    change(catalog, "split", TABLE, SplitPartition(2, ("15", "20")))
    found = contents(catalog, TABLE)
    assert UNPLACED not in found
    assert (found[1], found[3]) == (sorted([5, *range(10)]), sorted([25, *range(20, 30)]))
    assert rows(catalog_url) == sorted([5, 25, *range(40)])


def test_rows_are_deleted_only_from_placed_files(catalog: Catalog, catalog_url: str, ranges: str) -> None:
    append(catalog_url, [5, 15])
    with pytest.raises(UnplacedFilesError, match=r"partition 2,.*CALL calve\.system\.place\('demo\.t'\)"):
        catalog.rebalancing.plan(TABLE, DropPartitions((2,), with_data=True))
    change(catalog, "other", TABLE, DropPartitions((3,), with_data=True))
    change(catalog, "place", TABLE, PlaceFiles())
    change(catalog, "drop", TABLE, DropPartitions((2,), with_data=True))
    assert rows(catalog_url) == sorted([5, *range(10), *range(30, 40)])


def test_files_that_were_written_without_a_column_of_an_engine_replace_no_others(
    catalog: Catalog, catalog_url: str, ranges: str
) -> None:
    def add_a_column() -> None:
        engine(catalog_url, lambda table: table.update_schema().add_column("d", IntegerType()).commit())

    with pytest.raises(PlanConflictError, match="the column d was added while rows were written without it"):
        change(catalog, "split", TABLE, SplitPartition(2, ("15", "20")), before_commit=add_a_column)
    assert rows(catalog_url) == [*range(40)]


def test_an_approved_plan_stays_the_same_when_engines_append(catalog: Catalog, catalog_url: str, ranges: str) -> None:
    append(catalog_url, [5, 25])
    plan = catalog.rebalancing.plan(TABLE, SplitPartition(2, ("15", "20")))
    operation = catalog.rebalancing.begin("split", TABLE, plan.change, fingerprint=plan.fingerprint)
    append(catalog_url, [12, 18])
    append(catalog_url, [6, 26])
    assert catalog.rebalancing.plan_of(operation).fingerprint == plan.fingerprint
    engine(catalog_url, lambda table: table.delete(EqualTo("c", 15)))
    with pytest.raises(PlanConflictError, match="changed since the plan"):
        catalog.rebalancing.plan_of(operation)


def test_a_roll_back_by_an_engine_brings_back_files_and_partitions(
    catalog: Catalog, catalog_url: str, ranges: str
) -> None:
    change(catalog, "split", TABLE, SplitPartition(2, ("15", "20")))
    change(catalog, "drop", TABLE, DropPartitions((1,), with_data=True))
    ids: list[int] = []

    def roll_back(table: IcebergTable) -> None:
        ids.extend(snapshot.snapshot_id for snapshot in table.snapshots())
        table.manage_snapshots().rollback_to_snapshot(ids[0]).commit()
        table.append(pa.table({"c": pa.array([11, 12], pa.int32())}))

    engine(catalog_url, roll_back)
    # The property with the scheme follows with the next commit of Calve.
    assert read_contents(catalog, TABLE) == {
        0: [*range(30, 40)],
        1: [*range(10)],
        2: sorted([11, 12, *range(10, 20)]),
        3: [*range(20, 30)],
    }
    change(catalog, "again", TABLE, SplitPartition(2, ("15", "20")))
    assert set(contents(catalog, TABLE)) == {0, 1, 6, 7, 3}
    assert rows(catalog_url) == sorted([11, 12, *range(40)])
    # Back to a snapshot that an engine has committed.
    engine(catalog_url, lambda table: table.manage_snapshots().rollback_to_snapshot(ids[0]).commit())
    assert read_contents(catalog, TABLE)[2] == [*range(10, 20)]
    load(catalog, "second", TABLE, [3])
    assert contents(catalog, TABLE)[1] == sorted([3, *range(10)])


def test_rows_are_back_when_an_engine_sets_the_branch_main_again(
    catalog: Catalog, catalog_url: str, ranges: str
) -> None:
    """Engines that replace a table remove the branch first."""
    before, ids = read_contents(catalog, TABLE), list[int]()

    def remove(table: IcebergTable) -> None:
        ids.extend(snapshot.snapshot_id for snapshot in table.snapshots())
        table.manage_snapshots().remove_branch("main").commit()

    engine(catalog_url, remove)
    assert not any(read_contents(catalog, TABLE).values())
    engine(catalog_url, lambda table: table.manage_snapshots().create_branch(ids[-1], "main").commit())
    assert read_contents(catalog, TABLE) == before
    append(catalog_url, [5])
    assert read_contents(catalog, TABLE)[1] == sorted([5, *before[1]])
    assert rows(catalog_url) == sorted([5, *range(40)])


@pytest.mark.first_case
@pytest.mark.parametrize("point", [Point.CHANGED, Point.COMMITTED])
def test_a_killed_intake_is_repeated(catalog: Catalog, catalog_url: str, ranges: str, point: Point) -> None:
    append(catalog_url, [5, 25])
    engine(catalog_url, lambda table: table.delete(EqualTo("c", 15)))
    process = get_context("spawn").Process(target=killed_changes.take_in, args=(catalog_url, TABLE, point))
    process.start()
    process.join()
    assert process.exitcode == -SIGKILL
    [table] = catalog.list_tables()
    assert (table.live_location == table.published_location) is (point is Point.COMMITTED)
    expected = {
        UNPLACED: [5, 25],
        0: [*range(30, 40)],
        1: [*range(10)],
        2: [*range(10, 15), *range(16, 20)],
        3: [*range(20, 30)],
    }
    assert contents(catalog, TABLE) == expected
    load(catalog, "second", TABLE, [3])
    assert rows(catalog_url) == sorted([5, 25, 3, *(value for value in range(40) if value != 15)])


def _turn(catalog: Catalog, number: int) -> PartitionChange:
    """Return the next of a sequence of changes: the ranges up to 20 are merged, split and so on, and files placed."""
    scheme = catalog.get_table(TABLE).scheme
    assert scheme is not None
    first, second, *_ = scheme.ids[1:]
    match number % 3:
        case 0:
            return PlaceFiles()
        case _ if scheme.partition_of(5) == scheme.partition_of(15):
            return SplitPartition(first, ("10", "20"))
        case _:
            return MergePartitions((first, second))


@pytest.mark.long
@pytest.mark.first_case
def test_engines_append_while_calve_loads_and_changes(catalog: Catalog, catalog_url: str, ranges: str) -> None:
    appended = [[[100 + number, number] for number in range(start, start + effort(5, 20))] for start in (0, 20)]
    context = get_context("spawn")
    processes = [
        context.Process(target=killed_changes.append_by_engine, args=(catalog_url, TABLE, values))
        for values in appended
    ]
    for process in processes:
        process.start()
    loaded: list[int] = []
    for number in range(1, effort(6, 20)):
        load(catalog, f"load-{number}", TABLE, [number % 40, 200 + number])
        loaded += [number % 40, 200 + number]
        try:
            change(catalog, f"change-{number}", TABLE, _turn(catalog, number))
        except PlanConflictError:
            catalog.operations.fail(f"change-{number}", "TEST", "an engine was first")
    for process in processes:
        process.join()
        assert process.exitcode == 0
    expected = sorted([*range(40), *loaded, *(value for values in appended for pair in values for value in pair)])
    assert rows(catalog_url) == expected
    change(catalog, "place", TABLE, PlaceFiles())
    found = contents(catalog, TABLE)
    assert UNPLACED not in found
    assert sorted(value for values in found.values() for value in values) == expected
    scheme = catalog.get_table(TABLE).scheme
    assert scheme is not None
    for partition_id, values in found.items():
        assert {scheme.partition_of(value) for value in values} == {partition_id}


def test_a_purge_deletes_the_files_of_engines_too(catalog: Catalog, catalog_url: str, ranges: str) -> None:
    append(catalog_url, [5, 25])
    location = Path(catalog.get_table(TABLE).location)
    assert list((location / "data").iterdir())
    assert not catalog.drop_table(TABLE, purge=True).count
    assert not location.exists()


def test_the_downgrade_waits_until_files_are_placed(catalog: Catalog, catalog_url: str, ranges: str) -> None:
    append(catalog_url, [5, 25])
    assert UNPLACED in contents(catalog, TABLE)
    with pytest.raises(RuntimeError, match="unplaced files"):
        downgrade(catalog.storage, "0023")
    change(catalog, "place", TABLE, PlaceFiles())
    downgrade(catalog.storage, "0023")
    with pytest.raises(Exception, match="other engines can only read it"):
        append(catalog_url, [1])
    upgrade(catalog.storage)
    append(catalog_url, [1])
    assert rows(catalog_url) == sorted([1, 5, 25, *range(40)])
