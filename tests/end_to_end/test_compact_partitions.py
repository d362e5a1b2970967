"""Small files are compacted by a policy, and changes from outside of Airflow become asset events, each once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog import Catalog, NewPartition
from standalone.airflow_api import AirflowApiError
from tests.end_to_end.conftest import COMPACTED

if TYPE_CHECKING:
    from standalone.stack import Stack

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.parametrize("stack", ["postgresql"], indirect=True),
]


def calve(stack: Stack, *arguments: str) -> str:
    """Run the command line, as somebody does who has only the catalog's address."""
    environment = {**os.environ, "CALVE_CATALOG_URL": stack.catalog_url}
    command = [sys.executable, "-m", "catalog.cli", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120).stdout


def events(stack: Stack) -> list[tuple[str, str]]:
    """Return the DAG and the partition of the events that Airflow has of the table, oldest first.

    Airflow 3.3 answers 500 while a run that an event has started is queued, because it has no start date yet.
    """
    while True:
        try:
            found = [event for event in stack.api.asset_events() if event["name"].startswith(COMPACTED)]
            break
        except AirflowApiError as error:
            if error.status != 500:
                raise
            time.sleep(0.5)
    return [(event["name"].removeprefix(COMPACTED).strip(), event["partition_key"]) for event in reversed(found)]


def runs(stack: Stack) -> dict[str, set[str]]:
    """Return the partitions of the runs that the events have started, by DAG."""
    return {dag: {run["partition_key"] for run in stack.api.dag_runs(dag)} for dag in ("changed", "dropped")}


def wait_for(is_reached: Callable[[], bool], describe: Callable[[], object]) -> None:
    deadline = time.monotonic() + 180
    while not is_reached():
        assert time.monotonic() < deadline, describe()
        time.sleep(0.5)


def wait_for_events(stack: Stack, expected: list[tuple[str, str]]) -> None:
    wait_for(lambda: len(events(stack)) >= len(expected), lambda: events(stack))
    assert sorted(events(stack)) == sorted(expected)


def test_changes_by_the_command_line_are_announced_once_and_compactions_not(
    stack: Stack, catalog: Catalog, run_dag: Callable[..., Any]
) -> None:
    database, _ = COMPACTED.split(".")
    catalog.create_database(database, if_not_exists=True)
    table = catalog.create_table(COMPACTED, columns=[("id", "bigint")], partition_keys=[("day", "int")])
    new = []
    for day in (1, 2, 3):
        folder = Path(table.location) / f"day={day}"
        folder.mkdir(parents=True)
        count = 1 if day == 3 else 4
        for number in range(count):
            pq.write_table(pa.table({"id": pa.array([day * 10 + number])}), folder / f"part-{number}.parquet")
        size = sum(path.stat().st_size for path in folder.iterdir())
        new.append(NewPartition((str(day),), file_count=count, row_count=count, size_bytes=size))
    catalog.add_partitions(COMPACTED, new)
    expected = [("", f"day={day}") for day in (1, 2, 3)]
    wait_for_events(stack, expected)

    assert "Dropped 1 partition(s)" in calve(stack, "drop-partitions", COMPACTED, "--where", "day = 3")
    expected.append(("(dropped)", "day=3"))
    wait_for_events(stack, expected)

    planned = run_dag("compact_partitions", {"tables": [COMPACTED], "dry_run": True})
    assert planned.states()["compact"] == "skipped"
    run = run_dag("compact_partitions", {"tables": [COMPACTED]})
    [row] = run.result("summarise")
    assert row["outcome"] == "8 file(s) of 2 partition(s) became 2"
    after = {partition.values[0]: partition for partition in catalog.get_partitions(COMPACTED)}
    assert [(day, after[day].file_count, after[day].row_count) for day in sorted(after)] == [("1", 1, 4), ("2", 1, 4)]
    rows = [
        pq.read_table(path).column("id").to_pylist() for path in sorted(Path(after["1"].location).glob("*.parquet"))
    ]
    assert sorted(rows[0]) == [10, 11, 12, 13]
    again = run_dag("compact_partitions", {"tables": [COMPACTED]})
    assert again.result("summarise")[0]["outcome"] == "nothing to do"

    # The next announcement comes after that of the compaction, if there was one.
    calve(stack, "drop-partitions", COMPACTED, "--where", "day = 2")
    expected.append(("(dropped)", "day=2"))
    wait_for_events(stack, expected)
    assert catalog.announcements.pending() is None
    expected_runs = {"changed": {"day=1", "day=2", "day=3"}, "dropped": {"day=2", "day=3"}}
    # The scheduler makes runs of events in a loop of its own.
    wait_for(lambda: runs(stack) == expected_runs, lambda: runs(stack))
