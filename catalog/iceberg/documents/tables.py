"""Metadata of tables: the fields that every document has, and how files and answers have them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final
from uuid import uuid4

from catalog.errors import InvalidTableError
from catalog.iceberg.documents.schemas import FIRST_PARTITION_FIELD_ID, UNSORTED, Json

MAIN: Final = "main"
NAME_MAPPING: Final = "schema.name-mapping.default"
"""The table property with which readers resolve columns in files without field ids."""

DEFAULT_VERSION: Final = 2
HIGHEST_VERSION: Final = 3
LINEAGE_VERSION: Final = 3
"""The format version that introduced ids of rows."""


def normalised(document: Json) -> Json:
    """Return a table's metadata with the fields that earlier versions of the format left out.

    The given document stays as it is; the result shares its parts.

    Raises:
        InvalidTableError: A required field is missing, or the format version is unknown.
    """
    document = dict(document)
    version = check_version(document.get("format-version"))
    try:
        _complete(document)
        _add_lists(document)
    except KeyError as error:
        raise InvalidTableError(f"the metadata have no field {error}, which they need") from None
    except (TypeError, AttributeError, ValueError) as error:
        raise InvalidTableError(f"the metadata have a field of another type than expected: {error}") from None
    if version >= LINEAGE_VERSION:
        document.setdefault("next-row-id", 0)
    return document


def _complete(document: Json) -> None:
    """Add the lists of schemas, partition specs and orders, which the first version of the format did not have."""
    if not document.get("schemas"):
        document["schemas"] = [{"schema-id": 0, **document["schema"]}]
        document["current-schema-id"] = document["schemas"][0]["schema-id"]
    if not document.get("partition-specs"):
        fields = [
            {"field-id": FIRST_PARTITION_FIELD_ID + number, **field}
            for number, field in enumerate(document["partition-spec"])
        ]
        document["partition-specs"] = [{"spec-id": 0, "fields": fields}]
        document["default-spec-id"] = 0
    if document.get("last-partition-id") is None:
        document["last-partition-id"] = _last_partition_id(document["partition-specs"])
    if not document.get("sort-orders"):
        document["sort-orders"], document["default-sort-order-id"] = [dict(UNSORTED)], 0


def _add_lists(document: Json) -> None:
    """Add the fields that may be left out, and the main branch."""
    for name in ("snapshots", "snapshot-log", "metadata-log", "statistics", "partition-statistics"):
        document[name] = document.get(name) or []
    document["properties"], document["refs"] = document.get("properties") or {}, {**(document.get("refs") or {})}
    document.setdefault("last-sequence-number", 0)
    current = document.get("current-snapshot-id")
    if current in (None, -1):
        document["current-snapshot-id"] = None
    else:
        document["refs"].setdefault(MAIN, {"snapshot-id": current, "type": "branch"})


def empty(version: int = DEFAULT_VERSION) -> Json:
    """Return the document of a table that updates will define.

    Raises:
        InvalidTableError: The format version is unknown.
    """
    check_version(version)
    document: Json = {
        "format-version": version,
        "table-uuid": str(uuid4()),
        "location": None,
        "last-sequence-number": 0,
        "last-updated-ms": 0,
        "last-column-id": 0,
        "current-schema-id": 0,
        "schemas": [],
        "default-spec-id": 0,
        "partition-specs": [],
        "last-partition-id": FIRST_PARTITION_FIELD_ID - 1,
        "default-sort-order-id": 0,
        "sort-orders": [],
        "properties": {},
        "current-snapshot-id": None,
        "refs": {},
        "snapshots": [],
        "statistics": [],
        "partition-statistics": [],
        "snapshot-log": [],
        "metadata-log": [],
    }
    if version >= LINEAGE_VERSION:
        document["next-row-id"] = 0
    return document


def written(document: Json) -> Json:
    """Return a document as metadata files and answers have it: fields that readers of its version expect."""
    after = dict(document)
    version = after["format-version"]
    if version == 1:
        after["schema"] = by_id(after["schemas"], "schema-id", after["current-schema-id"])
        after["partition-spec"] = by_id(after["partition-specs"], "spec-id", after["default-spec-id"])["fields"]
        after.pop("last-sequence-number", None)
    if after["current-snapshot-id"] is None and version < LINEAGE_VERSION:
        after["current-snapshot-id"] = -1
    return after


def with_current_snapshots(document: Json) -> Json:
    """Return a document with only those snapshots that a branch or tag names; clients load the others when needed."""
    kept = {ref["snapshot-id"] for ref in document["refs"].values()}
    return {**document, "snapshots": [line for line in document["snapshots"] if line["snapshot-id"] in kept]}


def check_version(version: Any) -> int:
    """Return a format version after checking that it is supported.

    Raises:
        InvalidTableError: It is not.
    """
    if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version <= HIGHEST_VERSION:
        raise InvalidTableError(
            f"Unsupported format version: v{version} (supported: v{HIGHEST_VERSION}); choose 1 to {HIGHEST_VERSION}"
        )
    return version


def _last_partition_id(specs: Iterable[Json]) -> int:
    ids: list[int] = [field["field-id"] for spec in specs for field in spec["fields"]]
    return max([FIRST_PARTITION_FIELD_ID - 1, *ids])


def by_id(lines: Sequence[Json], key: str, chosen: int) -> Json:
    """Return the schema, spec or order with an id.

    Raises:
        InvalidTableError: There is none.
    """
    found = next((line for line in lines if line[key] == chosen), None)
    if found is None:
        raise InvalidTableError(f"the metadata have no {key} {chosen}, which they name as the current one")
    return found
