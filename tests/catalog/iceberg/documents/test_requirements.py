"""A commit succeeds if, and only if, its requirements hold."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.errors import InvalidRequestError, RequirementFailedError
from catalog.iceberg.documents.new_tables import new_document
from catalog.iceberg.documents.requirements import check_requirements, is_create

JSON = dict[str, Any]

SCHEMA: JSON = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": True}]}

small = st.integers(0, 2)
names = st.sampled_from(["main", "audit"])


@st.composite
def documents(draw: st.DrawFn) -> JSON | None:
    """Return metadata whose ids are small, or none."""
    if draw(st.integers(0, 5)) == 0:
        return None
    document = new_document(SCHEMA, "/t", spec=None, order=None, properties={})
    for field in ("current-schema-id", "default-spec-id", "default-sort-order-id", "last-column-id"):
        document[field] = draw(small)
    document["last-partition-id"] = 999 + draw(small)
    document["table-uuid"] = str(UUID(int=draw(small)))
    refs = draw(st.dictionaries(names, small))
    document["refs"] = {name: {"snapshot-id": number, "type": "branch"} for name, number in refs.items()}
    return document


requirements = st.one_of(
    st.just({"type": "assert-create"}),
    st.builds(lambda n: {"type": "assert-table-uuid", "uuid": str(UUID(int=n)).upper()}, small),
    st.builds(
        lambda name, n: {"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": n}, names, st.none() | small
    ),
    st.builds(lambda n: {"type": "assert-last-assigned-field-id", "last-assigned-field-id": n}, small),
    st.builds(lambda n: {"type": "assert-current-schema-id", "current-schema-id": n}, small),
    st.builds(lambda n: {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 999 + n}, small),
    st.builds(lambda n: {"type": "assert-default-spec-id", "default-spec-id": n}, small),
    st.builds(lambda n: {"type": "assert-default-sort-order-id", "default-sort-order-id": n}, small),
)


def holds(document: JSON | None, requirement: JSON) -> bool:
    """Return whether a requirement holds, as the specification says."""
    if requirement["type"] == "assert-create":
        return document is None
    if document is None:
        return False
    match requirement["type"]:
        case "assert-table-uuid":
            return bool(UUID(requirement["uuid"]) == UUID(document["table-uuid"]))
        case "assert-ref-snapshot-id":
            ref = document["refs"].get(requirement["ref"], {"snapshot-id": None})
            return bool(ref["snapshot-id"] == requirement["snapshot-id"])
        case "assert-last-assigned-field-id":
            return bool(document["last-column-id"] == requirement["last-assigned-field-id"])
        case "assert-last-assigned-partition-id":
            return bool(document["last-partition-id"] == requirement["last-assigned-partition-id"])
    field = requirement["type"].removeprefix("assert-")
    return bool(document[field] == requirement[field])


@pytest.mark.parametrize(
    "requirement",
    [
        {"type": "assert-create"},
        {"type": "assert-table-uuid", "uuid": str(UUID(int=7))},
        *({"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": other} for other in (2, None)),
        {"type": "assert-ref-snapshot-id", "ref": "audit", "snapshot-id": 1},
        {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 2},
        {"type": "assert-current-schema-id", "current-schema-id": 1},
        {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 1_000},
        {"type": "assert-default-spec-id", "default-spec-id": 1},
        {"type": "assert-default-sort-order-id", "default-sort-order-id": 1},
    ],
)
def test_a_commit_on_other_metadata_is_refused(requirement: JSON) -> None:
    document = new_document(SCHEMA, "/t", spec=None, order=None, properties={})
    document["refs"] = {"main": {"snapshot-id": 1, "type": "branch"}}
    check_requirements(document, [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1}])
    assert not holds(document, requirement)
    with pytest.raises(RequirementFailedError, match="Requirement failed: "):
        check_requirements(document, [requirement])


@given(documents(), st.lists(requirements, max_size=4))
def test_a_commit_may_proceed_iff_all_requirements_hold(document: JSON | None, wanted: list[JSON]) -> None:
    if all(holds(document, requirement) for requirement in wanted):
        check_requirements(document, wanted)
    else:
        with pytest.raises(RequirementFailedError, match="Requirement failed: "):
            check_requirements(document, wanted)


def test_unknown_and_incomplete_requirements_are_refused() -> None:
    document = new_document(SCHEMA, "/t", spec=None, order=None, properties={})
    for requirement in ({"type": "assert-moon"}, {}, {"type": "assert-table-uuid"}, {"type": "assert-view-uuid"}):
        with pytest.raises(InvalidRequestError):
            check_requirements(document, [requirement])
    with pytest.raises(InvalidRequestError, match="assert-table-uuid"):
        is_create([{"type": "assert-create"}, {"type": "assert-table-uuid", "uuid": str(uuid4())}])
