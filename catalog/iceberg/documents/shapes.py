"""Shapes of what clients send: fields and their types, checked before they get into metadata that all engines read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from catalog.errors import InvalidRequestError, InvalidTableError

Shape = Mapping[str, type]
"""Field → type; the name of an optional field ends with `?`."""

_PRIMITIVE = re.compile(
    r"boolean|int|long|float|double|date|time|timestamp(tz)?(_ns)?|string|uuid|binary|variant|unknown"
    r"|decimal\( *[0-9]+ *, *[0-9]+ *\)|fixed\[ *[0-9]+ *\]|(geometry|geography)( *\([^()]*\))?"
)
_NUMBER = re.compile("-?[0-9]{1,18}")
_TRANSFORM = re.compile(r"[a-z_]+(\[[0-9]+\])?")
_DIRECTIONS, _NULL_ORDERS = ("asc", "desc"), ("nulls-first", "nulls-last")

_Item = TypeVar("_Item", int, str)
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
_NAMES = {int: "a whole number of 64 bits", str: "a string", dict: "an object", list: "a list", bool: "true or false"}

_SNAPSHOT: Shape = {
    "snapshot-id": int,
    "timestamp-ms": int,
    "parent-snapshot-id?": int,
    "sequence-number?": int,
    "schema-id?": int,
    "manifest-list?": str,
    "manifests?": list,
    "summary?": dict,
    "first-row-id?": int,
    "added-rows?": int,
}
_REF: Shape = {
    "ref-name": str,
    "snapshot-id": int,
    "type": str,
    "max-ref-age-ms?": int,
    "max-snapshot-age-ms?": int,
    "min-snapshots-to-keep?": int,
}
_STATISTICS: Shape = {"snapshot-id": int, "statistics-path": str, "file-size-in-bytes?": int}
_OF_UPDATES: Mapping[str, Mapping[str, Shape]] = {
    "assign-uuid": {"": {"uuid": str}},
    "upgrade-format-version": {"": {"format-version": int}},
    "set-current-schema": {"": {"schema-id": int}},
    "set-default-spec": {"": {"spec-id": int}},
    "set-default-sort-order": {"": {"sort-order-id": int}},
    "add-snapshot": {"snapshot": _SNAPSHOT},
    "set-snapshot-ref": {"": _REF},
    "remove-snapshots": {"": {"snapshot-ids": list}},
    "remove-snapshot-ref": {"": {"ref-name": str}},
    "set-location": {"": {"location": str}},
    "set-statistics": {"statistics": _STATISTICS},
    "set-partition-statistics": {"partition-statistics": _STATISTICS},
    "remove-statistics": {"": {"snapshot-id": int}},
    "remove-partition-statistics": {"": {"snapshot-id": int}},
    "remove-partition-specs": {"": {"spec-ids": list}},
    "remove-schemas": {"": {"schema-ids": list}},
    "add-encryption-key": {"encryption-key": {"key-id": str}},
    "remove-encryption-key": {"": {"key-id": str}},
    "set-current-view-version": {"": {"view-version-id": int}},
}
_TABLE: Shape = {
    **{"format-version": int, "location": str, "last-updated-ms": int, "last-column-id": int, "table-uuid?": str},
    **{"current-schema-id": int, "default-spec-id": int, "default-sort-order-id": int, "last-partition-id": int},
    **{"last-sequence-number": int, "schemas": list, "partition-specs": list, "sort-orders": list, "refs": dict},
    **{"snapshots": list, "snapshot-log": list, "metadata-log": list, "properties": dict},
    **{"statistics": list, "partition-statistics": list, "current-snapshot-id?": int},
}
_VIEW: Shape = {
    **{"view-uuid": str, "format-version": int, "location": str, "schemas": list, "current-version-id": int},
    **{"versions": list, "version-log": list, "properties?": dict},
}
_VERSION: Shape = {
    "version-id?": int,
    "timestamp-ms?": int,
    "schema-id": int,
    "summary?": dict,
    "representations": list,
    "default-catalog?": str,
    "default-namespace?": list,
}


def check_update(update: object) -> None:
    """Check the fields of an update, apart from those of schemas, partition specs and sort orders.

    Raises:
        InvalidRequestError: A field is missing, or has another type.
    """
    fields = require_fields("an update", update, {"action": str})
    action = fields["action"]
    for name, shape in _OF_UPDATES.get(action, {}).items():
        part = fields.get(name) if name else fields
        require_fields(f"{action} {name}".strip(), part, shape)
    match action:
        case "add-snapshot":
            _check_texts("the summary of the snapshot", fields["snapshot"].get("summary") or {})
        case "set-snapshot-ref" if fields["type"] not in ("branch", "tag"):
            raise InvalidRequestError(f"{fields['ref-name']} is a {fields['type']!r}; write branch or tag")
        case "assign-uuid":
            _check_uuid(fields["uuid"])
        case "remove-snapshots" | "remove-partition-specs" | "remove-schemas":
            for ids in (value for value in fields.values() if isinstance(value, list)):
                if not all(_has_type(number, int) for number in ids):
                    raise InvalidRequestError(f"{action} names {ids!r}; write a list of whole numbers")
        case "add-view-version":
            check_view_version(fields.get("view-version"))


def check_view_version(version: object) -> None:
    """Check the fields of a version of a view.

    Raises:
        InvalidRequestError: A field is missing, or has another type.
    """
    fields = require_fields("view-version", version, _VERSION)
    _check_texts("the summary of the view-version", fields.get("summary") or {})
    for line in fields["representations"]:
        kind = require_fields("a representation of the view", line, {"type": str})["type"]
        if kind != "sql":
            raise InvalidRequestError(f"a representation of the view has the type {kind!r}; only sql is supported")
        require_fields("a representation of the view", line, {"sql": str, "dialect": str})
    if not all(isinstance(level, str) for level in fields.get("default-namespace") or ()):
        raise InvalidRequestError("the default-namespace of the view has a level that is not a string")


def check_schema(schema: object) -> None:
    """Check that a schema is one of Iceberg's, with unique ids and names.

    Raises:
        InvalidTableError: It is not.
    """
    try:
        fields = require_fields("the schema", schema, {"type": str, "fields": list, "identifier-field-ids?": list})
        if fields["type"] != "struct":
            raise InvalidTableError(f"the schema has the type {fields['type']!r}; write struct")
        ids = list[int]()
        _check_type(fields, "the schema", ids, 0)
    except InvalidRequestError as error:
        raise InvalidTableError(str(error)) from None
    if repeated := _repeated(ids):
        raise InvalidTableError(f"the schema has the field id {min(repeated)} more than once; number its fields")
    identifiers = fields.get("identifier-field-ids") or []
    known = set(ids)
    if not all(_has_type(number, int) and number in known for number in identifiers):
        raise InvalidTableError(f"identifier-field-ids are {identifiers!r}; name ids of fields of the schema")


def _check_type(kind: Any, where: str, ids: list[int], depth: int) -> None:
    if depth > _DEEPEST:
        raise InvalidTableError(f"{where} is nested more than {_DEEPEST} levels deep; flatten it")
    if isinstance(kind, str):
        if not _PRIMITIVE.fullmatch(kind):
            raise InvalidTableError(f"{where} has the type {_shown(kind)}, which Iceberg does not have")
        return
    shapes: Mapping[str, Shape] = {
        "struct": {"fields": list},
        "list": {"element-id": int, "element-required": bool},
        "map": {"key-id": int, "value-id": int, "value-required": bool},
    }
    name = require_fields(where, kind, {"type": str})["type"]
    if name not in shapes:
        raise InvalidTableError(f"{where} has the type {name!r}; write a primitive type, struct, list or map")
    require_fields(where, kind, shapes[name])
    if name == "struct":
        names = list[str]()
        for field in kind["fields"]:
            shape = {"id": int, "name": str, "required": bool, "doc?": str}
            require_fields(f"a field of {where}", field, shape)
            ids.append(field["id"])
            names.append(field["name"])
            _check_type(field.get("type"), f"column {field['name']}", ids, depth + 1)
        if repeated := _repeated(names):
            raise InvalidTableError(f"{where} has more than one field of the name {min(repeated)}; rename all but one")
    for part in {"list": ("element",), "map": ("key", "value")}.get(name, ()):
        ids.append(kind[f"{part}-id"])
        _check_type(kind.get(part), f"{part} of {where}", ids, depth + 1)


_DEEPEST = 100


def _repeated(items: Sequence[_Item]) -> set[_Item]:
    return {item for item, count in Counter(items).items() if count > 1}


def check_spec(spec: object) -> None:
    """Check the fields of a partition spec.

    Raises:
        InvalidRequestError: One is missing, or has another type.
    """
    for field in require_fields("the partition spec", spec, {"fields": list})["fields"]:
        require_fields("a field of the partition spec", field, {"name": str, "transform": str, "field-id?": int})
        _check_sources(field)
        if not field["name"]:
            raise InvalidRequestError("a field of the partition spec has an empty name; give it one")


def check_sort_order(order: object) -> None:
    """Check the fields of a sort order.

    Raises:
        InvalidRequestError: One is missing, or has another type.
    """
    for field in require_fields("the sort order", order, {"fields": list})["fields"]:
        require_fields("a field of the sort order", field, {"transform": str, "direction": str, "null-order": str})
        _check_sources(field)
        if field["direction"] not in _DIRECTIONS or field["null-order"] not in _NULL_ORDERS:
            raise InvalidRequestError(
                f"a field of the sort order has {field['direction']!r} and {field['null-order']!r}; write asc or desc, "
                "and nulls-first or nulls-last"
            )


def _check_sources(field: Any) -> None:
    if not _TRANSFORM.fullmatch(field["transform"]):
        raise InvalidRequestError(f"transform is {_shown(field['transform'])}; write bucket[16], for instance")
    sources = field.get("source-ids") or [field.get("source-id")]
    if not isinstance(sources, list) or not all(_has_type(source, int) for source in sources):
        raise InvalidRequestError(f"a field has the source {sources!r}; write the id of a column as source-id")


def require_fields(what: str, value: object, shape: Shape) -> dict[str, Any]:
    """Return an object after checking its fields.

    Args:
        what: The object, for the message.

    Raises:
        InvalidRequestError: It is no object, or a field is missing or has another type.
    """
    if not isinstance(value, dict):
        raise InvalidRequestError(f"{what} is {_shown(value)}; write an object")
    for field, kind in shape.items():
        name = field.removesuffix("?")
        given = value.get(name)
        if given is None and name != field:
            continue
        if name not in value:
            raise InvalidRequestError(f"{what} has no field {name!r}; add it")
        if not _has_type(given, kind):
            raise InvalidRequestError(f"{name} of {what} is {_shown(given)}; write {_NAMES[kind]}")
    return value


def _has_type(value: object, kind: type) -> bool:
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and _LOWEST <= value <= _HIGHEST
    return isinstance(value, kind)


def _check_texts(what: str, values: Mapping[str, object]) -> None:
    for name, value in values.items():
        if not isinstance(value, str):
            raise InvalidRequestError(f"{name} in {what} is {_shown(value)}; write a string")


def _check_uuid(text: str) -> None:
    try:
        UUID(text)
    except ValueError:
        raise InvalidRequestError(f"uuid is {text[:100]!r}, which is not one; write it as 8-4-4-4-12 digits") from None


def number_of(text: str, what: str) -> int:
    """Return a number that a property has as text.

    Args:
        what: The property, for the message.

    Raises:
        InvalidRequestError: It is not a whole number of at most 18 digits.
    """
    if not _NUMBER.fullmatch(text):
        raise InvalidRequestError(f"{what} is {_shown(text)}, which is not a number; write a whole number")
    return int(text)


def _shown(value: object) -> str:
    return f"{value!r}"[:100]


def check_table(document: object) -> None:
    """Check the normalised metadata of a table that a client brings along.

    Raises:
        InvalidRequestError: A field is missing, or has another type.
    """
    fields = require_fields("the metadata", document, _TABLE)
    for schema in fields["schemas"]:
        check_schema(schema)
    for spec in fields["partition-specs"]:
        require_fields("a partition spec", spec, {"spec-id": int})
        check_spec(spec)
    for order in fields["sort-orders"]:
        require_fields("a sort order", order, {"order-id": int})
        check_sort_order(order)
    for snapshot in fields["snapshots"]:
        check_update({"action": "add-snapshot", "snapshot": snapshot})
    for name, ref in fields["refs"].items():
        check_update({"action": "set-snapshot-ref", "ref-name": name, **require_fields("a branch or tag", ref, {})})
    for entry in fields["metadata-log"]:
        require_fields("an entry of the metadata log", entry, {"metadata-file": str, "timestamp-ms": int})
    for entry in fields["snapshot-log"]:
        require_fields("an entry of the snapshot log", entry, {"snapshot-id": int, "timestamp-ms": int})
    for name in ("statistics", "partition-statistics"):
        for statistics in fields[name]:
            check_update({"action": f"set-{name}", name: statistics})
    _check_texts("the properties", fields["properties"])


def check_view(document: object) -> None:
    """Check the metadata of a view that a client brings along.

    Raises:
        InvalidRequestError: A field is missing, or has another type.
    """
    fields = require_fields("the metadata", document, _VIEW)
    for schema in fields["schemas"]:
        check_schema(schema)
    for version in fields["versions"]:
        require_fields("a version of the view", version, {"version-id": int, "timestamp-ms": int})
        check_view_version(version)
    if all(version["version-id"] != fields["current-version-id"] for version in fields["versions"]):
        raise InvalidRequestError(f"the view has no version {fields['current-version-id']}, its current one")
    _check_texts("the properties", fields.get("properties") or {})


def check_updates(updates: Sequence[object]) -> None:
    """Check the fields of updates; see `check_update`."""
    for update in updates:
        check_update(update)
