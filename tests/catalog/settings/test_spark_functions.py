"""Checks of SQL expressions without Spark."""

from __future__ import annotations

import re

import pytest

from catalog.errors import InvalidConfigurationError
from catalog.settings.spark_functions import check_expression


@pytest.mark.parametrize(
    "expression",
    [
        "month(from_utc_timestamp(time_hour, 'America/New_York'))",
        "CASE WHEN (a > 1) OR (b IN (1, 2)) THEN Concat(a, ')') ELSE \"(\" END",
        "cast(a AS varchar(3))",
        r"replace(a, 'it\'s (', '')",
        "`odd (name`",
        "calve.tools.my_function(a)",
        "sum(a) FILTER (WHERE b) OVER (PARTITION BY (c))",
        "2024",
        5,
    ],
)
def test_valid_expressions(expression: object) -> None:
    check_expression("agree.day", expression)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("mont(d)", "agree.day is 'mont(d)', but Spark has no function mont; did you mean month?"),
        ("zzzzqq (d)", "no function zzzzqq; SHOW FUNCTIONS of Spark lists them"),
        ("month(d", "whose brackets do not match; correct them"),
        ("month)d(", "whose brackets do not match; correct them"),
        ("concat(d, 'a)", "in which nothing closes the quote '; close it"),
        (" ", "expected a SQL expression such as to_date(ordered_at)"),
        (None, "expected a SQL expression such as to_date(ordered_at)"),
        (["d"], "expected a SQL expression such as to_date(ordered_at)"),
    ],
)
def test_wrong_expressions(expression: object, said: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=re.escape(said)):
        check_expression("agree.day", expression)


def test_extensions_of_spark_may_have_other_functions() -> None:
    check_expression("agree.day", "st_area(d)", knows_functions=False)
