"""PyIceberg works on tables through the REST door; Calve's own tables are there, too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceNotEmptyError,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from catalog import Catalog
from catalog.errors import AlreadyExistsError, DatabaseNotEmptyError, IcebergTableError, TableNotFoundError
from catalog.model import Column
from catalog.schemes.ranges import RangeScheme
from catalog.tables.schemes import scheme_from_properties
from tests.support.object_store import ObjectStore
from tests.support.rest_server import rest_server

ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "note": ["a", "b"]})


def make_scheme_table(catalog: Catalog, name: str = "demo.visits") -> None:
    scheme = scheme_from_properties(Column("id", "bigint"), {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "10, 20"})
    assert isinstance(scheme, RangeScheme)
    catalog.create_table(name, columns=[("note", "string"), ("id", "bigint")], scheme=scheme)


@pytest.mark.smoke
def test_a_table_is_written_changed_and_dropped(catalog: Catalog, rest: RestCatalog) -> None:
    table = rest.create_table("demo.notes", ROWS.schema)
    table.append(ROWS)
    table.overwrite(ROWS.slice(0, 1))
    with table.update_schema() as update:
        update.add_column("country", StringType())
    with table.update_spec() as spec:
        spec.add_identity("country")
    table.append(ROWS.append_column("country", pa.array(["de", "nl"])))
    read = rest.load_table("demo.notes").scan().to_arrow().sort_by("id")
    assert read.num_rows == 3
    assert rest.list_tables("demo") == [("demo", "notes")]

    rest.rename_table("demo.notes", "demo.remarks")
    assert rest.table_exists("demo.remarks")
    with pytest.raises(NamespaceNotEmptyError, match="still has Iceberg tables"):
        rest.drop_namespace("demo")
    location = Path(rest.load_table("demo.remarks").location().removeprefix("file://"))
    rest.purge_table("demo.remarks")
    assert not location.exists()
    with pytest.raises(NoSuchTableError):
        rest.load_table("demo.remarks")


def test_values_of_a_dropped_column_do_not_come_back_with_the_commit_of_its_name(
    catalog: Catalog, rest: RestCatalog
) -> None:
    make_scheme_table(catalog)
    table = rest.load_table("demo.visits")
    path = Path(table.location().removeprefix("file://"), "without_ids.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"note": ["dropped", "deleted"], "id": pa.array([1, 3], pa.int64())}), path)
    table.add_files([str(path)])
    catalog.alter_table("demo.visits", drop_columns=["note"])
    table.refresh()
    with table.update_schema() as update:
        update.add_column("note", StringType())
    again = rest.load_table("demo.visits")
    assert again.scan().to_arrow()["note"].to_pylist() == [None, None]
    again.append(pa.table({"id": pa.array([2], pa.int64()), "note": ["new"]}))
    again.delete("id = 3")
    read = rest.load_table("demo.visits").scan().to_arrow().sort_by("id")
    assert read["note"].to_pylist() == [None, "new"]
    assert len(catalog.scan_files("demo.visits").files) == 2
    assert rest.load_table("demo.visits").scan().to_arrow().sort_by("id") == read


def test_statements_and_the_catalog_see_an_engines_table(catalog: Catalog, rest: RestCatalog) -> None:
    rest.create_table("demo.notes", ROWS.schema, properties={"comment": "from elsewhere"}).append(ROWS)
    table = catalog.get_table("demo.Notes")
    assert table.is_only_iceberg
    assert [(column.name, column.type) for column in table.columns] == [("id", "bigint"), ("note", "string")]
    assert table.description == "from elsewhere"
    assert [listed.full_name for listed in catalog.list_tables("demo")] == ["demo.notes"]
    with pytest.raises(IcebergTableError, match="Iceberg table of other engines"):
        catalog.alter_table("demo.notes", add_columns=[("x", "int")])
    with pytest.raises(DatabaseNotEmptyError):
        catalog.drop_database("demo")
    assert catalog.alter_table("demo.notes", rename_to="remarks").full_name == "demo.remarks"
    assert rest.load_table("demo.remarks").scan().to_arrow().num_rows == 2
    catalog.drop_table("demo.remarks", purge=True)
    with pytest.raises(TableNotFoundError):
        catalog.get_table("demo.remarks")
    assert not rest.table_exists("demo.remarks")


def test_dropping_a_database_drops_engines_tables(catalog: Catalog, rest: RestCatalog) -> None:
    rest.create_table("demo.notes", ROWS.schema)
    assert [table.full_name for table in catalog.drop_database("demo", cascade=True)] == ["demo.notes"]
    assert rest.list_namespaces() == []


@pytest.mark.smoke
def test_an_append_to_a_table_with_a_scheme_is_taken_in(catalog: Catalog, rest: RestCatalog) -> None:
    make_scheme_table(catalog)
    assert rest.list_tables("demo") == [("demo", "visits")]
    rest.load_table("demo.visits").append(pa.table({"note": ["a", "b"], "id": pa.array([1, 15], pa.int64())}))
    rest.load_table("demo.visits").append(pa.table({"note": ["c"], "id": pa.array([12], pa.int64())}))
    table = catalog.get_table("demo.visits")
    assert table.live_location == table.published_location
    partitions = catalog.scheme_partitions("demo.visits")
    assert sum(partition.row_count for partition in partitions) == 3

    rest.create_namespace("other")
    with pytest.raises(RESTError, match="managed by Calve"):
        rest.rename_table("demo.visits", "other.visits")
    rest.rename_table("demo.visits", "demo.calls")
    assert catalog.get_table("demo.calls").scheme is not None
    assert rest.load_table("demo.calls").scan().to_arrow().num_rows == 3
    rest.drop_table("demo.calls")
    with pytest.raises(TableNotFoundError):
        catalog.get_table("demo.calls")


def test_a_table_of_value_partitions_stored_as_iceberg(catalog: Catalog, rest: RestCatalog) -> None:
    catalog.create_table(
        "demo.sales", columns=[("id", "bigint")], partition_keys=[("country", "string")], format="iceberg"
    )
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "country": ["de", "nl"]})
    rest.load_table("demo.sales").append(rows)
    assert sorted(partition.values[0] for partition in catalog.get_partitions("demo.sales")) == ["de", "nl"]


def test_hive_tables_are_not_in_the_protocol_and_keep_their_names(catalog: Catalog, rest: RestCatalog) -> None:
    catalog.create_table("demo.orders", columns=[("id", "bigint")])
    assert rest.list_tables("demo") == []
    with pytest.raises(NoSuchTableError):
        rest.load_table("demo.orders")
    with pytest.raises(TableAlreadyExistsError, match="a table of Calve that is no Iceberg table"):
        rest.create_table("demo.orders", ROWS.schema)
    rest.create_table("demo.notes", ROWS.schema)
    with pytest.raises(AlreadyExistsError, match=r"Iceberg table or view demo\.notes"):
        catalog.create_table("demo.notes", columns=[("id", "bigint")])
    with pytest.raises(AlreadyExistsError, match=r"Iceberg table or view demo\.notes"):
        catalog.alter_table("demo.orders", rename_to="notes")


def test_a_transaction_that_creates_a_table_is_one_commit(rest: RestCatalog) -> None:
    with rest.create_table_transaction("demo.notes", ROWS.schema) as transaction:
        transaction.append(ROWS)
        transaction.set_properties({"k": "v"})
    table = rest.load_table("demo.notes")
    assert (table.scan().to_arrow().num_rows, table.properties["k"]) == (2, "v")
    assert table.metadata.metadata_log == []


def test_a_partitioned_table_and_a_stale_writer(rest: RestCatalog) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "note", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "note"))
    once = {"commit.retry.num-retries": "0"}
    table = rest.create_table("demo.notes", schema, partition_spec=spec, properties=once)
    stale = rest.load_table("demo.notes")
    table.append(ROWS)
    with pytest.raises(CommitFailedException, match="Requirement failed"):
        stale.append(ROWS)
    stale.refresh().append(ROWS)
    assert rest.load_table("demo.notes").scan(row_filter="note = 'a'").to_arrow().num_rows == 2


@pytest.mark.long
def test_eight_processes_that_append_at_once_lose_nothing(catalog_url: str, catalog: Catalog, address: str) -> None:
    make_scheme_table(catalog)
    RestCatalog("calve", uri=address).create_table("demo.notes", ROWS.schema)
    script = Path(__file__).parents[3] / "support" / "rest_appender.py"
    command = [sys.executable, str(script), address]
    processes = [subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, text=True) for number in range(8)]
    repeated = [json.loads(process.communicate(timeout=300)[0]) for process in processes]
    assert all(process.returncode == 0 for process in processes)
    rest = RestCatalog("calve", uri=address)
    expected = sorted(number * 100 + commit for number in range(8) for commit in range(3))
    for name in ("demo.notes", "demo.visits"):
        assert sorted(rest.load_table(name).scan().to_arrow()["id"].to_pylist()) == expected, repeated
    partitions = catalog.scheme_partitions("demo.visits")
    assert sum(partition.row_count for partition in partitions) == len(expected)


def test_tables_on_s3(catalog: Catalog, object_store: ObjectStore) -> None:
    with rest_server(catalog) as address:
        # The address of the store comes from the server, the credentials from the client's environment.
        rest = RestCatalog("calve", uri=address)
        rest.create_namespace("lake", {"location": "s3://lake/lake"})
        table = rest.create_table("lake.notes", ROWS.schema, properties={"write.metadata.compression-codec": "gzip"})
        assert table.metadata_location.startswith("s3://lake/lake/notes/metadata/00000-")
        assert table.metadata_location.endswith(".gz.metadata.json")
        table.append(ROWS)
        assert rest.load_table("lake.notes").scan().to_arrow().num_rows == 2
        assert [column.name for column in catalog.get_table("lake.notes").columns] == ["id", "note"]
        rest.purge_table("lake.notes")
        assert object_store.objects("lake/") == []
