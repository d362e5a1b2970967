"""`make demo`, whole, as the README shows it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from standalone import demo

if TYPE_CHECKING:
    from catalog import Catalog
    from standalone.stack import Stack

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.parametrize("stack", ["postgresql-shared"], indirect=True),
]


def test_the_demo_ends_well_and_prints_what_it_found(
    stack: Stack, catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo.run(stack) == 0
    printed = capsys.readouterr().out
    for expected in (
        f"{demo.TABLE} has 366 partitions with 308,641 flights.",
        "Great Expectations: 33 of December's 33 partitions passed, 0 failed.",
        "Nothing changed: 399 partitions, 336,776 flights",
        "All 336,776 flights are still there",
        f"{demo.TABLE} is a Hive table with 399 partitions",
        f"{demo.TABLE} is an Iceberg table",
        "Next steps",
    ):
        assert expected in printed
    assert len(re.findall(r"rows in \d+ of \d+ files\b", printed)) == 2
    assert catalog.get_table(demo.TABLE).is_iceberg
