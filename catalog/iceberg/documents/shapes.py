"""Shapes of what clients send: fields and their types, checked before they get into metadata that all engines read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from catalog.errors import InvalidRequestError, InvalidTableError
from catalog.iceberg.documents.schemas import all_fields

Shape = Mapping[str, type]
"""Field → type; the name of an optional field ends with `?`."""

_PRIMITIVE = re.compile(
    r"boolean|int|long|float|double|date|time|timestamp(tz)?(_ns)?|string|uuid|binary|variant|unknown"
    r"|decimal\( *[0-9]+ *, *[0-9]+ *\)|fixed\[ *[0-9]+ *\]|(geometry|geography)( *\([^()]*\))?"
)
_DECIMAL = re.compile(r"decimal\( *([0-9]+)")
_NUMBER = re.compile("-?[0-9]{1,18}")
_TRANSFORM = re.compile(r"[a-z_]+(\[[0-9]+\])?")
_DIRECTIONS, _NULL_ORDERS = ("asc", "desc"), ("nulls-first", "nulls-last")

_Item = TypeVar("_Item", int, str)
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


class _Int32(int):
    """A whole number of 32 bits, as ids of fields, schemas, specs and orders are."""


_NAMES = {
    int: "a whole number of 64 bits",
    _Int32: "a whole number of 32 bits",
    str: "a string",
    dict: "an object",
    list: "a list",
    bool: "true or false",
}

_SNAPSHOT: Shape = {
    "snapshot-id": int,
    "timestamp-ms": int,
    "parent-snapshot-id?": int,
    "sequence-number?": int,
    "schema-id?": _Int32,
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
    "min-snapshots-to-keep?": _Int32,
}
_LIMITS = ("min-snapshots-to-keep", "max-snapshot-age-ms", "max-ref-age-ms")
_STATISTICS: Shape = {"snapshot-id": int, "statistics-path": str, "file-size-in-bytes": int}
_BLOBS: Shape = {"file-footer-size-in-bytes": int, "blob-metadata": list}
_BLOB: Shape = {"type": str, "snapshot-id": int, "sequence-number": int, "fields": list, "properties?": dict}
_KEY: Shape = {"key-id": str, "encrypted-key-metadata": str, "encrypted-by-id?": str, "properties?": dict}
_OF_UPDATES: Mapping[str, Mapping[str, Shape]] = {
    "assign-uuid": {"": {"uuid": str}},
    "upgrade-format-version": {"": {"format-version": _Int32}},
    "set-current-schema": {"": {"schema-id": _Int32}},
    "set-default-spec": {"": {"spec-id": _Int32}},
    "set-default-sort-order": {"": {"sort-order-id": _Int32}},
    "add-snapshot": {"snapshot": _SNAPSHOT},
    "set-snapshot-ref": {"": _REF},
    "remove-snapshots": {"": {"snapshot-ids": list}},
    "remove-snapshot-ref": {"": {"ref-name": str}},
    "set-location": {"": {"location": str}},
    "set-statistics": {"statistics": {**_STATISTICS, **_BLOBS}},
    "set-partition-statistics": {"partition-statistics": _STATISTICS},
    "remove-statistics": {"": {"snapshot-id": int}},
    "remove-partition-statistics": {"": {"snapshot-id": int}},
    "remove-partition-specs": {"": {"spec-ids": list}},
    "remove-schemas": {"": {"schema-ids": list}},
    "add-encryption-key": {"encryption-key": _KEY},
    "remove-encryption-key": {"": {"key-id": str}},
    "set-current-view-version": {"": {"view-version-id": int}},
}
_TABLE: Shape = {
    **{"format-version": int, "location": str, "last-updated-ms": int, "last-column-id": _Int32, "table-uuid?": str},
    **{"current-schema-id": _Int32, "default-spec-id": _Int32, "default-sort-order-id": _Int32},
    **{"last-partition-id": _Int32},
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
            _check_snapshot(fields["snapshot"])
        case "set-snapshot-ref":
            _check_ref(fields)
        case "set-statistics":
            for blob in fields["statistics"]["blob-metadata"]:
                numbers = require_fields("an entry of blob-metadata", blob, _BLOB)["fields"]
                _check_numbers("fields of blob-metadata", numbers, _Int32)
        case "assign-uuid":
            _check_uuid(fields["uuid"])
        case "remove-snapshots" | "remove-partition-specs" | "remove-schemas":
            for ids in (value for value in fields.values() if isinstance(value, list)):
                _check_numbers(f"the ids of {action}", ids, int if action == "remove-snapshots" else _Int32)
        case "add-view-version":
            check_view_version(fields.get("view-version"))


def _check_snapshot(snapshot: Mapping[str, Any]) -> None:
    _check_texts("the summary of the snapshot", snapshot.get("summary") or {})
    number, files = snapshot["snapshot-id"], snapshot.get("manifests")
    if snapshot.get("manifest-list") is None and not (
        isinstance(files, list) and all(isinstance(path, str) for path in files)
    ):
        raise InvalidRequestError(f"snapshot {number} has no manifest-list; add it")
    first, rows = snapshot.get("first-row-id"), snapshot.get("added-rows")
    if (first is not None and rows is None) or (first or 0) < 0 or (rows or 0) < 0:
        raise InvalidRequestError(
            f"snapshot {number} has the first-row-id {first} and the added-rows {rows}; write both, and none below 0"
        )


def _check_ref(ref: Mapping[str, Any]) -> None:
    name = ref["ref-name"]
    if ref["type"] not in ("branch", "tag"):
        raise InvalidRequestError(f"{name} is a {ref['type']!r}; write branch or tag")
    limits = {field: ref[field] for field in _LIMITS if ref.get(field) is not None}
    for field, limit in limits.items():
        if limit <= 0:
            raise InvalidRequestError(f"{field} of {name} is {limit}; write a number above 0")
    if ref["type"] == "tag" and (wrong := limits.keys() - {"max-ref-age-ms"}):
        raise InvalidRequestError(f"Tags do not support setting {min(wrong)}; leave it out for {name}")


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
    if repeated_names := _repeated([name for _, name, _ in all_fields(schema)]):
        raise InvalidTableError(f"there is more than one field of the full name {min(repeated_names)}; rename one")
    identifiers, known = fields.get("identifier-field-ids") or [], set(_identifying(fields))
    if not all(_has_type(number, int) and number in known for number in identifiers):
        raise InvalidTableError(
            f"identifier-field-ids are {identifiers!r}; name ids of required columns with single values, which are "
            "neither float nor double, and not inside a list, a map or a struct that is not required"
        )


def _identifying(kind: Mapping[str, Any]) -> Iterator[int]:
    """Yield the ids of the fields that may identify rows."""
    for field in kind["fields"]:
        if field["required"]:
            if isinstance(field["type"], str):
                if field["type"] not in ("float", "double"):
                    yield field["id"]
            elif field["type"]["type"] == "struct":
                yield from _identifying(field["type"])


def _check_type(kind: Any, where: str, ids: list[int], depth: int) -> None:
    if depth > _DEEPEST:
        raise InvalidTableError(f"{where} is nested more than {_DEEPEST} levels deep; flatten it")
    if isinstance(kind, str):
        if not _PRIMITIVE.fullmatch(kind):
            raise InvalidTableError(f"{where} has the type {_shown(kind)}, which Iceberg does not have")
        if (size := _DECIMAL.match(kind)) and int(size[1]) > _MOST_DIGITS:
            raise InvalidTableError(f"{where} has the type {_shown(kind)}; decimals have at most {_MOST_DIGITS} digits")
        return
    shapes: Mapping[str, Shape] = {
        "struct": {"fields": list},
        "list": {"element-id": _Int32, "element-required": bool},
        "map": {"key-id": _Int32, "value-id": _Int32, "value-required": bool},
    }
    name = require_fields(where, kind, {"type": str})["type"]
    if name not in shapes:
        raise InvalidTableError(f"{where} has the type {name!r}; write a primitive type, struct, list or map")
    require_fields(where, kind, shapes[name])
    if name == "struct":
        names = list[str]()
        for field in kind["fields"]:
            require_fields(f"a field of {where}", field, _FIELD)
            ids.append(field["id"])
            names.append(field["name"])
            _check_type(field.get("type"), f"column {field['name']}", ids, depth + 1)
        if repeated := _repeated(names):
            raise InvalidTableError(f"{where} has more than one field of the name {min(repeated)}; rename all but one")
    for part in {"list": ("element",), "map": ("key", "value")}.get(name, ()):
        ids.append(kind[f"{part}-id"])
        _check_type(kind.get(part), f"{part} of {where}", ids, depth + 1)


_DEEPEST, _MOST_DIGITS = 100, 38
_FIELD: Shape = {"id": _Int32, "name": str, "required": bool, "doc?": str}


def _repeated(items: Sequence[_Item]) -> set[_Item]:
    return {item for item, count in Counter(items).items() if count > 1}


def check_spec(spec: object) -> None:
    """Check the fields of a partition spec.

    Raises:
        InvalidRequestError: One is missing, or has another type.
    """
    fields = require_fields("the partition spec", spec, {"fields": list})["fields"]
    for field in fields:
        require_fields("a field of the partition spec", field, {"name": str, "transform": str, "field-id?": _Int32})
        _check_sources(field)
        if not field["name"]:
            raise InvalidRequestError("a field of the partition spec has an empty name; give it one")
    if len({field.get("field-id") is None for field in fields}) > 1:
        raise InvalidRequestError("some fields of the partition spec have a field-id; write it for all, or for none")


def check_sort_order(order: object) -> None:
    """Check the fields of a sort order.

    Raises:
        InvalidRequestError: One is missing, or has another type.
    """
    for field in require_fields("the sort order", order, {"fields": list, "order-id?": _Int32})["fields"]:
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
    if not isinstance(sources, list) or not all(_has_type(source, _Int32) for source in sources):
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
    if issubclass(kind, int) and kind is not bool:
        lowest, highest = (_LOWEST, _HIGHEST) if kind is int else (-(2**31), 2**31 - 1)
        return isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= highest
    return isinstance(value, kind)


def _check_numbers(what: str, numbers: object, kind: type) -> None:
    if not isinstance(numbers, list) or not all(_has_type(number, kind) for number in numbers):
        raise InvalidRequestError(f"{what} are {_shown(numbers)}; write a list of whole numbers")


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
        require_fields("a partition spec", spec, {"spec-id": _Int32})
        check_spec(spec)
    for order in fields["sort-orders"]:
        require_fields("a sort order", order, {"order-id": _Int32})
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
