"""Tables that the pages of migrations, of partition schemes and of quality show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta

from catalog import Catalog, Column, NewPartition
from catalog.datafiles.files import ColumnStatistics, NewFile, insert_files
from catalog.migration.migrations import VERIFY
from catalog.migration.requests import MigrationRequest
from catalog.operations.records import OperationKind
from catalog.partitions.changing import set_quarantined
from catalog.rebalancing.changes.values import SplitPartition
from catalog.rebalancing.requests import RebalanceRequest
from catalog.settings.compaction_rules import CompactionRules
from catalog.settings.quality_rules import FailedCheck, FailedSample, PartitionCheck
from catalog.tables.schemes import scheme_from_properties
from tests.support.iceberg_tables import make_orders, stage

WAREHOUSE_TABLES = 20
RANGES = ("2024-01-01", "2024-02-01", "2024-03-01", "2024-04-01")
DEVICES = ("(phone, tablet)", "desktop", "(tv, car, watch)")


def fill(catalog: Catalog) -> None:
    """Create the tables of all pages."""
    make_warehouse(catalog)
    make_scheme_tables(catalog)
    make_checked_table(catalog)
    make_proposals(catalog)


def make_proposals(catalog: Catalog) -> None:
    """Keep what the advisor proposes for tables of ranges and of folders with small files."""
    change = SplitPartition(3, ("2024-02-15", "2024-03-01"))
    request = RebalanceRequest.of("demo.visits", change, dry_run=True).as_form()
    split = {
        "statement": f"ALTER TABLE demo.visits {change}",
        "reason": "partition 3 ([2024-02-01, 2024-03-01)) has 72.5 MiB, 3.1 times the median of 23.2 MiB",
        "dag": "rebalance_partitions",
        "request": request,
    }
    catalog.proposals.replace("demo.visits", [split])
    rules = CompactionRules(min_age=timedelta(0))
    for number in range(1, 11):
        table = f"warehouse.sales_{number:02}"
        catalog.proposals.replace(table, catalog.maintenance.plan_compaction(table, rules).proposals())


def make_warehouse(catalog: Catalog) -> None:
    """Create 20 Hive tables, of which two cannot be migrated, and one in each later state of a migration."""
    catalog.create_database("warehouse")
    for number in range(WAREHOUSE_TABLES - 2):
        name = f"warehouse.sales_{number:02}"
        catalog.create_table(name, columns=[("id", "bigint"), ("at", "timestamp")], partition_keys=[("day", "date")])
        days = [str(date(2024, 1, 1) + timedelta(day)) for day in range(10 + number)]
        partitions = [
            NewPartition((day,), file_count=4 + number, row_count=10_000, size_bytes=number << 20) for day in days
        ]
        catalog.add_partitions(name, partitions)
    catalog.create_table("warehouse.texts", columns=[("line", "string")], format="textfile")
    properties = {"transactional": "true"}
    catalog.create_table("warehouse.accounts", columns=[("id", "bigint")], format="orc", properties=properties)
    request = MigrationRequest()
    for state in ("staged", "verified", "migrated", "reverted"):
        name = f"warehouse.{state}"
        make_orders(catalog, name)
        operation = catalog.migrations.begin(f"migrate_hive_to_iceberg/manual/{name}", name, request)
        stage(catalog, operation)
        if state == "staged":
            continue
        verify(catalog, operation.id)
        if state == "verified":
            continue
        catalog.migrations.flip(operation.id)
        if state == "reverted":
            catalog.migrations.revert(f"run_statement/revert/{name}", name)


def verify(catalog: Catalog, operation_id: str) -> None:
    """Record a comparison that found no difference, as the Spark job does."""
    counts = [("country=nl/year=2024", 2), ("country=nl/year=2025", 1), ("country=de%2Fat/year=9", 3)]
    with catalog.operations.attempt(operation_id, VERIFY) as attempt:
        _, location = catalog.migrations.staged(operation_id)
        report = {
            "metadata_location": location,
            "partitions": 4,
            "partitions_total": 4,
            "rows": 7,
            "row_counts": [[name, rows, rows] for name, rows in counts],
        }
        catalog.operations.finish_job(operation_id, VERIFY, attempt, report)


def make_scheme_tables(catalog: Catalog) -> None:
    """Create tables with ranges, lists and hash partitions, with rows in the catalog; no file exists."""
    catalog.create_database("demo", if_not_exists=True)
    properties = {
        "visits": (Column("day", "date"), {"PARTITION_TYPE": "RANGE", "RANGE_INFO": ", ".join(RANGES)}),
        "devices": (Column("device", "string"), {"PARTITION_TYPE": "LIST", "LIST_INFO": ", ".join(DEVICES)}),
        "hits": (Column("id", "bigint"), {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "4"}),
    }
    for name, (column, scheme) in properties.items():
        catalog.create_table(
            f"demo.{name}",
            columns=[("note", "string"), (column.name, column.type)],
            scheme=scheme_from_properties(column, scheme),
        )
    months = ["2023-12", "2024-01", "2024-02", "2024-03", "2024-04"]
    thirds = (("01", "10", 4000), ("11", "20", 6000), ("21", "29", 9000))
    files = ((f"{month}-{first}", f"{month}-{last}", rows) for month in months for first, last, rows in thirds)
    add_files(catalog, "demo.visits", files)
    devices = (("phone", 9000), ("tablet", 2500), ("desktop", 6000), ("tv", 800), ("car", 90), ("radio", 10))
    add_files(catalog, "demo.devices", ((device, device, rows) for device, rows in devices))
    add_files(catalog, "demo.hits", ((str(number), str(number), 100 + 7 * number) for number in range(40)))


def add_files(catalog: Catalog, name: str, files: Iterator[tuple[str, str, int]]) -> None:
    """Add a file of the least value, the greatest value and the number of rows of each, in the catalog alone."""
    table = catalog.get_table(name)
    scheme = table.scheme
    assert scheme is not None
    new = []
    for number, (least, greatest, rows) in enumerate(files):
        low, high = scheme.typed(least), scheme.typed(greatest)
        statistics = {scheme.column: ColumnStatistics.of_values(scheme.value_type, low, high, 0)}
        partition_id = scheme.partition_of(low)
        new.append(NewFile(partition_id, f"sample/{number}.parquet", rows, rows * 4_000, statistics))
    with catalog.storage.write() as connection:
        insert_files(connection, table, new, None)


FAILURES = (
    FailedCheck("column amount: minimum", "-4", "at least 0"),
    FailedCheck("column amount: null ratio", "0.4", "at most 0.01"),
)


SAMPLE = FailedSample(FAILURES[0].check, ("id", "amount"), (("17", "-4"), ("<b>18</b>", None)))


def make_checked_table(catalog: Catalog) -> None:
    """Create a table with partitions that passed and failed, of which some are quarantined; one was never checked."""
    catalog.create_database("checked")
    name = "checked.events"
    catalog.create_table(name, columns=[("amount", "double")], partition_keys=[("day", "date")])
    days = [str(date(2024, 5, 1) + timedelta(day)) for day in range(31)]
    catalog.add_partitions(name, [NewPartition((day,), file_count=1, row_count=500, size_bytes=9_000) for day in days])
    ids = {partition.values[0]: partition.id for partition in catalog.get_partitions(name)}
    table = catalog.get_table(name)
    bad, held = days[3], [days[10], days[20]]
    with catalog.storage.write() as connection:
        set_quarantined(connection, table, [ids[day] for day in held], True)
    failures = {bad: FAILURES[:1], **dict.fromkeys(held, FAILURES)}
    operation = catalog.operations.begin("add_partitions/sample", OperationKind.ADD_PARTITIONS, name)
    with catalog.operations.attempt(operation.id, "quality") as attempt:
        checks = [PartitionCheck(ids[day], failures.get(day, ())) for day in days[:-1]]
        checks[days.index(bad)] = replace(checks[days.index(bad)], samples=(SAMPLE,))
        failed = len(failures)
        counts = {"checked": len(checks), "passed": len(checks) - failed, "failed": failed}
        report = {**counts, "failures": [], "docs_path": None}
        catalog.quality.record(operation.id, "quality", attempt, checks, report)
