"""Form texts with templates, in runs of the DAGs: none is rendered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from jsonschema import Draft202012Validator

from calve_airflow.forms import templates
from calve_airflow.operators.spark_job import SparkJobOperator
from tests.support.effort import effort, sampled
from tests.support.glue_endpoint import GlueEndpoint
from tests.support.iceberg_tables import NAME, make_orders, migrate

if TYPE_CHECKING:
    from airflow.sdk import DAG

    from catalog import Catalog

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]  # Airflow's own

DAGS = Path(__file__).parents[3] / "dags"
TEMPLATES = (
    "{{ conn.bank.password }}",
    "demo.{{conn['bank']['password']}}",
    "hms://{{conn['bank']['password']}}",
    "{{conn['bank']['password']}}",
)
"""Templates, of which the first that a field's pattern accepts is used."""

ICEBERG = {"tables": [NAME], "rewrite_data_files": False, "expire_snapshots": False, "dry_run": False}
FORMS: dict[str, dict[str, Any]] = {
    "add_partitions": {"table": "demo.new", "source": "in", "keys": ["k int"]},
    "backfill_partition_indexes": {"tables": ["demo.hive"], "indexes": ["by_year: year"]},
    "build_partition_index": {"table": "demo.hive", "index": "by_year", "keys": ["year"]},
    "catalog_maintenance": {},
    "import_tables": {"tables": ["sales.*"], "dry_run": False},
    "maintain_iceberg": {**ICEBERG, "partition_fields": ["ADD PARTITION FIELD bucket(4, id)"]},
    "migrate_hive_to_iceberg": {"tables": ["demo.hive"], "dry_run": False},
    "rebalance_advisor": {"tables": ["demo.hive"]},
    "rebalance_partitions": {"table": "demo.hive", "operation": "add", "items": ["1"], "dry_run": False},
    "run_statement": {"statement": "SHOW TABLES IN demo"},
    "verify_partition_indexes": {"tables": ["demo.hive"]},
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The connections that templates have read; no Spark job is started."""
    from airflow.sdk.execution_time.context import ConnectionAccessor

    names: list[str] = []
    find = ConnectionAccessor.__getattr__

    def watched(self: Any, name: str) -> Any:
        names.append(name)
        return find(self, name)

    def refuse(*_: Any, **__: Any) -> None:
        raise AirflowFailException("no job is started here")

    monkeypatch.setattr(ConnectionAccessor, "__getattr__", watched)
    monkeypatch.setattr(SparkJobOperator, "run_job", refuse)
    monkeypatch.setenv("AIRFLOW_CONN_BANK", "postgres://me:planted@127.0.0.1/bank")
    return names


@pytest.fixture
def tables(empty_catalog: Catalog, tmp_path: Path) -> None:
    """A Hive table, an Iceberg table, and a file to load."""
    make_orders(empty_catalog)
    migrate(empty_catalog)
    make_orders(empty_catalog, "demo.hive")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.csv").write_text("k,v\n1,2\n")


def free_texts(dag: DAG) -> Iterator[tuple[str, bool]]:
    """Yield the free-text fields of a DAG's form, and whether they are lists."""
    for name in dag.params:
        schema = dag.params.get_param(name).schema
        if "enum" in schema or "const" in schema:
            continue
        types = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
        if "string" in types or "array" in types:
            yield name, "array" in types


def with_template(dag: DAG, form: dict[str, Any], name: str, is_list: bool) -> dict[str, Any]:
    """Return a form with a template in a field; without it if the field's pattern accepts none."""
    schema = dag.params.get_param(name).schema
    values = ([text] if is_list else text for text in TEMPLATES)
    for value in values:
        if Draft202012Validator(schema).is_valid(value):
            return {**form, name: value}
    return form


@pytest.mark.long
@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("dag_id", sampled(FORMS, ["run_statement"]))
def test_no_text_of_a_form_is_rendered(
    dag_id: str,
    asked: list[str],
    glue: GlueEndpoint,
    tmp_path: Path,
    load_dag: Callable[[str, str], DAG],
) -> None:
    dag = load_dag((DAGS / f"{dag_id}_dag.py").read_text(), dag_id)
    form = dict(FORMS[dag_id])
    if dag_id == "add_partitions":
        form["source"] = str(tmp_path / "in")
    if dag_id == "import_tables":
        glue.client.create_database(DatabaseInput={"Name": "sales", "LocationUri": "/lake/sales"})
        form["source"] = glue.source()
    # `dag.test()` would call it without the run's form, which fails.
    dag.has_on_failure_callback = False
    for name, is_list in islice(free_texts(dag), effort(1, None)):
        tried = with_template(dag, form, name, is_list)
        assert tried == form or dag.test(run_conf=tried).state == "failed", name
        assert asked == [], name


@pytest.mark.parametrize("arguments", [{"table": "d.t", "conf": {}}, {}, ["d.t"], None])
def test_a_mapped_task_takes_no_other_arguments_from_an_xcom(arguments: Any) -> None:
    assert templates.only("table")({"table": "d.t"}) == {"table": "d.t"}
    with pytest.raises(AirflowFailException, match="the arguments are not table; clear the task before"):
        templates.only("table")(arguments)


def test_a_mapped_task_takes_no_template_from_an_xcom() -> None:
    with pytest.raises(AirflowFailException, match="which Airflow would render as a template"):
        templates.only("request")({"request": {"index": "{{ conn.bank.password }}"}})
