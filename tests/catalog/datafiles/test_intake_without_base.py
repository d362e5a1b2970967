"""Commits of other engines after the metadata that Calve has seen last, or their snapshots, are gone."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table as IcebergTable

from catalog import Catalog
from catalog.errors import UnsupportedCommitError
from tests.catalog.datafiles.test_intake import TABLE, append, engine, rows
from tests.catalog.datafiles.test_intake import ranges as ranges
from tests.support.iceberg_tables import sql_catalog
from tests.support.killed_changes import contents, load
from tests.support.partition_files import check_partitions
from tests.support.published import check_published, published
from tests.support.written_files import hashed_table

pytestmark = pytest.mark.smoke


def test_commits_are_followed_after_an_engine_has_expired_all_earlier_snapshots(
    catalog: Catalog, catalog_url: str, ranges: str
) -> None:
    for value in (1, 12):
        append(catalog_url, [value])

    def expire(table: IcebergTable) -> None:
        ids = [snapshot.snapshot_id for snapshot in table.snapshots()]
        table.maintenance.expire_snapshots().by_ids(ids[:-1]).commit()

    engine(catalog_url, expire)
    load(catalog, "second", TABLE, [3])
    check_published(catalog, TABLE)
    assert contents(catalog, TABLE)[1] == sorted([1, 3, *range(10)])
    assert rows(catalog_url) == sorted([1, 3, 12, *range(40)])


def commits_without_base(url: str, *, keep_metadata: bool) -> None:
    """Append, delete a file, change a property, expire all earlier snapshots; delete what was published before."""

    def commit(table: IcebergTable) -> None:
        before = table.metadata_location
        snapshot = table.current_snapshot()
        assert snapshot is not None
        gone = [snapshot.manifest_list, *(manifest.manifest_path for manifest in snapshot.manifests(table.io))]
        table.append(pa.table({"c": pa.array([1, 12], pa.int32())}))
        table.overwrite(pa.table({"c": pa.array([*range(10, 20), 12, 12], pa.int32())}), "c >= 10 and c < 20")
        with table.transaction() as transaction:
            transaction.set_properties({"team": "lake"})
            transaction.remove_properties("owner")
        ids = [snapshot.snapshot_id for snapshot in table.snapshots()]
        table.maintenance.expire_snapshots().by_ids(ids[:-1]).commit()
        for path in gone if keep_metadata else [before]:
            Path(path).unlink()

    engine(url, commit)


@pytest.mark.parametrize("keep_metadata", [True, False])
def test_commits_are_followed_after_an_engine_has_deleted_the_published_metadata(
    catalog: Catalog, catalog_url: str, ranges: str, keep_metadata: bool
) -> None:
    commits_without_base(catalog_url, keep_metadata=keep_metadata)
    load(catalog, "second", TABLE, [3])
    check_published(catalog, TABLE)
    assert contents(catalog, TABLE)[1] == sorted([1, 3, *range(10)])
    assert rows(catalog_url) == sorted([1, 3, 12, 12, *range(40)])
    properties = catalog.get_table(TABLE).properties
    assert (properties.get("team"), properties.get("owner")) == ("lake", None)
    assert catalog.vacuum(TABLE).problems == ()


def test_the_setting_that_deletes_former_metadata_does_not_disturb(
    catalog: Catalog, catalog_url: str, ranges: str
) -> None:
    def commit(table: IcebergTable) -> None:
        settings = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"}
        with table.transaction() as transaction:
            transaction.set_properties(settings)
        for value in range(3):
            table.append(pa.table({"c": pa.array([value], pa.int32())}))

    before = published(catalog, TABLE).metadata_location
    engine(catalog_url, commit)
    assert not Path(before).exists()
    assert contents(catalog, TABLE)[1] == sorted([0, 1, 2, *range(10)])
    load(catalog, "second", TABLE, [3])
    engine(catalog_url, commit)
    assert contents(catalog, TABLE)[1] == sorted([0, 0, 1, 1, 2, 2, 3, *range(10)])
    check_published(catalog, TABLE)
    assert catalog.vacuum(TABLE).problems == ()


@pytest.mark.parametrize("kind", ["stored as Iceberg", "scheme"])
def test_metadata_of_a_table_that_only_engines_have_written_may_be_deleted(
    catalog: Catalog, catalog_url: str, kind: str
) -> None:
    if kind == "scheme":
        hashed_table(catalog, "demo.new")
    else:
        catalog.create_table("demo.new", columns=[("v", "int")], partition_keys=[("c", "int")], format="iceberg")
    before = published(catalog, "demo.new").metadata_location
    settings = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"}
    with sql_catalog(catalog_url) as iceberg:
        table = iceberg.load_table("demo.new")
        with table.transaction() as transaction:
            transaction.set_properties(settings)
        fields = table.schema().as_arrow()
        for value in range(3):
            table.append(pa.table({field.name: pa.array([value], field.type) for field in fields}, schema=fields))
    assert not Path(before).exists()
    catalog.get_table("demo.new", is_strict=True)
    (check_published if kind == "scheme" else check_partitions)(catalog, "demo.new")
    assert catalog.vacuum("demo.new").problems == ()


def test_a_refusal_does_not_name_an_expired_snapshot(
    catalog: Catalog, catalog_url: str, ranges: str, tmp_path: Path
) -> None:
    def commit(table: IcebergTable) -> None:
        with table.transaction() as transaction:
            transaction.set_properties({"write.data.path": str(tmp_path / "elsewhere")})
        table.append(pa.table({"c": pa.array([1], pa.int32())}))
        table.append(pa.table({"c": pa.array([2], pa.int32())}))
        ids = [snapshot.snapshot_id for snapshot in table.snapshots()]
        table.maintenance.expire_snapshots().by_ids(ids[:-1]).commit()

    engine(catalog_url, commit)
    with pytest.raises(UnsupportedCommitError, match=r"Undo the commit by its engine$"):
        load(catalog, "second", TABLE, [3])
