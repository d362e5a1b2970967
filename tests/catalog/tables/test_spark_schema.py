"""Spark's copy of a table's schema, in its properties, follows the changes of columns."""

from __future__ import annotations

import json
from typing import Any

import pytest

from catalog import Catalog, Column
from catalog.model import Table
from catalog.tables.evolution import Evolution, evolved
from catalog.tables.spark_schema import column_defaults, schema_text

TABLE = "demo.t"
SCHEMA = "spark.sql.sources.schema"
INNER = {"type": "struct", "fields": [{"name": "Mixed", "type": "integer", "nullable": False, "metadata": {}}]}


def field(name: str, spark_type: Any, **metadata: str) -> dict[str, Any]:
    return {"name": name, "type": spark_type, "nullable": True, "metadata": metadata}


@pytest.fixture
def properties() -> dict[str, str]:
    fields = [
        field("Id", "integer", CURRENT_DEFAULT="7", EXISTS_DEFAULT="7"),
        field("info", INNER, comment="of Spark"),
        field("code", "string", __CHAR_VARCHAR_TYPE_STRING="char(3)"),
        field("k", "date"),
    ]
    return {
        "spark.sql.sources.provider": "parquet",
        SCHEMA: json.dumps({"type": "struct", "fields": fields}),
        f"{SCHEMA}.numPartCols": "1",
        f"{SCHEMA}.partCol.0": "k",
        "spark.sql.statistics.numRows": "3",
        "spark.sql.statistics.colStats.Id.max": "9",
        "spark.sql.statistics.colStats.code.distinctCount": "2",
    }


@pytest.fixture
def table(catalog: Catalog, properties: dict[str, str]) -> Table:
    columns = [("id", "int"), Column("info", "struct<mixed:int>", "of Spark"), ("code", "char(3)")]
    return catalog.create_table(TABLE, columns=columns, partition_keys=[("k", "date")], properties=properties)


def fields_of(table: Table) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = json.loads(schema_text(table.properties) or "")["fields"]
    return fields


def test_added_columns_are_before_the_partition_keys(catalog: Catalog, table: Table) -> None:
    before = fields_of(table)
    added = [("v", "varchar(5)"), ("m", "map<string,array<decimal(9,2)>>"), ("s", "struct<a:bigint,b:char(2)>")]
    after = catalog.alter_table(TABLE, add_columns=added)
    decimals = {"type": "array", "elementType": "decimal(9,2)", "containsNull": True}
    struct = {"type": "struct", "fields": [field("a", "long"), field("b", "string")]}
    assert fields_of(after) == [
        *before[:3],
        field("v", "string", __CHAR_VARCHAR_TYPE_STRING="varchar(5)"),
        field("m", {"type": "map", "keyType": "string", "valueType": decimals, "valueContainsNull": True}),
        field("s", struct, __CHAR_VARCHAR_TYPE_STRING="struct<a:bigint,b:char(2)>"),
        before[3],
    ]
    kept = table.properties.keys() - {SCHEMA}
    assert {name: after.properties[name] for name in kept} == {name: table.properties[name] for name in kept}


def test_changed_columns_keep_what_only_spark_knows(catalog: Catalog, table: Table) -> None:
    after = catalog.alter_table(
        TABLE,
        change_columns={"id": ("id", "bigint"), "info": ("facts", "struct<mixed:int>"), "k": ("day", "date")},
        drop_columns=["code"],
        column_order=["facts", "id"],
    )
    assert fields_of(after) == [
        field("facts", INNER),
        field("Id", "long", CURRENT_DEFAULT="7", EXISTS_DEFAULT="7"),
        field("day", "date"),
    ]
    assert after.properties[f"{SCHEMA}.partCol.0"] == "day"
    assert [name for name in after.properties if "statistics" in name] == ["spark.sql.statistics.numRows"]
    assert column_defaults(after.properties) == {"id": "7"}


def test_a_long_schema_is_stored_in_parts(catalog: Catalog, table: Table) -> None:
    columns = [(f"column_{number}", "string") for number in range(100)]
    after = catalog.alter_table(TABLE, add_columns=columns)
    parts = [
        after.properties[f"{SCHEMA}.part.{number}"] for number in range(int(after.properties[f"{SCHEMA}.numParts"]))
    ]
    assert len(parts) > 1
    assert max(map(len, parts)) == 4_000
    assert [each["name"] for each in fields_of(after)] == ["Id", "info", "code", *[name for name, _ in columns], "k"]
    again = catalog.alter_table(TABLE, drop_columns=[name for name, _ in columns])
    assert SCHEMA in again.properties
    assert not any(".part." in name or name.endswith(".numParts") for name in again.properties)


def test_a_load_that_adds_columns_changes_it_too(catalog: Catalog, table: Table) -> None:
    evolution = Evolution.between(table, evolved(table, [Column("later", "date")], {}))
    with catalog.storage.write() as connection:
        evolution.apply(
            connection, catalog._definitions, catalog._definitions.lock_table(connection, TABLE, exclusive=True)
        )
    assert [each["name"] for each in fields_of(catalog.get_table(TABLE))] == ["Id", "info", "code", "later", "k"]


def test_other_properties_do_not_change(catalog: Catalog) -> None:
    catalog.create_table(TABLE, columns=[("id", "int")], properties={"owner": "me"})
    assert catalog.alter_table(TABLE, add_columns=[("a", "int")]).properties == {"owner": "me"}
