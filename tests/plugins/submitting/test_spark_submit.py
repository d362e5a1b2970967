"""The spark-submit command: what a job takes of a cluster."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from calve_airflow.submitting.spark_submit import submit_command


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
