"""Rows that the validation of a load keeps for the step that writes them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog import Catalog
from catalog.errors import SourceFileError
from catalog.files.filesystem import FileInfo
from catalog.settings.table_config import configured_load
from catalog.statements.loads import TableLoads
from spark_jobs import write_partitions
from spark_jobs.reading.tables import read_table
from spark_jobs.sessions import kept_rows
from spark_jobs.statement_engine import SparkEngine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark]

TABLE = "shop.orders"
TYPES = {"id": "bigint", "amount": "double"}
Load = Callable[..., None]


@pytest.fixture(autouse=True)
def keep_rows_of_small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_rows, "LEAST_BYTES", 0)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "orders.csv", 10.0)


@pytest.fixture
def load(spark: SparkSession, catalog: Catalog, source: Path) -> Load:
    """A function that loads the source."""

    def load(columns: Mapping[str, str] = TYPES, **fields: Any) -> None:
        entry = {"table": TABLE, "source": str(source), "keys": ["day int"], **fields}
        config = configured_load(entry, {"columns": dict(columns)})
        loads = TableLoads(catalog, start=lambda opened: SparkEngine(opened, spark))
        assert len(list(loads.load(config, [str(source)]))) == 1

    return load


@pytest.fixture
def change_before_write(monkeypatch: pytest.MonkeyPatch, source: Path) -> None:
    """Change a value between the steps, so that nobody can see it by the file's size and time."""
    write_rows = write_partitions.write_partitions

    def changed(*arguments: Any) -> Any:
        time = source.stat().st_mtime_ns
        write(source, 99.0)
        os.utime(source, ns=(time, time))
        return write_rows(*arguments)

    monkeypatch.setattr(write_partitions, "write_partitions", changed)


def write(path: Path, amount: float | str) -> Path:
    path.write_text(f"id,amount,day\n1,{amount},1\n2,20.0,2\n")
    return path


def amounts(spark: SparkSession, catalog: Catalog) -> list[float]:
    return sorted(row.amount for row in read_table(spark, TABLE, catalog=catalog).collect())


def nothing_is_cached(spark: SparkSession) -> bool:
    return bool(spark._jsparkSession.sharedState().cacheManager().isEmpty())


@pytest.mark.usefixtures("change_before_write")
def test_files_are_parsed_once(spark: SparkSession, catalog: Catalog, load: Load) -> None:
    load()
    assert amounts(spark, catalog) == [10.0, 20.0]
    assert nothing_is_cached(spark)


@pytest.mark.usefixtures("change_before_write")
def test_small_files_are_parsed_twice(
    spark: SparkSession, catalog: Catalog, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_rows, "LEAST_BYTES", 1 << 20)
    load()
    assert amounts(spark, catalog) == [20.0, 99.0]


@pytest.mark.usefixtures("change_before_write")
def test_files_that_are_read_with_other_types_are_parsed_again(
    spark: SparkSession, catalog: Catalog, load: Load
) -> None:
    load({"id": "bigint"})
    assert amounts(spark, catalog) == [20.0, 99.0]
    assert nothing_is_cached(spark)


def test_another_load_of_the_same_file_gets_its_new_rows(
    spark: SparkSession, catalog: Catalog, load: Load, source: Path
) -> None:
    load()
    write(source, 30.0)
    load(mode="replace")
    assert amounts(spark, catalog) == [20.0, 30.0]


def test_a_load_that_is_refused_keeps_nothing(spark: SparkSession, catalog: Catalog, load: Load, source: Path) -> None:
    write(source, "many")
    with pytest.raises(SourceFileError, match="many"):
        load()
    assert nothing_is_cached(spark)
    write(source, 30.0)
    load()
    assert amounts(spark, catalog) == [20.0, 30.0]


def test_a_step_that_fails_keeps_nothing(spark: SparkSession, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: Any) -> None:
        raise SourceFileError("no space left")

    monkeypatch.setattr(write_partitions, "_write_rows", fail)
    with pytest.raises(SourceFileError, match="no space left"):
        load()
    assert nothing_is_cached(spark)


def test_rows_are_kept_for_the_next_step_of_one_operation(spark: SparkSession) -> None:
    files = [FileInfo("a.csv", 1, 1)]

    def keep(operation_id: str, rows: DataFrame) -> None:
        with kept_rows.keeping(operation_id) as kept:
            kept.keep(rows, files)

    shared = kept_rows.share(spark.newSession())
    keep("load/1", spark.newSession().range(2))
    assert not kept_rows.is_kept_for("load/1"), "nobody said that another step follows in the session"
    keep("load/1", shared.range(3))
    assert kept_rows.is_kept_for("load/1")
    assert not kept_rows.is_kept_for("load/2")
    kept_rows.drop_others("load/1")
    assert not nothing_is_cached(spark)
    keep("load/2", shared.range(4))
    assert not kept_rows.is_kept_for("load/1")
    kept_rows.drop_others("load/3")
    assert nothing_is_cached(spark)
