"""Files that other engines commit to tables stored as Iceberg change the partitions and their index items."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.types import StringType

from catalog import Catalog, IndexDefinition
from catalog.errors import PartitionValueError, UnsupportedCommitError
from catalog.partitions.records import values_of
from tests.support.iceberg_tables import sql_catalog
from tests.support.partition_files import append, check_partitions, stored_rows

TABLE = "demo.t"


@pytest.fixture
def table(catalog: Catalog) -> str:
    """A table with three partitions, to which engines can commit."""
    catalog.create_table(
        TABLE,
        columns=[("v", "int")],
        partition_keys=[("origin", "string"), ("month", "int")],
        indexes=[IndexDefinition("by_month", ("month", "origin"))],
        format="iceberg",
    )
    append(catalog, "one", TABLE, {("JFK", "1"): [1, 2], ("LGA", "1"): [3], (None, None): [4]})
    return TABLE


@contextmanager
def engine(url: str) -> Iterator[Table]:
    """The table as PyIceberg changes it."""
    with sql_catalog(url) as iceberg:
        yield iceberg.load_table(TABLE)


def names(catalog: Catalog, expression: str | None = None) -> list[str]:
    found = catalog.get_table(TABLE)
    return sorted(each.name(found) for each in catalog.get_partitions(TABLE, expression))


def rows(*values: tuple[Any, ...]) -> pa.Table:
    schema = pa.schema([("v", pa.int32()), ("origin", pa.string()), ("month", pa.int32())])
    return pa.Table.from_pylist([dict(zip(schema.names, value, strict=True)) for value in values], schema)


def test_appends_add_and_extend_partitions(catalog: Catalog, catalog_url: str, table: str) -> None:
    with engine(catalog_url) as iceberg:
        iceberg.append(rows((5, "JFK", 1), (6, "a/b=é", 2), (7, None, 3), (8, None, None)))
    [found] = catalog.get_partitions(table, "origin = 'a/b=é' and month = 2")
    assert (found.file_count, found.row_count) == (1, 1)
    assert [row[0] for row in stored_rows(catalog, table)] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert len(names(catalog)) == 5


def test_commits_are_followed_after_an_engine_has_deleted_the_published_metadata(
    catalog: Catalog, catalog_url: str, table: str
) -> None:
    with engine(catalog_url) as iceberg:
        before = iceberg.metadata_location
        iceberg.append(rows((5, "JFK", 1), (6, "SFO", 2)))
        iceberg.delete("origin = 'LGA'")
        ids = [snapshot.snapshot_id for snapshot in iceberg.snapshots()]
        iceberg.maintenance.expire_snapshots().by_ids(ids[:-1]).commit()
    Path(before.removeprefix("file://")).unlink()
    assert [row[0] for row in stored_rows(catalog, table)] == [1, 2, 4, 5, 6]
    assert names(catalog, "origin = 'LGA'") == []
    check_partitions(catalog, table)


def test_a_new_partition_is_found_by_its_values(catalog: Catalog, catalog_url: str, table: str) -> None:
    with engine(catalog_url) as iceberg:
        iceberg.append(rows((5, "SFO", 1)))
    assert catalog.get_partition(table, ("SFO", "1")).row_count == 1
    with engine(catalog_url) as iceberg:
        iceberg.append(rows((6, "SFO", 2)))
    assert catalog.drop_partition(table, {"origin": "SFO", "month": "2"}) == 1
    with engine(catalog_url) as iceberg:
        iceberg.append(rows((7, "SFO", 3)))
    altered = catalog.alter_partition(table, {"origin": "SFO", "month": "3"}, properties={"owner": "ann"})
    assert altered.properties == {"owner": "ann"}


def test_deletes_and_overwrites_drop_and_shrink_partitions(catalog: Catalog, catalog_url: str, table: str) -> None:
    with engine(catalog_url) as iceberg:
        iceberg.delete("origin = 'LGA'")
        iceberg.delete("v = 1")
    assert names(catalog, "month = 1") == ["origin=JFK/month=1"]
    assert [row[0] for row in stored_rows(catalog, table)] == [2, 4]
    with engine(catalog_url) as iceberg:
        iceberg.overwrite(rows((9, "SFO", 7)))
    # Calve's own commit takes in what precedes it.
    append(catalog, "two", table, {("JFK", "1"): [10]})
    assert stored_rows(catalog, table) == [(10, "JFK", 1), (9, "SFO", 7)]
    with engine(catalog_url) as iceberg:
        iceberg.append(rows((11, "JFK", 1)))
    assert catalog.drop_partitions(table, "origin = 'JFK'") == 1
    assert stored_rows(catalog, table) == [(9, "SFO", 7)]


def test_a_roll_back_brings_partitions_back(catalog: Catalog, catalog_url: str, table: str) -> None:
    with engine(catalog_url) as iceberg:
        first = iceberg.metadata.current_snapshot_id
    assert first is not None
    catalog.drop_partitions(table, "origin = 'JFK'")
    with engine(catalog_url) as iceberg:
        iceberg.manage_snapshots().rollback_to_snapshot(first).commit()
    assert names(catalog, "month = 1 and origin = 'JFK'") == ["origin=JFK/month=1"]
    assert [row[0] for row in stored_rows(catalog, table)] == [1, 2, 3, 4]


def test_columns_of_engines_are_followed_and_keys_are_not(catalog: Catalog, catalog_url: str, table: str) -> None:
    with engine(catalog_url) as iceberg, iceberg.update_schema() as update:
        update.add_column("w", StringType())
        update.rename_column("v", "value")
    assert names(catalog, "origin = 'LGA'") == ["origin=LGA/month=1"]
    found = catalog.get_table(table)
    assert [column.name for column in found.columns] == ["value", "w"]
    assert found.key_names == ("origin", "month")
    with engine(catalog_url) as iceberg, iceberg.update_schema() as update:
        update.rename_column("origin", "airport")
    with pytest.raises(UnsupportedCommitError, match="partition key origin has changed"):
        catalog.drop_partitions(table)


@pytest.mark.parametrize("value", ["", "\x01"])
def test_partitions_that_the_catalog_cannot_have_are_refused(
    catalog: Catalog, catalog_url: str, table: str, value: str
) -> None:
    with engine(catalog_url) as iceberg:
        iceberg.append(rows((5, value, 1)))
    with pytest.raises(UnsupportedCommitError, match=r"stands for null|index 'by_month'"):
        names(catalog)
    with pytest.raises(UnsupportedCommitError, match=r"stands for null|index 'by_month'"):
        append(catalog, "two", table, {("JFK", "1"): [6]})


def test_keys_of_other_types_are_found_by_their_records(catalog: Catalog) -> None:
    kinds = {"d": "date", "m": "decimal(7,2)", "f": "double", "b": "boolean", "t": "timestamp", "s": "smallint"}
    catalog.create_table(TABLE, columns=[("v", "int")], partition_keys=list(kinds.items()), format="iceberg")
    day = (date(1500, 2, 28) - date(1970, 1, 1)).days
    record = (day, Decimal("-1.50"), 0.1, True, -1, -5)
    assert values_of(catalog.get_table(TABLE), record) == (
        *("1500-02-28", "-1.50", "0.1", "true"),
        *("1969-12-31 23:59:59.999999", "-5"),
    )


@pytest.mark.parametrize("value", ["", "__HIVE_DEFAULT_PARTITION__"])
def test_values_that_stand_for_null_are_refused(catalog: Catalog, table: str, value: str) -> None:
    with pytest.raises(PartitionValueError, match="stands for null"):
        values_of(catalog.get_table(table), (value, 1))
    check_partitions(catalog, table)


def test_a_purge_deletes_the_files_of_engines_too(catalog: Catalog, catalog_url: str, table: str) -> None:
    with engine(catalog_url) as iceberg:
        iceberg.append(rows((5, "JFK", 1), (6, None, 2)))
    location = Path(catalog.get_table(table).location)
    catalog.drop_table(table, purge=True)
    assert not location.exists()
