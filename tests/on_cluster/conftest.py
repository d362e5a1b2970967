"""A cluster of Spark, an S3 server, and tasks of Airflow that submit jobs to it, without Airflow's components."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog import Catalog
from catalog.settings.environment import SPARK_JVM_OPTIONS, package_settings

if TYPE_CHECKING:
    from tests.support.object_store import ObjectStore
    from tests.support.spark_cluster import ClusterOfTests

WAREHOUSE = "s3://lake/warehouse"


@pytest.fixture(scope="session")
def cluster() -> Iterator[ClusterOfTests]:
    """A running cluster of two workers with one core each."""
    from tests.support.spark_cluster import SECRET, ClusterOfTests

    with ClusterOfTests.running(SECRET) as running:
        yield running


@pytest.fixture
def submit(
    cluster: ClusterOfTests,
    object_store: ObjectStore,
    postgres_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Any]:
    """A function that runs a job on the cluster as a task does: job, operation, request and Spark's settings."""
    from calve_airflow.operators.spark_job import SparkJobOperator
    from standalone.class_archive import jvm_options
    from standalone.java import require_java

    connection = {"conn_type": "spark", "host": cluster.url.rpartition(":")[0], "port": int(cluster.url.split(":")[-1])}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    monkeypatch.setenv("CALVE_CATALOG_URL", postgres_url)
    monkeypatch.setenv("CALVE_WAREHOUSE", WAREHOUSE)
    monkeypatch.setenv("CALVE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("JAVA_HOME", str(require_java()))
    monkeypatch.setenv("SPARK_CONF_DIR", str(cluster.driver_conf))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", jvm_options(require_java()))
    monkeypatch.setenv("PYSPARK_PYTHON", cluster.python)
    # Executors must not find the password in a file.
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "none"))

    def run(job: str, operation_id: str, request: dict[str, Any], **conf: str) -> dict[str, Any]:
        settings = {
            **package_settings(database="postgresql"),
            "spark.executor.extraJavaOptions": SPARK_JVM_OPTIONS,
            "spark.driver.host": "127.0.0.1",
            "spark.executor.memory": "600m",
            "spark.sql.shuffle.partitions": "2",
            **conf,
        }
        operator = SparkJobOperator(
            task_id="task", job=job, operation_id=operation_id, request=request, conf=settings, poll_seconds=0.2
        )
        return operator.execute({})

    return run


@pytest.fixture
def catalog(submit: Callable[..., Any], postgres_url: str) -> Iterator[Catalog]:
    """The catalog of the cluster's jobs, on PostgreSQL, with the database `lake`."""
    with Catalog.open(postgres_url, warehouse=WAREHOUSE) as opened:
        opened.create_database("lake")
        yield opened
