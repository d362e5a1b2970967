"""Glue's operations as an OpenAPI document, made of botocore's service model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore.model import Shape

from catalog.doors.glue.operations import OPERATIONS
from catalog.doors.glue.shapes import TARGET_PREFIX, find_operation
from tests.fuzz.served import Served

MEDIA = "application/x-amz-json-1.1"
COMMON_ERRORS = (
    *("AccessDeniedException", "IncompleteSignatureException", "InvalidSignatureException", "ValidationException"),
    *("MissingAuthenticationTokenException", "SerializationException", "ThrottlingException"),
    *("UnknownOperationException", "UnrecognizedClientException"),
)
"""Errors that all operations may have, besides those of the service model. Source: AWS, Common Errors."""

_TYPES = {"boolean": "boolean", "integer": "integer", "long": "integer", "double": "number", "float": "number"}
_BITS = {"integer": 31, "long": 63}


def document(served: Served) -> dict[str, Any]:
    """Return the document. Operations differ by a header only, so that their paths have fragments, which are not sent.

    Names, types and filters are often those of what the served catalog has.
    """
    shapes = _Shapes(_known(served))
    paths = {f"/#X-Amz-Target={TARGET_PREFIX}{name}": {"post": _operation(name, shapes)} for name in sorted(OPERATIONS)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Glue", "version": "1"},
        "paths": paths,
        "components": {"schemas": shapes.schemas},
    }


def _known(served: Served) -> Mapping[str, list[str]]:
    inside = str(served.warehouse / "demo")
    return {
        "NameString": ["demo", "empty", "orders", "plain", "by_day", "country", "day", "number", "id", "t"],
        "DatabaseName": ["demo"],
        "ValueString": ["DE", "2024-05-01", "1"],
        "KeyString": ["table_type", "metadata_location", "EXTERNAL", "comment"],
        "ColumnTypeString": ["string", "int", "bigint", "date", "decimal(10,2)", "array<int>", "struct<a:int>"],
        "LocationString": [f"{inside}/t", f"{inside}/u", f"{inside}/orders", str(served.warehouse), "s3://lake/t"],
        "PredicateString": ["country = 'DE'", "day > '2024-05-01' and number in (1, 2)", "number is not null", "("],
        "TableTypeString": ["EXTERNAL_TABLE", "MANAGED_TABLE", "VIRTUAL_VIEW"],
        "CatalogIdString": ["123456789012"],
    }


def _operation(name: str, shapes: _Shapes) -> dict[str, Any]:
    model = find_operation(name)
    errors = sorted({shape.name for shape in model.error_shapes} | set(COMMON_ERRORS))
    error = {
        "type": "object",
        "required": ["__type", "message"],
        "properties": {"__type": {"enum": errors}, "message": {"type": "string", "minLength": 1, "maxLength": 2_048}},
    }
    target = {"type": "string", "enum": [f"{TARGET_PREFIX}{name}"]}
    answer = shapes.schema(model.output_shape, is_answer=True) if model.output_shape else {"type": "object"}
    return {
        "operationId": name,
        "parameters": [{"name": "X-Amz-Target", "in": "header", "required": True, "schema": target}],
        "requestBody": {"required": True, "content": {MEDIA: {"schema": shapes.schema(model.input_shape)}}},
        "responses": {
            "200": {"description": "", "content": {MEDIA: {"schema": answer}}},
            "400": {"description": "", "content": {MEDIA: {"schema": error}}},
            # Bodies over `CALVE_DOOR_BODY_BYTES`; the model has the errors of operations only.
            "413": {"description": "", "content": {MEDIA: {"schema": error}}},
        },
    }


class _Shapes:
    """The schemas of shapes: of requests with their constraints, of answers without unknown members."""

    def __init__(self, known: Mapping[str, list[str]]) -> None:
        self.schemas: dict[str, Any] = {}
        self._known = known

    def schema(self, shape: Shape, *, is_answer: bool = False) -> dict[str, Any]:
        name = f"{shape.name}{'Answer' if is_answer else ''}"
        if name not in self.schemas:
            self.schemas[name] = {}
            self.schemas[name] |= self._of(shape, is_answer=is_answer)
        return {"$ref": f"#/components/schemas/{name}"}

    def _of(self, shape: Shape, *, is_answer: bool) -> dict[str, Any]:
        kind, limits = shape.type_name, shape.metadata
        if kind == "structure":
            members = {name: self.schema(member, is_answer=is_answer) for name, member in shape.members.items()}
            found = {"type": "object", "properties": members, "required": list(shape.required_members)}
            return found | ({"additionalProperties": False} if is_answer else {})
        if kind == "list":
            items = {"type": "array", "items": self.schema(shape.member, is_answer=is_answer)}
            return items | _limits(limits, "minItems", "maxItems")
        if kind == "map":
            values = {"type": "object", "additionalProperties": self.schema(shape.value, is_answer=is_answer)}
            return values | _limits(limits, "minProperties", "maxProperties")
        if kind == "string":
            return self._string(shape, is_answer=is_answer)
        if kind == "timestamp":
            return {"type": "number", "minimum": -(2**33), "maximum": 2**37}
        if kind == "blob":
            return {"type": "string", "pattern": "^([A-Za-z0-9+/]{4})*$"}
        number = {"type": _TYPES[kind]} | _limits(limits, "minimum", "maximum")
        if kind in _BITS:
            number = {"minimum": -(2 ** _BITS[kind]), "maximum": 2 ** _BITS[kind] - 1} | number
        return number

    def _string(self, shape: Shape, *, is_answer: bool) -> dict[str, Any]:
        if shape.enum:
            return {"enum": list(shape.enum)}
        # Without patterns, which forbid some characters only, and from which values are made ten times as slowly.
        text = {"type": "string"} | _limits(shape.metadata, "minLength", "maxLength")
        known = self._known.get(shape.name)
        return {"anyOf": [{"enum": known}, text]} if known and not is_answer else text


def _limits(limits: Mapping[str, Any], least: str, most: str) -> dict[str, Any]:
    return {key: limits[name] for name, key in (("min", least), ("max", most)) if name in limits}
