"""Build a partition index online.

Creates a partition index on an existing table and builds it while the table stays readable and writable: partitions
that are added during the build write their own items. If an earlier build left the index CREATING, the build continues
where that one stopped.

Mark `build` as failed to stop the build; clear the task, or start another run with the same form, to continue it.
`calve cancel-build` cancels it permanently: the index and the run fail with the code CANCELLED. Deleting the index
during its build also ends the run.

| task | does |
| --- | --- |
| create | creates the index; from now on the table refuses partitions that do not fit it |
| build | writes the items of the existing partitions (Spark) |
| wait_until_active | waits without a worker slot; fails at once, with code and detail, if the index FAILED |

Example: `{"table": "demo.flights", "index": "by_route", "keys": ["origin", "carrier", "month"]}`
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG

from calve_airflow.dags.base import calve_dag
from calve_airflow.forms.indexes import index_params
from calve_airflow.operators.indexes import CreatePartitionIndexOperator
from calve_airflow.operators.loading import OPERATION_ID, fail_operation
from calve_airflow.operators.spark_job import SparkJobOperator
from calve_airflow.sensors.indexes import PartitionIndexSensor
from calve_airflow.settings import spark_pool

TABLE, INDEX = "{{ params.table }}", "{{ params.index }}"


def build_partition_index_dag(**arguments: Any) -> DAG:
    """Return the DAG; the arguments replace those of its `DAG`."""
    with calve_dag(
        "build_partition_index",
        arguments,
        doc_md=__doc__,
        schedule=None,
        params=index_params(),
        tags=["calve", "indexes"],
        default_args={"on_failure_callback": fail_operation},
        on_failure_callback=fail_operation,
    ) as dag:
        create = CreatePartitionIndexOperator(
            task_id="create", operation_id=OPERATION_ID, table=TABLE, index=INDEX, keys="{{ params['keys'] }}"
        )
        build = SparkJobOperator(
            task_id="build",
            job="build_partition_index",
            operation_id=OPERATION_ID,
            request={"table": TABLE, "index": INDEX},
            pool=spark_pool(),
        )
        wait = PartitionIndexSensor(task_id="wait_until_active", table=TABLE, index=INDEX)

        create >> build >> wait
    return dag
