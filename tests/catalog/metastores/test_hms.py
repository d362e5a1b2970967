"""Importing from a real Hive Metastore, and flipping its entries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hive_metastore import ttypes

from catalog import Catalog, FileFormat
from catalog.errors import (
    SourceEntryChangedError,
    SourceError,
    SourceUnavailableError,
    TableNotFoundError,
    UnsupportedSourceTableError,
)
from catalog.importing.flipping import SourceFlip, flip_source, prepare_flip, restore_source
from catalog.importing.partitions import ImportOptions
from catalog.importing.reports import ImportOutcome
from catalog.model import Buckets, Column, TableKind
from catalog.model.identifiers import TableName
from catalog.model.partition_names import NULL_VALUE
from catalog.tables.own_properties import SOURCE_PROPERTY
from tests.support.glue_endpoint import ORC
from tests.support.hive_metastore import HiveMetastoreServer, Metastore

# Starts a JVM.
pytestmark = pytest.mark.spark

DATABASE = "sales"
NAME = TableName(DATABASE, "orders")
TABLE = str(NAME)
TIME = "transient_lastDdlTime"


@pytest.fixture
def metastore(hive_metastore: HiveMetastoreServer) -> Iterator[Metastore]:
    with hive_metastore.client() as source:
        yield Metastore(hive_metastore, source, DATABASE)
    hive_metastore.drop_database(DATABASE)


@pytest.mark.first_case
def test_tables_views_and_partitions_come_as_they_are(catalog: Catalog, metastore: Metastore) -> None:
    bucketed = metastore.storage(f"{metastore.root}/orders", bucketCols=["id"], numBuckets=4)
    metastore.create(sd=bucketed)
    metastore.create("outside", (), tableType="EXTERNAL_TABLE", parameters={"EXTERNAL": "TRUE"})
    metastore.create(
        "view",
        (),
        tableType="VIRTUAL_VIEW",
        viewOriginalText="select id from orders",
        viewExpandedText="select `orders`.`id` from `sales`.`orders`",
    )
    values = [("2024-01-01", "a b/c=d:e%2F"), ("2024-01-01", NULL_VALUE), (NULL_VALUE, "ü")]
    metastore.add(values, classes=ORC, numRows="7", by="me")
    plan, reports = catalog.imports.import_tables(metastore.address, ["sales"])
    assert [(report.table, report.outcome) for report in reports] == [
        (f"sales.{name}", ImportOutcome.CREATED) for name in ("orders", "outside", "view")
    ]
    assert plan.databases == ("sales",)
    database = catalog.get_database("sales")
    assert (database.location, database.description, database.properties) == (
        metastore.root,
        "What we sell",
        {"by": "etl"},
    )
    orders, outside, view = catalog.list_tables("sales")
    assert orders.columns == (Column("id", "bigint", "which"), Column("name", "varchar(20)"))
    assert orders.partition_keys == (Column("day", "date", "a key"), Column("s", "string", "a key"))
    assert (orders.kind, orders.format, orders.location) == (
        TableKind.EXTERNAL,
        FileFormat.PARQUET,
        f"{metastore.root}/orders",
    )
    assert (orders.description, orders.buckets) == ("All orders", Buckets(("id",), 4))
    assert orders.properties == {"owner.team": "sales", SOURCE_PROPERTY: f"{metastore.address}/sales.orders"}
    assert outside.kind is TableKind.EXTERNAL
    assert (view.kind, view.view_text) == (TableKind.VIEW, "select `orders`.`id` from `sales`.`orders`")
    found = {each.values: each for each in catalog.get_partitions(TABLE)}
    assert {each: found[each].location for each in found} == {
        ("2024-01-01", "a b/c=d:e%2F"): f"{metastore.root}/own/0",
        ("2024-01-01", None): f"{metastore.root}/own/1",
        (None, "ü"): f"{metastore.root}/own/2",
    }
    for each in found.values():
        assert (each.format, each.row_count, dict(each.properties)) == (FileFormat.ORC, 7, {"by": "me"})


def test_again_it_adds_what_is_new_and_says_what_vanished(catalog: Catalog, metastore: Metastore) -> None:
    metastore.create()
    metastore.add([("2024-01-01", str(n)) for n in range(3)])
    catalog.imports.import_tables(metastore.address, [TABLE])
    metastore.thrift.drop_partition(DATABASE, "orders", ["2024-01-01", "1"], False)
    metastore.add([("2024-01-02", "new")], where="more/")
    _, (report,) = catalog.imports.import_tables(metastore.address, [TABLE], ImportOptions(drops_vanished=True))
    counts = report.partitions
    assert report.outcome is ImportOutcome.UNCHANGED
    assert (counts.seen, counts.added, counts.changed.count, counts.dropped) == (3, 1, 0, 1)
    assert counts.vanished.first == ["day=2024-01-01/s=1"]
    assert sorted(each.values for each in catalog.get_partitions(TABLE)) == [
        ("2024-01-01", "0"),
        ("2024-01-01", "2"),
        ("2024-01-02", "new"),
    ]


@pytest.mark.parametrize("drops_vanished", [True, False])
def test_partitions_that_hive_renamed_stay_in_their_folders(
    catalog: Catalog, metastore: Metastore, drops_vanished: bool
) -> None:
    external = {"tableType": "EXTERNAL_TABLE", "parameters": {"EXTERNAL": "TRUE"}}
    metastore.create(keys=(("k", "int"),), **external)
    metastore.add([(str(n),) for n in range(4)], where="orders/k=")
    catalog.imports.import_tables(metastore.address, [TABLE])
    for old, new in (("1", "7"), ("2", "1"), ("0", "8")):
        renamed = metastore.thrift.get_partition(DATABASE, "orders", [old])
        renamed.values = [new]
        metastore.thrift.rename_partition(DATABASE, "orders", [old], renamed)
    options = ImportOptions(updates=True, drops_vanished=drops_vanished)
    _, (report,) = catalog.imports.import_tables(metastore.address, [TABLE], options)
    there = {partition.values[0]: partition.location for partition in catalog.get_partitions(TABLE)}
    folders = {key: f"{metastore.root}/orders/k={key}" for key in map(str, range(4))}
    counts = report.partitions
    assert (counts.vanished.count, counts.changed.count) == (2, 1)
    if drops_vanished:
        assert (counts.dropped, counts.updated, counts.added, counts.refused.count) == (2, 1, 2, 0)
        assert there == {"7": folders["1"], "1": folders["2"], "8": folders["0"], "3": folders["3"]}
    else:
        # Of k=1, the folder k=1 is free only for its new name; k=2 keeps its own folder from k=1.
        assert (counts.dropped, counts.updated, counts.added, counts.refused.count) == (0, 0, 0, 3)
        assert there == folders


@pytest.mark.long
def test_many_partitions_come_in_pages(catalog: Catalog, metastore: Metastore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catalog.metastores.hms.PAGE", 40)
    metastore.create(keys=(("n", "int"),))
    metastore.add([(str(n),) for n in range(100)])
    assert [len(page) for page in metastore.source.partitions(NAME)] == [40, 40, 20]
    _, (report,) = catalog.imports.import_tables(metastore.address, [TABLE])
    assert report.partitions.added == 100
    assert {each.values[0] for each in catalog.get_partitions(TABLE)} == {str(n) for n in range(100)}


def test_what_is_not_there_is_said_to_be_missing(catalog: Catalog, metastore: Metastore) -> None:
    with pytest.raises(TableNotFoundError, match=r"has no table sales\.orders"):
        catalog.imports.plan(metastore.address, [TABLE])
    with pytest.raises(TableNotFoundError, match=r"hms://.* has no table sales\.orders"):
        catalog.imports.import_table(metastore.address, TABLE)
    metastore.create()
    entry = metastore.source.entry(NAME)
    keys = {"8": {"lst": ["rec", 0]}}
    with pytest.raises(SourceError, match="partition keys can not be changed"):
        metastore.source.replace_entry(NAME, entry, entry | keys)


# --- flipping -------------------------------------------------------------------------------------------------------


@pytest.fixture
def iceberg(metastore: Metastore, tmp_path: Path) -> str:
    """The metadata file of an Iceberg table."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField

    made = SqlCatalog("made", uri=f"sqlite:///{tmp_path}/made.db", warehouse=str(tmp_path))
    made.create_namespace(DATABASE)
    return made.create_table(TABLE, Schema(NestedField(1, "id", LongType()))).metadata_location


@pytest.mark.parametrize("kind", ["MANAGED_TABLE", "EXTERNAL_TABLE"])
def test_the_entry_is_icebergs_and_then_again_what_it_was(metastore: Metastore, iceberg: str, kind: str) -> None:
    from pyiceberg.catalog.hive import HiveCatalog

    external = {"EXTERNAL": "TRUE"} if kind == "EXTERNAL_TABLE" else {}
    numbers = {"numRows": "5", "numFiles": "2", "totalSize": "99", "COLUMN_STATS_ACCURATE": '{"BASIC_STATS":"true"}'}
    sd = metastore.storage(f"{metastore.root}/orders", bucketCols=["id"], numBuckets=4)
    metastore.create(tableType=kind, parameters={"x": "yäö", **numbers, **external}, sd=sd)
    metastore.add([("2024-01-01", "a"), ("2024-01-01", "b")])
    before, source = metastore.table(), metastore.source
    partitions = metastore.thrift.get_partitions(DATABASE, "orders", -1)
    flip = prepare_flip(source, NAME, iceberg, location=f"{metastore.root}/orders")
    assert metastore.table() == before
    flip = SourceFlip.from_json(json.loads(json.dumps(flip.as_json())))
    assert str(flip.source) == metastore.address
    assert flip_source(source, flip)
    assert not flip_source(source, flip)
    catalog = HiveCatalog("hive", uri=f"thrift{metastore.address.removeprefix('hms')}")
    assert catalog.load_table(TABLE).metadata_location == iceberg
    flipped = metastore.table()
    assert flipped.tableType == "EXTERNAL_TABLE"
    said = {"EXTERNAL": "TRUE", "table_type": "ICEBERG", "metadata_location": iceberg}
    assert flipped.parameters == {**before.parameters, **said}
    assert flipped.sd.inputFormat == "org.apache.hadoop.mapred.FileInputFormat"
    assert flipped.sd.outputFormat == "org.apache.hadoop.mapred.FileOutputFormat"
    assert flipped.sd.serdeInfo.serializationLib == "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
    with pytest.raises(UnsupportedSourceTableError, match="is an Iceberg table"):
        prepare_flip(source, NAME, iceberg, location=f"{metastore.root}/orders")
    assert restore_source(source, flip)
    assert not restore_source(source, flip)
    assert metastore.table() == before
    assert metastore.thrift.get_partitions(DATABASE, "orders", -1) == partitions


def test_folders_of_skewed_values_return_with_the_entry(metastore: Metastore, iceberg: str) -> None:
    sd = metastore.storage(f"{metastore.root}/orders")
    sd.skewedInfo = ttypes.SkewedInfo(["id"], [["1"], ["2"]], {("2",): f"{metastore.root}/orders/two"})
    metastore.create(sd=sd)
    before, source = metastore.table(), metastore.source
    assert before.sd.skewedInfo.skewedColValueLocationMaps == sd.skewedInfo.skewedColValueLocationMaps
    flip = prepare_flip(source, NAME, iceberg, location=f"{metastore.root}/orders")
    flip = SourceFlip.from_json(json.loads(json.dumps(flip.as_json())))
    assert flip_source(source, flip)
    assert restore_source(source, flip)
    assert metastore.table() == before


def test_an_entry_that_somebody_else_changed_is_left_alone(metastore: Metastore, iceberg: str) -> None:
    metastore.create()
    flip = prepare_flip(metastore.source, NAME, iceberg, location=f"{metastore.root}/orders")
    metastore.alter(other="yes")
    before = metastore.table()
    with pytest.raises(SourceEntryChangedError, match=r"parameters\.other changed since; nothing was written"):
        flip_source(metastore.source, flip)
    assert metastore.table() == before
    flip = prepare_flip(metastore.source, NAME, iceberg, location=f"{metastore.root}/orders")
    flip_source(metastore.source, flip)
    metastore.alter(metadata_location="elsewhere")
    with pytest.raises(SourceEntryChangedError, match=r"parameters\.metadata_location"):
        restore_source(metastore.source, flip)
    assert restore_source(metastore.source, flip, is_forced=True)
    assert metastore.table() == before


def test_the_metastore_itself_notices_a_change_between_look_and_write(metastore: Metastore, iceberg: str) -> None:
    metastore.create()
    flip = prepare_flip(metastore.source, NAME, iceberg, location=f"{metastore.root}/orders")
    metastore.alter(**{TIME: "1"})
    before = metastore.table()
    with pytest.raises(SourceEntryChangedError, match="changed concurrently"):
        metastore.source.replace_entry(NAME, flip.before, flip.after)
    assert metastore.table() == before


def test_a_flip_waits_for_who_holds_the_table(
    metastore: Metastore, iceberg: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    metastore.create()
    before, flip = metastore.table(), prepare_flip(metastore.source, NAME, iceberg, location=f"{metastore.root}/orders")
    monkeypatch.setattr("catalog.metastores.hms.LOCK_SECONDS", 0.5)
    with metastore.source.locked(NAME), pytest.raises(SourceUnavailableError, match="is locked by another client"):
        flip_source(metastore.source, flip)
    assert metastore.table() == before
    assert flip_source(metastore.source, flip)


def test_a_metastore_without_locks_is_written_all_the_same(
    metastore: Metastore, iceberg: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: Any) -> None:
        raise metastore.types.MetaException("Table/View 'HIVE_LOCKS' does not exist")

    metastore.create()
    flip = prepare_flip(metastore.source, NAME, iceberg, location=f"{metastore.root}/orders")
    monkeypatch.setattr(metastore.thrift, "lock", refuse)
    assert flip_source(metastore.source, flip)
    assert "without a lock" in caplog.text
