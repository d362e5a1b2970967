"""Random tables with files of different writers: three readers return the expected rows for filters.

`make test-all` asks 300 tables, and has Hive write some of them.
"""

from __future__ import annotations

import datetime
import math
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import cached_property, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import fastavro
import pyarrow
import pyarrow.orc
import pyarrow.parquet
import pyorc
import pytest
from pyiceberg import types as t
from pyiceberg.expressions import BooleanExpression, EqualTo, GreaterThan, IsNaN, IsNull, NotNull
from pyiceberg.table import StaticTable

from catalog.iceberg.layout import Layout
from catalog.model import FileFormat
from tests.support import hive_files
from tests.support.effort import IS_THOROUGH, effort
from tests.support.iceberg_files import layout, write_metadata

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import SparkSession

TABLES = effort(4, 300)
TABLES_A_JOB = 25
REPOSITORY = Path(__file__).parent.parent.parent
NAN = float("nan")


class Kind(NamedTuple):
    """A type of columns.

    Attributes:
        hive: The type in Spark when it reads Hive's files.
        values: Makes a value that is not null.
    """

    type: t.IcebergType
    hive: str
    arrow: pyarrow.DataType
    orc: str
    avro: Any
    values: Callable[[random.Random], Any]


def _text(source: random.Random) -> str:
    letters = "ab \x7f\xe4\u65e5\U0001f600z"
    return "".join(source.choices(letters, k=source.choice((0, 1, 3, 16, 17, 24))))


def _date(source: random.Random) -> datetime.date:
    return datetime.date(1970, 1, 1) + datetime.timedelta(days=source.choice((0, -1, 19_000, -100_000, 200_000)))


def _moment(source: random.Random) -> datetime.datetime:
    return datetime.datetime(2024, 2, 29) + datetime.timedelta(microseconds=source.randrange(-(10**15), 10**15))


def _float(source: random.Random) -> float:
    return source.choice((0.0, -0.0, NAN, math.inf, -math.inf, 1.5, -2.25, 1024.0))


def _single(source: random.Random) -> float:
    # PyIceberg 0.12 takes an infinity for a number out of the range of a float, and finds no rows, in any table.
    return source.choice((0.0, -0.0, NAN, 1.5, -2.25, 1024.0))


def _decimal(source: random.Random) -> Decimal:
    return Decimal(source.choice((0, 1, -1, 128, -129, 10**8, source.randrange(-(10**9), 10**9)))).scaleb(-2)


_AVRO_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
INT = Kind(t.IntegerType(), "int", pyarrow.int32(), "int", "int", lambda r: r.choice((0, -1, 2**31 - 1, -(2**31), 7)))
KEY = "k"
KINDS = (
    INT,
    Kind(t.IntegerType(), "int", pyarrow.int16(), "smallint", "int", lambda r: r.randrange(-300, 300)),
    Kind(t.LongType(), "bigint", pyarrow.int32(), "int", "int", lambda r: r.randrange(-300, 300)),
    Kind(t.LongType(), "bigint", pyarrow.int64(), "bigint", "long", lambda r: r.randrange(-(2**63), 2**63)),
    Kind(t.FloatType(), "float", pyarrow.float32(), "float", "float", _single),
    Kind(t.DoubleType(), "double", pyarrow.float64(), "double", "double", _float),
    Kind(t.DoubleType(), "double", pyarrow.float32(), "float", "float", _single),
    Kind(t.BooleanType(), "boolean", pyarrow.bool_(), "boolean", "boolean", lambda r: r.random() < 0.5),
    Kind(t.StringType(), "string", pyarrow.string(), "string", "string", _text),
    Kind(t.StringType(), "string", pyarrow.large_string(), "varchar(30)", "string", _text),
    Kind(t.DateType(), "date", pyarrow.date32(), "date", {"type": "int", "logicalType": "date"}, _date),
    Kind(t.DecimalType(12, 2), "decimal(12,2)", pyarrow.decimal128(12, 2), "decimal(12,2)", _AVRO_DECIMAL, _decimal),
    Kind(t.DecimalType(30, 2), "decimal(30,2)", pyarrow.decimal128(12, 2), "decimal(12,2)", _AVRO_DECIMAL, _decimal),
)
WITHOUT_ZONE = Kind(t.TimestampType(), "timestamp_ntz", pyarrow.timestamp("us"), "", None, _moment)
"""Only in Parquet files: pyorc converts by time zone, and Avro's are instants."""

Rows = list[list[Any]]


def _arrow_table(kinds: Sequence[Kind], rows: Rows) -> pyarrow.Table:
    columns = [pyarrow.array([row[n] for row in rows], kind.arrow) for n, kind in enumerate(kinds)]
    return pyarrow.table(columns, names=[f"c{n}" for n in range(len(kinds))])


def _write_parquet(path: Path, kinds: Sequence[Kind], rows: Rows, source: random.Random) -> None:
    # Spark skips zeros of the other sign in dictionaries (`test_readable_files.py`).
    _remove_negative_zeros(rows)
    pyarrow.parquet.write_table(
        _arrow_table(kinds, rows),
        path,
        row_group_size=source.choice((1, 3, 100)),
        use_dictionary=source.random() < 0.5,
        data_page_version=source.choice(("1.0", "2.0")),
        store_decimal_as_integer=source.random() < 0.5,
        write_page_index=source.random() < 0.5,
        write_statistics=source.random() < 0.9,
    )


def _remove_negative_zeros(rows: Rows) -> None:
    for row in rows:
        row[:] = [0.0 if value == 0 and isinstance(value, float) else value for value in row]


def _write_duckdb(path: Path, kinds: Sequence[Kind], rows: Rows, source: random.Random) -> None:
    import duckdb

    # With zeros of both signs, DuckDB 1.5 writes minima and maxima that leave out one of them, even for itself.
    _remove_negative_zeros(rows)
    with duckdb.connect() as connection:
        connection.register("rows", _arrow_table(kinds, rows))
        connection.execute(f"COPY rows TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE {source.choice((2048, 4096))})")


def _write_arrow_orc(path: Path, kinds: Sequence[Kind], rows: Rows, source: random.Random) -> None:
    # ORC readers, including Hive's, skip zeros of the other sign (`test_readable_files.py`).
    _remove_negative_zeros(rows)
    table = _arrow_table(kinds, rows)
    plain = {pyarrow.large_string(): pyarrow.string()}
    narrow = pyarrow.schema([(field.name, plain.get(field.type, field.type)) for field in table.schema])
    pyarrow.orc.write_table(table.cast(narrow), path)


def _write_pyorc(path: Path, kinds: Sequence[Kind], rows: Rows, source: random.Random) -> None:
    _remove_negative_zeros(rows)
    fields = ",".join(f"c{n}:{kind.orc}" for n, kind in enumerate(kinds))
    with path.open("wb") as file, pyorc.Writer(file, f"struct<{fields}>") as writer:
        writer.writerows(map(tuple, rows))


def _write_avro(path: Path, kinds: Sequence[Kind], rows: Rows, source: random.Random) -> None:
    fields = [{"name": f"c{n}", "type": ["null", kind.avro]} for n, kind in enumerate(kinds)]
    records = [{f"c{n}": value for n, value in enumerate(row)} for row in rows]
    with path.open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "row", "fields": fields}, records)


def _prepare_for_hive(path: Path, kinds: Sequence[Kind], rows: Rows, source: random.Random) -> None:
    """Write the rows for `write_with_hive`."""
    _remove_negative_zeros(rows)
    table = _arrow_table(kinds, rows)
    columns = ", ".join(f"c{n} {kind.orc}" for n, kind in enumerate(kinds))
    table = table.replace_schema_metadata({hive_files.COLUMNS: columns})
    with (
        pyarrow.OSFile(f"{path}{hive_files.ENDING}", "wb") as file,
        pyarrow.ipc.new_file(file, table.schema) as stored,
    ):
        stored.write_table(table)


def write_with_hive(folder: Path) -> None:
    """Write the files below a folder that are prepared for Hive."""
    if not any(folder.rglob(f"*{hive_files.ENDING}")):
        return
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, str(hive_files.__file__), str(folder)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


WRITERS: tuple[tuple[FileFormat, Callable[[Path, Sequence[Kind], Rows, random.Random], None]], ...] = (
    (FileFormat.PARQUET, _write_parquet),
    (FileFormat.PARQUET, _write_duckdb),
    (FileFormat.ORC, _write_arrow_orc),
    (FileFormat.ORC, _write_pyorc),
    (FileFormat.AVRO, _write_avro),
)
if IS_THOROUGH:
    WRITERS += tuple((stored, _prepare_for_hive) for stored in (FileFormat.PARQUET, FileFormat.ORC, FileFormat.AVRO))


class Filter(NamedTuple):
    """A filter of one column.

    Attributes:
        type: The column's type in Spark.
        text: The filter in SQL, with a parameter if there is a value.
        expected: The expected number of rows.
    """

    column: str
    type: str
    condition: BooleanExpression
    text: str
    value: Any
    expected: int

    @property
    def parameters(self) -> list[Any]:
        """The parameters of the text."""
        return [] if self.value is None else [self.value]

    def for_spark(self) -> SparkColumn:
        """Return the filter for a DataFrame."""
        from pyspark.sql import functions as f

        if self.value is None:
            return f.expr(self.text)
        column, value = f.col(self.column), f.lit(str(self.value)).cast(self.type)
        return column > value if isinstance(self.condition, GreaterThan) else column == value


def _folder_name(keys: Sequence[int | None]) -> str:
    return "".join(f"{KEY}={'__HIVE_DEFAULT_PARTITION__' if key is None else key}" for key in keys)


class RandomTable:
    """A table of up to three files, generated from a number.

    Every second table has a partition key, its last column, and one file in each partition.

    Attributes:
        kinds: The types of the columns, including the key.
        rows: All rows.
        paths: The files.
        writer: The program that wrote the files.
    """

    def __init__(self, number: int, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        source = random.Random(number)
        self.number, self.folder = number, folder
        self.format, write = source.choice(WRITERS)
        self.writer = write.__name__.strip("_")
        is_by_hive = write is _prepare_for_hive
        choice = (*KINDS, WITHOUT_ZONE) if self.format is FileFormat.PARQUET and not is_by_hive else KINDS
        self.kinds = source.sample(choice, k=source.randint(1, 4))
        self.rows: Rows = []
        self.paths: list[Path] = []
        keys: list[int | None] = source.sample((None, -7, 0, 2**31 - 1), k=3) if number % 2 else []
        for position in range(source.randint(1, 3)):
            rows = [
                [None if source.random() < 0.2 else kind.values(source) for kind in self.kinds]
                for _ in range(source.randint(1, 9))
            ]
            self.paths.append(folder / _folder_name(keys[position : position + 1]) / f"{position}.{self.format}")
            self.paths[-1].parent.mkdir(exist_ok=True)
            write(self.paths[-1], self.kinds, rows, source)
            self.rows += [[*row, *keys[position : position + 1]] for row in rows]
        types = {f"c{column}": kind.type for column, kind in enumerate(self.kinds)}
        self._key_values = [(key,) for key in keys[: len(self.paths)]]
        self.layout: Layout = layout(types, {KEY: INT.type} if keys else None)
        if keys:
            self.kinds.append(INT)
        self.columns = [*types, KEY][: len(self.kinds)]

    @cached_property
    def metadata_location(self) -> str:
        """The metadata location of the Iceberg table over the files."""
        return write_metadata(self.layout, self.format, self.paths, self.folder, self._key_values)

    @property
    def hive_schema(self) -> str:
        """The columns of the Hive table in Spark."""
        return ", ".join(f"{name} {kind.hive}" for name, kind in zip(self.columns, self.kinds, strict=True))

    def __str__(self) -> str:
        """Return the number, the writer and the columns."""
        return f"table {self.number} ({self.writer}: {self.hive_schema})"

    def filters(self) -> Iterator[Filter]:
        """Yield five filters for each column; two for one without values."""
        for number, (name, kind) in enumerate(zip(self.columns, self.kinds, strict=True)):
            values = [row[number] for row in self.rows]
            nans = [value for value in values if isinstance(value, float) and math.isnan(value)]
            plain = sorted(value for value in values if value is not None and value not in nans)
            for value in (plain[0], plain[-1], plain[len(plain) // 2]) if plain else ():
                yield Filter(name, kind.hive, EqualTo(name, value), f"{name} = ?", value, plain.count(value))
            yield Filter(name, kind.hive, IsNull(name), f"{name} IS NULL", None, values.count(None))
            if isinstance(kind.type, t.FloatType | t.DoubleType):
                yield Filter(name, kind.hive, IsNaN(name), f"isnan({name})", None, len(nans))
            elif isinstance(kind.type, t.BooleanType) or not plain:
                yield Filter(name, kind.hive, NotNull(name), f"{name} IS NOT NULL", None, len(plain))
            else:
                more = len(plain) - plain.count(plain[0])
                yield Filter(name, kind.hive, GreaterThan(name, plain[0]), f"{name} > ?", plain[0], more)


def spark_answers(spark: SparkSession, tables: Sequence[RandomTable]) -> Iterator[str]:
    """Yield the filters for which the Hive reader or Iceberg's reader does not find all rows.

    All tables are read in one job. The Hive reader aggregates, so that it skips no row groups.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as f

    frames, questions = [], []
    for table in tables:
        reader = spark.read.format(table.format).schema(table.hive_schema)
        hive = reader.option("basePath", str(table.folder)).load([str(path) for path in table.paths])
        iceberg = spark.read.format("iceberg").load(table.metadata_location)
        conditions = [(f.lit(True), "true", len(table.rows))]
        for asked in table.filters():
            conditions.append((asked.for_spark(), f"{asked.text} {asked.parameters}", asked.expected))
        counted = hive.agg(f.array(*[f.count_if(condition) for condition, _, _ in conditions]).alias("counts"))
        frames.append(counted.select(f.lit(len(questions)).alias("number"), f.lit(True).alias("is_hive"), "counts"))
        for condition, text, expected in conditions:
            counted = iceberg.where(condition).agg(f.array(f.count("*")).alias("counts"))
            numbered = f.lit(len(questions)).alias("number")
            frames.append(counted.select(numbered, f.lit(False).alias("is_hive"), "counts"))
            questions.append((f"{text} in {table}", expected))
    answers: dict[tuple[int, bool], int] = {}
    for row in reduce(DataFrame.union, frames).collect():
        answers.update({(row.number + n, row.is_hive): count for n, count in enumerate(row["counts"])})
    for number, (text, expected) in enumerate(questions):
        hive_count, iceberg_count = answers[number, True], answers[number, False]
        if not hive_count == iceberg_count == expected:
            yield f"{text}: {expected} row(s), Hive reads {hive_count}, Iceberg's reader for Spark {iceberg_count}"


def spark_failures(spark: SparkSession, tables: Sequence[RandomTable]) -> list[str]:
    """Return the failed filters in Spark; for unreadable tables, their names."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        return list(spark_answers(spark, tables))
    except (PySparkException, Py4JJavaError) as error:
        if len(tables) == 1:
            return [f"{tables[0]}: {str(error)[:500]}"]
        return [text for table in tables for text in spark_failures(spark, [table])]


def other_failures(duck: duckdb.DuckDBPyConnection, table: RandomTable) -> Iterator[str]:
    """Yield the filters for which PyIceberg or DuckDB does not find all rows."""
    pyiceberg = StaticTable.from_metadata(table.metadata_location)
    for asked in table.filters():
        text = f"{asked.text} {asked.parameters} in {table}: {asked.expected} row(s)"
        # PyArrow assumes that a row group with equal minimum and maximum has no NaN.
        if not (isinstance(asked.condition, IsNaN) and table.format is FileFormat.PARQUET):
            count = pyiceberg.scan(row_filter=asked.condition).to_arrow().num_rows
            if count != asked.expected:
                yield f"{text}, PyIceberg reads {count}"
        if table.format is FileFormat.PARQUET:
            query = f"SELECT count(*) FROM iceberg_scan('{table.metadata_location}') WHERE {asked.text}"
            ((count,),) = duck.execute(query, asked.parameters).fetchall()
            if count != asked.expected:
                yield f"{text}, DuckDB reads {count}"


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, TABLES, TABLES_A_JOB))
def test_filters_find_the_rows_there_are(
    first: int,
    iceberg_spark: SparkSession,
    avro_package: None,
    duck: duckdb.DuckDBPyConnection,
    tmp_path: Path,
) -> None:
    tables = [RandomTable(number, tmp_path / str(number)) for number in range(first, min(first + TABLES_A_JOB, TABLES))]
    write_with_hive(tmp_path)
    failures = spark_failures(iceberg_spark, tables)
    for table in tables:
        if table.format is not FileFormat.AVRO:
            failures += other_failures(duck, table)
    assert not failures, "\n".join(failures)
