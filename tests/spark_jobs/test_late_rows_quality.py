"""The quality check of partitions to which a load has added rows: as they became, and the new rows alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog.operations.job_requests import CheckQualityJob
from spark_jobs.check_quality import check_quality

if TYPE_CHECKING:
    from tests.spark_jobs.conftest import Loader

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

RULES = {"columns": {"amount": {"min": 0, "max_null_ratio": 0.2}}, "row_count": {"min": 50}, "agree": {"day": "number"}}


@pytest.mark.long
@pytest.mark.parametrize("table_format", ["parquet", "iceberg"])
def test_bad_late_rows_are_found_and_few_late_rows_are_no_small_partition(
    make_loader: Callable[..., Loader], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_format: str
) -> None:
    monkeypatch.setenv("CALVE_HOME", str(tmp_path / "home"))
    loader = make_loader(keys={"day": "int"})
    loader.request |= {"format": table_format}

    def load(name: str, amounts: dict[int, list[str]]) -> dict[str, Any]:
        lines = [f"{day},{amount},{day}" for day, given in amounts.items() for amount in given]
        (tmp_path / name).write_text("\n".join(["number,amount,day", *lines, ""]))
        operation = loader.new_operation()
        loader.validate(operation, tmp_path / name, mode="append")
        loader.register(operation, loader.write(operation, mode="append")["staging"], mode="append")
        with loader.catalog.operations.attempt(operation, "check_quality") as attempt:
            job = CheckQualityJob(
                operation_id=operation, step="check_quality", attempt=attempt, table=loader.table, rules=RULES
            )
            check_quality(loader.spark, loader.catalog, job)
        return dict(loader.catalog.operations.get(operation).report["check_quality"])

    assert load("first.csv", {1: ["1.5"] * 100, 2: ["2.5"] * 60})["failures"] == []
    # 12 of 112 values are missing, but all of the new ones; day 3 is too small by itself.
    report = load("late.csv", {1: [""] * 12, 2: ["1.5"] * 3, 3: ["1.5"] * 7})
    assert (report["checked"], report["failed"]) == (3, 2)
    assert sorted(report["failures"]) == [
        "day=1: ratio of nulls in amount in the new rows: 1, expected at most 0.2",
        "day=3: rows: 7, expected at least 50",
    ]
    assert load("good.csv", {1: ["1.5"] * 2})["failures"] == []
    late = load("bad.csv", {2: ["-1"]})
    assert late["failures"] == [
        "day=2: rows with amount below 0: 1, expected 0; rows with amount below 0 in the new rows: 1, expected 0"
    ]
