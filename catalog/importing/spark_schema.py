"""The columns of Spark's own tables, which stand in the table's parameters where Hive cannot hold them."""

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
"""Metadata of a column of Spark's that is, or has, a char or varchar: its whole type."""


def spark_provider(parameters: Mapping[str, str]) -> str | None:
    """Return what Spark calls the format of a table of its own, in lower case; None for Hive's tables."""
    provider = parameters.get(PROVIDER, "").lower()
    return provider if provider not in ("", "hive") else None


def real_columns(
    columns: tuple[Column, ...], keys: tuple[Column, ...], parameters: Mapping[str, str]
) -> tuple[Column, ...]:
    """Return the columns of a table's files: those that Hive has, or Spark's, where Hive only has a placeholder.

    Source: Spark's `HiveExternalCatalog` (`DATASOURCE_SCHEMA`, `EMPTY_DATA_SCHEMA`).
    """
    if tuple((column.name, column.type) for column in columns) != _PLACEHOLDER or spark_provider(parameters) is None:
        return columns
    text = _schema_text(parameters)
    if text is None:
        return columns
    names = {key.name.lower() for key in keys}
    return tuple(_column(each) for each in json.loads(text)["fields"] if each["name"].lower() not in names)


def _schema_text(parameters: Mapping[str, str]) -> str | None:
    """Return the schema as JSON, which long ones are cut into parts of."""
    if (whole := parameters.get(_SCHEMA)) is not None:
        return whole
    count = parameters.get(f"{_SCHEMA}.numParts")
    if count is None:
        return None
    return "".join(parameters[f"{_SCHEMA}.part.{number}"] for number in range(int(count)))


def _column(field: Mapping[str, Any]) -> Column:
    metadata = field.get("metadata", {})
    return Column(field["name"], metadata.get(OWN_TYPE) or _hive_type(field["type"]), metadata.get("comment"))


def _hive_type(found: str | Mapping[str, Any]) -> str:
    """Return a type of Spark's JSON as Hive writes it."""
    if isinstance(found, str):
        return _NAMES.get(found, found)
    match found["type"]:
        case "array":
            return f"array<{_hive_type(found['elementType'])}>"
        case "map":
            return f"map<{_hive_type(found['keyType'])},{_hive_type(found['valueType'])}>"
        case "struct":
            inner = (f"{each['name']}:{_hive_type(each['type'])}" for each in found["fields"])
            return f"struct<{','.join(inner)}>"
        case other:
            return str(other)
