"""Columns of Spark's own tables, which Spark stores in table parameters if Hive cannot represent them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from catalog.model import Column

PROVIDER = "spark.sql.sources.provider"
SCHEMA = "spark.sql.sources.schema"
_PLACEHOLDER = (("col", "array<string>"),)

_NAMES = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}
_SPARK_NAMES = {name: spark_name for spark_name, name in _NAMES.items()}
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
    text = schema_text(parameters)
    if text is None:
        return columns
    names = {key.name.lower() for key in keys}
    return tuple(_column(field) for field in json.loads(text)["fields"] if field["name"].lower() not in names)


def spark_parameters(provider: str, columns: Iterable[Column], keys: Iterable[Column]) -> dict[str, str]:
    """Return the parameters that make a table one of Spark's own, whose types are not nested.

    Source: Spark's `HiveExternalCatalog.tableMetaToTableProps`.
    """
    keys = tuple(keys)
    schema = {"type": "struct", "fields": [_spark_field(column) for column in (*columns, *keys)]}
    named = {f"{SCHEMA}.partCol.{number}": key.name for number, key in enumerate(keys)}
    return {
        PROVIDER: provider,
        SCHEMA: json.dumps(schema, separators=(",", ":"), ensure_ascii=False),
        "spark.sql.partitionProvider": "catalog" if keys else "filesystem",
        **({f"{SCHEMA}.numPartCols": str(len(keys)), **named} if keys else {}),
    }


def _spark_field(column: Column) -> dict[str, Any]:
    is_sized = column.type.startswith(("char(", "varchar("))
    metadata = {OWN_TYPE: column.type} if is_sized else {}
    if column.comment is not None:
        metadata["comment"] = column.comment
    spark_type = "string" if is_sized else _SPARK_NAMES.get(column.type, column.type)
    return {"name": column.name, "type": spark_type, "nullable": True, "metadata": metadata}


def schema_text(parameters: Mapping[str, str]) -> str | None:
    """Return the schema as JSON, joined from its parts if it is long."""
    if (whole := parameters.get(SCHEMA)) is not None:
        return whole
    count = parameters.get(f"{SCHEMA}.numParts")
    if count is None:
        return None
    return "".join(parameters[f"{SCHEMA}.part.{number}"] for number in range(int(count)))


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
