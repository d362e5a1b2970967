"""Fields that a client of one door sets are there for clients of the others, whose other changes keep them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import TimestampType

from catalog import Catalog
from catalog.iceberg.types import convert
from catalog.settings.table_config import read_table_list
from catalog.statements.session import Session
from tests.support.glue_door import serving_glue, table_input
from tests.support.hms_door import HmsDoor, partition, table

ANSWERED = (
    "DatabaseName",
    *("CreateTime", "UpdateTime", "CatalogId", "VersionId"),
    *("IsRegisteredWithLakeFormation", "CreatedBy", "CreationTime", "TableName"),
)


@pytest.fixture
def hive(catalog: Catalog, tmp_path: Path) -> Iterator[Any]:
    (tmp_path / "hms").mkdir()
    with HmsDoor(catalog, tmp_path / "hms", tmp_path / "warehouse") as door, door.client() as client:
        yield client


@pytest.fixture
def glue(catalog: Catalog, tmp_path: Path) -> Iterator[Any]:
    (tmp_path / "glue").mkdir()
    with serving_glue(catalog, tmp_path / "glue") as door:
        yield door.client()


def input_of(answer: dict[str, Any]) -> dict[str, Any]:
    """Return what a client can write of an answer of Glue."""
    return {name: value for name, value in answer.items() if name not in ANSWERED}


def touch(client: Any, name: str, **parameters: str) -> None:
    """Add parameters to a table as clients do: read, change, write."""
    entry = client.get_table("demo", name)
    entry.parameters.update(parameters)
    client.alter_table("demo", name, entry)


def test_a_comment_of_a_statement_is_that_of_hive_and_stays(hive: Any, glue: Any, catalog: Catalog) -> None:
    with Session(catalog, database="demo") as session:
        session.execute("CREATE TABLE t (id bigint) COMMENT 'all calves'")
        assert hive.get_table("demo", "t").parameters["comment"] == "all calves"
        assert hive.get_table_meta("demo", "t", None)[0].comments == "all calves"
        touch(hive, "t", by="me")
        assert catalog.get_table("demo.t").description == "all calves"
        assert "comment" not in catalog.get_table("demo.t").properties
        assert glue.get_table(DatabaseName="demo", Name="t")["Table"]["Description"] == "all calves"
        touch(hive, "t", comment="all cows")
        assert catalog.get_table("demo.t").description == "all cows"
        session.execute("ALTER TABLE t SET TBLPROPERTIES ('comment' = 'all')")
    assert hive.get_table("demo", "t").parameters["comment"] == "all"
    entry = hive.get_table("demo", "t")
    del entry.parameters["comment"]
    hive.alter_table("demo", "t", entry)
    assert catalog.get_table("demo.t").description is None
    assert "comment" not in hive.get_table("demo", "t").parameters


def test_a_comment_of_hive_is_a_description(hive: Any, glue: Any, catalog: Catalog) -> None:
    hive.create_table(table("demo", "t", parameters={"comment": "hello"}))
    touch(hive, "t", by="me")
    shown = glue.get_table(DatabaseName="demo", Name="t")["Table"]
    assert (shown["Description"], shown["Parameters"]["comment"]) == ("hello", "hello")
    touch(hive, "t", comment="bye")
    shown = glue.get_table(DatabaseName="demo", Name="t")["Table"]
    assert (shown["Description"], shown["Parameters"]["comment"]) == ("bye", "bye")
    assert catalog.get_table("demo.t").description == "bye"


@pytest.mark.parametrize(
    "fields",
    [
        {"Description": "one"},
        {"Description": "one", "Parameters": {"comment": "other"}},
        {"Parameters": {"comment": "other"}},
        {"Description": "", "Parameters": {"comment": ""}},
    ],
    ids=str,
)
def test_descriptions_and_comments_of_glue_stay(hive: Any, glue: Any, tmp_path: Path, fields: dict[str, Any]) -> None:
    given = table_input("t", location=str(tmp_path / "t"), **fields)
    glue.create_table(DatabaseName="demo", TableInput=given)
    before = glue.get_table(DatabaseName="demo", Name="t")["Table"]
    assert before.get("Description") == given.get("Description")
    assert before["Parameters"] == given.get("Parameters", {})
    comment = given.get("Parameters", {}).get("comment", given.get("Description"))
    assert hive.get_table("demo", "t").parameters["comment"] == comment
    touch(hive, "t", by="me")
    after = glue.get_table(DatabaseName="demo", Name="t")["Table"]
    assert after.get("Description") == before.get("Description")
    assert after["Parameters"].get("comment") == before["Parameters"].get("comment")


def test_fields_that_only_glue_has_survive_changes_by_hive(hive: Any, glue: Any, tmp_path: Path) -> None:
    given = table_input("t", {"k": "string"}, location=str(tmp_path / "t"), LastAnalyzedTime=1_600_000_000)
    descriptor = given["StorageDescriptor"]
    descriptor["AdditionalLocations"] = [str(tmp_path / "more")]
    descriptor["Columns"] = [
        {"Name": "id", "Type": "bigint", "Parameters": {"p": "1"}},
        {"Name": "gone", "Type": "int", "Parameters": {"p": "2"}},
    ]
    descriptor["SkewedInfo"] = {"SkewedColumnNames": ["id"], "SkewedColumnValues": ["odd"]}
    given["PartitionKeys"][0]["Parameters"] = {"q": "3"}
    glue.create_table(DatabaseName="demo", TableInput=given)
    of_partition = {"Values": ["v"], "StorageDescriptor": {**descriptor, "Location": str(tmp_path / "t" / "k=v")}}
    glue.create_partition(
        DatabaseName="demo", TableName="t", PartitionInput={**of_partition, "LastAnalyzedTime": 1_600_000_000}
    )

    def shown() -> tuple[dict[str, Any], dict[str, Any]]:
        part = glue.get_partition(DatabaseName="demo", TableName="t", PartitionValues=["v"])["Partition"]
        return input_of(glue.get_table(DatabaseName="demo", Name="t")["Table"]), input_of(part)

    before = shown()
    touch(hive, "t", transient_lastDdlTime="7")
    entry = hive.get_partition("demo", "t", ["v"])
    entry.parameters["by"] = "me"
    hive.alter_partition("demo", "t", entry)
    table_after, partition_after = shown()
    assert table_after == {**before[0], "Parameters": {**before[0]["Parameters"], "transient_lastDdlTime": "7"}}
    assert partition_after == {**before[1], "Parameters": {"by": "me"}}

    changed = hive.get_table("demo", "t")
    removed = changed.sd.cols.pop()
    hive.alter_table("demo", "t", changed)
    changed.sd.cols.append(removed)
    hive.alter_table("demo", "t", changed)
    columns = glue.get_table(DatabaseName="demo", Name="t")["Table"]["StorageDescriptor"]["Columns"]
    assert [column.get("Parameters") for column in columns] == [{"p": "1"}, None]


def test_fields_that_only_hive_has_survive_changes_by_glue(hive: Any, glue: Any) -> None:
    given = table("demo", "t", {"k": "string"}, ownerType=2, accessType=8)
    given.sd.serdeInfo.description = "reads"
    hive.create_table(given)
    hive.add_partition(partition("demo", "t", ["v"], sd=given.sd))
    before = hive.get_table("demo", "t")
    written = input_of(glue.get_table(DatabaseName="demo", Name="t")["Table"])
    glue.update_table(DatabaseName="demo", TableInput={**written, "Retention": 9})
    before.retention = 9
    assert hive.get_table("demo", "t") == before


SPELLINGS = {
    **{"long": "bigint", "short": "smallint", "byte": "tinyint", "integer": "int", "real": "float"},
    **{"double precision": "double", "dec": "decimal(10,0)", "numeric(7, 2)": "decimal(7,2)", "Char( 3 )": "char(3)"},
    **{name: name for name in ("boolean", "string", "date", "timestamp", "varchar(9)", "decimal(38,10)", "tinyint")},
}
NESTED = {
    "binary": "binary",
    "array<long>": "array<bigint>",
    "map<string, short>": "map<string,smallint>",
    "struct<a:real,b:array<integer>>": "struct<a:float,b:array<int>>",
}


def test_types_have_the_names_that_all_clients_know(hive: Any, glue: Any, catalog: Catalog, tmp_path: Path) -> None:
    keys = {f"k{number}": text for number, text in enumerate(SPELLINGS)}
    columns = {f"c{number}": text for number, text in enumerate({**SPELLINGS, **NESTED})}
    expected = dict(zip((*columns, *keys), (*{**SPELLINGS, **NESTED}.values(), *SPELLINGS.values()), strict=True))
    entry = {"source": "/raw", "keys": keys, "columns": columns}
    (tmp_path / "tables.yaml").write_text(json.dumps({"tables": {"demo.t": entry}}))
    config = read_table_list(tmp_path / "tables.yaml").get("demo.t")
    assert {**config.columns, **config.keys} == expected  # type: ignore[union-attr]
    catalog.create_table("demo.t", columns=list(columns.items()), partition_keys=list(keys.items()))
    stored = catalog.get_table("demo.t")
    assert {column.name: column.type for column in (*stored.columns, *stored.partition_keys)} == expected
    of_hive = hive.get_table("demo", "t")
    assert {field.name: field.type for field in (*of_hive.sd.cols, *of_hive.partitionKeys)} == expected
    of_glue = glue.get_table(DatabaseName="demo", Name="t")["Table"]
    fields = (*of_glue["StorageDescriptor"]["Columns"], *of_glue["PartitionKeys"])
    assert {field["Name"]: field["Type"] for field in fields} == expected
    # A client takes it as the definition of another table; a metastore refuses names that Hive does not know.
    of_hive.tableName, of_hive.sd.location = "u", f"{of_hive.sd.location}_u"
    hive.create_table(of_hive)
    given = input_of(of_glue)
    storage = {**given["StorageDescriptor"], "Location": f"{given['StorageDescriptor']['Location']}_v"}
    moved = {**given, "StorageDescriptor": storage}
    glue.create_table(DatabaseName="demo", TableInput={**moved, "Name": "v", "Description": "v"})
    for text in expected.values():
        assert convert(text, TimestampType()).name == text.partition("<")[0]
