"""A small table that statements and other engines change at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from catalog import Catalog
from tests.support.racing_commits import Orders

if TYPE_CHECKING:
    from spark_jobs.statement_engine import SparkEngine


@pytest.fixture
def orders(
    start: Callable[[Catalog], SparkEngine], catalog: Catalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Orders]:
    catalog.create_database("demo")
    opened = Orders(catalog, start, tmp_path / "orders.csv", monkeypatch)
    with opened.session:
        yield opened
