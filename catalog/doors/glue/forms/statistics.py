"""Statistics of columns as Glue describes them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from catalog.doors.entries.kept import GLUE
from catalog.doors.glue.failures import invalid_input
from catalog.metastores.types import HiveStatistics

_DAY = 86_400
_DATA = "StatisticsData"
_EXACT = ("AnalyzedTime", _DATA)
_COUNTS = {
    "NumberOfNulls": "nulls",
    "NumberOfDistinctValues": "distinct",
    "NumberOfTrues": "trues",
    "NumberOfFalses": "falses",
    "MaximumLength": "maximum_length",
    "AverageLength": "average_length",
}
_BOUNDS = {"MinimumValue": "low", "MaximumValue": "high"}
_RANGE = ("NumberOfNulls", "NumberOfDistinctValues")


class _Kind(NamedTuple):
    """A kind of statistics: its data's member in Glue, the required members of that, and how bounds are converted."""

    data: str
    required: tuple[str, ...]
    read: Callable[[Any], Any] | None = None
    write: Callable[[Any], Any] | None = None


def _read_decimal(given: Mapping[str, Any]) -> str:
    unscaled = int.from_bytes(base64.b64decode(given["UnscaledValue"]), signed=True)
    return format(Decimal(unscaled).scaleb(-given["Scale"]), "f")


def _write_decimal(text: str) -> dict[str, Any]:
    try:
        sign, digits, exponent = Decimal(text).as_tuple()
        unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
        scale = -int(exponent)
    except (InvalidOperation, ValueError):
        return {"UnscaledValue": "AA==", "Scale": 0}
    raw = unscaled.to_bytes((8 + (unscaled + (unscaled < 0)).bit_length()) // 8, signed=True)
    return {"UnscaledValue": base64.b64encode(raw).decode(), "Scale": scale}


_KINDS = {
    "BOOLEAN": _Kind("BooleanColumnStatisticsData", ("NumberOfTrues", "NumberOfFalses", "NumberOfNulls")),
    "DATE": _Kind("DateColumnStatisticsData", _RANGE, lambda second: int(second // _DAY), lambda day: day * _DAY),
    "DECIMAL": _Kind("DecimalColumnStatisticsData", _RANGE, _read_decimal, _write_decimal),
    "DOUBLE": _Kind("DoubleColumnStatisticsData", _RANGE, float, float),
    "LONG": _Kind("LongColumnStatisticsData", _RANGE, int, int),
    "STRING": _Kind("StringColumnStatisticsData", ("MaximumLength", "AverageLength", *_RANGE)),
    "BINARY": _Kind("BinaryColumnStatisticsData", ("MaximumLength", "AverageLength", "NumberOfNulls")),
}
_OF_HIVE = {"timestamp": "LONG"}
"""Kind of the neutral form → type in Glue, where it is not the same word."""


def statistics_from_glue(given: Mapping[str, Any]) -> HiveStatistics:
    """Return the statistics of a column, given a `ColumnStatistics`.

    Raises:
        GlueError: They have no data of their type.
    """
    kind_name = given[_DATA]["Type"]
    kind = _KINDS[kind_name]
    data = given[_DATA].get(kind.data)
    if data is None:
        raise invalid_input(f"the statistics of column {given['ColumnName']} are {kind_name}, but have no {kind.data}")
    values = {field: data[member] for member, field in _COUNTS.items() if member in data}
    if kind.read is not None:
        values |= {field: kind.read(data[member]) for member, field in _BOUNDS.items() if member in data}
    statistics = HiveStatistics(
        column=given["ColumnName"],
        type=given["ColumnType"],
        kind=kind_name.lower(),
        analysed_at=int(given["AnalyzedTime"]),
        **values,
    )
    shown = statistics_to_glue(statistics)
    exact = {name: given[name] for name in _EXACT if given[name] != shown[name]}
    return HiveStatistics(**{**_fields(statistics), "extra": {GLUE: exact}}) if exact else statistics


def _fields(statistics: HiveStatistics) -> dict[str, Any]:
    return {name: getattr(statistics, name) for name in statistics.__dataclass_fields__}


def statistics_to_glue(statistics: HiveStatistics) -> dict[str, Any]:
    """Return the `ColumnStatistics` of a column; counts that are not known are 0."""
    kind_name = _OF_HIVE.get(statistics.kind, statistics.kind.upper())
    kind = _KINDS[kind_name]
    data: dict[str, Any] = {}
    for member, field in _COUNTS.items():
        if member in kind.required:
            data[member] = getattr(statistics, field) or 0
    for member, field in _BOUNDS.items():
        value = getattr(statistics, field)
        if kind.write is not None and value is not None:
            data[member] = kind.write(value)
    return {
        "ColumnName": statistics.column,
        "ColumnType": statistics.type,
        "AnalyzedTime": statistics.analysed_at or 0,
        _DATA: {"Type": kind_name, kind.data: data},
        **statistics.extra.get(GLUE, {}),
    }
