"""A load and an index build on a standalone cluster of Spark: two executors of one core, beside one."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import make_url

from benchmarks.day_tables import DayTable
from benchmarks.figures import Figure
from benchmarks.ground import Ground
from benchmarks.object_stores import BUCKET, WARM_UP_FILES, build, prepared_build, slow_store, url_of
from benchmarks.sample import LOCATION
from benchmarks.spark_process import in_new_process
from benchmarks.timing import seconds
from catalog import Catalog
from catalog.settings.environment import SPARK_JVM_OPTIONS, spark_packages
from standalone.java import require_java
from standalone.postgres import HOST
from standalone.spark_cluster import RunningSparkCluster

HEADINGS = {
    "executors": "Two executors of one core ÷ one: writing a load's files to S3, 20 ms a request, and an index build",
}

_LOADS_OF_SCALE = 10
"""The loads have this part of the least scale: one core writes a file after the other."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Request:
    """The arguments of the process of the driver.

    Attributes:
        build_url: The catalog with a table whose index is built.
        url: The catalog of the loaded tables.
        folder: A new folder for the object store and the driver.
        environment: The variables with which the driver finds the cluster.
        file_count: The number of files of the load.
    """

    build_url: str
    url: str
    folder: Path
    environment: dict[str, str]
    file_count: int


def measure(ground: Ground) -> Iterator[Figure]:
    """Yield the seconds of both, of one run each."""
    partition_count, file_count = ground.scales[-1], ground.scales[0] // _LOADS_OF_SCALE
    log.info("Loading %s files and indexing %s partitions on a cluster", f"{file_count:,}", f"{partition_count:,}")
    times: dict[int, dict[str, float]] = {}
    with RunningSparkCluster.running() as cluster:
        for executor_count in (1, 2):
            name = f"executors_{executor_count}"
            build_url = prepared_build(ground, f"build_by_{name}", f"s3://{BUCKET}{LOCATION}")
            url = url_of(ground.catalog(ground.postgresql, name))
            with TemporaryDirectory(dir=ground.folder) as folder:
                environment = _environment(cluster, folder, executor_count)
                request = _Request(build_url, url, Path(folder), environment, file_count)
                times[executor_count] = in_new_process(ground.folder / "spark.log", _times, request)
    for step, count in (("write", file_count), ("build_index", partition_count)):
        name = f"executors.{step}.{count}.postgresql"
        yield Figure(name=name, ours=times[2][step], peer=times[1][step], unit="s", runs=1)


def _environment(cluster: RunningSparkCluster, folder: str, executor_count: int) -> dict[str, str]:
    settings = {
        "spark.cores.max": executor_count,
        "spark.executor.cores": 1,
        "spark.executor.memory": "700m",
        "spark.executor.extraJavaOptions": f"'{SPARK_JVM_OPTIONS}'",
        "spark.driver.host": HOST,
        "spark.scheduler.minRegisteredResourcesRatio": 1.0,
    }
    options = [f"--conf {name}={value}" for name, value in settings.items()]
    return {
        "CALVE_HOME": folder,
        "CALVE_SPARK_MASTER": cluster.url,
        "JAVA_HOME": str(require_java()),
        "PYSPARK_PYTHON": cluster.python,
        "PYSPARK_SUBMIT_ARGS": " ".join([*options, "pyspark-shell"]),
        "SPARK_CONF_DIR": str(cluster.driver_conf),
        "SPARK_LOCAL_IP": HOST,
    }


def _times(request: _Request) -> dict[str, float]:
    """Return the seconds of both steps."""
    from spark_jobs.sessions.local_session import start_session

    os.environ |= {**request.environment, "CALVE_CATALOG_URL": request.url}
    with slow_store(request.folder / "s3"), Catalog.open(request.url) as catalog:
        spark = start_session("bench", make_url(request.url), spark_packages(database="postgresql"))
        for count in (WARM_UP_FILES, request.file_count):
            table = DayTable(spark, catalog, f"bench.days_{count}", f"s3://{BUCKET}/{count}", count)
            write_seconds = seconds(table.write)
        build_seconds = seconds(lambda: build(spark, request.build_url))
        spark.stop()
    return {"write": write_seconds, "build_index": build_seconds}
