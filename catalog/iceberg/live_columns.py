"""Columns of tables whose contents only Iceberg's metadata describe, as statements use them.

The catalog keeps the definition of the former Hive table, which a revert restores; engines may have changed the columns
and the partition spec since. The metadata are read as JSON, because PyIceberg does not know all types of version 3.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from catalog.errors import InvalidRequestError, MissingFileError, StorageError, UnreadableMetadataError
from catalog.iceberg.documents.files import read_document
from catalog.iceberg.documents.schemas import Json, sources_of
from catalog.iceberg.documents.shapes import check_schema, check_spec
from catalog.iceberg.documents.tables import by_id, normalised
from catalog.iceberg.pointers import require_metadata
from catalog.model import Column, FileFormat, Table

log = logging.getLogger(__name__)

_NAMES: Final = {
    "int": "int",
    "long": "bigint",
    "timestamptz": "timestamp",
    "timestamp": "timestamp_ntz",
    "uuid": "string",
}
"""Names that differ from Iceberg's own; for types that Spark does not have, those that it reads and writes."""

_TOTALS: Final = {"numFiles": "total-data-files", "numRows": "total-records", "totalSize": "total-files-size"}
"""Statistics of a metastore → the totals in a snapshot's summary."""

_LONGEST_PARAMETER: Final = 32_672
"""The longest value that Iceberg writes into a metastore. Source: `iceberg.hive.table-property-max-size`."""


def with_live_columns(table: Table) -> Table:
    """Return an Iceberg table with the columns and partition keys of its current metadata.

    A column is a partition key if the partition spec has its values as they are, and if no column after it is none:
    the keys of a migrated table are its last columns.

    Raises:
        TableNotFoundError: Another engine has dropped the table.
        UnreadableMetadataError: The metadata are missing or damaged.
        StorageError: Their storage does not answer.
    """
    return _with_columns(table, _metadata(table))


def metastore_parameters(table: Table) -> dict[str, str]:
    """Return what a metastore keeps of the current metadata in the parameters of an Iceberg table.

    Raises:
        TableNotFoundError, UnreadableMetadataError, StorageError: As for `with_live_columns`.

    Source: `HMSTablePropertyHelper` of Apache Iceberg, which leaves out texts that are too long for a metastore.
    """
    return dict(_parameters(table.full_name, require_metadata(table)))


@lru_cache(maxsize=64)
def _parameters(name: str, location: str) -> dict[str, str]:
    document = _read(name, location)
    spec, order = _spec(document), by_id(document["sort-orders"], "order-id", document["default-sort-order-id"])
    parameters = {
        "current-schema": _json(_schema(document)),
        "snapshot-count": str(len(document["snapshots"])),
        **({"uuid": document["table-uuid"]} if document.get("table-uuid") else {}),
        **({"default-partition-spec": _json(spec)} if spec["fields"] else {}),
        **({"default-sort-order": _json(order)} if order["fields"] else {}),
    }
    current = document["current-snapshot-id"]
    if current is not None:
        snapshot = by_id(document["snapshots"], "snapshot-id", current)
        summary = {key: value for key, value in (snapshot.get("summary") or {}).items() if key != "operation"}
        parameters |= {
            "current-snapshot-id": str(current),
            "current-snapshot-timestamp-ms": str(snapshot["timestamp-ms"]),
            "current-snapshot-summary": _json(summary),
            **{name: summary[total] for name, total in _TOTALS.items() if total in summary},
        }
    return {name: text for name, text in parameters.items() if len(text) <= _LONGEST_PARAMETER}


def _json(value: Json) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _metadata(table: Table) -> Json:
    return _read(table.full_name, require_metadata(table))


def _read(name: str, location: str) -> Json:
    try:
        document = normalised(read_document(location))
        check_schema(_schema(document))
        check_spec(_spec(document))
    except (MissingFileError, InvalidRequestError, ValueError) as error:
        raise UnreadableMetadataError(name, location, str(error).split("\n")[0]) from error
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
        TableNotFoundError, UnreadableMetadataError, StorageError: As for `with_live_columns`.
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


def as_engines_see_it(table: Table) -> Table:
    """Return an Iceberg table as its current metadata describe it, or as the catalog has it if they cannot be read.

    Raises:
        TableNotFoundError: Another engine has dropped the table.
    """
    try:
        return with_live_definition(table) if table.is_only_iceberg else with_live_columns(table)
    except (UnreadableMetadataError, StorageError) as error:
        log.warning("%s", error)
        return table


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
