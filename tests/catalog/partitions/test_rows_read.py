"""Look-ups read the rows that they are about, and not those of other tables, partitions and files."""

from __future__ import annotations

from sqlalchemy import insert

from catalog import Catalog, IndexDefinition
from catalog.schemes.hashing import HashScheme
from catalog.storage.schema import DataFileRow
from tests.support.partition_files import append
from tests.support.rows_read import rows_read, session

FIRST = "demo.first"
PARTITIONS, FILES = "calve_partition", "calve_data_file"


def analyse(url: str) -> None:
    with session(url) as connection:
        connection.execute("VACUUM (ANALYZE)")


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
