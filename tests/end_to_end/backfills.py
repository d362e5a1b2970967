"""Airflow's own backfills."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from standalone.stack import Stack

_TIMEOUT_SECONDS = 1800.0


def backfill(stack: Stack, dag_id: str, first: str, last: str, reprocess: str = "none") -> dict[str, str]:
    """Backfill days, one after the other, and return the state of each run by its day when all have ended.

    Args:
        first, last: Dates in ISO format, both included.
        reprocess: Airflow's behaviour for days that have a run: none, failed or completed.
    """
    started = stack.api.post(
        "/backfills",
        {
            "dag_id": dag_id,
            "from_date": f"{first}T00:00:00Z",
            "to_date": f"{last}T00:00:00Z",
            "reprocess_behavior": reprocess,
            "max_active_runs": 1,
        },
    )
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while stack.api.get(f"/backfills/{started['id']}")["completed_at"] is None:
        assert time.monotonic() < deadline, "the backfill does not end"
        time.sleep(0.5)
    runs = (run for run in stack.api.dag_runs(dag_id) if run["run_type"] == "backfill")
    return {run["logical_date"][:10]: run["state"] for run in runs}
