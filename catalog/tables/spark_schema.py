"""Columns of the tables that Spark has created, which Spark stores in table parameters and reads from there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from catalog.model import Column
from catalog.tables.columns import TableColumns, parts_of_type

PROVIDER = "spark.sql.sources.provider"
SCHEMA = "spark.sql.sources.schema"
_SCHEMA_TEXT = re.compile(re.escape(SCHEMA) + r"(\.numParts|\.part\.[0-9]+)?")
_COLUMN_LISTS = re.compile(re.escape(SCHEMA) + r"\.(part|bucket|sort)Col\.[0-9]+")
_STATISTICS = re.compile(r"spark\.sql\.statistics\.colStats\.(.+)\.[A-Za-z]+")
_LONGEST = 4_000
"""The length of a parameter in Hive's metastore, into whose size Spark divides a schema."""

_PLACEHOLDER = (("col", "array<string>"),)

_SIZED = re.compile(r"\b(char|varchar)\(")
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
    """Return the parameters that make a table one of Spark's own.

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
    metadata = {OWN_TYPE: column.type} if _SIZED.search(column.type) else {}
    if column.comment is not None:
        metadata["comment"] = column.comment
    return {"name": column.name, "type": _spark_type(column.type), "nullable": True, "metadata": metadata}


def _spark_type(text: str) -> str | dict[str, Any]:
    """Return a type in Hive's notation as Spark's JSON has it; the inverse of `_hive_type`, but for sized strings."""
    kind, parts = parts_of_type(text)
    match kind:
        case "array":
            return {"type": "array", "elementType": _spark_type(parts[0]), "containsNull": True}
        case "map":
            key, value = map(_spark_type, parts)
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
        case "struct":
            named = [part.partition(":") for part in parts]
            fields = [
                {"name": name.strip().strip("`"), "type": _spark_type(part), "nullable": True, "metadata": {}}
                for name, _, part in named
            ]
            return {"type": "struct", "fields": fields}
    return "string" if _SIZED.match(kind) else _SPARK_NAMES.get(kind, kind)


def with_spark_schema(parameters: Mapping[str, str], before: TableColumns, after: TableColumns) -> dict[str, str]:
    """Return the parameters of a table after a change of its columns; unchanged if Spark has not created it.

    Columns that stay as they are keep what only Spark knows of them, such as defaults. Spark's statistics of columns
    that have another name or type, or are dropped, are removed.

    Source: Spark's `HiveExternalCatalog.tableMetaToTableProps`, and `CatalogTable.splitLargeTableProp`.
    """
    text = schema_text(parameters)
    if text is None or (before.columns, before.keys) == (after.columns, after.keys):
        return dict(parameters)
    known = {field["name"].lower(): field for field in json.loads(text)["fields"]}
    old = {column.id: column for column in (*before.columns, *before.keys)}
    fields = [_changed_field(known, old.get(column.id), column) for column in (*after.columns, *after.keys)]
    names = {old[column.id].name: column.name for column in (*after.columns, *after.keys) if column.id in old}
    same = {column.name for column in (*after.columns, *after.keys) if old.get(column.id) == column}
    changed = {}
    for name, value in parameters.items():
        if (match := _COLUMN_LISTS.fullmatch(name)) is not None:
            value = names.get(value.lower(), value)
        elif (match := _STATISTICS.match(name)) is not None and match[1].lower() not in same:
            continue
        if not _SCHEMA_TEXT.fullmatch(name):
            changed[name] = value
    return {**changed, **_stored_schema({"type": "struct", "fields": fields})}


def _changed_field(known: Mapping[str, dict[str, Any]], old: Column | None, new: Column) -> dict[str, Any]:
    field = _spark_field(new)
    same = None if old is None else known.get(old.name)
    if old is None or same is None:
        return field
    metadata = {name: value for name, value in same.get("metadata", {}).items() if name not in ("comment", OWN_TYPE)}
    return {
        **same,
        "name": same["name"] if old.name == new.name else new.name,
        "type": same["type"] if old.type == new.type else field["type"],
        "metadata": {**metadata, **field["metadata"]},
    }


def _stored_schema(schema: Mapping[str, Any]) -> dict[str, str]:
    text = json.dumps(schema, separators=(",", ":"), ensure_ascii=False)
    if len(text) <= _LONGEST:
        return {SCHEMA: text}
    parts = [text[start : start + _LONGEST] for start in range(0, len(text), _LONGEST)]
    stored = {f"{SCHEMA}.part.{number}": part for number, part in enumerate(parts)}
    return {f"{SCHEMA}.numParts": str(len(parts)), **stored}


def column_defaults(parameters: Mapping[str, str]) -> dict[str, str]:
    """Return the columns that Spark gives a default in rows without them, each with the default as an expression.

    Source: Spark's `ResolveDefaultColumnsUtils.CURRENT_DEFAULT_COLUMN_METADATA_KEY`.
    """
    fields = json.loads(schema_text(parameters) or '{"fields": []}')["fields"]
    defaults = {field["name"].lower(): field.get("metadata", {}).get("CURRENT_DEFAULT") for field in fields}
    return {name: text for name, text in defaults.items() if text is not None}


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
