"""Requests of any content: each is answered in the protocol, and none makes the server fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from botocore.model import Shape
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog import Catalog
from catalog.doors.glue.operations import OPERATIONS
from catalog.doors.glue.shapes import find_operation
from tests.support.effort import effort
from tests.support.glue_door import GlueDoor, serving_glue, table_input

NAMES = st.sampled_from(["demo", "orders", "country", "number", "no", "", "a.b/c", "Ä", "\x00", "x" * 300])
TEXT = NAMES | st.text(max_size=8) | st.sampled_from(["1", "-1", "DE", "number = 1", "*", "(", "table_type", "calve.x"])
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)


def fitting(shape: Shape, depth: int = 0) -> st.SearchStrategy[Any]:
    """Return values of a shape, most of which keep its constraints."""
    kind = shape.type_name
    if kind == "structure":
        if depth > 5:
            return st.just({})
        members = {name: fitting(member, depth + 1) for name, member in shape.members.items()}
        required = {name: members[name] for name in shape.required_members}
        rest = {name: member for name, member in members.items() if name not in required and name != "CatalogId"}
        return st.fixed_dictionaries(required, optional=rest)
    if kind == "list":
        return st.lists(fitting(shape.member, depth + 1), max_size=2)
    if kind == "map":
        return st.dictionaries(TEXT, TEXT, max_size=2)
    if kind == "string":
        return st.sampled_from(shape.enum) if getattr(shape, "enum", None) else TEXT
    numbers = st.integers(-1, 5)
    return {"boolean": st.booleans(), "timestamp": numbers | st.just(2**40), "blob": st.just("AA==")}.get(kind, numbers)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[GlueDoor]:
    folder = tmp_path_factory.mktemp("glue-fuzz")
    (folder / "catalog.db").write_bytes(sqlite_template.read_bytes())
    with (
        pytest.MonkeyPatch.context() as patch,
        Catalog.open(f"sqlite:///{folder / 'catalog.db'}", warehouse=str(folder)) as catalog,
        serving_glue(catalog, folder) as door,
    ):
        # No other file of this machine is touched.
        patch.setenv("CALVE_ALLOWED_LOCATIONS", str(folder))
        yield door


@pytest.fixture
def url(served: GlueDoor) -> str:
    """The address of a door to the table `demo.orders` with a partition, whatever other tests have left."""
    glue = served.client()
    with suppress(glue.exceptions.EntityNotFoundException):
        glue.delete_database(Name="demo")
    glue.create_database(DatabaseInput={"Name": "demo"})
    location = f"{served.catalog.get_database('demo').location}/orders"
    table = table_input("orders", {"country": "string", "number": "int"}, location=location)
    glue.create_table(DatabaseName="demo", TableInput=table)
    glue.create_partition(DatabaseName="demo", TableName="orders", PartitionInput={"Values": ["DE", "1"]})
    return served.url


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_any_request_is_answered(url: str, name: str) -> None:
    shape = find_operation(name).input_shape
    headers = {"X-Amz-Target": f"AWSGlue.{name}", "Content-Type": "application/x-amz-json-1.1"}

    @given(members=fitting(shape) | ANYTHING)
    @settings(max_examples=effort(4, 200), suppress_health_check=list(HealthCheck))
    def send(members: Any) -> None:
        answer = client.post(url, content=json.dumps(members).encode(), headers=headers)
        content = answer.json()
        assert answer.status_code in (200, 400), (members, content)
        assert ("__type" in content) is (answer.status_code == 400)

    with httpx.Client(timeout=60) as client:
        send()
