"""How much the tests try: a sample in `make test`, everything in `make test-all`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, TypeVar

import pytest

Choice = TypeVar("Choice")

IS_THOROUGH = os.environ.get("CALVE_TEST_EFFORT") == "all"
"""Whether the long matrices run: `CALVE_TEST_EFFORT=all` in the environment."""


def effort(sample: Choice, everything: Choice) -> Choice:
    """Return the first value in a run of samples, and the second in a thorough one."""
    return everything if IS_THOROUGH else sample


def sampled(cases: Iterable[Any], sample: Iterable[Any]) -> list[Any]:
    """Return cases to parametrize a test with, those outside the sample marked as long."""
    kept = list(sample)
    return [case if case in kept else _long(case) for case in cases]


def seeds(sample: int, everything: int) -> Iterable[Any]:
    """Yield cases of the parameters `catalog_url` and `seeds`: up to 25 seeds each, every fourth on PostgreSQL.

    Args:
        sample, everything: The number of seeds, as for `effort`.
    """
    of_one_case = effort(1, 25)
    for number, first in enumerate(range(0, effort(sample, everything), of_one_case)):
        url = "postgresql" if number % 4 == 1 else "sqlite"
        yield pytest.param(url, range(first, first + of_one_case), id=f"{url}-{first}")


def _long(case: Any) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.long)


CODE_GENERATION = {
    "spark.sql.codegen.wholeStage": effort("false", "true"),
    "spark.sql.codegen.factoryMode": effort("NO_CODEGEN", "FALLBACK"),
}
"""Settings of Spark: to compile the code of a small query takes longer than to interpret it."""
