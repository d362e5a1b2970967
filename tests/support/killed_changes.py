"""The processes of the tests of killed changes: a change of the catalog, or a load of files by PyArrow."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq

from catalog import Catalog, Table
from catalog.datafiles.committing import FileChange
from catalog.datafiles.files import NewFile
from catalog.datafiles.footers import DataFileReader
from catalog.datafiles.manifest import write_manifest
from catalog.model import GRACE
from catalog.operations.attempts import attempt_folder
from catalog.operations.failpoints import DIE_AT
from catalog.operations.records import OperationKind
from catalog.rebalancing.changes import PartitionChange, change_from_json
from catalog.rebalancing.planning import RebalancePlan
from catalog.rebalancing.rebalancing import COMMIT
from catalog.schemes.model import Scheme
from tests.support.iceberg_tables import sql_catalog
from tests.support.published import check_published

LOAD = "load"


def change(url: str, operation: str, table: str, described: Mapping[str, Any], point: str) -> None:
    """Make a change, and exit at a point."""
    os.environ[DIE_AT] = point
    with Catalog.open(url) as catalog:
        assert catalog.rebalancing.change_catalog(operation, table, change_from_json(described)) is not None


def write_files(table: Table, scheme: Scheme, folder: str, values: Sequence[int]) -> list[NewFile]:
    """Write integers to files of their partitions, without a list of the files."""
    parts: dict[int, list[int]] = {}
    for value in values:
        parts.setdefault(scheme.partition_of(value), []).append(value)
    reader = DataFileReader(table, {scheme.column: scheme.value_type})
    files = []
    for partition_id, own in parts.items():
        path = f"{folder}/calve_partition_id={partition_id}/part.parquet"
        target = Path(table.location, path)
        target.parent.mkdir(parents=True)
        pq.write_table(pa.table({scheme.column: pa.array(own, pa.int32())}), target)
        files.append(reader.read(path, target.stat().st_size, partition_id))
    return files


def load(catalog: Catalog, operation: str, table: str, values: Sequence[int]) -> None:
    """Load integers in one operation."""
    begun = catalog.operations.begin(operation, OperationKind.LOAD_ROWS, table, is_exclusive=True)
    with catalog.operations.attempt(operation, LOAD) as attempt:
        found = catalog.get_table(table)
        assert found.scheme is not None
        folder = attempt_folder(begun, attempt)
        write_manifest(found, folder, write_files(found, found.scheme, folder, values))
        change = FileChange(found.scheme, found.scheme, folder, len(values))
        catalog.committer.commit(operation, LOAD, attempt, change, {})


def rewrite(plan: RebalancePlan, folder: str) -> None:
    """Write the rows that a plan moves, as the Spark job does."""
    rows = [value for file in plan.rewritten for value in read_values(Path(plan.table.location, file.path))]
    write_manifest(plan.table, folder, write_files(plan.table, plan.scheme, folder, rows))


def rebalance(catalog: Catalog, operation: str, table: str, change: PartitionChange) -> None:
    """Make a change, with the rewriting that it needs."""
    begun = catalog.rebalancing.begin(operation, table, change)
    with catalog.operations.attempt(operation, COMMIT) as attempt:
        plan = catalog.rebalancing.plan_of(catalog.operations.get(operation))
        folder = attempt_folder(begun, attempt) if plan.needs_spark else None
        if folder is not None:
            rewrite(plan, folder)
        catalog.rebalancing.commit(operation, COMMIT, attempt, plan, folder)


def roll_back(url: str, operation: str, table: str, snapshot_id: int, point: str) -> None:
    """Roll a table back, and exit at a point."""
    os.environ[DIE_AT] = point
    with Catalog.open(url) as catalog:
        catalog.roll_backs.to_snapshot(table, snapshot_id, operation_id=operation)


def read_values(path: Path) -> list[int]:
    """Return the integers of a data file."""
    found: list[int] = pq.ParquetFile(path).read()["c"].to_pylist()
    return found


def contents(catalog: Catalog, table: str) -> dict[int, list[int]]:
    """Return the values of each partition, after checking the published table; nobody may change it meanwhile."""
    check_published(catalog, table)
    return read_contents(catalog, table)


def read_contents(catalog: Catalog, table: str) -> dict[int, list[int]]:
    """Return the values of each partition, from one read of the catalog."""
    scan = catalog.scan_files(table)
    found: dict[int, list[int]] = {}
    for file in scan.files:
        found.setdefault(file.partition_id, []).extend(read_values(Path(scan.table.location, file.path)))
    return {
        partition_id: sorted(values, key=lambda value: (value is None, value or 0))
        for partition_id, values in found.items()
    }


def publish_table(url: str, table: str, point: str) -> None:
    """Publish a table of an earlier version, and exit at a point."""
    os.environ[DIE_AT] = point
    with Catalog.open(url) as catalog:
        catalog.publish_table(table)


def drop_table(url: str, table: str, point: str) -> None:
    """Drop a table in small batches, and exit at a point."""
    os.environ[DIE_AT] = point
    with Catalog.open(url) as catalog, small_batches():
        catalog.drop_table(table)


def drop_database(url: str, database: str, point: str) -> None:
    """Drop a database with its tables, and exit at a point."""
    os.environ[DIE_AT] = point
    with Catalog.open(url) as catalog, small_batches():
        catalog.drop_database(database, cascade=True)


def vacuum(url: str, point: str, grace: timedelta = GRACE) -> None:
    """Run vacuum, and exit at a point."""
    os.environ[DIE_AT] = point
    with Catalog.open(url) as catalog, small_batches():
        catalog.vacuum(grace=grace)


def drop_partitions(url: str, table: str, expression: str, point: str) -> None:
    """Drop partitions in small batches, and exit at a point."""
    os.environ[DIE_AT] = point
    with Catalog.open(url) as catalog, small_batches():
        catalog.drop_partitions(table, expression)


@contextmanager
def small_batches() -> Iterator[None]:
    """Reduce the batch size of drops, so that a few hundred rows need several transactions."""
    with patch("catalog.tables.dropping.BATCH", 100), patch("catalog.partitions.changing.BATCH", 100):
        yield


def take_in(url: str, table: str, point: str) -> None:
    """Take in the commits of other engines, and exit at a point."""
    os.environ[DIE_AT] = point
    with Catalog.open(url) as catalog:
        catalog.scan_files(table)


def append_by_engine(url: str, table: str, values: Sequence[Sequence[int]]) -> None:
    """Append integers by PyIceberg, in one commit after the other."""
    from pyiceberg.exceptions import CommitFailedException
    from sqlalchemy.exc import OperationalError

    for batch in values:
        while True:
            with sql_catalog(url) as iceberg:
                try:
                    iceberg.load_table(table).append(pa.table({"c": pa.array(batch, pa.int32())}))
                    break
                except (CommitFailedException, OperationalError):
                    # Another commit was first, or SQLite is busy.
                    continue
