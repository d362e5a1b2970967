"""A small table that statements and other engines change at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from catalog import Catalog
from tests.support.racing_commits import Orders

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def orders(
    iceberg_spark: SparkSession, catalog: Catalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Orders]:
    from spark_jobs.sessions.session import configure
    from spark_jobs.statement_engine import SparkEngine

    catalog.create_database("demo")
    start = lambda opened: SparkEngine(opened, configure(iceberg_spark))  # noqa: E731
    opened = Orders(catalog, start, tmp_path / "orders.csv", monkeypatch)
    with opened.session:
        yield opened
