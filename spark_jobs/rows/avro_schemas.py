"""Schemas of Avro files, as Hive writes and reads them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

from pyspark.sql.types import ArrayType, CharType, DataType, DecimalType, MapType, StringType, StructType, VarcharType

from catalog.errors import UnsupportedFormatError

_PLAIN: dict[str, str | dict[str, str]] = {
    "string": "string",
    "binary": "bytes",
    "byte": "int",
    "short": "int",
    "integer": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-millis"},
}
_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")


def avro_schema(table: str, columns: Iterable[tuple[str, str]]) -> str:
    """Return the schema of a table's files, in which Hive finds each column.

    Hive takes any long for milliseconds, and the sizes of decimals and chars from the files.

    Args:
        table: For messages.
        columns: The name of each column in the files, and its type.

    Raises:
        UnsupportedFormatError: Avro does not have such a name or type.

    Source: Hive's `TypeInfoToSchema`.
    """
    numbers = count()
    fields = []
    for name, type_text in columns:
        try:
            fields.append(_field(name, DataType.fromDDL(type_text), numbers))
        except ValueError as error:
            raise UnsupportedFormatError(
                f"table {table} is stored as AVRO, which cannot have column {name} {type_text}: {error}; use a table "
                "of another format"
            ) from None
    return json.dumps({"type": "record", "name": "baseRecord", "fields": fields})


def _field(name: str, kind: DataType, numbers: Iterator[int]) -> dict[str, Any]:
    if not _NAME.fullmatch(name):
        raise ValueError(f"the name {name!r} does not consist of ASCII letters, digits and underscores")
    return {"name": name.lower(), "type": _nullable(kind, numbers), "default": None}


def _nullable(kind: DataType, numbers: Iterator[int]) -> list[Any]:
    return ["null", _type(kind, numbers)]


def _type(kind: DataType, numbers: Iterator[int]) -> str | dict[str, Any]:
    match kind:
        case CharType() | VarcharType():
            return {"type": "string", "logicalType": kind.typeName(), "maxLength": kind.length}
        case DecimalType():
            return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        case ArrayType():
            return {"type": "array", "items": _nullable(kind.elementType, numbers)}
        case MapType():
            if not isinstance(kind.keyType, StringType):
                raise ValueError(f"the keys of its maps are strings, not {kind.keyType.simpleString()}")
            return {"type": "map", "values": _nullable(kind.valueType, numbers)}
        case StructType():
            fields = [_field(field.name, field.dataType, numbers) for field in kind.fields]
            return {"type": "record", "name": f"record_{next(numbers)}", "fields": fields}
    if kind.typeName() not in _PLAIN:
        raise ValueError(f"there is no such type as {kind.simpleString()}")
    return _PLAIN[kind.typeName()]
