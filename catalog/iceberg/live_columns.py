"""Columns of tables whose contents only Iceberg's metadata describe, as statements use them.

The catalog keeps the definition of the former Hive table, which a revert restores; engines may have changed the columns
and the partition spec since. The metadata are read as JSON, because PyIceberg does not know all types of version 3.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from catalog.errors import InvalidRequestError, StorageError, UnreadableMetadataError
from catalog.iceberg.documents.files import read_document
from catalog.iceberg.documents.schemas import Json, sources_of
from catalog.iceberg.documents.shapes import check_schema, check_spec
from catalog.iceberg.documents.tables import by_id, normalised
from catalog.iceberg.pointers import require_metadata
from catalog.model import Column, FileFormat, Table

_NAMES: Final = {
    "int": "int",
    "long": "bigint",
    "timestamptz": "timestamp",
    "timestamp": "timestamp_ntz",
    "uuid": "string",
}
"""Names that differ from Iceberg's own; for types that Spark does not have, those that it reads and writes."""


def with_live_columns(table: Table) -> Table:
    """Return an Iceberg table with the columns and partition keys of its current metadata.

    A column is a partition key if the partition spec has its values as they are, and if no column after it is none:
    the keys of a migrated table are its last columns.

    Raises:
        TableNotFoundError: Another engine has dropped the table.
        UnreadableMetadataError: The metadata cannot be read.
    """
    return _with_columns(table, _metadata(table))


def _metadata(table: Table) -> Json:
    location = require_metadata(table)
    try:
        document = normalised(read_document(location))
        check_schema(_schema(document))
        check_spec(_spec(document))
    except (StorageError, InvalidRequestError, OSError, ValueError) as error:
        raise UnreadableMetadataError(table.full_name, location, str(error).split("\n")[0]) from error
    return document


def _schema(document: Json) -> Json:
    return by_id(document["schemas"], "schema-id", document["current-schema-id"])


def _spec(document: Json) -> Json:
    return by_id(document["partition-specs"], "spec-id", document["default-spec-id"])


def _with_columns(table: Table, document: Json) -> Table:
    fields = _schema(document)["fields"]
    sources = _identity_sources(document)
    columns = [
        Column(field["name"].lower(), _type_text(field["type"]), field.get("doc"), field["id"]) for field in fields
    ]
    first = len(columns)
    while first and columns[first - 1].id in sources and isinstance(fields[first - 1]["type"], str):
        first -= 1
    return replace(table, columns=tuple(columns[:first]), partition_keys=tuple(columns[first:]))


def with_live_definition(table: Table) -> Table:
    """Return an Iceberg table that an engine made as its current metadata define it.

    Raises:
        TableNotFoundError, UnreadableMetadataError: As for `with_live_columns`.
    """
    document = _metadata(table)
    properties: dict[str, str] = dict(document["properties"])
    words = {form.value: form for form in (FileFormat.PARQUET, FileFormat.ORC, FileFormat.AVRO)}
    return replace(
        _with_columns(table, document),
        location=document["location"],
        properties=properties,
        description=properties.get("comment"),
        format=words.get(properties.get("write.format.default", "").lower(), FileFormat.PARQUET),
    )


def _identity_sources(document: Json) -> set[int]:
    """Return the ids of the columns whose values are those of the partitions."""
    fields = _spec(document)["fields"]
    return {source for field in fields if field["transform"] == "identity" for source in sources_of(field)}


def _type_text(kind: Any) -> str:
    """Return the name of a type in statements; of one that they do not have, Iceberg's name."""
    if isinstance(kind, str):
        if kind.startswith("decimal"):
            return kind.replace(" ", "")
        return "binary" if kind.startswith("fixed") else _NAMES.get(kind, kind)
    match kind["type"]:
        case "list":
            return f"array<{_type_text(kind['element'])}>"
        case "map":
            return f"map<{_type_text(kind['key'])},{_type_text(kind['value'])}>"
    parts = (f"`{part['name']}`:{_type_text(part['type'])}" for part in kind["fields"])
    return f"struct<{','.join(parts)}>"
