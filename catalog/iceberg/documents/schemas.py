"""Schemas, partition specs and sort orders in Iceberg's JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from catalog.errors import InvalidTableError

Json = dict[str, Any]

FIRST_PARTITION_FIELD_ID = 1_000
UNSORTED: Json = {"order-id": 0, "fields": []}

_MINIMUM_VERSIONS = {"timestamp_ns": 3, "timestamptz_ns": 3, "variant": 3, "unknown": 3, "geometry": 3, "geography": 3}
"""The format versions that introduced types, by the types' names without parameters."""


def nested_fields(kind: Any) -> Iterator[tuple[int, str, Any]]:
    """Yield the fields directly inside a type: id, name and type."""
    if not isinstance(kind, dict):
        return
    match kind.get("type"):
        case "struct":
            for field in kind["fields"]:
                yield field["id"], field["name"], field["type"]
        case "list":
            yield kind["element-id"], "element", kind["element"]
        case "map":
            yield kind["key-id"], "key", kind["key"]
            yield kind["value-id"], "value", kind["value"]


def all_fields(kind: Any, prefix: str = "") -> Iterator[tuple[int, str, Any]]:
    """Yield all fields inside a type or a schema: id, full name and type."""
    for field_id, name, inner in nested_fields(kind):
        yield field_id, prefix + name, inner
        yield from all_fields(inner, f"{prefix}{name}.")


def highest_id(schema: Json) -> int:
    """Return the highest id of a field in a schema; 0 for an empty one."""
    return max((field_id for field_id, _, _ in all_fields(schema)), default=0)


def is_same_schema(left: Json, right: Json) -> bool:
    """Return whether schemas are equal apart from their ids."""
    return _without_id(left) == _without_id(right)


def _without_id(schema: Json) -> Json:
    plain = {name: value for name, value in schema.items() if name != "schema-id"}
    return {**plain, "identifier-field-ids": sorted(schema.get("identifier-field-ids") or ())}


def check_types(schema: Json, version: int) -> None:
    """Check that a format version has the types and default values of a schema.

    Raises:
        InvalidTableError: It does not.
    """
    for _, name, kind in all_fields(schema):
        base = kind.partition("(")[0].strip() if isinstance(kind, str) else ""
        if (needed := _MINIMUM_VERSIONS.get(base, 1)) > version:
            raise InvalidTableError(
                f"column {name} has the type {kind}: {base} is not supported until v{needed}, and the table has format "
                f"version {version}; create it with the property format-version = {needed}"
            )
    if version < 3:
        _refuse_defaults(schema, version)


def _refuse_defaults(kind: Any, version: int) -> None:
    for field in kind.get("fields", ()) if isinstance(kind, dict) else ():
        if field.get("initial-default") is not None:
            raise InvalidTableError(
                f"column {field['name']} has an initial default, but non-null default (initial-default) is not "
                f"supported until v3, and the table has format version {version}"
            )
    for _, _, inner in nested_fields(kind):
        _refuse_defaults(inner, version)


def with_fresh_ids(schema: Json) -> tuple[Json, dict[int, int]]:
    """Return a schema of a new table, whose ids count from 1, and the new ids by the given ones.

    Fields of a struct get their ids before the fields inside them, as Iceberg's own catalogs assign them.
    """
    numbers, new_ids = count(1), dict[int, int]()

    def fresh(old: int) -> int:
        new_ids[old] = next(numbers)
        return new_ids[old]

    def renewed(kind: Any) -> Any:
        match kind.get("type") if isinstance(kind, dict) else None:
            case "struct":
                fields = [{**field, "id": fresh(field["id"])} for field in kind["fields"]]
                return {**kind, "fields": [{**field, "type": renewed(field["type"])} for field in fields]}
            case "list":
                element = fresh(kind["element-id"])
                return {**kind, "element-id": element, "element": renewed(kind["element"])}
            case "map":
                key, value = fresh(kind["key-id"]), fresh(kind["value-id"])
                ids = {"key-id": key, "value-id": value}
                return {**kind, **ids, "key": renewed(kind["key"]), "value": renewed(kind["value"])}
        return kind

    after: Json = {**renewed(schema), "schema-id": 0}
    if identifiers := after.get("identifier-field-ids"):
        after["identifier-field-ids"] = [new_ids.get(identifier, identifier) for identifier in identifiers]
    return after, new_ids


def with_fresh_sources(fields: Sequence[Json], new_ids: Mapping[int, int]) -> list[Json]:
    """Return fields of a partition spec or sort order for a schema with new ids.

    Raises:
        InvalidTableError: The source column of a field is missing.
    """
    renewed = []
    for field in fields:
        sources = field.get("source-ids") or [field.get("source-id")]
        if missing := [source for source in sources if source not in new_ids]:
            raise InvalidTableError(
                f"Cannot find source column with id {missing[0]} of the field {field.get('name') or field['transform']}"
                " in the schema; name one of its columns"
            )
        if "source-ids" in field:
            field = {**field, "source-ids": [new_ids[source] for source in sources]}
        renewed.append({**field, "source-id": new_ids[sources[0]]} if "source-id" in field else dict(field))
    return renewed


def sources_of(field: Json) -> list[int]:
    """Return the ids of the columns of a field of a partition spec or sort order."""
    return list(field.get("source-ids") or [field["source-id"]])


def is_same_spec(left: Sequence[Json], right: Sequence[Json]) -> bool:
    """Return whether partition specs place rows in the same way, whatever the ids of their fields."""
    return _placing(left) == _placing(right)


def _placing(fields: Sequence[Json]) -> list[tuple[list[int], str, str]]:
    return [(sources_of(field), field["transform"], field["name"]) for field in fields]
