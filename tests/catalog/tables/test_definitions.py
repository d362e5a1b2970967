"""Databases and tables, on each database."""

from __future__ import annotations

from pathlib import Path
from threading import Barrier, Thread

import pytest

from catalog import Catalog, Column, FileFormat, IndexDefinition, NewPartition, Table
from catalog.errors import (
    CatalogError,
    ConflictError,
    DatabaseAlreadyExistsError,
    DatabaseNotEmptyError,
    DatabaseNotFoundError,
    InvalidConfigurationError,
    InvalidIdentifierError,
    InvalidKeyTypeError,
    InvalidTableError,
    LimitExceededError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from catalog.operations.records import OperationKind


def create(catalog: Catalog, name: str = "demo.t", **definition: object) -> Table:
    return catalog.create_table(name, **{"columns": [("a", "int")], **definition})  # type: ignore[arg-type]


def test_a_database_lies_in_the_warehouse_unless_it_says_otherwise(catalog: Catalog, tmp_path: Path) -> None:
    assert catalog.get_database("demo").location == f"{tmp_path}/warehouse/demo"
    elsewhere = catalog.create_database("lake", location="s3://bucket/lake/", description="raw", properties={"a": "1"})
    assert elsewhere.location == "s3://bucket/lake"
    assert catalog.get_database("LAKE") == elsewhere
    assert [database.name for database in catalog.list_databases()] == ["demo", "lake"]


def test_a_database_without_location_needs_a_warehouse(catalog_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CALVE_WAREHOUSE", raising=False)
    with Catalog.open(catalog_url) as catalog:
        with pytest.raises(InvalidConfigurationError, match="CALVE_WAREHOUSE"):
            catalog.create_database("lake", if_not_exists=True)
        placed = catalog.create_database("lake", location="file:/data/lake")
        assert catalog.create_database("lake", if_not_exists=True) == placed


def test_a_database_is_created_once(catalog: Catalog) -> None:
    with pytest.raises(DatabaseAlreadyExistsError, match="demo"):
        catalog.create_database("DEMO")
    assert catalog.create_database("Demo", description="new", if_not_exists=True).description is None


def test_altering_a_database_sets_and_removes_properties(catalog: Catalog) -> None:
    catalog.create_database("lake", properties={"a": "1", "b": "2"})
    changed = catalog.alter_database("lake", description="raw", properties={"a": None, "c": "3"})
    assert (changed.description, changed.properties) == ("raw", {"b": "2", "c": "3"})
    assert catalog.alter_database("lake").description == "raw"


def test_a_database_is_dropped_when_it_is_empty(catalog: Catalog) -> None:
    create(catalog)
    with pytest.raises(DatabaseNotEmptyError, match=r"demo still has 1 table"):
        catalog.drop_database("demo")
    catalog.drop_table("demo.t")
    catalog.drop_database("Demo")
    assert catalog.list_databases() == []


@pytest.mark.parametrize(
    "call",
    [
        lambda catalog: catalog.get_database("nowhere"),
        lambda catalog: catalog.alter_database("nowhere"),
        lambda catalog: catalog.drop_database("nowhere"),
        lambda catalog: catalog.list_tables("nowhere"),
        lambda catalog: catalog.get_table("nowhere.t"),
        lambda catalog: create(catalog, "nowhere.t"),
    ],
)
def test_a_missing_database_is_named(catalog: Catalog, call: object) -> None:
    with pytest.raises(DatabaseNotFoundError, match="nowhere"):
        call(catalog)  # type: ignore[operator]


@pytest.mark.parametrize(
    "call",
    [
        lambda catalog: catalog.get_table("demo.gone"),
        lambda catalog: catalog.alter_table("demo.gone"),
        lambda catalog: catalog.drop_table("demo.gone"),
        lambda catalog: catalog.add_partitions("demo.gone", []),
        lambda catalog: catalog.get_partitions("demo.gone"),
        lambda catalog: catalog.drop_partitions("demo.gone"),
        lambda catalog: catalog.create_partition_index("demo.gone", "i", ["a"]),
        lambda catalog: catalog.get_partition_indexes("demo.gone"),
        lambda catalog: catalog.delete_partition_index("demo.gone", "i"),
    ],
)
def test_a_missing_table_is_named(catalog: Catalog, call: object) -> None:
    with pytest.raises(TableNotFoundError, match=r"demo\.gone"):
        call(catalog)  # type: ignore[operator]


def test_a_table_comes_back_as_it_was_created(catalog: Catalog, tmp_path: Path) -> None:
    created = catalog.create_table(
        "Demo.Flights",
        columns=[("Flight", "INT"), Column("dep_delay", "double", "minutes"), {"name": "note", "type": "string"}],
        partition_keys=[("Origin", "String"), ("year", "LONG")],
        format="ORC",
        properties={"owner": "ops"},
        indexes=[IndexDefinition("By_Year", ("YEAR", "origin"))],
    )
    assert created == catalog.get_table("DEMO.FLIGHTS")
    assert created.columns == (
        *(Column("flight", "int"), Column("dep_delay", "double", "minutes"), Column("note", "string")),
    )
    assert created.partition_keys == (Column("origin", "string"), Column("year", "bigint"))
    assert [str(key_type) for key_type in created.key_types] == ["string", "bigint"]
    assert (created.format, created.properties) == (FileFormat.ORC, {"owner": "ops"})
    assert created.location == f"{tmp_path}/warehouse/demo/flights"
    assert catalog.get_partition_index("demo.flights", "BY_YEAR").keys == ("year", "origin")


def test_a_table_without_a_database_is_in_default(catalog: Catalog) -> None:
    catalog.create_database("default")
    create(catalog, "t")
    assert catalog.get_table("T") == catalog.get_table("default.t")


def test_tables_are_listed_by_database_and_name(catalog: Catalog) -> None:
    catalog.create_database("alpha")
    for name in ("demo.b", "demo.a", "alpha.c"):
        create(catalog, name)
    assert [table.full_name for table in catalog.list_tables()] == ["alpha.c", "demo.a", "demo.b"]
    assert [table.full_name for table in catalog.list_tables("DEMO")] == ["demo.a", "demo.b"]


@pytest.mark.parametrize(
    ("definition", "error", "named"),
    [
        ({"name": "a.b.c"}, InvalidIdentifierError, "'a.b.c' has 3 parts"),
        ({"name": "demo."}, InvalidIdentifierError, "is empty"),
        ({"name": "demo.a/b"}, InvalidIdentifierError, "contains '/'"),
        ({"name": "demo." + "x" * 256}, InvalidIdentifierError, "256 characters"),
        ({"columns": [("", "int")]}, InvalidIdentifierError, "column name '' is empty"),
        ({"columns": []}, InvalidTableError, "neither columns nor partition keys"),
        ({"columns": [("a", "int"), ("A", "int")]}, InvalidTableError, "names a more than once"),
        ({"partition_keys": [("A", "int")]}, InvalidTableError, "names a more than once"),
        ({"partition_keys": [("k", "binary")]}, InvalidKeyTypeError, "'binary'"),
        ({"partition_keys": [("k", "char(256)")]}, InvalidKeyTypeError, "length 256"),
        ({"format": "xlsx"}, InvalidTableError, "'xlsx'"),
    ],
)
def test_a_wrong_definition_is_refused_and_nothing_is_created(
    catalog: Catalog, definition: dict[str, object], error: type[CatalogError], named: str
) -> None:
    with pytest.raises(error) as refused:
        create(catalog, **{"name": "demo.t", **definition})  # type: ignore[arg-type]
    assert named in str(refused.value)
    assert catalog.list_tables() == []


def test_a_table_with_four_indexes_is_not_created_at_all(catalog: Catalog) -> None:
    keys = [(name, "int") for name in "wxyz"]
    with pytest.raises(LimitExceededError, match="3"):
        create(catalog, partition_keys=keys, indexes=[IndexDefinition(f"i{name}", (name,)) for name, _ in keys])
    assert catalog.list_tables() == []
    create(catalog, partition_keys=keys, indexes=[IndexDefinition(f"i{name}", (name,)) for name, _ in keys[:3]])


def test_a_table_name_is_taken_without_regard_to_case(catalog: Catalog) -> None:
    create(catalog, "demo.t")
    with pytest.raises(TableAlreadyExistsError, match=r"demo\.t"):
        create(catalog, "DEMO.T")


def test_of_two_who_create_the_same_table_at_once_one_is_told_that_it_exists(catalog: Catalog) -> None:
    together, outcomes = Barrier(2), []

    def create_it() -> None:
        together.wait()
        try:
            outcomes.append(create(catalog).name)
        except CatalogError as error:
            outcomes.append(type(error).__name__)

    for _ in range(10):
        threads = [Thread(target=create_it) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        catalog.drop_table("demo.t")
    assert sorted(outcomes) == ["TableAlreadyExistsError"] * 10 + ["t"] * 10


def test_altering_a_table_adds_columns_and_changes_properties(catalog: Catalog) -> None:
    create(catalog, properties={"a": "1", "b": "2"})
    changed = catalog.alter_table("Demo.T", add_columns=[("New", "string")], properties={"a": None, "c": "3"})
    assert [column.name for column in changed.columns] == ["a", "new"]
    assert changed.properties == {"b": "2", "c": "3"}
    with pytest.raises(InvalidTableError, match="names new more than once"):
        catalog.alter_table("demo.t", add_columns=[("NEW", "int")])


def test_a_renamed_table_keeps_its_partitions_and_indexes(catalog: Catalog, flights: Table) -> None:
    catalog.create_partition_index("demo.flights", "by_year", ["year"])
    catalog.add_partitions("demo.flights", [NewPartition(["JFK", "2013", "2013-01-01"])])
    renamed = catalog.alter_table("demo.flights", rename_to="Departures")
    assert (renamed.name, renamed.id, renamed.location) == ("departures", flights.id, flights.location)
    assert len(list(catalog.get_partitions("demo.departures", "year = 2013"))) == 1
    with pytest.raises(TableNotFoundError):
        catalog.get_table("demo.flights")


def test_a_table_is_not_renamed_to_a_name_that_is_taken(catalog: Catalog) -> None:
    create(catalog, "demo.a")
    create(catalog, "demo.b")
    with pytest.raises(TableAlreadyExistsError):
        catalog.alter_table("demo.a", rename_to="B")


def test_the_location_of_a_table_changes_only_while_it_has_no_partitions(catalog: Catalog, flights: Table) -> None:
    assert catalog.alter_table("demo.flights", location="/lake/flights/").location == "/lake/flights"
    catalog.add_partitions("demo.flights", [NewPartition(["JFK", "2013", "2013-01-01"])])
    with pytest.raises(InvalidTableError, match="/lake/flights"):
        catalog.alter_table("demo.flights", location="/elsewhere")


def test_a_dropped_table_takes_everything_along_and_its_name_is_free(catalog: Catalog, flights: Table) -> None:
    catalog.add_partitions("demo.flights", [NewPartition(["JFK", str(year), "2013-01-01"]) for year in range(9)])
    catalog.create_partition_index("demo.flights", "by_year", ["year"])
    catalog.build_partition_index("demo.flights", "by_year")
    catalog.drop_table("demo.flights")
    with catalog.storage.read() as connection:
        for table in ("calve_table", "calve_partition", "calve_partition_index", "calve_index_item"):
            assert connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar() == 0
    create(catalog, "demo.flights")


@pytest.mark.parametrize(
    "change",
    [
        lambda catalog: catalog.drop_table("demo.flights"),
        lambda catalog: catalog.alter_table("demo.flights", rename_to="departures"),
        lambda catalog: catalog.alter_table("demo.flights", location="/elsewhere"),
    ],
)
def test_a_table_on_which_an_operation_works_keeps_its_name_and_place(
    catalog: Catalog, flights: Table, change: object
) -> None:
    catalog.operations.begin("load-7", OperationKind.ADD_PARTITIONS, "demo.flights", is_exclusive=True)
    catalog.operations.start_job("load-7", "write")
    with pytest.raises(ConflictError, match="load-7"):
        change(catalog)  # type: ignore[operator]
    catalog.operations.fail("load-7", "CANCELLED", "by hand")
    change(catalog)  # type: ignore[operator]
