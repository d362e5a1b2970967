"""Iceberg tables that changed since files were staged for them, or that refuse files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.types import LongType
from sqlalchemy.exc import DatabaseError

from catalog import Catalog
from catalog.errors import (
    CatalogError,
    ColumnsDifferError,
    DuplicateFilesError,
    MigrationConflictError,
    UnusableFileError,
)
from catalog.iceberg.appending import known_files
from catalog.iceberg.metadata import current_manifests, read_metadata
from catalog.migration.requests import MigrationRequest, OnDuplicate
from catalog.operations.records import OperationKind
from tests.catalog.migration.test_targets import ADD, MORE, NEW
from tests.support.iceberg_tables import (
    COLUMNS,
    NAME,
    PARTITIONS,
    expected_rows,
    iceberg_rows,
    make_orders,
    migrate,
    sql_catalog,
    stage,
    write_rows,
)


def make_target(url: str, location: str, *, required: tuple[str, ...] = ()) -> None:
    """Make a table with PyIceberg that is partitioned as the orders are."""
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import IntegerType, NestedField, StringType

    types = {"id": LongType(), "note": StringType(), "country": StringType(), "year": IntegerType()}
    if "more" in required:
        types["more"] = StringType()
    fields = [NestedField(n, name, kind, name in required) for n, (name, kind) in enumerate(types.items(), 1)]
    spec = [PartitionField(n, 997 + n, IdentityTransform(), name) for n, name in ((3, "country"), (4, "year"))]
    with sql_catalog(url) as iceberg:
        iceberg.create_namespace("demo")
        iceberg.create_table(NAME, Schema(*fields), location=location, partition_spec=PartitionSpec(*spec))


@pytest.mark.parametrize("change", ["spec", "column"])
def test_a_target_that_changed_since_the_stage_is_staged_again(
    catalog: Catalog, catalog_url: str, tmp_path: Path, change: str
) -> None:
    make_orders(catalog, MORE)
    make_target(catalog_url, f"{tmp_path}/made")
    stage(catalog, catalog.migrations.begin("a1", MORE, ADD))
    with sql_catalog(catalog_url) as iceberg:
        target = iceberg.load_table(NAME)
        if change == "spec":
            # The same keys, the other way round: the values of one would be the other's.
            target.update_spec().remove_field("country").commit()
            target.update_spec().add_identity("country").commit()
        else:
            note = target.schema().find_type("note")
            target.update_schema().rename_column("note", "memo").commit()
            target.update_schema().add_column("note", note).commit()
    with pytest.raises(MigrationConflictError, match=r"changed since the files of demo\.more were"):
        catalog.migrations.flip("a1")
    assert iceberg_rows(catalog_url) == []
    migrate(catalog, MORE, "a1", ADD)
    assert len(iceberg_rows(catalog_url)) == 7


@pytest.mark.parametrize(
    ("required", "error", "says"),
    [
        ("note", UnusableFileError, "column note is NOT NULL in the Iceberg table, and the file has 1 null"),
        ("country", ColumnsDifferError, "partition key country of the Iceberg table demo.orders is NOT NULL"),
        ("more", ColumnsDifferError, "column more of the Iceberg table demo.orders is NOT NULL"),
    ],
)
def test_nulls_are_not_added_to_a_column_without_nulls(
    catalog: Catalog, catalog_url: str, tmp_path: Path, required: str, error: type[CatalogError], says: str
) -> None:
    import pyarrow.parquet

    make_orders(catalog, MORE)
    path = f"{catalog.get_partition(MORE, ('nl', '2025')).location}/nulls.parquet"
    notes = pyarrow.array(["a", None], pyarrow.string())
    pyarrow.parquet.write_table(pyarrow.table({"id": pyarrow.array([1, 2], pyarrow.int64()), "note": notes}), path)
    make_target(catalog_url, f"{tmp_path}/made", required=(required,))
    with pytest.raises(error, match=says):
        stage(catalog, catalog.migrations.begin("a1", MORE, ADD))


def test_files_without_nulls_are_added_to_a_column_without_nulls(
    catalog: Catalog, catalog_url: str, tmp_path: Path
) -> None:
    make_orders(catalog, MORE)
    make_target(catalog_url, f"{tmp_path}/made", required=("id", "note"))
    migrate(catalog, MORE, "a1", ADD)
    assert iceberg_rows(catalog_url) == expected_rows()


@pytest.mark.parametrize("name", ["a#b", "a?b", "a%20b", "a b", "a&b=c"])
@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_location_is_taken_literally(catalog: Catalog, tmp_path: Path, scheme: str, name: str) -> None:
    table = catalog.create_table(MORE, columns=COLUMNS, location=f"{scheme}{tmp_path}/{name}")
    write_rows(f"{tmp_path}/{name}", [1, 2])
    report = migrate(catalog, MORE, "m1", MigrationRequest(verify=False))
    assert table.location in report["metadata_location"]
    metadata = read_metadata(catalog.get_table(MORE).metadata_location or "")
    assert [manifest.manifest_path.startswith(f"{table.location}/") for manifest in current_manifests(metadata)] == [
        True
    ]
    assert list(known_files(metadata)) == [f"{table.location}/part-0.parquet"]


@pytest.mark.parametrize("kind", ["snapshot", "added", "renamed"])
def test_no_engine_purges_a_table_that_has_files_of_a_hive_table(
    catalog: Catalog, catalog_url: str, tmp_path: Path, kind: str
) -> None:
    hive = make_orders(catalog, MORE)
    files = sorted(Path(hive.location).rglob("*.parquet"))
    name = NAME
    if kind == "added":
        make_target(catalog_url, f"{tmp_path}/made")
        migrate(catalog, MORE, "a1", ADD)
    else:
        migrate(catalog, MORE, "s1", MigrationRequest(OperationKind.SNAPSHOT, verify=False, target=NAME))
    with sql_catalog(catalog_url) as iceberg:
        if kind == "renamed":
            name = "demo.renamed"
            iceberg.rename_table(NAME, name)
        for drop in (iceberg.purge_table, iceberg.drop_table):
            with pytest.raises(DatabaseError, match="drop it in Calve"):
                drop(name)
    assert sorted(Path(hive.location).rglob("*.parquet")) == files
    assert iceberg_rows(catalog_url, name) == expected_rows()


def test_a_table_without_files_of_others_is_dropped_by_engines(catalog: Catalog, catalog_url: str) -> None:
    make_orders(catalog)
    migrate(catalog)
    with sql_catalog(catalog_url) as iceberg:
        iceberg.drop_table(NAME)
        assert not iceberg.table_exists(NAME)


def test_files_that_the_table_has_are_skipped_in_mixed_manifests_and_several_batches(
    catalog: Catalog, catalog_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from catalog.migration import duplicates

    monkeypatch.setattr(duplicates, "_BATCH", 2)
    make_orders(catalog)
    migrate(catalog)
    make_orders(catalog, MORE, NEW)
    migrate(catalog, MORE, "a1", ADD)
    location = catalog.get_partition(MORE, ("nl", "2026")).location
    paths = [write_rows(location, [number], f"more-{number}.parquet") for number in range(30, 37)]
    with pytest.raises(DuplicateFilesError, match="already contains 2 of the files"):
        migrate(catalog, MORE, "a2", ADD)
    report = migrate(catalog, MORE, "a2", replace(ADD, duplicate_files=OnDuplicate.SKIP))
    assert (report["files"], report["rows"], report["duplicates"]) == (7, 7, 2)
    assert report["bytes"] == sum(Path(path).stat().st_size for path in paths)
    more = {**NEW, ("nl", "2026"): [20, 21, *range(30, 37)]}
    assert iceberg_rows(catalog_url) == expected_rows({**PARTITIONS, **more})
