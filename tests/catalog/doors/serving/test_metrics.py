"""Metrics of the front doors, over all processes."""

from __future__ import annotations

from pathlib import Path

from catalog.doors.serving import metrics as module
from catalog.doors.serving.metrics import Metrics


def lines(metrics: Metrics) -> set[str]:
    return set(metrics.text().splitlines())


def test_every_process_answers_for_all(tmp_path: Path) -> None:
    first, second = Metrics(tmp_path, 0), Metrics(tmp_path, 1)
    first.request("hms", "get_table", "ok", 0.002)
    second.request("hms", "get_table", "ok", 0.2)
    second.request("hms", "get_table", "NoSuchObjectException", 100)
    second.searched("shop.orders", by_index=True)
    first.searched("shop.orders", by_index=False)
    assert first.text() == second.text()
    assert {
        'calve_door_requests_total{door="hms",operation="get_table",status="ok"} 2',
        'calve_door_requests_total{door="hms",operation="get_table",status="NoSuchObjectException"} 1',
        'calve_door_request_seconds_bucket{door="hms",operation="get_table",le="0.001"} 0',
        'calve_door_request_seconds_bucket{door="hms",operation="get_table",le="0.0025"} 1',
        'calve_door_request_seconds_bucket{door="hms",operation="get_table",le="0.25"} 2',
        'calve_door_request_seconds_bucket{door="hms",operation="get_table",le="60.0"} 2',
        'calve_door_request_seconds_bucket{door="hms",operation="get_table",le="+Inf"} 3',
        'calve_door_request_seconds_count{door="hms",operation="get_table"} 3',
        'calve_door_searches_total{table="shop.orders",way="index"} 1',
        'calve_door_searches_total{table="shop.orders",way="all"} 1',
        "# TYPE calve_door_request_seconds histogram",
    } <= lines(first)


def test_a_process_goes_on_with_the_numbers_of_its_predecessor_but_has_no_connections(tmp_path: Path) -> None:
    died = Metrics(tmp_path, 3)
    died.request("glue", "GetTable", "ok", 0.1)
    died.connected("glue", +5)
    follower = Metrics(tmp_path, 3)
    follower.request("glue", "GetTable", "ok", 0.1)
    follower.connected("glue", +1)
    assert 'calve_door_requests_total{door="glue",operation="GetTable",status="ok"} 2' in lines(follower)
    assert 'calve_door_connections{door="glue"} 1' in lines(follower)


def test_labels_are_bounded(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path)
    for number in range(module._MOST_SERIES):
        metrics.request("rest", f"operation{number}", "ok", 0.1)
        metrics.searched(f"shop.table{number}", by_index=True)
    text = metrics.text()
    assert text.count("\n") < 20 * module._MOST_SERIES
    assert 'calve_door_searches_total{table="other",way="index"} 3500' in lines(metrics)
    requests = [line for line in text.splitlines() if line.startswith("calve_door_requests_total{")]
    assert sum(float(line.rpartition(" ")[2]) for line in requests) == module._MOST_SERIES


def test_long_and_strange_names_are_escaped_or_cut(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path)
    metrics.searched('a"b\\c\nd', by_index=False)
    metrics.searched("x" * 1_000, by_index=False)
    assert 'calve_door_searches_total{table="a\\"b\\\\c\\nd",way="all"} 1' in lines(metrics)
    assert 'calve_door_searches_total{table="other",way="all"} 1' in lines(metrics)
