"""Checks of written values: a value is converted to its column's type exactly, or refused.

No value is rounded, truncated or set to null, with three harmless exceptions: a number becomes the nearest float or
double, trailing blanks of a char are ignored, and a varchar loses trailing blanks beyond its length, as in Spark, so
that a longer char, which is read with its blanks, fits. A string has to be a value of the type as
`catalog.types.column_types` reads it: Spark's cast also reads `202401` as a date, `12:30` as a time of the present day,
`y` as true and `1.5d` as a number. `catalog.statements.cells` has the same rule for literals.

All writers of rows (`load_rows`, `append_rows`, loads of files, INSERT, LOAD DATA) use these columns and count the
wrong rows while Spark writes them, without an additional pass over the rows. A column that already has its type costs
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
from catalog.types.column_types import parse_column_type
from catalog.types.key_types import TimestampType as KeyTimestampType
from spark_jobs.rows.file_formats import spark_type
from spark_jobs.rows.observing import metrics

_INTEGERS: dict[type[DataType], int] = {ByteType: 1, ShortType: 2, IntegerType: 4, LongType: 8}
_GIVEN = "calve/given/"
_SHOWN = 60
"""Maximum number of characters of a wrong value in a message."""

_COUNT, _WRONG, _EXAMPLE = "rows", "wrong", "example"


@dataclass(frozen=True)
class CheckedColumn:
    """A column of the rows to write.

    Attributes:
        value: Its value in the column's type; null if `problem` is not null.
        problem: A description of the problem of a row's value; null if the value fits. None if all values fit.
        unfit: The value as a string if it does not fit, or else null. None if all values fit.
    """

    column: Column
    value: SparkColumn
    problem: SparkColumn | None = None
    unfit: SparkColumn | None = None


def checked_column(column: Column, given: SparkColumn | None, given_type: DataType | None) -> CheckedColumn:
    """Return the check of a column of a table or of a file.

    Args:
        given: The values; None if all are null.
        given_type: Their type.
    """
    type_text = spark_type(column.type)
    if given is None or given_type is None:
        return CheckedColumn(column, f.lit(None).cast(type_text))
    wanted = DataType.fromDDL(column.type)
    read = _for_cast(given, wanted) if isinstance(given_type, StringType) else given
    value = read if given_type.simpleString() == type_text else read.try_cast(type_text)
    wrong = _is_wrong(read, given_type, wanted)
    if isinstance(wanted, CharType):
        value = f.rtrim(value)
    if wrong is None:
        return CheckedColumn(column, value)
    problem = f.concat(
        f.lit(f"column {column.name}: '"),
        f.left(_shown(given, given_type), f.lit(_SHOWN)),
        f.lit(f"' is no {column.type}"),
    )
    return CheckedColumn(column, value, f.when(wrong, problem), f.when(wrong, given.cast("string")))


def _for_cast(text: SparkColumn, wanted: DataType) -> SparkColumn:
    """Return strings as Spark's cast reads them: it reads no slashes in dates, and no blanks that are too many."""
    if isinstance(wanted, VarcharType):
        return _without_surplus_blanks(text, wanted.length)
    return f.translate(text, "/", "-") if isinstance(wanted, DateType | TimestampType) else text


def _without_surplus_blanks(text: SparkColumn, length: int) -> SparkColumn:
    fits = (f.length(text) > length) & (f.length(f.rtrim(text)) <= length)
    return f.when(fits, f.left(text, f.lit(length))).otherwise(text)


def _shown(given: SparkColumn, given_type: DataType) -> SparkColumn:
    return f.coalesce(given.cast("string"), f.lit(given_type.simpleString()))


def first_problem(columns: Iterable[CheckedColumn]) -> SparkColumn | None:
    """Return the first problem of a row, null if it has none; None if no row can have a problem."""
    problems = [checked.problem for checked in columns if checked.problem is not None]
    return f.coalesce(*problems) if problems else None


def shaped_rows(table: Table, frame: DataFrame) -> tuple[DataFrame, list[CheckedColumn]]:
    """Return rows to write, and their conversion to the table's columns and then its partition keys.

    Args:
        frame: Rows with columns in any order and case. A missing column is null, unless it determines the partition.

    Returns:
        The rows with each given column under an internal name, and the checked columns over these.

    Raises:
        InvalidRowsError: The names are not the table's, or a column's type cannot be cast to the table's.
    """
    names = [name.lower() for name in frame.columns]
    columns = (*table.columns, *table.partition_keys)
    expected = [column.name for column in columns]
    wrong = {
        "twice": sorted({name for name in names if names.count(name) > 1}),
        "which the table does not have": [name for name in names if name not in expected],
        "which place the rows in partitions and are missing": [
            name for name in table.placing_columns if name not in names
        ],
    }
    if faults := [f"{', '.join(faulty)}, {what}" for what, faulty in wrong.items() if faulty]:
        raise InvalidRowsError(
            f"the rows for {table.full_name} have the columns {', '.join(names) or 'none'}: {'; '.join(faults)}. Use "
            f"the table's names: {', '.join(expected)}"
        )
    rows = frame.toDF(*[_GIVEN + name for name in names])
    types = {name: field.dataType for name, field in zip(names, frame.schema, strict=True)}
    checked_columns = [checked_column(column, _given(column.name, types), types.get(column.name)) for column in columns]
    try:
        rows.select(*[checked.value.alias(checked.column.name) for checked in checked_columns])
    except AnalysisException as error:
        checked = first_not_castable(rows, checked_columns)
        if checked is None:
            raise
        name = checked.column.name
        raise InvalidRowsError(
            f"column {name} of {table.full_name} has type {checked.column.type}, to which "
            f"{types[name].simpleString()} cannot be converted; cast it first"
        ) from error
    return rows, checked_columns


def _given(name: str, types: Mapping[str, DataType]) -> SparkColumn | None:
    return f.col(f"`{_GIVEN}{name}`") if name in types else None


def first_not_castable(rows: DataFrame, columns: Iterable[CheckedColumn]) -> CheckedColumn | None:
    """Return the first column whose type Spark cannot cast to the column's type; None if there is none."""
    for checked in columns:
        try:
            rows.select(checked.value)
        except AnalysisException:
            return checked
    return None


class RowCheck:
    """Counter of rows, and of those with values that do not fit, while Spark writes them."""

    def __init__(self, table: Table, problem: SparkColumn | None) -> None:
        """Use the result of `first_problem` for rows of a table."""
        self._table = table
        self._problem = problem
        self._observation = Observation()

    def observe(self, rows: DataFrame) -> DataFrame:
        """Return the rows with an observation, which counts them in the first job that reads them."""
        counts = [f.count(f.lit(1)).alias(_COUNT)]
        if self._problem is not None:
            counts += [f.count(self._problem).alias(_WRONG), f.max(self._problem).alias(_EXAMPLE)]
        return rows.observe(self._observation, *counts)

    def finish(self) -> int:
        """Return the number of rows, after they were written.

        Raises:
            InvalidRowsError: A value does not fit its column.
        """
        counts: Mapping[str, Any] = metrics(self._observation)
        if counts.get(_WRONG):
            raise InvalidRowsError(
                f"table {self._table.full_name}: {counts[_WRONG]:,} row(s) have values that do not fit their columns, "
                f"for instance {counts[_EXAMPLE]}; nothing was added. Correct the values, or cast them first"
            )
        return int(counts.get(_COUNT, 0))


# --- the rule -------------------------------------------------------------------------------------------------------


def _is_wrong(value: SparkColumn, given: DataType, wanted: DataType) -> SparkColumn | None:
    """Return whether a value of type `given` is not a value of type `wanted`; None if all values are."""
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
        # Spark casts fields of structs by position.
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
    conditions = [part for part in parts if part is not None]
    return reduce(lambda one, other: one | other, conditions) if conditions else None


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
    """Return whether type `wanted` has all values of type `given`."""
    if given == wanted or isinstance(wanted, StringType):
        return True
    if isinstance(given, DecimalType) and isinstance(wanted, DecimalType):
        digits = given.precision - given.scale, wanted.precision - wanted.scale
        return digits[0] <= digits[1] and given.scale <= wanted.scale
    if type(given) in _INTEGERS:
        # An integer becomes the nearest float or double, which the rule allows.
        is_wide = type(wanted) in _INTEGERS and _INTEGERS[type(given)] <= _INTEGERS[type(wanted)]
        return is_wide or isinstance(wanted, FloatType | DoubleType)
    return isinstance(given, FloatType) and isinstance(wanted, DoubleType)


def _is_changed(value: SparkColumn, typed: SparkColumn, given: DataType, wanted: DataType) -> SparkColumn | None:
    """Return whether a cast changes the meaning of a value."""
    if isinstance(given, StringType):
        return _is_other_text(value, typed, wanted)
    if isinstance(wanted, FloatType | DoubleType):
        infinity = f.lit(float("inf"))
        return (f.abs(typed) == infinity) & (f.abs(value) != infinity) if isinstance(given, DoubleType) else None
    if isinstance(given, NumericType) and isinstance(wanted, NumericType | BooleanType):
        return ~typed.try_cast(given).eqNullSafe(value)
    if isinstance(given, TimestampType | TimestampNTZType) and isinstance(wanted, DateType):
        return ~typed.cast(given).eqNullSafe(value)
    return None


def _is_other_text(text: SparkColumn, typed: SparkColumn, wanted: DataType) -> SparkColumn | None:
    """Return whether a string is no value of a type, or another one than Spark's cast of it."""
    spelling = _spelling(wanted)
    if spelling is None:
        return None
    # Most values have Spark's own spelling; matching a pattern takes longer than the comparison.
    is_unusual = text != typed.cast("string")
    is_moment = isinstance(wanted, TimestampType | TimestampNTZType)
    if is_moment or isinstance(wanted, DateType):
        # Spark also has years before these, and after 9999, which it writes with a sign.
        is_unusual |= text < ("0001" if is_moment else "0")
    is_unread = is_unusual & ~text.rlike(rf"^(?:{spelling})\z")
    if isinstance(wanted, DecimalType):
        return is_unread | (is_unusual & _has_more_decimals(text, wanted.scale))
    if isinstance(wanted, FloatType | DoubleType):
        is_infinite = f.abs(typed.cast("double")) == f.lit(float("inf"))
        return is_unread | (is_infinite & text.rlike("[0-9]"))
    return is_unread | text.rlike(r"\.[0-9]{6}[0-9]*[1-9]") if is_moment else is_unread


def _has_more_decimals(text: SparkColumn, scale: int) -> SparkColumn:
    """Return whether a decimal number has more digits after the point than a scale, without zeros at their end."""
    parts = r"^\s*[+-]?([0-9]*)\.?([0-9]*)(?:[eE]([+-]?[0-9]+))?"
    whole, fraction, exponent = (f.regexp_extract(text, parts, group) for group in (1, 2, 3))
    digits = f.concat(whole, fraction)
    significant = f.rtrim(digits, f.lit("0"))
    shift = f.coalesce(exponent.try_cast("int"), f.lit(0))
    decimals = f.length(fraction) - shift - (f.length(digits) - f.length(significant))
    return (f.length(significant) > 0) & (decimals > scale)


def _spelling(wanted: DataType) -> str | None:
    if isinstance(wanted, TimestampNTZType):
        # Spark's cast ignores a time zone.
        return KeyTimestampType.spelling
    known = parse_column_type(wanted.simpleString())
    return None if known is None else known.spelling
