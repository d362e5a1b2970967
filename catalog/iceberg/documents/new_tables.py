"""The first metadata of a table, from a definition as clients of Iceberg's REST protocol send it."""

from __future__ import annotations

from collections.abc import Mapping

from catalog.iceberg.clock import now_ms
from catalog.iceberg.documents.placing import check_order_fields, check_spec_fields
from catalog.iceberg.documents.schemas import (
    FIRST_PARTITION_FIELD_ID,
    UNSORTED,
    Json,
    check_types,
    highest_id,
    with_fresh_ids,
    with_fresh_sources,
)
from catalog.iceberg.documents.shapes import check_schema, check_sort_order, check_spec, number_of
from catalog.iceberg.documents.tables import DEFAULT_VERSION, empty

_VERSION = "format-version"
_RESERVED = frozenset(
    (
        *(_VERSION, "uuid", "snapshot-count", "current-snapshot-summary", "current-snapshot-id"),
        *("current-snapshot-timestamp-ms", "current-schema", "default-partition-spec", "default-sort-order"),
    )
)
"""Properties that Iceberg's engines derive, and never store."""

_FOR_NEW_TABLES = {"write.parquet.compression-codec": "zstd"}
"""Properties that Iceberg's own catalogs set for new tables."""


def new_document(
    schema: Json, location: str, *, spec: Json | None, order: Json | None, properties: Mapping[str, str]
) -> Json:
    """Return the metadata of a new table without snapshots; the ids of columns count from 1.

    Args:
        spec: The partition spec; None for no partitions.
        order: The sort order; None for none.
        properties: `format-version` chooses the version, by default 2.

    Raises:
        InvalidTableError: A type is not in the format version, or a column of the spec or the order is missing.
        InvalidRequestError: The format version is not a number.
    """
    version = number_of(properties.get(_VERSION, str(DEFAULT_VERSION)), f"property {_VERSION}")
    document = empty(version)
    check_schema(schema)
    if spec is not None:
        check_spec(spec)
    if order is not None:
        check_sort_order(order)
    check_types(schema, version)
    fresh, new_ids = with_fresh_ids(schema)
    parts = with_fresh_sources(spec["fields"], new_ids) if spec else []
    parts = [{**field, "field-id": FIRST_PARTITION_FIELD_ID + number} for number, field in enumerate(parts)]
    sorting = with_fresh_sources(order["fields"], new_ids) if order else []
    check_spec_fields(parts, fresh)
    check_order_fields(sorting, fresh)
    sort_order = {**(order or {}), "order-id": 1, "fields": sorting} if sorting else dict(UNSORTED)
    kept = {name: value for name, value in properties.items() if name not in _RESERVED}
    return {
        **document,
        "location": location,
        "last-updated-ms": now_ms(),
        "last-column-id": highest_id(fresh),
        "current-schema-id": 0,
        "schemas": [fresh],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": parts}],
        "last-partition-id": FIRST_PARTITION_FIELD_ID + len(parts) - 1,
        "default-sort-order-id": sort_order["order-id"],
        "sort-orders": [sort_order],
        "properties": {**_FOR_NEW_TABLES, **kept},
    }
