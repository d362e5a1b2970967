"""A migration that is killed in any step and run again ends like an undisturbed one; of two concurrent ones, one ends.

`make test-all` kills the jobs of each step on both databases.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog import Catalog, Table
from catalog.errors import CatalogError, OperationConflictError
from catalog.migration.migrations import STAGE, VERIFY
from catalog.migration.requests import MigrationRequest
from catalog.operations.failpoints import DIE_AT, Point
from catalog.operations.job_requests import StageMigrationJob, VerifyMigrationJob
from tests.catalog.migration.test_killed_migrations import kill
from tests.catalog.migration.test_migrations import data_files, hive_state, make_old, metadata_files
from tests.conftest import spark_jars
from tests.support.iceberg_tables import NAME, expected_rows, iceberg_rows, make_orders, sql_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.migrating import Migrator

pytestmark = pytest.mark.spark

REPOSITORY = Path(__file__).parents[2]
PARTITIONS: dict[tuple[str | None, str | None], list[int]] = {
    (f"c{number}", None if number == 0 else "2025"): [number, 100 + number] for number in range(24)
}
"""The number of files: enough that a stage step with one file per task is killed between two of them."""


class Died(BaseException):
    """Simulates the end of the process: `except Exception` does not catch it."""


@pytest.fixture
def orders(catalog: Catalog) -> Table:
    """A Hive table, each partition with a file."""
    catalog.create_database("demo")
    return make_orders(catalog, partitions=PARTITIONS)


@contextmanager
def ends_as_if_undisturbed(catalog: Catalog, url: str, table: Table) -> Iterator[None]:
    """Expect one Iceberg table with the rows and files of the Hive table, and no orphans once vacuum has run."""
    before, files = hive_state(catalog, table), data_files(table)
    yield
    assert iceberg_rows(url) == expected_rows(PARTITIONS)
    assert hive_state(catalog, table) == before
    assert data_files(table) == files
    (operation,) = catalog.operations.list(NAME)
    make_old(catalog, table.location, operation.id)
    assert catalog.vacuum(grace=timedelta(0)).problems == ()
    report = operation.report
    kept = f"{table.location}/{report[STAGE]['folder']}/"
    rest = [each for each in metadata_files(table.location) if not each.startswith(kept)]
    assert rest == [report["flip"]["metadata_location"]]
    with sql_catalog(url) as iceberg:
        assert iceberg.list_tables("demo") == [("demo", "orders")]
    assert iceberg_rows(url) == expected_rows(PARTITIONS)


@contextmanager
def dying_at(point: Point, time_of: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """End this thread when it reaches a point for the first, second, … time."""
    times = iter(range(1, time_of + 1))

    def die() -> None:
        if next(times) == time_of:
            raise Died

    with monkeypatch.context() as patch:
        patch.setenv(DIE_AT, point)
        patch.setattr("catalog.operations.failpoints.die", die)
        yield


DEATHS = (
    *((Point.JOURNALED, 1), (Point.STARTED, 1), (Point.METADATA_WRITTEN, 1), (Point.STAGED, 1)),
    # First during the steps stage and verify, then during verify and flip.
    *((Point.STARTED, 2), (Point.STARTED, 2), (Point.CHANGED, 1), (Point.COMMITTED, 1)),
)


@pytest.mark.long
def test_a_migration_that_dies_at_one_point_after_the_other_ends_as_one_that_nobody_disturbed(
    spark: SparkSession,
    iceberg_spark: SparkSession,
    catalog: Catalog,
    catalog_url: str,
    orders: Table,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from spark_jobs.migrate import migrate

    with ends_as_if_undisturbed(catalog, catalog_url, orders):
        for point, time_of in DEATHS:
            assert not catalog.get_table(NAME).is_iceberg
            with dying_at(point, time_of, monkeypatch), pytest.raises(Died):
                migrate(spark, catalog, "m1", NAME)
        report = migrate(spark, catalog, "m1", NAME)
        assert (report["files"], report["rows"], report["partitions_verified"]) == (24, 48, 24)
        assert migrate(spark, catalog, "m1", NAME) == report


# --- real processes ---------------------------------------------------------------------------------------------------


def kill_job(catalog: Catalog, step: str, url: str, scratch: Path, is_time: Callable[[], bool], **more: Any) -> None:
    """Run a step of operation m1 as spark-submit does, and kill all its processes while it runs."""
    script = {STAGE: StageMigrationJob, VERIFY: VerifyMigrationJob}[step].script
    request = {"operation_id": "m1", "step": step, "table": NAME, **more}
    attempt = catalog.operations.start_job("m1", step, request=request)
    confs = ("spark.ui.enabled=false", "spark.driver.host=127.0.0.1", "spark.sql.shuffle.partitions=4")
    settings = [f"--conf {each}" for each in confs]
    environment = {
        **os.environ,
        "CALVE_CATALOG_URL": url,
        "PYTHONPATH": str(REPOSITORY),
        "PYSPARK_SUBMIT_ARGS": f"--master local[2] {' '.join(settings)} --jars {spark_jars()[0]} pyspark-shell",
        "SPARK_LOCAL_DIRS": str(scratch),
    }
    command = [sys.executable, "-m", f"spark_jobs.{script}", "m1", step, str(attempt)]
    with (scratch.parent / f"{script}.log").open("w+b") as log:
        process = subprocess.Popen(
            command, cwd=REPOSITORY, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            end = time.monotonic() + 600
            while not is_time() and process.poll() is None and time.monotonic() < end:
                time.sleep(0.002)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        log.seek(0)
        assert process.wait() == -signal.SIGKILL, log.read()[-3000:].decode()
    assert is_time()


@pytest.mark.long
def test_processes_that_are_killed_in_any_step_are_succeeded_by_others(
    iceberg_spark: SparkSession, migrator: Migrator, catalog: Catalog, catalog_url: str, orders: Table, tmp_path: Path
) -> None:
    """The jobs while they run; the flip, which is not a job, during its transaction and after it."""
    request = MigrationRequest()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with ends_as_if_undisturbed(catalog, catalog_url, orders):
        catalog.migrations.begin("m1", NAME, request)
        manifests = Path(orders.location, "metadata")
        # One of its tasks has written a manifest.
        kill_job(catalog, STAGE, catalog_url, scratch, lambda: any(manifests.glob("calve-*/*.avro")), files_a_task=1)
        assert not catalog.migrations.is_staged("m1")
        with pytest.raises(OperationConflictError, match="operation m1"):
            catalog.migrations.begin("m2", NAME, request)
        migrator.stage("m1")
        # One of its tasks has read rows.
        kill_job(catalog, VERIFY, catalog_url, scratch, lambda: any(scratch.rglob("shuffle_*.data")))
        migrator.verify("m1")
        for point in (Point.STARTED, Point.CHANGED, Point.COMMITTED):
            assert not catalog.get_table(NAME).is_iceberg
            kill(catalog_url, "m1", NAME, request, point)
        assert catalog.migrations.flip("m1")["files"] == len(PARTITIONS)


@pytest.mark.long
def test_of_two_migrations_at_once_one_ends_and_the_other_says_why_it_stopped(
    spark: SparkSession, iceberg_spark: SparkSession, catalog: Catalog, catalog_url: str, orders: Table
) -> None:
    from spark_jobs.migrate import migrate

    barrier, outcomes = threading.Barrier(2), dict[str, Any]()

    def run(operation_id: str) -> None:
        with Catalog.open(catalog_url) as own:
            barrier.wait()
            try:
                outcomes[operation_id] = migrate(spark, own, operation_id, NAME)
            except CatalogError as error:
                outcomes[operation_id] = error

    with ends_as_if_undisturbed(catalog, catalog_url, orders):
        threads = [threading.Thread(target=run, args=(each,)) for each in ("m1", "m2")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    (winner,) = (each for each, outcome in outcomes.items() if isinstance(outcome, dict))
    (lost,) = (outcome for outcome in outcomes.values() if isinstance(outcome, Exception))
    assert outcomes[winner]["files"] == len(PARTITIONS)
    # A migration that starts after the other has ended finds an Iceberg table.
    says = f"operation {winner}" if isinstance(lost, OperationConflictError) else "is an Iceberg table already"
    assert says in str(lost)
