"""Iceberg tables through PyIceberg's GlueCatalog."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.types import IntegerType

from catalog import Catalog
from tests.support.glue_door import KEYS, REGION, GlueDoor

ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["a", "b"]})
DEMO = {"DatabaseName": "demo"}


@pytest.fixture
def iceberg(door: GlueDoor, tmp_path: Path) -> GlueCatalog:
    return GlueCatalog(
        "glue",
        **{
            "glue.endpoint": door.url,
            "glue.region": REGION,
            "glue.access-key-id": "OWNER",
            "glue.secret-access-key": KEYS.keys["OWNER"].secret_key,
            "warehouse": str(tmp_path / "iceberg"),
        },
    )


def rows_of(table: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.scan().to_arrow().sort_by("id").to_pylist()
    return found


def test_a_table_lives_through_pyiceberg(iceberg: GlueCatalog, glue: Any, catalog: Catalog) -> None:
    iceberg.create_namespace("lake", {"Description": "d", "a": "b"})
    assert iceberg.load_namespace_properties("lake")["a"] == "b"
    table = iceberg.create_table("lake.orders", ROWS.schema)
    with pytest.raises(TableAlreadyExistsError):
        iceberg.create_table("lake.orders", ROWS.schema)
    table.append(ROWS)
    table.append(ROWS.slice(0, 1))
    assert len(rows_of(iceberg.load_table("lake.orders"))) == 3
    with table.update_schema() as update:
        update.add_column("more", IntegerType())
    assert [field.name for field in iceberg.load_table("lake.orders").schema().fields] == ["id", "name", "more"]
    entry = glue.get_table(DatabaseName="lake", Name="orders")["Table"]
    assert entry["TableType"] == "EXTERNAL_TABLE"
    assert entry["Parameters"]["metadata_location"] == iceberg.load_table("lake.orders").metadata_location
    assert [column["Name"] for column in entry["StorageDescriptor"]["Columns"]] == ["id", "name", "more"]
    assert glue.get_partitions(DatabaseName="lake", TableName="orders")["Partitions"] == []
    [listed] = glue.get_tables(DatabaseName="lake")["TableList"]
    assert listed == entry
    assert iceberg.list_tables("lake") == [("lake", "orders")]
    # It is a table of Calve, too.
    assert [column.name for column in catalog.get_table("lake.orders").columns] == ["id", "name", "more"]
    iceberg.rename_table("lake.orders", "lake.renamed")
    assert len(rows_of(iceberg.load_table("lake.renamed"))) == 3
    iceberg.drop_table("lake.renamed")
    with pytest.raises(NoSuchTableError):
        iceberg.load_table("lake.renamed")
    iceberg.drop_namespace("lake")


def test_only_one_of_two_commits_succeeds(iceberg: GlueCatalog) -> None:
    iceberg.create_namespace("lake")
    first = iceberg.create_table("lake.orders", ROWS.schema, properties={"commit.retry.num-retries": "0"})
    second = iceberg.load_table("lake.orders")
    first.update_schema().add_column("one", IntegerType()).commit()
    with pytest.raises(CommitFailedException):
        second.update_schema().add_column("two", IntegerType()).commit()
    assert [field.name for field in iceberg.load_table("lake.orders").schema().fields] == ["id", "name", "one"]


def test_the_version_changes_with_each_commit_and_is_compared(iceberg: GlueCatalog, glue: Any) -> None:
    iceberg.create_namespace("lake")
    table = iceberg.create_table("lake.orders", ROWS.schema)
    before = glue.get_table(DatabaseName="lake", Name="orders")["Table"]
    assert glue.get_table(DatabaseName="lake", Name="orders")["Table"]["VersionId"] == before["VersionId"]
    table.append(ROWS)
    after = glue.get_table(DatabaseName="lake", Name="orders")["Table"]
    assert after["VersionId"] != before["VersionId"]
    fields = ("Name", "TableType", "Parameters", "StorageDescriptor")
    stale = {name: before[name] for name in fields}
    with pytest.raises(ClientError, match="ConcurrentModificationException"):
        glue.update_table(DatabaseName="lake", TableInput=stale, VersionId=before["VersionId"])
    current = iceberg.load_table("lake.orders")
    assert current.metadata_location == after["Parameters"]["metadata_location"]
    assert [
        version["VersionId"]
        for version in glue.get_table_versions(DatabaseName="lake", TableName="orders")["TableVersions"]
    ] == [after["VersionId"]]


def test_an_engine_appends_to_a_table_with_a_partition_scheme(iceberg: GlueCatalog, catalog: Catalog) -> None:
    catalog.create_table(
        "demo.stored", columns=[("id", "bigint"), ("name", "string")], partition_keys=[("day", "int")], format="iceberg"
    )
    table = iceberg.load_table("demo.stored")
    table.append(pa.table({"id": pa.array([1], pa.int64()), "name": ["a"], "day": pa.array([7], pa.int32())}))
    [partition] = catalog.get_partitions("demo.stored", "day = 7")
    assert partition.values == ("7",)
    assert len(rows_of(iceberg.load_table("demo.stored"))) == 1


def test_a_writer_commits_and_does_not_redefine(iceberg: GlueCatalog, door: GlueDoor) -> None:
    iceberg.create_namespace("lake")
    iceberg.create_table("lake.orders", ROWS.schema)
    writer = GlueCatalog("glue", client=door.client("WRITER"))
    writer.load_table("lake.orders").append(ROWS)
    assert len(rows_of(writer.load_table("lake.orders"))) == 2
    reader = GlueCatalog("glue", client=door.client("READER"))
    with pytest.raises(ClientError, match="AccessDeniedException"):
        reader.load_table("lake.orders").append(ROWS)


def test_a_writer_moves_no_table(iceberg: GlueCatalog, glue: Any, door: GlueDoor, tmp_path: Path) -> None:
    iceberg.create_namespace("lake")
    table = iceberg.create_table("lake.orders", ROWS.schema)
    moved = {**json.loads(Path(table.metadata_location.removeprefix("file:")).read_text()), "location": f"{tmp_path}/x"}
    document = tmp_path / "iceberg" / "00001-x.metadata.json"
    document.write_text(json.dumps(moved))
    entry = glue.get_table(DatabaseName="lake", Name="orders")["Table"]
    named = {**entry["Parameters"], "metadata_location": str(document)}
    named["previous_metadata_location"] = table.metadata_location
    given = {name: entry[name] for name in ("Name", "TableType", "StorageDescriptor")} | {"Parameters": named}
    client = door.client("WRITER")
    with pytest.raises(ClientError, match="to move the table"):
        client.update_table(DatabaseName="lake", TableInput=given)
    given["StorageDescriptor"] = {**entry["StorageDescriptor"], "Location": f"{tmp_path}/x"}
    with pytest.raises(ClientError, match="AccessDeniedException"):
        client.update_table(DatabaseName="lake", TableInput=given)
    glue.update_table(DatabaseName="lake", TableInput=given)
    assert iceberg.load_table("lake.orders").location() == f"{tmp_path}/x"


def test_indexes_and_statistics_of_an_iceberg_table_are_refused(iceberg: GlueCatalog, glue: Any) -> None:
    iceberg.create_namespace("lake")
    iceberg.create_table("lake.orders", ROWS.schema)
    named = {"DatabaseName": "lake", "TableName": "orders"}
    for call in (
        lambda: glue.create_partition_index(**named, PartitionIndex={"IndexName": "i", "Keys": ["id"]}),
        lambda: glue.create_partition(**named, PartitionInput={"Values": ["1"]}),
        lambda: glue.get_column_statistics_for_table(**named, ColumnNames=["id"]),
    ):
        with pytest.raises(ClientError, match="is an Iceberg table"):
            call()
    assert glue.get_partition_indexes(**named)["PartitionIndexDescriptorList"] == []
    with pytest.raises(ClientError, match="Cannot find partition"):
        glue.get_partition(**named, PartitionValues=["1"])


def test_an_open_table_format_makes_an_iceberg_table(iceberg: GlueCatalog, glue: Any, tmp_path: Path) -> None:
    columns = [{"Name": "id", "Type": "bigint"}, {"Name": "name", "Type": "string"}]
    table = {"Name": "opened", "StorageDescriptor": {"Columns": columns, "Location": str(tmp_path / "opened")}}
    opened = {"IcebergInput": {"MetadataOperation": "CREATE", "Version": "2"}}
    glue.create_table(**DEMO, TableInput=table, OpenTableFormatInput=opened)
    assert glue.get_table(**DEMO, Name="opened")["Table"]["Parameters"]["table_type"] == "ICEBERG"
    iceberg.load_table("demo.opened").append(ROWS)
    assert len(rows_of(iceberg.load_table("demo.opened"))) == 2
