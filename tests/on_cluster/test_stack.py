"""`make cluster`: every process runs as another user than root, jobs run, and nothing is left when it is stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from standalone.cluster import WORKERS
from standalone.services import AIRFLOW_COMPONENTS
from standalone.state import StackState
from tests.support.cluster_stack import cluster_stack

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.long
def test_a_cluster_runs_jobs_without_root_and_stops_completely(tmp_path: Path) -> None:
    home = tmp_path / "cluster"
    with cluster_stack(home) as stack:
        state = StackState.read(home)
        assert state is not None
        assert state.components.keys() == {"s3", "spark-master", *WORKERS, *AIRFLOW_COMPONENTS}
        processes = {*state.processes(), state.owner.pid}
        assert 0 not in {Path(f"/proc/{process}").stat().st_uid for process in processes}
        started = stack.api.trigger("run_statement", {"statement": "SELECT count(*) AS numbers FROM range(10)"})
        assert stack.api.wait("run_statement", started, 900) == "success"
        assert "10" in str(stack.api.xcom("run_statement", started, "run"))
    assert state.processes() == set()
    assert not state.owner.is_alive
