"""Random tables of files that different writers wrote: three readers answer filters as the rows themselves do.

`CALVE_TEST_TABLES=300` runs as many tables.
"""

from __future__ import annotations

import datetime
import math
import os
import random
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import fastavro
import pyarrow
import pyarrow.orc
import pyarrow.parquet
import pyorc
import pytest
from pyiceberg import types as t
from pyiceberg.expressions import BooleanExpression, EqualTo, IsNaN, IsNull
from pyiceberg.table import StaticTable

from catalog.iceberg.layout import Layout
from catalog.model import FileFormat
from tests.catalog.iceberg_files import layout, write_metadata

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession

TABLES = int(os.environ.get("CALVE_TEST_TABLES", "4"))
TABLES_A_JOB = 25
NAN = float("nan")


class Kind(NamedTuple):
    """A type of columns.

    Attributes:
        hive: As Spark reads Hive's files.
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
KINDS = (
    Kind(t.IntegerType(), "int", pyarrow.int32(), "int", "int", lambda r: r.choice((0, -1, 2**31 - 1, -(2**31), 7))),
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
"""Only in Parquet files: pyorc shifts by a zone, and Avro's are instants."""

Rows = list[list[Any]]


def _arrow_table(kinds: Sequence[Kind], rows: Rows) -> pyarrow.Table:
    columns = [pyarrow.array([row[n] for row in rows], kind.arrow) for n, kind in enumerate(kinds)]
    return pyarrow.table(columns, names=[f"c{n}" for n in range(len(kinds))])


def _write_parquet(path: Path, kinds: Sequence[Kind], rows: Rows, source: random.Random) -> None:
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
    # Readers of ORC, Hive's too, skip zeros of the other sign (`test_readable_files.py`).
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


WRITERS = (
    (FileFormat.PARQUET, _write_parquet),
    (FileFormat.PARQUET, _write_duckdb),
    (FileFormat.ORC, _write_arrow_orc),
    (FileFormat.ORC, _write_pyorc),
    (FileFormat.AVRO, _write_avro),
)


class RandomTable:
    """A table of up to three files; the same number makes the same one.

    Attributes:
        rows: All of them.
        paths: The files.
        writer: What wrote them.
        metadata_location: Of the Iceberg table that the files are.
    """

    def __init__(self, number: int, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        source = random.Random(number)
        self.number = number
        self.format, write = source.choice(WRITERS)
        self.writer = write.__name__.strip("_")
        choice = (*KINDS, WITHOUT_ZONE) if self.format is FileFormat.PARQUET else KINDS
        self.kinds = source.sample(choice, k=source.randint(1, 4))
        self.rows: Rows = []
        self.paths: list[Path] = []
        for position in range(source.randint(1, 3)):
            rows = [
                [None if source.random() < 0.2 else kind.values(source) for kind in self.kinds]
                for _ in range(source.randint(1, 9))
            ]
            self.paths.append(folder / f"{position}.{self.format}")
            write(self.paths[-1], self.kinds, rows, source)
            self.rows += rows
        self.layout: Layout = layout({name: kind.type for name, kind in zip(self.columns, self.kinds, strict=True)})
        self.metadata_location = write_metadata(self.layout, self.format, self.paths, folder)

    @property
    def hive_schema(self) -> str:
        """The columns as Spark reads the Hive table."""
        return ", ".join(f"{name} {kind.hive}" for name, kind in zip(self.columns, self.kinds, strict=True))

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return [f"c{number}" for number in range(len(self.kinds))]

    def filters(self) -> Iterator[tuple[BooleanExpression, str, list[Any], int]]:
        """Yield filters for PyIceberg and for SQL, with its parameters, and how many rows there are."""
        for number, name in enumerate(self.columns):
            values = [row[number] for row in self.rows]
            nans = [value for value in values if isinstance(value, float) and math.isnan(value)]
            plain = sorted(value for value in values if value is not None and value not in nans)
            for value in (plain[0], plain[-1], plain[len(plain) // 2]) if plain else ():
                yield EqualTo(name, value), f"{name} = ?", [value], plain.count(value)
            yield IsNull(name), f"{name} IS NULL", [], values.count(None)
            if isinstance(self.kinds[number].type, t.FloatType | t.DoubleType):
                yield IsNaN(name), f"isnan({name})", [], len(nans)


def spark_counts(spark: SparkSession, tables: Sequence[RandomTable]) -> Iterator[tuple[str, int, int, int]]:
    """Yield each question with the rows there are, those of the Hive reading and those that Iceberg's reader finds.

    All tables are asked in one job. The Hive reading is aggregated, which leaves no row group out.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as f

    frames, questions = [], []
    for table in tables:
        hive = spark.read.format(table.format).schema(table.hive_schema).load([str(path) for path in table.paths])
        iceberg = spark.read.format("iceberg").load(table.metadata_location)
        conditions = [(f.lit(True), "true", len(table.rows))]
        for _, text, parameters, expected in table.filters():
            name = re.search(r"c[0-9]", text)[0]  # type: ignore[index]
            kind = table.kinds[int(name[1:])].hive
            asked = f.col(name) == f.lit(str(parameters[0])).cast(kind) if parameters else f.expr(text)
            conditions.append((asked, f"{text} {parameters} in table {table.number} ({table.writer})", expected))
        first = len(questions)
        counted = hive.agg(f.array(*[f.count_if(condition) for condition, _, _ in conditions]).alias("counts"))
        frames.append(counted.select(f.lit(first).alias("number"), f.lit(True).alias("is_hive"), "counts"))
        for condition, text, expected in conditions:
            found = iceberg.where(condition).agg(f.array(f.count("*")).alias("counts"))
            frames.append(found.select(f.lit(len(questions)).alias("number"), f.lit(False).alias("is_hive"), "counts"))
            questions.append((text, expected))
    answers: dict[tuple[int, bool], int] = {}
    for row in reduce(DataFrame.union, frames).collect():
        answers.update({(row.number + n, row.is_hive): count for n, count in enumerate(row["counts"])})
    for number, (text, expected) in enumerate(questions):
        yield text, expected, answers[number, True], answers[number, False]


@pytest.mark.parametrize("first", range(0, TABLES, TABLES_A_JOB))
def test_filters_find_the_rows_there_are(
    first: int,
    iceberg_spark: SparkSession,
    avro_package: None,
    duck: duckdb.DuckDBPyConnection,
    tmp_path: Path,
) -> None:
    tables = [RandomTable(number, tmp_path / str(number)) for number in range(first, min(first + TABLES_A_JOB, TABLES))]
    wrong = [answer for answer in spark_counts(iceberg_spark, tables) if len(set(answer[1:])) > 1]
    assert wrong == []
    for table in tables:
        if table.format is FileFormat.AVRO:
            continue
        pyiceberg = StaticTable.from_metadata(table.metadata_location)
        for condition, text, parameters, expected in table.filters():
            # PyArrow takes it that a row group whose minimum is its maximum has no NaN.
            if not (isinstance(condition, IsNaN) and table.format is FileFormat.PARQUET):
                found = pyiceberg.scan(row_filter=condition).to_arrow().num_rows
                assert found == expected, (condition, table.kinds)
            if table.format is FileFormat.PARQUET:
                query = f"SELECT count(*) FROM iceberg_scan('{table.metadata_location}') WHERE {text}"
                assert duck.execute(query, parameters).fetchall() == [(expected,)], (text, parameters, table.kinds)
