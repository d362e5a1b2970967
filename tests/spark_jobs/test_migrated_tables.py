"""Tables that Hive-style Spark wrote, migrated, and read by three readers that share no code with ours."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow
import pytest
from pyiceberg.expressions import EqualTo, GreaterThan, IsNull
from pyiceberg.table import StaticTable, Table

from catalog import Catalog, FileFormat, NewPartition
from catalog.partition_names import NULL_VALUE
from tests.catalog.iceberg_tables import sql_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark_jobs.migrating import Migrator

REPOSITORY = Path(__file__).parent.parent.parent

ALL_TYPES = {
    **{"b": "boolean", "t": "tinyint", "s": "smallint", "i": "int", "l": "bigint", "f": "float", "d": "double"},
    **{"d9": "decimal(9,2)", "d18": "decimal(18,4)", "d38": "decimal(38,10)"},
    **{"st": "string", "ch": "char(5)", "vc": "varchar(8)", "bi": "binary", "da": "date", "ts": "timestamp"},
    **{"ar": "array<int>", "ma": "map<string,bigint>", "sr": "struct<a:int,b:array<string>,c:struct<d:date>>"},
}
FLAT = {"id": "bigint", "note": "string", "price": "decimal(9,2)", "tags": "array<string>"}
THREE_KEYS = {"country": "string", "year": "int", "day": "date"}


@dataclass(frozen=True)
class Case:
    """A table as Hive has it.

    Attributes:
        timestamps: What its timestamps are to become, where its format does not tell.
    """

    format: FileFormat
    columns: Mapping[str, str]
    keys: Mapping[str, str]
    timestamps: str | None = None


CASES = {
    "all_parquet": Case(FileFormat.PARQUET, ALL_TYPES, {"k": "string"}),
    "all_orc": Case(FileFormat.ORC, ALL_TYPES, {"k": "string"}),
    "all_avro": Case(FileFormat.AVRO, ALL_TYPES, {"k": "string"}, "with zone"),
    "flat_parquet": Case(FileFormat.PARQUET, FLAT, {}),
    "flat_orc": Case(FileFormat.ORC, FLAT, {}),
    "flat_avro": Case(FileFormat.AVRO, FLAT, {}),
    "keys_parquet": Case(FileFormat.PARQUET, {"id": "bigint", "amount": "double"}, THREE_KEYS),
    "keys_orc": Case(FileFormat.ORC, {"id": "bigint", "amount": "double"}, THREE_KEYS),
    "mixed": Case(FileFormat.ORC, {"id": "bigint", "name": "string"}, {"n": "int"}),
}
MIXED_FORMATS = (None, FileFormat.PARQUET, FileFormat.AVRO)


@pytest.fixture(scope="session")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of tables that Hive's own writers wrote in another process, with the rows that Hive reads back."""
    if ready := os.environ.get("HIVE_LAKE"):
        return Path(ready)
    folder = tmp_path_factory.mktemp("lake")
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    program = Path(__file__).parent / "hive_lake.py"
    done = subprocess.run(
        [sys.executable, program, folder], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def register(catalog: Catalog, lake: Path, name: str) -> str:
    """Bring a table of the lake into the catalog; return its name."""
    case = CASES[name]
    full_name = f"lake.{name}"
    catalog.create_database("lake")
    catalog.create_table(
        full_name,
        columns=list(case.columns.items()),
        partition_keys=list(case.keys.items()),
        format=case.format,
        location=str(lake / name),
    )
    found = json.loads((lake / "tables.json").read_text())[name]["partitions"]
    if found is not None:
        formats = MIXED_FORMATS if name == "mixed" else (None,) * len(found)
        catalog.add_partitions(
            full_name,
            [
                NewPartition(
                    [None if (text := each["values"][key]) == NULL_VALUE else text for key in case.keys],
                    each["location"],
                    format=own,
                )
                for each, own in zip(sorted(found, key=lambda each: each["location"]), formats, strict=True)
            ],
        )
    return full_name


def plain(value: Any, *, is_char: bool = False) -> Any:
    """Return a value as all readers can give it: maps as sorted pairs, instants and times without zone as UTC's."""
    match value:
        case datetime.datetime() if value.tzinfo is not None:
            return value.astimezone(datetime.UTC).replace(tzinfo=None)
        case dict():
            return {key: plain(each) for key, each in value.items()}
        case [(_, _), *_] if all(isinstance(each, tuple) for each in value):
            return sorted(plain(each) for each in value)
        case list():
            return [plain(each) for each in value]
        case float() if value == 0:
            # DuckDB, and the text of it, do not keep its sign.
            return 0.0
        case bytes() | bytearray() | memoryview():
            return bytes(value)
        case str() if is_char:
            return value.rstrip(" ")
        case str() if value == NULL_VALUE:
            return None
    return value


def rows_of(table: pyarrow.Table, case: Case) -> list[str]:
    """Return the rows of an Arrow table, in no order of their own."""
    names = [*case.columns, *case.keys]
    chars = {name for name, text in case.columns.items() if text.startswith("char")}
    found = table.select(names).to_pylist()
    return sorted(repr([plain(row[name], is_char=name in chars) for name in names]) for row in found)


def hive_rows(lake: Path, name: str) -> list[str]:
    """Return the rows that Hive reads."""
    if name == "mixed":
        texts = [repr([number + 100 * n, "x", n]) for n in range(3) for number in range(5)]
        return sorted(texts)
    with pyarrow.memory_map(str(lake / f"{name}.arrow")) as file:
        return rows_of(pyarrow.ipc.open_file(file).read_all(), CASES[name])


def planned_files(table: Table, **scan: Any) -> int:
    return sum(1 for _ in table.scan(**scan).plan_files())


@pytest.fixture
def catalog_url(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """On one database: the readers need it for nothing but the pointer."""
    monkeypatch.setenv("CALVE_CATALOG_URL", postgres_url)
    return postgres_url


@pytest.mark.parametrize("name", CASES)
def test_three_readers_read_what_hive_reads(
    name: str,
    lake: Path,
    catalog: Catalog,
    catalog_url: str,
    migrator: Migrator,
    iceberg_spark: SparkSession,
    avro_package: None,
    duck: duckdb.DuckDBPyConnection,
) -> None:
    from spark_jobs.iceberg_reading import read_metadata_file

    case = CASES[name]
    full_name = register(catalog, lake, name)
    expected = hive_rows(lake, name)
    report = migrator.migrate(full_name, timestamps=case.timestamps)
    location = str(report["metadata_location"])
    assert report["rows"] == len(expected)

    assert rows_of(read_metadata_file(iceberg_spark, location).toArrow(), case) == expected
    with sql_catalog(catalog_url) as iceberg:
        table = iceberg.load_table(full_name)
        assert table.metadata_location == location
        if name != "mixed" and case.format is not FileFormat.AVRO:
            assert rows_of(table.scan().to_arrow(), case) == expected
    if case.format is FileFormat.PARQUET:
        read = duck.execute(f"SELECT * FROM iceberg_scan('{location}')").to_arrow_table()
        assert rows_of(read, case) == expected


@pytest.mark.parametrize("name", ["keys_parquet", "keys_orc"])
def test_filters_leave_files_out_and_no_rows(
    name: str, lake: Path, catalog: Catalog, migrator: Migrator, iceberg_spark: SparkSession
) -> None:
    from pyspark.sql import functions as f

    from spark_jobs.iceberg_reading import read_metadata_file

    location = str(migrator.migrate(register(catalog, lake, name), verify=False)["metadata_location"])
    table, rows = StaticTable.from_metadata(location), read_metadata_file(iceberg_spark, location)
    with pyarrow.memory_map(str(lake / f"{name}.arrow")) as file:
        expected = pyarrow.ipc.open_file(file).read_all().to_pylist()
    every = planned_files(table)
    for condition, text, is_wanted in (
        (EqualTo("country", "n l"), "country = 'n l'", lambda row: row["country"] == "n l"),
        (EqualTo("year", 2021), "year = 2021", lambda row: row["year"] == 2021),
        (EqualTo("day", "2024-02-29"), "day = DATE '2024-02-29'", lambda row: row["day"] == datetime.date(2024, 2, 29)),
        (IsNull("country"), "country IS NULL", lambda row: row["country"] is None),
        # No partition key: the bounds of the files tell.
        (GreaterThan("id", 115), "id > 115", lambda row: row["id"] > 115),
    ):
        ids = sorted(row["id"] for row in expected if is_wanted(row))
        assert ids
        assert planned_files(table, row_filter=condition) < every / 2, text
        assert sorted(table.scan(row_filter=condition).to_arrow().column("id").to_pylist()) == ids
        assert rows.where(f.expr(text)).agg(f.sort_array(f.collect_list("id"))).head() == (ids,)
