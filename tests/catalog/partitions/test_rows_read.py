"""Look-ups read the rows that they are about, and not those of other tables, partitions and files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import insert

from catalog import Catalog, IndexDefinition, NewPartition
from catalog.indexes.building import range_cuts
from catalog.partitions.queries import Queries
from catalog.partitions.reading import read_all, read_values
from catalog.partitions.seen import Seen
from catalog.schemes.hashing import HashScheme
from catalog.storage.bulk import Rows
from catalog.storage.partition_rows import newest_partition
from catalog.storage.schema import DataFileRow, PartitionRow
from tests.support.iceberg_tables import sql_catalog
from tests.support.partition_files import append
from tests.support.rows_read import rows_read, session

FIRST, LAST, OTHER = "demo.first", "demo.last", "demo.other"
EACH = 3_000
"""The number of partitions of each table."""

PARTITIONS, FILES = "calve_partition", "calve_data_file"


@pytest.fixture
def filled(postgres_url: str) -> str:
    """A catalog with three tables, filled in another order than they were made, as PostgreSQL knows."""
    with Catalog.open(postgres_url) as catalog:
        catalog.create_database("demo")
        for name in (FIRST, LAST, OTHER):
            catalog.create_table(name, columns=[("x", "int")], partition_keys=[("day", "string")])
        for name in (OTHER, FIRST, LAST):
            catalog.add_partitions(name, [NewPartition([f"2024-{number:05}"]) for number in range(EACH)])
    analyse(postgres_url)
    return postgres_url


def analyse(url: str) -> None:
    with session(url) as connection:
        connection.execute("VACUUM (ANALYZE)")


def first_values(catalog: Catalog) -> None:
    with catalog.storage.read() as connection:
        next(read_values(connection, catalog.get_table(LAST).id, page=100))


def sampled_values(catalog: Catalog) -> None:
    with catalog.storage.read() as connection:
        table = catalog.get_table(LAST)
        first = connection.scalar(newest_partition(table.id)) or 0
        read_all(connection, Queries(is_postgresql=True).values_from(table.id, range(first - 100, first)))


def newest_of_the_first(catalog: Catalog) -> None:
    with catalog.storage.read() as connection:
        connection.scalar(newest_partition(catalog.get_table(FIRST).id))


def first_batch_to_drop(catalog: Catalog) -> None:
    rows = Rows(PartitionRow, PartitionRow.table_id, (PartitionRow.id,))
    with catalog.storage.write() as connection:
        rows.delete_batch(connection, catalog.get_table(LAST).id, size=100)


FIRST_ROWS: dict[str, Callable[[Catalog], Any]] = {
    "page": lambda catalog: catalog.partition_page(LAST, limit=100),
    "values": first_values,
    "sampled values": sampled_values,
    "folders that a source lacks": lambda catalog: next(Seen(catalog.storage, catalog.get_table(LAST)).lacking(100)),
    "newest partition": newest_of_the_first,
    "batch to drop": first_batch_to_drop,
}


def test_the_first_rows_of_a_table_are_read_without_those_of_others(filled: str) -> None:
    read = {name: rows_read(filled, work, PARTITIONS) for name, work in FIRST_ROWS.items()}
    assert max(read.values()) <= 500, read


ALL_ROWS: dict[str, Callable[[Catalog], Any]] = {
    "newest partitions of a page": lambda catalog: catalog.browsing.page(FIRST, limit=100),
    "ranges of an index build": lambda catalog: range_cuts(catalog.storage, catalog.get_table(LAST), 500),
    "values for a form": lambda catalog: catalog.previews.values(LAST, "day"),
}


def test_work_on_a_whole_table_reads_no_partitions_of_others(filled: str) -> None:
    read = {name: rows_read(filled, work, PARTITIONS) for name, work in ALL_ROWS.items()}
    # The sums of a page may read the whole SQL table, of which this is a third, in one scan.
    assert max(read.values()) <= 3.1 * EACH, read


# --- files ----------------------------------------------------------------------------------------------------------


def add_files(catalog: Catalog, name: str, partition_ids: list[int], each: int) -> None:
    """Add rows of files that do not exist to partitions."""
    table = catalog.get_table(name)
    rows = [
        {
            "table_id": table.id,
            "partition_id": partition_id,
            "path": f"{partition_id}/{number}.parquet",
            "row_count": 1,
            "size_bytes": 1,
            "statistics": "{}",
            "operation_number": 1,
        }
        for partition_id in partition_ids
        for number in range(each)
    ]
    with catalog.storage.write() as connection:
        connection.execute(insert(DataFileRow), rows)


def test_files_of_a_partition_of_a_scheme_are_found_without_counting_the_others(postgres_url: str) -> None:
    with Catalog.open(postgres_url) as catalog:
        catalog.create_database("demo")
        columns = [("n", "bigint"), ("c", "bigint")]
        table = catalog.create_table(FIRST, columns=columns, scheme=HashScheme("c", "bigint", count=100))
        assert table.scheme is not None
        add_files(catalog, FIRST, list(table.scheme.ids), 20)
    analyse(postgres_url)
    found: list[int] = []
    read = rows_read(postgres_url, lambda catalog: found.append(len(catalog.scan_files(FIRST, "c = 5").files)), FILES)
    assert found == [20]
    assert read <= 100
    with Catalog.open(postgres_url) as catalog:
        assert catalog.explain_partitions(FIRST, "c = 5").as_json()["files_pruned"] == 1_980


def test_files_of_an_iceberg_partition_are_found_without_counting_the_others(postgres_url: str) -> None:
    with Catalog.open(postgres_url) as catalog:
        catalog.create_database("demo")
        catalog.create_table(
            FIRST,
            columns=[("v", "int")],
            partition_keys=[("n", "int")],
            indexes=[IndexDefinition("by_n", ("n",))],
            format="iceberg",
        )
        append(catalog, "one", FIRST, {(str(number),): [number] for number in range(100)})
        add_files(catalog, FIRST, [partition.id for partition in catalog.get_partitions(FIRST)], 20)
    analyse(postgres_url)
    found: list[int] = []

    def look_up(catalog: Catalog) -> None:
        found.append(len(catalog.scan_partition_files(FIRST, "n = 5").files))

    assert rows_read(postgres_url, look_up, FILES, PARTITIONS) <= 150
    assert found == [21]


@pytest.mark.parametrize("is_iceberg", [False, True])
def test_one_file_that_an_engine_replaces_is_followed_without_reading_the_others(
    postgres_url: str, is_iceberg: bool
) -> None:
    with Catalog.open(postgres_url) as catalog:
        catalog.create_database("demo")
        columns = [("n", "bigint"), ("c", "bigint")]
        if is_iceberg:
            indexes = [IndexDefinition("by_c", ("c",))]
            keys, columns = columns[1:], columns[:1]
            catalog.create_table(FIRST, columns=columns, partition_keys=keys, indexes=indexes, format="iceberg")
        else:
            catalog.create_table(FIRST, columns=columns, scheme=HashScheme("c", "bigint", count=100))
        add_files(catalog, FIRST, list(range(1_000, 1_100)), 30)
    found: list[int] = []

    def look_up(catalog: Catalog) -> None:
        scan = (catalog.scan_partition_files if is_iceberg else catalog.scan_files)(FIRST, "c = 5")
        found.append(sum(file.row_count for file in scan.files))

    with sql_catalog(postgres_url) as iceberg:
        table = iceberg.load_table(FIRST)
        table.append(pa.table({"n": pa.array([1, 2]), "c": pa.array([5, 5])}))
        assert rows_read(postgres_url, look_up, FILES) <= 100
        analyse(postgres_url)
        table.refresh()
        table.overwrite(pa.table({"n": pa.array([3]), "c": pa.array([5])}), "c = 5")
    assert rows_read(postgres_url, look_up, FILES) <= 100
    assert found == [2, 1]
