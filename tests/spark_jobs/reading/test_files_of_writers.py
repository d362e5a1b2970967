"""Whatever paths a writer gives to the files of a table: none outside the allowed folders is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from catalog import Catalog, NewPartition
from catalog.errors import LocationNotAllowedError
from tests.support.foreign_files import SECRET, commit_path, write_secret
from tests.support.iceberg_tables import sql_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NAME = "lake.t"
UP = "/.." * 12


@pytest.mark.parametrize(
    "path",
    [
        "{data}/x\n{up}{secret}",
        "{data}/x\r{up}{secret}",
        "{data}/x\u2028{up}{secret}",
        "{data}{up}{secret}",
        "file:{data}/linked-folder/secret.parquet",
        "{data}/linked-folder/secret.parquet",
        "{data}/linked.parquet",
        "file://{data}/linked.parquet",
    ],
)
def test_no_path_of_a_file_leads_out_of_the_allowed_folders(
    spark: SparkSession,
    catalog: Catalog,
    catalog_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
) -> None:
    from spark_jobs.reading.iceberg import read_iceberg

    catalog.create_database("lake")
    data, secret = tmp_path / "lake" / "t" / "data", write_secret(tmp_path / "foreign" / "secret.parquet")
    with sql_catalog(catalog_url) as iceberg:
        iceberg.create_namespace("lake")
        schema = pa.schema([pa.field("v", pa.int32())])
        table = iceberg.create_table(NAME, schema, location=f"file://{data.parent}")
        table.append(pa.table({"v": pa.array([1], pa.int32())}))
        (data / "linked-folder").symlink_to(secret.parent)
        (data / "linked.parquet").symlink_to(secret)
        (data / "not-of-the-table").symlink_to(secret)
        monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", str(tmp_path / "lake"))
        before = catalog.get_table(NAME)
        assert [row.v for row in read_iceberg(spark, catalog, before).collect()] == [1]
        # Where everything is allowed, some of these paths lead to the file.
        commit_path(table, path.format(data=data, up=UP, secret=secret), secret.stat().st_size)
    with pytest.raises(LocationNotAllowedError, match=f"table {NAME}, which another engine has changed: "):
        read_iceberg(spark, catalog, catalog.get_table(NAME))
    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", "*")
    if "linked" in path:
        assert sorted(row.v for row in read_iceberg(spark, catalog, catalog.get_table(NAME)).collect()) == [1, SECRET]


@pytest.mark.parametrize("keys", [[("k", "int")], []])
def test_no_link_in_a_hive_style_table_leads_out_of_the_allowed_folders(
    spark: SparkSession, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: list[tuple[str, str]]
) -> None:
    from spark_jobs.reading.tables import read_table

    catalog.create_database("lake")
    table = catalog.create_table(NAME, columns=[("v", "int")], partition_keys=keys)
    secret, folder = write_secret(tmp_path / "foreign" / "secret.parquet"), Path(table.location, "k=1" if keys else "")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "linked.parquet").symlink_to(secret)
    if keys:
        catalog.add_partitions(NAME, [NewPartition(["1"])])
    assert [row.v for row in read_table(spark, NAME, catalog=catalog).collect()] == [SECRET]
    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", str(tmp_path / "lake"))
    with pytest.raises(LocationNotAllowedError, match=r"linked\.parquet is behind a symbolic link"):
        read_table(spark, NAME, catalog=catalog)
