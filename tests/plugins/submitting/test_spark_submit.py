"""The spark-submit command: what a job takes of a cluster."""

from __future__ import annotations

import json
import sys
import zipfile
from importlib.machinery import ModuleSpec
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowFailException

from calve_airflow.submitting.spark_submit import submit_command, submit_environment


def settings(conf: dict[str, str]) -> dict[str, str]:
    """Return the Spark settings of a job's command."""
    command = submit_command(Path("job.py"), name="job", conn_id="cluster", conf=conf, settings_path=Path("settings"))
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


CLUSTER_MODE = {"extra": {"deploy-mode": "cluster"}}


@pytest.mark.parametrize(
    ("master", "prefix"),
    [
        ({"host": "yarn"}, "spark.yarn.appMasterEnv"),
        ({"host": "k8s://https://kubernetes.default.svc", "port": 443}, "spark.kubernetes.driverEnv"),
    ],
)
def test_a_driver_on_the_cluster_gets_code_and_variables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, master: dict[str, Any], prefix: str
) -> None:
    # Spark's hook only asks whether the packages for Kubernetes are there; they are not among the requirements.
    monkeypatch.setattr(f"{SparkSubmitHook.__module__}.kube_client", object(), raising=False)
    monkeypatch.setitem(sys.modules, "kubernetes", ModuleType("kubernetes"))
    sys.modules["kubernetes"].__spec__ = ModuleSpec("kubernetes", None)
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps({"conn_type": "spark", **master, **CLUSTER_MODE}))
    monkeypatch.setenv("CALVE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CALVE_CATALOG_URL", "postgresql://jobs:planted@db/calve")
    monkeypatch.setenv("CALVE_WAREHOUSE", "s3://lake/ware\\house")
    for name in (
        *("AWS_SECRET_ACCESS_KEY", "AWS_CONTAINER_AUTHORIZATION_TOKEN", "AZURE_STORAGE_KEY", "CALVE_DATABASE_PASSWORD"),
        *("AZURE_STORAGE_CONNECTION_STRING", "EXTRA_API_KEY", "EXTRA_PASSPHRASE", "EXTRA_PASS"),
    ):
        monkeypatch.setenv(name, "planted")
    monkeypatch.setenv("CALVE_JOB_ENVIRONMENT", "EXTRA_*")
    monkeypatch.setenv("EXTRA_ONE", " first\r\nsecond")
    command = submit_command(
        Path("job.py"), name="job", conn_id="cluster", conf={}, settings_path=tmp_path / "settings"
    )
    options = dict(pairwise(command))
    assert options["--deploy-mode"] == "cluster"
    assert "--load-spark-defaults" in command
    with zipfile.ZipFile(options["--py-files"]) as archive:
        assert {"catalog/catalog/tables.py", "spark_jobs/run_statement.py"} <= set(archive.namelist())
    assert "planted" not in " ".join(command)
    file = Path(options["--properties-file"])
    assert file.stat().st_mode & 0o777 == 0o600
    given = dict(line.split(" ", 1) for line in file.read_text().split("\n") if line)
    # Spark redacts variables by their names, and not passwords in their values.
    assert given[f"{prefix}.CALVE_CATALOG_URL"] == "postgresql://jobs@db/calve"
    assert given[f"{prefix}.EXTRA_ONE"] == "\\ first\\r\\nsecond"
    assert given[f"{prefix}.CALVE_WAREHOUSE"] == "s3://lake/ware\\\\house"
    assert f"{prefix}.CALVE_HOME" not in given
    # Who can read a pod can read its variables.
    assert ("planted" in file.read_text()) == (master["host"] == "yarn")


def test_kubernetes_without_its_packages_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    connection = {"conn_type": "spark", "host": "k8s://https://kubernetes.default.svc", "port": 443}
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps(connection))
    with pytest.raises(AirflowFailException, match="install apache-airflow-providers-cncf-kubernetes"):
        submit_command(Path("job.py"), name="job", conn_id="cluster", conf={}, settings_path=tmp_path / "settings")


def test_an_unknown_mode_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    connection = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "Cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps(connection))
    with pytest.raises(AirflowFailException, match="has deploy-mode 'Cluster'; use client or cluster"):
        submit_command(Path("job.py"), name="job", conn_id="cluster", conf={}, settings_path=tmp_path / "settings")


@pytest.mark.parametrize("host", ["local[2]", "spark://master"])
def test_a_cluster_mode_that_spark_does_not_have_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, host: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps({"conn_type": "spark", "host": host, **CLUSTER_MODE}))
    with pytest.raises(AirflowFailException, match="'cluster' has deploy-mode cluster, which Spark does not have"):
        submit_command(Path("job.py"), name="job", conn_id="cluster", conf={}, settings_path=tmp_path / "settings")
