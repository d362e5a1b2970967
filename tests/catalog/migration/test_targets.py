"""Snapshots of Hive tables as Iceberg tables, and additions of a Hive table's files to existing Iceberg tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from pyiceberg.types import LongType

from catalog import Catalog, NewPartition
from catalog.errors import (
    CatalogError,
    ColumnsDifferError,
    DuplicateFilesError,
    FilesNeededError,
    MigrationConflictError,
    NotIcebergTableError,
    SharedLocationError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedChangeError,
)
from catalog.files.filesystem import Folder
from catalog.iceberg.appending import completed_mapping
from catalog.iceberg.documents.tables import NAME_MAPPING
from catalog.iceberg.layout import layout_of
from catalog.iceberg.metadata import read_metadata
from catalog.iceberg.pointers import shared_locations
from catalog.migration.requests import MigrationRequest, OnDuplicate
from catalog.operations.records import OperationKind, OperationState
from tests.support.iceberg_tables import (
    COLUMNS,
    KEYS,
    NAME,
    PARTITIONS,
    REQUEST,
    append,
    expected_rows,
    iceberg_rows,
    make_orders,
    migrate,
    sql_catalog,
    stage,
    write_rows,
)

TRIAL = "demo.trial"
MORE = "demo.more"
SNAPSHOT = MigrationRequest(OperationKind.SNAPSHOT, target=TRIAL, verify=False)
ADD = MigrationRequest(OperationKind.ADD_FILES, target=NAME, verify=False)
NEW: dict[tuple[str | None, str | None], list[int]] = {("nl", "2026"): [20, 21], ("be", "2026"): [22]}


# --- snapshot ------------------------------------------------------------------------------------------------------


def test_a_snapshot_is_an_iceberg_table_beside_the_hive_table(catalog: Catalog, catalog_url: str) -> None:
    hive = make_orders(catalog)
    migrate(catalog, request=SNAPSHOT)
    assert catalog.get_table(NAME) == hive
    assert len(list(catalog.get_partitions(NAME))) == 4
    assert iceberg_rows(catalog_url, TRIAL) == expected_rows()
    trial = catalog.get_table(TRIAL)
    assert trial.is_iceberg
    assert trial.location == hive.location.replace("orders", "trial")
    assert not Path(hive.location, "metadata").exists()
    metadata = read_metadata(trial.metadata_location or "")
    assert metadata.location == trial.location
    assert metadata.properties["gc.enabled"] == "false"
    append(catalog_url, [8], TRIAL)
    assert len(iceberg_rows(catalog_url, TRIAL)) == 8
    assert {str(each) for each in Path(hive.location).rglob("*.parquet")} == {
        f"{partition.location}/part-0.parquet" for partition in catalog.get_partitions(NAME)
    }


@pytest.mark.usefixtures("overlapping_locations")
def test_a_hive_table_is_not_purged_while_a_snapshot_reads_its_files(
    catalog: Catalog, catalog_url: str, tmp_path: Path
) -> None:
    hive = make_orders(catalog)
    catalog.add_partitions(NAME, [NewPartition(("at", "7"), location=f"{tmp_path}/far")])
    write_rows(f"{tmp_path}/far", [70])
    migrate(catalog, request=SNAPSHOT)
    far = catalog.create_table("demo.far", columns=COLUMNS, location=f"{tmp_path}/far/x")
    for name in (NAME, far.full_name):
        with pytest.raises(FilesNeededError, match=TRIAL):
            catalog.drop_table(name, purge=True)
    catalog.drop_table(NAME)
    assert iceberg_rows(catalog_url, TRIAL) == expected_rows({**PARTITIONS, ("at", "7"): [70]})
    with pytest.raises(FilesNeededError):
        catalog.drop_table(TRIAL, purge=True)
    catalog.drop_table(TRIAL)
    with catalog.storage.read() as connection:
        assert shared_locations(connection) == []
    assert len(list(Path(hive.location).rglob("*.parquet"))) == 4
    catalog.drop_table(far.full_name, purge=True)


def test_a_snapshot_never_was_a_hive_table(catalog: Catalog) -> None:
    make_orders(catalog)
    migrate(catalog, request=SNAPSHOT)
    with pytest.raises(NotIcebergTableError, match=r"snapshot of demo\.orders .*DROP TABLE demo\.trial"):
        catalog.migrations.revert("r1", TRIAL, lose_data=True)
    assert any(TRIAL in each for each in catalog.migrations.plan(NAME).warnings)


@pytest.mark.parametrize(
    ("make", "location", "error"),
    [
        (lambda c: c.create_table(TRIAL, columns=COLUMNS), None, TableAlreadyExistsError),
        (lambda c: None, "orders/trial", SharedLocationError),
        (lambda c: c.create_table("demo.u", columns=COLUMNS), "u", SharedLocationError),
    ],
)
def test_a_snapshot_needs_a_name_and_a_folder_of_its_own(
    catalog: Catalog, make: Callable[[Catalog], object], location: str | None, error: type[CatalogError]
) -> None:
    hive = make_orders(catalog)
    make(catalog)
    where = None if location is None else str(Path(hive.location).parent / location)
    with pytest.raises(error):
        catalog.migrations.plan(NAME, replace(SNAPSHOT, target_location=where))


def test_of_two_snapshots_of_one_name_one_wins(catalog: Catalog, catalog_url: str) -> None:
    make_orders(catalog)
    make_orders(catalog, MORE, NEW)
    for operation_id, name in (("a", NAME), ("b", MORE)):
        stage(catalog, catalog.migrations.begin(operation_id, name, SNAPSHOT))
    catalog.migrations.flip("b")
    with pytest.raises(TableAlreadyExistsError):
        catalog.migrations.flip("a")
    assert catalog.operations.get("a").state is OperationState.FAILED
    assert iceberg_rows(catalog_url, TRIAL) == expected_rows(NEW)


def test_vacuum_finds_what_a_snapshot_that_failed_has_left(catalog: Catalog) -> None:
    from tests.catalog.migration.test_migrations import make_old, metadata_files

    hive = make_orders(catalog)
    stage(catalog, catalog.migrations.begin("m1", NAME, SNAPSHOT))
    location = hive.location.replace("orders", "trial")
    assert metadata_files(location)
    catalog.operations.fail("m1", "CANCELLED", "")
    make_old(catalog, location, "m1")
    catalog.vacuum(grace=timedelta(0))
    assert metadata_files(location) == []
    assert len(list(Path(hive.location).rglob("*.parquet"))) == 4


# --- add_files -----------------------------------------------------------------------------------------------------


def test_partitions_are_added_to_an_iceberg_table(catalog: Catalog, catalog_url: str) -> None:
    make_orders(catalog)
    migrate(catalog)
    append(catalog_url, [8])
    more = make_orders(catalog, MORE, NEW)
    report = migrate(catalog, MORE, "a1", ADD)
    assert iceberg_rows(catalog_url) == sorted([*expected_rows({**PARTITIONS, **NEW}), (8, "n8", "fr", 2026)], key=repr)
    assert (report["files"], report["rows"], report["duplicates"]) == (2, 3, 0)
    assert catalog.get_table(MORE) == more
    assert catalog.migrations.flip("a1") == report
    metadata = read_metadata(report["metadata_location"])
    snapshot = metadata.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["total-records"] == "11"
    assert len(metadata.snapshots) == 3
    append(catalog_url, [9])
    assert len(iceberg_rows(catalog_url)) == 12
    with pytest.raises(FilesNeededError, match=NAME):
        catalog.drop_table(MORE, purge=True)


def test_a_filter_on_part_of_the_keys_chooses_partitions(catalog: Catalog, catalog_url: str) -> None:
    make_orders(catalog)
    migrate(catalog)
    make_orders(catalog, MORE, NEW)
    migrate(catalog, MORE, "a1", replace(ADD, partitions={"COUNTRY": "nl"}))
    assert iceberg_rows(catalog_url) == expected_rows({**PARTITIONS, ("nl", "2026"): [20, 21]})
    migrate(catalog, MORE, "a2", replace(ADD, partitions={"year": "2026", "country": "be"}))
    assert iceberg_rows(catalog_url) == expected_rows({**PARTITIONS, **NEW})


def test_files_that_the_table_has_are_refused_passed_over_or_added_again(catalog: Catalog, catalog_url: str) -> None:
    make_orders(catalog)
    migrate(catalog)
    make_orders(catalog, MORE, NEW)
    migrate(catalog, MORE, "a1", replace(ADD, partitions={"country": "be"}))
    with pytest.raises(DuplicateFilesError, match=r"already contains 1 of the files, for instance .*country=be"):
        migrate(catalog, MORE, "a2", ADD)
    assert len(iceberg_rows(catalog_url)) == 8
    report = migrate(catalog, MORE, "a2", replace(ADD, duplicate_files=OnDuplicate.SKIP))
    assert (report["files"], report["rows"], report["duplicates"]) == (1, 2, 1)
    assert iceberg_rows(catalog_url) == expected_rows({**PARTITIONS, **NEW})
    migrate(catalog, MORE, "a3", replace(ADD, duplicate_files=OnDuplicate.ADD))
    assert len(iceberg_rows(catalog_url)) == 13


def test_files_that_the_table_has_in_another_spelling_are_not_added_again(catalog: Catalog, catalog_url: str) -> None:
    make_orders(catalog)
    migrate(catalog)
    more = make_orders(catalog, MORE, NEW)
    migrate(catalog, MORE, "a1", ADD)
    catalog.drop_table(MORE)
    catalog.create_table(
        MORE, columns=more.columns, partition_keys=more.partition_keys, location=f"file:{more.location}"
    )
    catalog.add_partitions(MORE, [NewPartition(values) for values in NEW])
    with pytest.raises(DuplicateFilesError, match=r"already contains 2 of the files, for instance file:/"):
        migrate(catalog, MORE, "a2", ADD)
    report = migrate(catalog, MORE, "a2", replace(ADD, duplicate_files=OnDuplicate.SKIP))
    assert (report["files"], report["duplicates"]) == (0, 2)
    assert iceberg_rows(catalog_url) == expected_rows({**PARTITIONS, **NEW})


def test_the_keys_of_both_may_have_another_order_and_the_columns_too(catalog: Catalog, catalog_url: str) -> None:
    make_orders(catalog)
    migrate(catalog)
    table = catalog.create_table(
        MORE, columns=[("note", "string"), ("id", "bigint")], partition_keys=list(reversed(KEYS))
    )
    catalog.add_partitions(MORE, [NewPartition(("2026", "nl"))])
    write_rows(f"{table.location}/year=2026/country=nl", [20, 21])
    migrate(catalog, MORE, "a1", ADD)
    assert iceberg_rows(catalog_url) == expected_rows({**PARTITIONS, ("nl", "2026"): [20, 21]})


def test_columns_that_only_added_files_have_are_read_past(catalog: Catalog, catalog_url: str) -> None:
    """PyIceberg refuses files with a column that is not mapped, and one that is added later has its own values."""
    make_orders(catalog)
    migrate(catalog)
    make_orders(catalog, MORE, NEW)
    location = Path(catalog.get_partition(MORE, ("be", "2026")).location)
    struct = pyarrow.array([{"id": 1, "list": [{"x": 2}]}])
    rows = pyarrow.table({"extra": [9], "id": [23], "more": struct, "note": ["n23"]})
    pyarrow.parquet.write_table(rows, location / "part-1.parquet")
    migrate(catalog, MORE, "a1", ADD)
    expected = expected_rows({**PARTITIONS, **NEW, ("be", "2026"): [22, 23]})
    assert iceberg_rows(catalog_url) == expected
    with sql_catalog(catalog_url) as iceberg:
        iceberg.load_table(NAME).update_schema().add_column("later", LongType()).commit()
    assert iceberg_rows(catalog_url) == [(*row, None) for row in expected]


def test_names_of_added_files_complete_a_mapping_without_them(catalog: Catalog) -> None:
    table = make_orders(catalog)
    metadata = read_metadata(migrate(catalog)["metadata_location"])
    mapping = [{"field-id": 1, "names": ["ID"]}, {"field-id": 9, "names": ["note"]}]
    partial = metadata.model_copy(update={"properties": {NAME_MAPPING: json.dumps(mapping)}})
    completed = json.loads(completed_mapping(partial, layout_of(table), {1: ["Id"]}, [(0, ("x", "y")), (0, ("x",))]))
    names = {entry["field-id"]: entry["names"] for entry in completed}
    # A name has one field; ids of columns that the table does not have are greater than any it gave.
    assert names == {1: ["ID", "id", "Id"], 9: ["note"], 2: [], 3: ["country"], 4: ["year"], 10: ["x"]}
    assert completed[-1]["fields"] == [{"field-id": 11, "names": ["y"]}]


def test_what_is_added_to_a_table_without_partitions_leaves_its_folder_as_hive_reads_it(
    catalog: Catalog, catalog_url: str
) -> None:
    for name, ids in ((NAME, [1]), (MORE, [2])):
        write_rows(catalog.create_table(name, columns=COLUMNS).location, ids)
    migrate(catalog)
    migrate(catalog, MORE, "a1", ADD)
    assert [row[0] for row in iceberg_rows(catalog_url)] == [1, 2]
    assert Folder(catalog.get_table(NAME).location).visible_names("") == {"part-0.parquet"}


def test_files_are_added_to_a_table_that_pyiceberg_made(catalog: Catalog, catalog_url: str, tmp_path: Path) -> None:
    import pyarrow
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import IntegerType, LongType, NestedField, StringType

    make_orders(catalog, MORE)
    schema = Schema(
        NestedField(1, "country", StringType()),
        NestedField(2, "id", LongType()),
        NestedField(3, "year", IntegerType()),
        NestedField(4, "note", StringType()),
    )
    spec = PartitionSpec(
        PartitionField(3, 1000, IdentityTransform(), "year"), PartitionField(1, 1001, IdentityTransform(), "country")
    )
    with sql_catalog(catalog_url) as iceberg:
        iceberg.create_namespace("demo")
        made = iceberg.create_table(NAME, schema, location=f"{tmp_path}/made", partition_spec=spec)
        year = pyarrow.array([2030], pyarrow.int32())
        made.append(pyarrow.table({"country": ["us"], "id": [1], "year": year, "note": ["x"]}))
    migrate(catalog, MORE, "a1", ADD)
    expected = sorted([(c, i, y, n) for i, n, c, y in [*expected_rows(), (1, "x", "us", 2030)]], key=repr)
    assert iceberg_rows(catalog_url) == expected
    found = iceberg_rows(catalog_url, row_filter="year = 9")
    assert [row[1] for row in found] == [4, 5, 6]


def test_an_append_meanwhile_is_not_lost(catalog: Catalog, catalog_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from catalog.migration import flipping

    make_orders(catalog)
    migrate(catalog)
    make_orders(catalog, MORE, NEW)
    moved, calls = flipping.move_pointer, list[int]()

    def meet_another(*arguments: object) -> bool:
        calls.append(1)
        if len(calls) == 1:
            # Another engine committed first: the pointer has changed.
            return moved(*arguments[:3], "elsewhere", arguments[4])  # type: ignore[arg-type]
        return moved(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(flipping, "move_pointer", meet_another)
    migrate(catalog, MORE, "a1", ADD)
    assert len(calls) == 2
    assert iceberg_rows(catalog_url) == expected_rows({**PARTITIONS, **NEW})


def test_what_changes_in_the_hive_table_before_it_is_added_is_noticed(catalog: Catalog, catalog_url: str) -> None:
    make_orders(catalog)
    migrate(catalog)
    make_orders(catalog, MORE, NEW)
    stage(catalog, catalog.migrations.begin("a1", MORE, ADD))
    catalog.add_partitions(MORE, [NewPartition(("x", "1"))])
    with pytest.raises(MigrationConflictError):
        catalog.migrations.flip("a1")
    assert iceberg_rows(catalog_url) == expected_rows()


@pytest.mark.parametrize(
    ("columns", "keys", "target", "error", "says"),
    [
        ([*COLUMNS, ("z", "int")], KEYS, NAME, ColumnsDifferError, "no column z"),
        (COLUMNS, KEYS[:1], NAME, ColumnsDifferError, "partitioned by the same keys"),
        (COLUMNS, [KEYS[0], ("year", "string")], NAME, ColumnsDifferError, "partition key year is int"),
        (COLUMNS, KEYS, MORE, NotIcebergTableError, "migrate it first"),
        (COLUMNS, KEYS, "demo.none", TableNotFoundError, "does not exist"),
    ],
)
def test_files_are_only_added_where_they_fit(
    catalog: Catalog,
    columns: list[tuple[str, str]],
    keys: list[tuple[str, str]],
    target: str,
    error: type[CatalogError],
    says: str,
) -> None:
    make_orders(catalog)
    migrate(catalog)
    catalog.create_table(MORE, columns=columns, partition_keys=keys)
    with pytest.raises(error, match=says):
        catalog.migrations.plan(MORE, replace(ADD, target=target))


def test_files_are_not_added_to_a_table_whose_files_have_the_partition_keys(catalog: Catalog) -> None:
    make_orders(catalog)
    catalog.create_table("demo.stored", columns=COLUMNS, partition_keys=KEYS, format="iceberg")
    with pytest.raises(UnsupportedChangeError, match=r"INSERT INTO demo\.stored SELECT … FROM demo\.orders"):
        catalog.migrations.plan(NAME, replace(ADD, target="demo.stored"))


def test_a_migrated_table_with_added_files_reverts_only_when_told(catalog: Catalog) -> None:
    from catalog.errors import DataWrittenError

    make_orders(catalog)
    migrate(catalog)
    make_orders(catalog, MORE, NEW)
    migrate(catalog, MORE, "a1", ADD)
    with pytest.raises(DataWrittenError, match=r"3 row\(s\) in 2 file\(s\) added"):
        catalog.migrations.revert("r1", NAME)
    catalog.migrations.revert("r1", NAME, lose_data=True)
    assert len(list(catalog.get_partitions(NAME))) == 4
    assert REQUEST.kind is OperationKind.MIGRATE
