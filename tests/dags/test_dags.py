"""The DAG files: their DAGs, and the cost of parsing them."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag
    from airflow.sdk import DAG

REPOSITORY = Path(__file__).parents[2]
DAGS = REPOSITORY / "dags"
LISTED = "add_partitions.demo.flights"
BACKFILL, VERIFY = "backfill_partition_indexes", "verify_partition_indexes"
MAINTENANCE, ADVISOR, COMPACT = "catalog_maintenance", "rebalance_advisor", "compact_partitions"
IMPORT, MIGRATE, ICEBERG = "import_tables", "migrate_hive_to_iceberg", "maintain_iceberg"
OF_MANY_TABLES = {BACKFILL, VERIFY, MAINTENANCE, ADVISOR, COMPACT, IMPORT, MIGRATE, ICEBERG}
REBALANCE, STATEMENT, ANNOUNCE = "rebalance_partitions", "run_statement", "announce_changes"
NEVER_RENDERED = {"source", "statement"}
"""Form fields in which users may enter a password."""
OF_ONE_TABLE = {"add_partitions", LISTED, "build_partition_index", REBALANCE, STATEMENT}
DAG_IDS = OF_MANY_TABLES | OF_ONE_TABLE | {ANNOUNCE}

# Prints the modules and connections of the DAG files, without those of importing Airflow.
PARSE = """
import json, sys
import airflow.sdk, airflow.dag_processing.dagbag

touched = []
loaded = set(sys.modules)
sys.addaudithook(lambda event, _: touched.append(event) if event in ("socket.connect", "sqlite3.connect") else None)
bag = airflow.dag_processing.dagbag.DagBag(sys.argv[1], bundle_name="dags-folder")
print(json.dumps({
    "dags": sorted(bag.dags), "errors": bag.import_errors, "touched": touched,
    "modules": sorted(set(sys.modules) - loaded),
}))
"""

MOST_MODULES = 203
"""The maximum number of modules that the DAG files load besides Airflow's; each costs milliseconds in each parse."""

# Modules that a DAG file must not load: the catalog's storage, and the libraries of the Spark jobs.
HEAVY = (
    "boto3",
    "catalog.catalog",
    "catalog.storage",
    "great_expectations",
    "pandas",
    "psycopg",
    "pyarrow",
    "pyspark",
    "py4j",
    "thrift",
)


@pytest.fixture(scope="module")
def parsed() -> dict[str, Any]:
    """The result and cost of parsing the DAG files in a separate process without access to a database."""
    unreachable = "postgresql+psycopg://nobody@127.0.0.1:1/nothing"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "plugins")]),
        "CALVE_CATALOG_URL": unreachable,
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": unreachable,
    }
    command = [sys.executable, "-c", PARSE, str(DAGS)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert ended.returncode == 0, ended.stderr
    report: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return report


@pytest.fixture(scope="module")
def dags() -> dict[str, DAG]:
    dags: dict[str, DAG] = read_dags().dags
    return dags


@pytest.fixture
def read_dags_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., DagBag]:
    """A function that parses the DAG files with the entry shop.orders in the list of tables, and optionally others."""

    def read(entry: str, *others: str) -> DagBag:
        path = tmp_path / "tables.yaml"
        path.write_text(f"tables: {{{', '.join([f'shop.orders: {entry}', *others])}}}")
        monkeypatch.setenv("CALVE_TABLES", str(path))
        return read_dags()

    return read


def read_dags() -> DagBag:
    from airflow.dag_processing.dagbag import DagBag

    return DagBag(str(DAGS), bundle_name="dags-folder")


def test_every_dag_file_loads(parsed: dict[str, Any]) -> None:
    assert parsed["errors"] == {}
    assert set(parsed["dags"]) == DAG_IDS


def test_every_dag_file_makes_the_dag_of_its_name() -> None:
    assert {path.name.removesuffix("_dag.py") for path in DAGS.glob("*.py")} <= DAG_IDS


def test_parsing_loads_few_modules_beyond_airflow(parsed: dict[str, Any]) -> None:
    assert len(parsed["modules"]) < MOST_MODULES


def test_parsing_touches_no_database(parsed: dict[str, Any]) -> None:
    assert parsed["touched"] == []


def test_parsing_loads_nothing_heavy(parsed: dict[str, Any]) -> None:
    heavy = {name for name in parsed["modules"] if any(f"{name}.".startswith(f"{each}.") for each in HEAVY)}
    assert heavy == set()


@pytest.mark.parametrize("dag_id", sorted(DAG_IDS))
def test_dag_explains_itself(dags: dict[str, DAG], dag_id: str) -> None:
    dag = dags[dag_id]
    assert dag.doc_md
    assert "| task | does |" in dag.doc_md
    for task in dag.tasks:
        assert task.task_id in dag.doc_md
    assert "calve" in dag.tags


@pytest.mark.parametrize("dag_id", sorted(DAG_IDS))
def test_form_explains_its_fields(dags: dict[str, DAG], dag_id: str) -> None:
    params = dags[dag_id].params
    for name in params:
        assert params.get_param(name).schema["title"], name
        assert params.get_param(name).description, name


@pytest.mark.parametrize("dag_id", sorted(DAG_IDS))
def test_no_task_renders_addresses_and_statements(dags: dict[str, DAG], dag_id: str) -> None:
    params = {name: f"planted-{name}" for name in dags[dag_id].params}
    templates = [
        value
        for task in dags[dag_id].tasks
        for name in task.template_fields
        if isinstance(value := getattr(task, name, None) or getattr(task, "partial_kwargs", {}).get(name), str)
    ]
    rendered = " ".join(
        str(dags[dag_id].get_template_env().from_string(text).render(params=params))
        for text in templates
        if "params" in text
    )
    assert [name for name in params if f"planted-{name}" in rendered and name in NEVER_RENDERED] == []


def inputs_of_mapped_tasks(dag: DAG) -> set[tuple[str, str]]:
    """Return the tasks, and the names of their XComs, that give arguments to mapped tasks and groups of a DAG."""
    return {(task.task_id, key) for one in expand_inputs(dag) for task, key in references(one)}


def expand_inputs(dag: DAG) -> list[Any]:
    """Return what the mapped tasks and groups of a DAG are expanded over."""
    from airflow.sdk.definitions.mappedoperator import MappedOperator
    from airflow.sdk.definitions.taskgroup import MappedTaskGroup

    inputs = [task._get_specified_expand_input() for task in dag.tasks if isinstance(task, MappedOperator)]
    return inputs + [
        group._expand_input for group in dag.task_group_dict.values() if isinstance(group, MappedTaskGroup)
    ]


def references(expand_input: Any) -> list[tuple[Any, str]]:
    """Return the tasks and the names of their XComs that arguments come from."""
    values = expand_input.value.values() if isinstance(expand_input.value, dict) else [expand_input.value]
    return [(source.operator, source.key) for value in values for source in [getattr(value, "arg", value)]]


@pytest.mark.parametrize("dag_id", sorted(DAG_IDS))
def test_no_text_of_a_form_comes_to_a_mapped_task_that_renders_it(dags: dict[str, DAG], dag_id: str) -> None:
    for task_id, key in inputs_of_mapped_tasks(dags[dag_id]):
        execute = dags[dag_id].get_task(task_id).execute
        assert (key, getattr(execute, "refuses_templates", False)) == ("return_value", True), task_id


@pytest.mark.parametrize("dag_id", sorted(DAG_IDS))
def test_a_mapped_task_checks_its_arguments_itself(dags: dict[str, DAG], dag_id: str) -> None:
    from airflow.sdk.definitions.xcom_arg import MapXComArg

    for expand_input in expand_inputs(dags[dag_id]):
        # With `expand`, only the arguments of these names can come from an XCom.
        assert isinstance(expand_input.value, dict | MapXComArg)


def test_every_mapped_task_is_looked_at(dags: dict[str, DAG]) -> None:
    counts = {dag_id: len(inputs_of_mapped_tasks(dag)) for dag_id, dag in dags.items()}
    assert {dag_id: count for dag_id, count in counts.items() if count} == {
        **{"add_partitions": 2, LISTED: 2, BACKFILL: 1, VERIFY: 1, ADVISOR: 2, IMPORT: 1, MIGRATE: 1, ICEBERG: 1},
        COMPACT: 1,
        ANNOUNCE: 2,
    }


@pytest.mark.parametrize("dag_id", sorted(DAG_IDS))
def test_fields_that_a_form_does_not_have_are_refused_before_anything_is_done(
    dags: dict[str, DAG], dag_id: str
) -> None:
    dag = dags[dag_id]
    fields = dict.fromkeys(dag.params)
    # Tasks that run in spite of an earlier failure also use the form.
    first = [task for task in dag.tasks if not task.upstream_task_ids]
    first += [task for task in dag.tasks if task.trigger_rule == "all_done" and uses_form(task)]
    assert first
    for task in first:
        task.pre_execute({"params": fields, "dag": dag})
        with pytest.raises(
            AirflowFailException, match=r"WrongFieldError: grace_hour: the form has no such field"
        ) as error:
            task.pre_execute({"params": {**fields, "grace_hour": 1}, "dag": dag})
        assert all(name in str(error.value) for name in fields)


def uses_form(task: Any) -> bool:
    """Return whether a task acts on fields of the run's form; a summary only reports them."""
    from calve_airflow.operators.summary import SummaryOperator

    fields = (getattr(task, name, None) for name in task.template_fields)
    return not isinstance(task, SummaryOperator) and any("params" in str(field) for field in fields)


@pytest.mark.parametrize("dag_id", sorted(DAG_IDS))
def test_dag_can_be_stored(dags: dict[str, DAG], dag_id: str) -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    assert DagSerialization.to_dict(dags[dag_id])["dag"]["dag_id"] == dag_id


@pytest.mark.parametrize("dag_id", sorted(DAG_IDS))
def test_every_task_is_tried_again(dags: dict[str, DAG], dag_id: str) -> None:
    assert {(task.retries, task.retry_exponential_backoff) for task in dags[dag_id].tasks} == {(3, 2.0)}


@pytest.mark.parametrize("dag_id", sorted(OF_ONE_TABLE))
def test_failed_run_gives_its_table_free(dags: dict[str, DAG], dag_id: str) -> None:
    assert dags[dag_id].has_on_failure_callback


@pytest.mark.parametrize("dag_id", sorted(OF_MANY_TABLES))
def test_run_over_many_tables_ends_as_its_summary_says(dags: dict[str, DAG], dag_id: str) -> None:
    (last,) = [task for task in dags[dag_id].tasks if not task.downstream_task_ids]
    assert (last.task_id, last.trigger_rule) == ("report" if dag_id == MIGRATE else "summarise", "all_done")


def test_all_tasks_that_start_a_driver_share_the_pool_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, dags: dict[str, DAG]
) -> None:
    from airflow.sdk.definitions.mappedoperator import MappedOperator

    from calve_airflow.operators.spark_job import SparkJobOperator

    def pools(dags: dict[str, DAG]) -> dict[tuple[str, str], str]:
        """Return the pools of the tasks that start drivers."""
        return {
            (dag_id, task.task_id): task.pool
            for dag_id, dag in dags.items()
            for task in dag.tasks
            if issubclass(task.operator_class if isinstance(task, MappedOperator) else type(task), SparkJobOperator)
        }

    before = pools(dags)
    assert len(before) == 19
    assert set(before.values()) == {"default_pool"}
    monkeypatch.setenv("CALVE_SPARK_POOL", "small")
    assert pools(read_dags().dags) == dict.fromkeys(before, "small")


@pytest.mark.parametrize(("said", "schedule"), [("", "@daily"), ("0 4 * * 1", "0 4 * * 1"), ("none", None)])
def test_what_is_to_be_done_regularly_is_done_daily_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, said: str, schedule: str | None
) -> None:
    variables = {
        VERIFY: "CALVE_VERIFY_SCHEDULE",
        MAINTENANCE: "CALVE_MAINTENANCE_SCHEDULE",
        ADVISOR: "CALVE_ADVISOR_SCHEDULE",
        COMPACT: "CALVE_COMPACTION_SCHEDULE",
    }
    for variable in variables.values():
        monkeypatch.setenv(variable, said)
    dags = read_dags().dags
    assert {dag_id: dags[dag_id].schedule for dag_id in variables} == dict.fromkeys(variables, schedule)


def test_the_schedule_of_the_maintenance_clears_away(dags: dict[str, DAG]) -> None:
    assert dags[MAINTENANCE].params["dry_run"] is False
    assert dags[MAINTENANCE].params["grace_hours"] == 24


def test_a_maintenance_that_waits_for_an_approval_holds_up_none_of_the_schedule(dags: dict[str, DAG]) -> None:
    tasks = {task.task_id: task.max_active_tis_per_dag for task in dags[MAINTENANCE].tasks}
    assert tasks.pop("approve") is None
    assert set(tasks.values()) == {1}
    assert dags[MAINTENANCE].max_active_runs > 1


def test_nothing_is_repaired_unless_asked_for(dags: dict[str, DAG]) -> None:
    assert dags[VERIFY].params["repair"] is False
    assert dags[VERIFY].params["tables"] is None


@pytest.mark.parametrize("dag_id", ["add_partitions", LISTED, *sorted(OF_MANY_TABLES - {MAINTENANCE})])
def test_one_run_of_a_dag_at_a_time(dags: dict[str, DAG], dag_id: str) -> None:
    assert dags[dag_id].max_active_runs == 1
    assert not dags[dag_id].catchup


def test_load_by_form_is_a_dry_run_unless_told_otherwise(dags: dict[str, DAG]) -> None:
    assert dags["add_partitions"].params["dry_run"] is True
    assert dags[LISTED].params["dry_run"] is False


def test_import_is_a_dry_run_that_changes_nothing_unless_told_otherwise(dags: dict[str, DAG]) -> None:
    params = dags[IMPORT].params
    assert (params["dry_run"], params["update"], params["drop_vanished"]) == (True, False, False)
    assert not params.get_param("source").has_value


def test_change_of_partitions_is_a_dry_run_unless_told_otherwise(dags: dict[str, DAG]) -> None:
    from catalog.rebalancing.changes import CHANGES

    params = dags[REBALANCE].params
    assert params["dry_run"] is True
    assert params["with_data"] is False
    assert params.get_param("operation").schema["enum"] == list(CHANGES)
    assert not params.get_param("table").has_value


@pytest.mark.parametrize("dag_id", [MIGRATE, ICEBERG])
def test_forms_for_iceberg_are_dry_runs_of_named_tables_unless_told_otherwise(
    dags: dict[str, DAG], dag_id: str
) -> None:
    params = dags[dag_id].params
    assert params["dry_run"] is True
    assert not params.get_param("tables").has_value


def test_a_migration_is_verified_and_strict_and_removes_no_orphans_unless_told_otherwise(dags: dict[str, DAG]) -> None:
    params = dags[MIGRATE].params
    asked = [params[name] for name in ("verify", "recursive_directory", "unusable_files", "timestamps")]
    assert asked == [True, "fail", "fail", "as Trino"]
    assert dags[ICEBERG].params["remove_orphan_files"] is False


def test_a_table_is_flipped_behind_its_own_verification(dags: dict[str, DAG]) -> None:
    dag = dags[MIGRATE]
    order = [("plan", "stage"), ("stage", "verify"), ("verify", "flip"), ("flip", "report")]
    assert all(after in dag.get_task(before).downstream_task_ids for before, after in order)
    # A skipped comparison does not skip the flip, a failed one does.
    assert dag.get_task("flip").trigger_rule == "none_failed"


@pytest.mark.parametrize(("dag_id", "first", "next_one"), [(REBALANCE, "plan", "rewrite"), (STATEMENT, "check", "run")])
def test_deletion_is_approved_before_anything_is_begun(
    dags: dict[str, DAG], dag_id: str, first: str, next_one: str
) -> None:
    approve = dags[dag_id].get_task("approve")
    assert (approve.upstream_task_ids, approve.downstream_task_ids) == ({first}, {next_one})


TWO_LINES = "from calve_airflow.dags import calve_dags\ncalve_dags(**arguments)\n"


@pytest.fixture
def read_dags_of_a_user(tmp_path: Path) -> Callable[[str], DagBag]:
    """A function that reads a file of a user's folder of DAGs, which calls `calve_dags` with the arguments given."""

    def read(arguments: str) -> DagBag:
        from airflow.dag_processing.dagbag import DagBag

        (tmp_path / "lake.py").write_text(TWO_LINES.replace("**arguments", arguments))
        return DagBag(tmp_path, bundle_name="dags-folder")

    return read


def test_a_file_of_two_lines_brings_all_dags(read_dags_of_a_user: Callable[[str], DagBag]) -> None:
    bag = read_dags_of_a_user("")
    assert bag.import_errors == {}
    assert set(bag.dags) == DAG_IDS
    assert {Path(dag.fileloc).name for dag in bag.dags.values()} == {"lake.py"}


def test_arguments_replace_those_of_the_dags_but_not_their_callbacks(
    read_dags_of_a_user: Callable[[str], DagBag],
) -> None:
    bag = read_dags_of_a_user("max_active_tasks=3, default_args={'retries': 7, 'on_failure_callback': print}")
    for dag in bag.dags.values():
        assert dag.max_active_tasks == 3
        assert dag.render_template_as_native_obj
        for task in dag.tasks:
            assert task.retries == 7
            assert task.on_failure_callback[-1] is print
    own = bag.dags["build_partition_index"].get_task("build").on_failure_callback
    assert [callback.__name__ for callback in own] == ["fail_operation", "record_reason", "notify_failure", "print"]


def test_a_task_of_a_users_file_builds_only_its_own_dag(
    read_dags_of_a_user: Callable[[str], DagBag], monkeypatch: pytest.MonkeyPatch
) -> None:
    for dag_id in (REBALANCE, LISTED):
        monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", dag_id)
        assert set(read_dags_of_a_user("").dags) == {dag_id}


@pytest.mark.long
def test_forms_of_many_tables_are_validated_and_copied_for_no_task(
    read_dags_of: Callable[..., DagBag], monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk import Param
    from airflow.serialization.serialized_objects import DagSerialization

    count = 300
    resolve, calls = Param.resolve, []
    monkeypatch.setattr(Param, "resolve", lambda *args, **kwargs: (calls.append(args), resolve(*args, **kwargs))[1])
    entry = "{source: /data, keys: {day: date}, indexes: {by_day: [day]}, schedule: '@daily'}"
    others = [f"shop.table_{number}: {entry}" for number in range(count - 1)]
    bag = read_dags_of(entry, *others)
    dags = [dag for dag_id, dag in bag.dags.items() if dag_id.startswith("add_partitions.")]
    assert len(dags) == count
    size = max(len(json.dumps(DagSerialization.to_dict(dag))) for dag in dags)
    # A form has 8 fields, and a DAG 10 tasks: each copy would be validated twice.
    assert len(calls) < 2 * count
    assert size < 25_000


@pytest.mark.parametrize("path", sorted(DAGS.glob("*.py")), ids=lambda path: path.stem)
def test_a_dag_file_imports_airflow_and_the_plugin_only(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
        elif isinstance(node, ast.Import):
            imported |= {name.name.partition(".")[0] for name in node.names}
    assert imported - sys.stdlib_module_names <= {"airflow", "calve_airflow"}
