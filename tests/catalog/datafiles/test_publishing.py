"""Tables with a partition scheme as other engines see them: PyIceberg reads and writes the same database."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.schema import index_by_id, index_name_by_id

from catalog import Catalog, Column, Table
from catalog.datafiles import committing
from catalog.datafiles.files import NewFile
from catalog.datafiles.manifest import delete_manifest, read_manifest
from catalog.errors import StorageError, TableAlreadyExistsError, UnreadableMetadataError, VerificationFailedError
from catalog.iceberg.described import read_snapshots
from catalog.model import TableKind
from catalog.rebalancing.changes import (
    DropPartitions,
    MergePartitions,
    SplitPartition,
)
from catalog.tables.schemes import scheme_from_properties
from tests.support.iceberg_tables import sql_catalog
from tests.support.killed_changes import contents, load, rebalance
from tests.support.published import check_published, published

TABLE = "demo.t"
REFUSAL = re.compile("Calve places the rows of this table|already exists")


@pytest.fixture
def ranges(catalog: Catalog) -> str:
    """A table of the ranges up to 10, 20 and 30, with a file in each and in the default partition."""
    scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "10, 20, 30"})
    catalog.create_table(TABLE, columns=[("c", "int")], scheme=scheme, properties={"owner": "ann"})
    load(catalog, "first", TABLE, range(40))
    return TABLE


def rows(url: str, name: str = TABLE, **scan: Any) -> list[Any]:
    """Return the values that PyIceberg reads, in order."""
    with sql_catalog(url) as iceberg:
        found: list[Any] = iceberg.load_table(name).scan(**scan).to_arrow()["c"].to_pylist()
    return sorted(found)


def operations(catalog: Catalog) -> list[tuple[str, str | None]]:
    """Return Iceberg's operation and Calve's of each snapshot."""
    return [
        (snapshot.summary.operation.value, snapshot.summary["calve.operation"])
        for snapshot in published(catalog, TABLE).snapshots()
        if snapshot.summary is not None
    ]


def test_a_new_table_is_empty_for_other_engines(catalog: Catalog, catalog_url: str) -> None:
    scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "3"})
    table = catalog.create_table(TABLE, columns=[("c", "int"), ("at", "timestamp")], scheme=scheme)
    assert table.published_location is not None
    check_published(catalog, TABLE)
    assert rows(catalog_url) == []


def test_each_change_is_one_snapshot_of_its_kind(catalog: Catalog, catalog_url: str, ranges: str) -> None:
    rebalance(catalog, "split", TABLE, SplitPartition(2, ("15", "20")))
    check_published(catalog, TABLE)
    assert rows(catalog_url) == [*range(40)]
    rebalance(catalog, "merge", TABLE, MergePartitions((4, 5)))
    check_published(catalog, TABLE)
    assert rows(catalog_url) == [*range(40)]
    rebalance(catalog, "drop", TABLE, DropPartitions((1,), with_data=True))
    check_published(catalog, TABLE)
    assert rows(catalog_url) == [*range(10, 40)]
    load(catalog, "second", TABLE, [3, 33])
    check_published(catalog, TABLE)
    assert rows(catalog_url) == sorted([3, 33, *range(10, 40)])
    assert operations(catalog) == [
        ("append", "first"),
        ("replace", "split"),
        ("replace", "merge"),
        ("delete", "drop"),
        ("append", "second"),
    ]


def test_files_that_are_discarded_while_they_are_committed_are_refused(
    catalog: Catalog, ranges: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def discarded(table: Table, folder: str) -> list[NewFile]:
        files = list(read_manifest(table, folder))
        delete_manifest(table, folder)
        return files

    before = contents(catalog, TABLE)
    monkeypatch.setattr(committing, "read_manifest", discarded)
    with pytest.raises(VerificationFailedError, match="missing or incomplete"):
        load(catalog, "second", TABLE, [7])
    assert contents(catalog, TABLE) == before


def test_engines_skip_files_by_bounds(catalog: Catalog, catalog_url: str, ranges: str) -> None:
    with sql_catalog(catalog_url) as iceberg:
        files = list(iceberg.load_table(TABLE).scan(row_filter=EqualTo("c", 25)).plan_files())
    assert [task.file.record_count for task in files] == [10]
    assert rows(catalog_url, row_filter=EqualTo("c", 25)) == [25]


def test_an_earlier_snapshot_can_be_read_until_it_expires(catalog: Catalog, catalog_url: str, ranges: str) -> None:
    [first] = [snapshot.snapshot_id for snapshot in published(catalog, TABLE).snapshots()]
    rebalance(catalog, "drop", TABLE, DropPartitions((1,), with_data=True))
    catalog.vacuum(TABLE)
    assert rows(catalog_url, snapshot_id=first) == [*range(40)]
    report = catalog.vacuum(TABLE, grace=timedelta(0))
    assert not report.problems
    assert [snapshot.snapshot_id for snapshot in published(catalog, TABLE).snapshots()] != [first]
    check_published(catalog, TABLE)
    assert rows(catalog_url) == [*range(10, 40)]
    left = {path.name for path in Path(catalog.get_table(TABLE).location, "metadata").iterdir()}
    catalog.vacuum(TABLE, grace=timedelta(0))
    assert rows(catalog_url) == [*range(10, 40)]
    assert {path.name for path in Path(catalog.get_table(TABLE).location, "metadata").iterdir()} <= left


def test_columns_keep_their_ids(catalog: Catalog, catalog_url: str) -> None:
    scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "2"})
    catalog.create_table(TABLE, columns=[("a", "int"), ("b", "string"), ("c", "int")], scheme=scheme)
    load(catalog, "first", TABLE, range(4))
    catalog.alter_table(
        TABLE,
        change_columns={"a": ("x", "bigint")},
        add_columns=[("d", "array<struct<e:int>>")],
        drop_columns=["b"],
        properties={"owner": "ben"},
    )
    check_published(catalog, TABLE)
    seen = published(catalog, TABLE)
    assert seen.properties["owner"] == "ben"
    assert str(seen.schema().find_type("x")) == "long"
    load(catalog, "second", TABLE, range(4, 8))
    check_published(catalog, TABLE)
    assert rows(catalog_url) == [*range(8)]


def test_fields_inside_of_columns_keep_their_ids(catalog: Catalog) -> None:
    scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "2"})
    columns = [("s", "struct<x:int,y:array<struct<z:string>>>"), ("m", "map<string,int>"), ("c", "int")]
    catalog.create_table(TABLE, columns=columns, scheme=scheme)
    seen: dict[int, str] = {}
    for change in (
        {"add_columns": [("d", "int"), ("e", "struct<x:int>")]},
        {"change_columns": {"s": ("s", "struct<x:bigint,y:array<struct<z:string,u:int>>,v:date>")}},
        {"column_order": ["m", "e", "d", "s", "c"]},
        {"drop_columns": ["m", "e"]},
        {"add_columns": [("m", "map<int,int>"), ("f", "int")]},
        {
            "change_columns": {
                "s": ("m", "struct<x:bigint,y:array<struct<z:string,u:int>>,v:date>"),
                "m": ("s", "map<int,int>"),
            }
        },
    ):
        fields = index_by_id(published(catalog, TABLE).schema())
        assert all(seen.setdefault(number, field.name) == field.name for number, field in fields.items())
        catalog.alter_table(TABLE, **change)
    mapped = json.loads(published(catalog, TABLE).properties["schema.name-mapping.default"])
    assert [entry["names"] for entry in mapped if entry["field-id"] in (2, 11)] == [["m"], ["e"]]
    assert [[part["names"] for part in entry["fields"]] for entry in mapped if entry["field-id"] == 11] == [[["x"]]]
    names = index_name_by_id(published(catalog, TABLE).schema())
    assert [names[number] for number in (1, 4, 5, 6, 7)] == ["m", "m.x", "m.y", "m.y.element", "m.y.element.z"]
    assert published(catalog, TABLE).metadata.last_column_id == catalog.get_table(TABLE).last_column_id == max(names)


@pytest.mark.parametrize("minutes", [-5, 5])
def test_the_times_of_metadata_are_those_of_the_catalog(
    catalog: Catalog, ranges: str, minutes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class WrongClock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + timedelta(minutes=minutes)

    monkeypatch.setattr("pyiceberg.table.update.datetime", WrongClock)
    catalog.alter_table(TABLE, properties={"owner": "ben"})
    load(catalog, "second", TABLE, [3])
    catalog.alter_table(TABLE, properties={"owner": "ann"})
    metadata = published(catalog, TABLE).metadata
    moments = [entry.timestamp_ms for entry in metadata.metadata_log]
    moments += [snapshot.timestamp_ms for snapshot in metadata.snapshots] + [metadata.last_updated_ms]
    assert abs(metadata.last_updated_ms - catalog.storage.now_ms()) < 60_000
    assert max(moments) == metadata.last_updated_ms


def test_properties_of_engines_do_not_stop_a_change(catalog: Catalog, ranges: str) -> None:
    catalog.alter_table(TABLE, properties={"write.metadata.previous-versions-max": "many"})
    load(catalog, "second", TABLE, [3])
    check_published(catalog, TABLE)


def test_a_renamed_table_is_renamed_for_engines(catalog: Catalog, catalog_url: str, ranges: str) -> None:
    catalog.alter_table(TABLE, rename_to="u")
    check_published(catalog, "demo.u")
    assert rows(catalog_url, "demo.u") == [*range(40)]
    with sql_catalog(catalog_url) as iceberg:
        assert iceberg.list_tables("demo") == [("demo", "u")]


@pytest.mark.parametrize("purge", [False, True])
def test_a_dropped_table_is_gone_for_engines(catalog: Catalog, catalog_url: str, ranges: str, purge: bool) -> None:
    location = Path(catalog.get_table(TABLE).location)
    catalog.drop_table(TABLE, purge=purge)
    with sql_catalog(catalog_url) as iceberg:
        assert not iceberg.table_exists(TABLE)
    assert location.exists() is not purge


def test_an_empty_table_leaves_an_empty_folder(catalog: Catalog) -> None:
    scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "3"})
    for _ in range(2):
        table = catalog.create_table(TABLE, columns=[("c", "int")], scheme=scheme)
        assert table.kind is TableKind.MANAGED
        catalog.drop_table(TABLE)
        assert not Path(table.location).exists()


@pytest.mark.parametrize("had_files", [False, True])
def test_a_table_that_moves_leaves_an_empty_folder(catalog: Catalog, tmp_path: Path, had_files: bool) -> None:
    scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "10"})
    before = catalog.create_table(TABLE, columns=[("c", "int")], scheme=scheme)
    catalog.alter_table(TABLE, properties={"owner": "ann"})
    if had_files:
        load(catalog, "first", TABLE, [1])
        catalog.rebalancing.change_catalog("drop", TABLE, DropPartitions((1,), with_data=True))
        catalog.vacuum(grace=timedelta(0))
    uuid = published(catalog, TABLE).metadata.table_uuid
    catalog.alter_table(TABLE, location=str(tmp_path / "elsewhere"))
    assert not Path(before.location).exists()
    assert published(catalog, TABLE).metadata.table_uuid == uuid
    check_published(catalog, TABLE)
    load(catalog, "second", TABLE, [11])
    check_published(catalog, TABLE)
    # Another table may have the folder, and be purged.
    other = catalog.create_table("demo.u", columns=[("c", "int")], scheme=scheme, location=before.location)
    assert other.kind is TableKind.MANAGED
    catalog.drop_table("demo.u", purge=True)
    assert not Path(before.location).exists()
    catalog.vacuum(grace=timedelta(0))
    check_published(catalog, TABLE)


def test_engines_can_neither_rename_nor_drop(catalog: Catalog, catalog_url: str, ranges: str) -> None:
    with sql_catalog(catalog_url) as iceberg:
        # PyIceberg takes SQLite's refusal of the new name for a name that is taken.
        for refused in (
            lambda: iceberg.rename_table(TABLE, "demo.other"),
            lambda: iceberg.drop_table(TABLE),
            lambda: iceberg.purge_table(TABLE),
        ):
            with pytest.raises(Exception, match=REFUSAL):
                refused()
    assert contents(catalog, TABLE) == {0: [*range(30, 40)], 1: [*range(10)], 2: [*range(10, 20)], 3: [*range(20, 30)]}
    load(catalog, "second", TABLE, [3])
    assert rows(catalog_url) == sorted([3, *range(40)])


def test_the_name_of_an_iceberg_table_is_taken(catalog: Catalog, catalog_url: str, tmp_path: Path, ranges: str) -> None:
    with sql_catalog(catalog_url) as iceberg:
        schema = iceberg.load_table(TABLE).schema()
        iceberg.create_table("demo.other", schema, location=str(tmp_path / "other"))
    scheme = catalog.get_table(TABLE).scheme
    with pytest.raises(TableAlreadyExistsError, match="Iceberg table or view demo"):
        catalog.create_table("demo.other", columns=[("c", "int")], scheme=scheme)
    with pytest.raises(TableAlreadyExistsError, match="Iceberg table or view demo"):
        catalog.alter_table(TABLE, rename_to="other")
    check_published(catalog, TABLE)


def test_damaged_metadata_stop_a_change_and_nothing_else(catalog: Catalog, ranges: str) -> None:
    location = catalog.get_table(TABLE).published_location
    assert location is not None
    good = Path(location).read_text()
    Path(location).write_text(good[: len(good) // 2])
    with pytest.raises(UnreadableMetadataError, match=r"metadata\.json cannot be read"):
        load(catalog, "second", TABLE, [3])
    catalog.operations.fail("second", "TEST", "its metadata were damaged")
    assert sum(file.row_count for file in catalog.scan_files(TABLE).files) == 40
    Path(location).write_text(good)
    load(catalog, "third", TABLE, [3])
    check_published(catalog, TABLE)


def test_a_storage_that_does_not_answer_is_no_damage(
    catalog: Catalog, ranges: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(location: str) -> bytes:
        raise OSError("AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 52, Server returned nothing")

    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)  # the message names the address, where there is one
    with monkeypatch.context() as patch:
        patch.setattr("catalog.iceberg.metadata.read_contents", broken)
        with pytest.raises(
            StorageError, match=r"json cannot be read or written: the server cannot be reached"
        ) as raised:
            load(catalog, "second", TABLE, [3])
        assert raised.value.retryable
        with pytest.raises(StorageError, match="the server cannot be reached"):
            read_snapshots(TABLE, "/lake/t/metadata/v1.metadata.json")
    load(catalog, "second", TABLE, [3])
    check_published(catalog, TABLE)


@pytest.mark.long
def test_many_small_manifests_are_merged(catalog: Catalog, catalog_url: str, ranges: str) -> None:
    for number in range(105):
        load(catalog, f"load-{number}", TABLE, [number])
    check_published(catalog, TABLE)
    snapshot = published(catalog, TABLE).current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(published(catalog, TABLE).io)) < 20
    rebalance(catalog, "drop", TABLE, DropPartitions((1,), with_data=True))
    check_published(catalog, TABLE)
    assert rows(catalog_url) == sorted([*range(10, 40), *range(10, 105)])
