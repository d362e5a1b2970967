"""The one rule for values that are written: a value becomes its column's type exactly, or is refused.

Nothing is rounded, cut or becomes null, with three exceptions that lose nothing a user would miss: a number becomes the
nearest float or double, the trailing blanks of a char do not count, and a varchar loses those that it has no room for,
as with Spark: a longer char, which is read with its blanks, fits it. `catalog.statements.cells` says the same of
literals.

Each way of writing rows (`load_rows`, `append_rows`, loads of files, INSERT, LOAD DATA) takes its columns from here and
counts the wrong rows while Spark writes them, so that no pass over the rows is added. A column that has its type
already costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    NumericType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from catalog import Table
from catalog.errors import InvalidRowsError
from catalog.model import Column
from spark_jobs.rows.file_formats import spark_type
from spark_jobs.rows.observing import metrics

_INTEGERS: dict[type[DataType], int] = {ByteType: 1, ShortType: 2, IntegerType: 4, LongType: 8}
_GIVEN = "calve/given/"
_SHOWN = 60
"""Characters of a wrong value that a message shows."""

_COUNT, _WRONG, _EXAMPLE = "rows", "wrong", "example"


@dataclass(frozen=True)
class CheckedColumn:
    """A column of the rows to write.

    Attributes:
        value: Its value in the column's type; null where `problem` is not.
        problem: What is wrong with a row's value, in words; null where it fits. None when every value does.
    """

    column: Column
    value: SparkColumn
    problem: SparkColumn | None = None


def checked_column(column: Column, given: SparkColumn | None, given_type: DataType | None) -> CheckedColumn:
    """Return a column that becomes one of a table, or of a file.

    Args:
        given: The values; None for null.
        given_type: Their type.
    """
    type_text = spark_type(column.type)
    if given is None or given_type is None:
        return CheckedColumn(column, f.lit(None).cast(type_text))
    wanted = DataType.fromDDL(column.type)
    if isinstance(wanted, VarcharType) and isinstance(given_type, StringType):
        given = _without_surplus_blanks(given, wanted.length)
    value = given if given_type.simpleString() == type_text else given.try_cast(type_text)
    wrong = _is_wrong(given, given_type, wanted)
    if isinstance(wanted, CharType):
        value = f.rtrim(value)
    if wrong is None:
        return CheckedColumn(column, value)
    problem = f.concat(
        f.lit(f"column {column.name}: '"),
        f.left(_shown(given, given_type), f.lit(_SHOWN)),
        f.lit(f"' is no {column.type}"),
    )
    return CheckedColumn(column, value, f.when(wrong, problem))


def _without_surplus_blanks(text: SparkColumn, length: int) -> SparkColumn:
    fits = (f.length(text) > length) & (f.length(f.rtrim(text)) <= length)
    return f.when(fits, f.left(text, f.lit(length))).otherwise(text)


def _shown(given: SparkColumn, given_type: DataType) -> SparkColumn:
    return f.coalesce(given.cast("string"), f.lit(given_type.simpleString()))


def first_problem(columns: Iterable[CheckedColumn]) -> SparkColumn | None:
    """Return what is wrong with a row, null if nothing is; None when no row can have anything wrong."""
    problems = [checked.problem for checked in columns if checked.problem is not None]
    return f.coalesce(*problems) if problems else None


def shaped_rows(table: Table, frame: DataFrame) -> tuple[DataFrame, list[CheckedColumn]]:
    """Return rows that are to be written, and how they become the table's columns and then its partition keys.

    Args:
        frame: Columns by their names, in any order and case. One that is missing is null, unless it places the rows.

    Returns:
        The rows with what was given for each column under a name of its own, and the columns over these.

    Raises:
        InvalidRowsError: The names are not the table's, or a column's type can never become the table's.
    """
    names = [name.lower() for name in frame.columns]
    columns = (*table.columns, *table.partition_keys)
    expected = [column.name for column in columns]
    required = table.key_names if table.scheme is None else [table.scheme.column]
    wrong = {
        "twice": sorted({name for name in names if names.count(name) > 1}),
        "which the table does not have": [name for name in names if name not in expected],
        "which place the rows in partitions and are missing": [name for name in required if name not in names],
    }
    if faults := [f"{', '.join(faulty)}, {what}" for what, faulty in wrong.items() if faulty]:
        raise InvalidRowsError(
            f"the rows for {table.full_name} have the columns {', '.join(names) or 'none'}: {'; '.join(faults)}. Name "
            f"them as the table does: {', '.join(expected)}"
        )
    rows = frame.toDF(*[_GIVEN + name for name in names])
    types = {name: field.dataType for name, field in zip(names, frame.schema, strict=True)}
    checked = [checked_column(each, _given(each.name, types), types.get(each.name)) for each in columns]
    try:
        rows.select(*[one.value.alias(one.column.name) for one in checked])
    except AnalysisException as error:
        raise _not_castable(table, rows, checked, types) or error from error
    return rows, checked


def _given(name: str, types: Mapping[str, DataType]) -> SparkColumn | None:
    return f.col(f"`{_GIVEN}{name}`") if name in types else None


def _not_castable(
    table: Table, rows: DataFrame, columns: Sequence[CheckedColumn], types: Mapping[str, DataType]
) -> InvalidRowsError | None:
    for checked in columns:
        try:
            rows.select(checked.value)
        except AnalysisException:
            name = checked.column.name
            return InvalidRowsError(
                f"column {name} of {table.full_name} is of type {checked.column.type}, and "
                f"{types[name].simpleString()} cannot become that; cast it first"
            )
    return None


class RowCheck:
    """Counts rows, and those with values that do not fit, while Spark writes them."""

    def __init__(self, table: Table, problem: SparkColumn | None) -> None:
        """Take what `first_problem` returned for rows of a table."""
        self._table = table
        self._problem = problem
        self._observation = Observation()

    def observe(self, rows: DataFrame) -> DataFrame:
        """Return the rows so that they are counted in the first job that reads them."""
        counts = [f.count(f.lit(1)).alias(_COUNT)]
        if self._problem is not None:
            counts += [f.count(self._problem).alias(_WRONG), f.max(self._problem).alias(_EXAMPLE)]
        return rows.observe(self._observation, *counts)

    def finish(self) -> int:
        """Return the number of rows, when they have been written.

        Raises:
            InvalidRowsError: A value of one of them does not fit its column.
        """
        found: Mapping[str, Any] = metrics(self._observation)
        if found.get(_WRONG):
            raise InvalidRowsError(
                f"table {self._table.full_name}: {found[_WRONG]:,} row(s) have values that do not fit their columns, "
                f"for instance {found[_EXAMPLE]}; nothing was added. Correct the values, or cast them first"
            )
        return int(found.get(_COUNT, 0))


# --- the rule -------------------------------------------------------------------------------------------------------


def _is_wrong(value: SparkColumn, given: DataType, wanted: DataType) -> SparkColumn | None:
    """Return whether a value of one type is none of another; None when every value is one."""
    if isinstance(given, NullType):
        return None
    if isinstance(given, ArrayType) and isinstance(wanted, ArrayType):
        return _any_element(value, given.elementType, wanted.elementType)
    if isinstance(given, MapType) and isinstance(wanted, MapType):
        return _either(
            _any_element(f.map_keys(value), given.keyType, wanted.keyType),
            _any_element(f.map_values(value), given.valueType, wanted.valueType),
        )
    if isinstance(given, StructType) and isinstance(wanted, StructType):
        # Spark casts the fields of structs by their order.
        pairs = zip(given.fields, wanted.fields, strict=False)
        return _either(*[_is_wrong(value.getField(one.name), one.dataType, other.dataType) for one, other in pairs])
    wrong = _is_wrong_atom(value, given, wanted)
    return None if wrong is None else f.coalesce(wrong, f.lit(False))


def _any_element(values: SparkColumn, given: DataType, wanted: DataType) -> SparkColumn | None:
    if _is_wrong(f.lit(None).cast(given), given, wanted) is None:
        return None
    return f.coalesce(f.exists(values, lambda element: _some(_is_wrong(element, given, wanted))), f.lit(False))


def _some(wrong: SparkColumn | None) -> SparkColumn:
    return f.lit(False) if wrong is None else wrong


def _either(*parts: SparkColumn | None) -> SparkColumn | None:
    some = [part for part in parts if part is not None]
    return reduce(lambda one, other: one | other, some) if some else None


def _is_wrong_atom(value: SparkColumn, given: DataType, wanted: DataType) -> SparkColumn | None:
    if isinstance(wanted, CharType | VarcharType):
        text = f.rtrim(value.cast("string")) if isinstance(wanted, CharType) else value.cast("string")
        return f.length(text) > wanted.length
    if _is_wider(given, wanted):
        return None
    typed = value.try_cast(wanted)
    lost = value.isNotNull() & typed.isNull()
    changed = _is_changed(value, typed, given, wanted)
    return lost if changed is None else lost | changed


def _is_wider(given: DataType, wanted: DataType) -> bool:
    """Return whether a type has all values of another."""
    if given == wanted or isinstance(wanted, StringType):
        return True
    if isinstance(given, DecimalType) and isinstance(wanted, DecimalType):
        digits = given.precision - given.scale, wanted.precision - wanted.scale
        return digits[0] <= digits[1] and given.scale <= wanted.scale
    if type(given) in _INTEGERS:
        # Nearly all are the nearest number of a float or a double.
        is_wide = type(wanted) in _INTEGERS and _INTEGERS[type(given)] <= _INTEGERS[type(wanted)]
        return is_wide or isinstance(wanted, FloatType | DoubleType)
    return isinstance(given, FloatType) and isinstance(wanted, DoubleType)


def _is_changed(value: SparkColumn, typed: SparkColumn, given: DataType, wanted: DataType) -> SparkColumn | None:
    """Return whether a value that can be cast means something else afterwards."""
    if isinstance(wanted, FloatType | DoubleType):
        return _is_infinite_now(value, typed, given)
    if isinstance(given, StringType):
        return _is_text_cut(value, typed, wanted)
    if isinstance(given, NumericType) and isinstance(wanted, NumericType | BooleanType):
        return ~typed.try_cast(given).eqNullSafe(value)
    if isinstance(given, TimestampType | TimestampNTZType) and isinstance(wanted, DateType):
        return ~typed.cast(given).eqNullSafe(value)
    return None


def _is_infinite_now(value: SparkColumn, typed: SparkColumn, given: DataType) -> SparkColumn | None:
    is_infinite = f.abs(typed.cast("double")) == f.lit(float("inf"))
    if isinstance(given, DoubleType):
        return is_infinite & (f.abs(value) != f.lit(float("inf")))
    return is_infinite & value.rlike("[0-9]") if isinstance(given, StringType) else None


def _is_text_cut(value: SparkColumn, typed: SparkColumn, wanted: DataType) -> SparkColumn | None:
    if isinstance(wanted, DecimalType):
        # With all places that there can be besides the digits before the point.
        exact = value.try_cast(DecimalType(38, 38 - wanted.precision + wanted.scale))
        return (exact != typed) | value.rlike(rf"^[^eE]*\.[0-9]{{{wanted.scale}}}[0-9]*[1-9]")
    if isinstance(wanted, DateType):
        return value.try_cast("timestamp_ntz") != typed.cast("timestamp_ntz")
    return value.rlike(r"\.[0-9]{6}[0-9]*[1-9]") if isinstance(wanted, TimestampType) else None
