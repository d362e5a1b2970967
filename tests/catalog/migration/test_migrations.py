"""Hive tables become Iceberg tables in place, and Hive tables again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from sqlalchemy import select, update

from catalog import Catalog, NewPartition, Table
from catalog.errors import (
    DataWrittenError,
    FencedError,
    FileProblem,
    IcebergTableError,
    LocationNotAllowedError,
    NotIcebergTableError,
    RefusedFile,
    UnusableFilesError,
    VerificationFailedError,
)
from catalog.files.filesystem import Folder
from catalog.iceberg.metadata import read_metadata
from catalog.migration.migrations import STAGE
from catalog.migration.requests import MigrationRequest, OnUnusable
from catalog.storage.schema import IndexItemRow, OperationRow, PartitionIndexRow, PartitionRow
from tests.support.iceberg_tables import (
    NAME,
    PARTITIONS,
    REQUEST,
    append,
    expected_rows,
    iceberg_rows,
    make_orders,
    migrate,
    pretend_verified,
    sql_catalog,
    stage,
    staged_files,
    write_rows,
)


def hive_state(catalog: Catalog, table: Table) -> dict[str, Any]:
    """Return all that the catalog keeps of a Hive table."""
    with catalog.storage.read() as connection:
        return {
            row.__tablename__: sorted(map(repr, connection.execute(select(row.__table__).where(condition))))
            for row, condition in (
                (PartitionRow, PartitionRow.table_id == table.id),
                (PartitionIndexRow, PartitionIndexRow.table_id == table.id),
                (IndexItemRow, IndexItemRow.partition_id > 0),
            )
        }


def data_files(table: Table) -> dict[str, bytes]:
    """Return the data files below a table's location."""
    files = Path(table.location).rglob("part-*.parquet")
    return {str(each): each.read_bytes() for each in files}


def metadata_files(location: str, folder: str = "metadata") -> list[str]:
    """Return all files of an Iceberg table's metadata."""
    return sorted(str(each) for each in Path(location, folder).rglob("*") if each.is_file())


def make_old(catalog: Catalog, location: str, operation_id: str, folder: str = "metadata") -> None:
    """Age an operation and its files beyond all grace periods."""
    import os

    for each in metadata_files(location, folder):
        os.utime(each, (1, 1))
    with catalog.storage.write() as connection:
        connection.execute(update(OperationRow).where(OperationRow.id == operation_id).values(heartbeat_at_ms=1_000))


# --- there ----------------------------------------------------------------------------------------------------------


def test_a_migrated_table_is_read_by_pyiceberg_from_the_same_database(catalog: Catalog, catalog_url: str) -> None:
    hive = make_orders(catalog)
    before, files = hive_state(catalog, hive), data_files(hive)
    report = migrate(catalog)

    assert iceberg_rows(catalog_url) == expected_rows()
    table = catalog.get_table(NAME)
    assert table.is_iceberg
    assert table.metadata_location == report["metadata_location"]
    assert (report["files"], report["rows"]) == (4, 7)
    assert hive_state(catalog, hive) == before
    assert data_files(hive) == files
    assert catalog.list_tables("demo") == [table]
    assert catalog.list_tables("demo")[0].metadata_location == report["metadata_location"]


def test_readers_skip_the_files_of_other_partitions(catalog: Catalog, catalog_url: str) -> None:
    make_orders(catalog)
    migrate(catalog)
    assert iceberg_rows(catalog_url, row_filter="year = 9") == expected_rows({("de/at", "9"): [4, 5, 6]})
    assert iceberg_rows(catalog_url, row_filter="country is null") == expected_rows({(None, "2025"): [7]})
    with sql_catalog(catalog_url) as iceberg:
        scan = iceberg.load_table(NAME).scan(row_filter="year = 9")
        assert len(list(scan.plan_files())) == 1


def test_the_first_snapshot_and_the_properties_are_those_that_engines_expect(catalog: Catalog) -> None:
    make_orders(catalog)
    catalog.alter_table(
        NAME, properties={"transient_lastDdlTime": "17", "serialization.format": "1"}, description="what was sold"
    )
    metadata = read_metadata(migrate(catalog)["metadata_location"])
    snapshot = metadata.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    summary = snapshot.summary.additional_properties
    assert snapshot.summary.operation.value == "append"
    assert (summary["total-data-files"], summary["total-records"]) == ("4", "7")
    assert summary["added-data-files"] == "4"
    assert summary["changed-partition-count"] == "4"
    assert int(summary["total-files-size"]) == int(summary["added-files-size"]) > 0
    assert metadata.format_version == 2
    assert metadata.location == catalog.get_table(NAME).location
    mapping = json.loads(metadata.properties["schema.name-mapping.default"])
    assert [each["names"] for each in mapping] == [["id"], ["note"], ["country"], ["year"]]
    rest = {name: value for name, value in metadata.properties.items() if not name.startswith("schema.")}
    assert rest == {
        "owner": "ann",
        "comment": "what was sold",
        "migrated": "true",
        "write.format.default": "parquet",
    }


def test_a_table_without_partition_keys_is_one_folder(catalog: Catalog, catalog_url: str) -> None:
    table = catalog.create_table("demo.flat", columns=[("id", "bigint"), ("note", "string")])
    write_rows(table.location, [1, 2])
    write_rows(table.location, [3], "part-1.parquet")
    migrate(catalog, "demo.flat")
    assert [row[0] for row in iceberg_rows(catalog_url, "demo.flat")] == [1, 2, 3]


def test_readers_of_a_folder_without_partitions_never_see_what_iceberg_writes(
    catalog: Catalog, catalog_url: str
) -> None:
    table = catalog.create_table("demo.flat", columns=[("id", "bigint"), ("note", "string")])
    folder = Folder(table.location)

    def seen() -> set[str]:
        return folder.visible_names("") - {"part-0.parquet"}

    write_rows(table.location, [1, 2])
    stage(catalog, catalog.migrations.begin("m1", "demo.flat", REQUEST))
    assert not seen()
    migrate(catalog, "demo.flat")
    with sql_catalog(catalog_url) as iceberg:
        rows = {"id": pyarrow.array([3], pyarrow.int64()), "note": pyarrow.array(["n3"])}
        iceberg.load_table("demo.flat").append(pyarrow.table(rows))
    assert [row[0] for row in iceberg_rows(catalog_url, "demo.flat")] == [1, 2, 3]
    assert not seen()
    catalog.migrations.revert("r1", "demo.flat", lose_data=True)
    make_old(catalog, table.location, "m1", "_iceberg")
    (cleared,) = catalog.vacuum(grace=timedelta(0)).tables
    # A manifest, a manifest list, what was staged, and the first metadata; what PyIceberg wrote is not judged.
    assert cleared.orphan_files == 4
    assert not seen()
    # Lost rows of the Iceberg table do not reappear.
    migrate(catalog, "demo.flat", "m2", MigrationRequest(verify=False, recursive_directory="true"))
    assert [row[0] for row in iceberg_rows(catalog_url, "demo.flat")] == [1, 2]


def test_an_empty_table_becomes_an_empty_one(catalog: Catalog, catalog_url: str) -> None:
    make_orders(catalog, partitions={})
    migrate(catalog)
    assert iceberg_rows(catalog_url) == []
    append(catalog_url, [8])
    assert [row[0] for row in iceberg_rows(catalog_url)] == [8]


def test_partitions_outside_the_tables_folder_are_read_from_where_they_are(
    catalog: Catalog, catalog_url: str, tmp_path: Path
) -> None:
    make_orders(catalog)
    catalog.add_partitions(NAME, [NewPartition(("at", "7"), location=f"file:{tmp_path}/far away/a=b")])
    write_rows(f"{tmp_path}/far away/a=b", [70])
    plan = catalog.migrations.plan(NAME, REQUEST)
    assert plan.as_json()["partitions_elsewhere"] == 1
    migrate(catalog)
    assert iceberg_rows(catalog_url) == expected_rows({**PARTITIONS, ("at", "7"): [70]})


def test_no_file_behind_a_link_that_leads_out_of_the_allowed_folders_is_staged(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_orders(catalog)
    operation = catalog.migrations.begin("m1", NAME, REQUEST)
    folder = Path(catalog.get_partition(NAME, next(iter(PARTITIONS))).location)
    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", str(tmp_path / "allowed"))
    (tmp_path / "secret.parquet").write_bytes(b"")
    (folder / "linked.parquet").symlink_to(tmp_path / "secret.parquet")
    with pytest.raises(LocationNotAllowedError, match=r"linked\.parquet is behind a symbolic link"):
        stage(catalog, operation)


def test_folders_come_in_the_order_of_typed_values_whatever_fits_into_memory(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_orders(catalog, partitions={})
    values = [(country, str(year)) for country in ("b", "a", None) for year in (10, 9, 100, -1)]
    catalog.add_partitions(NAME, [NewPartition(each) for each in values])
    catalog.migrations.begin("m1", NAME, REQUEST)
    operation = catalog.migrations.get("m1")
    monkeypatch.setattr("catalog.migration.sources._RUN", 5)
    pages = list(catalog.migrations.folders(operation, 7))
    assert [len(page) for page in pages] == [7, 5]
    found = [folder for page in pages for folder in page]
    assert [folder.ordinal for folder in found] == list(range(12))
    ordered = [(each.values[0], int(each.values[1] or 0)) for each in found]
    assert ordered == sorted(ordered, key=lambda each: (each[0] is not None, each[0] or "", each[1]))
    monkeypatch.undo()
    assert [each for page in catalog.migrations.folders(operation) for each in page] == found


@pytest.mark.parametrize("fits_into_memory", [True, False])
def test_many_listings_under_way_hold_no_connection(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, fits_into_memory: bool
) -> None:
    make_orders(catalog, partitions={})
    catalog.add_partitions(NAME, [NewPartition(("a", str(year))) for year in range(10)])
    catalog.migrations.begin("m1", NAME, REQUEST)
    operation = catalog.migrations.get("m1")
    monkeypatch.setattr("catalog.migration.sources._RUN", 100 if fits_into_memory else 5)
    listings = [catalog.migrations.folders(operation, 2) for _ in range(40)]
    assert [len(next(pages)) for pages in listings] == [2] * 40
    assert catalog.get_table(NAME).name == "orders"
    assert [len(list(pages)) for pages in listings] == [4] * 40


# --- operations that Iceberg tables do not support --------------------------------------------------------------------

WHOLE = {"country": "nl", "year": "2024"}
REFUSED: dict[str, Callable[[Catalog], object]] = {
    "partitions": lambda c: list(c.get_partitions(NAME)),
    "explain": lambda c: c.explain_partitions(NAME, "year = 9"),
    "partition": lambda c: c.get_partition(NAME, ("nl", "2024")),
    "files": lambda c: c.scan_files(NAME),
    "scheme": lambda c: c.scheme_partitions(NAME),
    "add": lambda c: c.add_partitions(NAME, [NewPartition(("be", "1"))]),
    "drop": lambda c: c.drop_partitions(NAME),
    "drop one": lambda c: c.drop_partition(NAME, WHOLE),
    "alter": lambda c: c.alter_partition(NAME, WHOLE, location="/x"),
    "repair": lambda c: c.repair_table(NAME),
    "release": lambda c: c.release_partitions(NAME),
    "index": lambda c: c.create_partition_index(NAME, "i", ["year"]),
    "build": lambda c: c.build_partition_index(NAME, "by_country"),
    "verify": lambda c: c.verify_partition_index(NAME, "by_country"),
    "indexes": lambda c: c.get_partition_indexes(NAME),
    "delete index": lambda c: c.delete_partition_index(NAME, "by_country"),
    "cancel index": lambda c: c.cancel_partition_index_build(NAME, "by_country"),
    "rename": lambda c: c.alter_table(NAME, rename_to="o"),
    "properties": lambda c: c.alter_table(NAME, properties={"a": "b"}),
    "advice": lambda c: c.rebalancing.advise(NAME),
    "groups": lambda c: c.quality.group_row_counts(NAME, ["year"]),
    "discover": lambda c: c.loading.discover("l", NAME, "/nowhere"),
}


@pytest.mark.parametrize("asked", REFUSED)
def test_what_a_hive_table_can_do_is_refused_with_the_way_back(catalog: Catalog, asked: str) -> None:
    table = make_orders(catalog)
    list(catalog.get_partitions(NAME))
    before = hive_state(catalog, table)
    migrate(catalog)
    with pytest.raises(IcebergTableError, match=r"demo\.orders is an Iceberg table .*metadata\.json.*revert"):
        REFUSED[asked](catalog)
    assert hive_state(catalog, table) == before


def test_a_search_that_was_planned_before_the_flip_finds_nothing_after_it(catalog: Catalog) -> None:
    make_orders(catalog)
    search = "country = 'nl'"
    assert len(list(catalog.get_partitions(NAME, search))) == 2
    with Catalog.open(warehouse="/w") as other:
        migrate(other)
    with pytest.raises(IcebergTableError):
        list(catalog.get_partitions(NAME, search))


# --- back -----------------------------------------------------------------------------------------------------------


def test_a_reverted_table_is_the_hive_table_with_its_partitions_and_indexes(catalog: Catalog) -> None:
    hive = make_orders(catalog)
    before, files = hive_state(catalog, hive), data_files(hive)
    migrate(catalog)
    report = catalog.migrations.revert("r1", NAME)
    assert catalog.get_table(NAME) == hive
    assert hive_state(catalog, hive) == before
    assert data_files(hive) == files
    assert len(list(catalog.get_partitions(NAME, "country = 'nl'"))) == 2
    assert catalog.verify_partition_index(NAME, "by_country").is_exact
    assert report["lost"]["snapshots"] == 0
    assert catalog.migrations.revert("r1", NAME) == report
    with pytest.raises(NotIcebergTableError, match="nothing to revert"):
        catalog.migrations.revert("r2", NAME)


def test_a_reverted_table_migrates_again(catalog: Catalog, catalog_url: str) -> None:
    make_orders(catalog)
    migrate(catalog)
    catalog.migrations.revert("r1", NAME)
    catalog.add_partitions(NAME, [NewPartition(("be", "1"))])
    write_rows(catalog.get_partition(NAME, ("be", "1")).location, [11])
    migrate(catalog, operation_id="m2")
    assert iceberg_rows(catalog_url) == expected_rows({**PARTITIONS, ("be", "1"): [11]})


def test_what_was_written_as_iceberg_is_not_lost_unless_told(catalog: Catalog, catalog_url: str) -> None:
    hive = make_orders(catalog)
    before = hive_state(catalog, hive)
    migrate(catalog)
    append(catalog_url, [8, 9])
    with pytest.raises(DataWrittenError, match=r"1 commit\(s\) .*2 row\(s\) in 1 file\(s\) added, 0 row"):
        catalog.migrations.revert("r1", NAME)
    assert catalog.operations.find("r1") is None
    assert len(iceberg_rows(catalog_url)) == 9
    with sql_catalog(catalog_url) as iceberg:
        iceberg.load_table(NAME).delete("year = 9")
    with pytest.raises(DataWrittenError, match=r"2 commit\(s\) .*3 row\(s\) in 1 file\(s\) deleted"):
        catalog.migrations.revert("r1", NAME)
    report = catalog.migrations.revert("r1", NAME, lose_data=True)
    assert report["lost"] == {
        "snapshots": 2,
        "files_added": 1,
        "files_deleted": 1,
        "rows_added": 2,
        "rows_deleted": 3,
        "is_traceable": True,
    }
    assert catalog.get_table(NAME) == hive
    assert hive_state(catalog, hive) == before


def test_after_its_own_snapshot_has_expired_a_migration_is_only_reverted_when_told(
    catalog: Catalog, catalog_url: str
) -> None:
    make_orders(catalog)
    migrate(catalog)
    with sql_catalog(catalog_url) as iceberg:
        first = iceberg.load_table(NAME).current_snapshot()
    assert first is not None
    append(catalog_url, [8, 9])
    with sql_catalog(catalog_url) as iceberg:
        iceberg.load_table(NAME).maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    with pytest.raises(DataWrittenError, match="no longer an ancestor of the current one"):
        catalog.migrations.revert("r1", NAME)
    report = catalog.migrations.revert("r1", NAME, lose_data=True)
    assert (report["lost"]["snapshots"], report["lost"]["is_traceable"]) == (1, False)


@pytest.mark.parametrize("kind", ["branch", "tag"])
def test_what_was_written_into_a_branch_is_not_lost_unless_told(catalog: Catalog, catalog_url: str, kind: str) -> None:
    make_orders(catalog)
    migrate(catalog)
    with sql_catalog(catalog_url) as iceberg:
        table = iceberg.load_table(NAME)
        first = table.current_snapshot()
        assert first is not None
        table.manage_snapshots().create_branch(first.snapshot_id, "audit").commit()
        rows = pyarrow.table({"id": pyarrow.array([8], pyarrow.int64()), "note": ["n8"]})
        rows = rows.append_column("country", [["fr"]]).append_column("year", pyarrow.array([2026], pyarrow.int32()))
        table.append(rows, branch="audit")
        if kind == "tag":
            head = table.refs()["audit"].snapshot_id
            table.manage_snapshots().create_tag(head, "kept").remove_branch("audit").commit()
    with pytest.raises(DataWrittenError, match=r"1 commit\(s\) wrote data .* 1 row\(s\) in 1 file\(s\) added"):
        catalog.migrations.revert("r1", NAME)
    assert catalog.migrations.revert("r1", NAME, lose_data=True)["lost"]["rows_added"] == 1


def test_a_change_of_the_schema_alone_loses_nothing(catalog: Catalog, catalog_url: str) -> None:
    hive = make_orders(catalog)
    migrate(catalog)
    with sql_catalog(catalog_url) as iceberg, iceberg.load_table(NAME).update_schema() as change:
        from pyiceberg.types import StringType

        change.add_column("more", StringType())
    catalog.migrations.revert("r1", NAME)
    assert catalog.get_table(NAME) == hive


def test_a_table_that_an_engine_dropped_comes_back_only_when_told(catalog: Catalog, catalog_url: str) -> None:
    hive = make_orders(catalog)
    migrate(catalog)
    with sql_catalog(catalog_url) as iceberg:
        iceberg.drop_table(NAME)
    assert catalog.get_table(NAME).metadata_location is None
    with pytest.raises(DataWrittenError, match="files of the Hive table may be missing"):
        catalog.migrations.revert("r1", NAME)
    catalog.migrations.revert("r1", NAME, lose_data=True)
    assert catalog.get_table(NAME) == hive


# --- steps ----------------------------------------------------------------------------------------------------------


def test_nothing_flips_that_was_not_staged(catalog: Catalog) -> None:
    make_orders(catalog)
    catalog.migrations.begin("m1", NAME, REQUEST)
    with pytest.raises(VerificationFailedError, match="not staged"):
        catalog.migrations.flip("m1")


def test_nothing_flips_that_was_not_verified_unless_told(catalog: Catalog) -> None:
    make_orders(catalog)
    operation = catalog.migrations.begin("m1", NAME)
    stage(catalog, operation)
    with pytest.raises(VerificationFailedError, match="not compared"):
        catalog.migrations.flip("m1")
    pretend_verified(catalog, "m1")
    stage(catalog, operation)
    with pytest.raises(VerificationFailedError, match="not compared"):
        catalog.migrations.flip("m1")
    pretend_verified(catalog, "m1")
    catalog.migrations.flip("m1")
    assert catalog.get_table(NAME).is_iceberg


def test_a_flip_done_again_returns_the_same_report(catalog: Catalog) -> None:
    make_orders(catalog)
    report = migrate(catalog)
    assert catalog.migrations.flip("m1") == report
    assert catalog.migrations.begin("m1", NAME, REQUEST).is_committed


def test_a_fenced_attempt_stages_nothing(catalog: Catalog) -> None:
    make_orders(catalog)
    operation = catalog.migrations.begin("m1", NAME, REQUEST)
    first = catalog.operations.start_job("m1", STAGE)
    staged = staged_files(catalog, operation, first)
    catalog.operations.start_job("m1", STAGE)
    with pytest.raises(FencedError):
        catalog.migrations.record_staged("m1", first, staged)
    assert not catalog.migrations.is_staged("m1")


def test_files_that_cannot_be_the_tables_are_refused_or_reported(catalog: Catalog) -> None:
    make_orders(catalog)
    empty, damaged = (
        RefusedFile("/a/b", FileProblem.EMPTY, "it is empty"),
        RefusedFile("/a/c", FileProblem.DAMAGED, "its end is cut off"),
    )
    operation = catalog.migrations.begin("m1", NAME, REQUEST)
    with pytest.raises(UnusableFilesError, match="/a/b: it is empty") as error:
        stage(catalog, operation, [empty])
    assert error.value.problems == (empty,)
    operation = catalog.migrations.begin("m1", NAME, replace(REQUEST, unusable_files=OnUnusable.SKIP))
    with pytest.raises(UnusableFilesError, match=r"/a/c: .*DAMAGED"):
        stage(catalog, operation, [empty, damaged])
    report = stage(catalog, operation, [empty])
    assert report["problems"] == [{"path": "/a/b", "problem": "EMPTY", "message": "it is empty"}]
    catalog.migrations.flip("m1")


def test_manifests_that_do_not_hold_what_was_counted_are_refused(catalog: Catalog) -> None:
    make_orders(catalog)
    operation = catalog.migrations.begin("m1", NAME, REQUEST)
    attempt = catalog.operations.start_job("m1", STAGE)
    staged = staged_files(catalog, operation, attempt)
    short = replace(staged, totals=staged.totals[1:])
    with pytest.raises(VerificationFailedError, match="4 file"):
        catalog.migrations.record_staged("m1", attempt, short)
