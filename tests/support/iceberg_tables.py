"""Hive tables with Parquet files, and the stage step of their migrations without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
from pyiceberg.catalog.sql import SqlCatalog

from catalog import Catalog, Column, NewPartition, Table
from catalog.errors import RefusedFile
from catalog.iceberg.folders import Recursion, data_files
from catalog.iceberg.footers.facts import FooterReader
from catalog.iceberg.manifests import ManifestWriter
from catalog.migration.migrations import STAGE, VERIFY
from catalog.migration.requests import MigrationRequest
from catalog.migration.staging import ListingDigest, PartitionTotal, Staged, merged_spellings
from catalog.operations.records import Operation
from catalog.tables.schemes import scheme_from_properties

NAME = "demo.orders"
COLUMNS = [("id", "bigint"), ("note", "string")]
KEYS = [("country", "string"), ("year", "int")]
REQUEST = MigrationRequest(verify=False)

PARTITIONS: dict[tuple[str | None, str | None], list[int]] = {
    ("nl", "2024"): [1, 2],
    ("nl", "2025"): [3],
    ("de/at", "9"): [4, 5, 6],
    (None, "2025"): [7],
}
"""Values of the partition keys → the ids of the rows."""


def write_rows(location: str, ids: Sequence[int], name: str = "part-0.parquet") -> str:
    """Write a file without field ids, as Hive does; return its path."""
    path = Path(location.removeprefix("file:")) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = {"id": pyarrow.array(ids, pyarrow.int64()), "note": pyarrow.array([f"n{each}" for each in ids])}
    pyarrow.parquet.write_table(pyarrow.table(rows), path)
    return str(path)


def make_orders(
    catalog: Catalog, name: str = NAME, partitions: dict[tuple[str | None, str | None], list[int]] | None = None
) -> Table:
    """Create a table with partitions and files."""
    partitions = PARTITIONS if partitions is None else partitions
    table = catalog.create_table(name, columns=COLUMNS, partition_keys=KEYS, properties={"owner": "ann"})
    catalog.create_partition_index(name, "by_country", ["country"])
    catalog.add_partitions(name, [NewPartition(values) for values in partitions])
    for values, ids in partitions.items():
        write_rows(catalog.get_partition(name, values).location, ids)
    return table


def stage(catalog: Catalog, operation: Operation, problems: Sequence[RefusedFile] = ()) -> dict[str, Any]:
    """Run the stage step in this process, without Spark."""
    attempt = catalog.operations.start_job(operation.id, STAGE)
    staged = staged_files(catalog, operation, attempt, problems)
    return catalog.migrations.record_staged(operation.id, attempt, staged)


def staged_files(catalog: Catalog, operation: Operation, attempt: int, problems: Sequence[RefusedFile] = ()) -> Staged:
    """Write the manifests of an attempt."""
    migrations = catalog.migrations
    migration = migrations.get(operation.id)
    layout = migrations.layout(migration)
    listing, totals, spellings, unknown = ListingDigest(), [], [], set()
    recursion = Recursion(migration.parsed_request.recursive_directory)
    skipped = migrations.skipped_folders(migration)
    with ManifestWriter(layout, migrations.manifest_prefix(migration, attempt), 1_000) as writer:
        for folder in chain.from_iterable(migrations.folders(migration, 2)):
            partition, reader = layout.partition_record(folder.values), FooterReader(layout, folder.format)
            files = rows = size = 0
            for file in data_files(folder.location, recursion, skipped):
                listing.add(file)
                facts = reader.read(file)
                writer.add(partition, folder.format, file, facts)
                spellings += facts.spellings
                unknown.update(facts.unknown)
                files, rows, size = files + 1, rows + facts.row_count, size + file.size_bytes
            totals.append(PartitionTotal(folder.ordinal, files, rows, size))
    return Staged(
        writer.manifests, totals, str(listing), merged_spellings(spellings), problems, unknown=sorted(unknown)
    )


def migrate(
    catalog: Catalog, name: str = NAME, operation_id: str = "m1", request: MigrationRequest = REQUEST
) -> dict[str, Any]:
    """Run all steps of a migration; called again, continue it."""
    operation = catalog.migrations.begin(operation_id, name, request)
    if not operation.is_committed and not catalog.migrations.is_staged(operation_id):
        stage(catalog, operation)
    return catalog.migrations.flip(operation_id)


def pretend_verified(catalog: Catalog, operation_id: str) -> None:
    """Record a comparison that found no difference."""
    with catalog.operations.attempt(operation_id, VERIFY) as attempt:
        _, location = catalog.migrations.staged(operation_id)
        catalog.operations.finish_job(operation_id, VERIFY, attempt, {"metadata_location": location})


def iceberg_rows(url: str, name: str = NAME, **scan: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a scan with PyIceberg's catalog, in order."""
    with sql_catalog(url) as iceberg:
        found = iceberg.load_table(name).scan(**scan).to_arrow()
    return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)


@contextmanager
def sql_catalog(url: str) -> Iterator[SqlCatalog]:
    """Open PyIceberg's catalog over the same database."""
    iceberg = SqlCatalog("calve", uri=url)
    try:
        yield iceberg
    finally:
        iceberg.engine.dispose()


def change_by_engine(catalog: Catalog, url: str, kind: str) -> None:
    """Create the table `demo.t`, and let PyIceberg append rows to it, and overwrite them.

    Args:
        kind: `iceberg` for a table stored as Iceberg with a partition key, `scheme` for one with ranges.
    """
    if kind == "iceberg":
        catalog.create_table("demo.t", columns=[("v", "int")], partition_keys=[("c", "int")], format="iceberg")
    else:
        scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "10, 20"})
        catalog.create_table("demo.t", columns=[("c", "int")], scheme=scheme)
    with sql_catalog(url) as iceberg:
        table = iceberg.load_table("demo.t")
        values = pyarrow.array([1, 2], pyarrow.int32())
        rows = pyarrow.table(dict.fromkeys(table.schema().column_names, values))
        table.append(rows)
        table.overwrite(rows)


def append(url: str, ids: Sequence[int], name: str = NAME) -> None:
    """Append rows with PyIceberg's catalog, as another engine does."""
    count = len(ids)
    rows = pyarrow.table(
        {
            "id": pyarrow.array(ids, pyarrow.int64()),
            "note": pyarrow.array([f"n{each}" for each in ids]),
            "country": pyarrow.array(["fr"] * count),
            "year": pyarrow.array([2026] * count, pyarrow.int32()),
        }
    )
    with sql_catalog(url) as iceberg:
        iceberg.load_table(name).append(rows)


def expected_rows(
    partitions: dict[tuple[str | None, str | None], list[int]] | None = None,
) -> list[tuple[Any, ...]]:
    """Return the rows of `make_orders`, in order."""
    partitions = PARTITIONS if partitions is None else partitions
    rows = [
        (each, f"n{each}", country, None if year is None else int(year))
        for (country, year), ids in partitions.items()
        for each in ids
    ]
    return sorted(rows, key=repr)
