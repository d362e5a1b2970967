"""Statements, loads, upkeep and commits of engines on one Iceberg table: no row is lost, and none comes back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from catalog import Catalog
from catalog.statements.session import Session
from tests.support.effort import effort
from tests.support.mixed_sequences import KINDS, MixedSequence
from tests.support.rest_server import rest_server
from tests.support.spark_engine import rest_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.statement_engine import SparkEngine

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:Delete operation did not match")]

STEPS = 16


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(effort(1, 8)))
def test_rows_are_those_of_a_model_after_each_step(
    session: Session,
    start: Callable[[Catalog], SparkEngine],
    catalog: Catalog,
    iceberg_spark: SparkSession,
    tmp_path: Path,
    kind: str,
    seed: int,
) -> None:
    random = Random(f"{kind} {seed}")
    with rest_server(catalog) as address:
        lake = rest_session(iceberg_spark, address)
        lake.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
        sequence = MixedSequence(session, catalog, start, lake, address, kind, random, tmp_path)
        sequence.create()
        sequence.insert("calve")
        for _ in range(STEPS):
            random.choice(sequence.steps())()
            sequence.check()
        sequence.check_catalog()
