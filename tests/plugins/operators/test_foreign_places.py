"""Tasks do not use files and hosts of forms that are not allowed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException

from calve_airflow.operators.importing import PlanImportOperator
from calve_airflow.operators.loading import DiscoverSourcesOperator
from calve_airflow.operators.statements import ReadStatementOperator
from catalog import Catalog

DISCOVER = DiscoverSourcesOperator(task_id="discover", operation_id="run")
PLAN = PlanImportOperator(task_id="plan")
READ = ReadStatementOperator(task_id="check")


@pytest.fixture
def catalog(empty_catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """A catalog without settings, and a file that is not a source."""
    (tmp_path / "warehouse").mkdir()
    (tmp_path / "secrets.csv").write_text("day,text\n1,planted\n")
    (tmp_path / "tables.yaml").write_text("tables: {}\n")
    monkeypatch.setenv("CALVE_WAREHOUSE", str(tmp_path / "warehouse"))
    monkeypatch.setenv("CALVE_TABLES", str(tmp_path / "tables.yaml"))
    monkeypatch.delenv("CALVE_ALLOWED_LOCATIONS")
    monkeypatch.delenv("CALVE_ALLOWED_HOSTS")
    return empty_catalog


def context(form: dict[str, Any]) -> Context:
    run = SimpleNamespace(triggering_user_name="somebody")
    return cast(Context, {"dag_run": run, "ti": SimpleNamespace(xcom_push=lambda key, value: None), "params": form})


@pytest.mark.parametrize(
    "load",
    [
        {"source": "{folder}/secrets.csv"},
        {"source": "file:///etc/pass*"},
        {"source": "{folder}/warehouse/../secrets.csv"},
        {"source": "{folder}/warehouse/x\0.csv"},
        {"source": "{folder}/warehouse/\ud800.csv"},
        *(
            {"source": "{folder}/warehouse/x.csv", field: {}}
            for field in ("source_options", "quality", "columns", "indexes", "format", "schedule", "rebalance")
        ),
    ],
)
def test_a_load_reads_no_foreign_file(catalog: Catalog, tmp_path: Path, load: dict[str, Any]) -> None:
    form = {"table": "demo.t", "keys": ["day int"], **load, "source": load["source"].format(folder=tmp_path)}
    operator = DiscoverSourcesOperator(task_id="discover", operation_id="load")
    with pytest.raises(AirflowFailException, match=r"^(LocationNotAllowed|InvalidLocation|WrongField)Error: "):
        operator.execute(context(form))
    assert catalog.operations.find("load") is None


@pytest.mark.parametrize("source", ["hms://169.254.169.254:80", "glue://eu-west-1?endpoint_url=http://attacker"])
def test_an_import_asks_no_foreign_host(catalog: Catalog, source: str) -> None:
    form = {"source": source, "tables": None, "update": False, "drop_vanished": False, "dry_run": True}
    operator = PlanImportOperator(task_id="plan")
    with pytest.raises(AirflowFailException, match=r"^LocationNotAllowedError: host "):
        operator.execute(context(form))


@pytest.mark.parametrize(
    ("operator", "source"),
    [
        (DISCOVER, "s3://key:planted@lake/x"),
        (DISCOVER, "s3://lake/*.csv?secret_key=planted"),
        (PLAN, "hms://me:planted@metastore"),
        (PLAN, "glue://eu-west-1?endpoint_url=http://me:planted@glue.local"),
        (READ, "s3://key:planted@lake/x"),
    ],
)
def test_a_password_in_a_source_is_refused_and_shown_nowhere(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, operator: BaseOperator, source: str
) -> None:
    for setting in ("CALVE_ALLOWED_LOCATIONS", "CALVE_ALLOWED_HOSTS"):
        monkeypatch.setenv(setting, "*")
    form: dict[str, Any] = {"source": source, "dry_run": True}
    if operator is DISCOVER:
        form |= {"table": "demo.t", "keys": ["day int"]}
    else:
        statement = f"CREATE TABLE demo.t (id int) STORED AS PARQUET LOCATION '{source}'"
        form |= {"tables": None, "update": False, "drop_vanished": False, "statement": statement}
    with pytest.raises(AirflowFailException, match=r"^Invalid(Location|Source)Error: (source|location) ") as failure:
        operator.execute(context(form))
    assert "planted" not in str(failure.value)
    assert list(catalog.operations.list()) == []
