"""Changes that were made outside of Airflow are announced by a DAG, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from catalog import Catalog, NewPartition

pytestmark = [
    *(pytest.mark.airflow, pytest.mark.slow),
    pytest.mark.filterwarnings("ignore"),  # Airflow's own
]

TABLE = "announced.visits"


@pytest.mark.long
def test_changes_are_announced_once(catalog: Catalog, run_dag: Callable[..., Any]) -> None:
    catalog.create_database("announced")
    catalog.create_table(TABLE, columns=[("id", "bigint")], partition_keys=[("day", "int")])
    catalog.add_partitions(TABLE, [NewPartition((str(day),)) for day in (1, 2)])
    catalog.drop_partitions(TABLE, "day = 2")
    run = run_dag("announce_changes")
    assert set(run.states().values()) <= {"success", "skipped"}
    assert (run.states()["announce"], run.states()["finish"]) == ("success", "success")
    assert catalog.announcements.pending() is None
    again = run_dag("announce_changes")
    assert (again.states()["claim"], again.states()["announce"]) == ("skipped", "skipped")
