"""Columns of statements: what SELECT returns as columns of a table, and literals as values of columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import NullType, StructField

from catalog.errors import InvalidIdentifierError, InvalidQueryError, InvalidRowsError, InvalidTableError
from catalog.model import Column, Table
from catalog.model.identifiers import normalise_identifier
from catalog.types.column_types import named_column_type, parse_column_type
from catalog.types.key_types import StringType


def table_column(field: StructField, query: str) -> Column:
    """Return a column of a SELECT as one of a table.

    Raises:
        InvalidQueryError: No column of a table can have its name or its type.
    """
    type_text = field.dataType.simpleString()
    try:
        name = normalise_identifier(field.name, "column")
        # A type of the catalog, for tables that others have created, but no file has a column without a type.
        named_column_type(name, "none" if isinstance(field.dataType, NullType) else type_text)
    except InvalidIdentifierError:
        raise InvalidQueryError(
            f"column {field.name!r} of the SELECT has a name that no column of a table can have; give it one with AS",
            query,
        ) from None
    except InvalidTableError:
        raise InvalidQueryError(
            f"column {field.name} of the SELECT has the type {type_text}, which no column of a table can have; convert "
            f"it: CAST({field.name} AS string) AS {field.name}",
            query,
        ) from None
    return Column(name, type_text)


def from_text(text: SparkColumn, column: Column) -> SparkColumn:
    """Return the typed value of a string that was checked before."""
    if column.type == "binary":
        return f.unhex(text).alias(column.name)
    if parse_column_type(column.type) is None:
        # Literals of other types can only be null.
        return f.lit(None).cast(column.type).alias(column.name)
    is_text = isinstance(parse_column_type(column.type), StringType)
    return text.cast("string" if is_text else column.type).alias(column.name)


def as_rows_of(table: Table, frame: DataFrame, columns: Sequence[str], values: Mapping[str, str | None]) -> DataFrame:
    """Return the rows of a SELECT with the columns of a table.

    Args:
        columns: The columns of the table that those of the SELECT are for, in order; the others are null. Empty for all
            but those with constant values.
        values: Column → its constant value.

    Raises:
        InvalidRowsError: The SELECT has another number of columns.
    """
    types = {column.name: column.type for column in (*table.columns, *table.partition_keys)}
    given = list(columns) or [name for name in types if name not in values]
    if len(frame.columns) != len(given):
        raise InvalidRowsError(
            f"the SELECT has {len(frame.columns)} columns ({', '.join(frame.columns)}) for {len(given)} of "
            f"{table.full_name} ({', '.join(given)}); select exactly one for each"
        )
    nulls = {name: f.lit(None).cast(type_text) for name, type_text in types.items() if name not in given}
    fixed = {name: f.lit(value).cast("string") for name, value in values.items()}
    return frame.toDF(*given).withColumns({**nulls, **fixed}).select(*[f.col(f"`{name}`") for name in types])
