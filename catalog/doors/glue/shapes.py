"""Requests checked against Glue's service model, as botocore has it."""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import unicodedata
from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn, TypeAlias

from botocore.model import ListShape, MapShape, OperationModel, ServiceModel, Shape, StructureShape

from catalog.doors.glue.failures import MAXIMUM_MESSAGE, GlueError

TARGET_PREFIX = "AWSGlue."

_SHOWN = 100
_MAXIMUM_PROBLEMS = 10
_MAXIMUM_INTEGER = {"integer": 2**31, "long": 2**63}
_MAXIMUM_SECONDS = 253_402_300_800
"""Times are before the year 10000."""

Path: TypeAlias = tuple[Any, str] | None
Check: TypeAlias = Callable[[Any, Path, list[str]], Any]
"""A function of a JSON value, its place, and the list of problems; it returns the value without null members."""


@cache
def service_model() -> ServiceModel:
    """Return Glue's service model."""
    from botocore.session import Session

    model: ServiceModel = Session().get_service_model("glue")
    return model


@cache
def find_operation(name: str) -> OperationModel:
    """Return an operation of Glue.

    Raises:
        GlueError: Glue has no operation of this name.
    """
    model = service_model()
    if name not in model.operation_names:
        raise GlueError("UnknownOperationException", f"AWS Glue has no operation {name[:_SHOWN]!r}")
    return model.operation_model(name)


def read_request(operation: OperationModel, body: bytes) -> dict[str, Any]:
    """Return the members of a request, checked against the operation's input shape; unknown members are left out.

    Times are numbers of seconds since 1970, as in JSON.

    Raises:
        GlueError: The body is no JSON object, or a member is missing, or violates a constraint of the service model.
    """
    try:
        content = json.loads(body or b"{}", parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise _malformed(f"the body is not valid JSON: {error}") from None
    problems: list[str] = []
    members: dict[str, Any] = _check_of(operation.input_shape)(content, None, problems)
    if problems:
        count, listed = len(problems), "; ".join(problems[:_MAXIMUM_PROBLEMS])
        text = f"{count} validation error{'s' if count > 1 else ''} detected: {listed}"
        raise GlueError("ValidationException", text[:MAXIMUM_MESSAGE])
    return members


def check_answer(operation: OperationModel, answer: dict[str, Any]) -> list[str]:
    """Return how an answer differs from the operation's output shape: constraints, and unknown members."""
    problems: list[str] = []
    if _check_of(operation.output_shape)(answer, None, problems) != answer:
        problems.append("the answer has members that the service model does not have")
    return problems


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _malformed(message: str) -> GlueError:
    return GlueError("SerializationException", message)


def _wrong_type(value: Any, expected: str, path: Path) -> GlueError:
    kinds = {bool: "TRUE_VALUE" if value else "FALSE_VALUE", str: "STRING_VALUE", list: "START_ARRAY"}
    kind = kinds.get(type(value), "START_OBJECT" if isinstance(value, dict) else "NUMBER_VALUE")
    place = f" at '{_shown_path(path)}'" if path else ""
    return _malformed(f"{kind}{place} can not be converted to {expected}")


def _shown_path(path: Path) -> str:
    names: list[str] = []
    while path is not None:
        path, name = path
        names.append(name)
    return ".".join(reversed(names))


def _add(problems: list[str], value: Any, path: Path, constraint: str) -> None:
    shown = "null" if value is None else f"'{str(value)[:_SHOWN]}'"
    problems.append(f"Value {shown} at '{_shown_path(path)}' failed to satisfy constraint: Member must {constraint}")


def _member(name: str) -> str:
    return name[0].lower() + name[1:]


@cache
def _check_of_name(name: str) -> Check:
    shape = service_model().shape_for(name)
    # Shapes refer to each other in cycles, so a check finds those of its members when it is first called.
    made: list[Check] = []

    def check(value: Any, path: Path, problems: list[str]) -> Any:
        if not made:
            made.append(_KINDS[shape.type_name](shape))
        return made[0](value, path, problems)

    return check


def _check_of(shape: Shape) -> Check:
    return _check_of_name(shape.name)


def _structure(shape: StructureShape) -> Check:
    if shape.metadata.get("document"):
        return lambda value, path, problems: value
    members = [(name, _member(name), _check_of(member)) for name, member in shape.members.items()]
    required = [(name, _member(name)) for name in shape.required_members]

    def check(value: Any, path: Path, problems: list[str]) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _wrong_type(value, "a structure", path)
        for name, shown in required:
            if value.get(name) is None:
                _add(problems, None, (path, shown), "not be null")
        return {
            name: check_member(value[name], (path, shown), problems)
            for name, shown, check_member in members
            if value.get(name) is not None
        }

    return check


def _list(shape: ListShape) -> Check:
    check_item, check_length = _check_of(shape.member), _length(shape)

    def check(value: Any, path: Path, problems: list[str]) -> list[Any]:
        if not isinstance(value, list):
            raise _wrong_type(value, "a list", path)
        check_length(value, path, problems)
        for number, item in enumerate(value, start=1):
            if item is None:
                _add(problems, None, (path, f"{number}.member"), "not be null")
        return [
            check_item(item, (path, f"{number}.member"), problems)
            for number, item in enumerate(value, start=1)
            if item is not None
        ]

    return check


def _map(shape: MapShape) -> Check:
    check_key, check_value, check_length = _check_of(shape.key), _check_of(shape.value), _length(shape)

    def check(value: Any, path: Path, problems: list[str]) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _wrong_type(value, "a map", path)
        check_length(value, path, problems)
        return {
            check_key(key, (path, "key"), problems): check_value(item, (path, f"{key}.member"), problems)
            for key, item in value.items()
            if item is not None
        }

    return check


def _string(shape: Shape) -> Check:
    check_length, allowed = _length(shape), getattr(shape, "enum", None)
    pattern = shape.metadata.get("pattern")
    fits = None if pattern is None else _matcher(pattern)

    def check(value: Any, path: Path, problems: list[str]) -> str:
        if not isinstance(value, str):
            raise _wrong_type(value, "a String", path)
        if not value.isascii() and _SURROGATE.search(value):
            raise _malformed(f"'{_shown_path(path)}' has an unpaired surrogate, which is not valid Unicode")
        check_length(value, path, problems)
        if fits is not None and not fits(value):
            _add(problems, value, path, f"satisfy regular expression pattern: {pattern}")
        if allowed and value not in allowed:
            _add(problems, value, path, f"satisfy enum value set: [{', '.join(allowed)}]")
        return value

    return check


_SURROGATE = re.compile("[\ud800-\udfff]")


def _length(shape: Shape) -> Check:
    minimum, maximum = shape.metadata.get("min"), shape.metadata.get("max")

    def check(value: Any, path: Path, problems: list[str]) -> None:
        if minimum is not None and len(value) < minimum:
            _add(problems, value, path, f"have length greater than or equal to {minimum}")
        if maximum is not None and len(value) > maximum:
            _add(problems, value, path, f"have length less than or equal to {maximum}")

    return check


_CATEGORIES = r"[\p{L}\p{N}\p{P}]*"


def _matcher(pattern: str) -> Callable[[str], object]:
    """Return the test of a pattern that is written for Java's strings of UTF-16."""
    if pattern == _CATEGORIES:
        return lambda text: all(unicodedata.category(character)[0] in "LNP" for character in text)
    text = pattern.replace(r"\uD800\uDC00-\uDBFF\uDFFF", r"\U00010000-\U0010FFFF")
    return re.compile(text).fullmatch


def _integer(shape: Shape) -> Check:
    limit, check_range = _MAXIMUM_INTEGER[shape.type_name], _range(shape)

    def check(value: Any, path: Path, problems: list[str]) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not -limit <= value < limit:
            raise _wrong_type(value, "an Integer" if shape.type_name == "integer" else "a Long", path)
        check_range(value, path, problems)
        return value

    return check


def _double(shape: Shape) -> Check:
    check_range = _range(shape)

    def check(value: Any, path: Path, problems: list[str]) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise _wrong_type(value, "a Double", path)
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise _malformed(f"'{_shown_path(path)}' is greater than a Double holds")
        check_range(number, path, problems)
        return number

    return check


def _range(shape: Shape) -> Check:
    minimum, maximum = shape.metadata.get("min"), shape.metadata.get("max")

    def check(value: Any, path: Path, problems: list[str]) -> None:
        if minimum is not None and value < minimum:
            _add(problems, value, path, f"have value greater than or equal to {minimum}")
        if maximum is not None and value > maximum:
            _add(problems, value, path, f"have value less than or equal to {maximum}")

    return check


def _boolean(shape: Shape) -> Check:
    def check(value: Any, path: Path, problems: list[str]) -> bool:
        if not isinstance(value, bool):
            raise _wrong_type(value, "a Boolean", path)
        return value

    return check


def _timestamp(shape: Shape) -> Check:
    def check(value: Any, path: Path, problems: list[str]) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise _wrong_type(value, "a Timestamp", path)
        if not abs(value) < _MAXIMUM_SECONDS:
            raise _malformed(f"'{_shown_path(path)}' is outside the years 1 to 9999")
        return value

    return check


def _blob(shape: Shape) -> Check:
    def check(value: Any, path: Path, problems: list[str]) -> str:
        if not isinstance(value, str):
            raise _wrong_type(value, "a Blob", path)
        try:
            base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise _malformed(f"'{_shown_path(path)}' is not valid Base64") from None
        return value

    return check


_KINDS: dict[str, Callable[[Any], Check]] = {
    "structure": _structure,
    "list": _list,
    "map": _map,
    "string": _string,
    "integer": _integer,
    "long": _integer,
    "double": _double,
    "float": _double,
    "boolean": _boolean,
    "timestamp": _timestamp,
    "blob": _blob,
}
