"""Rows that the validation of a load keeps for the step that writes them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog import Catalog, Column
from catalog.errors import SourceFileError
from catalog.files.filesystem import FileInfo
from catalog.schemes.hashing import HashScheme
from catalog.settings.table_config import configured_load
from catalog.statements.loads import TableLoads
from spark_jobs import write_partitions
from spark_jobs.reading.tables import read_table
from spark_jobs.sessions import kept_rows
from spark_jobs.statement_engine import SparkEngine
from tests.support.killing import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark]

TABLE = "shop.orders"
TYPES = {"id": "bigint", "amount": "double"}
KEYS = {"day": "int"}
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

    def load(columns: Mapping[str, str] = TYPES, keys: Mapping[str, str] = KEYS, **settings: Any) -> None:
        entry = {"source": str(source), "keys": dict(keys), "columns": dict(columns), **settings}
        config = configured_load({"table": TABLE}, entry)
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


def shuffle_files(spark: SparkSession) -> set[str]:
    """Return the names of the files that Spark has shuffled rows to."""
    disk = spark._jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager()  # type: ignore[union-attr]
    files = disk.getAllFiles()
    return {name for number in range(files.size()) if (name := files.apply(number).getName()).startswith("shuffle_")}


@pytest.mark.long
@pytest.mark.usefixtures("change_before_write")
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="default"),
        pytest.param({"bad_files": "skip"}, id="skip"),
        pytest.param({"format": "orc"}, id="orc"),
        pytest.param({"format": "iceberg"}, id="iceberg"),
        pytest.param({"mode": "merge", "merge": {"keys": ["id"], "order": "amount"}}, id="merge"),
        pytest.param({"contract": {"types": "discard_value"}}, id="discards"),
    ],
)
def test_files_are_parsed_once(spark: SparkSession, catalog: Catalog, load: Load, settings: dict[str, Any]) -> None:
    load(**settings)
    assert amounts(spark, catalog) == [10.0, 20.0]
    assert not kept_rows._kept


@pytest.mark.long
@pytest.mark.usefixtures("change_before_write")
def test_files_of_a_table_with_a_partition_scheme_are_parsed_once(
    spark: SparkSession, catalog: Catalog, load: Load
) -> None:
    columns = [Column("id", "bigint"), Column("amount", "double"), Column("day", "int")]
    catalog.create_database("shop")
    catalog.create_table(TABLE, columns=columns, scheme=HashScheme("id", "bigint", count=3))
    load({}, {}, mode="append")
    assert amounts(spark, catalog) == [10.0, 20.0]


def test_files_of_the_shuffle_are_deleted_with_the_rows(spark: SparkSession) -> None:
    before, shared = shuffle_files(spark), kept_rows.share(spark.newSession())
    with kept_rows.keeping("load/1") as kept:
        kept.keep(shared.range(100), [FileInfo("a.csv", 1, 1)], ["id"])
    # Those of other shuffles are deleted when the JVM collects garbage.
    own = shuffle_files(spark) - before
    assert own
    with kept_rows.dropping():
        assert shuffle_files(spark) >= own
    wait_until(lambda: not shuffle_files(spark) & own, "Spark has deleted the files of the shuffle")


@pytest.mark.long
@pytest.mark.usefixtures("change_before_write")
def test_small_files_are_parsed_twice(
    spark: SparkSession, catalog: Catalog, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_rows, "LEAST_BYTES", 1 << 20)
    load()
    assert amounts(spark, catalog) == [20.0, 99.0]


@pytest.mark.long
@pytest.mark.usefixtures("change_before_write")
def test_files_that_are_read_with_other_types_are_parsed_again(
    spark: SparkSession, catalog: Catalog, load: Load
) -> None:
    load({"id": "bigint"})
    assert amounts(spark, catalog) == [20.0, 99.0]
    assert not kept_rows._kept


@pytest.mark.long
def test_another_load_of_the_same_file_gets_its_new_rows(
    spark: SparkSession, catalog: Catalog, load: Load, source: Path
) -> None:
    load()
    write(source, 30.0)
    load(mode="replace")
    assert amounts(spark, catalog) == [20.0, 30.0]


@pytest.mark.long
def test_a_load_that_is_refused_keeps_nothing(spark: SparkSession, catalog: Catalog, load: Load, source: Path) -> None:
    write(source, "many")
    with pytest.raises(SourceFileError, match="many"):
        load()
    assert not kept_rows._kept
    write(source, 30.0)
    load()
    assert amounts(spark, catalog) == [20.0, 30.0]


def test_a_step_that_fails_keeps_nothing(spark: SparkSession, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: Any) -> None:
        raise SourceFileError("no space left")

    monkeypatch.setattr(write_partitions, "_write_rows", fail)
    with pytest.raises(SourceFileError, match="no space left"):
        load()
    assert not kept_rows._kept


def test_rows_are_kept_for_the_next_step_of_one_operation(spark: SparkSession) -> None:
    files = [FileInfo("a.csv", 1, 1)]

    def keep(operation_id: str, rows: DataFrame) -> list[int]:
        with kept_rows.keeping(operation_id) as kept:
            return sorted(row.id for row in kept.keep(rows, files, ["id"]).collect())

    def found(operation_id: str, rows: DataFrame) -> list[int] | None:
        frame = kept_rows.kept_for(operation_id).find(rows)
        return None if frame is None else sorted(row.id for row in frame.collect())

    shared = kept_rows.share(spark.newSession())
    assert keep("load/1", spark.newSession().range(2)) == [0, 1]
    assert not kept_rows.kept_for("load/1"), "nobody said that another step follows in the session"
    assert keep("load/1", shared.range(3)) == [0, 1, 2]
    assert kept_rows.kept_for("load/1")
    assert found("load/1", spark.newSession().range(3)) == [0, 1, 2]
    assert found("load/1", spark.range(4)) is None
    assert found("load/2", spark.range(3)) is None
    assert not kept_rows.kept_for("load/2")
    kept_rows.drop_others("load/1")
    assert kept_rows.kept_for("load/1")
    keep("load/2", shared.range(4))
    assert not kept_rows.kept_for("load/1")
    kept_rows.drop_others("load/3")
    assert not kept_rows.kept_for("load/2")
