"""Guards for the interfaces of Airflow and its Spark provider that are not public, and may change in any version."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import calve_airflow

PUBLIC = (
    "airflow.configuration",
    "airflow.listeners",
    "airflow.plugins_manager",
    "airflow.providers.openlineage.extractors",
    "airflow.providers.apache.spark.hooks.spark_submit",
    "airflow.providers.standard.operators.hitl",
    "airflow.providers.standard.operators.trigger_dagrun",
    "airflow.sdk",
    "airflow.sdk.bases.xcom",
    "airflow.sdk.exceptions",
    "airflow.triggers.base",
)
"""The modules in use that Airflow documents as public, or that are the operators and hooks of providers."""

PACKAGE = Path(calve_airflow.__path__[0])
SOURCES = [*PACKAGE.rglob("*.py"), *(PACKAGE.parents[1] / "dags").glob("*.py")]


def nodes() -> Iterator[ast.AST]:
    for path in SOURCES:
        yield from ast.walk(ast.parse(path.read_text()))


def test_these_interfaces_that_are_not_public_are_in_use() -> None:
    imported = {
        (node.module, name.name)
        for node in nodes()
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("airflow.")
        for name in node.names
    }
    assert {(module, name) for module, name in imported if module not in PUBLIC} == {
        ("airflow.api_fastapi.app", "get_auth_manager"),
        ("airflow.api_fastapi.auth.managers.models.base_user", "BaseUser"),
        ("airflow.api_fastapi.auth.managers.models.resource_details", "AccessView"),
        ("airflow.api_fastapi.auth.managers.models.resource_details", "DagAccessEntity"),
        ("airflow.api_fastapi.auth.managers.models.resource_details", "DagDetails"),
        ("airflow.api_fastapi.core_api.security", "get_user"),
        ("airflow.api_fastapi.core_api.security", "requires_access_view"),
        ("airflow.models.dag", "DagModel"),
        ("airflow.models.dagrun", "DagRun"),
        ("airflow.models.hitl", "HITLDetail"),
        ("airflow.models.serialized_dag", "SerializedDagModel"),
        ("airflow.models.taskinstance", "TaskInstance"),
        ("airflow.models.xcom", "XComModel"),
        ("airflow.utils.session", "create_session"),
        ("airflow.sdk.observability", "stats"),
        ("airflow.sdk.execution_time.comms", "CreateHITLDetailPayload"),
        ("airflow.sdk.execution_time.comms", "HITLDetailRequestResult"),
        ("airflow.sdk.execution_time.task_runner", "SUPERVISOR_COMMS"),
        ("airflow.sdk.execution_time.task_runner", "RuntimeTaskInstance"),
    }


def test_these_private_attributes_of_others_are_in_use() -> None:
    own = {node.name for node in nodes() if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    own |= {node.attr for node in nodes() if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    used = {node.attr for node in nodes() if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)}
    assert {name for name in used - own if name.startswith("_") and not name.startswith("__")} == {
        "_build_spark_submit_command"
    }


def test_the_hook_returns_the_command_of_an_application() -> None:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    assert list(inspect.signature(SparkSubmitHook._build_spark_submit_command).parameters) == ["self", "application"]
    passed = {"conf", "conn_id", "name", "deploy_mode", "py_files", "properties_file"}
    assert passed <= set(inspect.signature(SparkSubmitHook).parameters)


def test_a_trigger_can_ask_for_the_state_of_its_task() -> None:
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    asked = inspect.signature(RuntimeTaskInstance.get_task_states).parameters
    assert {"dag_id", "map_index", "task_ids", "run_ids"} <= set(asked)
    assert isinstance(inspect.getattr_static(RuntimeTaskInstance, "get_task_states"), staticmethod)


def test_counters_and_durations_can_be_sent_with_tags() -> None:
    from airflow.sdk.observability import stats

    assert {"count", "tags"} <= set(inspect.signature(stats.incr).parameters)
    assert {"dt", "tags"} <= set(inspect.signature(stats.timing).parameters)


def test_a_task_can_read_the_question_that_airflow_shows() -> None:
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import CreateHITLDetailPayload, HITLDetailRequestResult

    fields = {"ti_id", "options", "subject", "body", "params", "assigned_users"}
    assert fields <= set(CreateHITLDetailPayload.model_fields)
    assert {"subject", "body"} <= set(HITLDetailRequestResult.model_fields)
    assert "SUPERVISOR_COMMS" in task_runner.__annotations__


@pytest.mark.parametrize("name", ["run", "cleanup", "on_kill", "serialize", "task_instance"])
def test_triggers_have_what_airflow_calls(name: str) -> None:
    from airflow.triggers.base import BaseTrigger

    assert hasattr(BaseTrigger, name)
