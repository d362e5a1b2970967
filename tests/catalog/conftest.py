"""A catalog on each database, and a table to work on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.configuration import set_hypothesis_home_dir

from catalog import Catalog, Table
from tests.support.effort import effort

set_hypothesis_home_dir(Path(__file__).parents[2] / ".calve" / "hypothesis")
# The machine may be busy: slow examples are not failures.
settings.register_profile(
    "calve",
    deadline=None,
    max_examples=effort(15, 100),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("quick", settings.get_profile("calve"), max_examples=5)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "calve"))


@pytest.fixture
def catalog(catalog_url: str, tmp_path: Path) -> Iterator[Catalog]:
    """A fresh catalog with the database `demo`, on each database in turn."""
    with Catalog.open(catalog_url, warehouse=str(tmp_path / "warehouse")) as catalog:
        catalog.create_database("demo")
        yield catalog


@pytest.fixture
def flights(catalog: Catalog) -> Table:
    """The table `demo.flights`, empty, without an index."""
    return catalog.create_table(
        "demo.flights",
        columns=[("flight", "int"), ("dep_delay", "double")],
        partition_keys=[("origin", "string"), ("year", "int"), ("day", "date")],
    )


@pytest.fixture
def overlapping_locations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow overlapping locations of tables and partitions, as in catalogs of earlier versions."""
    for check in ("tables.ownership.find_neighbour", "partitions.adding.refuse_shared_folders"):
        monkeypatch.setattr(f"catalog.{check}", lambda *_arguments, **_options: None)
    for near in ("tables.ownership._tables_near", "iceberg.own_folders.tables_near"):
        monkeypatch.setattr(f"catalog.{near}", lambda *_arguments, **_options: iter(()))
