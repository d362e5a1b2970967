"""Fields that a client of one door sets are there for clients of the others, whose other changes keep them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog import Catalog
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
