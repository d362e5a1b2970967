"""Databases, tables and their versions through boto3."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog import Catalog
from catalog.tables import definitions
from tests.support.effort import effort
from tests.support.glue_door import GlueDoor, table_input

DEMO = {"DatabaseName": "demo"}
KEYS = {"country": "string", "day": "int"}


def refused(call: Any, **arguments: Any) -> tuple[str, str]:
    """Return the name and the message of the error that a call raises."""
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    error = caught.value.response["Error"]
    return error["Code"], error["Message"]


# --- databases --------------------------------------------------------------------------------------------------------


def test_databases_come_back_as_they_went_in(glue: Any) -> None:
    given_database = {
        "Name": "Sales",
        "Description": "orders, and returns",
        "LocationUri": "s3://lake/sales/",
        "Parameters": {"Owner.Team": "ä", " ": ""},
        "CreateTableDefaultPermissions": [
            {"Principal": {"DataLakePrincipalIdentifier": "someone"}, "Permissions": ["ALL"]}
        ],
        "TargetDatabase": {"CatalogId": "1", "DatabaseName": "other"},
    }
    glue.create_database(DatabaseInput=given_database)
    database = glue.get_database(Name="SALES")["Database"]
    assert {**database, "Name": "Sales"}.items() >= given_database.items()
    assert (database["Name"], database["CatalogId"]) == ("sales", "123456789012")
    glue.update_database(Name="sales", DatabaseInput={"Name": "sales", "Parameters": {"a": "b"}})
    changed = glue.get_database(Name="sales")["Database"]
    assert changed["Parameters"] == {"a": "b"}
    assert not {"Description", "LocationUri", "TargetDatabase"} & changed.keys()
    assert changed["CreateTime"] == database["CreateTime"]


def test_databases_are_listed_in_pages(glue: Any) -> None:
    for number in range(7):
        glue.create_database(DatabaseInput={"Name": f"d{number}"})
    pages = list(glue.get_paginator("get_databases").paginate(PaginationConfig={"PageSize": 3}))
    names = [database["Name"] for page in pages for database in page["DatabaseList"]]
    assert names == ["d0", "d1", "d2", "d3", "d4", "d5", "d6", "default", "demo"]
    assert len(pages) == 3
    only_names = glue.get_databases(AttributesToGet=["NAME"], MaxResults=1)["DatabaseList"]
    assert only_names == [{"Name": "d0", "CatalogId": "123456789012"}]


def test_errors_of_databases(glue: Any) -> None:
    missing = ("EntityNotFoundException", "Database no not found.")
    assert refused(glue.get_database, Name="no") == missing
    assert refused(glue.delete_database, Name="no") == missing
    assert refused(glue.update_database, Name="no", DatabaseInput={"Name": "no"}) == missing
    assert refused(glue.create_database, DatabaseInput={"Name": "demo"})[0] == "AlreadyExistsException"
    assert refused(glue.update_database, Name="demo", DatabaseInput={"Name": "x"})[0] == "InvalidInputException"
    assert refused(glue.create_database, DatabaseInput={"Name": " "})[0] == "InvalidInputException"
    assert refused(glue.get_database, Name="demo", CatalogId="1")[0] == "EntityNotFoundException"


def test_a_database_is_deleted_with_its_tables_and_without_files(glue: Any, tmp_path: Path) -> None:
    folder = tmp_path / "orders"
    glue.create_table(**DEMO, TableInput=table_input("orders", location=str(folder)))
    (folder / "rows.parquet").write_bytes(b"rows")
    glue.delete_database(Name="demo")
    assert refused(glue.get_database, Name="demo")[0] == "EntityNotFoundException"
    assert (folder / "rows.parquet").exists()


@pytest.mark.parametrize("location", ["s3://elsewhere/x", "file:///etc"])
def test_the_allowed_locations_hold_here_too(glue: Any, monkeypatch: pytest.MonkeyPatch, location: str) -> None:
    glue.create_table(**DEMO, TableInput=table_input("orders", KEYS))
    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", "s3://lake")
    assert refused(glue.create_database, DatabaseInput={"Name": "x", "LocationUri": location})[0] == (
        "InvalidInputException"
    )
    assert refused(glue.create_table, **DEMO, TableInput=table_input("x", location=location))[0] == (
        "InvalidInputException"
    )
    partition = {"Values": ["DE", "1"], "StorageDescriptor": {"Location": location}}
    code, message = refused(glue.create_partition, **DEMO, TableName="orders", PartitionInput=partition)
    assert code == "InvalidInputException"
    assert location.removeprefix("file://") in message


# --- tables -----------------------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00", exclude_categories=["Cs", "Cc"]), max_size=12)
NAME = st.text("abcxyz_09-. äß%/'", min_size=1, max_size=12).map(lambda name: f"n{name}n")
TYPE = st.sampled_from(["int", "string", "decimal(10,2)", "struct<a:int,b:array<string>>", "float", "no type"])
PARAMETERS = st.dictionaries(TEXT.filter(lambda name: name and not name.startswith("calve.")), TEXT, max_size=3)
SECONDS = st.integers(0, 4_000_000_000)


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


COLUMN = st.tuples(
    st.fixed_dictionaries({"Name": NAME, "Type": TYPE}), optional(Comment=TEXT, Parameters=PARAMETERS)
).map(lambda parts: parts[0] | parts[1])
COLUMNS = st.lists(COLUMN, max_size=4, unique_by=lambda column: column["Name"].strip().lower())
STORAGE = optional(
    Columns=COLUMNS,
    Location=st.sampled_from(["s3://lake/there", "s3://lake/there/"]),
    AdditionalLocations=st.lists(TEXT, min_size=1, max_size=2),
    InputFormat=TEXT,
    OutputFormat=TEXT,
    Compressed=st.booleans(),
    NumberOfBuckets=st.integers(-1, 5),
    SerdeInfo=optional(Name=NAME, SerializationLibrary=NAME, Parameters=PARAMETERS),
    BucketColumns=st.lists(NAME, max_size=2),
    SortColumns=st.lists(st.fixed_dictionaries({"Column": NAME, "SortOrder": st.integers(0, 1)}), max_size=2),
    Parameters=PARAMETERS,
    SkewedInfo=optional(
        SkewedColumnNames=st.lists(NAME, max_size=2),
        SkewedColumnValues=st.lists(TEXT | st.just("2$ab1$c"), max_size=2),
        SkewedColumnValueLocationMaps=st.dictionaries(TEXT, TEXT, max_size=2),
    ),
    StoredAsSubDirectories=st.booleans(),
    SchemaReference=optional(SchemaVersionNumber=st.integers(1, 9)),
)
TABLE = st.tuples(
    st.fixed_dictionaries({"Name": NAME}),
    optional(
        Description=TEXT,
        Owner=NAME,
        LastAccessTime=SECONDS.filter(bool),
        LastAnalyzedTime=SECONDS,
        Retention=st.integers(0, 9),
        StorageDescriptor=STORAGE,
        ViewOriginalText=TEXT,
        ViewExpandedText=TEXT,
        TableType=st.sampled_from(["EXTERNAL_TABLE", "MANAGED_TABLE", "VIRTUAL_VIEW", "GOVERNED", ""]),
        Parameters=PARAMETERS,
        TargetTable=optional(CatalogId=NAME, DatabaseName=NAME, Name=NAME),
    ),
).map(lambda parts: parts[0] | parts[1])


def assert_within(given_value: Any, shown: Any, place: str = "") -> None:
    """Check that what was given is shown; names and types of columns in lower case."""
    if isinstance(given_value, dict):
        for name, value in given_value.items():
            assert name in shown, f"{place}.{name}"
            assert_within(value, shown[name], f"{place}.{name}")
    elif isinstance(given_value, list):
        assert len(given_value) == len(shown), place
        for number, (member, other) in enumerate(zip(given_value, shown, strict=True)):
            assert_within(member, other, f"{place}.{number}")
    else:
        value = shown.timestamp() if hasattr(shown, "timestamp") else shown
        assert value == given_value or (place.endswith(".Name") and value == given_value.strip().lower()), place


def test_views_keep_an_empty_location(glue: Any) -> None:
    # Trino's views have one, and without it Trino cannot comment them.
    storage = {"Columns": [{"Name": "id", "Type": "int"}], "Location": ""}
    view = {"Name": "v", "TableType": "VIRTUAL_VIEW", "ViewOriginalText": "x", "StorageDescriptor": storage}
    glue.create_table(**DEMO, TableInput=view)
    assert glue.get_table(**DEMO, Name="v")["Table"]["StorageDescriptor"]["Location"] == ""
    del storage["Location"]
    glue.update_table(**DEMO, TableInput=view)
    assert "Location" not in glue.get_table(**DEMO, Name="v")["Table"]["StorageDescriptor"]


@given(table=TABLE)
@settings(
    max_examples=effort(10, 100), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_tables_come_back_as_they_went_in(glue: Any, table: dict[str, Any]) -> None:
    glue.create_table(**DEMO, TableInput=table)
    try:
        first = glue.get_table(**DEMO, Name=table["Name"])["Table"]
        assert_within(table, first)
        assert first["VersionId"] == "1"
        glue.update_table(**DEMO, TableInput=table)
        second = glue.get_table(**DEMO, Name=table["Name"])["Table"]
        assert {**first, "VersionId": "2", "UpdateTime": second["UpdateTime"]} == second
        [old, new] = glue.get_table_versions(**DEMO, TableName=table["Name"])["TableVersions"]
        assert (old["Table"], new["Table"]) == (first, second)
    finally:
        glue.delete_table(**DEMO, Name=table["Name"])


def test_a_table_of_a_statement_is_one_of_glue(glue: Any, catalog: Catalog) -> None:
    catalog.create_table("demo.flights", columns=[("id", "int")], partition_keys=[("day", "date")], format="orc")
    table = glue.get_table(**DEMO, Name="flights")["Table"]
    assert table["StorageDescriptor"]["Columns"] == [{"Name": "id", "Type": "int"}]
    assert table["PartitionKeys"] == [{"Name": "day", "Type": "date"}]
    assert table["StorageDescriptor"]["InputFormat"] == "org.apache.hadoop.hive.ql.io.orc.OrcInputFormat"
    glue.create_table(**DEMO, TableInput=table_input("orders", KEYS, Description="of Glue", Parameters={"a": "b"}))
    definition = catalog.get_table("demo.orders")
    assert (definition.format, definition.key_names) == ("parquet", ("country", "day"))
    assert (definition.description, definition.location) == ("of Glue", "s3://lake/orders")


def test_versions_and_optimistic_updates(glue: Any, catalog: Catalog) -> None:
    for number, parameters in enumerate([{"n": "1"}, {"n": "2"}, {"n": "3"}, {"n": "4"}]):
        call = glue.update_table if number else glue.create_table
        call(
            **DEMO,
            TableInput=table_input("orders", KEYS, Parameters=parameters),
            **({"VersionId": str(number), "SkipArchive": number == 2} if number else {}),
        )
    stale = {**DEMO, "TableInput": table_input("orders", KEYS), "VersionId": "3"}
    assert refused(glue.update_table, **stale)[0] == "ConcurrentModificationException"
    versions = glue.get_table_versions(**DEMO, TableName="orders")["TableVersions"]
    # The second one was not kept.
    shown = [(version["VersionId"], version["Table"]["Parameters"]["n"]) for version in versions]
    assert shown == [("1", "1"), ("3", "3"), ("4", "4")]
    assert [version["Table"]["VersionId"] for version in versions] == ["1", "3", "4"]
    pages = glue.get_paginator("get_table_versions").paginate(
        **DEMO, TableName="orders", PaginationConfig={"PageSize": 1}
    )
    assert [page["TableVersions"][0]["VersionId"] for page in pages] == ["1", "3", "4"]
    third = glue.get_table_version(**DEMO, TableName="orders", VersionId="3")["TableVersion"]
    assert third["Table"]["Parameters"] == {"n": "3"}
    assert glue.get_table_version(**DEMO, TableName="orders")["TableVersion"]["VersionId"] == "4"
    errors = glue.batch_delete_table_version(**DEMO, TableName="orders", VersionIds=["1", "2", "4", "x"])["Errors"]
    assert [(error["VersionId"], error["ErrorDetail"]["ErrorCode"]) for error in errors] == [
        ("2", "EntityNotFoundException"),
        ("4", "InvalidInputException"),
        ("x", "InvalidInputException"),
    ]
    glue.delete_table_version(**DEMO, TableName="orders", VersionId="3")
    assert refused(glue.get_table_version, **DEMO, TableName="orders", VersionId="3") == (
        "EntityNotFoundException",
        "Version not found.",
    )
    # A change through another front door is a new version, too.
    catalog.alter_table("demo.orders", properties={"n": "5"})
    assert glue.get_table(**DEMO, Name="orders")["Table"]["VersionId"] == "5"
    stale = {**DEMO, "TableInput": table_input("orders", KEYS), "VersionId": "4"}
    assert refused(glue.update_table, **stale)[0] == "ConcurrentModificationException"


def test_errors_of_tables(glue: Any) -> None:
    missing = ("EntityNotFoundException", "Table no not found.")
    assert refused(glue.get_table, **DEMO, Name="no") == missing
    assert refused(glue.delete_table, **DEMO, Name="no") == missing
    assert refused(glue.update_table, **DEMO, TableInput={"Name": "no"}) == missing
    no_database = ("EntityNotFoundException", "Database no not found.")
    assert refused(glue.get_table, DatabaseName="no", Name="no") == no_database
    assert refused(glue.create_table, DatabaseName="no", TableInput={"Name": "t"}) == no_database
    assert refused(glue.get_tables, DatabaseName="no") == no_database
    glue.create_table(**DEMO, TableInput=table_input("orders"))
    assert refused(glue.create_table, **DEMO, TableInput=table_input("Orders"))[0] == "AlreadyExistsException"
    assert refused(glue.update_table, **DEMO, Name="orders", TableInput={"Name": "x"})[0] == "InvalidInputException"
    reserved = {"Name": "t", "Parameters": {"calve.files": "x"}}
    assert refused(glue.create_table, **DEMO, TableInput=reserved)[0] == "InvalidInputException"
    long = {"Name": "t", "StorageDescriptor": {"Columns": [{"Name": "a", "Type": "x" * 140_000}]}}
    code, message = refused(glue.create_table, **DEMO, TableInput=long)
    assert code == "ValidationException"
    assert "'tableInput.storageDescriptor.columns.1.member.type' failed to satisfy constraint" in message


def test_a_page_reads_no_definitions_of_other_tables(glue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"t{number}" for number in range(8)]
    for name in names:
        glue.create_table(**DEMO, TableInput=table_input(name))
    read: list[str] = []
    make = definitions._table
    monkeypatch.setattr(definitions, "_table", lambda *row: read.append(row[1].name) or make(*row))
    for more in ({}, {"Expression": "t.*"}):
        read.clear()
        page = glue.get_tables(**DEMO, **more, MaxResults=3)
        assert sorted(read) == [table["Name"] for table in page["TableList"]] == names[:3]
        read.clear()
        page = glue.get_tables(**DEMO, **more, MaxResults=3, NextToken=page["NextToken"])
        assert sorted(read) == [table["Name"] for table in page["TableList"]] == names[3:6]


def test_tables_are_listed_by_patterns_and_in_pages(glue: Any) -> None:
    for name in ("orders", "orders_2024", "returns", "a.b", "a/b", "a%2eb", "Äpfel"):
        glue.create_table(**DEMO, TableInput=table_input(name, location=f"s3://lake/{name.encode().hex()}"))
    names = ["a.b", "a/b", "a%2eb", "orders", "orders_2024", "returns", "äpfel"]
    pages = glue.get_paginator("get_tables").paginate(**DEMO, PaginationConfig={"PageSize": 2})
    assert sorted(table["Name"] for page in pages for table in page["TableList"]) == sorted(names)
    for expression, expected in {
        "orders": ["orders"],
        "ORDERS.*": ["orders", "orders_2024"],
        "*r*s": ["orders", "returns"],
        "orders|returns": ["orders", "returns"],
        r"\w+_\d+": ["orders_2024"],
        r"a\.b": ["a.b"],
        "ä*": ["äpfel"],
        "(.*a|.*b)*x": [],
    }.items():
        tables = glue.get_tables(**DEMO, Expression=expression)["TableList"]
        assert [table["Name"] for table in tables] == expected, expression
    for expression, problem in (("(", "missing )"), ("[", "missing ]"), ("orders)|(?:x", "unexpected )")):
        code, message = refused(glue.get_tables, **DEMO, Expression=expression)
        assert (code, problem in message) == ("InvalidInputException", True), message
    shown = glue.get_tables(**DEMO, Expression="orders", AttributesToGet=["NAME", "TABLE_TYPE"])["TableList"]
    assert [sorted(table) for table in shown] == [["CatalogId", "DatabaseName", "Name", "TableType"]]
    errors = glue.batch_delete_table(**DEMO, TablesToDelete=["a.b", "no", "a/b"])["Errors"]
    assert [(error["TableName"], error["ErrorDetail"]["ErrorCode"]) for error in errors] == [
        ("no", "EntityNotFoundException")
    ]


def test_tokens_belong_to_one_list(glue: Any) -> None:
    for name in ("a", "b", "c"):
        glue.create_table(**DEMO, TableInput=table_input(name))
    token = glue.get_tables(**DEMO, MaxResults=1)["NextToken"]
    assert [table["Name"] for table in glue.get_tables(**DEMO, NextToken=token)["TableList"]] == ["b", "c"]
    for arguments in ({"Expression": "b"}, {"NextToken": token[:-4]}, {"NextToken": "é"}, {"DatabaseName": "default"}):
        code, message = refused(glue.get_tables, **{**DEMO, "NextToken": token, **arguments})
        assert code == "InvalidInputException"
        assert "NextToken" in message


@pytest.mark.parametrize("value", [{}, [], None, 10**400, "text"])
def test_tokens_of_searches_that_a_client_has_changed_are_refused(glue: Any, value: Any) -> None:
    for name in ("a", "b"):
        glue.create_table(**DEMO, TableInput=table_input(name))
    by_time = {"SortCriteria": [{"FieldName": "CreateTime", "Sort": "ASC"}], "MaxResults": 1}
    token = glue.search_tables(**by_time)["NextToken"]
    assert [table["Name"] for table in glue.search_tables(**by_time, NextToken=token)["TableList"]] == ["b"]
    digest, *_ = json.loads(urlsafe_b64decode(token))
    changed = urlsafe_b64encode(json.dumps([digest, False, value, "demo", "a"]).encode()).decode()
    code, message = refused(glue.search_tables, **by_time, NextToken=changed)
    assert (code, "NextToken" in message) == ("InvalidInputException", True)


def test_a_search_finds_tables_of_all_databases(glue: Any) -> None:
    glue.create_database(DatabaseInput={"Name": "other"})
    glue.create_table(**DEMO, TableInput=table_input("customer-link", KEYS, Description="of customers"))
    glue.create_table(**DEMO, TableInput=table_input("xxlinkyy", Parameters={"team": "sales"}))
    glue.create_table(DatabaseName="other", TableInput=table_input("xx-link-yy", location="s3://lake/other"))

    def names(**arguments: Any) -> list[str]:
        pages = glue.get_paginator("search_tables").paginate(**arguments) if glue.can_paginate("search_tables") else ()
        found = [table["Name"] for page in pages for table in page["TableList"]]
        token: dict[str, str] = {}
        paged = []
        while True:
            page = glue.search_tables(MaxResults=1, **token, **arguments)
            paged += [table["Name"] for table in page["TableList"]]
            if "NextToken" not in page:
                break
            token = {"NextToken": page["NextToken"]}
        assert not found or found == paged
        return paged

    assert names() == ["customer-link", "xx-link-yy", "xxlinkyy"]
    assert names(SortCriteria=[{"FieldName": "Name", "Sort": "DESC"}]) == ["xxlinkyy", "xx-link-yy", "customer-link"]
    assert names(Filters=[{"Key": "Name", "Value": "link"}]) == ["customer-link", "xx-link-yy"]
    assert names(Filters=[{"Key": "DatabaseName", "Value": "other"}]) == ["xx-link-yy"]
    assert names(Filters=[{"Key": "team", "Value": "sales"}]) == ["xxlinkyy"]
    assert names(Filters=[{"Key": "CreateTime", "Value": "0", "Comparator": "LESS_THAN"}]) == []
    assert len(names(Filters=[{"Key": "CreateTime", "Value": "0", "Comparator": "GREATER_THAN"}])) == 3
    assert names(SearchText="CUSTOM") == ["customer-link"]
    assert names(SearchText='"sales"') == ["xxlinkyy"]
    assert names(SearchText='"sale"') == []
    assert names(SearchText="country") == ["customer-link"]


def test_a_writer_changes_no_definition(door: GlueDoor, glue: Any) -> None:
    glue.create_table(**DEMO, TableInput=table_input("orders"))
    writer = door.client("WRITER")
    code, message = refused(writer.update_table, **DEMO, TableInput=table_input("orders"))
    assert code == "AccessDeniedException"
    assert "role writer" in message


def test_the_import_is_complete(glue: Any) -> None:
    assert glue.get_catalog_import_status()["ImportStatus"] == {"ImportCompleted": True}
