"""Builds of a partition index on PostgreSQL: the Spark job, one Python process, and the server alone."""

from __future__ import annotations

import logging
import multiprocessing
import os
import re
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING
from uuid import uuid4

import psycopg

from benchmarks.figures import BenchmarkError, Figure
from benchmarks.ground import BY_CATEGORY, Ground, create_table
from benchmarks.sample import TABLE, partitions
from benchmarks.timing import seconds
from catalog import Catalog, IndexState
from catalog.indexes.keys import cut_key
from catalog.model.partition_names import unpack_values
from catalog.operations.job_requests import BuildPartitionIndexJob
from catalog.operations.records import OperationKind
from catalog.storage.values import EncodedValues, ValueEncoder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEADINGS = {
    "build_index": "Building an index ÷ one process: Spark on 2 cores, beside one Python that encodes and sends",
    "build_index_memory": "Memory of a build's driver ÷ at the least scale: peak of its Python process",
}
MOST_OF_ONE_PROCESS = 1.0
MOST_OF_SMALLEST_MEMORY = 1.1
_MEGABYTE_KB = 1024

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Build:
    """Time and memory of one build by the Spark job.

    Attributes:
        session_seconds: Start time of the Spark session.
        seconds: Time of the job's function, including the start of its Python workers.
        memory_mb, peak_mb: Resident memory of the driver's Python before the build, and its peak during the build.
    """

    session_seconds: float
    seconds: float
    memory_mb: float
    peak_mb: float


def measure(ground: Ground) -> Iterator[Figure]:
    """Yield build times at the largest scale, with and without Spark's start, and the driver's memory at all scales."""
    builds = {}
    for count in ground.scales[:-1]:
        catalog = _prepared(ground, count)
        builds[count] = [_build_with_spark(catalog, ground.folder)]
    largest = ground.scales[-1]
    catalog = _prepared(ground, largest)
    builds[largest], alone, limits = [], [], []
    with psycopg.connect(_driver_url(catalog), autocommit=True) as connection:
        # Alternate, so that load on the machine affects all of them.
        for _ in range(ground.effort.least_runs):
            builds[largest].append(_build_with_spark(catalog, ground.folder))
            alone.append(seconds(lambda: _build_in_one_process(catalog, connection)))
            limits.append(seconds(lambda: _build_in_the_server(connection)))
            _check_and_delete(catalog, connection)

    yield _build_figure("job", largest, [build.seconds for build in builds[largest]], alone, limits)
    whole = [build.session_seconds + build.seconds for build in builds[largest]]
    yield _build_figure("job_with_session", largest, whole, alone, limits)
    smallest = ground.scales[0]
    for count in ground.scales:
        yield Figure(
            name=f"build_index_memory.driver.{count}.postgresql",
            ours=max(build.peak_mb for build in builds[count]),
            peer=max(build.peak_mb for build in builds[smallest]),
            limit=max(build.memory_mb for build in builds[count]),
            unit="MB",
            runs=len(builds[count]),
            goal=None if count == smallest else MOST_OF_SMALLEST_MEMORY,
        )


def _build_figure(case: str, count: int, ours: list[float], alone: list[float], limits: list[float]) -> Figure:
    return Figure(
        name=f"build_index.{case}.{count}.postgresql",
        ours=median(ours),
        peer=median(alone),
        limit=median(limits),
        unit="s",
        runs=len(ours),
        goal=MOST_OF_ONE_PROCESS if case == "job" else None,
    )


def _prepared(ground: Ground, count: int) -> Catalog:
    """Return a catalog with the sample and no index."""
    log.info("Building an index over %s partitions", f"{count:,}")
    name = f"build_{count}"
    catalog = ground.catalog(ground.postgresql, name)
    create_table(catalog)
    catalog.add_partitions(TABLE, list(partitions(count)))
    ground.postgresql.settle(name)
    return catalog


def _driver_url(catalog: Catalog) -> str:
    return catalog.storage.url.set(drivername="postgresql").render_as_string(hide_password=False)


# --- the Spark job --------------------------------------------------------------------------------------------------


def _build_with_spark(catalog: Catalog, folder: Path) -> Build:
    """Build the index as a job does: in a new process with a new session."""
    catalog.create_partition_index(TABLE, BY_CATEGORY.name, BY_CATEGORY.keys)
    url = catalog.storage.url.render_as_string(hide_password=False)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as driver:
        build = driver.submit(_run_job, url, folder / "spark.log").result()
    state = catalog.get_partition_index(TABLE, BY_CATEGORY.name).state
    if state is not IndexState.ACTIVE:
        raise BenchmarkError(f"the index built by Spark is {state}, expected ACTIVE")
    return build


def _run_job(url: str, log_path: Path) -> Build:
    """Start Spark, and build the index; the main function of the driver process."""
    # The executors read the password from this variable.
    os.environ["CALVE_CATALOG_URL"] = url
    with log_path.open("ab") as output:
        os.dup2(output.fileno(), sys.stdout.fileno())
        os.dup2(output.fileno(), sys.stderr.fileno())
    from spark_jobs.sessions.session import configure
    from standalone.class_archive import jvm_options
    from standalone.java import require_java

    java_home = require_java()
    os.environ["JAVA_HOME"] = str(java_home)
    os.environ["SPARK_SUBMIT_OPTS"] = jvm_options(java_home)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    started = time.perf_counter()
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = configure(builder.config("spark.driver.host", "127.0.0.1").getOrCreate())
    session_seconds = time.perf_counter() - started
    with Catalog.open(url) as catalog:
        # Reset the peak memory in the kernel.
        Path("/proc/self/clear_refs").write_text("5")
        memory_mb = own_memory_mb("VmRSS")
        try:
            build_seconds = seconds(lambda: build_in_session(spark, catalog))
        except Exception as error:
            # Spark's errors cannot be pickled.
            raise BenchmarkError(f"the Spark job failed: {type(error).__name__}: {str(error)[:2000]}") from None
        build = Build(session_seconds, build_seconds, memory_mb, own_memory_mb("VmHWM"))
    spark.stop()
    return build


def build_in_session(spark: SparkSession, catalog: Catalog) -> None:
    """Build the index, which was created before, in an operation of its own."""
    from spark_jobs.build_partition_index import build_partition_index

    step, operation_id = BuildPartitionIndexJob.script, uuid4().hex
    catalog.operations.begin(operation_id, OperationKind.BUILD_INDEX, TABLE)
    attempt = catalog.operations.start_job(operation_id, step)
    job = BuildPartitionIndexJob(
        operation_id=operation_id, step=step, attempt=attempt, table=TABLE, index=BY_CATEGORY.name
    )
    build_partition_index(spark, catalog, job)


def own_memory_mb(field: str) -> float:
    """Return the memory of this process in MB; `field` is one of `/proc/self/status`, such as VmRSS."""
    match = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return int(match[1]) / _MEGABYTE_KB


# --- the peers ------------------------------------------------------------------------------------------------------


def _build_in_one_process(catalog: Catalog, connection: psycopg.Connection) -> None:
    """Write the same items into a table with the same columns: read all partitions, encode in Python, COPY."""
    table, index = catalog.get_table(TABLE), catalog.get_partition_index(TABLE, BY_CATEGORY.name)
    encoder = ValueEncoder(table, [index])
    connection.execute("CREATE TABLE one_process (LIKE calve_index_item INCLUDING ALL)")
    into = "COPY one_process (index_id, key, partition_id) FROM STDIN (FORMAT BINARY)"
    with (
        psycopg.connect(connection.info.dsn, password=connection.info.password) as reader,
        reader.cursor("partitions", binary=True) as rows,
        connection.cursor() as writer,
        writer.copy(into) as copy,
    ):
        rows.itersize = 10_000
        rows.execute("SELECT id, packed_values FROM calve_partition WHERE table_id = %s", [table.id])
        copy.set_types(["int8", "bytea", "int8"])
        for partition_id, packed in rows:
            encoded = encoder.encode(unpack_values(packed))
            assert isinstance(encoded, EncodedValues)
            copy.write_row((index.id, cut_key(encoded.index_keys[0]), partition_id))


def _build_in_the_server(connection: psycopg.Connection) -> None:
    """Copy the existing items into a table in the server, and index it."""
    connection.execute("CREATE TABLE server_alone AS SELECT * FROM one_process")
    connection.execute("ALTER TABLE server_alone ADD PRIMARY KEY (index_id, key, partition_id)")


def _check_and_delete(catalog: Catalog, connection: psycopg.Connection) -> None:
    """Check that the job and the process have written the same items, and delete them.

    Raises:
        BenchmarkError: The items differ.
    """
    query = (
        "SELECT count(*) FROM calve_index_item AS item FULL JOIN one_process AS other "
        "USING (index_id, key, partition_id) WHERE item.index_id IS NULL OR other.index_id IS NULL"
    )
    different = connection.execute(query).fetchall()[0][0]
    if different:
        raise BenchmarkError(f"{different:,} items of the job differ from those of one process")
    connection.execute("DROP TABLE one_process, server_alone")
    catalog.delete_partition_index(TABLE, BY_CATEGORY.name)
    connection.execute("VACUUM calve_index_item")
