"""Column statistics as Thrift's structures, and back; and their aggregation."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from hive_metastore import ttypes

from catalog.doors.hms.exceptions import MissingArgumentException
from catalog.metastores.types import HiveStatistics

_BITS = "bit_vectors"
_CLASSES: dict[str, tuple[str, Any]] = {
    "boolean": ("booleanStats", ttypes.BooleanColumnStatsData),
    "long": ("longStats", ttypes.LongColumnStatsData),
    "double": ("doubleStats", ttypes.DoubleColumnStatsData),
    "string": ("stringStats", ttypes.StringColumnStatsData),
    "binary": ("binaryStats", ttypes.BinaryColumnStatsData),
    "decimal": ("decimalStats", ttypes.DecimalColumnStatsData),
    "date": ("dateStats", ttypes.DateColumnStatsData),
    "timestamp": ("timestampStats", ttypes.TimestampColumnStatsData),
}
_FIELDS = {
    "nulls": "numNulls",
    "distinct": "numDVs",
    "low": "lowValue",
    "high": "highValue",
    "maximum_length": "maxColLen",
    "average_length": "avgColLen",
    "trues": "numTrues",
    "falses": "numFalses",
}
"""Our name of a number → Thrift's; a kind of statistics has some of them."""


def statistics_from(entry: Any) -> HiveStatistics:
    """Return the statistics of a column that a client sends.

    Raises:
        MissingArgumentException: The column or the statistics are missing.
    """
    data = entry.statsData
    if not entry.colName or data is None:
        raise MissingArgumentException("column of some statistics, or what is known of it")
    kinds = [kind for kind, (field, _) in _CLASSES.items() if getattr(data, field) is not None]
    if not kinds:
        raise MissingArgumentException(f"statistics of column {entry.colName}")
    kind = kinds[0]
    given = getattr(data, _CLASSES[kind][0])
    values = {name: _value_from(kind, getattr(given, thrift, None)) for name, thrift in _FIELDS.items()}
    extra = {_BITS: b64encode(given.bitVectors).decode()} if given.bitVectors else {}
    column_type = (entry.colType or "").lower()
    return HiveStatistics(column=entry.colName.lower(), type=column_type, kind=kind, extra=extra, **values)


def to_statistics(statistics: HiveStatistics) -> Any:
    """Return the statistics of a column as clients get them."""
    field, data_class = _CLASSES[statistics.kind]
    known = {member[2] for member in data_class.thrift_spec if member is not None}
    values = {
        thrift: _to_value(statistics.kind, name, getattr(statistics, name))
        for name, thrift in _FIELDS.items()
        if thrift in known
    }
    if _BITS in statistics.extra:
        values["bitVectors"] = b64decode(statistics.extra[_BITS])
    data = ttypes.ColumnStatisticsData(**{field: data_class(**values)})
    return ttypes.ColumnStatisticsObj(colName=statistics.column, colType=statistics.type, statsData=data)


def aggregated(statistics: Sequence[HiveStatistics]) -> HiveStatistics:
    """Return the statistics of one column over several partitions.

    Of distinct values, the greatest number of any partition is the least that there are in all of them.
    """
    first = statistics[0]

    def over(name: str, join: Any) -> Any:
        values = [value for part in statistics if (value := getattr(part, name)) is not None]
        return join(values) if values else None

    def bound(name: str, join: Any) -> Any:
        if first.kind != "decimal":
            return over(name, join)
        return over(name, lambda values: join(values, key=Decimal))

    return replace(
        first,
        nulls=over("nulls", sum),
        distinct=over("distinct", max),
        low=bound("low", min),
        high=bound("high", max),
        maximum_length=over("maximum_length", max),
        average_length=over("average_length", max),
        trues=over("trues", sum),
        falses=over("falses", sum),
        extra={},
    )


def merged(new: Iterable[HiveStatistics], old: Iterable[HiveStatistics]) -> list[HiveStatistics]:
    """Return new statistics of columns, joined with the old ones of the same columns and kinds."""
    known = {(part.column, part.kind): part for part in old}
    return [
        aggregated([part, known[part.column, part.kind]]) if (part.column, part.kind) in known else part for part in new
    ]


def _value_from(kind: str, value: Any) -> Any:
    if value is None or kind not in ("decimal", "date", "timestamp"):
        return value
    match value:
        case ttypes.Decimal():
            unscaled = int.from_bytes(value.unscaled or b"\0", "big", signed=True)
            return str(Decimal(unscaled).scaleb(-(value.scale or 0)))
        case ttypes.Date():
            return value.daysSinceEpoch
        case ttypes.Timestamp():
            return value.secondsSinceEpoch
    return value


def _to_value(kind: str, name: str, value: Any) -> Any:
    if value is None or name not in ("low", "high"):
        return value
    if kind == "date":
        return ttypes.Date(daysSinceEpoch=value)
    if kind == "timestamp":
        return ttypes.Timestamp(secondsSinceEpoch=value)
    if kind == "decimal":
        number = Decimal(str(value))
        scale = max(0, -int(number.as_tuple().exponent))
        unscaled = int(number.scaleb(scale))
        size = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
        return ttypes.Decimal(unscaled=unscaled.to_bytes(size, "big", signed=True), scale=scale)
    return float(value) if kind == "double" else value
