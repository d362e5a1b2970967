"""Imports from a Glue endpoint: imported tables, repeated imports, errors and interruptions."""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
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
from tests.support.effort import effort
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


def move(source: GlueEndpoint, places: Mapping[int, str]) -> None:
    """Change the locations of partitions, by their number `n`."""
    for n, place in places.items():
        changed = partition("2024-01-01", n, location=place)
        source.client.update_partition(
            DatabaseName="sales", TableName="orders", PartitionValueList=changed["Values"], PartitionInput=changed
        )


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
    before = list(catalog.get_partitions(TABLE))
    counts = import_all(catalog, sales)[TABLE].partitions
    assert (counts.changed.first, counts.updated) == ([f"day=2024-01-01/n={n}" for n in range(4)], 0)
    assert list(catalog.get_partitions(TABLE)) == before
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


def test_a_table_in_anothers_location_is_refused_and_stops_no_other(catalog: Catalog, sales: GlueEndpoint) -> None:
    inside = storage(f"{LOCATION}/day=2024-01-01")
    sales.create_table("sales", "today", StorageDescriptor=inside, PartitionKeys=columns(("n", "int")))
    import_all(catalog, sales, "/sales.orders")
    for is_dry_run in (True, False):
        plan, reports = catalog.imports.import_tables(sales.source("/sales"), (), ImportOptions(is_dry_run=is_dry_run))
        outcomes = {report.table: (report.outcome, report.reason) for report in reports}
        outcome, reason = outcomes["sales.today"]
        assert outcome is ImportOutcome.REFUSED
        assert f"LocationInUseError: table sales.today: {LOCATION}/day=2024-01-01 cannot be used" in str(reason)
        assert outcomes["sales.orders"] == (ImportOutcome.UNCHANGED, None)
        assert plan.failures(reports) == []
    assert "sales.today" not in [table.full_name for table in catalog.list_tables()]


def test_no_partition_moves_into_another_tables_location(catalog: Catalog, sales: GlueEndpoint) -> None:
    import_all(catalog, sales)
    catalog.create_table("demo.owner", columns=[("id", "int")], location="/lake/owner")
    sales.client.update_partition(
        DatabaseName="sales",
        TableName="orders",
        PartitionValueList=["2024-01-01", "1"],
        PartitionInput=partition("2024-01-01", 1, location="/lake/owner/inside"),
    )
    sales.add_partitions(
        "sales",
        "orders",
        iter([partition("2024-01-02", n, location="/lake/owner/new") for n in range(2)] + [partition("2024-01-02", 2)]),
    )
    counts = import_all(catalog, sales, updates=True)[TABLE].partitions
    assert (counts.added, counts.updated, counts.changed.count, counts.refused.count) == (1, 0, 1, 3)
    assert all("demo.owner lies in /lake/owner" in reason for reason in counts.refused.first)
    assert {reason.split(":")[0] for reason in counts.refused.first} == {
        "partition day=2024-01-01/n=1",
        "partition day=2024-01-02/n=0",
        "partition day=2024-01-02/n=1",
    }
    assert all(partition.location.startswith(LOCATION) for partition in catalog.get_partitions(TABLE))
    assert "day=2024-01-02/n=2" in names(catalog)


def test_no_partition_comes_or_moves_to_the_default_folder_of_another(catalog: Catalog, sales: GlueEndpoint) -> None:
    location = f"{LOCATION}/day=2024-01-01/n=2"
    import_all(catalog, sales)
    before = places(catalog)
    move(sales, {1: location, 3: "/elsewhere"})
    new = [partition("2024-01-03", n, location=location if n == 1 else None) for n in range(3)]
    sales.add_partitions("sales", "orders", iter(new))
    counts = import_all(catalog, sales, updates=True, drops_vanished=True)[TABLE].partitions
    assert (counts.added, counts.changed.count, counts.updated, counts.refused.count) == (2, 2, 1, 2)
    assert [reason.split(":")[0] for reason in counts.refused.first] == [
        "partition day=2024-01-01/n=1",
        "partition day=2024-01-03/n=1",
    ]
    for reason in counts.refused.first:
        assert f"{location} cannot be used, because partition day=2024-01-01/n=2 has its files in" in reason
        assert "nothing was changed" not in reason
    after = {f"day=2024-01-03/n={n}": f"{LOCATION}/day=2024-01-03/n={n}" for n in (0, 2)}
    assert places(catalog) == {**before, "day=2024-01-01/n=3": "/elsewhere", **after}


def test_partitions_that_exchange_their_folders_are_updated_together(
    catalog: Catalog, sales: GlueEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_all(catalog, sales)
    # In batches of two, the cycle of all five is not in one batch.
    for batch, changed in ((10_000, {0: 1, 1: 0}), (2, {0: 0, 1: 1}), (2, {0: 4, 1: 0, 4: 1})):
        monkeypatch.setattr(importing_partitions, "BATCH", batch)
        moved = {n: f"{LOCATION}/day=2024-01-01/n={there}" for n, there in changed.items()}
        move(sales, moved)
        counts = import_all(catalog, sales, updates=True)[TABLE].partitions
        assert (counts.updated, counts.refused.count) == (len(moved), 0)
        assert moved.items() <= {int(name[-1]): place for name, place in places(catalog).items()}.items()


@pytest.mark.parametrize("batch", [10_000, 1])
@pytest.mark.parametrize("step", [1, -1])
def test_partitions_that_move_on_by_one_folder_are_updated(
    catalog: Catalog, sales: GlueEndpoint, monkeypatch: pytest.MonkeyPatch, step: int, batch: int
) -> None:
    monkeypatch.setattr(importing_partitions, "BATCH", batch)
    import_all(catalog, sales)
    moved = {n: f"{LOCATION}/day=2024-01-01/n={n + step}" for n in range(5)}
    move(sales, moved)
    counts = import_all(catalog, sales, updates=True)[TABLE].partitions
    assert (counts.updated, counts.refused.count) == (5, 0)
    assert [places(catalog)[f"day=2024-01-01/n={n}"] for n in range(5)] == list(moved.values())


def test_a_chain_that_ends_at_a_taken_folder_stays_as_it_is(catalog: Catalog, sales: GlueEndpoint) -> None:
    import_all(catalog, sales)
    before = places(catalog)
    move(sales, {n: f"{LOCATION}/day=2024-01-01/n={n + 1}" for n in range(4)})
    counts = import_all(catalog, sales, updates=True)[TABLE].partitions
    assert (counts.changed.count, counts.updated, counts.refused.count) == (4, 0, 4)
    for n, reason in enumerate(sorted(counts.refused.first)):
        assert reason.startswith(f"partition day=2024-01-01/n={n}: ")
        assert f"because partition day=2024-01-01/n={n + 1} has its files in" in reason
    assert places(catalog) == before


@pytest.mark.parametrize("batch", [10_000, 1])
def test_partitions_that_were_renamed_in_their_folders_are_dropped_and_added(
    catalog: Catalog, sales: GlueEndpoint, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(importing_partitions, "BATCH", batch)
    import_all(catalog, sales)
    catalog.create_partition_index(TABLE, "by_n", ["n"])
    catalog.build_partition_index(TABLE, "by_n")
    for n in (1, 2):
        sales.client.delete_partition(DatabaseName="sales", TableName="orders", PartitionValues=["2024-01-01", str(n)])
    renamed = [partition("2024-01-01", 10 + n, f"{LOCATION}/day=2024-01-01/n={n}") for n in (1, 2)]
    sales.add_partitions("sales", "orders", iter([*renamed, partition("2024-01-01", 6)]))
    # Without permission to drop, they are refused one by one, and the others are imported.
    counts = import_all(catalog, sales, updates=True)[TABLE].partitions
    assert (counts.added, counts.vanished.count, counts.dropped, counts.refused.count) == (1, 2, 0, 2)
    for n, reason in zip((1, 2), sorted(counts.refused.first), strict=True):
        assert reason.startswith(f"partition day=2024-01-01/n=1{n}: ")
        assert f"partition day=2024-01-01/n={n} has its files in" in reason
        assert "ask to drop vanished partitions" in reason
    counts = import_all(catalog, sales, drops_vanished=True)[TABLE].partitions
    assert (counts.added, counts.dropped, counts.refused.count) == (2, 2, 0)
    assert {f"day=2024-01-01/n=1{n}": f"{LOCATION}/day=2024-01-01/n={n}" for n in (1, 2)}.items() <= places(
        catalog
    ).items()
    assert len(names(catalog)) == 6
    assert catalog.verify_partition_index(TABLE, "by_n").is_exact


def test_a_folder_that_a_partition_has_left_is_another_ones(catalog: Catalog, sales: GlueEndpoint) -> None:
    import_all(catalog, sales)
    move(sales, {1: "/moved"})
    left = f"{LOCATION}/day=2024-01-01/n=1"
    sales.add_partitions("sales", "orders", iter([partition("2024-01-01", 9, left)]))
    counts = import_all(catalog, sales, drops_vanished=True)[TABLE].partitions
    assert (counts.added, counts.refused.count) == (0, 1)
    assert "ask to update changed ones" in counts.refused.first[0]
    counts = import_all(catalog, sales, updates=True)[TABLE].partitions
    assert (counts.added, counts.updated, counts.refused.count) == (1, 1, 0)
    assert {"day=2024-01-01/n=1": "/moved", "day=2024-01-01/n=9": left}.items() <= places(catalog).items()


def test_a_table_that_moved_as_a_whole_is_updated(catalog: Catalog, sales: GlueEndpoint) -> None:
    import_all(catalog, sales)
    for root in ("/lake/moved", f"{LOCATION}/inside", LOCATION):
        redefine(sales, root, KEYS)
        expected = {n: f"{root}/day=2024-01-01/n={n}" for n in range(5)}
        move(sales, expected)
        report = import_all(catalog, sales, updates=True)[TABLE]
        assert (report.outcome, report.partitions.updated) == (ImportOutcome.UPDATED, 5)
        assert report.partitions.refused.count == 0
        assert {int(name[-1]): place for name, place in places(catalog).items()} == expected


def test_new_partitions_of_one_default_folder_are_refused_without_its_owner(
    catalog: Catalog, sales: GlueEndpoint
) -> None:
    default = f"{LOCATION}/day=2024-01-02/n=1"
    new = [partition("2024-01-02", 0, default), partition("2024-01-02", 1), partition("2024-01-02", 2, default)]
    sales.add_partitions("sales", "orders", iter([*new, partition("2024-01-02", 3)]))
    counts = import_all(catalog, sales)[TABLE].partitions
    assert (counts.added, counts.refused.count) == (7, 2)
    assert {"day=2024-01-02/n=1", "day=2024-01-02/n=3"} <= set(names(catalog))


def test_a_location_that_is_not_allowed_refuses_its_partition_only(
    catalog: Catalog, sales: GlueEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", "/lake")
    new = [partition("2024-01-02", 0, "/secret"), partition("2024-01-02", 1, "s3://KEY:pass@bucket/x")]
    sales.add_partitions("sales", "orders", iter([*new, partition("2024-01-02", 2, "/lake/own")]))
    for is_dry_run in (True, False):
        counts = import_all(catalog, sales, is_dry_run=is_dry_run)[TABLE].partitions
        assert (counts.added, counts.refused.count) == (6, 2)
        assert "outside all allowed folders" in " ".join(counts.refused.first)
        assert "has a password in it" in " ".join(counts.refused.first)
        assert ":pass" not in " ".join(counts.refused.first)


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


# --- the command ----------------------------------------------------------------------------------------------------


def calve(*arguments: str) -> Any:
    from click.testing import CliRunner

    from catalog.cli.main import main

    return CliRunner().invoke(main, ["import", *arguments])


@pytest.mark.usefixtures("catalog")
def test_the_command_says_table_by_table_what_it_did(sales: GlueEndpoint) -> None:
    done = calve(sales.source("/sales.orders,sales.p*"))
    assert (done.exit_code, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0][:4] == ["TABLE", "OUTCOME", "PARTITIONS", "ADDED"]
    assert lines[1] == ["sales.orders", "created", "5", "5", "0", "0", "0"]
    assert lines[2] == ["sales.prices", "created", "0", "0", "0", "0", "0"]
    sales.client.delete_partition(DatabaseName="sales", TableName="orders", PartitionValues=["2024-01-01", "3"])
    (again,) = map(json.loads, calve(sales.source(), "sales.orders", "--dry-run", "--json").stdout.splitlines())
    assert again["partitions"]["vanished"] == {"count": 1, "first": ["day=2024-01-01/n=3"]}
    done = calve(sales.source(), "sales.orders", "--drop-vanished")
    assert "vanished: day=2024-01-01/n=3" in done.stdout


@pytest.mark.usefixtures("catalog")
def test_the_command_ends_with_an_error_when_a_table_was_not_imported(sales: GlueEndpoint) -> None:
    sales.create_table("sales", "lake", Parameters={"table_type": "ICEBERG"}, StorageDescriptor=storage("/i"))
    done = calve(sales.source(), "sales")
    assert done.exit_code == 0
    assert "is an Iceberg table" in done.stdout
    done = calve(sales.source(), "sales.lake", "sales.prices")
    assert done.exit_code == 1
    assert done.stderr.startswith("TablesNotImportedError: 1 of 2 tables were not imported: sales.lake: ")
    done = calve("thrift://x")
    assert (done.exit_code, done.stderr.split(":")[0]) == (1, "InvalidSourceError")
    assert calve(sales.source("/sales.none*")).stderr.endswith("has no matching table.\n")


# --- an endpoint with pages, which moto's has not ----------------------------------------------------------------


def paging(count: int) -> type[BaseHTTPRequestHandler]:
    """Return a simulated Glue client for one table with a number of partitions."""
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        requests = asked

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(body)
            operation = self.headers["X-Amz-Target"].partition(".")[2]
            answer = json.dumps(getattr(self, operation)(body)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def GetTable(self, body: dict[str, Any]) -> dict[str, Any]:
            keys = columns(("n", "int"))
            table = {"Name": "orders", "StorageDescriptor": storage(LOCATION), "PartitionKeys": keys}
            return {"Table": {**table, "TableType": "EXTERNAL_TABLE", "DatabaseName": "sales"}}

        def GetPartitions(self, body: dict[str, Any]) -> dict[str, Any]:
            start = int(body.get("NextToken", "0"))
            end = min(count, start + body["MaxResults"])
            page = [
                {"Values": [str(n)], "StorageDescriptor": storage(f"{LOCATION}/n={n}"), "Parameters": {}}
                for n in range(start, end)
            ]
            return {"Partitions": page} | ({"NextToken": str(end)} if end < count else {})

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def peak_of(sqlite_url: str, glue_server: GlueEndpoint) -> Callable[[int], int]:
    """A function that imports a number of partitions, and returns the peak memory, in bytes."""

    def measure(count: int) -> int:
        handler = paging(count)
        with serving(handler) as url, Catalog.open(sqlite_url, warehouse="/lake") as catalog:
            catalog.create_database(f"sales{count}", if_not_exists=True)
            tracemalloc.start()
            report = catalog.imports.import_table(f"glue://eu-west-1?endpoint_url={url}", f"sales{count}.orders")
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert (report.partitions.added, report.partitions.vanished.count) == (count, 0)
            # The next partition is in the same folder.
            catalog.drop_table(f"sales{count}.orders")
        pages = [body for body in handler.requests if "MaxResults" in body]  # type: ignore[attr-defined]
        assert len(pages) == -(-count // 1000)
        assert all(body["ExcludeColumnSchema"] for body in pages)
        return peak

    return measure


@pytest.mark.long
def test_partitions_come_in_pages_and_few_are_in_memory_at_once(
    peak_of: Callable[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing_partitions, "BATCH", 1_000)
    peak_of(1_000)
    assert peak_of(effort(4_000, 8_000)) < 1.5 * peak_of(2_000)
