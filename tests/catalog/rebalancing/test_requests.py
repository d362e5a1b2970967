"""Form fields are converted to a change, or to an error that names the field."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import errors
from catalog.errors import CatalogError, WrongFieldError
from catalog.rebalancing.changes import (
    AddPartitions,
    DropPartitions,
    MergePartitions,
    PartitionChange,
    SetPartitionCount,
    SplitPartition,
)
from catalog.rebalancing.requests import RebalanceRequest

TABLE = "demo.flights"
EMPTY = {"items": None, "partition_ids": None, "with_data": False, "count": None}


@pytest.mark.parametrize(
    ("form", "change"),
    [
        ({"operation": "add", "items": ["(Mars, Venus)", "Pluto"]}, AddPartitions(("(Mars, Venus)", "Pluto"))),
        ({"operation": "split", "partition_ids": [4], "items": ["5", "7"]}, SplitPartition(4, ("5", "7"))),
        ({"operation": "drop", "partition_ids": [4, 5]}, DropPartitions((4, 5))),
        ({"operation": "drop", "partition_ids": [4], "with_data": True}, DropPartitions((4,), with_data=True)),
        ({"operation": "merge", "partition_ids": [4, 5]}, MergePartitions((4, 5))),
        ({"operation": "set_partition_num", "count": 9}, SetPartitionCount(9)),
    ],
)
def test_form_gives_the_change_and_the_change_gives_the_form(form: dict[str, Any], change: PartitionChange) -> None:
    form = {**EMPTY, **form, "table": TABLE, "dry_run": True}
    request = RebalanceRequest.from_form(form)
    assert request.change == change
    assert request.as_form() == form
    assert RebalanceRequest.of(TABLE, change) == request


def test_ids_may_be_the_lines_of_a_form() -> None:
    form = {"table": TABLE, "operation": "merge", "partition_ids": ["4", 5]}
    assert RebalanceRequest.from_form(form).change == MergePartitions((4, 5))


def test_nothing_is_changed_unless_asked_for() -> None:
    assert RebalanceRequest.from_form({"table": TABLE, "operation": "set_partition_num", "count": 9}).dry_run


@pytest.mark.parametrize(
    ("form", "field", "problem"),
    [
        ({"table": None}, "table", "is None, expected a table"),
        (
            {"operation": "rename"},
            "operation",
            "is 'rename', expected one of add, split, drop, merge, set_partition_num",
        ),
        ({"operation": "add"}, "items", "is empty; add needs a list of strings"),
        ({"operation": "split", "items": ["1", "2"]}, "partition_ids", "is empty; split needs"),
        ({"operation": "split", "items": ["1"], "partition_ids": [1, 2]}, "partition_ids", "exactly one"),
        ({"operation": "merge"}, "partition_ids", "is empty; merge needs"),
        ({"operation": "set_partition_num"}, "count", "is empty; set_partition_num needs a whole number"),
        (
            {"operation": "add", "items": ["1"], "partition_ids": [3]},
            "partition_ids",
            r"is \[3\], but add takes only items",
        ),
        (
            {"operation": "merge", "partition_ids": [1, 2], "with_data": True},
            "with_data",
            "but merge takes only partition_ids",
        ),
        ({"operation": "drop", "partition_ids": ["x"]}, "partition_ids", r"is \['x'\], expected a list of partition"),
        ({"operation": "drop", "partition_ids": ["-1"]}, "partition_ids", "expected a list of partition"),
        ({"operation": "drop", "partition_ids": [True]}, "partition_ids", "expected a list of partition ids"),
        ({"operation": "add", "items": "1, 2"}, "items", "expected a list of strings"),
        ({"operation": "add", "items": [""]}, "items", "expected a list of strings"),
        ({"operation": "set_partition_num", "count": "9"}, "count", "is '9', expected a whole number"),
        ({"operation": "drop", "partition_ids": [1], "dry_run": "False"}, "dry_run", "expected true or false"),
        ({"operation": "drop", "ids": [1]}, "ids", "unknown field"),
    ],
)
def test_wrong_field_is_named(form: dict[str, Any], field: str, problem: str) -> None:
    with pytest.raises(WrongFieldError, match=f"^{field}: .*{problem}") as raised:
        RebalanceRequest.from_form({"table": TABLE, **form})
    assert raised.value.field == field


@given(
    st.fixed_dictionaries(
        {"table": st.just(TABLE), "operation": st.sampled_from(["add", "split", "drop", "merge", "set_partition_num"])},
        optional={
            "items": st.none() | st.lists(st.text(max_size=3), max_size=3),
            "partition_ids": st.none() | st.lists(st.integers(), max_size=3),
            "with_data": st.booleans(),
            "count": st.none() | st.integers(),
            "dry_run": st.booleans(),
        },
    )
)
def test_form_is_a_request_or_names_one_of_its_fields(form: dict[str, Any]) -> None:
    problem = ""
    try:
        request = RebalanceRequest.from_form(form)
    except WrongFieldError as error:
        problem = error.field
    assert problem in {"", *EMPTY}
    if not problem:
        assert RebalanceRequest.of(TABLE, request.change, dry_run=request.dry_run) == request


@pytest.mark.parametrize(
    ("error", "field"),
    [
        (errors.TableNotFoundError("no"), "table"),
        (errors.DatabaseNotFoundError("no"), "table"),
        (errors.InvalidIdentifierError("no"), "table"),
        (errors.PartitionNotFoundError("no"), "partition_ids"),
        (errors.DefaultPartitionError("no"), "partition_ids"),
        (errors.BoundsNotAscendingError("ADD", "2", "1"), "items"),
        (errors.ListGroupMismatchError("no"), "items"),
        (errors.UnsupportedChangeError("no"), "operation"),
        (errors.InvalidSchemeError("no"), "partition_ids"),
    ],
)
def test_error_of_a_plan_is_about_a_field(error: CatalogError, field: str) -> None:
    request = RebalanceRequest.of(TABLE, SplitPartition(4, ("5", "7")))
    assert request.field_of(error) == field
    assert request.field_of(error, has_scheme=False) == "table"
