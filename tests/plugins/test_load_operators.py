"""What a load does when it is run again."""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import Context

from calve_airflow.load_operators import RegisterPartitionsOperator
from catalog import Catalog
from catalog.loading import STAGING
from catalog.operations import OperationKind, OperationState

TABLE, RUN, STEP = "demo.flights", "add_partitions/run", "register"


def test_a_try_after_one_that_died_behind_its_commit_clears_up(catalog: Catalog) -> None:
    catalog.operations.begin(RUN, OperationKind.ADD_PARTITIONS, TABLE)
    attempt = catalog.operations.start_job(RUN, STEP)
    catalog.operations.finish_job(RUN, STEP, attempt, {"partitions": 3})
    with catalog.storage.write() as connection:
        catalog.operations.advance(connection, RUN, OperationState.COMMITTED)
    location = Path(catalog.get_table(TABLE).location)
    staging = f"{STAGING}/1-1"
    (location / staging).mkdir(parents=True)
    operator = RegisterPartitionsOperator(
        task_id=STEP, operation_id=RUN, staged={"staging": staging}, request={}, quality={}
    )
    assert operator.execute(Context()) == {"partitions": 3}
    assert catalog.operations.get(RUN).state is OperationState.CLEANED
    assert not (location / STAGING).exists()
