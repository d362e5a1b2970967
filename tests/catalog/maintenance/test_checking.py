"""The report on the catalog names each kind of damage, changes nothing, and is empty for a sound catalog."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import delete, func, insert, select, update

from catalog import Catalog, IndexDefinition, NewPartition
from catalog.cli.main import main
from catalog.errors import InvalidRequestError, TableNotFoundError
from catalog.loading.late_tables import usual_gap_ms
from catalog.maintenance.findings import CatalogReport, Finding, FindingKind
from catalog.operations.records import LEASE_MS, OperationKind
from catalog.settings.learning_rules import LearningRule
from catalog.settings.own_rules import freshness_rules
from catalog.storage.schema import IndexItemRow, OperationRow, PartitionRow, QualityCheckRow, TableRow
from tests.support.iceberg_tables import sql_catalog
from tests.support.tables_to_damage import scheme
from tests.support.written_files import Load, hashed_table

TABLE = "demo.t"
DAYS = range(1, 7)


@pytest.fixture
def root(catalog: Catalog) -> Path:
    """The folder of a table with one file of 4 bytes in each of six partitions, and an ACTIVE index."""
    indexes = [IndexDefinition("by_day", ("day",))]
    table = catalog.create_table(TABLE, columns=[("v", "int")], partition_keys=[("day", "int")], indexes=indexes)
    root = Path(table.location)
    for day in DAYS:
        (root / f"day={day}").mkdir(parents=True)
        (root / f"day={day}" / "part-0.parquet").write_text("PAR1")
    counts = {"file_count": 1, "row_count": 10, "size_bytes": 4}
    catalog.add_partitions(TABLE, [NewPartition((str(day),), **counts) for day in DAYS])
    return root


def found(report: CatalogReport) -> dict[FindingKind, Finding]:
    kinds = {finding.kind: finding for finding in report.findings}
    assert len(kinds) == len(report.findings), report
    return kinds


@pytest.mark.usefixtures("root")
def test_nothing_is_found_in_a_sound_catalog(catalog: Catalog) -> None:
    scheme(catalog)
    report = catalog.maintenance.check("demo.t")
    assert (report.tables, report.findings, report.has_damage) == (1, (), False)
    assert str(report) == "1 table(s) checked: nothing was found."
    assert catalog.maintenance.check().tables == 2


def test_differences_between_folders_and_partitions_are_found(catalog: Catalog, root: Path) -> None:
    (root / "day=77").mkdir()
    shutil.rmtree(root / "day=2")
    shutil.rmtree(root / "day=3")
    large = found(catalog.maintenance.check(most_partitions=0))
    assert large[FindingKind.STALE_COUNTS].where[0] == "day=2 has 0 file(s), registered are 1"
    before = [(partition.id, partition.values) for partition in catalog.get_partitions(TABLE)]
    kinds = found(catalog.maintenance.check())
    folder, lost = kinds[FindingKind.FOLDER_WITHOUT_PARTITION], kinds[FindingKind.PARTITION_WITHOUT_FOLDER]
    assert (folder.count, folder.where) == (1, ("day=77",))
    assert (lost.count, sorted(lost.where)) == (2, [f"{root}/day=2", f"{root}/day=3"])
    assert "MSCK REPAIR TABLE demo.t" in lost.remedy
    assert [(partition.id, partition.values) for partition in catalog.get_partitions(TABLE)] == before
    assert catalog.maintenance.check().has_damage


def test_stale_and_unknown_counts_are_found(catalog: Catalog, root: Path) -> None:
    (root / "day=4" / "part-1.parquet").write_text("theirs")
    (root / "day=5" / "part-0.parquet").write_text("longer")
    catalog.add_partitions(TABLE, [NewPartition(("9",))])
    (root / "day=9").mkdir()
    kinds = found(catalog.maintenance.check(TABLE))
    assert kinds[FindingKind.STALE_COUNTS].where == (
        "day=4 has 2 file(s), registered are 1",
        "day=5 has 6 bytes, registered are 4",
    )
    assert kinds[FindingKind.UNKNOWN_COUNTS].count == 1
    assert set(kinds) == {FindingKind.STALE_COUNTS, FindingKind.UNKNOWN_COUNTS}


@pytest.mark.usefixtures("root")
def test_sample_is_bounded_and_another_one_each_time(catalog: Catalog) -> None:
    with catalog.storage.write() as connection:
        connection.execute(update(PartitionRow).values(file_count=7))
    reports = [
        found(catalog.maintenance.check(TABLE, most_partitions=0, sample=2))[FindingKind.STALE_COUNTS]
        for _ in range(20)
    ]
    assert {report.count for report in reports} == {2}
    assert len({report.where for report in reports}) > 1
    assert "In a sample of 2 partition(s)" in reports[0].remedy


def test_sample_does_not_depend_on_the_distance_of_ids(catalog: Catalog, root: Path) -> None:
    others = [f"demo.other{number}" for number in range(3)]
    for name in others:
        catalog.create_table(name, columns=[("v", "int")], partition_keys=[("day", "int")])
    for day in range(7, 31):
        (root / f"day={day}").mkdir()
        for name in (TABLE, *others):
            catalog.add_partitions(name, [NewPartition((str(day),), file_count=1)])
    with catalog.storage.write() as connection:
        connection.execute(update(PartitionRow).values(file_count=7))
    for _ in range(10):
        assert found(catalog.maintenance.check(TABLE, most_partitions=0, sample=6))[FindingKind.STALE_COUNTS].count == 6


@pytest.mark.usefixtures("root")
def test_damaged_index_is_found_and_large_tables_are_left_to_others(catalog: Catalog) -> None:
    with catalog.storage.write() as connection:
        first = connection.scalar(select(func.min(IndexItemRow.partition_id)))
        connection.execute(delete(IndexItemRow).where(IndexItemRow.partition_id == first))
    differs = found(catalog.maintenance.check())[FindingKind.INDEX_DIFFERS]
    assert differs.count == 1
    assert differs.where[0].startswith("by_day MISSING: ")
    assert "calve verify demo.t by_day --repair" in differs.remedy
    assert catalog.maintenance.check(most_partitions=5).findings == ()


@pytest.mark.usefixtures("root")
def test_index_that_nothing_builds_is_found(catalog: Catalog) -> None:
    catalog.delete_partition_index(TABLE, "by_day")
    catalog.create_partition_index(TABLE, "again", ["day"])
    assert found(catalog.maintenance.check())[FindingKind.INDEX_NOT_BUILT].where == ("again",)


def test_lost_and_orphan_files_of_a_table_with_a_scheme_are_found(catalog: Catalog) -> None:
    table = hashed_table(catalog)
    Load(catalog, table, "one").run()
    files = sorted(file for file in Path(table.location).rglob("*.parquet"))
    files[0].unlink()
    lost = found(catalog.maintenance.check(table.full_name))[FindingKind.MISSING_FILES]
    assert lost.where == (str(files[0].relative_to(table.location)),)


def test_a_commit_that_calve_cannot_follow_is_found(catalog: Catalog, catalog_url: str) -> None:
    catalog.create_database("demo", if_not_exists=True)
    catalog.create_table("demo.odd", columns=[("v", "int")], partition_keys=[("k", "int")], format="iceberg")
    before = catalog.get_table("demo.odd").published_location
    with sql_catalog(catalog_url) as iceberg, iceberg.load_table("demo.odd").update_schema() as update:
        update.rename_column("k", "kk")
    report = catalog.maintenance.check()
    finding = found(report)[FindingKind.COMMIT_NOT_FOLLOWED]
    assert (finding.table, finding.where) == ("demo.odd", ("its partition key k has changed",))
    assert "Undo the change by its engine" in finding.remedy
    assert report.has_damage
    assert catalog.get_table("demo.odd").published_location == before
    with sql_catalog(catalog_url) as iceberg, iceberg.load_table("demo.odd").update_schema() as update:
        update.rename_column("kk", "k")
    assert FindingKind.COMMIT_NOT_FOLLOWED not in found(catalog.maintenance.check())


def test_abandoned_operation_is_found(catalog: Catalog) -> None:
    catalog.operations.begin("dead", OperationKind.VERIFY_INDEX, "demo.flights")
    catalog.operations.heartbeat("dead", "load", catalog.operations.start_job("dead", "load"))
    with catalog.storage.write() as connection:
        connection.execute(update(OperationRow).values(heartbeat_at_ms=OperationRow.heartbeat_at_ms - LEASE_MS))
    abandoned = found(catalog.maintenance.check())[FindingKind.ABANDONED_OPERATION]
    assert (abandoned.table, abandoned.where) == (None, ("dead of demo.flights",))


def test_table_that_receives_nothing_for_longer_than_usual_is_found(
    catalog: Catalog, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tables.yaml"
    monkeypatch.setenv("CALVE_TABLES", str(path))
    day_ms, table = 24 * 3600 * 1000, catalog.get_table(TABLE)
    with catalog.storage.write() as connection:
        for age in (*range(3, 12),):
            counts = dict.fromkeys(("checked", "passed"), 1) | dict.fromkeys(("failed", "released"), 0)
            values = {"operation_number": age, "operation_id": f"load {age}", "table_id": table.id, "failures": []}
            at_ms = catalog.storage.now_ms() - age * day_ms
            connection.execute(insert(QualityCheckRow).values(**values, **counts, checked_at_ms=at_ms))
    for learn, expected in (("[freshness]", 1), ("[nulls]", 0), ("on", 1), ("off", 0)):
        path.write_text(f"tables: {{{TABLE}: {{source: /x, keys: {{day: int}}, quality: {{learn: {learn}}}}}}}")
        findings = [found for found in catalog.maintenance.check(TABLE).findings if found.kind == "NO_NEW_PARTITIONS"]
        assert len(findings) == expected, learn
    path.write_text(
        f"tables: {{{TABLE}: {{source: /x, keys: {{day: int}}, quality: {{learn: on}}}}, x.y: {{source: /x}}}}"
    )
    (late,) = catalog.quality.late_tables(freshness_rules() | {"demo.none": LearningRule()})
    assert (late.table, round(late.silent_seconds / 86_400, 2)) == (TABLE, 3.0)
    assert str(late) == "nothing arrived for 3.0 days, usually 26.4 hours at most"


def test_table_whose_past_was_just_loaded_is_not_late(catalog: Catalog, root: Path) -> None:
    hour_ms, table = 3600 * 1000, catalog.get_table(TABLE)
    with catalog.storage.write() as connection:
        for number in range(20):
            counts = dict.fromkeys(("checked", "passed"), 1) | dict.fromkeys(("failed", "released"), 0)
            values = {"operation_number": number, "operation_id": f"load {number}", "table_id": table.id}
            at_ms = catalog.storage.now_ms() - 12 * hour_ms - number * 60_000
            row = values | counts | {"failures": [], "checked_at_ms": at_ms}
            connection.execute(insert(QualityCheckRow).values(**row))
    assert catalog.quality.late_tables({TABLE: LearningRule()}) == []


@pytest.mark.parametrize(
    ("gaps", "longest"),
    [
        ([24] * 6, None),
        ([24] * 7, 26.4),
        ([24, 24, 24, 24, 72] * 4, 74.4),
        ([24] * 29 + [500], 26.4),
        ([0.1] * 30, 1.1),
        # The newest first: a daily table after a backfill of its past, five loads each evening, and a nightly pause.
        ([24] + [0.03] * 29, 26.4),
        ([24, 0.1, 0.1, 0.1, 0.1] * 6, 26.4),
        ([1] * 8 + [14] + [1] * 8 + [14] + [1] * 8, 15.4),
    ],
)
def test_usual_time_between_loads_is_that_of_most(gaps: list[float], longest: float | None) -> None:
    times = [0]
    for gap in gaps:
        times.append(times[-1] - round(gap * 3_600_000))
    usual = usual_gap_ms(times, 4.0)
    assert (usual and round(usual / 3_600_000, 1)) == longest


def test_table_that_cannot_be_read_does_not_hide_the_others(catalog: Catalog, root: Path) -> None:
    catalog.create_table("demo.far", columns=[("v", "int")], partition_keys=[("day", "int")])
    catalog.add_partitions("demo.far", [NewPartition(("1",), file_count=1)])
    with catalog.storage.write() as connection:
        connection.execute(update(TableRow).where(TableRow.name == "far").values(location="nowhere://host/t"))
    (root / "day=77").mkdir()
    report = catalog.maintenance.check()
    unread = [finding for finding in report.findings if finding.kind is FindingKind.NOT_CHECKED]
    assert unread
    assert any(finding.table == "demo.far" and "nowhere" in finding.where[0] for finding in unread)
    assert [finding.table for finding in report.findings if finding.kind is FindingKind.FOLDER_WITHOUT_PARTITION] == [
        TABLE
    ]


def test_folders_of_a_running_operation_are_not_compared(catalog: Catalog, root: Path) -> None:
    (root / "day=77").mkdir()
    catalog.operations.begin("running", OperationKind.ADD_PARTITIONS, TABLE)
    kinds = found(catalog.maintenance.check(TABLE))
    assert set(kinds) == {FindingKind.NOT_CHECKED}
    assert "an operation is running" in kinds[FindingKind.NOT_CHECKED].where[0]


def test_files_of_a_running_operation_are_not_compared(catalog: Catalog, root: Path) -> None:
    (root / "day=1" / "arriving.parquet").write_text("new")
    assert FindingKind.STALE_COUNTS in found(catalog.maintenance.check(TABLE))
    catalog.operations.begin("running", OperationKind.APPEND_ROWS, TABLE)
    report = catalog.maintenance.check(TABLE)
    assert {finding.kind for finding in report.findings} == {FindingKind.NOT_CHECKED}
    assert any("whose files are not registered yet" in finding.where[0] for finding in report.findings)


def test_wrong_arguments_are_refused(catalog: Catalog) -> None:
    with pytest.raises(TableNotFoundError):
        catalog.maintenance.check("demo.none")
    with pytest.raises(InvalidRequestError, match="sample 0"):
        catalog.maintenance.check(sample=0)


def test_command_shows_findings_and_fails_for_damage(catalog: Catalog, root: Path, catalog_url: str) -> None:
    environment = {"CALVE_CATALOG_URL": catalog_url}
    sound = CliRunner().invoke(main, ["check"], env=environment)
    assert (sound.exit_code, sound.output) == (0, "1 table(s) checked: nothing was found.\n")
    (root / "day=77").mkdir()
    hint = CliRunner().invoke(main, ["check", TABLE], env=environment)
    assert hint.exit_code == 0
    headers, line = hint.output.splitlines()
    assert headers.split() == ["FINDING", "TABLE", "COUNT", "WHERE", "REMEDY"]
    assert line.split(maxsplit=4)[:4] == ["FOLDER_WITHOUT_PARTITION", TABLE, "1", "day=77"]
    assert line.split(maxsplit=4)[4].startswith("MSCK REPAIR TABLE demo.t ADD PARTITIONS")
    shutil.rmtree(root / "day=2")
    damaged = CliRunner().invoke(main, ["check", "--json"], env=environment)
    assert damaged.exit_code == 1
    assert json.loads(damaged.stdout)["has_damage"] is True
    assert "1 of 2 finding(s) make reads fail or wrong" in damaged.stderr
