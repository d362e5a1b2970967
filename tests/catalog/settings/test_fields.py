"""Checks of numbers and lists in forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from click.testing import CliRunner

from catalog.cli.main import main
from catalog.errors import WrongFieldError
from catalog.maintenance.iceberg_upkeep import TableMaintenance
from catalog.settings.fields import days, hours

ODD_AGES = [math.nan, math.inf, -math.inf, 1e300, 1e9, -1, 10**4_000, True, "24", None, [1]]


@pytest.mark.parametrize("value", ODD_AGES)
@pytest.mark.parametrize("read", [hours, days])
def test_an_age_is_a_number_of_up_to_a_hundred_years(read: Callable[[str, Any], timedelta], value: Any) -> None:
    with pytest.raises(WrongFieldError, match=r"^grace: .* is not a number of (hours|days) from 0 to"):
        read("grace", value)


def test_an_age_may_be_a_fraction() -> None:
    assert (hours("grace", 0.5), days("age", 36_500)) == (timedelta(minutes=30), timedelta(days=36_500))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("older_than_days", value) for value in ODD_AGES),
        *(("orphan_days", value) for value in ODD_AGES),
        *(("retain_last", value) for value in (0, 1.5, "1) /*", None, 10**4_000, True)),
        *(("target_file_mib", value) for value in (0, 1.5, "1", 10**20)),
        *(("dry_run", value) for value in ("False", 0, None)),
        *(("tables", value) for value in ([], None, "d.t", [5], ["\ud800.x"])),
        *(("partition_fields", value) for value in ("ADD PARTITION FIELD x", [5], ["DROP TABLE x"])),
        ("bogus", 1),
    ],
)
def test_a_wrong_field_of_the_upkeep_is_named(field: str, value: Any) -> None:
    with pytest.raises(WrongFieldError, match=f"^{field}: "):
        TableMaintenance.read({"tables": ["d.*"], "orphan_days": 3, field: value})


@pytest.mark.parametrize("value", ["nan", "inf", "1e300"])
def test_the_command_line_refuses_an_age_that_is_none(sqlite_url: str, value: str) -> None:
    environment = {"CALVE_CATALOG_URL": sqlite_url}
    runner = CliRunner()
    runner.invoke(main, ["init"], env=environment)
    answer = runner.invoke(main, ["vacuum", "--grace-hours", value], env=environment)
    assert answer.exit_code != 0
    assert "--grace-hours: " in answer.output
