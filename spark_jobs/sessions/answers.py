"""Conversion of Spark's results to JSON values, and of its errors to catalog errors."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    NullType,
    StringType,
    StructType,
)
from sqlglot.errors import SqlglotError

from catalog.errors import (
    EngineError,
    InvalidQueryError,
    InvalidRowsError,
    StorageError,
    TableNotFoundError,
    VerificationFailedError,
)
from catalog.files.locations import comparable
from catalog.files.object_stores import known_cause_in_spark
from catalog.statements.results import Cell, StatementResult

_NESTED = (ArrayType, MapType, StructType)
_AS_THEY_ARE = (BooleanType, DecimalType, DoubleType, IntegralType, NullType, StringType)
_JSON_OPTIONS = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd HH:mm:ss[.SSSSSS]"}

# PySpark's names of the frames that `spark_jobs.queries.query` puts in place of tables.
_STAND_IN = re.compile(r"`?_pyspark_[0-9a-f]{32}`?")
_SQL_STATE = re.compile(r"\s*SQLSTATE: \w+.*", re.DOTALL)
_CONDITION = re.compile(r"\[[A-Z][A-Z_.]+\] [^\n]+")
_MISSING = re.compile(r"NotFoundException: Failed to open input (?:stream for )?file: (\S[^\n]*)")
"""Iceberg's message about a file that does not exist, which names it to the end of the line."""

_LINE = re.compile(r"\(line (\d+), pos (\d+)\)")
_CALL = re.compile(r"^An error occurred while calling [^\n]*\n: ")
"""The first line of the JVM's exceptions names only an object of Py4J."""
_UNFIT = ("CAST_INVALID_INPUT", "CAST_OVERFLOW", "NUMERIC_VALUE_OUT_OF_RANGE", "USER_RAISED_EXCEPTION")
_WRITE_FAILED = "[TASK_WRITE_FAILED] "
_CAUSED_BY = re.compile(r"^Caused by: (?:[\w.$]+: )?([^\n]+)", re.MULTILINE)
_LONGEST_MESSAGE = 500


def answer_of(frame: DataFrame) -> StatementResult:
    """Return all rows of a frame.

    Numbers, booleans and strings are unchanged; decimals are strings with all decimal places; dates, timestamps and
    intervals are strings as Spark casts them, timestamps in UTC; bytes are hexadecimal digits; NaN and the infinities
    are strings. Inside arrays, maps and structs, which are lists and objects, decimals are numbers and bytes base 64.
    """
    return StatementResult(tuple(frame.columns), list(_cells(frame, _as_shown(frame).collect())), is_data=True)


def stream_of(frame: DataFrame) -> Iterator[list[Cell]]:
    """Return the rows of `answer_of`, of which the driver holds one partition at a time."""
    return _cells(frame, _as_shown(frame).toLocalIterator())


def batches_of(frame: DataFrame) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema and the rows of a frame in Arrow's format; timestamps are in UTC.

    The driver holds one partition at a time. Executors need PyArrow.
    """
    schema = to_arrow_schema(frame.schema)
    names = [f"c{number}" for number in range(len(frame.columns))]
    # Two columns may have the same name.
    packed = frame.toDF(*names).mapInArrow(_packed, "batch binary")

    def batches() -> Iterator[pa.RecordBatch]:
        for row in packed.toLocalIterator():
            with pa.ipc.open_stream(bytes(row.batch)) as reader:
                for batch in reader:
                    table = pa.Table.from_batches([batch]).rename_columns(schema.names).cast(schema)
                    yield from table.to_batches()

    return schema, batches()


def _packed(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.RecordBatch.from_pydict({"batch": [sink.getvalue().to_pybytes()]})


def _as_shown(frame: DataFrame) -> DataFrame:
    types = [field.dataType for field in frame.schema.fields]
    numbered = frame.toDF(*[f"c{number}" for number in range(len(types))])
    return numbered.select(*[_shown(f.col(f"c{number}"), data_type) for number, data_type in enumerate(types)])


def _cells(frame: DataFrame, rows: Iterable[Row]) -> Iterator[list[Cell]]:
    readers = [_reader(field.dataType) for field in frame.schema.fields]
    for row in rows:
        yield [None if value is None else read(value) for read, value in zip(readers, row, strict=True)]


def _shown(column: Column, data_type: DataType) -> Column:
    if isinstance(data_type, _NESTED):
        return f.to_json(column, _JSON_OPTIONS)
    if isinstance(data_type, BinaryType):
        return f.lower(f.hex(column))
    if isinstance(data_type, FloatType):
        # Through a string, for the shortest decimal number of the float instead of its exact value as a double.
        return column.cast("string").cast("double")
    return column if isinstance(data_type, _AS_THEY_ARE) else column.cast("string")


def _reader(data_type: DataType) -> Callable[[Any], Cell]:
    if isinstance(data_type, _NESTED):
        return json.loads
    if isinstance(data_type, DecimalType):
        return _plain
    if isinstance(data_type, FloatType | DoubleType):
        return _number
    return _itself


def _plain(value: Decimal) -> str:
    return format(value, "f")


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _itself(value: Any) -> Cell:
    cell: Cell = value
    return cell


_ANSI = re.compile(r"\x1b\[[0-9;]*m")
"""Terminal escape sequences, with which sqlglot underlines."""


@contextmanager
def engine_errors(statement: str, table_of: Callable[[str], str | None] = lambda path: None) -> Iterator[None]:
    """Translate Spark's errors to catalog errors, with the beginning of Spark's message.

    Args:
        table_of: Returns the name of the table that has a data file, or None; for the message about a missing file.

    Raises:
        VerificationFailedError: A data file of an Iceberg table does not exist.
        TableNotFoundError: The statement refers to an unknown table.
        InvalidQueryError: Spark cannot parse or analyse the statement.
        StorageError: S3 refused or failed a request.
        EngineError: Spark failed to run the statement.
    """
    try:
        yield
    except (ParseException, AnalysisException) as error:
        if error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
            raise _not_found(error, statement) from error
        raise InvalidQueryError(_message(error), statement, _position(error, statement)) from error
    except (PySparkException, Py4JError, RecursionError) as error:
        if isinstance(error, RecursionError) or "StackOverflowError" in str(error):
            raise InvalidQueryError("the SELECT is nested too deeply", statement) from error
        if cause := known_cause_in_spark(str(error)):
            raise StorageError(cause) from error
        if match := _MISSING.search(f"{error}\n{getattr(error, '_stackTrace', '')}"):
            raise VerificationFailedError(missing_file(match[1], table_of(match[1]))) from error
        raise EngineError(_message(error)) from error
    except SqlglotError as error:
        reason = _ANSI.sub("", str(error)).strip().split("\n")[0]
        raise InvalidQueryError(f"the SELECT cannot be parsed: {reason}", statement) from error


def missing_file(path: str, table: str | None) -> str:
    """Return what to say about a data file that does not exist; the table is None if it is not known."""
    which, command = ("", "calve check") if table is None else (f"table {table}: ", f"calve check {table}")
    return (
        f"{which}the data file {comparable(path)} does not exist; restore it. `{command}` lists all that is missing, "
        "and what to do"
    )


@contextmanager
def row_errors() -> Iterator[None]:
    """Translate Spark's errors about values that do not fit a table's columns to a catalog error.

    Raises:
        InvalidRowsError: A value does not fit its column.
    """
    try:
        yield
    except PySparkException as error:
        if error.getCondition() in _UNFIT:
            raise InvalidRowsError(f"{_message(error)} Nothing was added") from error
        raise


def _not_found(error: PySparkException, statement: str) -> TableNotFoundError:
    name = str((error.getMessageParameters() or {}).get("relationName", "")).replace("`", "")
    not_found = TableNotFoundError.named(name)
    not_found.position = _position(error, statement)
    return not_found


def _message(error: Exception) -> str:
    """Return Spark's message in a sentence or two, without the plan and the stack trace."""
    text = _STAND_IN.sub("a table", str(error))
    if isinstance(error, Py4JJavaError) or "stage failure" in text:
        causes = _CONDITION.findall(text)
        text = causes[-1] if causes else _CALL.sub("", text)
    text = _SQL_STATE.sub("", text.strip()).split("\n")[0].removeprefix("[USER_RAISED_EXCEPTION] ")
    if text.startswith(_WRITE_FAILED):
        # Only the cause names the file, and with it the partition.
        reasons = _CAUSED_BY.findall(str(getattr(error, "_stackTrace", error)))
        text = f"{text.removeprefix(_WRITE_FAILED)} {reasons[-1]}" if reasons else text
    return text if len(text) <= _LONGEST_MESSAGE else text[:_LONGEST_MESSAGE] + "…"


def _position(error: PySparkException, statement: str) -> int | None:
    """Return the position of an error in a statement.

    Spark's parser reads the original statement. Its analyzer reads an edited one, so the position is known only if the
    fragment in the error occurs once.
    """
    if isinstance(error, ParseException) and (match := _LINE.search(str(error))):
        lines = statement.splitlines(keepends=True)[: int(match.group(1)) - 1]
        return min(len(statement), sum(map(len, lines)) + int(match.group(2)))
    for context in error.getQueryContext() or []:
        fragment = context.fragment()
        if fragment:
            places = [match.start() for match in re.finditer(rf"(?<!\w){re.escape(fragment)}(?!\w)", statement)]
            if len(places) == 1:
                return places[0]
    return None
