"""A load, step by step, without Airflow."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog import Catalog, LoadMode, OnInvalid
from catalog.loading.registering import REPLACED, removed_by
from catalog.partitions.snapshots import ReplacedFiles
from catalog.statements.session import Session
from catalog.tables.evolution import Evolution

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession

    from spark_jobs.statement_engine import SparkEngine
    from tests.support.migrating import Migrator


class Loader:
    """Runs the steps of loads of one table like the DAG."""

    def __init__(self, spark: SparkSession, catalog: Catalog, table: str, keys: Mapping[str, str]) -> None:
        from spark_jobs.sessions.session import configure

        self.spark = configure(spark)
        self.catalog = catalog
        self.table = table
        self.request: dict[str, Any] = {
            "table": table,
            "source_format": "csv",
            "source_options": {"header": "true"},
            "keys": list(keys.items()),
        }
        self._numbers = itertools.count(1)

    def new_operation(self) -> str:
        return f"load-{next(self._numbers)}"

    def run_job(self, function: Callable[..., Any], job_type: Any, operation_id: str, **changes: Any) -> dict[str, Any]:
        step = job_type.script
        with self.catalog.operations.attempt(operation_id, step) as attempt:
            job = job_type(operation_id=operation_id, step=step, attempt=attempt, **{**self.request, **changes})
            result: dict[str, Any] = function(self.spark, self.catalog, job)
            self.catalog.operations.finish_job(operation_id, step, attempt, result)
        return result

    def whole_request(self, **changes: Any) -> dict[str, Any]:
        """The request that the DAG journals, with all fields."""
        from catalog.operations.job_requests import SourceJob

        return asdict(SourceJob(operation_id="", step="", attempt=0, **{**self.request, **changes}))

    def validate(self, operation_id: str, source: Path, **changes: Any) -> dict[str, Any]:
        from catalog.operations.job_requests import ValidateSourceJob
        from spark_jobs.validate_source import validate_source

        settings = {"request": self.whole_request(**changes)}
        dry_run = changes.get("dry_run", False)
        self.catalog.loading.discover(operation_id, self.table, str(source), is_dry_run=dry_run, settings=settings)
        return self.run_job(validate_source, ValidateSourceJob, operation_id, **changes)

    def write(self, operation_id: str, **changes: Any) -> dict[str, Any]:
        from catalog.operations.job_requests import WritePartitionsJob
        from spark_jobs.write_partitions import write_partitions

        return self.run_job(write_partitions, WritePartitionsJob, operation_id, **changes)

    def register(self, operation_id: str, staging: str, **changes: Any) -> dict[str, Any]:
        with self.catalog.operations.attempt(operation_id, "register") as attempt:
            return self.catalog.loading.publish(
                operation_id,
                "register",
                attempt,
                staging,
                on_invalid=changes.get("on_invalid", OnInvalid.REFUSE),
                is_quarantined=changes.get("is_quarantined", False),
                mode=LoadMode(changes["mode"]) if changes.get("mode") else None,
                removed=removed_by(changes),
                evolution=Evolution.from_json(changes.get("evolution")),
                replaced=ReplacedFiles(**changes["replaced"]) if changes.get("replaced") else None,
            )

    def load(self, source: Path, *, on_invalid: OnInvalid = OnInvalid.REFUSE, **changes: Any) -> dict[str, Any]:
        operation_id = self.new_operation()
        try:
            self.validate(operation_id, source, **changes)
            written = self.write(operation_id, **changes)
            mode, removed = changes.get("mode"), written.get("removed", {})
            others = {"mode": mode, "removed": removed, **{name: written.get(name) for name in ("evolution", REPLACED)}}
            return self.register(operation_id, written["staging"], on_invalid=on_invalid, **others)
        except Exception:
            self.catalog.operations.fail(operation_id, "TEST", "the load failed")
            raise


@pytest.fixture
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "warehouse"
    monkeypatch.setenv("CALVE_WAREHOUSE", str(path))
    return path


@pytest.fixture
def catalog(catalog_url: str, warehouse: Path) -> Iterator[Catalog]:
    with Catalog.open(catalog_url) as opened:
        yield opened


@pytest.fixture
def make_loader(spark: SparkSession, catalog: Catalog) -> Callable[..., Loader]:
    def make(table: str = "shop.orders", keys: Mapping[str, str] | None = None) -> Loader:
        return Loader(spark, catalog, table, keys or {"country": "string", "day": "int"})

    return make


@pytest.fixture
def migrator(spark: SparkSession, catalog: Catalog) -> Migrator:
    from tests.support.migrating import Migrator

    return Migrator(spark, catalog)


@pytest.fixture(scope="session")
def iceberg_spark(spark: SparkSession) -> SparkSession:
    """The session with Iceberg's runtime from Maven Central; fails if it cannot be downloaded."""
    jars = str(spark.conf.get("spark.jars", ""))
    assert "iceberg-spark-runtime" in jars, "Iceberg's runtime could not be fetched from Maven Central"
    return spark


@pytest.fixture
def engine(iceberg_spark: SparkSession, catalog_url: str) -> SparkSession:
    """Spark as another engine, on the catalog's database."""
    from tests.support.spark_engine import engine_session

    return engine_session(iceberg_spark, catalog_url)


@pytest.fixture
def start(iceberg_spark: SparkSession) -> Callable[[Catalog], SparkEngine]:
    """Starts the engine of a session of statements, with the Spark of the tests."""
    from spark_jobs.sessions.session import configure
    from spark_jobs.statement_engine import SparkEngine

    # Before tests change its settings.
    spark = configure(iceberg_spark)
    return lambda opened: SparkEngine(opened, spark)


@pytest.fixture
def session(start: Callable[[Catalog], SparkEngine], catalog: Catalog) -> Iterator[Session]:
    """A session of statements in the new database `shop`."""
    catalog.create_database("shop")
    with Session(catalog, database="shop", start=start) as opened:
        yield opened


@pytest.fixture
def names_of_earlier_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns of Hive-style tables with files get other names, as in earlier versions, whose tables are still read."""
    monkeypatch.setattr("catalog.tables.altering.refuse_other_names", lambda *_: None)


@pytest.fixture(scope="session")
def avro_package(spark: SparkSession) -> None:
    """Spark's reader of Avro, from Maven Central."""
    spark.sql("ADD JAR ivy://org.apache.spark:spark-avro_2.13:4.1.1?transitive=false")


@pytest.fixture(scope="session")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with its Iceberg extension, from wheels."""
    from tests.support.published import duckdb_reader

    connection = duckdb_reader()
    yield connection
    connection.close()
