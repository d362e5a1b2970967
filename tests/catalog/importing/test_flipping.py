"""Flips of Glue entries: PyIceberg reads the flipped entry, and a revert restores the old one exactly."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from catalog import Catalog
from catalog.errors import (
    InvalidSourceError,
    ReservedPropertyError,
    SourceEntryChangedError,
    UnsupportedSourceTableError,
)
from catalog.importing.flipping import SourceFlip, entry_of, flip_source, prepare_flip, restore_source
from catalog.metastores.source import Source, open_source
from catalog.model.identifiers import TableName
from catalog.statements.session import Session
from catalog.tables.own_properties import SNAPSHOT_OF, SOURCE_PROPERTY, TARGET_PROPERTY
from tests.support.glue_endpoint import GlueEndpoint, columns, storage

NAME = TableName("sales", "orders")
TIMES = ("CreateTime", "UpdateTime", "VersionId")


@pytest.fixture
def location(tmp_path: Path) -> str:
    return f"file:{tmp_path}/orders"


@pytest.fixture
def source(glue: GlueEndpoint, location: str) -> Iterator[Source]:
    """The endpoint with a partitioned table."""
    glue.client.create_database(DatabaseInput={"Name": "sales"})
    glue.create_table(
        "sales",
        "orders",
        TableType="MANAGED_TABLE",
        Description="All orders",
        Owner="me",
        Retention=7,
        StorageDescriptor=storage(location, BucketColumns=["id"], NumberOfBuckets=4, Compressed=False),
        PartitionKeys=columns(("day", "date")),
        Parameters={"owner.team": "sales", "classification": "parquet"},
    )
    days = [{"Values": ["2024-01-01"], "StorageDescriptor": storage(f"{location}/day=2024-01-01"), "Parameters": {}}]
    glue.add_partitions("sales", "orders", iter(days))
    with open_source(glue_address(glue)) as opened:
        yield opened


def glue_address(glue: GlueEndpoint) -> Any:
    from catalog.metastores.address import SourceAddress

    return SourceAddress.parse(glue.source())[0]


@pytest.fixture
def metadata_location(tmp_path: Path, location: str) -> str:
    """The metadata file of an Iceberg table at the table's location."""
    catalog = SqlCatalog("made", uri=f"sqlite:///{tmp_path}/made.db", warehouse=str(tmp_path))
    catalog.create_namespace("sales")
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
    return catalog.create_table("sales.orders", schema, location=location).metadata_location


def table_of(glue: GlueEndpoint) -> dict[str, Any]:
    found = glue.client.get_table(DatabaseName="sales", Name="orders")["Table"]
    return {name: value for name, value in found.items() if name not in TIMES}


def test_the_entry_is_icebergs_and_then_again_what_it_was(
    glue: GlueEndpoint, source: Source, metadata_location: str, location: str
) -> None:
    before = table_of(glue)
    flip = prepare_flip(source, NAME, metadata_location, location=location)
    assert table_of(glue) == before
    flip = SourceFlip.from_json(json.loads(json.dumps(flip.as_json())))
    assert flip_source(source, flip)
    assert not flip_source(source, flip)
    catalog = GlueCatalog("glue", client=glue.client)
    assert catalog.load_table("sales.orders").metadata_location == metadata_location
    flipped = table_of(glue)
    assert flipped["TableType"] == "EXTERNAL_TABLE"
    assert flipped["Parameters"] == {
        "owner.team": "sales",
        "classification": "parquet",
        "EXTERNAL": "TRUE",
        "table_type": "ICEBERG",
        "metadata_location": metadata_location,
    }
    assert not flipped.get("PartitionKeys")
    assert set(flipped["StorageDescriptor"]) == {"Columns", "Location"}
    assert restore_source(source, flip)
    assert not restore_source(source, flip)
    assert table_of(glue) == before
    assert [each.values for page in source.partitions(NAME) for each in page] == [("2024-01-01",)]


def test_an_entry_that_somebody_else_changed_is_left_alone(
    glue: GlueEndpoint, source: Source, metadata_location: str, location: str
) -> None:
    flip = prepare_flip(source, NAME, metadata_location, location=location)
    changed = {name: value for name, value in table_of(glue).items() if name not in ("DatabaseName", "CatalogId")}
    glue.client.update_table(DatabaseName="sales", TableInput={**changed, "Description": "Changed"})
    before = table_of(glue)
    with pytest.raises(SourceEntryChangedError, match="Description changed since; nothing was written"):
        flip_source(source, flip)
    assert table_of(glue) == before


def test_what_iceberg_has_committed_since_is_only_lost_by_force(
    glue: GlueEndpoint, source: Source, metadata_location: str, location: str
) -> None:
    before = table_of(glue)
    flip = prepare_flip(source, NAME, metadata_location, location=location)
    flip_source(source, flip)
    table = GlueCatalog("glue", client=glue.client).load_table("sales.orders")
    with table.transaction() as transaction:
        transaction.set_properties(later="yes")
    with pytest.raises(SourceEntryChangedError, match=r"Parameters\.metadata_location"):
        restore_source(source, flip)
    assert table_of(glue)["Parameters"]["metadata_location"] != metadata_location
    assert restore_source(source, flip, is_forced=True)
    assert table_of(glue) == before


def test_what_is_no_hive_table_is_not_flipped(
    glue: GlueEndpoint, source: Source, metadata_location: str, location: str
) -> None:
    flip_source(source, prepare_flip(source, NAME, metadata_location, location=location))
    with pytest.raises(UnsupportedSourceTableError, match="is an Iceberg table"):
        prepare_flip(source, NAME, metadata_location, location=location)
    glue.create_table("sales", "view", TableType="VIRTUAL_VIEW", ViewOriginalText="SELECT 1")
    with pytest.raises(UnsupportedSourceTableError, match="is a view"):
        prepare_flip(source, TableName("sales", "view"), metadata_location, location=location)


def test_a_version_that_glue_has_not_any_more_is_a_conflict(
    glue: GlueEndpoint, source: Source, metadata_location: str, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Moto accepts all versions, so Glue's response is simulated."""
    from botocore.exceptions import ClientError

    sent: list[dict[str, Any]] = []

    def refuse(**arguments: Any) -> None:
        sent.append(arguments)
        raise ClientError({"Error": {"Code": "ConcurrentModificationException", "Message": "no"}}, "UpdateTable")

    flip = prepare_flip(source, NAME, metadata_location, location=location)
    monkeypatch.setattr(source._client, "update_table", refuse)  # type: ignore[attr-defined]
    with pytest.raises(SourceEntryChangedError, match="changed concurrently"):
        flip_source(source, flip)
    assert sent[0]["VersionId"] == "1"


def test_an_imported_table_knows_its_entry(catalog: Catalog, glue: GlueEndpoint, source: Source) -> None:
    catalog.create_database("sales")
    catalog.imports.import_table(glue.source(), NAME)
    assert entry_of(catalog.get_table(str(NAME))) == (source.address, NAME)
    table = catalog.create_table("demo.own", columns=[("id", "int")])
    assert entry_of(table) is None
    with pytest.raises(InvalidSourceError, match="does not name a table; import it again"):
        entry_of(replace(table, properties={SOURCE_PROPERTY: "hms://x/sales"}))


def test_an_entry_with_another_location_is_not_flipped(
    glue: GlueEndpoint, source: Source, metadata_location: str, location: str
) -> None:
    with pytest.raises(SourceEntryChangedError, match=r"has the location file:.*/orders, .* catalog .*/mine"):
        prepare_flip(source, NAME, metadata_location, location=location.replace("orders", "mine"))
    prepare_flip(source, NAME, metadata_location, location=location.replace("file:", "file://"))


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE demo.mine (id int) STORED AS PARQUET TBLPROPERTIES ('owner'='eve', '{name}'='{value}')",
        "CREATE VIEW demo.mine TBLPROPERTIES ('{name}'='{value}') AS SELECT 1 AS id",
        "ALTER TABLE demo.own SET TBLPROPERTIES ('{name}'='{value}')",
        "ALTER TABLE demo.own UNSET TBLPROPERTIES IF EXISTS ('{name}')",
    ],
)
@pytest.mark.parametrize("name", [SOURCE_PROPERTY, SNAPSHOT_OF, " Calve.Source"])
def test_no_statement_changes_where_a_table_came_from(catalog: Catalog, statement: str, name: str) -> None:
    catalog.create_table("demo.own", columns=[("id", "int")])
    before = catalog.list_tables()
    with Session(catalog) as session, pytest.raises(ReservedPropertyError, match="is reserved") as refusal:
        session.execute(statement.format(name=name, value="glue://eu-west-1/prod.payroll"))
    assert refusal.value.name == name
    assert refusal.value.position is not None
    assert catalog.list_tables() == before
    catalog.alter_table("demo.own", properties={TARGET_PROPERTY: "1000"})


def test_the_statement_that_creates_an_imported_table_runs(
    catalog: Catalog, glue: GlueEndpoint, source: Source
) -> None:
    catalog.create_database("sales")
    catalog.imports.import_table(glue.source(), NAME)
    with Session(catalog) as session:
        [[text]] = session.execute(f"SHOW CREATE TABLE {NAME}").rows
        assert "calve." not in text
        catalog.drop_table(str(NAME))
        session.execute(text)
    assert entry_of(catalog.get_table(str(NAME))) is None
