"""Publication on an S3 server: no copy that ends late brings back the files of a load that was undone."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from catalog import Catalog, LoadMode, Table
from catalog.files.filesystem import Folder
from catalog.loading.loading import Loading
from catalog.operations.staging import STAGED_FILES, STAGED_SCHEMA, begin_staging
from tests.catalog.loading.test_loading import TABLE
from tests.catalog.loading.test_loading import landing as landing
from tests.catalog.loading.test_publishing import cancel
from tests.support.object_store import ObjectStore, counted_requests

NOW = timedelta(0)


@pytest.fixture
def table(catalog: Catalog, object_store: ObjectStore) -> Table:
    keys = [("origin", "string"), ("month", "int")]
    return catalog.create_table(TABLE, columns=[("v", "int")], partition_keys=keys, location="s3://lake/t")


def staged(catalog: Catalog, table: Table, landing: Path, name: str, *origins: str) -> str:
    """Write the files of a load with a partition for each origin, and return its staging folder."""
    (landing / f"{name}.csv").write_text(name)
    catalog.loading.discover(name, TABLE, str(landing))
    attempt = catalog.operations.start_job(name, "write")
    staging = Loading.staging_name(catalog.operations.get(name), attempt)
    catalog.loading.discard_staging(table, (name, "write", attempt), keep=staging)
    folder, data = Folder(table.location), begin_staging(table, staging)
    for origin in origins:
        folder.write_bytes(f"{data}/origin={origin}/month=1/{name}.parquet", name.encode())
    folder.write_empty(f"{data}/_SUCCESS")
    rows = [
        {"values": [origin, "1"], "files": [f"{name}.parquet"], "row_count": 1, "size_bytes": len(name)}
        for origin in origins
    ]
    folder.write_rows(f"{staging}/{STAGED_FILES}/part.parquet", pa.Table.from_pylist(rows, STAGED_SCHEMA))
    folder.write_empty(f"{staging}/{STAGED_FILES}/_SUCCESS")
    catalog.operations.finish_job(name, "write", attempt, {"staging": staging})
    return staging


def publish(catalog: Catalog, name: str, staging: str, mode: LoadMode) -> None:
    catalog.loading.publish(name, "register", catalog.operations.start_job(name, "register"), staging, mode=mode)


def read(catalog: Catalog) -> dict[str | None, list[str]]:
    """Return the names of the files of each partition, as readers through the catalog see them."""
    return {
        partition.values[0]: sorted(Path(file.path).stem for file in Folder(partition.location).files())
        for partition in list(catalog.get_partitions(TABLE))
    }


@pytest.mark.parametrize("mode", [LoadMode.NEW, LoadMode.APPEND, LoadMode.REPLACE])
def test_files_of_new_partitions_are_written_where_they_are_read(
    catalog: Catalog, table: Table, landing: Path, object_store: ObjectStore, mode: LoadMode
) -> None:
    staging = staged(catalog, table, landing, "first", "JFK", "a b")
    with counted_requests(object_store) as take_counts:
        publish(catalog, "first", staging, mode)
        assert take_counts()["COPY"] == 0
    assert read(catalog) == {"JFK": ["first"], "a b": ["first"]}
    objects = object_store.objects("t/")
    assert len([path for path in objects if path.endswith("first.parquet")]) == 2
    assert not [path for path in objects if "_calve_staging" in path or "_SUCCESS" in path]


def test_replaced_partitions_have_the_new_files_alone_and_others_are_added_to(
    catalog: Catalog, table: Table, landing: Path, object_store: ObjectStore
) -> None:
    publish(catalog, "first", staged(catalog, table, landing, "first", "JFK", "LGA"), LoadMode.NEW)
    staging = staged(catalog, table, landing, "second", "JFK")
    with counted_requests(object_store) as take_counts:
        publish(catalog, "second", staging, LoadMode.REPLACE)
        assert take_counts()["COPY"] == 0
    assert read(catalog) == {"JFK": ["second"], "LGA": ["first"]}
    publish(catalog, "third", staged(catalog, table, landing, "third", "LGA", "EWR"), LoadMode.APPEND)
    expected = {"JFK": ["second"], "LGA": ["first", "third"], "EWR": ["third"]}
    assert read(catalog) == expected
    for _ in range(2):
        assert catalog.vacuum(TABLE, grace=NOW).problems == ()
    assert read(catalog) == expected
    folders = {"EWR": ["third"], "JFK": ["second"], "LGA": ["first", "third"]}
    assert sorted(object_store.objects("t/")) == sorted(
        f"t/origin={origin}/month=1/{name}.parquet" for origin, names in folders.items() for name in names
    )


@pytest.mark.parametrize("is_listed", [True, False])
def test_of_a_load_that_is_not_continued_nothing_is_left(
    catalog: Catalog, table: Table, landing: Path, object_store: ObjectStore, is_listed: bool
) -> None:
    staging = staged(catalog, table, landing, "first", "JFK")
    if not is_listed:
        Folder(table.location).delete(f"{staging}/{STAGED_FILES}")
    cancel(catalog, "first")
    publish(catalog, "second", staged(catalog, table, landing, "second", "JFK"), LoadMode.NEW)
    assert read(catalog) == {"JFK": ["second"]}
    assert not [path for path in object_store.objects("t/") if "first" in path]
