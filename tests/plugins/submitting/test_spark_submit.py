"""The spark-submit command: what a job takes of a cluster."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from calve_airflow.submitting.spark_submit import submit_command, submit_environment


def settings(conf: dict[str, str]) -> dict[str, str]:
    """Return the Spark settings of a job's command."""
    command = submit_command(Path("job.py"), name="job", conn_id="cluster", conf=conf)
    pairs = pairwise(command)
    return dict(value.split("=", 1) for option, value in pairs if option == "--conf")


@pytest.mark.parametrize(
    ("connection", "bounds"),
    [
        ({"host": "local[2]"}, {}),
        ({"host": "spark://master", "port": 7077}, {"spark.cores.max": "4", "spark.executor.memory": "2g"}),
        ({"host": "yarn"}, {"spark.executor.memory": "2g"}),
    ],
)
def test_a_job_takes_a_bounded_part_of_a_cluster(
    monkeypatch: pytest.MonkeyPatch, connection: dict[str, str], bounds: dict[str, str]
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps({"conn_type": "spark", **connection}))
    known = ("spark.cores.max", "spark.executor.memory")
    assert {name: value for name, value in settings({}).items() if name in known} == bounds
    own = {"spark.cores.max": "16", "spark.executor.memory": "9g"}
    assert settings(own).items() >= own.items()


def test_sparks_own_file_is_not_overridden(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines = ["# spark.cores.max 2", "spark.executor.memory  8g", "spark.cores.max=12"]
    (tmp_path / "spark-defaults.conf").write_text("\n".join(lines))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    connection = {"conn_type": "spark", "host": "spark://master", "port": 7077}
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps(connection))
    assert not {"spark.cores.max", "spark.executor.memory"} & settings({}).keys()


def test_executors_use_the_interpreter_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps({"conn_type": "spark", "host": "yarn"}))
    executors, driver = "spark.pyspark.python", "spark.pyspark.driver.python"
    assert (settings({})[executors], settings({})[driver]) == ("python3", sys.executable)
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert settings({})[executors] == "/opt/python"
    assert settings({executors: "./env/bin/python"})[executors] == "./env/bin/python"
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    assert not {executors, driver} & settings({}).keys()


def test_spark_is_found_whatever_the_interpreter_of_the_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/another")
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert Path(submit_environment()["SPARK_HOME"], "bin", "spark-submit").is_file()


def test_jobs_use_a_role_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALVE_CATALOG_URL", "postgresql://owner:planted@db/calve")
    assert submit_environment()["CALVE_CATALOG_URL"] == "postgresql://owner:planted@db/calve"
    monkeypatch.setenv("CALVE_JOB_CATALOG_URL", "postgresql://jobs:own@db/calve")
    environment = submit_environment()
    assert environment["CALVE_CATALOG_URL"] == "postgresql://jobs:own@db/calve"
    assert "planted" not in " ".join(environment.values())
    assert "CALVE_JOB_CATALOG_URL" not in environment
