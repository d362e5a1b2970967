"""Build the missing partition indexes of many or all tables.

The form, or the table's entry in the YAML list (`CALVE_TABLES`), names the indexes that a table needs. ACTIVE indexes
are not changed, so a run can be repeated; the build of an index continues where an earlier one stopped. The tables stay
readable and writable.

| task | does |
| --- | --- |
| plan | compares the indexes that the tables need with the existing ones |
| build | for each table: creates the missing indexes and writes their items (Spark) |
| wait_until_active | for each table: waits without a worker slot; fails with code and detail if an index FAILED |
| summarise | logs and returns the state of each index; fails if one is not ACTIVE, and names it |

The failure of a table, or its wrong entry in the list, fails the run but does not prevent the builds of the others.
Remove the cause and clear the run to build the indexes that are still missing. The slots of the pool `CALVE_SPARK_POOL`
limit the number of concurrent builds.

Examples: `{}`; `{"tables": ["demo.flights"], "indexes": ["by_route: origin, carrier", "by_carrier: carrier, year"]}`
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, task_group

from calve_airflow.dags.base import calve_dag
from calve_airflow.forms.indexes import backfill_params
from calve_airflow.operators.backfilling import BackfillTablesOperator, PlanBackfillOperator, SummariseBackfillOperator
from calve_airflow.operators.loading import OPERATION_ID
from calve_airflow.sensors.batches import PartitionIndexBatchSensor
from calve_airflow.settings import spark_pool


def backfill_partition_indexes_dag(**arguments: Any) -> DAG:
    """Return the DAG; the arguments replace those of its `DAG`."""
    with calve_dag(
        "backfill_partition_indexes",
        arguments,
        doc_md=__doc__,
        schedule=None,
        params=backfill_params(),
        tags=["calve", "indexes"],
        max_active_runs=1,
    ) as dag:
        plan = PlanBackfillOperator(task_id="plan")

        @task_group(prefix_group_id=False)
        def each_batch(batch: Any) -> None:
            """Build the missing indexes of a table, or of several of very many."""
            build = BackfillTablesOperator(
                task_id="build", batch=batch, pool=spark_pool(), map_index_template="{{ task.title }}"
            )
            PartitionIndexBatchSensor(
                task_id="wait_until_active", batch=batch, indexes=build.output, map_index_template="{{ task.title }}"
            )

        summarise = SummariseBackfillOperator(
            task_id="summarise",
            operation_id=OPERATION_ID,
            planned="{{ ti.xcom_pull('plan') }}",
            wanted="{{ ti.xcom_pull('plan', key='wanted') }}",
            config_problems="{{ ti.xcom_pull('plan', key='config_problems') }}",
        )

        each_batch.expand(batch=plan.output) >> summarise
    return dag
