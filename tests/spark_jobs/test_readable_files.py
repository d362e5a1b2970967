"""Columns of data files that Iceberg's readers scan and filter as Hive's do, and that the stage step accepts."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import fastavro
import pyarrow
import pyarrow.orc
import pyarrow.parquet
import pyorc
import pytest
from pyiceberg.expressions import EqualTo, IsNaN, IsNull, LessThan
from pyiceberg.expressions.visitors import _StrictMetricsEvaluator
from pyiceberg.table import StaticTable
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from catalog.model import FileFormat
from tests.support.iceberg_files import layout, write_metadata

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession

NAN = float("nan")
MOMENT = datetime.datetime(2024, 2, 29, 12, 34, 56, 789012)
NUMBERS, TEXTS = [1, 100, None], ["abc", "abcdef", None]
DECIMALS = [Decimal("1.25"), Decimal("-3.50"), None]


class Case(NamedTuple):
    """A file with a column, and the column's type in the table.

    Attributes:
        write: Writes rows of `id`, from 0, and the values.
        condition: A condition in SQL that only the first value meets.
    """

    format: FileFormat
    write: Callable[[Path, Sequence[Any]], None]
    type: IcebergType
    values: Sequence[Any]
    condition: str | None = None


def _parquet(kind: pyarrow.DataType, **options: Any) -> tuple[FileFormat, Callable[[Path, Sequence[Any]], None]]:
    def write(path: Path, values: Sequence[Any]) -> None:
        rows = {"id": pyarrow.array(range(len(values))), "c": pyarrow.array(values, kind)}
        pyarrow.parquet.write_table(pyarrow.table(rows), path, **options)

    return FileFormat.PARQUET, write


def _orc(type_text: str) -> tuple[FileFormat, Callable[[Path, Sequence[Any]], None]]:
    def write(path: Path, values: Sequence[Any]) -> None:
        with path.open("wb") as file, pyorc.Writer(file, f"struct<id:bigint,c:{type_text}>") as writer:
            writer.writerows(enumerate(values))

    return FileFormat.ORC, write


def _unnamed_orc(path: Path, values: Sequence[Any]) -> None:
    with path.open("wb") as file, pyorc.Writer(file, "struct<_col0:bigint,_col1:string,_col2:int>") as writer:
        writer.writerows((number, value, 7) for number, value in enumerate(values))


def _avro(declared: Any) -> tuple[FileFormat, Callable[[Path, Sequence[Any]], None]]:
    def write(path: Path, values: Sequence[Any]) -> None:
        fields = [{"name": "id", "type": "long"}, {"name": "c", "type": ["null", declared]}]
        schema = {"type": "record", "name": "row", "fields": fields}
        with path.open("wb") as file:
            fastavro.writer(file, schema, [{"id": number, "c": value} for number, value in enumerate(values)])

    return FileFormat.AVRO, write


_DECIMAL_IN_BYTES = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
_DECIMAL_IN_FIXED = {"type": "fixed", "name": "f", "size": 8, "logicalType": "decimal", "precision": 9, "scale": 2}
MICROSECONDS = pyarrow.timestamp("us")
CASES = {
    **{
        f"parquet {kind} as {wide}": Case(*_parquet(kind), wide, NUMBERS, "c = 1")
        for kind in (pyarrow.int8(), pyarrow.int16(), pyarrow.int32())
        for wide in (IntegerType(), LongType())
    },
    "parquet float as double": Case(*_parquet(pyarrow.float32()), DoubleType(), [1.5, NAN, None], "c = 1.5"),
    "parquet float": Case(*_parquet(pyarrow.float32()), FloatType(), [1.5, NAN, None], "c = 1.5"),
    "parquet zeros": Case(*_parquet(pyarrow.float64()), DoubleType(), [0.0, 1.0, NAN], "c = 0.0"),
    **{
        f"parquet decimal({digits},2){' in numbers' * is_number} as decimal({wide},2)": Case(
            *_parquet(pyarrow.decimal128(digits, 2), store_decimal_as_integer=is_number),
            DecimalType(wide, 2),
            DECIMALS,
            "c = 1.25",
        )
        for digits, is_number in ((9, True), (18, True), (9, False), (18, False), (20, False))
        for wide in (digits, 38)
    },
    "parquet string": Case(*_parquet(pyarrow.string()), StringType(), TEXTS, "c = 'abc'"),
    "parquet large string": Case(*_parquet(pyarrow.large_string()), StringType(), TEXTS, "c = 'abc'"),
    "parquet binary": Case(*_parquet(pyarrow.binary()), BinaryType(), [b"abc", b"", None]),
    "parquet date": Case(*_parquet(pyarrow.date32()), DateType(), [MOMENT.date(), None], "c = DATE '2024-02-29'"),
    "parquet boolean": Case(*_parquet(pyarrow.bool_()), BooleanType(), [True, False, None], "c"),
    "parquet boolean in runs": Case(
        *_parquet(pyarrow.bool_(), data_page_version="2.0"), BooleanType(), [True, False, None], "c"
    ),
    "parquet timestamp": Case(
        *_parquet(MICROSECONDS), TimestampType(), [MOMENT, None], "c = TIMESTAMP '2024-02-29 12:34:56.789012'"
    ),
    "parquet instant": Case(*_parquet(pyarrow.timestamp("us", "UTC")), TimestamptzType(), [MOMENT, None]),
    "parquet 96 bits": Case(
        *_parquet(MICROSECONDS, use_deprecated_int96_timestamps=True), TimestamptzType(), [MOMENT, None]
    ),
    "orc tinyint": Case(*_orc("tinyint"), IntegerType(), NUMBERS, "c = 1"),
    "orc smallint": Case(*_orc("smallint"), IntegerType(), NUMBERS, "c = 1"),
    "orc int as long": Case(*_orc("int"), LongType(), NUMBERS, "c = 1"),
    "orc float as double": Case(*_orc("float"), DoubleType(), [1.5, NAN, None], "c = 1.5"),
    "orc string": Case(*_orc("string"), StringType(), TEXTS, "c = 'abc'"),
    "orc varchar": Case(*_orc("varchar(6)"), StringType(), TEXTS, "c = 'abc'"),
    "orc binary": Case(*_orc("binary"), BinaryType(), [b"abc", b"", None]),
    "orc decimal": Case(*_orc("decimal(9,2)"), DecimalType(38, 2), DECIMALS, "c = 1.25"),
    "orc date": Case(*_orc("date"), DateType(), [MOMENT.date(), None], "c = DATE '2024-02-29'"),
    "orc without names": Case(FileFormat.ORC, _unnamed_orc, StringType(), TEXTS, "c = 'abc'"),
    "avro int as long": Case(*_avro("int"), LongType(), NUMBERS, "c = 1"),
    "avro float as double": Case(*_avro("float"), DoubleType(), [1.5, NAN, None], "c = 1.5"),
    "avro string": Case(*_avro("string"), StringType(), TEXTS, "c = 'abc'"),
    "avro enum": Case(
        *_avro({"type": "enum", "name": "e", "symbols": ["abc", "abcdef"]}), StringType(), TEXTS, "c = 'abc'"
    ),
    "avro bytes": Case(*_avro("bytes"), BinaryType(), [b"abc", b"", None]),
    "avro fixed": Case(*_avro({"type": "fixed", "name": "f", "size": 3}), BinaryType(), [b"abc", None]),
    "avro decimal in bytes": Case(*_avro(_DECIMAL_IN_BYTES), DecimalType(18, 2), DECIMALS, "c = 1.25"),
    "avro decimal in fixed": Case(*_avro(_DECIMAL_IN_FIXED), DecimalType(18, 2), DECIMALS, "c = 1.25"),
    "avro date": Case(
        *_avro({"type": "int", "logicalType": "date"}), DateType(), [MOMENT.date(), None], "c = DATE '2024-02-29'"
    ),
}


def metadata_of(case: Case, folder: Path) -> str:
    """Write a file and the metadata of an Iceberg table over it; return its location."""
    path = folder / f"f.{case.format}"
    case.write(path, case.values)
    return write_metadata(layout({"id": LongType(), "c": case.type}), case.format, [path], folder)


def rows_by_id(rows: Iterable[Sequence[Any]]) -> list[str]:
    """Return comparable rows: NaN equals NaN, and timestamps are in UTC."""
    plain = (
        (number, value.replace(tzinfo=None) if isinstance(value, datetime.datetime) else value)
        for number, value in sorted(rows, key=lambda row: row[0])
    )
    return [repr(row) for row in plain]


@pytest.mark.parametrize("name", CASES)
def test_readers_find_what_the_file_has(
    name: str,
    iceberg_spark: SparkSession,
    avro_package: None,
    duck: duckdb.DuckDBPyConnection,
    tmp_path: Path,
) -> None:
    case = CASES[name]
    location = metadata_of(case, tmp_path)
    rows = iceberg_spark.read.format("iceberg").load(location)
    everything = rows_by_id((number, value) for number, value in enumerate(case.values))
    first, nulls = everything[:1], [row for row in everything if row.endswith(" None)")]
    nans = [row for row in everything if row.endswith(" nan)")]
    assert rows_by_id(map(tuple, rows.collect())) == everything
    assert rows_by_id(map(tuple, rows.where("c IS NULL").collect())) == nulls
    if case.condition:
        assert rows_by_id(map(tuple, rows.where(case.condition).collect())) == first
    if case.format is FileFormat.AVRO:
        return
    table = StaticTable.from_metadata(location)

    def scanned(**options: Any) -> list[str]:
        return rows_by_id(tuple(row.values()) for row in table.scan(**options).to_arrow().to_pylist())

    assert scanned() == everything
    assert scanned(row_filter=IsNull("c")) == nulls
    if case.condition:
        assert scanned(row_filter=EqualTo("c", case.values[0])) == first
    if nans:
        assert rows_by_id(map(tuple, rows.where("isnan(c)").collect())) == nans
        assert scanned(row_filter=IsNaN("c")) == nans
    # DuckDB needs another package to return instants.
    if case.format is FileFormat.PARQUET and not isinstance(case.type, TimestamptzType):
        query = f"SELECT id, c FROM iceberg_scan('{location}')"
        assert rows_by_id(duck.execute(query).fetchall()) == everything
        assert rows_by_id(duck.execute(f"{query} WHERE c IS NULL").fetchall()) == nulls
        if case.condition:
            assert rows_by_id(duck.execute(f"{query} WHERE {case.condition}").fetchall()) == first


@pytest.mark.parametrize("values", [[0.0, -0.0], [-0.0, 0.0], [0.0, 1.0], [-0.0, -1.0]])
def test_zeros_in_orc_files_are_filtered_as_in_hive(
    values: list[float], iceberg_spark: SparkSession, tmp_path: Path
) -> None:
    """ORC's statistics order -0.0 before 0.0, so that its readers skip zeros of the other sign, in Hive tables, too."""
    location = metadata_of(Case(*_orc("double"), DoubleType(), values), tmp_path)
    hive = iceberg_spark.read.schema("id bigint, c double").orc(str(tmp_path / "f.orc"))
    iceberg = iceberg_spark.read.format("iceberg").load(location)
    for condition in ("c = 0.0D", "c = CAST('-0.0' AS DOUBLE)", "c >= 0.0D", "c <= CAST('-0.0' AS DOUBLE)"):
        expected = rows_by_id(map(tuple, hive.where(condition).collect()))
        assert rows_by_id(map(tuple, iceberg.where(condition).collect())) == expected, condition
    # The bounds in manifests include all values.
    table = StaticTable.from_metadata(location)
    for zero in (0.0, -0.0):
        assert len(list(table.scan(row_filter=EqualTo("c", zero)).plan_files())) == 1


def test_nulls_inside_of_null_structs_in_orc_files_are_filtered_as_in_hive(
    iceberg_spark: SparkSession, tmp_path: Path
) -> None:
    """ORC's statistics of a field do not count the nulls of its struct, so that readers skip them, of Hive tables, too.

    Metrics in manifests count them, and readers of these find the file.
    """
    rows = "(0L, named_struct('a', 1)), (1L, CAST(null AS struct<a:int>))"
    iceberg_spark.sql(f"SELECT * FROM VALUES {rows} AS t (id, s)").coalesce(1).write.orc(str(tmp_path / "hive"))
    (path,) = (tmp_path / "hive").glob("part-*.orc")
    kind = StructType(NestedField(3, "a", IntegerType(), required=False))
    location = write_metadata(layout({"id": LongType(), "s": kind}), FileFormat.ORC, [path], tmp_path)
    hive = iceberg_spark.read.schema("id bigint, s struct<a:int>").orc(str(path))
    iceberg = iceberg_spark.read.format("iceberg").load(location)
    for condition, count in (("s.a IS NULL", 0), ("s.a = 1", 1), ("s IS NULL", 1)):
        assert (hive.where(condition).count(), iceberg.where(condition).count()) == (count, count), condition
    table = StaticTable.from_metadata(location)
    assert len(list(table.scan(row_filter=IsNull("s.a")).plan_files())) == 1


@pytest.mark.parametrize(
    ("stored", "kind", "hive_count"),
    [
        (pyarrow.float32(), FloatType(), 2),
        (pyarrow.float64(), DoubleType(), 2),
        # Spark does not push filters down to files of another type; Iceberg does.
        (pyarrow.float32(), DoubleType(), 3),
    ],
)
def test_zeros_in_dictionaries_are_filtered_as_in_hive_but_for_promoted_floats(
    stored: pyarrow.DataType, kind: IcebergType, hive_count: int, iceberg_spark: SparkSession, tmp_path: Path
) -> None:
    """Spark, with Iceberg or without, leaves a row group out whose dictionary has only the zero of the other sign.

    No property or bound prevents it; PyIceberg finds all zeros.
    """
    values = [0.0, -0.0, 0.0, 1.5]
    location = metadata_of(Case(*_parquet(stored, row_group_size=1), kind, values), tmp_path)
    hive = iceberg_spark.read.schema(f"id bigint, c {kind}").parquet(str(tmp_path / "f.parquet"))
    iceberg = iceberg_spark.read.format("iceberg").load(location)
    assert iceberg.count() == hive.count() == len(values)
    assert (hive.where("c = 0").count(), iceberg.where("c = 0").count()) == (hive_count, 2)
    assert StaticTable.from_metadata(location).scan(row_filter=EqualTo("c", 0.0)).to_arrow().num_rows == 3


@pytest.mark.parametrize("file_format", [FileFormat.PARQUET, FileFormat.ORC])
def test_a_delete_by_metadata_leaves_rows_with_nan(file_format: FileFormat, tmp_path: Path) -> None:
    """Iceberg drops a whole file of which bounds say that all rows match; bounds leave NaNs out."""
    kinds = {FileFormat.PARQUET: _parquet(pyarrow.float64()), FileFormat.ORC: _orc("double")}
    location = metadata_of(Case(*kinds[file_format], DoubleType(), [1.5, NAN, -0.0, 0.0]), tmp_path)
    table = StaticTable.from_metadata(location)
    (task,) = table.scan().plan_files()
    for condition in (LessThan("c", 100.0), LessThan("c", 0.0)):
        assert not _StrictMetricsEvaluator(table.schema(), condition).eval(task.file)
