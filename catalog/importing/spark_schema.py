"""Columns of Spark's own tables, which Spark stores in table parameters if Hive cannot represent them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from catalog.model import Column

PROVIDER = "spark.sql.sources.provider"
_SCHEMA = "spark.sql.sources.schema"
_PLACEHOLDER = (("col", "array<string>"),)

_NAMES = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}
OWN_TYPE = "__CHAR_VARCHAR_TYPE_STRING"
"""The metadata field of Spark columns that contain a char or varchar: the complete type."""


def spark_provider(parameters: Mapping[str, str]) -> str | None:
    """Return Spark's name of the format of its own table, in lower case; None for Hive's tables."""
    provider = parameters.get(PROVIDER, "").lower()
    return provider if provider not in ("", "hive") else None


def real_columns(
    columns: tuple[Column, ...], keys: tuple[Column, ...], parameters: Mapping[str, str]
) -> tuple[Column, ...]:
    """Return the columns of a table's files: Spark's if Hive has only a placeholder, else Hive's.

    Source: Spark's `HiveExternalCatalog` (`DATASOURCE_SCHEMA`, `EMPTY_DATA_SCHEMA`).
    """
    if tuple((column.name, column.type) for column in columns) != _PLACEHOLDER or spark_provider(parameters) is None:
        return columns
    text = _schema_text(parameters)
    if text is None:
        return columns
    names = {key.name.lower() for key in keys}
    return tuple(_column(field) for field in json.loads(text)["fields"] if field["name"].lower() not in names)


def _schema_text(parameters: Mapping[str, str]) -> str | None:
    """Return the schema as JSON, joined from its parts if it is long."""
    if (whole := parameters.get(_SCHEMA)) is not None:
        return whole
    count = parameters.get(f"{_SCHEMA}.numParts")
    if count is None:
        return None
    return "".join(parameters[f"{_SCHEMA}.part.{number}"] for number in range(int(count)))


def _column(field: Mapping[str, Any]) -> Column:
    metadata = field.get("metadata", {})
    return Column(field["name"], metadata.get(OWN_TYPE) or _hive_type(field["type"]), metadata.get("comment"))


def _hive_type(spark_type: str | Mapping[str, Any]) -> str:
    """Return a type in Spark's JSON in Hive's notation."""
    if isinstance(spark_type, str):
        return _NAMES.get(spark_type, spark_type)
    match spark_type["type"]:
        case "array":
            return f"array<{_hive_type(spark_type['elementType'])}>"
        case "map":
            return f"map<{_hive_type(spark_type['keyType'])},{_hive_type(spark_type['valueType'])}>"
        case "struct":
            inner = (f"{field['name']}:{_hive_type(field['type'])}" for field in spark_type["fields"])
            return f"struct<{','.join(inner)}>"
        case other:
            return str(other)
