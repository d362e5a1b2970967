"""Quality checks of a table that has many pages of earlier checks."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

from benchmarks.figures import BenchmarkError, Figure
from benchmarks.ground import Ground
from benchmarks.timing import compare
from catalog import Column, FileFormat, Table
from catalog.loading.quality_pages import QualityPages
from catalog.operations.records import Operation
from catalog.settings.quality_rules import ColumnRule, QualityRules

HEADINGS = {
    "quality_pages": "A quality check of 30 partitions, with its page, of a table with many pages ÷ of a table with 10",
}

FEW, MANY = 10, 10_000
_PARTITIONS = 30
_TABLE = Table("bench", "orders", (Column("amount", "double"),), (Column("day", "int"),), FileFormat.PARQUET, "/none")
_RULES = QualityRules(columns={"amount": ColumnRule(maximum=100, max_null_ratio=0.1)})

log = logging.getLogger(__name__)


def measure(ground: Ground, many: int = MANY) -> Iterator[Figure]:
    """Yield the time of a check beside many pages, and beside few."""
    # Imported late: Great Expectations takes seconds.
    import pandas

    from spark_jobs.checking.expectations import validate

    log.info("Checking the quality beside %s pages", f"{many:,}")
    counts = {"row_count": 100, "registered_row_count": 100, "row_count_difference": 0, "amount_above": 0}
    values = {**counts, "amount_null_ratio": 0.05, "path_agrees": True, "values_fit": True}
    names = [f"day={day}" for day in range(_PARTITIONS)]
    summary = pandas.DataFrame({"partition": names, "partition_id": range(_PARTITIONS), **values})

    def check(folder: str, number: int) -> None:
        operation = cast(Operation, SimpleNamespace(number=number, id="bench"))
        pages = QualityPages(str(ground.folder / folder))
        validation = validate(summary, _TABLE, _RULES, pages=pages, operation=operation)
        if validation.page is None or not all(partition.passed for partition in validation.checks):
            raise BenchmarkError(f"the check beside the pages in {folder} failed: {validation}")

    for folder, count in (("few", FEW), ("many", many)):
        check(folder, 0)
        (written,) = (ground.folder / folder / _TABLE.full_name).iterdir()
        for number in range(1, count):
            written.with_name(f"{number}-bench.html").write_bytes(written.read_bytes())
    pair = compare(lambda: check("many", many), lambda: check("few", many), ground.effort)
    name = f"quality_pages.check.{many}.files"
    yield Figure(name=name, ours=pair.ours, peer=pair.peer, unit="s", runs=pair.runs, goal=1.2)
