"""The settings with which executors on other hosts reach the storage and the catalog."""

from __future__ import annotations

import re
from unittest import mock

import pytest
from sqlalchemy import make_url

from spark_jobs.sessions import executors
from spark_jobs.sessions.executors import executor_settings, prepare_executors

URL = make_url("postgresql+psycopg://calve:planted@db:5432/calve")


@pytest.fixture(autouse=True)
def storage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://s3.example.com")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted")
    monkeypatch.setenv("AWS_UNKNOWN", "kept")


@pytest.mark.parametrize("master", ["spark://master:7077", "yarn"])
def test_executors_get_what_the_driver_has(master: str) -> None:
    settings = executor_settings(URL, master)
    assert settings["spark.executorEnv.PGPASSWORD"] == "planted"
    assert settings["spark.executorEnv.AWS_SECRET_ACCESS_KEY"] == "planted"
    assert settings["spark.executorEnv.AWS_ENDPOINT_URL"] == "https://s3.example.com"
    assert "spark.executorEnv.AWS_UNKNOWN" not in settings


def test_executors_of_a_driver_with_the_password_in_its_environment_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "planted")
    settings = executor_settings(make_url("postgresql+psycopg://calve@db:5432/calve"), "yarn")
    assert settings["spark.executorEnv.PGPASSWORD"] == "planted"
    assert "spark.executorEnv.PGPASSWORD" not in executor_settings(make_url("sqlite:////catalog.db"), "yarn")


@pytest.mark.parametrize(
    "name",
    [
        *("PGPASSWORD", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_STORAGE_KEY"),
        *("AZURE_STORAGE_CONNECTION_STRING", "GOOGLE_PRIVATE_KEY", "EXTRA_PASSPHRASE", "EXTRA_PASS"),
    ],
)
def test_spark_redacts_the_names_of_secrets(name: str) -> None:
    pattern = executor_settings(URL, "yarn")["spark.redaction.regex"]
    assert re.search(pattern, f"spark.yarn.appMasterEnv.{name}")
    assert not re.search(pattern, "spark.executorEnv.AWS_ENDPOINT_URL")


def test_no_task_carries_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "runs_from_archive", lambda: True)
    # PySpark's copy of all `spark.executorEnv`, also of those in a `spark-defaults.conf`.
    variables = {"PGPASSWORD": "planted", "AWS_ACCESS_KEY_ID": "planted", "AZURE_STORAGE_KEY": "planted", "TZ": "UTC"}
    context = mock.Mock(master="spark://master:7077", environment=variables)
    prepare_executors(context)
    assert context.environment == {"TZ": "UTC"}


def test_no_pod_of_kubernetes_shows_a_password() -> None:
    settings = executor_settings(URL, "k8s://https://kubernetes:6443")
    assert settings["spark.executorEnv.AWS_ENDPOINT_URL"] == "https://s3.example.com"
    assert "planted" not in settings.values()


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2, 3]"])
def test_executors_in_the_process_of_the_driver_need_nothing(master: str) -> None:
    assert executor_settings(URL, master) == {}


def test_a_database_without_a_password_has_no_variable() -> None:
    settings = executor_settings(make_url("sqlite:////catalog.db"), "yarn")
    assert "spark.executorEnv.PGPASSWORD" not in settings
