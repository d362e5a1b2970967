from __future__ import annotations

import os
import signal
import stat
import subprocess
import time
from ipaddress import IPv4Address
from pathlib import Path
from unittest import mock

import pytest

from standalone.airflow_api import AirflowApi
from standalone.environment import SPARK_POOL, VIEWER
from standalone.errors import AirflowApiError, StackError
from standalone.stack import Stack
from standalone.state import HEALTHY, StackState, airflow_command, read_passwords, shell_file
from tests.on_s3.conftest import HIVE_STYLE
from tests.support.listening import listening

pytestmark = [pytest.mark.airflow, pytest.mark.parametrize("stack", ["local"], indirect=True)]


def test_all_components_are_healthy(stack: Stack) -> None:
    assert set(stack.api.health().values()) == {HEALTHY}
    pool = stack.api.get(f"/pools/{SPARK_POOL}")
    assert (pool["slots"], pool["include_deferred"]) == (2, True)


def test_plugins_load_without_errors(stack: Stack) -> None:
    assert stack.api.get("/plugins/importErrors")["import_errors"] == []


def test_secrets_are_for_the_owner_only(stack: Stack) -> None:
    for path in (shell_file(stack.home), stack.home / "airflow" / "passwords.json", stack.home / "run" / "stack.json"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((stack.home / "airflow").stat().st_mode) == 0o700


def test_everything_listens_on_the_loopback_address_only(stack: Stack) -> None:
    state = StackState.read(stack.home)
    assert state is not None
    addresses = {address for address, _ in listening(state.processes())}
    assert IPv4Address("127.0.0.1") in addresses
    assert [address for address in addresses if not address.is_loopback] == []


def test_viewer_may_look_and_not_act(stack: Stack) -> None:
    viewer = AirflowApi(stack.url, VIEWER, read_passwords(stack.home)[VIEWER])
    dags = viewer.get("/dags")["dags"]
    with pytest.raises(AirflowApiError) as refusal:
        viewer.post("/pools", {"name": "mine", "slots": 1})
    assert refusal.value.status == 403
    assert isinstance(dags, list)


def test_wrong_password_is_refused(stack: Stack) -> None:
    with pytest.raises(AirflowApiError) as refusal:
        AirflowApi(stack.url, "admin", "wrong").get("/dags")
    assert refusal.value.status == 401


@pytest.mark.parametrize(
    ("dag_id", "form", "field"),
    [
        ("add_partitions", {"table": "flights"}, "table"),
        ("add_partitions", {"invalid_partitions": "drop"}, "invalid_partitions"),
        ("add_partitions", {"dry_run": "no"}, "dry_run"),
        ("add_partitions", {"keys": {"month": "int"}}, "keys"),
        (f"add_partitions.{HIVE_STYLE}", {"table": "demo.other"}, "table"),
        ("build_partition_index", {"keys": []}, "keys"),
        ("rebalance_partitions", {"table": "lake.delays", "operation": "rename"}, "operation"),
        ("run_statement", {"statement": ""}, "statement"),
    ],
)
def test_wrong_field_of_a_form_is_refused_by_name(
    stack: Stack, dag_id: str, form: dict[str, object], field: str
) -> None:
    with pytest.raises(AirflowApiError, match=f"\\b{field}\\b") as refusal:
        stack.api.trigger(dag_id, form)
    assert refusal.value.status == 400


def test_unknown_dag_is_reported_with_its_status(stack: Stack) -> None:
    with pytest.raises(AirflowApiError, match="no_such_dag") as refusal:
        stack.api.trigger("no_such_dag", timeout_seconds=0)
    assert refusal.value.status == 404


@pytest.mark.long
def test_the_airflow_command_is_that_of_the_stack(stack: Stack, tmp_path: Path) -> None:
    """From any folder, with an environment in which nothing of the stack is set."""
    command = [str(airflow_command(stack.home)), "dags", "list", "--output", "plain", "--columns", "dag_id"]
    environment = {"HOME": str(tmp_path), "PATH": os.defpath}
    ended = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=180
    )
    assert ended.returncode == 0, ended.stderr
    assert {"run_statement", "compact_partitions"} <= set(ended.stdout.split())
    assert list(tmp_path.iterdir()) == []


def test_shell_file_leads_to_the_catalog(stack: Stack) -> None:
    command = f". {shell_file(stack.home)} && python -m catalog.cli tables"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": stack.environment["PYTHONPATH"]}
    subprocess.run(["sh", "-c", command], env=environment, check=True, cwd=stack.home)


def test_running_stack_is_used_by_another_process_and_left_running(stack: Stack) -> None:
    elsewhere = {"AWS_ENDPOINT_URL": "http://elsewhere", "AWS_PROFILE": "another"}
    with mock.patch.dict(os.environ, elsewhere):
        other = Stack(stack.home)
        assert other.attach()
        assert os.environ["AWS_ENDPOINT_URL"] == stack.environment["AWS_ENDPOINT_URL"]
        assert "AWS_PROFILE" not in os.environ
    assert (other.url, other.catalog_url, other.warehouse) == (stack.url, stack.catalog_url, stack.warehouse)
    assert other.api.get("/dags")["dags"]
    other.stop()
    assert set(stack.api.health().values()) == {HEALTHY}


def test_second_stack_in_the_same_folder_is_refused(stack: Stack) -> None:
    with pytest.raises(StackError, match="already running"):
        Stack(stack.home).start()
    assert set(stack.api.health().values()) == {HEALTHY}


@pytest.mark.parametrize("name", ["triggerer", pytest.param("scheduler", marks=pytest.mark.long)])
def test_killed_component_is_started_again(stack: Stack, name: str) -> None:
    pid = stack.component_pid(name)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 900
    while stack.component_pid(name) in (None, pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert stack.component_pid(name) not in (None, pid)
