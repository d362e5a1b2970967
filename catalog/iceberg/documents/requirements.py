"""Requirements of commits: what must be true of a table or view when its pointer moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from catalog.errors import InvalidRequestError, RequirementFailedError
from catalog.iceberg.documents.schemas import Json

CREATE = "assert-create"
"""The requirement that the table does not exist."""


def check_requirements(document: Json | None, requirements: Sequence[Json], *, is_view: bool = False) -> None:
    """Check the requirements of a commit.

    Args:
        document: The current metadata (`catalog.iceberg.documents.tables.normalised`); None if there is no table.

    Raises:
        RequirementFailedError: One is not met.
        InvalidRequestError: One is unknown, or incomplete.
    """
    checks = _OF_VIEWS if is_view else _OF_TABLES
    for requirement in requirements:
        kind = requirement.get("type")
        check = checks.get(str(kind))
        if check is None:
            raise InvalidRequestError(
                f"unknown requirement {kind!r} of a {'view' if is_view else 'table'}; known are "
                f"{', '.join(sorted(checks))}"
            )
        try:
            check(document, requirement)
        except KeyError as error:
            raise InvalidRequestError(f"requirement {kind} has no field {error}; add it") from None
        except TypeError:
            raise InvalidRequestError(f"requirement {kind} has a list or an object where a name belongs") from None


def is_create(requirements: Sequence[Json]) -> bool:
    """Return whether a commit creates a table.

    Raises:
        InvalidRequestError: It has other requirements, too, which a table that does not exist cannot meet.
    """
    kinds = [requirement.get("type") for requirement in requirements]
    if CREATE not in kinds:
        return False
    if others := sorted({str(kind) for kind in kinds if kind != CREATE}):
        raise InvalidRequestError(
            f"Invalid create requirements: {', '.join(others)}; {CREATE} cannot be combined with others"
        )
    return True


def _uuid(document: Json, requirement: Json, label: str = "UUID") -> None:
    expected = requirement["uuid"]
    if str(document.get("table-uuid") or document.get("view-uuid")).lower() != str(expected).lower():
        actual = document.get("table-uuid") or document.get("view-uuid")
        raise RequirementFailedError(f"{label} does not match: expected {expected} != {actual}")


def _create(document: Json | None, _requirement: Json) -> None:
    if document is not None:
        raise RequirementFailedError("table already exists")


def _ref(document: Json, requirement: Json) -> None:
    name, expected = requirement["ref"], requirement["snapshot-id"]
    ref = document["refs"].get(name)
    if ref is None:
        if expected is not None:
            raise RequirementFailedError(f"branch or tag {name} is missing, expected {expected}")
        return
    if expected is None:
        raise RequirementFailedError(f"{ref['type']} {name} was created concurrently")
    if ref["snapshot-id"] != expected:
        raise RequirementFailedError(
            f"{ref['type']} {name} has changed: expected id {expected} != {ref['snapshot-id']}"
        )


def _number(field: str, label: str) -> Callable[[Any, Json], None]:
    def check(document: Json, requirement: Json) -> None:
        names = {"last-assigned-field-id": "last-column-id", "last-assigned-partition-id": "last-partition-id"}
        expected, actual = requirement[field], document[names.get(field, field)]
        if expected != actual:
            raise RequirementFailedError(f"{label} changed: expected id {expected} != {actual}")

    return check


def _of_existing(check: Callable[[Json, Json], None]) -> Callable[[Json | None, Json], None]:
    def checked(document: Json | None, requirement: Json) -> None:
        if document is None:
            raise RequirementFailedError("table does not exist")
        check(document, requirement)

    return checked


_OF_TABLES: Mapping[str, Callable[[Json | None, Json], None]] = {
    CREATE: _create,
    "assert-table-uuid": _of_existing(_uuid),
    "assert-ref-snapshot-id": _of_existing(_ref),
    "assert-last-assigned-field-id": _of_existing(_number("last-assigned-field-id", "last assigned field id")),
    "assert-current-schema-id": _of_existing(_number("current-schema-id", "current schema")),
    "assert-last-assigned-partition-id": _of_existing(
        _number("last-assigned-partition-id", "last assigned partition id")
    ),
    "assert-default-spec-id": _of_existing(_number("default-spec-id", "default partition spec")),
    "assert-default-sort-order-id": _of_existing(_number("default-sort-order-id", "default sort order")),
}
_OF_VIEWS: Mapping[str, Callable[[Json | None, Json], None]] = {
    "assert-view-uuid": _of_existing(lambda document, requirement: _uuid(document, requirement, "view UUID")),
}
