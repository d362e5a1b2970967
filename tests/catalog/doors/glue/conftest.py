"""A Glue door over a catalog on each database, whose answers are compared with Glue's service model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from catalog import Catalog
from catalog.doors.glue import application
from catalog.doors.glue.calls import Answer, Call, Operation
from catalog.doors.glue.shapes import check_answer, find_operation
from tests.support.glue_door import KEYS, GlueDoor, serving_glue


def checked(name: str, operation: Operation) -> Operation:
    """Return an operation whose answers have to fit Glue's service model."""

    def run(call: Call) -> Answer:
        answer = operation.run(call)
        problems = check_answer(find_operation(name), json.loads(answer) if isinstance(answer, str) else answer)
        assert not problems, problems
        return answer

    return replace(operation, run=run)


@pytest.fixture(autouse=True)
def checked_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    operations = {name: checked(name, operation) for name, operation in application.OPERATIONS.items()}
    monkeypatch.setattr(application, "OPERATIONS", operations)


@pytest.fixture
def door(catalog: Catalog, tmp_path: Path) -> Iterator[GlueDoor]:
    """A door that checks signatures."""
    with serving_glue(catalog, tmp_path, KEYS) as door:
        yield door


@pytest.fixture
def glue(door: GlueDoor) -> Any:
    """boto3's client of an owner; the database `demo` is empty."""
    return door.client()
