"""Airflow's own backfill of a range of days, of a table whose source is a template, and late rows for these days."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from catalog import Catalog
from tests.end_to_end.backfills import backfill
from tests.end_to_end.conftest import BY_DAY

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

LOAD = f"add_partitions.{BY_DAY}"
VISITORS = {"2026-01-01": 3, "2026-01-02": 5}
"""Day → number of rows in its file."""


def test_each_day_is_loaded_once(stack: Stack, catalog: Catalog) -> None:
    landing = stack.home / "landing" / "visits"
    landing.mkdir(parents=True)
    for day, count in VISITORS.items():
        rows = "".join(f"{number},{day}\n" for number in range(count))
        (landing / f"{day}.csv").write_text(f"visitor,day\n{rows}")
    for reprocess in ("none", "completed"):
        assert backfill(stack, LOAD, min(VISITORS), max(VISITORS), reprocess) == dict.fromkeys(VISITORS, "success")
        counts = {partition.values[0]: partition.row_count for partition in catalog.get_partitions(BY_DAY)}
        assert counts == VISITORS


def test_late_rows_are_refused_or_added_as_the_form_says(
    stack: Stack, catalog: Catalog, start_dag: Callable[..., Any]
) -> None:
    """Rows for a day of the backfill and for a new one; the day is only in the names of the files' folders."""
    late = stack.home / "landing" / "late"
    for day, numbers in {"2026-01-02": (5, 6), "2026-01-03": (0,)}.items():
        (late / f"day={day}").mkdir(parents=True)
        (late / f"day={day}" / "part.csv").write_text("visitor\n" + "".join(f"{number}\n" for number in numbers))
    before = {partition.values[0]: partition.row_count for partition in catalog.get_partitions(BY_DAY)}
    form = {"table": BY_DAY, "source": str(late), "dry_run": False}
    refused = start_dag("add_partitions", form)
    refused.wait("failed")
    assert "Set the load's `mode` to append" in refused.log("validate")
    run = start_dag("add_partitions", {**form, "mode": "append"})
    run.wait()
    report = run.result("register")
    assert (report["partitions"], report["partitions_extended"], report["row_count"]) == (1, 1, 3)
    assert run.result("check_quality")["checked"] == 2
    counts = {partition.values[0]: partition.row_count for partition in catalog.get_partitions(BY_DAY)}
    assert counts == {**before, "2026-01-02": (before["2026-01-02"] or 0) + 2, "2026-01-03": 1}
    events = stack.api.get(f"/assets/events?source_dag_id=add_partitions&source_run_id={quote(run.id)}")["asset_events"]
    assert {event["partition_key"] for event in events} == {"day=2026-01-02", "day=2026-01-03"}


def test_a_corrected_day_replaces_its_partition(stack: Stack, catalog: Catalog, start_dag: Callable[..., Any]) -> None:
    """The file of a day is delivered again with other rows."""
    day = "2026-01-01"
    before = {partition.values[0]: partition.row_count for partition in catalog.get_partitions(BY_DAY)}
    (stack.home / "landing" / "visits" / f"{day}.csv").write_text(f"visitor,day\n7,{day}\n")
    form = {"table": BY_DAY, "source": str(stack.home / "landing" / "visits"), "dry_run": False}
    refused = start_dag("add_partitions", form)
    refused.wait("failed")
    assert "1 file(s) changed after they were loaded" in refused.log("discover")
    assert "set `mode` to replace" in refused.log("discover")
    run = start_dag("add_partitions", {**form, "mode": "replace"})
    run.wait()
    assert f"{day}.csv" in run.log("discover")
    report = run.result("register")
    assert (report["partitions"], report["partitions_replaced"], report["row_count"]) == (0, 1, 1)
    assert run.result("check_quality")["checked"] == 1
    counts = {partition.values[0]: partition.row_count for partition in catalog.get_partitions(BY_DAY)}
    assert counts == {**before, day: 1}
    assert catalog.vacuum(BY_DAY, grace=timedelta(0)).total.settled_partitions == 1
    files = [path.read_bytes() for path in Path(catalog.get_table(BY_DAY).location).glob(f"day={day}/[!._]*")]
    assert len(files) == 1
