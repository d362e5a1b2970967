"""Loads and statements whose engine is PyArrow, and the processes of tests that kill them.

Each line of a source file is one row: an origin and a month, the partition keys of the table.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from catalog import Catalog, Table
from catalog.loading.loading import Loading
from catalog.model import Column
from catalog.model.partition_names import partition_path
from catalog.operations.failpoints import DIE_AT, die
from catalog.operations.records import Operation, OperationKind
from catalog.operations.staging import STAGED_DATA, STAGED_FILES
from catalog.settings.quality_rules import PartitionCheck
from catalog.settings.table_config import TableConfig
from catalog.statements.engine import Engine, NewOperation
from catalog.statements.loads import LoadReport, TableLoads
from catalog.statements.session import Session
from catalog.tables.own_files import base_name

TABLE = "demo.t"


class ArrowEngine:
    """Runs the steps of loads without Spark."""

    def __init__(self, catalog: Catalog) -> None:
        """Use a catalog."""
        self._catalog = catalog

    def run_step(
        self, operation: Operation, step: str, request: Mapping[str, Any], conf: Mapping[str, str]
    ) -> Mapping[str, Any]:
        """Run a step, and record its result."""
        with self._catalog.operations.attempt(operation.id, step) as attempt:
            if step == "check_quality":
                partitions = self._catalog.loaded_partitions(operation.id).partitions
                report: dict[str, Any] = {"checked": len(partitions), "passed": len(partitions), "failed": 0}
                checks = [PartitionCheck(partition.id) for partition in partitions]
                self._catalog.quality.record(operation.id, step, attempt, checks, report)
                return report
            counts = self._counts(operation)
            result: dict[str, Any] = {"files": 1, "rows": counts.total(), "partitions": len(counts)}
            if step == "write_partitions":
                result = {"staging": stage(self._catalog, operation, step, attempt, counts), "rows": counts.total()}
            self._catalog.operations.finish_job(operation.id, step, attempt, result)
        return result

    def columns_of(self, query: str, database: str) -> tuple[Column, ...]:
        """Return the columns of every SELECT."""
        return Column("v", "int"), Column("origin", "string"), Column("month", "int")

    def insert_query(
        self, operation: NewOperation, table: Table, query: str, database: str, **_options: Any
    ) -> Mapping[str, Any]:
        """Add a row to each of two partitions."""
        begun = self._catalog.operations.begin(
            operation.id, OperationKind.APPEND_ROWS, table.full_name, is_exclusive=True
        )
        step = "append_rows"
        if begun.is_committed:
            job = self._catalog.operations.get_job(operation.id, step)
            attempt = 0 if job is None else job.attempt
            staging = Loading.staging_name(begun, attempt)
        else:
            attempt = self._catalog.operations.start_job(operation.id, step)
            staging = stage(self._catalog, begun, step, attempt, Counter([("JFK", "1"), ("LGA", "1")]))
        report = self._catalog.loading.publish(operation.id, step, attempt, staging, is_load=False)
        return {"rows": report["rows"]}

    def close(self) -> None:
        """Do nothing."""

    def _counts(self, operation: Operation) -> Counter[tuple[str, ...]]:
        files = self._catalog.loading.source_files(self._catalog.operations.get(operation.id))
        return Counter(tuple(line.split(",")) for file in files for line in Path(file.path).read_text().split())


def stage(catalog: Catalog, operation: Operation, step: str, attempt: int, counts: Counter[tuple[str, ...]]) -> str:
    """Write the files of a Spark job, with these numbers of rows by partition; return their folder."""
    table = catalog.get_table(operation.table)
    staging = Loading.staging_name(operation, attempt)
    catalog.loading.discard_staging(table, (operation.id, step, attempt), keep=staging)
    folder, name = (
        Path(table.location, staging),
        f"{base_name(catalog.storage.identity)}-00000-{uuid4()}.c000.snappy.parquet",
    )
    for values in counts:
        target = folder / STAGED_DATA / partition_path(table.key_names, values)
        target.mkdir(parents=True)
        (target / name).write_text(name)
    (folder / STAGED_FILES).mkdir(parents=True)
    columns = {
        "values": pa.array([list(values) for values in counts], pa.list_(pa.string())),
        "files": pa.array([[name]] * len(counts), pa.list_(pa.string())),
        "row_count": pa.array(counts.values(), pa.int64()),
        "size_bytes": pa.array([100] * len(counts), pa.int64()),
    }
    pq.write_table(pa.table(columns), folder / STAGED_FILES / "part-0.parquet")
    (folder / STAGED_FILES / "_SUCCESS").touch()
    return staging


def start_arrow(catalog: Catalog) -> Engine:
    """Start an engine that only runs the steps of loads."""
    return cast(Engine, ArrowEngine(catalog))


def load_files(
    catalog: Catalog,
    source: str,
    mode: str = "append",
    on_step: Callable[[str], object] = lambda step: None,
    quality: Mapping[str, Any] | None = None,
) -> list[LoadReport]:
    """Load a source into the table, as `calve load` does."""
    config = TableConfig(TABLE, source, mode=mode, quality=quality or {})
    return list(TableLoads(catalog, start=start_arrow, on_step=on_step).load(config, [source]))


def load_and_die(url: str, home: str, source: str, mode: str, place: str) -> None:
    """Load a source, and be killed at a point, or before a step."""
    os.environ.update({DIE_AT: place, "CALVE_HOME": home, "CALVE_ALLOWED_LOCATIONS": "*"})
    with Catalog.open(url) as catalog:
        load_files(catalog, source, mode, lambda step: die() if step == place else None)


def execute_and_die(url: str, warehouse: str, statement: str, operation_id: str, place: str) -> None:
    """Execute a statement, and be killed at a point, or when a file of a new table has been written."""
    os.environ.update({DIE_AT: place, "CALVE_WAREHOUSE": warehouse, "CALVE_ALLOWED_LOCATIONS": "*"})
    with Catalog.open(url) as catalog, Session(catalog, database="demo", start=start_arrow) as session:
        session.execute(statement, operation_id=operation_id)
