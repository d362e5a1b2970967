"""Purges on an S3 server: concurrent files stay, and no folder markers remain."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pyarrow import fs

from catalog import Catalog, NewPartition
from catalog.files.filesystem import Folder
from tests.support.object_store import ObjectStore
from tests.support.written_files import own_name

KEYS = [("region", "string"), ("k", "int")]
TABLE = "demo.t"


@pytest.fixture
def catalog(catalog_url: str, object_store: ObjectStore) -> Iterator[Catalog]:
    """A catalog whose warehouse is on S3, with a table of two partitions, each with a file."""
    with Catalog.open(catalog_url, warehouse="s3://lake/wh") as catalog:
        catalog.create_database("demo")
        catalog.create_table(TABLE, columns=[("v", "int")], partition_keys=KEYS)
        catalog.add_partitions(TABLE, [NewPartition(["EU", "1"]), NewPartition(["EU", "2"])])
        for number in (1, 2):
            object_store.put({f"wh/demo/t/region=EU/k={number}/{own_name(catalog)}": b"rows"})
        yield catalog


def test_a_purge_on_s3_leaves_no_folder_that_a_repair_takes_for_a_partition(
    catalog: Catalog, object_store: ObjectStore
) -> None:
    assert catalog.purge_partitions(TABLE, "k = 1").purged == 1
    assert object_store.objects() == [f"wh/demo/t/region=EU/k=2/{own_name(catalog)}"]
    assert catalog.repair_table(TABLE).added == 0
    catalog.purge_partitions(TABLE)
    report = catalog.repair_table(TABLE)
    assert (report.added, report.folder_count) == (0, 0)


def test_a_purge_on_s3_leaves_what_arrives_after_the_last_look(
    catalog: Catalog, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = Folder.is_empty

    def look_first(folder: Folder, name: str) -> bool:
        is_empty = look(folder, name)
        if folder.location.endswith("k=1"):
            object_store.put({"wh/demo/t/region=EU/k=1/late.parquet": b"rows"})
        return is_empty

    monkeypatch.setattr(Folder, "is_empty", look_first)
    catalog.purge_partitions(TABLE)
    assert catalog.vacuum(grace=timedelta(0)).problems == ()
    assert object_store.objects() == ["wh/demo/t/region=EU/k=1/late.parquet"]


def test_an_empty_folder_stays_where_it_cannot_be_deleted_by_itself(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    folder = Folder(str(tmp_path / "a"))
    folder._files, folder._root = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "a"
    assert not folder.delete_if_empty()
    (tmp_path / "a").rmdir()
    assert folder.delete_if_empty()


def test_a_repair_adds_no_empty_folder_where_it_may_be_the_rest_of_a_purge(
    catalog_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Folder, "keeps_empty_folders", True)
    with Catalog.open(catalog_url, warehouse=str(tmp_path)) as catalog:
        catalog.create_database("demo")
        table = catalog.create_table(TABLE, columns=[("v", "int")], partition_keys=KEYS)
        for path in ("region=EU/k=1", "region=EU/k=2"):
            Path(table.location, path).mkdir(parents=True)
        Path(table.location, "region=EU/k=2/a.parquet").touch()
        report = catalog.repair_table(TABLE)
        assert (report.added, report.unfit) == (1, ("folder region=EU/k=1: it is empty",))
