"""Metrics: their names in the code, the docs and the board, and what Airflow sends."""

from __future__ import annotations

import json
import re
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Context
from airflow.sdk.execution_time.context import OutletEventAccessors

from calve_airflow.assets import Change
from calve_airflow.metrics import Metric, count, record_duration
from calve_airflow.outcomes import report_outcome
from catalog import Catalog
from catalog.operations.records import OperationKind

REPOSITORY = Path(__file__).parents[2]
BOARD = REPOSITORY / "deploy" / "grafana" / "calve.json"


class Backend:
    """Airflow's client of a metrics server, which records what it would send."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any, dict[str, str]]] = []

    def incr(self, stat: str, count: int = 1, tags: Any = None) -> None:
        self.sent.append((stat, count, tags or {}))

    def timing(self, stat: str, dt: timedelta, tags: Any = None) -> None:
        self.sent.append((stat, dt, tags or {}))


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Backend:
    backend = Backend()
    monkeypatch.setattr("airflow.sdk._shared.observability.metrics.stats._backend", backend)
    return backend


def test_counters_and_durations_are_sent_with_their_tags(backend: Backend) -> None:
    count(Metric.ROWS_LOADED, 7, table="shop.orders")
    count(Metric.ROWS_LOADED, 0, table="shop.orders")
    count(Metric.FAILURES, dag_id="load", task_id="write")
    record_duration(Metric.LOAD_DURATION, int(time.time() * 1000) - 90_000, table="shop.orders")
    *counters, (name, duration, tags) = backend.sent
    assert counters == [
        ("calve.rows_loaded", 7, {"table": "shop.orders"}),
        ("calve.failures", 1, {"dag_id": "load", "task_id": "write"}),
    ]
    assert (name, tags) == ("calve.load_duration", {"table": "shop.orders"})
    assert timedelta(seconds=90) <= duration < timedelta(seconds=120)


def test_a_server_that_fails_fails_nothing(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_arguments: Any, **_options: Any) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(backend, "incr", fail)
    count(Metric.LOADS)
    assert "The metric calve.loads could not be sent: no route to host" in caplog.text


def test_operations_are_counted(backend: Backend, catalog: Catalog) -> None:
    operation = catalog.operations.begin("load/run", OperationKind.ADD_PARTITIONS, "demo.flights")
    context = Context(  # type: ignore[typeddict-item]  # other keys are not used
        ti=SimpleNamespace(task=SimpleNamespace(outlets=[])), outlet_events=OutletEventAccessors()
    )
    report_outcome(context, Change.LOADED, operation, {"partitions": 2, "row_count": 7, "quarantined": 0})
    report_outcome(context, Change.REBALANCED, operation, {"rows_moved": 3})
    report_outcome(context, Change.MIGRATED, operation, {"rows": 5}, "demo.copy")
    assert [(name, value) for name, value, _ in backend.sent if not name.endswith("_duration")] == [
        ("calve.loads", 1),
        ("calve.rows_loaded", 7),
        ("calve.partitions_added", 2),
        ("calve.rebalances", 1),
        ("calve.rows_moved", 3),
        ("calve.migrations", 1),
        ("calve.rows_migrated", 5),
    ]
    tables = [tags["table"] for _, _, tags in backend.sent]
    assert tables == ["demo.flights"] * 7 + ["demo.copy"] * 3


def test_the_metrics_are_those_of_the_docs() -> None:
    text = (REPOSITORY / "docs" / "operating.md").read_text()
    rows = re.findall(r"^\| `(calve\.\w+)` \| (\w+) \|", text, re.MULTILINE)
    kinds = {metric.value: "timing" if metric.value.endswith("_duration") else "counter" for metric in Metric}
    assert dict(rows) == kinds


def test_each_query_of_the_board_names_a_metric_and_each_metric_is_on_the_board() -> None:
    board = json.loads(BOARD.read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    prometheus = {f"airflow_{metric.value.replace('.', '_')}" for metric in Metric}
    named = set()
    for query in queries:
        names = set(re.findall(r"airflow_\w+", query))
        assert names, query
        named |= {re.sub(r"(_duration)_(sum|count)$", r"\1", name) for name in names}
        assert query.count("(") == query.count(")"), query
        assert query.count("{") == query.count("}"), query
    assert named == prometheus


def test_panels_of_the_board_do_not_overlap() -> None:
    places: dict[tuple[int, int], str] = {}
    for panel in json.loads(BOARD.read_text())["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert places.setdefault((x, y), panel["title"]) == panel["title"]
