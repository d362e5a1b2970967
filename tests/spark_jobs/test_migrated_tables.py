"""Migrated tables of Spark with Hive support, read by three independent readers."""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import fastavro
import pyarrow
import pytest
from pyiceberg.expressions import AlwaysTrue, EqualTo, GreaterThan, IsNull
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile
from pyiceberg.manifest import FileFormat as IcebergFormat
from pyiceberg.table import StaticTable, Table
from pyiceberg.table.name_mapping import MappedField
from pyiceberg.types import DateType, IcebergType, ListType, MapType, StructType, TimestamptzType

from catalog import Catalog, FileFormat, NewPartition
from catalog.model.partition_names import NULL_VALUE
from tests.support import hive_lake
from tests.support.iceberg_tables import sql_catalog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.support.migrating import Migrator

REPOSITORY = Path(__file__).parent.parent.parent

ALL_TYPES = {
    **{"b": "boolean", "t": "tinyint", "s": "smallint", "i": "int", "l": "bigint", "f": "float", "d": "double"},
    **{"d9": "decimal(9,2)", "d18": "decimal(18,4)", "d38": "decimal(38,10)"},
    **{"st": "string", "ch": "char(5)", "vc": "varchar(8)", "bi": "binary", "da": "date", "ts": "timestamp"},
    **{"ar": "array<int>", "ma": "map<string,bigint>", "sr": "struct<a:int,b:array<string>,c:struct<d:date>>"},
}
EVOLVED = {
    **{"id": "bigint", "note": "string", "n": "bigint", "f": "double", "d": "decimal(18,2)"},
    **{"st": "struct<a:int,b:string>", "ar": "array<struct<a:int,b:string>>"},
    **{"ma": "map<string,struct<a:int,b:string>>", "added": "date"},
}
TWO_KEYS = {"flag": "boolean", "rate": "decimal(5,2)"}
THREE_KEYS = {"country": "string", "at": "timestamp", "day": "date"}
FORMATS = (FileFormat.PARQUET, FileFormat.ORC, FileFormat.AVRO)
ORC_TYPES = ALL_TYPES | {"ch": "varchar(5)"}
"""A char in an ORC file is refused."""


@dataclass(frozen=True)
class Case:
    """A table as Hive has it.

    Attributes:
        is_nested: Whether the folders of the table or its partitions have subfolders.
    """

    format: FileFormat
    columns: Mapping[str, str]
    keys: Mapping[str, str]
    is_nested: bool = False

    @property
    def request(self) -> dict[str, Any]:
        """The request of the migration."""
        return {
            "timestamps": "with zone" if self.format is FileFormat.AVRO else None,
            "recursive_directory": "true" if self.is_nested else "fail",
        }


CASES = {
    f"{name}_{each}": Case(each, ORC_TYPES if (name, each) == ("all", FileFormat.ORC) else columns, keys, is_nested)
    for name, columns, keys, is_nested in (
        ("all", ALL_TYPES, {"k": "string"}, False),
        ("flat", EVOLVED, {}, True),
        ("two", EVOLVED, TWO_KEYS, True),
        ("three", {"id": "bigint", "amount": "double"}, THREE_KEYS, False),
        ("capitals", {"id": "bigint", "note": "string", "part": "struct<name:string>"}, {}, False),
    )
    for each in FORMATS
} | {"mixed": Case(FileFormat.ORC, {"id": "bigint", "name": "string"}, {"n": "int"})}
MIXED_FORMATS = (FileFormat.PARQUET, None, FileFormat.AVRO)


@pytest.fixture(scope="session")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of tables that Hive wrote in another process, with the rows that Hive reads."""
    folder = tmp_path_factory.mktemp("lake")
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    program = Path(hive_lake.__file__)
    done = subprocess.run(
        [sys.executable, program, folder], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def register(catalog: Catalog, lake: Path, name: str) -> str:
    """Add a table of the lake to the catalog; return its name."""
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
    """Return a value in a common form of all readers: maps as sorted pairs, timestamps in UTC."""
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
            # DuckDB, and strings, do not keep the sign.
            return 0.0
        case bytes() | bytearray() | memoryview():
            return bytes(value)
        case str() if is_char:
            return value.rstrip(" ")
        case str() if value == NULL_VALUE:
            # Hive's reader in Spark returns null keys like this.
            return None
    return value


def texts(rows: Iterable[Mapping[str, Any]], case: Case) -> list[str]:
    """Return rows as a comparable multiset."""
    names = [*case.columns, *case.keys]
    chars = {name for name, text in case.columns.items() if text.startswith("char")}
    return sorted(repr([plain(row[name], is_char=name in chars) for name in names]) for row in rows)


def rows_of(table: pyarrow.Table, case: Case) -> list[str]:
    """Return the rows of an Arrow table."""
    return texts(table.to_pylist(), case)


def hive_rows(lake: Path, name: str) -> list[dict[str, Any]]:
    """Return the rows that Hive reads."""
    with pyarrow.memory_map(str(lake / f"{name}.arrow")) as file:
        rows = pyarrow.ipc.open_file(file).read_all().to_pylist()
    return [{column: plain(value) for column, value in row.items()} for row in rows]


def pyiceberg_rows(table: Table) -> list[dict[str, Any]]:
    """Return the rows of the files that PyIceberg plans to read; fastavro reads those of Avro for it."""
    tasks = list(table.scan().plan_files())
    others = [each for each in tasks if each.file.file_format is not IcebergFormat.AVRO]
    rows: list[dict[str, Any]] = []
    if others:
        rows = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()).to_table(others).to_pylist()
    for each in tasks:
        if each.file.file_format is IcebergFormat.AVRO:
            found = list(avro_rows(table, each.file))
            assert len(found) == each.file.record_count
            rows += found
    return rows


def avro_rows(table: Table, file: DataFile) -> Iterator[dict[str, Any]]:
    """Yield the rows of an Avro file with the table's columns, by the rules of the specification."""
    mapping = table.name_mapping()
    assert mapping is not None
    names = [each.name for each in table.spec().fields]
    keys = {name: key_value(table.schema().find_type(name), file.partition[at]) for at, name in enumerate(names)}
    with Path(file.file_path).open("rb") as content:
        for record in fastavro.reader(content):
            yield by_mapping(record, table.schema().as_struct(), mapping.root) | keys


def by_mapping(value: Any, kind: IcebergType, mapping: Sequence[MappedField]) -> Any:
    """Return a value of a file with the table's field names, by the name mapping."""
    fields = {each.field_id: each for each in mapping}
    match kind:
        case _ if value is None:
            return None
        case StructType():
            parts = {}
            for each in kind.fields:
                entry = fields[each.field_id]
                found = next((value[name] for name in entry.names if name in value), None)
                parts[each.name] = by_mapping(found, each.field_type, entry.fields)
            return parts
        case ListType():
            return [by_mapping(each, kind.element_type, fields[kind.element_id].fields) for each in value]
        case MapType():
            inside = fields[kind.value_id].fields
            return [(key, by_mapping(each, kind.value_type, inside)) for key, each in value.items()]
    return value


def key_value(kind: IcebergType, value: Any) -> Any:
    """Return a partition's value as readers show it."""
    match kind:
        case DateType() if value is not None:
            return datetime.date(1970, 1, 1) + datetime.timedelta(days=value)
        case TimestamptzType() if value is not None:
            return datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=value)
    return value


def duckdb_rows(duck: duckdb.DuckDBPyConnection, location: str, case: Case) -> list[str]:
    """Return the rows that DuckDB reads of a table of Parquet files."""
    names = ", ".join(f'"{name}"' for name in (*case.columns, *case.keys))
    return texts(duck.execute(f"SELECT {names} FROM iceberg_scan('{location}')").to_arrow_table().to_pylist(), case)


def planned_files(table: Table, **scan: Any) -> int:
    return sum(1 for _ in table.scan(**scan).plan_files())


def duckdb_files_and_ids(duck: duckdb.DuckDBPyConnection, location: str, condition: str) -> tuple[int, list[int]]:
    """Return the number of files that DuckDB reads for a condition, and the ids that it finds."""
    query = f"SELECT id FROM iceberg_scan('{location}') WHERE {condition} ORDER BY id"
    ((_, plan),) = duck.execute(f"EXPLAIN ANALYZE {query}").fetchall()
    found = re.search(r"Total Files Read: (\d+)", plan)
    assert found is not None, plan
    return int(found[1]), [id for (id,) in duck.execute(query).fetchall()]


def files_read_by_spark(rows: DataFrame) -> int:
    """Return the number of data files that Spark planned to read, after an action."""
    leaf = rows._jdf.queryExecution().executedPlan().collectLeaves().head()
    return int(leaf.metrics().get("resultDataFiles").get().value())


@pytest.fixture
def catalog_url(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """On one database, because the readers use it only for the pointer."""
    monkeypatch.setenv("CALVE_CATALOG_URL", postgres_url)
    return postgres_url


@pytest.mark.long
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
    from spark_jobs.reading.iceberg import read_metadata_file

    case = CASES[name]
    full_name = register(catalog, lake, name)
    hive = hive_rows(lake, name)
    expected = texts(hive, case)
    report = migrator.migrate(full_name, **case.request)
    location = str(report["metadata_location"])
    assert report["rows"] == len(expected)

    assert rows_of(read_metadata_file(iceberg_spark, location).toArrow(), case) == expected
    with sql_catalog(catalog_url) as iceberg:
        table = iceberg.load_table(full_name)
        assert table.metadata_location == location
        assert texts(pyiceberg_rows(table), case) == expected
    if case.format is FileFormat.PARQUET:
        # DuckDB 1.5 refuses lists of structs of which files have fewer fields, when Hive wrote them ("bag not found").
        read = replace(case, columns={name: text for name, text in case.columns.items() if "array<struct" not in text})
        assert duckdb_rows(duck, location, read) == texts(hive, read)


FILTERS = (
    (EqualTo("country", "n l"), "country = 'n l'", lambda row: row["country"] == "n l"),
    (EqualTo("day", "1582-10-15"), "day = DATE '1582-10-15'", lambda row: row["day"] == datetime.date(1582, 10, 15)),
    (IsNull("country"), "country IS NULL", lambda row: row["country"] is None),
    # Without partition keys, files are pruned by bounds.
    (GreaterThan("id", 115), "id > 115", lambda row: row["id"] > 115),
)


@pytest.mark.long
@pytest.mark.parametrize("name", ["three_parquet", "three_orc"])
def test_filters_leave_files_out_and_no_rows(
    name: str,
    lake: Path,
    catalog: Catalog,
    migrator: Migrator,
    iceberg_spark: SparkSession,
    duck: duckdb.DuckDBPyConnection,
) -> None:
    from spark_jobs.reading.iceberg import read_metadata_file

    location = str(migrator.migrate(register(catalog, lake, name), verify=False)["metadata_location"])
    table, rows = StaticTable.from_metadata(location), read_metadata_file(iceberg_spark, location)
    expected = hive_rows(lake, name)
    every = planned_files(table)
    for condition, text, is_wanted in FILTERS:
        ids = sorted(row["id"] for row in expected if is_wanted(row))
        assert ids
        planned = planned_files(table, row_filter=condition)
        assert planned < every / 2, text
        assert sorted(table.scan(row_filter=condition).to_arrow().column("id").to_pylist()) == ids
        found = rows.where(text).select("id")
        assert sorted(row.id for row in found.collect()) == ids
        assert files_read_by_spark(found) == planned, text
        if name == "three_parquet":
            assert duckdb_files_and_ids(duck, location, text) == (planned, ids), text
