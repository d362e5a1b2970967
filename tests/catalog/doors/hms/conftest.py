"""A door over a fresh catalog, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog import Catalog
from tests.support.hms_door import HmsDoor


@pytest.fixture
def door(catalog: Catalog, tmp_path: Path) -> Iterator[HmsDoor]:
    """A door over a fresh catalog with the database `demo`."""
    metrics = tmp_path / "metrics"
    metrics.mkdir()
    with HmsDoor(catalog, metrics, tmp_path / "warehouse") as door:
        yield door


@pytest.fixture
def client(door: HmsDoor) -> Iterator[Any]:
    """A client of the door."""
    with door.client() as client:
        yield client
