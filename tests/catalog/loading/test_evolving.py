"""Loads with which their tables get columns: files and columns become visible in one transaction, or not at all."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from catalog import Catalog
from catalog.operations.failpoints import Point
from tests.catalog.loading.test_loading import TABLE, Load
from tests.catalog.loading.test_loading import landing as landing
from tests.catalog.loading.test_loading import load as load
from tests.catalog.loading.test_loading import table as table
from tests.catalog.loading.test_snapshots import written
from tests.support.processes import context
from tests.support.published import published
from tests.support.stopped_loads import publish_evolving, with_note

POINTS = (Point.MOVED, Point.CHANGED, Point.COMMITTED)


def killed(url: str, operation: str, folder: str, point: Point) -> None:
    process = context.Process(target=publish_evolving, args=(url, operation, folder, point))
    process.start()
    process.join(300)
    assert process.exitcode == -signal.SIGKILL


def column_names(catalog: Catalog, table: str) -> list[str]:
    return [column.name for column in catalog.get_table(table).columns]


@pytest.mark.parametrize("point", POINTS)
def test_a_table_has_the_column_with_the_partitions(
    catalog: Catalog, catalog_url: str, load: Load, point: Point
) -> None:
    load.discover()
    load.stage()
    before = catalog.get_table(TABLE)
    killed(catalog_url, load.name, load.staging, point)
    is_committed = point is Point.COMMITTED
    assert ("note" in column_names(catalog, TABLE)) is is_committed
    assert bool(list(catalog.get_partitions(TABLE))) is is_committed
    attempt = catalog.operations.start_job(load.name, "register")
    catalog.loading.publish(load.name, "register", attempt, load.staging, evolution=with_note(before))
    assert column_names(catalog, TABLE) == [*(column.name for column in before.columns), "note"]
    assert list(catalog.get_partitions(TABLE))


@pytest.mark.parametrize("point", POINTS[1:])
def test_a_table_stored_as_iceberg_has_the_column_with_the_snapshot(
    catalog: Catalog, catalog_url: str, tmp_path: Path, point: Point
) -> None:
    keys = [("origin", "string"), ("month", "int")]
    catalog.create_table(TABLE, columns=[("v", "int")], partition_keys=keys, format="iceberg")
    before = catalog.get_table(TABLE)
    folder = written(catalog, "run", tmp_path / "1.csv", {("JFK", "1"): [2]})
    killed(catalog_url, "run", folder, point)
    is_committed = point is Point.COMMITTED
    assert ("note" in column_names(catalog, TABLE)) is is_committed
    attempt = catalog.operations.start_job("run", "register")
    catalog.loading.publish("run", "register", attempt, folder, evolution=with_note(before))
    table = published(catalog, TABLE)
    assert [field.name for field in table.schema().fields] == ["v", "note", "origin", "month"]
    assert table.scan().to_arrow().column("note").to_pylist() == [None]
