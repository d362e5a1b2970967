"""A NUL, which no disk can have in a name, is a value as others are; in a location, only the escaped one is."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from catalog import Catalog, NewPartition
from catalog.files.locations import location_key, reach_key
from tests.support.iceberg_tables import sql_catalog


@pytest.mark.parametrize("location", ["/a/b\0c", "/a/%00/c", "file:/a/b%00/x.parquet"])
def test_a_location_with_it_has_keys(location: str) -> None:
    assert "\0" in reach_key(location)
    assert location_key(location).startswith(b"/a/")


@pytest.mark.smoke
def test_a_writers_partition_value_disturbs_no_table(catalog: Catalog, catalog_url: str) -> None:
    for name, file_format in (("demo.named", "iceberg"), ("demo.other", "parquet")):
        keys = [("k", "string")]
        catalog.create_table(name, columns=[("v", "int")], partition_keys=keys, format=file_format)
    catalog.add_partitions("demo.other", [NewPartition(("1",))])
    with sql_catalog(catalog_url) as iceberg:
        iceberg.load_table("demo.named").append(pa.table({"v": pa.array([1], pa.int32()), "k": ["\0"]}))
    catalog.get_table("demo.named", is_strict=True)
    assert [partition.values for partition in catalog.get_partitions("demo.named")] == [("\0",)]
    assert [partition.values for partition in catalog.get_partitions("demo.named", "k > 'a'")] == []
    catalog.purge_partitions("demo.other", "k = '1'")
    catalog.drop_table("demo.other", purge=True)
    folder = Path(catalog.get_table("demo.named").location)
    catalog.drop_table("demo.named", purge=True)
    assert not folder.exists()


def test_the_folder_of_a_table_may_have_it_escaped(catalog: Catalog, tmp_path: Path) -> None:
    table = catalog.create_table("demo.t", columns=[("v", "int")], location=f"{tmp_path}/q%00b")
    assert Path(table.location) == tmp_path / "q%00b"
    catalog.drop_table("demo.t", purge=True)
