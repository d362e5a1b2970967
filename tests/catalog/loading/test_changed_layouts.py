"""Changes of a table's format, buckets and columns between the writing of files and their commit; on each database."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog import Catalog, LoadMode, Table
from catalog.doors.entries import Entries
from catalog.errors import PlanConflictError, UnsupportedChangeError
from catalog.files.filesystem import Folder
from catalog.metastores.types import HiveStorage
from catalog.model.identifiers import TableName
from catalog.operations.staging import begin_staging
from tests.catalog.loading.test_loading import TABLE, Load
from tests.catalog.loading.test_loading import landing as landing
from tests.catalog.loading.test_loading import load as load
from tests.catalog.loading.test_loading import table as table
from tests.catalog.loading.test_publishing import cancel
from tests.support.entries import ORC

ROWS: dict[tuple[str | None, ...], int] = {("JFK", "1"): 1}


def staged(load: Load) -> Load:
    """Return the load after its files were written."""
    load.discover()
    load.stage(ROWS)
    begin_staging(load.catalog.get_table(TABLE), load.staging)
    return load


def alter(catalog: Catalog, storage: HiveStorage) -> None:
    """Change the storage of the table, as through the Hive Metastore or Glue doors."""
    entries, name = Entries(catalog), TableName.parse(TABLE)
    entries.alter_table(name, replace(entries.table(name), storage=storage))


@pytest.mark.parametrize("mode", [LoadMode.NEW, LoadMode.APPEND, LoadMode.REPLACE])
def test_files_are_not_published_if_the_format_of_the_table_was_changed_since_they_were_written(
    load: Load, catalog: Catalog, mode: LoadMode
) -> None:
    load.mode = mode
    staged(load)
    alter(catalog, ORC)
    with pytest.raises(PlanConflictError, match="format became ORC, while rows were written as PARQUET"):
        load.publish()
    assert list(catalog.get_partitions(TABLE)) == []
    cancel(catalog, load.name)
    again = Load(catalog, load.table, load.landing, "again")
    staged(again).publish()
    assert [partition.format for partition in catalog.get_partitions(TABLE)] == [None]


def test_files_are_not_published_if_the_table_has_got_buckets_since_they_were_written(
    load: Load, catalog: Catalog
) -> None:
    staged(load)
    entries, name = Entries(catalog), TableName.parse(TABLE)
    alter(catalog, replace(entries.table(name).storage, bucket_columns=("v",), bucket_count=4))
    with pytest.raises(UnsupportedChangeError, match="has 4 buckets"):
        load.publish()
    assert list(catalog.get_partitions(TABLE)) == []


def test_files_are_published_if_a_column_was_added_since_they_were_written(load: Load, catalog: Catalog) -> None:
    staged(load)
    catalog.alter_table(TABLE, add_columns=[("more", "int")])
    load.publish()
    assert [partition.row_count for partition in catalog.get_partitions(TABLE)] == [1]


def test_files_are_not_published_if_a_column_has_lost_its_position_in_them_since_they_were_written(
    load: Load, catalog: Catalog, table: Table
) -> None:
    catalog.drop_table(TABLE)
    columns, keys = [("v", "int"), ("w", "int"), ("x", "int")], [("origin", "string"), ("month", "int")]
    catalog.create_table(TABLE, columns=columns, partition_keys=keys, format="csv")
    Load(catalog, catalog.get_table(TABLE), load.landing, "first").run({("LGA", "1"): 1})
    catalog.alter_table(TABLE, drop_columns=["w"])
    catalog.drop_partitions(TABLE, "month = 1")
    (load.landing / "03.csv").write_text("03.csv")
    # A table without partitions forgets the positions of dropped columns.
    load.mode = LoadMode.APPEND
    staged(load)
    catalog.alter_table(TABLE, add_columns=[("more", "int")])
    with pytest.raises(PlanConflictError, match="column w was changed while rows were written with it"):
        load.publish()


def test_files_of_earlier_versions_without_a_layout_are_published(load: Load, catalog: Catalog, table: Table) -> None:
    load.discover()
    load.stage(ROWS)
    Folder(table.location).write_empty(f"{load.staging}/begun")
    load.publish()
    assert [partition.row_count for partition in catalog.get_partitions(TABLE)] == [1]
