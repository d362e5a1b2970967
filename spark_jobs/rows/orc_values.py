"""Values that would become others in ORC files.

Spark's writer of ORC uses Java's older dates and timestamps, whose calendar goes from 4 to 15 October 1582 in the time
zone of the process. In the last second before 1970, ORC has milliseconds and smaller parts as those of the second after
it. Timestamps without zone are written in another way, which has all values.

Source: Spark's `OrcSerializer`; ORC's `TimestampTreeWriter` and `TimestampTreeReader`.
"""

from __future__ import annotations

import re
from functools import reduce

from pyspark import SparkContext
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, DataType, DateType, MapType, StructType, TimestampType

from spark_jobs.sessions.java_classes import java_class

_WITH_TIMES = re.compile(r"\b(?:date|timestamp)\b")
_SECOND = 1_000_000
_LAST_MILLISECONDS = (-999_000, -1)
"""Microseconds since 1970, both inclusive."""


def is_changed_by_orc(value: SparkColumn, type_text: str) -> SparkColumn | None:
    """Return whether a value would become another one in an ORC file; None if no value of its type would.

    Args:
        type_text: The value's type for Spark.
    """
    return _is_changed(value, DataType.fromDDL(type_text)) if _WITH_TIMES.search(type_text) else None


def _is_changed(value: SparkColumn, kind: DataType) -> SparkColumn | None:
    """Return whether a value has one that ORC changes; None if no value of the type has one."""
    match kind:
        case DateType():
            return value.between(f.lit("1582-10-05").cast("date"), f.lit("1582-10-14").cast("date"))
        case TimestampType():
            moment = f.unix_micros(value)
            return moment.between(*_missing_days()) | moment.between(*_LAST_MILLISECONDS)
        case ArrayType(elementType=element):
            return _in_any(value, element)
        case MapType(keyType=key, valueType=inner):
            return _either(_in_any(f.map_keys(value), key), _in_any(f.map_values(value), inner))
        case StructType(fields=fields):
            return _either(*[_is_changed(value.getField(field.name), field.dataType) for field in fields])
    return None


def _in_any(values: SparkColumn, kind: DataType) -> SparkColumn | None:
    if _is_changed(f.lit(None).cast(kind), kind) is None:
        return None
    return f.exists(values, lambda value: f.coalesce(_is_changed(value, kind), f.lit(False)))  # type: ignore[arg-type]


def _either(*parts: SparkColumn | None) -> SparkColumn | None:
    conditions = [f.coalesce(part, f.lit(False)) for part in parts if part is not None]
    return reduce(lambda one, other: one | other, conditions) if conditions else None


def _missing_days() -> tuple[int, int]:
    """Return the first and the last microsecond, since 1970, of the days that Java's older calendar does not have."""
    context = SparkContext._active_spark_context
    assert context is not None
    zone = java_class(context, "java.time.ZoneId").systemDefault()
    date = java_class(context, "java.time.LocalDate")
    first, after = (date.of(1582, 10, day).atStartOfDay(zone).toEpochSecond() for day in (5, 15))
    return first * _SECOND, after * _SECOND - 1
