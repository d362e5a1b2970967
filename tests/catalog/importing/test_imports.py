"""Imports from a Glue endpoint: imported tables, repeated imports, errors and interruptions."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from catalog import Catalog, FileFormat, NewPartition
from catalog.errors import (
    CatalogFullError,
    DatabaseNotFoundError,
    OperationConflictError,
    SourceClientMissingError,
    SourceUnavailableError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedSourceTableError,
)
from catalog.importing import partitions as importing_partitions
from catalog.importing.partitions import ImportOptions
from catalog.importing.reports import ImportOutcome, TableReport
from catalog.metastores.address import SourceAddress
from catalog.metastores.source import open_source
from catalog.model import TableKind
from catalog.operations.failpoints import Point
from catalog.operations.records import OperationKind, OperationState
from catalog.tables.own_properties import SOURCE_PROPERTY
from tests.support import killed_imports
from tests.support.glue_endpoint import AVRO, ORC, PARQUET, GlueEndpoint, columns, storage
from tests.support.processes import context

KEYS = columns(("day", "date"), ("n", "int"))
TABLE = "sales.orders"
LOCATION = "/lake/sales/orders"


def partition(day: str, n: int, location: str | None = None, classes: Any = PARQUET, **parameters: str) -> Any:
    where = location or f"{LOCATION}/day={day}/n={n}"
    return {"Values": [day, str(n)], "StorageDescriptor": storage(where, classes), "Parameters": parameters}


@pytest.fixture
def sales(glue: GlueEndpoint) -> GlueEndpoint:
    """A database with a partitioned table, a flat one, and a view."""
    glue.client.create_database(
        DatabaseInput={
            "Name": "sales",
            "Description": "What we sell",
            "LocationUri": "/lake/sales",
            "Parameters": {"by": "etl"},
        }
    )
    parameters = {"owner.team": "sales", "numRows": "9"}
    glue.create_table("sales", "orders", StorageDescriptor=storage(LOCATION), PartitionKeys=KEYS, Parameters=parameters)
    glue.create_table("sales", "prices", TableType="MANAGED_TABLE", StorageDescriptor=storage("/lake/prices", AVRO))
    glue.create_table("sales", "cheap", TableType="VIRTUAL_VIEW", ViewOriginalText="SELECT * FROM sales.prices")
    days = (partition("2024-01-01", n, numRows="3", numFiles="1", totalSize="100") for n in range(5))
    glue.add_partitions("sales", "orders", days)
    return glue


def names(catalog: Catalog, table: str = TABLE) -> list[str]:
    definition = catalog.get_table(table)
    return sorted(each.name(definition) for each in catalog.get_partitions(table))


def places(catalog: Catalog) -> dict[str, str]:
    definition = catalog.get_table(TABLE)
    return {partition.name(definition): partition.location for partition in catalog.get_partitions(TABLE)}


def redefine(source: GlueEndpoint, location: str, keys: Sequence[Mapping[str, str]]) -> None:
    """Change the location or the keys of the partitioned table."""
    source.client.update_table(
        DatabaseName="sales",
        TableInput={
            "Name": "orders",
            "TableType": "EXTERNAL_TABLE",
            "StorageDescriptor": storage(location),
            "PartitionKeys": list(keys),
        },
    )


def import_all(
    catalog: Catalog, source: GlueEndpoint, path: str = "/sales.orders", **options: bool
) -> dict[str, TableReport]:
    _, reports = catalog.imports.import_tables(source.source(path), (), ImportOptions(**options))
    return {report.table: report for report in reports}


def test_a_database_comes_with_its_tables_views_and_partitions(catalog: Catalog, sales: GlueEndpoint) -> None:
    reports = import_all(catalog, sales, "/sales")
    assert {name: report.outcome for name, report in reports.items()} == dict.fromkeys(
        ("sales.cheap", "sales.orders", "sales.prices"), ImportOutcome.CREATED
    )
    database = catalog.get_database("sales")
    assert (database.location, database.description) == ("/lake/sales", "What we sell")
    assert database.properties == {"by": "etl"}
    orders, prices, cheap = (catalog.get_table(f"sales.{name}") for name in ("orders", "prices", "cheap"))
    assert [(key.name, key.type) for key in orders.partition_keys] == [("day", "date"), ("n", "int")]
    assert (orders.kind, orders.format, orders.location) == (TableKind.EXTERNAL, FileFormat.PARQUET, LOCATION)
    origin = SourceAddress.parse(sales.source())[0].of_table(killed_name(TABLE))
    assert orders.properties == {"owner.team": "sales", SOURCE_PROPERTY: origin}
    assert (prices.kind, prices.format, prices.partition_keys) == (TableKind.EXTERNAL, FileFormat.AVRO, ())
    assert (cheap.kind, cheap.view_text) == (TableKind.VIEW, "SELECT * FROM sales.prices")
    assert reports[TABLE].partitions.added == 5
    (first,) = catalog.get_partitions(TABLE, "n = 0")
    assert (first.location, first.row_count, first.file_count, first.size_bytes) == (
        f"{LOCATION}/day=2024-01-01/n=0",
        3,
        1,
        100,
    )


def killed_name(text: str) -> Any:
    from catalog.model.identifiers import TableName

    return TableName.parse(text)


def test_places_formats_and_values_of_their_own_are_kept(catalog: Catalog, sales: GlueEndpoint) -> None:
    sales.create_table("sales", "t", StorageDescriptor=storage("/t"), PartitionKeys=columns(("s", "string")))
    values = ["a b/c=d:e%2F", "__HIVE_DEFAULT_PARTITION__", "ü"]
    added = [{"Values": [each], "StorageDescriptor": storage(f"/own/{i}", ORC)} for i, each in enumerate(values)]
    sales.add_partitions("sales", "t", iter(added))
    import_all(catalog, sales, "/sales.t")
    found = {each.values[0]: (each.location, each.format) for each in catalog.get_partitions("sales.t")}
    assert found == {
        "a b/c=d:e%2F": ("/own/0", FileFormat.ORC),
        None: ("/own/1", FileFormat.ORC),
        "ü": ("/own/2", FileFormat.ORC),
    }


def test_again_it_changes_nothing_and_then_adds_what_is_new(catalog: Catalog, sales: GlueEndpoint) -> None:
    import_all(catalog, sales)
    before = catalog.get_table(TABLE)
    again = import_all(catalog, sales)
    assert {report.outcome for report in again.values()} == {ImportOutcome.UNCHANGED}
    assert catalog.get_table(TABLE).version == before.version
    assert again[TABLE].partitions.added == again[TABLE].partitions.changed.count == 0
    sales.add_partitions("sales", "orders", iter([partition("2024-01-02", 0)]))
    counts = import_all(catalog, sales)[TABLE].partitions
    assert (counts.seen, counts.added, counts.vanished.count) == (6, 1, 0)
    assert len(names(catalog)) == 6


def test_what_vanished_is_reported_and_dropped_only_when_asked_for(catalog: Catalog, sales: GlueEndpoint) -> None:
    import_all(catalog, sales)
    catalog.create_partition_index(TABLE, "by_n", ["n"])
    catalog.build_partition_index(TABLE, "by_n")
    sales.client.delete_partition(DatabaseName="sales", TableName="orders", PartitionValues=["2024-01-01", "3"])
    counts = import_all(catalog, sales)[TABLE].partitions
    assert (counts.vanished.count, counts.vanished.first, counts.dropped) == (1, ["day=2024-01-01/n=3"], 0)
    assert len(names(catalog)) == 5
    counts = import_all(catalog, sales, drops_vanished=True, is_dry_run=True)[TABLE].partitions
    assert (counts.vanished.count, len(names(catalog))) == (1, 5)
    counts = import_all(catalog, sales, drops_vanished=True)[TABLE].partitions
    assert (counts.vanished.count, counts.dropped) == (1, 1)
    assert names(catalog) == [f"day=2024-01-01/n={n}" for n in (0, 1, 2, 4)]
    assert catalog.verify_partition_index(TABLE, "by_n").is_exact


def test_other_definitions_are_reported_and_applied_only_when_asked_for(catalog: Catalog, sales: GlueEndpoint) -> None:
    import_all(catalog, sales)
    changed = storage("/lake/moved", ORC)
    changed["Columns"] = columns(("id", "string"), ("extra", "int"))
    sales.client.update_table(
        DatabaseName="sales",
        TableInput={
            "Name": "orders",
            "Description": "Moved",
            "TableType": "EXTERNAL_TABLE",
            "StorageDescriptor": changed,
            "PartitionKeys": columns(("day", "date"), ("n", "bigint")),
            "Parameters": {"owner.team": "crm"},
        },
    )
    before = catalog.get_table(TABLE)
    report = import_all(catalog, sales)[TABLE]
    assert report.outcome is ImportOutcome.DIFFERS
    assert set(report.differences) == {
        "column id: bigint here, string there",
        "column name: only here",
        "column extra: only there",
        "partition key n: int here, bigint there",
        "format: parquet here, orc there",
        f"location: {LOCATION} here, /lake/moved there",
        "description: None here, Moved there",
        "property owner.team: sales here, crm there",
    }
    assert (catalog.get_table(TABLE), report.partitions.changed.count) == (before, 0)
    places = {each.values: (each.location, FileFormat.PARQUET) for each in catalog.get_partitions(TABLE)}
    report = import_all(catalog, sales, updates=True)[TABLE]
    assert report.outcome is ImportOutcome.UPDATED
    after = catalog.get_table(TABLE)
    assert (after.location, after.format, after.description) == ("/lake/moved", FileFormat.ORC, "Moved")
    assert [key.type for key in after.partition_keys] == ["date", "bigint"]
    found = {each.values: (each.location, each.format) for each in catalog.get_partitions(TABLE)}
    assert found == places
    assert import_all(catalog, sales)[TABLE].outcome is ImportOutcome.UNCHANGED


def test_other_partitions_are_reported_and_applied_only_when_asked_for(catalog: Catalog, sales: GlueEndpoint) -> None:
    import_all(catalog, sales)
    changes = {0: {"location": "/moved"}, 1: {"classes": ORC}, 2: {"by": "me"}, 3: {"numRows": "4"}}
    for n, change in changes.items():
        numbers = {"numRows": "3", "numFiles": "1", "totalSize": "100"}
        sales.client.update_partition(
            DatabaseName="sales",
            TableName="orders",
            PartitionValueList=["2024-01-01", str(n)],
            PartitionInput=partition("2024-01-01", n, **{**numbers, **change}),  # type: ignore[arg-type]
        )
    before = {partition.id: partition for partition in catalog.get_partitions(TABLE)}
    counts = import_all(catalog, sales)[TABLE].partitions
    assert (counts.changed.first, counts.updated) == ([f"day=2024-01-01/n={n}" for n in range(4)], 0)
    assert {partition.id: partition for partition in catalog.get_partitions(TABLE)} == before
    counts = import_all(catalog, sales, updates=True)[TABLE].partitions
    assert (counts.changed.count, counts.updated) == (4, 4)
    found = {each.values[1]: each for each in catalog.get_partitions(TABLE)}
    assert found["0"].location == "/moved"
    assert found["1"].format is FileFormat.ORC
    assert found["2"].properties == {"by": "me"}
    assert [found[str(n)].row_count for n in range(5)] == [3, 3, 3, 4, 3]
    assert import_all(catalog, sales)[TABLE].partitions.changed.count == 0


def test_a_dry_run_changes_nothing_and_says_what_would_be(catalog: Catalog, sales: GlueEndpoint) -> None:
    report = import_all(catalog, sales, is_dry_run=True)[TABLE]
    assert (report.outcome, report.partitions.added, report.is_dry_run) == (ImportOutcome.CREATED, 5, True)
    assert [each.name for each in catalog.list_databases()] == ["demo"]
    assert catalog.operations.list() == []


def test_one_table_that_fails_stops_no_other(catalog: Catalog, sales: GlueEndpoint) -> None:
    sales.create_table("sales", "a_lake", Parameters={"table_type": "ICEBERG"}, StorageDescriptor=storage("/i"))
    keys = columns(("digest", "binary"))
    sales.create_table("sales", "by_bytes", StorageDescriptor=storage("/t"), PartitionKeys=keys)
    catalog.create_database("sales", location="/lake/sales")
    catalog.create_table("sales.prices", columns=[("id", "int")])
    plan, reports = catalog.imports.import_tables(sales.source("/sales"))
    outcomes = {report.table: report.outcome for report in reports}
    assert outcomes == {
        "sales.a_lake": ImportOutcome.REFUSED,
        "sales.by_bytes": ImportOutcome.REFUSED,
        "sales.cheap": ImportOutcome.CREATED,
        "sales.orders": ImportOutcome.CREATED,
        "sales.prices": ImportOutcome.FAILED,
    }
    said = {report.table: report.reason or "" for report in reports}
    assert "is an Iceberg table" in said["sales.a_lake"]
    assert "binary" in said["sales.by_bytes"]
    assert "was imported from no source" in said["sales.prices"]
    # A table that matches a pattern may be refused; a named one may not.
    assert [report.table for report in plan.failures(reports)] == ["sales.prices"]
    plan, reports = catalog.imports.import_tables(sales.source("/sales.a_lake"))
    assert [report.table for report in plan.failures(reports)] == ["sales.a_lake"]
    failed = {each.table: each for each in catalog.operations.list() if each.state is OperationState.FAILED}
    assert failed["sales.prices"].failure_code == TableAlreadyExistsError.__name__


def test_a_failure_in_between_tells_what_was_changed(
    catalog: Catalog, sales: GlueEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing_partitions, "BATCH", 2)
    guards = iter([*[None] * 3, CatalogFullError("the disk is full; nothing was changed")])
    begin = catalog.imports._operations.guard

    def guard(*arguments: Any, **options: Any) -> Any:
        if (error := next(guards, None)) is not None:
            raise error
        return begin(*arguments, **options)

    monkeypatch.setattr(catalog.imports._operations, "guard", guard)
    report = import_all(catalog, sales)[TABLE]
    assert report.outcome is ImportOutcome.FAILED
    assert len(names(catalog)) == 4
    said = "before that, 4 partitions were added, 0 updated and 0 dropped; these changes stay. Import again to continue"
    assert said in str(report.reason)
    (operation,) = [one for one in catalog.operations.list() if one.state is OperationState.FAILED]
    assert said in str(operation.failure_detail)


def test_a_table_of_ones_own_becomes_the_sources_only_when_asked_for(catalog: Catalog, sales: GlueEndpoint) -> None:
    catalog.create_database("sales")
    keys = [("day", "date"), ("n", "int")]
    catalog.create_table(TABLE, columns=[("id", "int")], partition_keys=keys, location="/mine")
    catalog.add_partitions(TABLE, [NewPartition(("2023-01-01", "1"))])
    with pytest.raises(TableAlreadyExistsError, match="was imported from no source instead of glue://eu-west-1/sales"):
        catalog.imports.import_table(sales.source(), TABLE)
    assert names(catalog) == ["day=2023-01-01/n=1"]
    report = catalog.imports.import_table(sales.source(), TABLE, ImportOptions(updates=True))
    assert (report.outcome, report.partitions.added) == (ImportOutcome.UPDATED, 5)
    assert report.partitions.vanished.first == ["day=2023-01-01/n=1"]
    (mine,) = catalog.get_partitions(TABLE, "day = '2023-01-01'")
    assert mine.location == "/mine/day=2023-01-01/n=1"


@pytest.mark.parametrize("keys", [["n", "day"], ["day"], []])
def test_another_partitioning_is_another_table(catalog: Catalog, sales: GlueEndpoint, keys: list[str]) -> None:
    import_all(catalog, sales)
    types = {each["Name"]: each["Type"] for each in KEYS}
    redefine(sales, LOCATION, columns(*[(key, types[key]) for key in keys]))
    with pytest.raises(UnsupportedSourceTableError, match="then import it again"):
        catalog.imports.import_table(sales.source(), TABLE, ImportOptions(updates=True))


def test_two_spellings_of_one_value_are_not_two_partitions(catalog: Catalog, sales: GlueEndpoint) -> None:
    twin = partition("2024-01-01", 1, "/twin")
    twin["Values"] = ["2024-01-01", "01"]
    sales.add_partitions("sales", "orders", iter([twin]))
    for _ in range(2):
        counts = import_all(catalog, sales, updates=True)[TABLE].partitions
        assert counts.refused.count == 1
        assert "in another spelling" in counts.refused.first[0]
        assert (counts.vanished.count, counts.changed.count, len(names(catalog))) == (0, 0, 5)


def test_what_an_index_or_the_catalog_does_not_admit_is_left_out_and_reported(
    catalog: Catalog, sales: GlueEndpoint
) -> None:
    import_all(catalog, sales)
    catalog.create_partition_index(TABLE, "by_n", ["n"])
    catalog.build_partition_index(TABLE, "by_n")
    wrong = partition("2024-01-03", 7)
    wrong["Values"] = ["2024-01-03", "seven"]
    strange = partition("2024-01-03", 8, classes=("com.example.Input", "", "com.example.Serde"))
    sales.add_partitions("sales", "orders", iter([wrong, strange, partition("2024-01-03", 9)]))
    counts = import_all(catalog, sales)[TABLE].partitions
    assert (counts.added, counts.refused.count) == (1, 2)
    assert "com.example.Input" in " ".join(counts.refused.first)
    assert "'seven'" in " ".join(counts.refused.first)
    assert len(names(catalog)) == 6


@pytest.mark.parametrize(
    ("path", "error", "said"),
    [
        ("/nosuch", DatabaseNotFoundError, "has no database nosuch"),
        ("/sales.nosuch", TableNotFoundError, "has no table sales.nosuch"),
        ("/sales,crm.x", DatabaseNotFoundError, "has no database crm"),
    ],
)
def test_what_is_named_has_to_be_there(
    catalog: Catalog, sales: GlueEndpoint, path: str, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        catalog.imports.plan(sales.source(path))
    assert catalog.imports.plan(sales.source("/sales.x*,n*")).tables == ()


def test_a_source_that_does_not_answer_is_said_to_be(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setattr("catalog.metastores.glue._RETRIES", 1)
    for source in ("glue://eu-west-1?endpoint_url=http://127.0.0.1:1", "hms://127.0.0.1:1"):
        with pytest.raises(SourceUnavailableError, match="does not respond"):
            catalog.imports.plan(source)


def test_a_client_that_is_not_installed_is_named(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("catalog.metastores.glue", "catalog.metastores.hms"):
        monkeypatch.delitem(__import__("sys").modules, module, raising=False)
    monkeypatch.setitem(__import__("sys").modules, "boto3", None)
    monkeypatch.setitem(__import__("sys").modules, "thrift", None)
    with pytest.raises(SourceClientMissingError, match="install the package boto3"):
        open_source(SourceAddress.parse("glue://x")[0])
    with pytest.raises(SourceClientMissingError, match=r"install the package pyiceberg\[hive\]"):
        open_source(SourceAddress.parse("hms://x")[0])


def test_an_operation_tells_what_was_done_and_is_done_once(catalog: Catalog, sales: GlueEndpoint) -> None:
    catalog.create_database("sales")
    first = catalog.imports.import_table(sales.source(), TABLE, operation_id="run/1", requested_by="me")
    operation = catalog.operations.get("run/1")
    assert (operation.kind, operation.state) == (OperationKind.IMPORT_TABLE, OperationState.CLEANED)
    assert (operation.table, operation.requested_by, operation.progress_done) == (TABLE, "me", 5)
    assert TableReport.from_json(json.loads(json.dumps(operation.report["import"]))) == first
    sales.add_partitions("sales", "orders", iter([partition("2024-01-02", 0)]))
    assert catalog.imports.import_table(sales.source(), TABLE, operation_id="run/1") == first
    assert len(names(catalog)) == 5


def test_two_imports_of_one_table_do_not_run_at_once(catalog: Catalog, sales: GlueEndpoint) -> None:
    catalog.create_database("sales")
    catalog.operations.begin("other", OperationKind.LOAD_ROWS, TABLE, is_exclusive=True)
    with pytest.raises(OperationConflictError, match="other"):
        catalog.imports.import_table(sales.source(), TABLE)


@pytest.mark.parametrize(
    "point", [Point.JOURNALED, Point.STARTED, Point.CHANGED, Point.PARTLY_COMMITTED, Point.COMMITTED]
)
def test_an_import_that_is_killed_ends_the_same_when_it_is_run_again(
    catalog: Catalog, catalog_url: str, sales: GlueEndpoint, point: Point
) -> None:
    import_all(catalog, sales)
    sales.add_partitions("sales", "orders", (partition("2024-02-02", n) for n in range(20)))
    sales.client.delete_partition(DatabaseName="sales", TableName="orders", PartitionValues=["2024-01-01", "3"])
    arguments = (catalog_url, sales.source(), TABLE, "run", point, dict(os.environ))
    process = context.Process(target=killed_imports.import_table, args=arguments)
    process.start()
    process.join(300)
    assert process.exitcode == -9
    catalog.imports.import_table(sales.source(), TABLE, killed_imports.OPTIONS, operation_id="run")
    assert len(names(catalog)) == 24
    assert catalog.operations.get("run").state is OperationState.CLEANED
