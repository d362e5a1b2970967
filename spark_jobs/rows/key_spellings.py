"""One spelling for each value of a partition key: source files may write `1` and `01`, or `2024-6-1` and `2024-06-01`.

The spelling is the one that Spark writes for a value of the key's type. What is no value of the type stays as it is, so
that it is refused as it was written; so do numbers that Spark cannot cast exactly.
"""

from __future__ import annotations

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as f

from catalog.model.partition_names import NULL_TEXTS
from catalog.types.key_types import (
    BooleanType,
    CharType,
    DateType,
    DecimalType,
    FloatingType,
    IntegerType,
    KeyType,
    TimestampType,
)

_TIMESTAMP = r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6}0{0,3})?)?"
_DECIMAL = r"^\s*[+-]?([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})\s*$"
_WIDEST = "decimal(38,18)"


def canonical_key(value: SparkColumn, key_type: KeyType) -> SparkColumn:
    """Return the values of a key, as strings, each in one spelling.

    Args:
        value: The values as strings.
    """
    match key_type:
        case IntegerType():
            return _cast(value, key_type.spelling, value.try_cast(str(key_type)))
        case DateType():
            # As in a column, whose strings have more spellings than those of partitions.
            text = f.translate(value, "/", "-")
            return _cast(value, DateType.literal_spelling, text.try_cast("date"), text)
        case TimestampType():
            # Without a time zone, so that it does not depend on the session's.
            return _cast(value, _TIMESTAMP, value.try_cast("timestamp_ntz"))
        case FloatingType():
            # Adding 0.0 removes the sign of -0.0.
            number = value.try_cast(str(key_type)) + f.lit(0.0).cast(str(key_type))
            is_beyond = (f.abs(number) == f.lit(float("inf"))) & value.rlike("[0-9]")
            return _cast(value, key_type.spelling, f.when(~is_beyond, number))
        case DecimalType():
            number = value.try_cast(str(key_type))
            is_exact = number.cast(_WIDEST) == value.try_cast(_WIDEST)
            text = number.cast("string")
            return f.when(value.rlike(_DECIMAL) & is_exact & ~text.contains("E"), text).otherwise(value)
        case BooleanType():
            text = f.lower(f.trim(value))
            return f.when(text.isin("true", "false"), text).otherwise(value)
        case CharType():
            return f.rtrim(value)
    return value


def without_null_texts(value: SparkColumn) -> SparkColumn:
    """Return the values of a key, as strings; null for the strings that Hive reads as null."""
    return f.when(~value.isin(*NULL_TEXTS), value)


def _cast(value: SparkColumn, spelling: str, typed: SparkColumn, read: SparkColumn | None = None) -> SparkColumn:
    text = typed.cast("string")
    matched = value if read is None else read
    # Most values have the spelling already; matching a pattern takes longer than the comparison.
    return f.when((value != text) & matched.rlike(rf"^(?:{spelling})\z"), text).otherwise(value)
