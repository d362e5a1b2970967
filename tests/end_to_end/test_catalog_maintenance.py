"""Airflow removes obsolete files and records, and keeps those in use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from catalog import Catalog
from tests.support.written_files import Load, data_files, hashed_table, known, on_disk

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)]

TABLE = "maintenance.h"


@pytest.mark.parametrize("stack", ["postgresql"], indirect=True)
def test_what_nobody_needs_goes_and_what_is_in_use_stays(
    catalog: Catalog, run_dag: Callable[..., Any], start_dag: Callable[..., Any]
) -> None:
    catalog.create_database("maintenance")
    table = hashed_table(catalog, TABLE)
    Load(catalog, table, "maintenance-1").run()
    Load(catalog, table, "maintenance-2").run(retired=data_files(catalog, table))
    Load(catalog, table, "maintenance-3").begin().write().fail()
    at_work = Load(catalog, table, "maintenance-4").begin().write()
    before = on_disk(table.location)

    would = run_dag("catalog_maintenance", {"grace_hours": 0, "dry_run": True})
    assert on_disk(table.location) == before
    (said,) = [row for row in would.result("summarise") if row["table"] == TABLE]
    assert said["outcome"].startswith("would be deleted: 2 replaced file(s), 200 bytes; 8 orphan(s), ")

    done = start_dag("catalog_maintenance", {"grace_hours": 0})
    assert done.question()[0] == "Delete replaced files after 0 hours?"
    assert on_disk(table.location) == before
    done.answer("Approve")
    done.wait()
    assert done.states() == dict.fromkeys(
        ("approve", "vacuum", "expire_operations", "clear_failed_builds", "check_catalog", "summarise"), "success"
    )
    deleted = f"| vacuum | {TABLE} | deleted: 2 replaced file(s), 200 bytes; 8 orphan(s), "
    assert deleted in done.log("summarise", is_aligned=False)
    assert {path for path in on_disk(table.location) if not path.startswith(at_work.folder)} == known(catalog, table)
    at_work.commit()
    assert known(catalog, table) <= on_disk(table.location)
