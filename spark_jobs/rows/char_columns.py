"""Columns of type char(n) as in Spark's own tables: padded with blanks to n.

Values in files have trailing blanks or not, depending on the writer. Spark pads a literal, or a shorter char, that it
compares with such a column.

Source: Spark's `ApplyCharTypePadding` and `CharVarcharUtils`.
"""

from __future__ import annotations

import re

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, CharType, DataType, MapType, StructType

from catalog import Table
from catalog.model import Column
from catalog.tables.spark_schema import OWN_TYPE

_CHAR = re.compile(r"\bchar\s*\(", re.IGNORECASE)


def char_metadata(column: Column) -> dict[str, str]:
    """Return the metadata that marks a column as a char, or with a nested char, for Spark; empty for others."""
    return {OWN_TYPE: column.type} if _CHAR.search(column.type) else {}


def with_padded_chars(frame: DataFrame, table: Table) -> DataFrame:
    """Return the rows of a table with chars padded to their length; the frame itself if the table has no chars.

    Args:
        frame: Rows with the table's columns, then its partition keys, and perhaps others.
    """
    columns = (*table.columns, *table.partition_keys)
    if not any(map(char_metadata, columns)):
        return frame
    others = frame.columns[len(columns) :]
    return frame.select(*map(_padded_column, columns), *[f.col(f"`{name}`") for name in others])


def _padded_column(column: Column) -> SparkColumn:
    value, metadata = f.col(f"`{column.name}`"), char_metadata(column)
    return _padded(value, DataType.fromDDL(column.type)).alias(column.name, metadata=metadata) if metadata else value


def _padded(value: SparkColumn, of_type: DataType) -> SparkColumn:
    match of_type:
        case CharType(length=length):
            return f.when(f.length(value) < length, f.rpad(value, length, " ")).otherwise(value)
        case ArrayType(elementType=element):
            return f.transform(value, lambda item: _padded(item, element))
        case MapType(keyType=key, valueType=inner):
            keys = _padded(f.map_keys(value), ArrayType(key))
            return f.map_from_arrays(keys, _padded(f.map_values(value), ArrayType(inner)))
        case StructType(fields=fields):
            parts = [_padded(value[field.name], field.dataType).alias(field.name) for field in fields]
            return f.when(value.isNotNull(), f.struct(*parts))
    return value
