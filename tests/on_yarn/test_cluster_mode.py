"""A job in cluster mode on YARN: its driver runs in a container, which has neither Calve's code nor its settings."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog import Catalog, IndexState, NewPartition
from catalog.operations.records import OperationKind
from tests.support.command_lines import CommandLines
from tests.support.iceberg_tables import COLUMNS, KEYS
from tests.support.index_items import assert_every_partition_has_its_item

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)]

TABLE, INDEX, OPERATION = "lake.orders", "by_year", "build"


@pytest.fixture(scope="module")
def hadoop_conf_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    from tests.support.hadoop_cluster import running_hadoop

    with running_hadoop(tmp_path_factory.mktemp("hadoop")) as conf_dir:
        yield conf_dir


@pytest.fixture
def settings(
    hadoop_conf_dir: Path, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """Spark's settings of a job, after the environment of the task that submits it is set."""
    from standalone.java import require_java

    connection = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    monkeypatch.setenv("CALVE_CATALOG_URL", postgres_url)
    monkeypatch.setenv("CALVE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("JAVA_HOME", str(require_java()))
    monkeypatch.setenv("HADOOP_CONF_DIR", str(hadoop_conf_dir))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    # Third-party packages only: unlike the virtual environment, it has no link to Calve's code.
    packages = sysconfig.get_path("purelib")
    return {
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.instances": "1",
        "spark.pyspark.python": os.path.realpath(sys.executable),
        "spark.yarn.appMasterEnv.PYTHONPATH": packages,
        "spark.executorEnv.PYTHONPATH": packages,
    }


def test_an_index_is_built_by_a_driver_on_the_cluster(
    settings: dict[str, str], postgres_url: str, tmp_path: Path
) -> None:
    from calve_airflow.operators.spark_job import SparkJobOperator
    from calve_airflow.submitting.job_process import JobProcess

    with Catalog.open(postgres_url, warehouse=str(tmp_path / "warehouse")) as catalog:
        catalog.create_database("lake")
        catalog.create_table(TABLE, columns=COLUMNS, partition_keys=KEYS)
        catalog.add_partitions(TABLE, [NewPartition(("nl", str(year))) for year in range(1900, 2100)])
        catalog.create_partition_index(TABLE, INDEX, ["year"])
        catalog.operations.begin(OPERATION, OperationKind.BUILD_INDEX, TABLE)
        lines = CommandLines()
        with lines.watched():
            SparkJobOperator(
                task_id="task",
                job="build_partition_index",
                operation_id=OPERATION,
                request={"table": TABLE, "index": INDEX},
                conf=settings,
                resubmissions=0,
            ).execute({})
        job = catalog.operations.get_job(OPERATION, "build_partition_index")
        assert job is not None
        assert job.log_path is not None
        # spark-submit ends after the application; it would look for a YARN that was stopped.
        process = JobProcess(Path(job.log_path))
        while process.is_alive():
            time.sleep(0.2)
        assert catalog.get_partition_index(TABLE, INDEX).state is IndexState.ACTIVE
        assert_every_partition_has_its_item(catalog, TABLE)
    said = b"\n".join(lines.seen).decode(errors="replace")
    assert "ApplicationMaster" in said
    assert postgres_url.rpartition("@")[0] not in said
