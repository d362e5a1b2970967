"""Notifiers that the list of tables and `CALVE_NOTIFY` name are called, and break nothing."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG

from calve_airflow.notifying import notify, notify_failure
from catalog import Catalog
from catalog.operations.records import OperationKind
from catalog.settings.notify_rules import NotifyEvent

TABLE = "demo.flights"
NOTIFIERS = """\
import json, os, time
from airflow.sdk.bases.notifier import BaseNotifier

class Writer(BaseNotifier):
    template_fields = ("text",)

    def __init__(self, text="{{ calve.event }} {{ calve.table }}: {{ calve.message }}"):
        super().__init__()
        self.text = text

    def notify(self, context):
        with open(os.environ["TOLD"], "a") as file:
            file.write(self.text + "\\n")

class Broken(Writer):
    def notify(self, context):
        raise ConnectionError("the mail server is down")

class Hanging(Writer):
    def notify(self, context):
        time.sleep(60)

class Ending(Writer):
    def notify(self, context):
        context["calve"]["message"] = "changed"
        raise SystemExit("good bye")
"""


@pytest.fixture(autouse=True)
def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """A function that sets the notifiers of the table, and those of all."""
    tables, modules = tmp_path / "tables.yaml", tmp_path / "modules"
    modules.mkdir()
    (modules / "own_notifiers.py").write_text(NOTIFIERS)
    monkeypatch.syspath_prepend(str(modules))
    monkeypatch.setenv("CALVE_TABLES", str(tables))
    monkeypatch.setenv("TOLD", str(tmp_path / "told"))

    def configure(own: Any = None, common: Any = None) -> None:
        entry = {"source": "/data", "keys": {"month": "int"}, **({"notify": own} if own is not None else {})}
        tables.write_text(json.dumps({"tables": {TABLE: entry}}))
        monkeypatch.setenv("CALVE_NOTIFY", "" if common is None else json.dumps(common))

    configure()
    yield configure
    sys.modules.pop("own_notifiers", None)


@pytest.fixture
def told(tmp_path: Path) -> Callable[[], list[str]]:
    """A function that returns what notifiers were told since its last call."""

    def read() -> list[str]:
        path = tmp_path / "told"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines

    return read


def context(task: Any = None, form: Any = None) -> Any:
    dag = DAG("load", schedule=None)
    run = SimpleNamespace(dag_id="load", run_id="run")
    return {"dag": dag, "dag_run": run, "params": form or {}, "task": task, "exception": ValueError("no disk")}


def test_the_notifiers_of_the_table_replace_those_of_all_tables(configure: Any, told: Any) -> None:
    writer = {"class": "own_notifiers.Writer", "arguments": {"text": "own {{ calve.message }}"}}
    configure({"on_failure": [writer], "on_approval": []}, {"on_failure": ["own_notifiers.Writer"]})
    notify(context(), NotifyEvent.FAILURE, TABLE, "it failed")
    notify(context(), NotifyEvent.FAILURE, "demo.other", "it failed")
    notify(context(), NotifyEvent.APPROVAL, TABLE, "may I?")
    notify(context(), NotifyEvent.QUALITY, TABLE, "rows are missing")
    assert told() == ["own it failed", "on_failure demo.other: it failed"]
    everything = {event.value: ["own_notifiers.Writer"] for event in NotifyEvent}
    configure({"on_approval": []}, everything)
    notify(context(), NotifyEvent.APPROVAL, TABLE, "may I?")
    notify(context(), NotifyEvent.QUALITY, TABLE, "{{ dag }}")
    notify(context(), NotifyEvent.FAILURE, None, "it failed")
    assert told() == ["on_quality demo.flights: {{ dag }}", "on_failure None: it failed"]


def test_a_broken_notifier_is_named_and_the_others_are_called(
    configure: Any, told: Any, caplog: pytest.LogCaptureFixture
) -> None:
    broken = ["own_notifiers.Broken", "own_notifiers.Ending", "own_notifiers.Missing", "no_such_module.Notifier"]
    wrong = [{"class": "own_notifiers.Writer", "arguments": {"test": "x"}}]
    configure({"on_failure": [*broken, *wrong, "own_notifiers.Writer"]})
    notify(context(), NotifyEvent.FAILURE, TABLE, "it failed")
    assert told() == ["on_failure demo.flights: it failed"]
    named = [record.getMessage() for record in caplog.records if record.name == "calve_airflow.notifying"]
    assert [message.partition(" could")[0] for message in named] == [
        *(f"Notifier {path}" for path in broken),
        "Notifier own_notifiers.Writer",
    ]
    assert named[0].endswith("for on_failure of demo.flights: ConnectionError: the mail server is down")


def test_a_notifier_that_hangs_is_interrupted_and_the_limit_of_the_task_goes_on(
    configure: Any, told: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calve_airflow.notifying.LONGEST_SECONDS", 0.2)
    configure({"on_failure": ["own_notifiers.Hanging", "own_notifiers.Writer"]})

    def end_task(*_: object) -> None:
        raise InterruptedError("the time of the task is over")

    before, began = signal.signal(signal.SIGALRM, end_task), time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, 3)
        notify(context(), NotifyEvent.FAILURE, TABLE, "the disk is full")
        assert told() == ["on_failure demo.flights: the disk is full"]
        assert "Hanging could not be called for on_failure of demo.flights: TimeoutError: it has not" in caplog.text
        assert signal.getsignal(signal.SIGALRM) is end_task
        with pytest.raises(InterruptedError, match="time of the task"):
            time.sleep(60)
        assert time.monotonic() - began >= 2.9
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_wrong_settings_are_logged_and_fail_nothing(
    configure: Any, told: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure({"on_failure": "own_notifiers.Writer"}, {"on_failure": ["own_notifiers.Writer"]})
    notify(context(), NotifyEvent.FAILURE, TABLE, "it failed")
    assert told() == ["on_failure demo.flights: it failed"]
    assert "expected a list such as [my.Notifier]" in caplog.text
    for setting in ("{", "[a.B]", "{on_failure: [B]}"):
        monkeypatch.setenv("CALVE_NOTIFY", setting)
        caplog.clear()
        notify(context(), NotifyEvent.FAILURE, "demo.other", "it failed")
        assert "CALVE_NOTIFY" in caplog.text
    assert told() == []


def test_failures_are_told_for_each_table_of_the_task(configure: Any, told: Any, catalog: Catalog) -> None:
    configure(None, {"on_failure": ["own_notifiers.Writer"]})
    for task, form, tables in (
        (SimpleNamespace(task_id="t", batch=[{"table": "a.b"}, {"table": "c.d"}], table=""), {}, ["a.b", "c.d"]),
        (SimpleNamespace(task_id="t", table="a.b"), {"table": "c.d"}, ["a.b"]),
        (SimpleNamespace(task_id="t"), {"table": "c.d"}, ["c.d"]),
        (SimpleNamespace(task_id="t"), {}, ["None"]),
        (SimpleNamespace(task_id="quarantined", notifies_failure=False), {"table": "c.d"}, []),
    ):
        notify_failure(context(task, form))
        assert told() == [f"on_failure {table}: no disk" for table in tables]
    catalog.operations.begin("load/run", OperationKind.ADD_PARTITIONS, TABLE)
    notify_failure(context(SimpleNamespace(task_id="t")))
    assert told() == ["on_failure demo.flights: no disk"]


DAG_FILE = """\
from airflow.sdk import task
from calve_airflow.dags.base import calve_dag

with calve_dag("failing", {}, schedule=None, params={"table": "demo.flights"}, default_args={"retries": 0}):

    @task
    def fail():
        raise ValueError("the disk is full")

    fail()
"""


@pytest.mark.airflow
@pytest.mark.filterwarnings("ignore")  # Airflow's own
def test_tasks_of_all_dags_of_calve_tell_their_failure(
    configure: Any, told: Any, load_dag: Callable[[str, str], DAG]
) -> None:
    configure({"on_failure": ["own_notifiers.Broken", "own_notifiers.Writer"]})
    assert load_dag(DAG_FILE, "failing").test().state == "failed"
    assert told() == ["on_failure demo.flights: the disk is full"]
